package template

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dailyserial/serial/internal/calendar"
)

// partValues contains the value of each part of a date.
type partValues [len(parts)]int

// valuesAt returns the values of the parts at a wall-clock time. The parameter wall is that time as if it were UTC.
func valuesAt(wall time.Time, start calendar.YearStart) (r partValues) {
	r[year], r[month], r[day], r[dayOfYear] = wall.Year(), int(wall.Month()), wall.Day(), wall.YearDay()
	r[weekYear], r[week] = wall.ISOWeek()
	r[businessYear], r[quarter] = start.YearOf(wall)
	r[half] = (r[quarter] + 1) / 2
	r[businessEnd] = start.EndOf(r[businessYear])
	r[hour], r[minute], r[second] = wall.Clock()
	return r
}

// read parses a printed date. The values of parts that are not printed are 0.
func (l *layout) read(s string) (r partValues, err error) {
	for i := range l.fields {
		f := &l.fields[i]
		text := s[:f.width(s, false)]
		s = s[len(text):]
		var v int64
		switch {
		case f.part == separator && text != f.text:
			return r, fmt.Errorf("got %q, want %q", readable(text), f.text)
		case f.part == separator:
			continue
		case f.names != nil:
			if v = int64(slices.Index(f.names[:], text) + 1); v == 0 {
				return r, fmt.Errorf("got %q, want one of %s", readable(text), strings.Join(f.names[:], ", "))
			}
		case f.run != "" && (text == "" || text[0] == '0' || len(text) > 2):
			return r, fmt.Errorf("got %q, want %s without padding", text, parts[f.part].name)
		default:
			if v, err = parseDigits(text, decimal); err != nil || len(text) < len(f.text) {
				return r, cmp.Or(err, fmt.Errorf("got %q, want %d digits", text, len(f.text)))
			}
		}
		if v -= int64(f.plus); f.isShort() {
			v = 2000 + (v%100+100)%100
		}
		r[f.part] = int(v)
	}
	return r, nil
}

// sortableDates lists the dates that sort as integers. A date sorts as an integer if its tokens are the first tokens of
// a word of the list, or if it has no tokens.
const sortableDates = " yyyyMMddHHmmss yyyyDDDHHmmss GGGGWW FFFFQ FFFFS EEEE"

// sortable returns the digits of a printed date, ordered from coarse to fine parts. The result ok is false if integers
// of these digits would not sort in the order of the dates.
func (l *layout) sortable(date string) (digits []byte, ok bool) {
	r, err := l.read(date)
	if err != nil {
		return nil, false
	}
	var widths [len(parts)]int
	for i := range l.fields {
		f := &l.fields[i]
		if f.run != "" || f.names != nil {
			return nil, false
		}
		widths[f.part] = cmp.Or(widths[f.part], len(f.text))
	}
	tokens := ""
	for p := year; p <= second; p++ {
		if l.has[p] && !(p == businessEnd && l.has[businessYear]) {
			tokens += parts[p].tokens[0]
			if widths[p] == 2 { // a year with two digits
				r[p] %= 100
			}
			digits = appendPadded(digits, int64(r[p]), widths[p], decimal)
		}
	}
	return digits, strings.Contains(sortableDates, " "+tokens)
}
