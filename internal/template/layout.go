package template

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/dailyserial/serial/internal/calendar"
)

// A layout is the parsed layout of a date field. It consists of tokens and separators. The zero layout prints nothing.
type layout struct {
	text   string // text in the template
	fields []field
	tokens []string         // tokens as they are part of the print mark
	has    [len(parts)]bool // set of the printed parts
	Finest calendar.Unit    // shortest unit after which the output changes; calendar.Day without a time of day
}

// A part is the part of a date that a token prints.
type part int

// These are the parts. Within each way to write dates, they are ordered from coarse to fine. The letters are those of
// [layout.known].
const (
	separator    part = iota
	year              // Y
	month             // M
	day               // D
	dayOfYear         // N
	weekYear          // G
	week              // W
	businessYear      // F
	businessEnd       // E, equivalent to F
	half              // S
	quarter           // Q
	hour
	minute
	second
)

// A partKind describes a part of dates.
type partKind struct {
	name   string
	tokens []string      // tokens of the part, beginning with the usual one
	unit   calendar.Unit // longest unit during which the value stays the same
}

// parts has a row for each part.
var parts = [...]partKind{
	year:         {"the calendar year (yyyy or yy)", []string{"yyyy", "yy", "YYYY", "BBBB", "BB"}, calendar.Year},
	month:        {"the month (MM)", []string{"MM", "M", "MMM", "Mmm", "R"}, calendar.Month},
	day:          {"the day (dd)", []string{"dd", "d", "DD"}, calendar.Day},
	dayOfYear:    {"the day of the year (DDD)", []string{"DDD"}, calendar.Day},
	weekYear:     {"the week year (GGGG or GG)", []string{"GGGG", "GG"}, calendar.Week},
	week:         {"the week (WW)", []string{"WW"}, calendar.Week},
	businessYear: {"the business year (FFFF or FF)", []string{"FFFF", "FF"}, calendar.Year},
	businessEnd:  {"the year in which the business year ends (EEEE or EE)", []string{"EEEE", "EE"}, calendar.Year},
	half:         {"the half-year (S)", []string{"S"}, calendar.HalfYear},
	quarter:      {"the quarter (Q)", []string{"Q"}, calendar.Quarter},
	hour:         {"the hour (HH)", []string{"HH"}, calendar.Hour},
	minute:       {"the minute (mm)", []string{"mm"}, calendar.Minute},
	second:       {"the second (ss)", []string{"ss"}, calendar.Second},
}

// A form determines how a token prints its part. With the zero form, the token prints as many digits as it has letters.
type form struct {
	mark  string      // token in the print mark, or "" for the usual token of the part
	plus  int         // number that is added to the value
	names *[12]string // names that are printed instead of the values 1 to 12, or nil
	run   string      // characters of a form of variable width, or "" if the width is fixed
}

const digits = "0123456789"

// forms maps tokens to forms.
var forms = map[string]form{
	"M":    {run: digits},
	"d":    {run: digits},
	"BBBB": {mark: "BBBB", plus: 543},
	"BB":   {mark: "BBBB", plus: 543},
	"R":    {"R", 0, &[12]string{"I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII"}, "IVX"},
	"MMM": {mark: "MMM", names: &[12]string{
		"JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"}},
	"Mmm": {mark: "MMM", names: &[12]string{
		"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"}},
}

var years = []part{year, weekYear, businessYear, businessEnd}

const allowedTokens = "want yyyy, yy, BBBB, BB, MM, M, MMM, Mmm, R, dd, d, DDD, GGGG, GG, WW, FFFF, FF, EEEE, EE, " +
	"S, Q, HH, mm, ss, separators and 'quoted text'"

// quoted matches quoted text at the beginning of a string. Two quotes mean one quote, also within quoted text.
var quoted = regexp.MustCompile(`^(?:''|'(?:[^']|'')+')`)

