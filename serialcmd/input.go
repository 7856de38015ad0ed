package serialcmd

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"

	"github.com/dailyserial/serial/internal/template"
)

// An entry is a line of the input or, with -column, a field of the column.
type entry struct {
	text string
	line int
}

// openInput opens the file, or stdin if the name is empty or "-". If the name is empty and TYPE is the name of a file,
// the user has probably forgotten TYPE, so openInput returns an error.
func (c *command) openInput(name string) (io.ReadCloser, error) {
	if name == "" || name == "-" {
		if info, err := os.Stat(c.args[0]); err == nil && info.Mode().IsRegular() && name == "" {
			return nil, misused("%q is a file; want TYPE before it or, if it is the type, - after it to read stdin", c.args[0])
		}
		if isTerminal(c.Stdin) {
			c.warn("reading numbers from this terminal, one per line")
		}
		return io.NopCloser(c.Stdin), nil
	}
	return os.Open(name)
}

// entries yields the entries of the input that are not blank, until ctx ends or an error occurs.
func (c *command) entries(ctx context.Context, input io.Reader) iter.Seq2[entry, error] {
	return func(yield func(entry, error) bool) {
		for e, err := range c.fields(ctx, input) {
			e.text = plain(e.text)
			if err = cmp.Or(err, ctx.Err()); err == nil && strings.TrimSpace(e.text) == "" {
				continue
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// plain returns a field without an enclosing =" and ", which programs write so that Excel treats a number as text.
func plain(field string) string {
	inner, formula := strings.CutPrefix(strings.Trim(field, template.Blanks), `="`)
	if inner, ends := strings.CutSuffix(inner, `"`); formula && ends {
		return inner
	}
	return field
}

// fields yields the lines of the input or, with -column, the fields of that column.
func (c *command) fields(ctx context.Context, input io.Reader) iter.Seq2[entry, error] {
	if c.column != "" {
		return c.csvFields(newCSV(ctx, input))
	}
	r := newReader(ctx, input)
	discardSeparator(r)
	return func(yield func(entry, error) bool) {
		for n := 1; ; n++ {
			line, more, err := r.ReadLine()
			text := strings.TrimSuffix(string(line), "\r")
			if more {
				text += "…" // so that the line is not blank
			}
			for more && err == nil { // the line is too long for a number, so the rest can be dropped
				_, more, err = r.ReadLine()
			}
			if errors.Is(err, io.EOF) {
				if text == "" {
					return
				}
				err = nil // the last line has filled the buffer
			}
			if err != nil {
				err = fmt.Errorf("the input cannot be read: %w", err)
			}
			if !yield(entry{text, n}, err) || err != nil {
				return
			}
		}
	}
}

// useColumn is the advice for an input that looks like CSV.
const useColumn = "if the input is CSV with a header, use -column"

// isCSV reports whether an entry that is not a number looks like a line of CSV. This is the case if one of its fields
// is a number, or if it is the first line and contains no digit, like a header.
func (c *command) isCSV(e entry) bool {
	fields := strings.FieldsFunc(e.text, func(r rune) bool { return strings.ContainsRune(separators+`"`, r) })
	return c.column == "" && (e.line == 1 && !strings.ContainsAny(e.text, "0123456789") ||
		slices.ContainsFunc(fields, func(field string) bool { _, err := c.parsePadded(field); return err == nil }))
}

// separatorLine matches a first line such as sep=; with which spreadsheets set the separator of the columns.
var separatorLine = regexp.MustCompile(`^("?(?i:sep)=([,;\t])"?)(\r?\n|$)`)

const (
	bufferSize = 64 << 10
	separators = ",;\t"       // possible separators of columns
	zip        = "PK\x03\x04" // first bytes of a ZIP archive, and so of an .xlsx file
)

// newReader returns a reader that converts the input to UTF-8. It fails once ctx has ended, and if the input is a ZIP
// archive. It removes the byte order mark that Windows programs write, and decodes UTF-16 after such a mark. An
// incomplete character becomes U+FFFD.
func newReader(ctx context.Context, input io.Reader) *bufio.Reader {
	r, w := io.Pipe() // needed because a read from a terminal does not end when ctx ends
	go func() {
		buffered := bufio.NewReaderSize(input, bufferSize)
		start, _ := buffered.Peek(len(zip))
		err := errors.New("this is a spreadsheet or an archive; save it as CSV")
		if string(start) != zip {
			_, err = io.Copy(w, buffered)
		}
		_ = w.CloseWithError(err)
	}()
	context.AfterFunc(ctx, func() { _ = w.CloseWithError(ctx.Err()) })
	return bufio.NewReaderSize(transform.NewReader(r, unicode.BOMOverride(transform.Nop)), bufferSize)
}

// discardSeparator returns the separator that the first line of the input sets, or 0 if it sets none. It discards the
// content of that line, but not its line ending, so that line numbers stay correct.
func discardSeparator(r *bufio.Reader) (comma rune) {
	start, _ := r.Peek(len("\"sep=;\"\r\n"))
	line := separatorLine.FindSubmatch(start)
	if line == nil {
		return 0
	}
	comma = rune(line[2][0])
	_, _ = r.Discard(len(line[1]))
	return comma
}

// newCSV returns a CSV reader for the input. If the input does not set the separator, newCSV uses the one that is most
// frequent in the header, outside quotes.
func newCSV(ctx context.Context, input io.Reader) *csv.Reader {
	r := newReader(ctx, input)
	comma := discardSeparator(r)
	if comma == 0 {
		var counts [len(separators)]int
		start, _ := r.Peek(bufferSize)
		quoted := false
		for _, c := range bytes.TrimLeft(start, "\r\n") {
			quoted = quoted != (c == '"')
			if i := strings.IndexByte(separators, c); i >= 0 && !quoted {
				counts[i]++
			}
			if c == '\n' && !quoted {
				break
			}
		}
		comma = rune(separators[slices.Index(counts[:], slices.Max(counts[:]))])
	}
	reader := csv.NewReader(&csvInput{r: r, comma: byte(comma), line: 1, begins: 1})
	reader.Comma = comma
	return reader
}

// A csvInput is the input of a csv.Reader. It removes the = in front of a quoted field, which package csv would reject.
// It fails if a field has more than 1 MB, because without a closing quote, the rest of the file would be one field.
type csvInput struct {
	r      *bufio.Reader
	comma  byte
	line   int  // number of the current line, from 1
	begins int  // number of the line on which the current field begins
	length int  // count of the bytes of the current field that were read
	quoted bool // whether the next byte is between two quotes
}

func (c *csvInput) Read(p []byte) (n int, err error) {
	const limit = 1<<20 + len("\"\"\r\n") // 1 MB, quotes and a line ending
	start, err := c.r.Peek(len(`="`))
	if len(start) == 0 {
		return 0, err
	}
	if string(start) == `="` && c.length == 0 && !c.quoted {
		_, _ = c.r.Discard(len("="))
	}
	window, _ := c.r.Peek(min(c.r.Buffered(), len(p)))
	for _, b := range window {
		if b == '=' && c.length == 0 && !c.quoted && n > 0 {
			break // the next call checks for a quote
		}
		n++
		if c.length++; c.length > limit {
			return 0, fmt.Errorf("a field that begins on line %d has more than 1 MB, the maximum; is a quote missing at its "+
				"end?", c.begins)
		}
		c.quoted = c.quoted != (b == '"')
		if b == '\n' {
			c.line++
		}
		if !c.quoted && (b == c.comma || b == '\n') {
			c.begins, c.length = c.line, 0
		}
	}
	copy(p, window[:n])
	_, _ = c.r.Discard(n)
	return n, nil
}

// csvFields yields the fields of the column -column. The first row is the header.
func (c *command) csvFields(r *csv.Reader) iter.Seq2[entry, error] {
	return func(yield func(entry, error) bool) {
		r.ReuseRecord = true
		at := -1
		for {
			row, err := r.Read()
			switch {
			case errors.Is(err, io.EOF) && at < 0:
				err = errors.New("the input is empty; want a header")
			case errors.Is(err, io.EOF):
				return
			case err != nil:
				err = fmt.Errorf("the input cannot be read as CSV: %w", err)
			case at < 0:
				if at, err = findColumn(row, c.column); err == nil {
					continue
				}
			}
			if err != nil {
				yield(entry{}, err)
				return
			}
			line, _ := r.FieldPos(at)
			if !yield(entry{row[at], line}, nil) {
				return
			}
		}
	}
}

// findColumn returns the index of the column with the given name. It returns an error if there is no such column, or
// more than one.
func findColumn(header []string, name string) (int, error) {
	at := -1
	for i, column := range header {
		switch {
		case column != name:
		case at >= 0:
			return 0, fmt.Errorf("two columns have the name %q", name)
		default:
			at = i
		}
	}
	if at < 0 {
		return 0, fmt.Errorf("no column has the name %q; the columns are %q", name, header)
	}
	return at, nil
}
