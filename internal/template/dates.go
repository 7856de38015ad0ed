package template

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dailyserial/serial/internal/calendar"
)

// Dates are the dates that a template prints for a calendar's periods.
type Dates struct {
	layout          // layout of the template, empty if there is no date
	usual    layout // default layout, which distinguishes the calendar's periods
	calendar calendar.Calendar
	Vary     bool                                // whether the date may change within a period
	repeat   bool                                // whether the same date may be printed again after another date
	cache    [8192]atomic.Pointer[calendar.Span] // recently found spans, each in a slot near the hash of its date
}

// usualDates contains a date layout for each unit, which distinguishes the periods of this unit.
var usualDates = [...]string{
	calendar.Second: "yyyyMMddHHmmss", calendar.Minute: "yyyyMMddHHmm", calendar.Hour: "yyyyMMddHH",
	calendar.Day: "yyyyMMdd", calendar.Month: "yyyyMM", calendar.Year: "yyyy",
	calendar.Week: "GGGG-WW", calendar.Quarter: "FFFF-Q", calendar.HalfYear: "FFFF-S", calendar.Never: "",
}

// usualDate returns the default date layout of a calendar, or "" if no date is needed.
func usualDate(c calendar.Calendar) string {
	if c.Unit == calendar.Year && c.YearStart != (calendar.YearStart{}) {
		return "FFFF"
	}
	return usualDates[c.Unit]
}

// Usual returns the default template with a date that suits a calendar.
func Usual(c calendar.Calendar) string {
	text := strings.Replace(Default, "yyyyMMdd", usualDate(c), 1)
	return strings.Replace(text, "{date:}", "", 1)
}

// check returns an error if the dates do not distinguish the calendar's periods, or if they do not suit the calendar.
func (d *Dates) check() error {
	for _, f := range d.fields {
		switch {
		case f.text == "YYYY" && (d.calendar.Unit == calendar.Week || d.has[week] || d.has[weekYear]):
			return errors.New("YYYY beside weeks: elsewhere it is the week year; " +
				"print GGGG for that, or yyyy for the calendar year")
		case d.calendar.DayStart != 0 && f.part >= hour:
			return fmt.Errorf("%s: with a day start, the date is the business day, which has no hours", f.text)
		}
	}
	if d.determines(&d.usual, d.calendar.YearStart) {
		return nil
	}
	return fmt.Errorf("%s; print %s", d.ambiguity(), d.usual.text)
}

// Named returns the unit whose periods correspond exactly to the printed dates. It returns false if there is no such
// unit, if the template has no date, or if the dates distinguish the periods of the calendar.
func (d *Dates) Named() (calendar.Unit, bool) {
	start := d.calendar.YearStart
	if d.text == "" || d.determines(&d.usual, start) {
		return 0, false
	}
	for unit := calendar.Second; unit.Valid(); unit++ {
		usual, _ := parseLayout(usualDate(d.calendar.With(unit)))
		if d.determines(&usual, start) && usual.determines(&d.layout, start) {
			return unit, true
		}
	}
	return 0, false
}

// ambiguity returns the reason why the dates do not distinguish the calendar's periods. The reason is a missing part,
// or an example of two days in different periods with the same printed date.
func (d *Dates) ambiguity() string {
	noun := d.calendar.Unit.Noun()
	dates := d.usual.has[year] && !slices.Contains(d.has[dayOfYear:hour], true)
	dayKnown := d.known(d.calendar.YearStart)[day]
	for p := year; p <= second; p++ {
		if !d.usual.has[p] || d.has[p] || !dates && (p < hour || !dayKnown) {
			continue
		}
		missing := fmt.Sprintf("%s is missing: numbers of different %ss would read the same", parts[p].name, noun)
		if p == month && d.has[minute] {
			missing += `, and "mm" is the minute`
		}
		return missing
	}
	days := d.calendar.With(max(d.calendar.Unit, calendar.Day))
	noun = days.Unit.Noun()
	seen := map[string]time.Time{}
	for wall := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC); wall.Year() < 2032; wall = wall.AddDate(0, 0, 1) {
		text := string(d.append(nil, wall))
		before, again := seen[text]
		if !again {
			seen[text] = wall
		} else if days.Index(before.Unix()) != days.Index(wall.Unix()) {
			const dates = "2 January 2006"
			return fmt.Sprintf("%s does not tell %ss apart: %s is printed for %s and for %s", d.text, noun, text,
				before.Format(dates), wall.Format(dates))
		}
	}
	return fmt.Sprintf("%s does not tell %ss apart in every calendar", d.text, noun)
}

