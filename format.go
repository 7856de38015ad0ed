package serial

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

const (
	defaultTemplate = "{type}{date:yyyyMMdd}{seq:4}"
	defaultWidth    = 4
	maxWidth        = 15 // a Lua number is a double: from 16 digits on, sequences would repeat
	maxName         = 64 // bytes of a type or key prefix
)

// A Number is one issued serial number, taken apart. It is a plain value, safe to copy and to compare.
type Number struct {
	Type  string    // the business type, such as "IS"
	Start time.Time // first instant of the number's period, in the Generator's time zone
	Seq   int64     // sequence within the period, from 1; 0 only from [Generator.Peek], where none was issued

	wall   time.Time // the period's label, see period.wall
	format *format   // nil where no Generator made the Number
}

// String returns the number as it was issued, such as "IS202110240001". It is empty for a Number that no [Generator]
// made. A sequence wider than the template's padding, which Peek can show where something else wrote the counter, is
// printed in full.
func (n Number) String() string {
	if n.format == nil {
		return ""
	}
	var buf [128]byte // on the stack: the returned string is the only allocation
	return string(n.format.append(buf[:0], n))
}

// Int64 returns the date as printed, with its fields in the order year to second, followed by the padded sequence, as
// one integer: 202110240001 for IS202110240001. The numbers of one type and template sort by it in the order of issue.
//
// It is an error if the digits do not fit into an int64, if the sequence has outgrown its padding (the integers would
// not sort), and for a Number that no [Generator] made.
func (n Number) Int64() (int64, error) {
	if n.format == nil {
		return 0, errors.New("serial: Int64 of a Number that no Generator made")
	}
	width := n.format.seqWidth
	if n.Seq < 0 || n.Seq > maxSeq(width) {
		return 0, fmt.Errorf("serial: Int64: sequence %d has outgrown its %d digits", n.Seq, width)
	}
	var digits []byte
	for kind := fieldYear; kind <= fieldSecond; kind++ {
		for _, f := range n.format.fields {
			if f.kind == kind {
				digits = f.append(digits, n)
			}
		}
	}
	digits = appendPadded(digits, n.Seq, width)
	v, err := strconv.ParseInt(string(digits), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("serial: Int64: %s is larger than %d", digits, int64(math.MaxInt64))
	}
	return v, nil
}

// maxSeq is the largest sequence of that many digits, up to maxWidth.
func maxSeq(width int) int64 { return powers[width] - 1 }

var powers = func() (p [maxWidth + 1]int64) {
	p[0] = 1
	for i := range maxWidth {
		p[i+1] = 10 * p[i]
	}
	return p
}()

// A format is a parsed template: fields of fixed width, and one type.
type format struct {
	fields   []field
	fixed    int // bytes of all fields but the type
	seqWidth int
}

type fieldKind int

const (
	fieldLiteral fieldKind = iota
	fieldType
	fieldSeq
	fieldYear // the date fields, from coarse to fine
	fieldMonth
	fieldDay
	fieldHour
	fieldMinute
	fieldSecond
)

type field struct {
	kind    fieldKind
	width   int    // bytes; 0 for the type
	literal string // of a fieldLiteral
}

// dateTokens lists what a date layout may hold besides separators. Upper-case YYYY and DD are common in other
// libraries and cannot mean anything else here; MM and mm differ.
var dateTokens = map[string]fieldKind{
	"yyyy": fieldYear, "YYYY": fieldYear, "yy": fieldYear,
	"MM": fieldMonth,
	"dd": fieldDay, "DD": fieldDay,
	"HH": fieldHour, "mm": fieldMinute, "ss": fieldSecond,
}

const allowedDates = "allowed are yyyy, yy, MM, dd and separators"

var dateNames = map[fieldKind]string{
	fieldYear: "the year (yyyy or yy)", fieldMonth: "the month (MM)", fieldDay: "the day (dd)",
	fieldHour: "the hour (HH)", fieldMinute: "the minute (mm)", fieldSecond: "the second (ss)",
}

