package serial

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

const (
	defaultTemplate = "{type}{date:yyyyMMdd}{seq:4}"
	defaultWidth    = 4
	maxWidth        = 15  // a Lua number is a double: from 16 digits on, sequences would repeat
	maxTemplate     = 256 // bytes: every answer of NextOnce holds one
)

// A Number is one issued serial number, taken apart. It is a plain value, safe to copy and to compare.
type Number struct {
	Type  string    // business type, such as "IS"
	Start time.Time // first instant of the number's period, in the Generator's time zone
	Seq   int64     // sequence within the period, from 1; 0 from Peek and History if none was issued

	date   string  // date as printed
	format *format // parsed template; nil if no Generator made the Number
}

// String returns the number as it was issued, such as "IS202110240001", or "" for a Number that no [Generator] made. A
// sequence wider than the template's padding, which Peek shows if something else wrote the counter, is printed in full.
func (n Number) String() string {
	if n.format == nil {
		return ""
	}
	var buf [128]byte // on the stack: the returned string is the only allocation
	b := buf[:0]
	for i := range n.format.fields {
		switch fl := &n.format.fields[i]; fl.kind {
		case fieldLiteral:
			b = append(b, fl.text...)
		case fieldType:
			b = append(b, n.Type...)
		case fieldDate:
			b = append(b, n.date...)
		case fieldSeq:
			b = appendPadded(b, n.Seq, fl.width)
		}
	}
	return string(b)
}

// Int64 returns the number as one integer: the date as printed, with its fields in the order year to second, followed by
// the padded sequence. IS202110240001 gives 202110240001. The numbers of one type and template sort by it in the order of
// issue.
//
// It is an error if the digits do not fit into an int64, if the sequence has outgrown its padding (the integers would not
// sort), or if no [Generator] made the Number.
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
		rest := n.date
		for _, fl := range n.format.layout {
			if fl.kind == kind {
				digits = append(digits, rest[:fl.width]...)
			}
			rest = rest[fl.width:]
		}
	}
	digits = appendPadded(digits, n.Seq, width)
	v, err := strconv.ParseInt(string(digits), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("serial: Int64: %s is larger than %d", digits, int64(math.MaxInt64))
	}
	return v, nil
}

// maxSeq is the largest sequence of width digits; width is at most maxWidth.
func maxSeq(width int) int64 { return int64(math.Pow10(width)) - 1 } // exact, since 10^15 is

// A format is a parsed template. All its fields have a fixed width, except the type and a sequence that may grow.
type format struct {
	fields   []field // literals, type, date and sequence, as in the template
	layout   []field // literals and parts of the date
	fixed    int     // bytes of all fields but the type, with a sequence that has not grown
	seqWidth int     // digits that the sequence is padded to
	grows    bool    // the sequence may be wider than seqWidth
}

type fieldKind int

const (
	fieldLiteral fieldKind = iota
	fieldType
	fieldSeq
	fieldDate
	fieldYear // the parts of a date, from coarse to fine
	fieldMonth
	fieldDay
	fieldHour
	fieldMinute
	fieldSecond
)

type field struct {
	kind  fieldKind
	width int    // bytes; 0 for the type
	text  string // text of a literal, or token of a part of a date
}

// dateTokens maps what a date layout may hold, besides separators, to the part that it prints. Upper-case YYYY and DD are
// common in other libraries and cannot mean anything else here; MM and mm differ.
var dateTokens = map[string]fieldKind{
	"yyyy": fieldYear, "YYYY": fieldYear, "yy": fieldYear,
	"MM": fieldMonth,
	"dd": fieldDay, "DD": fieldDay,
	"HH": fieldHour, "mm": fieldMinute, "ss": fieldSecond,
}

// dateParts is how messages name the parts of a date, and what they list as allowed.
var dateParts = [...]struct{ name, tokens string }{
	fieldYear:   {"the year (yyyy or yy)", "yyyy, yy"},
	fieldMonth:  {"the month (MM)", "MM"},
	fieldDay:    {"the day (dd)", "dd"},
	fieldHour:   {"the hour (HH)", "HH"},
	fieldMinute: {"the minute (mm)", "mm"},
	fieldSecond: {"the second (ss)", "ss"},
}