// checkYear returns an error if a year of the date at a wall-clock time cannot be printed unambiguously.
func (d *Dates) checkYear(wall time.Time) error {
	r := valuesAt(wall, d.calendar.YearStart)
	for i := range d.fields {
		f := &d.fields[i]
		if f.isShort() && (r[f.part] < 2000 || r[f.part] > 2099) {
			return fmt.Errorf("serial: the year %d cannot be printed as %s; want 2000 to 2099", r[f.part], f.text)
		}
		if last := 9999 - f.plus; f.plus != 0 && r[f.part] > last {
			return fmt.Errorf("serial: the year %d cannot be printed as %s; want years up to %d", r[f.part], f.text, last)
		}
	}
	for _, p := range years {
		if y := r[p]; (y < 0 || y > 9999) && (d.has[p] || p == year) {
			return fmt.Errorf("serial: the year %d does not have four digits", y)
		}
	}
	return nil
}

// append appends the date at the wall-clock time wall, which is given as if it were UTC.
func (d *Dates) append(b []byte, wall time.Time) []byte {
	r := valuesAt(wall, d.calendar.YearStart)
	for i := range d.fields {
		switch f := &d.fields[i]; {
		case f.part == separator:
			b = append(b, f.text...)
		case f.names != nil:
			b = append(b, f.names[r[f.part]-1]...)
		case f.isShort():
			b = appendPadded(b, int64((r[f.part]+f.plus)%100), 2, decimal)
		default:
			b = appendPadded(b, int64(r[f.part]+f.plus), len(f.text), decimal)
		}
	}
	return b
}

// PrintBusinessYear reports whether the dates print a part of the business year.
func (d *Dates) PrintBusinessYear() bool {
	return d.has[businessYear] || d.has[businessEnd] || d.has[half] || d.has[quarter]
}

// SpanAt returns the span that contains an instant. If the date of the span cannot be printed, it also returns an
// error.
func (d *Dates) SpanAt(at time.Time) (calendar.Span, error) {
	s, c := d.SpanOf(d.calendar.At(at)), d.calendar
	wall := s.Wall
	if d.Vary {
		for printed := year; printed <= second; printed++ {
			if d.has[printed] {
				units := c.With(parts[printed].unit)
				if printed == year {
					units.YearStart = calendar.YearStart{}
				}
				unit := units.At(at)
				s.From, s.To = max(s.From, unit.Start), min(s.To, unit.End)
			}
		}
		wall = c.With(d.Finest).At(at).Wall
		s.Date = string(d.append(nil, wall))
	}
	if wall.Year() < 1970 && !c.HasPeriod(at) {
		return s, fmt.Errorf("serial: the date is before 1970 in %v", c.Location)
	}
	return s, d.checkYear(wall)
}

// CheckPeriod returns an error if no date of a period can be printed. The years that can be printed are consecutive, so
// it is enough to check the first and the last date. The period of Never contains years that every template can print.
func (d *Dates) CheckPeriod(p *calendar.Period) error {
	err := d.checkYear(p.Wall)
	if err == nil || !d.Vary {
		return err
	}
	if d.calendar.Unit == calendar.Never || d.checkYear(d.calendar.With(d.Finest).At(time.Unix(p.End-1, 0)).Wall) == nil {
		return nil
	}
	return err
}

// SpanOf returns a complete period as a span, for a number whose time of issue within the period is not known. The span
// has no Date if the date may change within the period.
func (d *Dates) SpanOf(p *calendar.Period) calendar.Span {
	s := calendar.Span{Period: *p, From: p.Start, To: p.End}
	if !d.Vary {
		s.Date = string(d.append(nil, p.Wall))
	}
	return s
}

var seed = maphash.MakeSeed()