// parseTemplate reads a template and checks that it tells every number of every day and type from every other.
func parseTemplate(template string) (*format, error) {
	f := &format{}
	bad := func(msg string, args ...any) (*format, error) {
		return nil, fmt.Errorf("serial: template %q: %s", template, fmt.Sprintf(msg, args...))
	}
	if !utf8.ValidString(template) {
		return bad("not valid UTF-8")
	}
	seen := map[string]int{}
	for rest := template; rest != ""; {
		switch {
		case strings.HasPrefix(rest, "{{"), strings.HasPrefix(rest, "}}"):
			f.literal(rest[:1])
			rest = rest[2:]
		case rest[0] == '}':
			return bad("a single } at byte %d; write }} for a brace", len(template)-len(rest))
		case rest[0] != '{':
			i := strings.IndexAny(rest, "{}")
			if i < 0 {
				i = len(rest)
			}
			f.literal(rest[:i])
			rest = rest[i:]
		default:
			body, after, closed := strings.Cut(rest[1:], "}")
			if !closed {
				return bad("the field %s is not closed; write {{ for a brace", rest)
			}
			name, arg, hasArg := strings.Cut(body, ":")
			var err error
			switch {
			case name == "type" && !hasArg:
				f.fields = append(f.fields, field{kind: fieldType})
			case name == "seq":
				err = f.seq(arg, hasArg)
			case name == "date":
				err = f.date(arg)
			default:
				return bad("unknown field {%s}; allowed are {type}, {date:LAYOUT} and {seq:WIDTH}", body)
			}
			if err != nil {
				return bad("{%s}: %v", body, err)
			}
			if seen[name]++; seen[name] > 1 {
				return bad("{%s} stands twice; {type}, {date:LAYOUT} and {seq:WIDTH} each stand once", name)
			}
			rest = after
		}
	}
	for _, name := range []string{"type", "date", "seq"} {
		if seen[name] == 0 {
			return bad("{%s} is missing; {type}, {date:LAYOUT} and {seq:WIDTH} each stand once", name)
		}
	}
	for _, fl := range f.fields {
		f.fixed += fl.width
	}
	return f, nil
}

func (f *format) literal(s string) {
	f.fields = append(f.fields, field{kind: fieldLiteral, width: len(s), literal: s})
}

func (f *format) seq(arg string, hasArg bool) error {
	f.seqWidth = defaultWidth
	if hasArg {
		width, err := strconv.ParseUint(arg, 10, 8)
		if err != nil || width < 1 || width > maxWidth || arg[0] == '0' {
			return fmt.Errorf("%q is no width; allowed are 1 to %d", arg, maxWidth)
		}
		f.seqWidth = int(width)
	}
	f.fields = append(f.fields, field{kind: fieldSeq, width: f.seqWidth})
	return nil
}

// date reads the layout of the date field into fields of its own.
func (f *format) date(layout string) error {
	var seen [fieldSecond + 1]bool
	for rest := layout; rest != ""; {
		c := rest[0]
		if !isASCIILetter(c) {
			if c >= '0' && c <= '9' || c == '{' {
				return fmt.Errorf("%q in a date layout; %s (anything but ASCII letters, digits and braces)", c, allowedDates)
			}
			_, size := utf8.DecodeRuneInString(rest)
			f.literal(rest[:size])
			rest = rest[size:]
			continue
		}
		token := rest[:len(rest)-len(strings.TrimLeft(rest, rest[:1]))]
		kind, ok := dateTokens[token]
		if !ok {
			return fmt.Errorf("unknown date token %q; %s", token, allowedDates)
		}
		if kind > fieldDay {
			return fmt.Errorf("%q is finer than the period, a day; %s", token, allowedDates)
		}
		if seen[kind] {
			return fmt.Errorf("%s stands twice", dateNames[kind])
		}
		seen[kind] = true
		f.fields = append(f.fields, field{kind: kind, width: len(token)})
		rest = rest[len(token):]
	}
	for kind := fieldYear; kind <= fieldDay; kind++ {
		if !seen[kind] {
			return fmt.Errorf("%s is missing: numbers of different days would read the same", dateNames[kind])
		}
	}
	return nil
}

func isASCIILetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

// maxSeq is the largest sequence that the template can print.
func (f *format) maxSeq() int64 { return maxSeq(f.seqWidth) }

// checkYear refuses a year that the template would print like another one.
func (f *format) checkYear(year int) error {
	for _, fl := range f.fields {
		if fl.kind == fieldYear && fl.width == 2 && (year < 2000 || year > 2099) {
			return fmt.Errorf("serial: the year %d cannot be printed as yy, which stands for 2000 to 2099", year)
		}
	}
	if year < 0 || year > 9999 {
		return fmt.Errorf("serial: the year %d does not have four digits", year)
	}
	return nil
}

func (f *format) append(b []byte, n Number) []byte {
	for _, fl := range f.fields {
		b = fl.append(b, n)
	}
	return b
}

