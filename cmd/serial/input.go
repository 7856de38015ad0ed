package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strings"
)

// An entry is a line of the input, or a field of its column.
type entry struct {
	text string
	line int
}

// A source is where audit and import read numbers.
type source struct {
	stdin  io.Reader
	stderr io.Writer
	column string // of CSV; "" for lines
}

// open returns the input: the file of that name or, without one, stdin.
func (s *source) open(name string) (io.ReadCloser, error) {
	if name == "" || name == "-" {
		if isTerminal(s.stdin) {
			_, _ = fmt.Fprintln(s.stderr, "serial: reading numbers from this terminal, one per line")
		}
		return io.NopCloser(s.stdin), nil
	}
	return os.Open(name)
}

// entries yields what the input holds, without blank lines, until ctx ends. The first error ends it.
func (s *source) entries(ctx context.Context, input io.Reader) iter.Seq2[entry, error] {
	const often = 500_000
	return func(yield func(entry, error) bool) {
		progress, width := io.Discard, 0
		if isTerminal(s.stderr) {
			progress = s.stderr
		}
		// Progress is erased, as in next.
		erase := func() { _, _ = fmt.Fprintf(progress, "\r%*s\r", width, "") }
		n := 0
		for e, err := range s.fields(ctx, input) {
			if err == nil {
				err = ctx.Err()
			}
			if err == nil && strings.TrimSpace(e.text) == "" {
				continue
			}
			if n++; n%often == 0 {
				if width > 0 {
					erase()
				}
				width, _ = fmt.Fprintf(progress, "serial: %d numbers were read", n)
			}
			if !yield(e, err) || err != nil {
				break
			}
		}
		if width > 0 {
			erase()
		}
	}
}

// fields yields the lines of the input, or with -column the fields of that column.
func (s *source) fields(ctx context.Context, input io.Reader) iter.Seq2[entry, error] {
	r := newReader(ctx, input)
	if s.column != "" {
		return s.csv(r)
	}
	return func(yield func(entry, error) bool) {
		for n := 1; ; n++ {
			line, more, err := r.ReadLine()
			text := strings.TrimSuffix(string(line), "\r")
			if more {
				text += "…" // not blank, whatever it begins with
			}
			for more && err == nil { // no number is that long, so its beginning is enough
				_, more, err = r.ReadLine()
			}
			if errors.Is(err, io.EOF) {
				if text == "" {
					return
				}
				err = nil // the last line fills the buffer
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

// newReader reads the input, without the byte order mark that programs on Windows write first, until ctx ends.
func newReader(ctx context.Context, input io.Reader) *bufio.Reader {
	const size = 64 << 10
	r := bufio.NewReaderSize(interruptible{ctx, input}, size)
	mark := []byte("\ufeff")
	if start, _ := r.Peek(len(mark)); bytes.Equal(start, mark) {
		_, _ = r.Discard(len(mark))
	}
	return r
}

// csv yields the fields of a column that the first record names.
func (s *source) csv(input io.Reader) iter.Seq2[entry, error] {
	return func(yield func(entry, error) bool) {
		r := csv.NewReader(input)
		r.ReuseRecord = true
		at := -1
		for {
			record, err := r.Read()
			switch {
			case errors.Is(err, io.EOF) && at < 0:
				err = errors.New("the input is empty, and its first line should name the columns")
			case errors.Is(err, io.EOF):
				return
			case err != nil:
				err = fmt.Errorf("the input cannot be read as CSV: %w", err)
			case at < 0:
				if at, err = columnOf(record, s.column); err == nil {
					continue
				}
			}
			if err != nil {
				yield(entry{}, err)
				return
			}
			line, _ := r.FieldPos(at)
			if !yield(entry{record[at], line}, nil) {
				return
			}
		}
	}
}

// An interruptible is an input whose Read returns when ctx ends, even while no input arrives. Later input is lost.
type interruptible struct {
	ctx   context.Context
	input io.Reader
}

func (r interruptible) Read(p []byte) (int, error) {
	type result struct {
		n   int
		err error
	}
	buffer, done := make([]byte, len(p)), make(chan result, 1)
	go func() {
		n, err := r.input.Read(buffer)
		done <- result{n, err}
	}()
	select {
	case <-r.ctx.Done():
		return 0, r.ctx.Err()
	case got := <-done:
		return copy(p, buffer[:got.n]), got.err
	}
}

// columnOf returns the place of the only column of that name.
func columnOf(header []string, name string) (int, error) {
	at := -1
	for i, column := range header {
		switch {
		case column != name:
		case at >= 0:
			return 0, fmt.Errorf("two columns are called %q", name)
		default:
			at = i
		}
	}
	switch {
	case at < 0 && len(header) == 1 && strings.ContainsAny(header[0], ";\t"):
		return 0, fmt.Errorf("no column is called %q, and the only one is %q; columns are separated by commas",
			name, header[0])
	case at < 0:
		return 0, fmt.Errorf("no column is called %q; the columns are %q", name, header)
	}
	return at, nil
}
