// Package template parses templates, and prints and parses numbers. [Template.Prove] accepts a template only if no two
// numbers can be printed the same.
package template

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/dailyserial/serial/internal/calendar"
	"github.com/dailyserial/serial/internal/checkdigit"
	"github.com/dailyserial/serial/internal/ff1"
	"github.com/dailyserial/serial/internal/name"
)

// Default is the default template. Its date suits days.
const Default = "{type}{date:yyyyMMdd}{seq:4}"

const (
	maxDigits   = 15  // digits of a sequence; Lua numbers are doubles, which cannot represent all integers of 16 digits
	maxTemplate = 256 // bytes of a template, which is stored with every answer for NextOnce
)

// MaxSequence is the largest sequence that a template can print.
const MaxSequence int64 = 1e15 - 1

// These errors are exported by package serial.
var (
	ErrInvalidType    = errors.New("serial: invalid type")
	ErrInvalidNumber  = errors.New("serial: invalid number")
	ErrCheckDigit     = errors.New("serial: wrong check digit")
	ErrImpossibleDate = errors.New("serial: impossible date")
)

// A Template is a parsed template for the numbers of a calendar. Its fields have a fixed width, except for the type, a
// sequence that may grow, and parts of the date without padding.
type Template struct {
	Dates    Dates
	Typed    bool // whether the template prints the type
	text     string
	fields   []field // literals, type, tokens and separators of the date, sequence and check, in order
	least    widths  // minimum widths of the fields
	fixed    int     // sum of the minimum widths, without the type
	seqWidth int     // width to which the sequence is padded, in digits
	seqAt    int     // offset of the beginning of the sequence in text
	seqEnd   int     // offset of the end of the sequence in text
	grows    bool    // whether the sequence may be wider than seqWidth
	alphabet *alphabet
	check    checkdigit.Algorithm // algorithm of the check digit, or zero if there is none

	cipher      *ff1.Cipher // cipher that hides sequences, or nil
	prefix      string      // prefix of keys in Redis, for the tweak
	counter     string      // name of the counter that all types share, for the tweak, or ""
	Fingerprint string      // hash that identifies the key of the cipher, or "" if there is none
}

type fieldKind int

const (
	fieldLiteral fieldKind = iota
	fieldType
	fieldSeq
	fieldDate
	fieldCheck
	fieldKinds
)

var fieldNames = [...]string{fieldType: "type", fieldSeq: "seq", fieldDate: "date", fieldCheck: "check"}

// A field is a part of a template or of a date layout.
type field struct {
	kind fieldKind
	part part   // part of a date that a token prints; separator for all other fields
	text string // literal or token, or zeros for a sequence or check; as wide as the field
	form        // form of a token; a sequence that may grow has a run of digits
}

// allowedFields is the end of error messages about a template.
const allowedFields = "want {type}, {date:LAYOUT} and {seq:WIDTH} once, and {check:ALGORITHM} at most once"

// Parse parses a template for the numbers of a calendar. It does not check whether the printed numbers are distinct;
// call [Template.Prove] for this.
func Parse(template string, c calendar.Calendar) (*Template, error) {
	t := &Template{text: template, alphabet: decimal}
	d := &t.Dates
	d.calendar, d.Finest = c, calendar.Day
	d.usual, _ = parseLayout(usualDate(c))
	if err := t.parse(); err != nil {
		return nil, fmt.Errorf("serial: template %.256q: %w", template, err)
	}
	d.Vary, d.repeat = !d.usual.determines(&d.layout, c.YearStart), !d.determines(&d.layout, c.YearStart)
	return t, nil
}

// pieces matches the first piece of a template: a double brace, a field or a literal.
var pieces = regexp.MustCompile(`^(?:\{\{|\}\}|\{[^}]*\}|[^{}]+)`)

