package serial

import (
	"cmp"
	"database/sql/driver"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
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

// A Number is one issued serial number, taken apart. It is a plain value, safe to copy; [Number.Equal] compares two. In JSON and
// as an argument of a query it is its text, as [Number.String] returns it: see [Number.MarshalText] and [Number.Value].
type Number struct {
	Type  string    // business type, such as "IS"
	Start time.Time // first instant of the number's period, in the Generator's time zone
	// Date is the first instant of what is printed of the date. It is later than Start where a template prints more than its
	// period (the month of a number that is counted by the year), else the same. It is zero where it is not known: in such a
	// template's numbers from Peek and History, and in some of a Report. Where the same is printed again within the period
	// (the day without its month), it is the first time.
	Date time.Time
	Seq  int64 // sequence within the period, from 1; 0 from Peek and History if none was issued

	date   string  // as printed
	label  string  // of the period, which hides the sequence
	format *format // parsed template; nil if no Generator or Scheme made the Number
}

// String returns the number as it was issued, such as "IS202110240001". It is "" for a Number that no [Generator] or [Scheme]
// made, or whose Date is not known. A sequence wider than the template's padding, which Peek shows if something else wrote
// the counter, is printed in full, in decimal.
func (n Number) String() string {
	f := n.format
	if f == nil || f.date != nil && n.date == "" {
		return ""
	}
	var buf [128]byte // on the stack: the returned string is the only allocation
	b := buf[:0]
	check := -1 // where its characters belong
	for i := range f.fields {
		switch fl := &f.fields[i]; fl.kind {
		case fieldLiteral:
			b = append(b, fl.text...)
		case fieldType:
			b = append(b, n.Type...)
		case fieldDate:
			b = append(b, n.date...)
		case fieldSeq:
			b = f.appendSeq(b, n.Type, n.label, n.Seq)
		case fieldCheck:
			check = len(b)
			b = append(b, f.check.blank()...)
		}
	}
	if check >= 0 {
		f.check.fill(b, check)
	}
	return string(b)
}

// Int64 returns the number as one integer: the date as printed, from coarse to fine, followed by the padded sequence.
// IS202110240001 gives 202110240001. The numbers of one type and template sort by it in the order of issue. A year of two digits
// stays one; check digits are left out.
//
// Allowed are a year alone, year MM [dd [HH [mm [ss]]]], year DDD [HH ...], GGGG WW and FFFF Q, of two years as in FFFF-EE the
// first, and no date at all, each in any order. It is an error if the date is another, if the digits do not fit into an int64,
// if the sequence has outgrown its padding (the integers would not sort), for an alphabet of letters, for a hidden sequence, and
// if no [Generator] or [Scheme] made the Number.
func (n Number) Int64() (int64, error) {
	f := n.format
	if f == nil {
		return 0, errors.New("serial: Int64 of a Number that no Generator made")
	}
	switch {
	case f.hidden != nil:
		return 0, errors.New("serial: Int64: the sequence is hidden, and would not be in the integer")
	case f.alphabet != decimal:
		return 0, fmt.Errorf("serial: Int64: the sequence is printed in %s", f.alphabet.name)
	case n.Seq < 0 || n.Seq > decimal.largest(f.seqWidth):
		return 0, fmt.Errorf("serial: Int64: sequence %d has outgrown its %d digits", n.Seq, f.seqWidth)
	}
	var digits []byte
	if f.date != nil {
		order, ok := f.date.sortable()
		if !ok || n.date == "" {
			return 0, fmt.Errorf("serial: Int64: a date of %s makes no integers that sort", f.date.names())
		}
		for _, p := range order {
			rest := n.date
			for _, fl := range f.date.fields {
				if fl.part == p {
					digits = append(digits, rest[:fl.width]...)
					break
				}
				rest = rest[fl.width:]
			}
		}
	}
	digits = appendPadded(digits, n.Seq, f.seqWidth, decimal)
	v, err := strconv.ParseInt(string(digits), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("serial: Int64: %s is larger than %d", digits, int64(math.MaxInt64))
	}
	return v, nil
}

// Equal reports whether n and other are the same number: the same Type, text, Seq and Start. Starts are the same if they are
// the same instant, in whatever zone. Compare with Equal and not with ==, which may tell apart the numbers of two Generators,
// or one that was issued and the same one parsed.
//
// The zero Number is equal to itself only. A number whose Date is not known has no text, and is not equal to the one that was
// issued.
func (n Number) Equal(other Number) bool {
	return n.Type == other.Type && n.Seq == other.Seq && n.Start.Equal(other.Start) && n.String() == other.String()
}

// MarshalText returns what [Number.String] does. So in JSON, a field of type Number is "IS202110240001", and so is a map's key.
// The zero Number is empty text, "" in JSON; a field with the tag omitzero is left out.
//
// It is an error if Date is not known, as after [Generator.Peek] or [Generator.History] of a template that prints more than its
// period, and if no [Generator] or [Scheme] made a Number that is not zero.
//
// There is no UnmarshalText, since a text alone does not say where its type ends and which period it is of. To read a number,
// decode it into a string and call [Generator.Parse] or [Scheme.Parse].
func (n Number) MarshalText() ([]byte, error) {
	if n.Equal(Number{}) {
		return []byte{}, nil
	}
	text, err := n.text("MarshalText")
	return []byte(text), err
}

// Value returns what [Number.String] does, as a string. So a Number can be an argument of a query: database/sql, and whatever
// else knows [driver.Valuer], calls Value. A nil *Number is NULL.
//
// It is an error, and the query is not sent, if the Number has no text: if no [Generator] or [Scheme] made it, as for the zero
// Number, and if its Date is not known, as after [Generator.Peek] or [Generator.History] of a template that prints more than
// its period.
//
// There is no Scan: to read a number, scan it into a string and call [Generator.Parse] or [Scheme.Parse].
func (n Number) Value() (driver.Value, error) {
	text, err := n.text("Value")
	if err != nil {
		return nil, err
	}
	return text, nil
}

// text is String with an error for "". The method is the one that was called.
func (n Number) text(method string) (string, error) {
	text := n.String()
	switch {
	case text != "":
		return text, nil
	case n.format == nil:
		return "", fmt.Errorf("serial: %s of a Number that no Generator or Scheme made", method)
	default:
		return "", fmt.Errorf("serial: %s of sequence %d of %s: its date is not known, because its template prints more than its "+
			"period; use Type, Start and Seq", method, n.Seq, n.Type)
	}
}

// A format is a parsed template. All its fields have a fixed width, except the type and a sequence that may grow.
type format struct {
	fields   []field // literals, type, date, sequence and check, as in the template
	date     *layout // nil without a date
	fixed    int     // bytes of all fields but the type, with a sequence that has not grown
	seqWidth int     // digits that the sequence is padded to
	grows    bool    // the sequence may be wider than seqWidth
	alphabet *alphabet
	check    *check       // nil for none
	hidden   *hidden      // nil for a sequence that is printed as it is
	calendar calendar     // of the numbers
	last     atomic.Value // the last date that parse has found: found
}

type fieldKind int

const (
	fieldLiteral fieldKind = iota
	fieldType
	fieldSeq
	fieldDate
	fieldCheck
)

// A field is a part of a template, or of a date layout.
type field struct {
	kind  fieldKind
	part  part   // of a date layout
	width int    // bytes; 0 for the type
	text  string // text of a literal, or token of a part of a date
}

// allowedFields is what messages say of a template.
const allowedFields = "allowed are {type}, {date:LAYOUT}, {seq:WIDTH} and {check:ALGORITHM}"

// parseTemplate parses a template. Whether its numbers can be told apart in a calendar is for checkCalendar to say.
func parseTemplate(template string) (*format, error) {
	f := &format{alphabet: decimal}
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
				err = f.parseSeq(arg, hasArg)
			case name == "date":
				if f.date, err = parseLayout(arg); err == nil {
					f.fields = append(f.fields, field{kind: fieldDate, width: f.date.width})
				}
			case name == "check":
				if f.check, err = newCheck(arg); err == nil {
					f.fields = append(f.fields, field{kind: fieldCheck, width: len(f.check.blank())})
				}
			default:
				return bad("unknown field {%s}; %s", body, allowedFields)
			}
			if err != nil {
				return bad("{%s}: %v", body, err)
			}
			if seen[name]++; seen[name] > 1 {
				return bad("{%s} stands twice; {type}, {date:LAYOUT}, {seq:WIDTH} and {check:ALGORITHM} each stand once", name)
			}
			rest = after
		}
	}
	for _, name := range []string{"type", "seq"} {
		if seen[name] == 0 {
			return bad("{%s} is missing; {type}, {date:LAYOUT} and {seq:WIDTH} each stand once", name)
		}
	}
	if err := f.checkGrowth(); err != nil {
		return bad("{seq:%d+}: %v", f.seqWidth, err)
	}
	if f.check != nil && f.check.digitsOnly() && f.alphabet != decimal {
		return bad("{check:%s} covers digits only, and the sequence is printed in %s; take %s", f.check.Name, f.alphabet.name, checksOfLetters)
	}
	for _, fl := range f.fields {
		f.fixed += fl.width
	}
	return f, nil
}

