package template

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/dailyserial/serial/internal/calendar"
)

// A reading is the value of each part of a date at a reading of the clock.
type reading [len(parts)]int

// readingOf returns the parts of a reading of the clock, which wall has as if it were UTC.
func readingOf(wall time.Time, start calendar.YearStart) (r reading) {
	r[year], r[month], r[day], r[dayOfYear] = wall.Year(), int(wall.Month()), wall.Day(), wall.YearDay()
	r[weekYear], r[week] = wall.ISOWeek()
	r[businessYear], r[quarter] = start.YearOf(wall)
	r[businessEnd] = start.EndOf(r[businessYear])
	r[hour], r[minute], r[second] = wall.Clock()
	return r
}

// checkYear refuses a reading with a year that the layout would print like another one.
func (l *layout) checkYear(r reading) error {
	for i := range l.fields {
		if f := &l.fields[i]; f.isShort() && (r[f.part] < 2000 || r[f.part] > 2099) {
			return fmt.Errorf("serial: the year %d cannot be printed as %s; allowed are 2000 to 2099", r[f.part], f.text)
		}
	}
	for _, p := range years {
		if y := r[p]; (y < 0 || y > 9999) && (l.has[p] || p == year) {
			return fmt.Errorf("serial: the year %d does not have four digits", y)
		}
	}
	return nil
}

// print returns the date at a reading of the clock.
func (l *layout) print(wall time.Time, start calendar.YearStart) string {
	return string(l.append(nil, readingOf(wall, start)))
}

func (l *layout) append(b []byte, r reading) []byte {
	for i := range l.fields {
		switch f := &l.fields[i]; {
		case f.part == separator:
			b = append(b, f.text...)
		case f.isShort():
			b = appendPadded(b, int64(r[f.part]%100), 2, decimal)
		default:
			b = appendPadded(b, int64(r[f.part]), len(f.text), decimal)
		}
	}
	return b
}

// read parses a date that has the width of the layout. Parts that are not printed are 0.
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

// findDate returns the first instant since 1970 at which the template prints a date.
func (t *Template) findDate(s string) (time.Time, error) {
	l, c := &t.date, t.calendar
	r, err := l.read(s)
	if err != nil {
		return time.Time{}, err
	}
	// Without the hour, the same minute comes again within a day, and without the minute the same second.
	finest, step, times := c.With(l.finest), time.Hour, 1
	if l.has[second] && !l.has[minute] {
		step, times = time.Minute, 60
	}
	if !l.has[hour] && finest.Unit.ShorterThanDay() {
		times *= 24
	}
	first, days := l.candidates(r, c.YearStart)
	first = first.Add(time.Duration(r[hour]*60*60+r[minute]*60+r[second]) * time.Second)
	why, early := "there is no %[1]s", ""
	var text [64]byte
	for i := range days {
		wall := first.AddDate(0, 0, i)
		shown := readingOf(wall, c.YearStart)
		if string(l.append(text[:0], shown)) != s || l.checkYear(shown) != nil {
			continue
		}
		why = "%[2]s has no %[1]s"
		for j := range times {
			switch p, ok := finest.Beginning(wall.Add(time.Duration(j) * step)); {
			case !ok: // clocks jumped over it
			case p.End <= 0: // no Redis server has ever had an earlier time
				early = "the %[1]s is before 1970"
			default:
				return time.Unix(p.Start, 0), nil
			}
		}
	}
	return time.Time{}, fmt.Errorf(cmp.Or(early, why), t.describe(r, s), c.Location)
}

// describe returns a printed date as people write it, such as "day 2021-10-24".
func (t *Template) describe(r reading, s string) string {
	if t.date.has != t.usual.has || !t.date.has[year] {
		return "date " + s
	}
	text := fmt.Sprintf("%04d-%02d-%02d %02d:%02d:%02d", r[year], r[month], r[day], r[hour], r[minute], r[second])
	digits := len(t.usual.text)
	return t.calendar.Unit.Noun() + " " + text[:digits+(digits-4)/2]
}

// candidates returns the first of the days that may print a reading, and the number of these days.
func (l *layout) candidates(r reading, start calendar.YearStart) (first time.Time, days int) {
	date := func(y, m, d int) time.Time { return time.Date(y, time.Month(m), d, 0, 0, 0, 0, time.UTC) }
	switch {
	case l.has[year] && l.has[month] && l.has[day]:
		return date(r[year], r[month], r[day]), 1
	case l.has[year] && l.has[dayOfYear]:
		return date(r[year], 1, r[dayOfYear]), 1
	case l.has[year]:
		return date(r[year], 1, 1), 366
	case l.has[weekYear]:
		return date(r[weekYear]-1, 12, 29), 6 + 366 // to 3 January
	case l.has[businessYear]:
		return start.First(r[businessYear]), 366
	case l.has[businessEnd]:
		return start.First(r[businessEnd] - start.EndOf(0)), 366
	}
	return date(1969, 12, 31), 28 * 366 // with Never no year need be printed; the calendar repeats after 28 of them
}

// sortableDates are dates in usual tokens. Integers made of the first tokens of one of them, or of none, sort as dates do.
const sortableDates = " yyyyMMddHHmmss yyyyDDDHHmmss GGGGWW FFFFQ EEEE"

// sortable returns the digits of a date from coarse to fine. It reports false if integers made of them do not sort as dates do.
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