// parseLayout parses the layout of a date field. YYYY and DD, which are common in other libraries, mean yyyy and dd.
// [Dates.check] refuses YYYY in combination with weeks.
func parseLayout(text string) (l layout, err error) {
	l.text, l.Finest = text, calendar.Day
	for rest := text; rest != ""; {
		c, literal := rest[0], rest[:1]
		if lower := c | 0x20; lower < 'a' || lower > 'z' {
			width := 1
			if c == '\'' {
				if width = len(quoted.FindString(rest)); width == 0 {
					return l, fmt.Errorf("the quote in %s is not closed; write '' for a quote", rest)
				}
				literal = cmp.Or(strings.ReplaceAll(rest[1:width-1], "''", "'"), "'")
			}
			if c >= '0' && c <= '9' || strings.Contains(literal, "{") {
				return l, fmt.Errorf("%q in a date layout; %s (separators are all but ASCII letters, digits and braces)",
					literal, allowedTokens)
			}
			l.fields, rest = appendText(l.fields, fieldDate, literal), rest[width:]
			continue
		}
		token := cutToken(rest)
		rest = rest[len(token):]
		p := slices.IndexFunc(parts[:], func(k partKind) bool { return slices.Contains(k.tokens, token) })
		if p < 0 {
			return l, fmt.Errorf("unknown date token %q; %s", token, allowedTokens)
		}
		f := field{fieldDate, part(p), token, forms[token]}
		// FFFF and FF may be printed together, as in 2024-24; two calendar years, months or days may not.
		if slices.Contains(l.fields, f) || f.part <= day && l.has[f.part] {
			return l, fmt.Errorf("%s appears twice", parts[f.part].name)
		}
		l.has[f.part], l.Finest = true, min(l.Finest, parts[f.part].unit)
		l.fields, l.tokens = append(l.fields, f), append(l.tokens, cmp.Or(f.mark, parts[f.part].tokens[0]))
	}
	return l, nil
}

// cutToken returns the token at the beginning of s, which is a run of the same letter, or Mmm.
func cutToken(s string) string {
	token := s[:len(s)-len(strings.TrimLeft(s, s[:1]))]
	if after := s[len(token):]; token == "M" && len(after)-len(strings.TrimLeft(after, "m")) == 2 {
		return s[:3]
	}
	return token
}

// appendText appends a literal, or a separator of a date. If the last field is a literal or separator of the same kind,
// the text is added to this field.
func appendText(fields []field, kind fieldKind, text string) []field {
	if last := len(fields) - 1; last >= 0 && fields[last].kind == kind && fields[last].part == separator {
		text = fields[last].text + text
		fields = fields[:last]
	}
	return append(fields, field{kind: kind, text: text})
}

// width returns the width of the field at the beginning of s or, if atEnd is true, at its end.
func (f *field) width(s string, atEnd bool) int {
	switch {
	case f.run == "":
		return min(len(f.text), len(s))
	case atEnd:
		return len(s) - len(strings.TrimRight(s, f.run))
	}
	return len(s) - len(strings.TrimLeft(s, f.run))
}

// isShort reports whether f is a year of two digits, which stands for a year from 2000 to 2099.
func (f *field) isShort() bool { return len(f.text) == 2 && slices.Contains(years, f.part) }

// known returns the parts that a printed date determines. Any two dates that are printed the same have the same values
// of these parts. A part counts as known only if the parts that it depends on are known, too: a week needs its week
// year, for example.
func (l *layout) known(start calendar.YearStart) (k [len(parts)]bool) {
	// The documentation of WithTemplate contains these rules as a table.
	Y, M, D, N := l.has[year], l.has[month], l.has[day], l.has[dayOfYear]
	G, W := l.has[weekYear], l.has[week]
	F, S, Q := l.has[businessYear] || l.has[businessEnd], l.has[half], l.has[quarter]
	if start == (calendar.YearStart{}) { // the business year is the calendar year
		Y = Y || F
		F = Y
	}
	first := start.Day == 0 // business years begin with a month

	k[day] = Y && M && D || Y && N || G && W && D || F && M && D
	k[week] = k[day] || G && W
	k[month] = k[day] || Y && M || first && F && M
	k[quarter] = k[day] || F && Q || first && k[month]
	k[half] = k[quarter] || F && S
	k[businessYear] = k[day] || F || first && k[month]
	k[year] = k[month] || Y
	k[hour] = k[day] && l.has[hour]
	k[minute] = k[hour] && l.has[minute]
	k[second] = k[minute] && l.has[second]
	k[dayOfYear], k[weekYear], k[businessEnd] = k[day], k[week], k[businessYear]
	return k
}

// determines reports whether any two dates that l prints the same are also printed the same by the layout other. If l
// does not determine itself, it prints the same text again after another text. For example, a day without its month is
// printed again every month.
func (l *layout) determines(other *layout, start calendar.YearStart) bool {
	known := l.known(start)
	for p, has := range other.has {
		if has && !known[p] {
			return false
		}
	}
	return true
}
