package template

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dailyserial/serial/internal/calendar"
	"github.com/dailyserial/serial/internal/checkdigit"
)

// PrintNumber returns a printed number. The parameter date is the printed date. If the date is "", but the template
// prints one, PrintNumber returns "". The label of the period is needed to hide the sequence. A sequence that is too
// wide for the template is printed with all its digits, in decimal.
func (t *Template) PrintNumber(typ, date, label string, seq int64) string {
	if date == "" && t.Dates.text != "" {
		return ""
	}
	var buf [128]byte // on the stack, so the returned string is the only allocation
	b := buf[:0]
	check := -1 // offset of the check characters
	for i := range t.fields {
		switch f := &t.fields[i]; f.kind {
		case fieldLiteral:
			b = append(b, f.text...)
		case fieldType:
			b = append(b, typ...)
		case fieldDate: // the first field of the date prints all of it
			b = append(b, date...)
			date = ""
		case fieldSeq:
			if least := t.alphabet.least; t.cipher != nil && seq >= least && seq <= t.Largest() {
				var tweak [256]byte
				seq = least + t.cipher.Encrypt(t.tweak(tweak[:0], typ, label), seq-least)
			}
			b = appendPadded(b, seq, t.seqWidth, t.alphabet)
		case fieldCheck:
			check = len(b)
			b = append(b, f.text...)
		}
	}
	if check >= 0 {
		appendCheck(t.check, b[:check], b, check)
	}
	return string(b)
}

// Instants returns the first instant of a span's period, and the first instant at which the span's date is printed in
// that period. The second instant is zero if the date is not known.
func (d *Dates) Instants(s *calendar.Span) (start, date time.Time) {
	if from := s.From; s.Date != "" || d.text == "" {
		if d.repeat {
			if first, err := d.Find(s.Date); err == nil && first.Start == s.Start {
				from = first.From
			}
		}
		date = time.Unix(from, 0).In(d.calendar.Location)
	}
	return time.Unix(s.Start, 0).In(d.calendar.Location), date
}

// Int64 returns a number as an integer. It consists of the digits of the printed date, ordered from coarse to fine
// parts, and of the padded sequence.
func (t *Template) Int64(date string, seq int64) (int64, error) {
	switch {
	case t.cipher != nil:
		return 0, errors.New("serial: Int64: the sequence is hidden, and would not be in the integer")
	case t.alphabet != decimal:
		return 0, fmt.Errorf("serial: Int64: the sequence is printed in %s", t.alphabet.name)
	case seq < 0 || seq > decimal.largest(t.seqWidth):
		return 0, fmt.Errorf("serial: Int64: sequence %d has outgrown its %d digits", seq, t.seqWidth)
	}
	digits, ok := t.Dates.sortable(date)
	if !ok {
		return 0, fmt.Errorf("serial: Int64: dates of %q do not sort as integers", t.Dates.text)
	}
	digits = appendPadded(digits, seq, t.seqWidth, decimal)
	v, err := strconv.ParseInt(string(digits), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("serial: Int64: %s is larger than %d", digits, int64(math.MaxInt64))
	}
	return v, nil
}

// A Number is a parsed number. Its Type is a substring of the parsed text.
type Number struct {
	Type string
	Span *calendar.Span // first span in which the date is printed
	Seq  int64
}

// Blanks contains the whitespace with which databases and spreadsheets pad strings.
const Blanks = " \t\u00a0"

// ParseStored parses a number that may be padded with [Blanks]. It also accepts a number whose template begins or ends
// with Blanks.
func (t *Template) ParseStored(s string) (Number, error) {
	trimmed := strings.Trim(s, Blanks)
	n, err := t.ParseNumber(trimmed)
	if err != nil && trimmed != s {
		if padded, err := t.ParseNumber(s); err == nil {
			return padded, nil
		}
	}
	return n, err
}

// ParseNumber parses a number that the template printed.
func (t *Template) ParseNumber(s string) (n Number, err error) {
	widths, err := t.widthsIn(s)
	if err != nil {
		return invalid(s, err)
	}
	var wrongSeq, wrongDate error // returned only if the check digit is right
	if t.Dates.text == "" {
		n.Span, _ = t.Dates.Find("") // span of the only period
	}
	end := 0 // offset of the end of the text that has been read
	read := func(width int) string {
		end += width
		return s[end-width : end]
	}
	for i := range t.fields {
		switch f := &t.fields[i]; f.kind {
		case fieldLiteral:
			if text := read(len(f.text)); text != f.text {
				err = fmt.Errorf("got %q, want %q", readable(text), f.text)
			}
		case fieldType:
			n.Type = read(widths[fieldType])
			err = t.checkTypeIn(s, end-len(n.Type), end)
		case fieldDate: // all its fields are read with the first one
			if i > 0 && t.fields[i-1].kind == fieldDate {
				continue
			}
			date := read(widths[fieldDate])
			if n.Span, wrongDate = t.Dates.Find(date); wrongDate != nil {
				_, err = t.Dates.read(date)
				wrongDate = impossible{wrongDate}
			}
		case fieldSeq:
			text := read(widths[fieldSeq])
			n.Seq, err = parseDigits(text, t.alphabet)
			wrongSeq = t.checkSeq(n.Seq, text)
		case fieldCheck:
			err = verifyCheck(t.check, s, end)
			read(len(f.text))
		}
		if err != nil {
			return invalid(s, err)
		}
	}
	if err = cmp.Or(wrongSeq, wrongDate); err != nil {
		return invalid(s, err)
	}
	if t.cipher != nil {
		var tweak [256]byte
		shown := n.Seq - t.alphabet.least
		n.Seq = t.alphabet.least + t.cipher.Decrypt(t.tweak(tweak[:0], n.Type, n.Span.Label), shown)
		if n.Seq < 1 {
			return invalid(s, errors.New("its sequence is 0 when decrypted, the first is 1"))
		}
	}
	return n, nil
}