// checkCalendar refuses a template that could print numbers of different periods alike.
func (f *format) checkCalendar(template string, c calendar) error {
	f.calendar = c
	if f.date == nil {
		if c.period != Never {
			return fmt.Errorf("serial: template %q: {date} is missing; {type}, {date:LAYOUT} and {seq:WIDTH} each stand once, and "+
				"only numbers of Never need no date", template)
		}
		return nil
	}
	if err := f.date.check(c); err != nil {
		return fmt.Errorf("serial: template %q: {date:%s}: %w", template, f.date.text, err)
	}
	return nil
}

func (f *format) parseSeq(arg string, hasArg bool) error {
	f.seqWidth = defaultWidth
	if hasArg {
		count, name, hasAlphabet := strings.Cut(arg, ":")
		if hasAlphabet {
			switch name {
			case base32.name:
				f.alphabet = base32
			case base36.name:
				f.alphabet = base36
			default:
				return fmt.Errorf("%q is no alphabet; allowed are base32 and base36, and none for decimal digits", name)
			}
		}
		var digits string
		digits, f.grows = strings.CutSuffix(count, "+")
		if f.grows && hasAlphabet {
			return fmt.Errorf("a sequence in %s cannot grow; only a decimal one can", name)
		}
		width, err := strconv.ParseUint(digits, 10, 8)
		if err != nil || width < 1 || int(width) > f.alphabet.widest || digits[0] == '0' {
			more := ", with + behind it for a sequence that may grow wider"
			if hasAlphabet {
				more = ""
			}
			return fmt.Errorf("%q is no width; allowed are 1 to %d%s", count, f.alphabet.widest, more)
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
	fields := slices.Clone(f.fields)
	if date := find(fields, fieldDate); date >= 0 {
		fields = slices.Replace(fields, date, date+1, f.date.fields...)
	}
	bounds := func(fl field, edge func(string) (rune, int)) bool {
		r, _ := edge(fl.text)
		return fl.kind == fieldLiteral && fl.part == separator && !unicode.IsDigit(r)
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

// maxSeq is the largest sequence that the template can print.
func (f *format) maxSeq() int64 {
	if f.grows {
		return decimal.largest(maxWidth)
	}
	return f.alphabet.largest(f.seqWidth)
}

// appendSeq appends a sequence as it is printed.
func (f *format) appendSeq(b []byte, typ, label string, seq int64) []byte {
	if f.hidden != nil && seq >= 0 && seq <= f.maxSeq() {
		seq = f.hidden.image(typ, label, seq)
	}
	return appendPadded(b, seq, f.seqWidth, f.alphabet)
}

// checkType refuses types whose numbers the template cannot print: what a check digit covers are ASCII letters.
func (f *format) checkType(typ string) error {
	if err := checkType(typ); err != nil || f.check == nil || f.check.digitsOnly() {
		return err
	}
	for i := range len(typ) {
		if typ[i] >= utf8.RuneSelf {
			return fmt.Errorf("%w %.80q: {check:%s} covers letters; allowed are ASCII letters, digits and - _ . /", ErrInvalidType, typ, f.check.Name)
		}
	}
	return nil
}

// printable refuses a time whose date the template would print like another one.
func (f *format) printable(wall time.Time) error {
	if f.date == nil {
		return nil
	}
	return f.date.printable(wall, f.calendar.yearStart)
}

// print returns the date of a reading of the clock, "" without one.
func (f *format) print(wall time.Time) string {
	if f.date == nil {
		return ""
	}
	return f.date.print(wall, f.calendar.yearStart)
}

// A found is what a printed date stands for.
type found struct {
	text        string
	start, date time.Time
	label       string
}

// find returns what a printed date stands for. It remembers the last one, since numbers that are parsed often have the same.
func (f *format) find(text string) (*found, error) {
	if last, ok := f.last.Load().(*found); ok && last.text == text {
		return last, nil
	}
	is := &found{text: strings.Clone(text)} // a copy does not keep the number alive
	if f.date == nil {
		f.dates(is, f.calendar.at(time.Unix(0, 0)), 0)
	} else {
		at, err := f.date.find(text, f.calendar)
		if err != nil {
			return nil, err
		}
		p := f.calendar.at(at)
		from, to, _ := f.date.spanAt(f.calendar, at, p) // it may have begun before 1970
		if from >= to {
			return nil, fmt.Errorf("%s is not before the end of %s", text, readable(p.label))
		}
		f.dates(is, p, from)
	}
	f.last.Store(is)
	return is, nil
}

// dates completes is.
func (f *format) dates(is *found, p *period, from int64) {
	is.label = p.label
	is.start = time.Unix(p.start, 0).In(f.calendar.location)
	if is.date = is.start; from != p.start {
		is.date = time.Unix(from, 0).In(f.calendar.location)
	}
}

// parse takes apart a number that the template printed.
func (f *format) parse(s string) (Number, error) {
	n, err := f.read(s, f.find)
	if err != nil {
		return Number{}, err
	}
	return n.number(f), nil
}

// A parsed is a number taken apart. Its type is a part of the text that was read.
type parsed struct {
	typ  string
	date *found
	seq  int64
}

// number is what was read, with a copy of the type, which does not keep the text alive.
func (n parsed) number(f *format) Number {
	is := n.date
	return Number{Type: strings.Clone(n.typ), Start: is.start, Date: is.date, Seq: n.seq, date: is.text, label: is.label, format: f}
}

// read is parse without its allocations. find finds what a printed date stands for.
func (f *format) read(s string, find func(string) (*found, error)) (n parsed, err error) {
	bad := func(msg string, args ...any) (parsed, error) {
		return parsed{}, fmt.Errorf("%w: %.200q is no number of this generator: %w", ErrInvalidNumber, s, fmt.Errorf(msg, args...))
	}
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
	date := ""
	var wrong error // of a sequence; what a check digit says of it comes first
	rest := s
	for i := range f.fields {
		fl := &f.fields[i]
		width := fl.width
		switch fl.kind {
		case fieldType:
			width = typeWidth
		case fieldSeq:
			width = seqWidth
		}
		part := rest[:width]
		rest = rest[width:]
		switch fl.kind {
		case fieldLiteral:
			if part != fl.text {
				err = fmt.Errorf("%q stands where %q belongs", part, fl.text)
			}
		case fieldType:
			err = f.checkType(part)
			n.typ = part
		case fieldDate:
			date = part
			if last, ok := f.last.Load().(*found); !ok || last.text != date {
				_, err = f.date.read(date)
			}
		case fieldSeq:
			n.seq, err = parseDigits(part, f.alphabet)
			switch {
			case f.hidden != nil:
			case n.seq < 1:
				wrong = errors.New("its sequence is 0, the first is 1")
			case width > f.seqWidth && part[0] == '0':
				wrong = fmt.Errorf("its sequence %s is padded to more than %d digits", part, f.seqWidth)
			}
		case fieldCheck:
			err = f.check.verify(s, len(s)-len(rest)-width)
		}
		if err != nil {
			return bad("%w", err)
		}
	}
	n.date, err = find(date)
	if err = cmp.Or(wrong, err); err != nil {
		return bad("%w", err)
	}
	if f.hidden != nil {
		if n.seq = f.hidden.sequence(n.typ, n.date.label, n.seq); n.seq < 1 {
			return bad("it stands for sequence 0, and the first is 1")
		}
	}
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