func (fl field) append(b []byte, n Number) []byte {
	var v int
	switch fl.kind {
	case fieldLiteral:
		return append(b, fl.literal...)
	case fieldType:
		return append(b, n.Type...)
	case fieldSeq:
		return appendPadded(b, n.Seq, fl.width)
	case fieldYear:
		v = n.wall.Year()
		if fl.width == 2 {
			v %= 100
		}
	case fieldMonth:
		v = int(n.wall.Month())
	case fieldDay:
		v = n.wall.Day()
	case fieldHour:
		v = n.wall.Hour()
	case fieldMinute:
		v = n.wall.Minute()
	case fieldSecond:
		v = n.wall.Second()
	}
	return appendPadded(b, int64(v), fl.width)
}

// appendPadded appends n in decimal, with leading zeros up to width digits.
func appendPadded(b []byte, n int64, width int) []byte {
	for limit := maxSeq(width - 1); width > 1 && n <= limit; limit /= 10 {
		b = append(b, '0')
		width--
	}
	return strconv.AppendInt(b, n, 10)
}

// parse takes apart a number that the template printed, for periods of loc. Only the type has no fixed width, so its
// length is what the others leave.
func (f *format) parse(s string, loc *time.Location) (Number, error) {
	bad := func(msg string, args ...any) (Number, error) {
		return Number{}, fmt.Errorf("serial: %.200q is no number of this generator: %w", s, fmt.Errorf(msg, args...))
	}
	n := Number{format: f}
	if len(s) <= f.fixed {
		return bad("it has %d bytes, the least is %d", len(s), f.fixed+1)
	}
	year, month, day := 0, 0, 0
	rest := s
	for _, fl := range f.fields {
		width := fl.width
		if fl.kind == fieldType {
			width = len(s) - f.fixed
		}
		part := rest[:width]
		rest = rest[width:]
		switch fl.kind {
		case fieldLiteral:
			if part != fl.literal {
				return bad("%q stands where %q belongs", part, fl.literal)
			}
			continue
		case fieldType:
			if err := checkType(part); err != nil {
				return bad("%w", err)
			}
			n.Type = strings.Clone(part) // not to keep s alive
			continue
		}
		v, err := parseDigits(part)
		if err != nil {
			return bad("%w", err)
		}
		switch fl.kind {
		case fieldSeq:
			n.Seq = v
		case fieldYear:
			year = int(v)
			if fl.width == 2 {
				year += 2000
			}
		case fieldMonth:
			month = int(v)
		case fieldDay:
			day = int(v)
		}
	}
	if n.Seq < 1 {
		return bad("its sequence is 0, the first is 1")
	}
	n.wall = time.Date(year, time.Month(month), day, 0, 0, 0, 0, time.UTC)
	if y, m, d := n.wall.Date(); y != year || int(m) != month || d != day {
		return bad("there is no day %04d-%02d-%02d", year, month, day)
	}
	p, ok := periodOf(n.wall, loc)
	if !ok {
		return bad("%s has no day %04d-%02d-%02d", loc, year, month, day)
	}
	if p.end <= 0 { // no Redis has ever told an earlier time
		return bad("the day %04d-%02d-%02d is before 1970", year, month, day)
	}
	n.Start = time.Unix(p.start, 0).In(loc)
	return n, nil
}

func parseDigits(s string) (int64, error) {
	var v int64
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, fmt.Errorf("%q stands where %d digits belong", s, len(s))
		}
		v = v*10 + int64(s[i]-'0')
	}
	return v, nil
}

// checkType is the rule for a business type.
func checkType(typ string) error {
	if msg := checkName(typ); msg != "" {
		return fmt.Errorf("%w %.80q: %s", ErrInvalidType, typ, msg)
	}
	return nil
}

// checkName says what is wrong with a type or a key prefix, or nothing. Neither may hold what keys are built with:
// colons and braces.
func checkName(name string) string {
	const allowed = "allowed are letters, digits and - _ . /"
	switch {
	case name == "":
		return "empty; allowed are 1 to 64 bytes"
	case len(name) > maxName:
		return fmt.Sprintf("%d bytes; allowed are 1 to %d", len(name), maxName)
	case !utf8.ValidString(name):
		return "not valid UTF-8; " + allowed
	}
	for _, r := range name {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-_./", r) {
			return fmt.Sprintf("it has %q; %s", r, allowed)
		}
	}
	return ""
}