// invalid returns the error for a string that is not a number. The error wraps the reason why.
func invalid(s string, why error) (Number, error) {
	text := strings.TrimPrefix(why.Error(), "serial: ") // printed instead of why, because %.0w prints nothing
	return Number{}, fmt.Errorf("%w: %.200q is not a number of this scheme: %s%.0w", ErrInvalidNumber, s, text, why)
}

// An impossible is the reason why no number has the date of a string that otherwise has the form of a number.
type impossible struct{ error }

func (impossible) Is(target error) bool { return target == ErrImpossibleDate }

// checkTypeIn returns an error if the template cannot print the type s[from:to]. If this type ends in the middle of a
// character, the error message contains the complete character.
func (t *Template) checkTypeIn(s string, from, to int) error {
	err := t.CheckType(s[from:to])
	for err != nil && to < len(s) && !utf8.RuneStart(s[to]) {
		to++
		err = t.CheckType(s[from:to])
	}
	return err
}

// widths contains the widths of a number's fields in bytes, by kind.
type widths [fieldKinds]int

// widthsIn returns the widths of the fields of the number s. It removes the fields before and after the type from both
// ends of s. The rest is the type. If the template prints no type, the rest must be empty.
func (t *Template) widthsIn(s string) (w widths, err error) {
	least, typ := t.fixed, len(t.fields)
	if t.Typed {
		least, typ = least+1, find(t.fields, fieldType)
	}
	if len(s) < least {
		return w, fmt.Errorf("it has %d bytes; at least %d are needed", len(s), least)
	}
	rest := s
	for i := range t.fields[:typ] {
		f := &t.fields[i]
		n := f.width(rest, false)
		w[f.kind], rest = w[f.kind]+n, rest[n:]
	}
	for i := len(t.fields) - 1; i > typ; i-- {
		f := &t.fields[i]
		n := f.width(rest, true)
		w[f.kind], rest = w[f.kind]+n, rest[:len(rest)-n]
	}
	w[fieldType] = len(rest)
	switch seq := w[fieldSeq]; {
	case seq < t.seqWidth || seq > maxDigits:
		return w, fmt.Errorf("its sequence has %d digits; want %d to %d", seq, t.seqWidth, maxDigits)
	case t.Typed && rest == "":
		return w, errors.New("nothing is left for its type")
	case !t.Typed && rest != "":
		return w, fmt.Errorf("%q is left over at its end", readable(rest))
	case w[fieldLiteral] < t.least[fieldLiteral] || w[fieldCheck] < t.least[fieldCheck]:
		return w, errors.New("its end is missing")
	}
	return w, nil
}

// checkSeq returns an error if text is not how the template would print a sequence. It does not check hidden sequences.
func (t *Template) checkSeq(seq int64, text string) error {
	switch {
	case t.cipher != nil:
	case seq < 1:
		return errors.New("its sequence is 0, the first is 1")
	case len(text) > t.seqWidth && text[0] == '0':
		return fmt.Errorf("its sequence %s is padded to more than %d digits", text, t.seqWidth)
	}
	return nil
}

// appendCheck appends the check characters of a number to b. The parameter at is their offset in the number, and the
// characters that the number contains there are ignored.
func appendCheck(a checkdigit.Algorithm, b, number []byte, at int) []byte {
	before, after := number[:at], number[at+a.Width:]
	if a.Name == "97-10" { // as in ISO 11649, where RF and the check digits are printed first but count last
		before, after = after, before
	}
	return a.Append(b, before, after)
}

// verifyCheck returns an error if the check characters at the given offset are wrong.
func verifyCheck(a checkdigit.Algorithm, number string, at int) error {
	var whole [256]byte
	var buf [2]byte
	want := appendCheck(a, buf[:0], append(whole[:0], number...), at)
	if got := number[at : at+a.Width]; got != string(want) {
		return fmt.Errorf("%w: got %s, want %s, unless another character is mistyped",
			ErrCheckDigit, readable(got), string(want)) // a copy, so that buf stays on the stack
	}
	return nil
}