// parseTemplate parses a template. It refuses a template that could print numbers of different types or periods alike.
func parseTemplate(template string, per Period) (*format, error) {
	f := &format{}
	bad := func(msg string, args ...any) (*format, error) {
		return nil, fmt.Errorf("serial: template %q: %s", template, fmt.Sprintf(msg, args...))
	}
	if len(template) > maxTemplate {
		return nil, fmt.Errorf("serial: template %.80q...: it has %d bytes; allowed are up to %d", template, len(template), maxTemplate)
	}
	if !utf8.ValidString(template) {
		return bad("not valid UTF-8")
	}
	seen := map[string]int{}
	for rest := template; rest != ""; {
		switch {
		case strings.HasPrefix(rest, "{{"), strings.HasPrefix(rest, "}}"):
			f.fields = appendLiteral(f.fields, rest[:1])
			rest = rest[2:]
		case rest[0] == '}':
			return bad("a single } at byte %d; write }} for a brace", len(template)-len(rest))
		case rest[0] != '{':
			i := strings.IndexAny(rest, "{}")
			if i < 0 {
				i = len(rest)
			}
			f.fields = appendLiteral(f.fields, rest[:i])
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
				err = f.date(arg, per)
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
	if err := f.checkGrowth(); err != nil {
		return bad("{seq:%d+}: %v", f.seqWidth, err)
	}
	for _, fl := range f.fields {
		f.fixed += fl.width
	}
	return f, nil
}

// appendLiteral appends literal text, and joins it to a literal right before it.
func appendLiteral(fields []field, text string) []field {
	if last := len(fields) - 1; last >= 0 && fields[last].kind == fieldLiteral {
		text = fields[last].text + text
		fields = fields[:last]
	}
	return append(fields, field{kind: fieldLiteral, width: len(text), text: text})
}

func (f *format) seq(arg string, hasArg bool) error {
	f.seqWidth = defaultWidth
	if hasArg {
		var digits string
		digits, f.grows = strings.CutSuffix(arg, "+")
		width, err := strconv.ParseUint(digits, 10, 8)
		if err != nil || width < 1 || width > maxWidth || digits[0] == '0' {
			return fmt.Errorf("%q is no width; allowed are 1 to %d, with + behind it for a sequence that may grow wider", arg, maxWidth)
		}
		f.seqWidth = int(width)
	}
	f.fields = append(f.fields, field{kind: fieldSeq, width: f.seqWidth})
	return nil
}

// checkGrowth refuses a growing sequence whose digits could not be told from what stands beside them: number 11 of type A
// would read like number 1 of type A1. Between two literals, the sequence is all the digits that stand there.
func (f *format) checkGrowth() error {
	if !f.grows {
		return nil
	}
	date := find(f.fields, fieldDate)
	fields := slices.Replace(slices.Clone(f.fields), date, date+1, f.layout...)
	bounds := func(fl field, edge func(string) (rune, int)) bool {
		r, _ := edge(fl.text)
		return fl.kind == fieldLiteral && !unicode.IsDigit(r)
	}
	at := find(fields, fieldSeq)
	if at == 0 || !bounds(fields[at-1], utf8.DecodeLastRuneInString) {
		return errors.New("a sequence that may grow needs a literal that ends in no digit right before it, such as -")
	}
	if at+1 < len(fields) && !bounds(fields[at+1], utf8.DecodeRuneInString) {
		return errors.New("a sequence that may grow needs a literal that begins with no digit right after it, such as -, " +
			"or to end the template")
	}
	return nil
}

func find(fields []field, kind fieldKind) int {
	return slices.IndexFunc(fields, func(fl field) bool { return fl.kind == kind })
}

// date parses the layout of the date field. The layout must have all the parts of a date that tell one period from another,
// and none that change within a period.
func (f *format) date(layout string, per Period) error {
	finest := kinds[per].finest
	allowed := "allowed are "
	for kind := fieldYear; kind <= finest; kind++ {
		allowed += dateParts[kind].tokens + ", "
	}
	allowed = strings.TrimSuffix(allowed, ", ") + " and separators"
	var seen [fieldSecond + 1]bool
	for rest := layout; rest != ""; {
		c := rest[0]
		if !isASCIILetter(c) {
			if isASCIIDigit(c) || c == '{' {
				return fmt.Errorf("%q in a date layout; %s (anything but ASCII letters, digits and braces)", c, allowed)
			}
			_, size := utf8.DecodeRuneInString(rest)
			f.layout = appendLiteral(f.layout, rest[:size])
			rest = rest[size:]
			continue
		}
		token := rest[:len(rest)-len(strings.TrimLeft(rest, rest[:1]))]
		kind, ok := dateTokens[token]
		if !ok {
			return fmt.Errorf("unknown date token %q; %s", token, allowed)
		}
		if kind > finest {
			return fmt.Errorf("%q is finer than the period, %s; %s", token, kinds[per].one, allowed)
		}
		if seen[kind] {
			return fmt.Errorf("%s stands twice", dateParts[kind].name)
		}
		seen[kind] = true
		f.layout = append(f.layout, field{kind: kind, width: len(token), text: token})
		rest = rest[len(token):]
	}
	for kind := fieldYear; kind <= finest; kind++ {
		if !seen[kind] {
			return fmt.Errorf("%s is missing: numbers of different %ss would read the same", dateParts[kind].name, per.noun())
		}
	}
	width := 0
	for _, fl := range f.layout {
		width += fl.width
	}
	f.fields = append(f.fields, field{kind: fieldDate, width: width})
	return nil
}

// maxSeq is the largest sequence that the template can print.
func (f *format) maxSeq() int64 {
	if f.grows {
		return maxSeq(maxWidth)
	}
	return maxSeq(f.seqWidth)
}

// checkYear refuses a year that the template would print like another one.
func (f *format) checkYear(year int) error {
	for _, fl := range f.layout {
		if fl.kind == fieldYear && fl.width == 2 && (year < 2000 || year > 2099) {
			return fmt.Errorf("serial: the year %d cannot be printed as yy, which stands for 2000 to 2099", year)
		}
	}
	if year < 0 || year > 9999 {
		return fmt.Errorf("serial: the year %d does not have four digits", year)
	}
	return nil
}

// dateOf returns the label of a period as the template prints it.
func (f *format) dateOf(wall time.Time) string {
	var b []byte
	r := readingOf(wall)
	for _, fl := range f.layout {
		if fl.kind == fieldLiteral {
			b = append(b, fl.text...)
			continue
		}
		v := r[fl.kind-fieldYear]
		if fl.kind == fieldYear && fl.width == 2 {
			v %= 100
		}
		b = appendPadded(b, int64(v), fl.width)
	}
	return string(b)
}

// appendPadded appends n in decimal, with leading zeros up to width digits.
func appendPadded(b []byte, n int64, width int) []byte {
	if n < 0 || n > maxSeq(width) {
		return strconv.AppendInt(b, n, 10)
	}
	b = append(b, "000000000000000"[:width]...)
	for i := len(b) - 1; n > 0; i-- {
		b[i] += byte(n % 10)
		n /= 10
	}
	return b
}

// parse takes apart a number that the template printed for a period of cal.
func (f *format) parse(s string, cal calendar) (Number, error) {
	bad := func(msg string, args ...any) (Number, error) {
		return Number{}, fmt.Errorf("serial: %.200q is no number of this generator: %w", s, fmt.Errorf(msg, args...))
	}
	n := Number{format: f}
	if len(s) <= f.fixed {
		return bad("it has %d bytes, the least is %d", len(s), f.fixed+1)
	}
	seqWidth := f.seqIn(s)
	typeWidth := len(s) - f.fixed - (seqWidth - f.seqWidth)
	switch {
	case seqWidth < f.seqWidth || seqWidth > maxWidth:
		return bad("its sequence has %d digits; allowed are %d to %d", seqWidth, f.seqWidth, maxWidth)
	case typeWidth < 1:
		return bad("nothing is left for its type")
	}
	var read reading
	rest := s
	for _, fl := range f.fields {
		width := fl.width
		switch fl.kind {
		case fieldType:
			width = typeWidth
		case fieldSeq:
			width = seqWidth
		}
		part := rest[:width]
		rest = rest[width:]
		var err error
		switch fl.kind {
		case fieldLiteral:
			err = fl.match(part)
		case fieldType:
			err = checkType(part)
			n.Type = strings.Clone(part) // a copy does not keep s alive
		case fieldDate:
			read, err = f.readDate(part)
			n.date = strings.Clone(part)
		case fieldSeq:
			n.Seq, err = parseDigits(part)
			switch {
			case err != nil:
			case n.Seq < 1:
				err = errors.New("its sequence is 0, the first is 1")
			case width > f.seqWidth && part[0] == '0':
				err = fmt.Errorf("its sequence %s is padded to more than %d digits", part, f.seqWidth)
			}
		}
		if err != nil {
			return bad("%w", err)
		}
	}
	wall := read.wall()
	if readingOf(wall) != read {
		return bad("there is no %s", read.describe(cal.period))
	}
	p, ok := cal.of(wall)
	if !ok {
		return bad("%s has no %s", cal.location, read.describe(cal.period))
	}
	if p.end <= 0 { // no Redis server has ever had an earlier time
		return bad("the %s is before 1970", read.describe(cal.period))
	}
	n.Start = time.Unix(p.start, 0).In(cal.location)
	return n, nil
}

// seqIn returns how many bytes of s the sequence takes; s is longer than fixed. For a growing sequence it cuts off the fields
// between the sequence and the end of s that the type is not at, which have a fixed width, and counts the digits there.
func (f *format) seqIn(s string) int {
	const digits = "0123456789"
	if !f.grows {
		return f.seqWidth
	}
	at := find(f.fields, fieldSeq)
	if find(f.fields, fieldType) < at {
		for _, fl := range f.fields[at+1:] {
			s = s[:len(s)-fl.width]
		}
		return len(s) - len(strings.TrimRight(s, digits))
	}
	for _, fl := range f.fields[:at] {
		s = s[fl.width:]
	}
	return len(s) - len(strings.TrimLeft(s, digits))
}

// A reading is the date and time that a number shows, year to second. It need not exist.
type reading [fieldSecond - fieldYear + 1]int

// readDate parses a date that has the width of the layout. A part that the layout leaves out gets its lowest value.
func (f *format) readDate(s string) (reading, error) {
	r := reading{0, 1, 1}
	for _, fl := range f.layout {
		part := s[:fl.width]
		s = s[fl.width:]
		if fl.kind == fieldLiteral {
			if err := fl.match(part); err != nil {
				return r, err
			}
			continue
		}
		v, err := parseDigits(part)
		if err != nil {
			return r, err
		}
		if fl.kind == fieldYear && fl.width == 2 {
			v += 2000
		}
		r[fl.kind-fieldYear] = int(v)
	}
	return r, nil
}

func readingOf(wall time.Time) reading {
	return reading{wall.Year(), int(wall.Month()), wall.Day(), wall.Hour(), wall.Minute(), wall.Second()}
}

// wall is the reading as if it were UTC. If the reading does not exist, wall is another one.
func (r reading) wall() time.Time {
	return time.Date(r[0], time.Month(r[1]), r[2], r[3], r[4], r[5], 0, time.UTC)
}

// describe names a period by its label, such as "day 2021-10-24".
func (r reading) describe(per Period) string {
	text := fmt.Sprintf("%04d-%02d-%02d %02d:%02d:%02d", r[0], r[1], r[2], r[3], r[4], r[5])
	parts := kinds[per].finest - fieldYear
	return per.noun() + " " + text[:len("2006")+len("-01")*int(parts)]
}

// match returns an error unless part is the literal.
func (fl field) match(part string) error {
	if part != fl.text {
		return fmt.Errorf("%q stands where %q belongs", part, fl.text)
	}
	return nil
}

func parseDigits(s string) (int64, error) {
	v, err := strconv.ParseUint(s, 10, 63) // which takes digits only
	if err != nil {
		return 0, fmt.Errorf("%q stands where %d digits belong", s, len(s))
	}
	return int64(v), nil
}