func (t *Template) parse() error {
	switch {
	case len(t.text) > maxTemplate:
		return fmt.Errorf("it has %d bytes; want up to %d", len(t.text), maxTemplate)
	case !utf8.ValidString(t.text):
		return errors.New("not valid UTF-8")
	}
	for rest := t.text; rest != ""; {
		at, piece := len(t.text)-len(rest), pieces.FindString(rest)
		rest = rest[len(piece):]
		switch {
		case piece == "" && rest[0] == '}':
			return fmt.Errorf("a single } at byte %d; write }} for a brace", at)
		case piece == "":
			return fmt.Errorf("the field %s is not closed; write {{ for a brace", rest)
		case piece == "{{", piece == "}}":
			t.fields = appendText(t.fields, fieldLiteral, piece[:1])
		case piece[0] != '{':
			t.fields = appendText(t.fields, fieldLiteral, piece)
		default:
			if err := t.parseField(piece[1 : len(piece)-1]); err != nil {
				return err
			}
			if t.fields[len(t.fields)-1].kind == fieldSeq {
				t.seqAt, t.seqEnd = at, at+len(piece)
			}
		}
	}
	if find(t.fields, fieldSeq) < 0 {
		return fmt.Errorf("{seq} is missing; %s", allowedFields)
	}
	t.Typed = find(t.fields, fieldType) >= 0
	for _, f := range t.fields {
		t.least[f.kind] += len(f.text)
		t.fixed += len(f.text)
	}
	if err := t.checkRuns(); err != nil {
		return err
	}
	if t.check.Width > 0 && !t.check.Letters && t.alphabet != decimal {
		return fmt.Errorf("{check:%s} covers digits only, and the sequence is printed in %s; "+
			"want 97-10 or 37-36", t.check.Name, t.alphabet.name)
	}
	return t.checkDigits()
}

// checkDigits checks the number of digits if the standard of the check digit requires a certain number of them before
// the check digit and none after it. The digits of types do not matter, because CheckType then refuses them.
func (t *Template) checkDigits() error {
	if t.check.Digits == 0 {
		return nil
	}
	var printed [2]int // number of digits before and after the check digit
	side := 0
	for _, f := range t.fields {
		switch {
		case f.kind == fieldCheck:
			side = 1
		case f.run == digits:
			return fmt.Errorf("{check:%s} needs exactly %d digits before it, and this template does not print a fixed "+
				"number of digits; want {seq:WIDTH} without +, MM and dd", t.check.Name, t.check.Digits)
		}
		isNumber := f.kind == fieldDate && f.part != separator && f.names == nil
		for _, c := range []byte(f.text) {
			if f.kind != fieldCheck && (isNumber || '0' <= c && c <= '9') {
				printed[side]++
			}
		}
	}
	if printed != [2]int{t.check.Digits, 0} {
		return fmt.Errorf("{check:%s} needs exactly %d digits before it and none after it; this template prints %d before "+
			"it and %d after it", t.check.Name, t.check.Digits, printed[0], printed[1])
	}
	return nil
}

// parseField parses the text between the braces of a field.
func (t *Template) parseField(body string) (err error) {
	name, arg, hasArg := strings.Cut(body, ":")
	added := []field{{kind: fieldKind(slices.Index(fieldNames[:], name))}}
	f := &added[0]
	switch {
	case f.kind == fieldType && !hasArg:
	case f.kind == fieldSeq:
		if !hasArg {
			arg = "4"
		}
		err = t.parseSeq(arg)
		if f.text = zeros[:t.seqWidth]; t.grows {
			f.run = digits
		}
	case f.kind == fieldDate:
		if t.Dates.layout, err = parseLayout(arg); err == nil && t.Dates.has == (layout{}).has {
			err = fmt.Errorf("it prints nothing of the date: %s is missing; %s", parts[year].name, allowedTokens)
		}
		added = t.Dates.fields
	case f.kind == fieldCheck:
		if t.check = checkdigit.Algorithms[arg]; t.check.Width == 0 {
			err = fmt.Errorf("unknown check digit %q; want luhn, damm, gs1, 11-10, 97-10, 37-36, 731, be97, 10r, "+
				"11, s10", arg)
		}
		f.text = zeros[:t.check.Width]
	default:
		return fmt.Errorf("unknown field {%s}; %s", body, allowedFields)
	}
	switch {
	case err != nil:
		return fmt.Errorf("{%s}: %w", body, err)
	case find(t.fields, f.kind) >= 0:
		return fmt.Errorf("{%s} appears twice; %s", name, allowedFields)
	}
	t.fields = append(t.fields, added...)
	return nil
}

func (t *Template) parseSeq(arg string) error {
	count, name, hasAlphabet := strings.Cut(arg, ":")
	digits, grows := strings.CutSuffix(count, "+")
	more := ", followed by + for a sequence that may grow wider"
	if hasAlphabet {
		t.alphabet, more = alphabets[name], ""
	}
	width, _ := strconv.Atoi(digits)
	switch {
	case t.alphabet == nil:
		return fmt.Errorf("unknown alphabet %q; want base32, base36, alpha or letters, or none for decimal digits", name)
	case hasAlphabet && grows:
		return fmt.Errorf("a sequence in %s cannot grow; only a decimal one can", name)
	case width < 1 || width > t.alphabet.maxWidth || strconv.Itoa(width) != digits:
		return fmt.Errorf("width %q; want 1 to %d%s", count, t.alphabet.maxWidth, more)
	}
	t.seqWidth, t.grows = width, grows
	return nil
}

