package template

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dailyserial/serial/internal/calendar"
)

// A layout is the parsed layout of a date field: tokens and separators, each as wide as its output. The zero layout
// prints nothing.
type layout struct {
	text   string // as in the template
	fields []field
	tokens []string         // tokens in their usual spelling
	has    [len(parts)]bool // set of printed parts
	Finest calendar.Unit    // shortest unit after which the output changes; calendar.Day for dates
}

// A part is the part of a date that a token prints.
type part int

// The parts, from coarse to fine within each way to write dates.
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
	quarter           // Q
	hour
	minute
	second
)

// A partKind describes a part of dates.
type partKind struct {
	name   string
	tokens []string      // tokens of the part, the usual one first
	unit   calendar.Unit // unit after which the value has changed at the latest
}

// parts has a row for each part.
var parts = [...]partKind{
	year:         {"the calendar year (yyyy or yy)", []string{"yyyy", "yy", "YYYY"}, calendar.Year},
	month:        {"the month (MM)", []string{"MM"}, calendar.Month},
	day:          {"the day (dd)", []string{"dd", "DD"}, calendar.Day},
	dayOfYear:    {"the day of the year (DDD)", []string{"DDD"}, calendar.Day},
	weekYear:     {"the week year (GGGG or GG)", []string{"GGGG", "GG"}, calendar.Week},
	week:         {"the week (WW)", []string{"WW"}, calendar.Week},
	businessYear: {"the business year (FFFF or FF)", []string{"FFFF", "FF"}, calendar.Year},
	businessEnd:  {"the year in which the business year ends (EEEE or EE)", []string{"EEEE", "EE"}, calendar.Year},
	quarter:      {"the quarter (Q)", []string{"Q"}, calendar.Quarter},
	hour:         {"the hour (HH)", []string{"HH"}, calendar.Hour},
	minute:       {"the minute (mm)", []string{"mm"}, calendar.Minute},
	second:       {"the second (ss)", []string{"ss"}, calendar.Second},
}

var years = []part{year, weekYear, businessYear, businessEnd}

const allowedTokens = "want yyyy, yy, MM, dd, DDD, GGGG, GG, WW, Q, FFFF, FF, EEEE, EE, " +
	"HH, mm, ss and separators"

// parseLayout parses the layout of a date field. It reads YYYY and DD, common in other libraries, as yyyy and dd;
// beside weeks, YYYY is refused later.
func parseLayout(text string) (l layout, err error) {
	l.text, l.Finest = text, calendar.Day
	for rest := text; rest != ""; {
		c := rest[0]
		if lower := c | 0x20; lower < 'a' || lower > 'z' {
			if c >= '0' && c <= '9' || c == '{' {
				return l, fmt.Errorf("%q in a date layout; %s (all but ASCII letters, digits, braces)", c, allowedTokens)
			}
			l.fields = appendLiteral(l.fields, rest[:1])
			rest = rest[1:]
			continue
		}
		token := rest[:len(rest)-len(strings.TrimLeft(rest, rest[:1]))]
		rest = rest[len(token):]
		p := slices.IndexFunc(parts[:], func(k partKind) bool { return slices.Contains(k.tokens, token) })
		if p < 0 {
			return l, fmt.Errorf("unknown date token %q; %s", token, allowedTokens)
		}
		f := field{fieldDate, part(p), token}
		// FFFF and FF may be printed together, as in 2024-24; two calendar years or days may not.
		if slices.Contains(l.fields, f) || (f.part == year || f.part == day) && l.has[f.part] {
			return l, fmt.Errorf("%s appears twice", parts[f.part].name)
		}
		l.has[f.part], l.Finest = true, min(l.Finest, parts[f.part].unit)
		l.fields, l.tokens = append(l.fields, f), append(l.tokens, parts[f.part].tokens[0])
	}
	return l, nil
}

// appendLiteral appends literal text, joined to a literal right before it.
func appendLiteral(fields []field, text string) []field {
	if last := len(fields) - 1; last >= 0 && fields[last].kind == fieldLiteral {
		text = fields[last].text + text
		fields = fields[:last]
	}
	return append(fields, field{kind: fieldLiteral, text: text})
}

// isShort reports whether f is a two-digit year, which means 2000 to 2099.
func (f *field) isShort() bool { return len(f.text) == 2 && slices.Contains(years, f.part) }

// known returns the parts that are equal in any two dates that the layout prints the same. Parts that do not change
// within the same unit are known together: the week year only with the week.
func (l *layout) known(start calendar.YearStart) (k [len(parts)]bool) {
	// This is the table in the documentation of WithTemplate.
	Y, M, D, N := l.has[year], l.has[month], l.has[day], l.has[dayOfYear]
	G, W := l.has[weekYear], l.has[week]
	F, Q := l.has[businessYear] || l.has[businessEnd], l.has[quarter]
	if start == (calendar.YearStart{}) { // the business year is the calendar year
		Y = Y || F
		F = Y
	}
	first := start.Day == 0 // business years begin with a month

	k[day] = Y && M && D || Y && N || G && W && D || F && M && D
	k[week] = k[day] || G && W
	k[month] = k[day] || Y && M || first && F && M
	k[quarter] = k[day] || F && Q || first && k[month]
	k[businessYear] = k[day] || F || first && k[month]
	k[year] = k[month] || Y
	k[hour] = k[day] && l.has[hour]
	k[minute] = k[hour] && l.has[minute]
	k[second] = k[minute] && l.has[second]
	k[dayOfYear], k[weekYear], k[businessEnd] = k[day], k[week], k[businessYear]
	return k
}

// tells reports whether any two dates that l prints the same are also the same in other. If l does not tell itself, a
// date recurs after another one: the day alone recurs every month.
func (l *layout) tells(other *layout, start calendar.YearStart) bool {
	known := l.known(start)
	for p, has := range other.has {
		if has && !known[p] {
			return false
		}
	}
	return true
}