// Find returns the first span in which a date is printed. It caches recent results, because many numbers have the same
// date. The cache has room for the days of more than ten years, because each span may be in one of several slots.
func (d *Dates) Find(text string) (*calendar.Span, error) {
	const tries = 8
	hash := maphash.String(seed, text)
	slot := &d.cache[hash%uint64(len(d.cache))] // slot to overwrite if none of the slots is free
	for i := range uint64(tries) {
		next := &d.cache[(hash+i)%uint64(len(d.cache))]
		s := next.Load()
		if s == nil {
			slot = next
			break
		}
		if s.Date == text {
			return s, nil
		}
	}
	at, err := d.first(text)
	if err != nil {
		return nil, err
	}
	// The period may have begun before 1970, so the error is ignored. s.Date is a new string. The cache must not contain
	// text, which would keep the number that it is part of in memory.
	s, _ := d.SpanAt(at)
	if s.From >= s.To {
		return nil, fmt.Errorf("%s is not before the end of %s", text, calendar.FormatLabel(s.Label))
	}
	slot.Store(&s)
	return &s, nil
}

// first returns the first instant at which a date is printed. Periods before 1970 do not count.
func (d *Dates) first(s string) (time.Time, error) {
	c := d.calendar
	r, err := d.read(s)
	if err != nil {
		return time.Time{}, err
	}
	// Without the hour, the same minute is printed every hour. Without the minute, the same second is printed every
	// minute.
	finest, step, times := c.With(d.Finest), time.Hour, 1
	if d.has[second] && !d.has[minute] {
		step, times = time.Minute, 60
	}
	if !d.has[hour] && finest.Unit.ShorterThanDay() {
		times *= 24
	}
	first, days := d.candidates(r)
	first = first.Add(time.Duration(r[hour]*60*60+r[minute]*60+r[second]) * time.Second)
	why, early := "there is no %[1]s", ""
	var text [64]byte
	for i := range days {
		wall := first.AddDate(0, 0, i)
		if string(d.append(text[:0], wall)) != s || d.checkYear(wall) != nil {
			continue
		}
		why = "%[2]s has no %[1]s"
		for j := range times {
			switch p := finest.Beginning(wall.Add(time.Duration(j) * step)); {
			case p.Start >= p.End: // clocks skipped the period
			case (p.End <= 0 || p.Wall.Year() < 1970) && !c.HasPeriod(time.Unix(p.End-1, 0)):
				early = "the %[1]s is before 1970"
			default:
				return time.Unix(p.Start, 0), nil
			}
		}
	}
	return time.Time{}, fmt.Errorf(cmp.Or(early, why), d.describe(r, s), c.Location)
}

// describe returns a printed date with the word for its unit, such as "day 2021-10-24".
func (d *Dates) describe(r partValues, s string) string {
	if d.has != d.usual.has || !d.has[year] || slices.Contains(d.tokens, "BBBB") {
		return "date " + s
	}
	text := fmt.Sprintf("%04d-%02d-%02d %02d:%02d:%02d", r[year], r[month], r[day], r[hour], r[minute], r[second])
	digits := len(d.usual.text)
	return d.calendar.Unit.Noun() + " " + text[:digits+(digits-4)/2]
}

// candidates returns the first day on which a parsed date may be printed, and the number of days to try from that day
// on.
func (d *Dates) candidates(r partValues) (first time.Time, days int) {
	start := d.calendar.YearStart
	date := func(y, m, day int) time.Time { return time.Date(y, time.Month(m), day, 0, 0, 0, 0, time.UTC) }
	switch {
	case d.has[year] && d.has[month] && d.has[day]:
		return date(r[year], r[month], r[day]), 1
	case d.has[year]:
		return date(r[year], 1, 1), 366
	case d.has[weekYear]:
		return date(r[weekYear]-1, 12, 29), 6 + 366 // to 3 January
	case d.has[businessYear]:
		return start.First(r[businessYear]), 366
	case d.has[businessEnd]:
		return start.First(r[businessEnd] - start.EndOf(0)), 366
	}
	return date(1969, 12, 31), 28 * 366 // only Never needs no year; weekdays and leap years repeat after 28 years
}
