// Package template parses the templates that numbers are printed by, proves that no two numbers print alike, and prints and
// parses the numbers.
package template

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dailyserial/serial/internal/calendar"
	"github.com/dailyserial/serial/internal/name"
)

// Default is the template that is used where none is given. Its date suits days.
const Default = "{type}{date:yyyyMMdd}{seq:4}"

const (
	defaultWidth = 4
	maxWidth     = 15  // a Lua number is a double: from 16 digits on, sequences would repeat
	maxTemplate  = 256 // bytes: every answer of NextOnce holds one
)

// MaxSequence is the largest sequence that any template prints.
const MaxSequence int64 = 1e15 - 1

// These are errors of package serial.
var (
	ErrInvalidType   = errors.New("serial: invalid type")
	ErrInvalidNumber = errors.New("serial: invalid number")
	ErrCheckDigit    = errors.New("serial: wrong check digit")
)

// A Template is a parsed template for the numbers of a calendar. All its fields have a fixed width, except the type and a sequence
// that may grow.
type Template struct {
	text     string
	fields   []field // literals, type, date, sequence and check, as in the template
	date     *layout // nil without a date
	fixed    int     // bytes of all fields but the type, with a sequence that has not grown
	seqWidth int     // digits that the sequence is padded to
	grows    bool    // the sequence may be wider than seqWidth
	alphabet *alphabet
	check    *check            // nil for none
	hidden   *hidden           // nil for a sequence that is printed as it is
	varies   bool              // what is printed of the date may change within a period
	repeats  bool              // what is printed of the date may come again within a period
	calendar calendar.Calendar // of the numbers
	last     atomic.Value      // the last date found: *Date
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

// Parse parses a template for the numbers of a calendar. Whether it tells their periods apart is for [Template.Prove] to say.
func Parse(template string, c calendar.Calendar) (*Template, error) {
	t := &Template{text: template, calendar: c, alphabet: decimal}
	bad := func(msg string, args ...any) (*Template, error) {
		return nil, fmt.Errorf("serial: template %q: %s", template, fmt.Sprintf(msg, args...))
	}
	if len(template) > maxTemplate {
		return nil, fmt.Errorf("serial: template %.80q...: it has %d bytes; allowed are up to %d",
			template, len(template), maxTemplate)
	}
	if !utf8.ValidString(template) {
		return bad("not valid UTF-8")
	}
	seen := map[string]int{}
	for rest := template; rest != ""; {
		switch {
		case strings.HasPrefix(rest, "{{"), strings.HasPrefix(rest, "}}"):
			t.fields = appendLiteral(t.fields, rest[:1])
			rest = rest[2:]
		case rest[0] == '}':
			return bad("a single } at byte %d; write }} for a brace", len(template)-len(rest))
		case rest[0] != '{':
			i := strings.IndexAny(rest, "{}")
			if i < 0 {
				i = len(rest)
			}
			t.fields = appendLiteral(t.fields, rest[:i])
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
				t.fields = append(t.fields, field{kind: fieldType})
			case name == "seq":
				err = t.parseSeq(arg, hasArg)
			case name == "date":
				if t.date, err = parseLayout(arg); err == nil {
					t.fields = append(t.fields, field{kind: fieldDate, width: t.date.width})
				}
			case name == "check":
				if t.check, err = newCheck(arg); err == nil {
					t.fields = append(t.fields, field{kind: fieldCheck, width: len(t.check.blank())})
				}
			default:
				return bad("unknown field {%s}; %s", body, allowedFields)
			}
			if err != nil {
				return bad("{%s}: %v", body, err)
			}
			if seen[name]++; seen[name] > 1 {
				return bad("{%s} stands twice; "+
					"{type}, {date:LAYOUT}, {seq:WIDTH} and {check:ALGORITHM} each stand once", name)
			}
			rest = after
		}
	}
	for _, name := range []string{"type", "seq"} {
		if seen[name] == 0 {
			return bad("{%s} is missing; {type}, {date:LAYOUT} and {seq:WIDTH} each stand once", name)
		}
	}
	if err := t.checkGrowth(); err != nil {
		return bad("{seq:%d+}: %v", t.seqWidth, err)
	}
	if t.check != nil && t.check.digitsOnly() && t.alphabet != decimal {
		return bad("{check:%s} covers digits only, and the sequence is printed in %s; take %s",
			t.check.Name, t.alphabet.name, checksOfLetters)
	}
	for _, fl := range t.fields {
		t.fixed += fl.width
	}
	return t, nil
}

// Prove refuses a template that could print numbers of different periods alike.
func (t *Template) Prove() error {
	if t.date == nil {
		if t.calendar.Unit != calendar.Never {
			return fmt.Errorf("serial: template %q: {date} is missing; "+
				"{type}, {date:LAYOUT} and {seq:WIDTH} each stand once, and only numbers of Never need no date", t.text)
		}
		return nil
	}
	if err := t.date.check(t.calendar); err != nil {
		return fmt.Errorf("serial: template %q: {date:%s}: %w", t.text, t.date.text, err)
	}
	t.varies, t.repeats = t.date.varies(t.calendar), !t.date.unbroken(t.calendar.YearStart)
	return nil
}