// checkRuns returns an error if the text of a field of variable width could be confused with its neighbours. For
// example, number 11 of type A could be printed like number 1 of type A1. There is no confusion if a literal is on each
// side of the field, because all digits between the literals then belong to the field.
func (t *Template) checkRuns() error {
	for i := range t.fields {
		f := &t.fields[i]
		if f.run == "" {
			continue
		}
		name, refused, letter := fmt.Sprintf("{seq:%d+}: a sequence that may grow", t.seqWidth), unicode.IsDigit, "digit"
		if f.kind == fieldDate {
			name = fmt.Sprintf("{date:%s}: %s, which has no padding,", t.Dates.text, f.text)
		}
		if f.names != nil {
			refused, letter = unicode.IsLetter, "letter"
		}
		for j := max(i-1, 0); j <= i+1 && j < len(t.fields); j++ {
			next, decode := &t.fields[j], utf8.DecodeLastRuneInString
			where := "before it that does not end in a %s, such as -, or the beginning"
			if j > i {
				decode, where = utf8.DecodeRuneInString, "after it that does not begin with a %s, such as -, or the end"
			}
			// Next to a sequence, the name of a month is sufficient, too. Tokens without padding need a literal or separator.
			isText := next.kind == fieldLiteral ||
				next.kind == fieldDate && (next.part == separator || next.names != nil && f.kind == fieldSeq)
			if c, _ := decode(next.text); j != i && (!isText || refused(c)) {
				return fmt.Errorf("%s needs a literal right "+where+" of the template", name, letter)
			}
		}
	}
	return nil
}

// find returns the index of the first field of a kind, or -1 if there is none.
func find(fields []field, kind fieldKind) int {
	return slices.IndexFunc(fields, func(f field) bool { return f.kind == kind })
}

// Prove returns an error if the template could print the same number in two periods, or for two types that do not share
// a counter, or if its date does not suit the calendar. The parameter shared is true if all types share a counter.
func (t *Template) Prove(shared bool) error {
	d := &t.Dates
	if !t.Typed && !shared {
		return fmt.Errorf("serial: template %q: {type} is missing; %s; only numbers of WithSharedCounter need none",
			t.text, allowedFields)
	}
	if d.text == "" && d.calendar.Unit != calendar.Never {
		return fmt.Errorf("serial: template %q: {date} is missing: without it, the numbers of two %ss are equal; "+
			"add {date:%s}, or use the period Never", t.text, d.calendar.Unit.Noun(), d.usual.text)
	}
	if err := d.check(); err != nil {
		return fmt.Errorf("serial: template %q: {date:%s}: %w", t.text, d.text, err)
	}
	return nil
}

// Largest returns the largest sequence that the template can print.
func (t *Template) Largest() int64 {
	if t.grows {
		return MaxSequence
	}
	return t.alphabet.largest(t.seqWidth)
}

// PrintSeq returns a sequence as the template would print it if sequences were not hidden.
func (t *Template) PrintSeq(seq int64) string {
	return string(appendPadded(nil, seq, t.seqWidth, t.alphabet))
}

// Widen returns the text of a template whose sequence is one digit wider.
func (t *Template) Widen() string {
	name := ""
	if t.alphabet != decimal {
		name = ":" + t.alphabet.name
	}
	return fmt.Sprintf("%s{seq:%d%s}%s", t.text[:t.seqAt], t.seqWidth+1, name, t.text[t.seqEnd:])
}

// CheckType returns an error if the template cannot print a type. If the template has no {type}, only "" is allowed. If
// the check digit covers letters, types must be ASCII. If the check digit requires a certain number of digits, types
// must not contain ASCII digits.
func (t *Template) CheckType(typ string) error {
	if !t.Typed {
		if typ != "" {
			return fmt.Errorf("%w %.80q: the template prints none; want \"\"", ErrInvalidType, typ)
		}
		return nil
	}
	if err := name.Check(typ); err != nil {
		return fmt.Errorf("%w %.80q: %w", ErrInvalidType, typ, err)
	}
	if t.check.Letters && utf8.RuneCountInString(typ) != len(typ) {
		return fmt.Errorf("%w %.80q: {check:%s} covers letters; want ASCII letters, digits and - _ . /",
			ErrInvalidType, typ, t.check.Name)
	}
	if t.check.Digits > 0 && strings.ContainsAny(typ, digits) {
		return fmt.Errorf("%w %.80q: {check:%s} covers %d digits, which the template prints; want no ASCII digits",
			ErrInvalidType, typ, t.check.Name, t.check.Digits)
	}
	return nil
}
