package template

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/dailyserial/serial/internal/calendar"
)

// A reading has the value of each part of a date at a reading of the clock.
type reading [len(parts)]int

// readingOf returns the parts of a reading of the clock. wall is that reading as if it were UTC.
func readingOf(wall time.Time, start calendar.YearStart) (r reading) {
	r[year], r[month], r[day], r[dayOfYear] = wall.Year(), int(wall.Month()), wall.Day(), wall.YearDay()
	r[weekYear], r[week] = wall.ISOWeek()
	r[businessYear], r[quarter] = start.YearOf(wall)
	r[businessEnd] = start.EndOf(r[businessYear])
	r[hour], r[minute], r[second] = wall.Clock()
	return r
}

// read parses a date as wide as the layout. Parts that are not printed are 0.
func (l *layout) read(s string) (r reading, err error) {
	for _, f := range l.fields {
		text := s[:len(f.text)]
		s = s[len(f.text):]
		if f.part == separator {
			if text != f.text {
				return r, fmt.Errorf("got %q, want %q", text, f.text)
			}
			continue
		}
		v, err := parseDigits(text, decimal)
		if err != nil {
			return r, err
		}
		if f.isShort() {
			v += 2000
		}
		r[f.part] = int(v)
	}
	return r, nil
}

// sortableDates are token sequences. Integers made of the first tokens of one sequence, or of none, sort as dates do.
const sortableDates = " yyyyMMddHHmmss yyyyDDDHHmmss GGGGWW FFFFQ EEEE"

// sortable returns a date's digits from coarse to fine, and false if integers made of them would not sort as dates do.
func (l *layout) sortable(date string) (digits []byte, ok bool) {
	if len(date) != len(l.text) {
		return nil, false
	}
	var texts [len(parts)]string
	for _, f := range l.fields {
		texts[f.part] = cmp.Or(texts[f.part], date[:len(f.text)])
		date = date[len(f.text):]
	}
	tokens := ""
	for p := year; p <= second; p++ {
		if l.has[p] && !(p == businessEnd && l.has[businessYear]) {
			tokens += parts[p].tokens[0]
			digits = append(digits, texts[p]...)
		}
	}
	return digits, strings.Contains(sortableDates, " "+tokens)
}