func (t *Template) parseSeq(arg string, hasArg bool) error {
	t.seqWidth = defaultWidth
	if hasArg {
		count, name, hasAlphabet := strings.Cut(arg, ":")
		if hasAlphabet {
			switch name {
			case base32.name:
				t.alphabet = base32
			case base36.name:
				t.alphabet = base36
			default:
				return fmt.Errorf("%q is no alphabet; allowed are base32 and base36, and none for decimal digits", name)
			}
		}
		var digits string
		digits, t.grows = strings.CutSuffix(count, "+")
		if t.grows && hasAlphabet {
			return fmt.Errorf("a sequence in %s cannot grow; only a decimal one can", name)
		}
		width, err := strconv.ParseUint(digits, 10, 8)
		if err != nil || width < 1 || int(width) > t.alphabet.widest || digits[0] == '0' {
			more := ", with + behind it for a sequence that may grow wider"
			if hasAlphabet {
				more = ""
			}
			return fmt.Errorf("%q is no width; allowed are 1 to %d%s", count, t.alphabet.widest, more)
		}
		t.seqWidth = int(width)
	}
	t.fields = append(t.fields, field{kind: fieldSeq, width: t.seqWidth})
	return nil
}

// checkGrowth refuses a growing sequence whose digits could not be told from what stands beside them: number 11 of type A
// would read like number 1 of type A1. Between two literals, the sequence is all the digits that stand there.
func (t *Template) checkGrowth() error {
	if !t.grows {
		return nil
	}
	fields := slices.Clone(t.fields)
	if date := find(fields, fieldDate); date >= 0 {
		fields = slices.Replace(fields, date, date+1, t.date.fields...)
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
		return errors.New("a sequence that may grow needs a literal that begins with no digit right after it, " +
			"such as -, or to end the template")
	}
	return nil
}

func find(fields []field, kind fieldKind) int {
	return slices.IndexFunc(fields, func(fl field) bool { return fl.kind == kind })
}

// Largest returns the largest sequence that the template can print.
func (t *Template) Largest() int64 {
	if t.grows {
		return MaxSequence
	}
	return t.alphabet.largest(t.seqWidth)
}

// CheckType refuses types whose numbers the template cannot print: what a check digit covers are ASCII letters.
func (t *Template) CheckType(typ string) error {
	if err := name.Check(typ); err != nil {
		return fmt.Errorf("%w %.80q: %w", ErrInvalidType, typ, err)
	}
	if t.check == nil || t.check.digitsOnly() {
		return nil
	}
	for i := range len(typ) {
		if typ[i] >= utf8.RuneSelf {
			return fmt.Errorf("%w %.80q: {check:%s} covers letters; allowed are ASCII letters, digits and - _ . /",
				ErrInvalidType, typ, t.check.Name)
		}
	}
	return nil
}

// CheckYear refuses a reading of the clock whose year the template would print like another one.
func (t *Template) CheckYear(wall time.Time) error {
	if t.date == nil {
		return nil
	}
	return t.date.checkYear(wall, t.calendar.YearStart)
}

// Text returns the template as it was written.
func (t *Template) Text() string { return t.text }

// Varies reports whether what is printed of the date may change within a period.
func (t *Template) Varies() bool { return t.varies }

// PrintsSeconds reports whether the date has the second.
func (t *Template) PrintsSeconds() bool { return t.date != nil && t.date.has[second] }

// PrintsBusinessYear reports whether the date has a part of the business year.
func (t *Template) PrintsBusinessYear() bool {
	return t.date != nil && (t.date.has[businessYear] || t.date.has[businessEnd] || t.date.has[quarter])
}

// PrintMark returns a hash of all that could make two processes print different sequences of a period alike: the order of fields
// and tokens, the alphabet, the check digit and the key. Widths, literals and spellings are not in it.
func (t *Template) PrintMark() string {
	var text strings.Builder
	for _, fl := range t.fields {
		switch fl.kind {
		case fieldType:
			text.WriteString("type;")
		case fieldDate:
			text.WriteString("date:" + t.date.usual() + ";")
		case fieldSeq:
			text.WriteString("seq:" + t.alphabet.name + ";")
		case fieldCheck:
			text.WriteString("check:" + t.check.Name + ";")
		}
	}
	if t.hidden != nil {
		text.WriteString("hidden:" + t.hidden.fingerprint)
	}
	sum := sha256.Sum256([]byte(text.String()))
	return hex.EncodeToString(sum[:6]) // with it, most records have no field above 64 bytes, which Redis keeps compact
}
