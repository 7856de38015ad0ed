package template

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dailyserial/serial/internal/calendar"
)

// A layout is the parsed layout of a date field: tokens and separators, each of a fixed width.
type layout struct {
	fields []field
	has    [len(parts)]bool // parts that it prints
	width  int              // bytes
	text   string           // as in the template
}

// A part is what a token prints of a date.
type part int

const (
	separator    part = iota
	year              // Y
	month             // M
	day               // D
	dayOfYear         // N
	weekYear          // G
	week              // W
	businessYear      // F
	businessEnd       // E, as good as F
	quarter           // Q
	hour
	minute
	second
)

// parts holds what differs from one part to another.
var parts = [...]struct {
	name string
	unit calendar.Unit // after which it has another value, at the latest
}{
	year:         {"the calendar year (yyyy or yy)", calendar.Year},
	month:        {"the month (MM)", calendar.Month},
	day:          {"the day (dd)", calendar.Day},
	dayOfYear:    {"the day of the year (DDD)", calendar.Day},
	weekYear:     {"the week year (GGGG or GG)", calendar.Week},
	week:         {"the week (WW)", calendar.Week},
	businessYear: {"the business year (FFFF or FF)", calendar.Year},
	businessEnd:  {"the year in which the business year ends (EEEE or EE)", calendar.Year},
	quarter:      {"the quarter (Q)", calendar.Quarter},
	hour:         {"the hour (HH)", calendar.Hour},
	minute:       {"the minute (mm)", calendar.Minute},
	second:       {"the second (ss)", calendar.Second},
}

// tokens are what a layout may hold besides separators, and the part that each prints. YYYY and DD are common in other
// libraries and taken for yyyy and dd; beside weeks, YYYY is refused.
var tokens = map[string]part{
	"yyyy": year, "YYYY": year, "yy": year, "MM": month, "dd": day, "DD": day, "DDD": dayOfYear,
	"GGGG": weekYear, "GG": weekYear, "WW": week,
	"FFFF": businessYear, "FF": businessYear, "EEEE": businessEnd, "EE": businessEnd, "Q": quarter,
	"HH": hour, "mm": minute, "ss": second,
}

const allowedTokens = "allowed are yyyy, yy, MM, dd, DDD, GGGG, GG, WW, Q, FFFF, FF, EEEE, EE, HH, mm, ss and separators"

// usual is how a token is called where its width and spelling do not matter.
var usual = map[string]string{"yy": "yyyy", "YYYY": "yyyy", "DD": "dd", "GG": "GGGG", "FF": "FFFF", "EE": "EEEE"}

// parseLayout parses the layout of a date field.
func parseLayout(text string) (*layout, error) {
	l := &layout{text: text}
	seen := map[string]bool{}
	for rest := text; rest != ""; {
		c := rest[0]
		if lower := c | 0x20; lower < 'a' || lower > 'z' {
			if c >= '0' && c <= '9' || c == '{' {
				return nil, fmt.Errorf("%q in a date layout; %s (anything but ASCII letters, digits and braces)",
					c, allowedTokens)
			}
			_, size := utf8.DecodeRuneInString(rest)
			l.fields = appendLiteral(l.fields, rest[:size])
			rest = rest[size:]
			continue
		}
		token := rest[:len(rest)-len(strings.TrimLeft(rest, rest[:1]))]
		p, ok := tokens[token]
		if !ok {
			return nil, fmt.Errorf("unknown date token %q; %s", token, allowedTokens)
		}
		// FFFF and FF may stand together, as in 2024-24; two calendar years or days may not.
		if seen[token] || (p == year || p == day) && l.has[p] {
			return nil, fmt.Errorf("%s stands twice", parts[p].name)
		}
		seen[token], l.has[p] = true, true
		l.fields = append(l.fields, field{part: p, width: len(token), text: token})
		rest = rest[len(token):]
	}
	for _, f := range l.fields {
		l.width += f.width
	}
	if !slices.Contains(l.has[:], true) {
		return nil, fmt.Errorf("it prints nothing of the date: %s is missing; %s", parts[year].name, allowedTokens)
	}
	return l, nil
}

// appendLiteral appends literal text, and joins it to a literal right before it.
func appendLiteral(fields []field, text string) []field {
	if last := len(fields) - 1; last >= 0 && fields[last].kind == fieldLiteral && fields[last].part == separator {
		text = fields[last].text + text
		fields = fields[:last]
	}
	return append(fields, field{kind: fieldLiteral, width: len(text), text: text})
}

// determines reports whether dates that print alike lie in one period.
func (l *layout) determines(per calendar.Unit, start calendar.YearStart) bool {
	// This is the table of the documentation, see WithTemplate: what is known follows from what is printed.
	Y, M, D, N := l.has[year], l.has[month], l.has[day], l.has[dayOfYear]
	G, W := l.has[weekYear], l.has[week]
	F, Q := l.has[businessYear] || l.has[businessEnd], l.has[quarter]
	if start == (calendar.YearStart{}) { // the business year is the calendar year
		Y = Y || F
		F = Y
	}
	first := start.Day == 0 // business years begin with a month

	known := map[calendar.Unit]bool{calendar.Never: true}
	known[calendar.Day] = Y && M && D || Y && N || G && W && D || F && M && D
	known[calendar.Week] = known[calendar.Day] || G && W
	known[calendar.Month] = known[calendar.Day] || Y && M || first && F && M
	known[calendar.Quarter] = known[calendar.Day] || F && Q || first && known[calendar.Month]
	known[calendar.Year] = known[calendar.Day] || F || first && known[calendar.Month]
	known[calendar.Hour] = known[calendar.Day] && l.has[hour]
	known[calendar.Minute] = known[calendar.Hour] && l.has[minute]
	known[calendar.Second] = known[calendar.Minute] && l.has[second]
	return known[per]
}

// check refuses a layout whose text does not tell the calendar's periods apart, or that the calendar cannot print.
func (l *layout) check(c calendar.Calendar) error {
	for _, f := range l.fields {
		switch {
		case f.text == "YYYY" && (c.Unit == calendar.Week || l.has[week] || l.has[weekYear]):
			return errors.New("YYYY beside weeks: elsewhere it is the week year; " +
				"print GGGG for that, or yyyy for the calendar year")
		case c.DayStart != 0 && f.part >= hour:
			return fmt.Errorf("%s: with a day start, what is printed is the business day, which has no hours", f.text)
		}
	}
	if l.determines(c.Unit, c.YearStart) {
		return nil
	}
	return fmt.Errorf("%s; print %s", l.ambiguity(c), usualDate(c))
}

// ambiguity says why the layout does not tell the calendar's periods apart, by two days that print alike if there are any.
func (l *layout) ambiguity(c calendar.Calendar) string {
	noun := c.Unit.Noun()
	businessYears := c.Unit == calendar.Year && c.YearStart != calendar.YearStart{}
	dates := !slices.Contains(l.has[dayOfYear:hour], true) && !businessYears
	if finest, ok := finestParts[c.Unit]; ok && (dates || l.determines(calendar.Day, c.YearStart)) {
		for _, p := range usualParts {
			if p > finest || l.has[p] || p < hour && !dates {
				continue
			}
			missing := fmt.Sprintf("%s is missing: numbers of different %ss would read the same", parts[p].name, noun)
			if p == month && l.has[minute] {
				missing += `, and "mm" is the minute`
			}
			return missing
		}
	}
	days := c
	if c.Unit.ShorterThanDay() {
		days.Unit, noun = calendar.Day, "day"
	}
	const years = 8
	type sample struct {
		wall  time.Time
		index int64
	}
	seen := map[string]sample{}
	for wall := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC); wall.Year() < 2024+years; wall = wall.AddDate(0, 0, 1) {
		text, now := l.print(wall, c.YearStart), sample{wall, days.Index(wall.Unix())}
		if before, ok := seen[text]; !ok {
			seen[text] = now
		} else if before.index != now.index {
			const dates = "2 January 2006"
			return fmt.Sprintf("%s does not tell %ss apart: %s is printed for %s and for %s", l.names(), noun, text,
				before.wall.Format(dates), wall.Format(dates))
		}
	}
	return fmt.Sprintf("%s is none of the dates that tell %ss apart in every calendar", l.names(), noun)
}

// names lists the tokens of the layout.
func (l *layout) names() string {
	var all []string
	for _, f := range l.fields {
		if f.part != separator {
			all = append(all, f.text)
		}
	}
	return strings.Join(all, " ")
}

// value is a part of a date. wall is a reading of the clock, as if it were UTC.
func (p part) value(wall time.Time, start calendar.YearStart) int {
	switch p {
	case year:
		return wall.Year()
	case month:
		return int(wall.Month())
	case day:
		return wall.Day()
	case dayOfYear:
		return wall.YearDay()
	case weekYear, week:
		y, w := wall.ISOWeek()
		if p == week {
			return w
		}
		return y
	case businessYear, businessEnd, quarter:
		y, q := start.YearOf(wall)
		switch p {
		case quarter:
			return q
		case businessEnd:
			return start.EndOf(y)
		}
		return y
	case hour:
		return wall.Hour()
	case minute:
		return wall.Minute()
	}
	return wall.Second()
}

// isYear reports whether p is a year, of which two digits stand for 2000 to 2099.
func (p part) isYear() bool {
	return p == year || p == weekYear || p == businessYear || p == businessEnd
}

// checkYear refuses a reading of the clock with a year that the layout would print like another one.
func (l *layout) checkYear(wall time.Time, start calendar.YearStart) error {
	for _, f := range l.fields {
		if !f.part.isYear() {
			continue
		}
		y := f.part.value(wall, start)
		if f.width == 2 && (y < 2000 || y > 2099) {
			return fmt.Errorf("serial: the year %d cannot be printed as %s, which stands for 2000 to 2099", y, f.text)
		}
		if y < 0 || y > 9999 {
			return fmt.Errorf("serial: the year %d does not have four digits", y)
		}
	}
	if y := wall.Year(); y < 0 || y > 9999 {
		return fmt.Errorf("serial: the year %d does not have four digits", y)
	}
	return nil
}

// print returns a reading of the clock as the layout has it.
func (l *layout) print(wall time.Time, start calendar.YearStart) string {
	return string(l.append(nil, wall, start))
}

func (l *layout) append(b []byte, wall time.Time, start calendar.YearStart) []byte {
	for _, f := range l.fields {
		if f.part == separator {
			b = append(b, f.text...)
			continue
		}
		v := f.part.value(wall, start)
		if f.part.isYear() && f.width == 2 {
			v %= 100
		}
		b = appendPadded(b, int64(v), f.width, decimal)
	}
	return b
}

// finest is the shortest period after which the layout prints something else: calendar.Day for dates.
func (l *layout) finest() calendar.Unit {
	for p := second; p >= hour; p-- {
		if l.has[p] {
			return parts[p].unit
		}
	}
	return calendar.Day
}

// spanAt returns the time around t, from its first instant to the first one after it, in which the layout prints the same, and
// the reading of the clock that it prints. in is the period of c that t belongs to, and bounds that time.
func (l *layout) spanAt(c calendar.Calendar, t time.Time, in *calendar.Period) (from, to int64, wall time.Time) {
	if l.isUsual(c.Unit) {
		return in.Start, in.End, in.Wall
	}
	from, to = in.Start, in.End
	for p := year; p <= second; p++ {
		if l.has[p] {
			units := c.With(parts[p].unit)
			if p == year {
				units.YearStart = calendar.YearStart{}
			}
			unit := units.At(t)
			from, to = max(from, unit.Start), min(to, unit.End)
		}
	}
	return from, to, c.With(l.finest()).At(t).Wall
}

// unbroken reports whether the time in which the layout prints a text is in one piece. The day alone comes again every month.
func (l *layout) unbroken(start calendar.YearStart) bool {
	for p := year; p <= second; p++ {
		years := start
		if p == year {
			years = calendar.YearStart{}
		}
		if l.has[p] && !l.determines(parts[p].unit, years) {
			return false
		}
	}
	return true
}

// A reading is what a date text shows of each part, and which it shows.
type reading [len(parts)]int

// read parses a date that has the width of the layout.
func (l *layout) read(s string) (reading, error) {
	var r reading
	for _, f := range l.fields {
		text := s[:f.width]
		s = s[f.width:]
		if f.part == separator {
			if text != f.text {
				return r, fmt.Errorf("%q stands where %q belongs", text, f.text)
			}
			continue
		}
		v, err := parseDigits(text, decimal)
		if err != nil {
			return r, err
		}
		if f.part.isYear() && f.width == 2 {
			v += 2000
		}
		r[f.part] = int(v)
	}
	return r, nil
}

// find returns the first instant since 1970 at which the layout prints a text. c is the calendar of the numbers.
func (l *layout) find(s string, c calendar.Calendar) (time.Time, error) {
	r, err := l.read(s)
	if err != nil {
		return time.Time{}, err
	}
	first, days := l.candidates(r, c.YearStart)
	clock := time.Duration(r[hour]*60*60+r[minute]*60+r[second]) * time.Second
	finest, exists, over := c.With(l.finest()), false, false
	var text [64]byte
	for i := range days {
		wall := first.AddDate(0, 0, i).Add(clock)
		if string(l.append(text[:0], wall, c.YearStart)) != s || l.checkYear(wall, c.YearStart) != nil {
			continue
		}
		exists = true
		for _, wall := range l.sameReadings(wall) {
			switch p, ok := finest.Beginning(wall); {
			case !ok: // clocks jumped over it
			case p.End <= 0: // no Redis server has ever had an earlier time
				over = true
			default:
				return time.Unix(p.Start, 0).In(c.Location), nil
			}
		}
	}
	switch {
	case over:
		return time.Time{}, fmt.Errorf("the %s is before 1970", l.describe(r, s, c.Unit))
	case exists:
		return time.Time{}, fmt.Errorf("%s has no %s", c.Location, l.describe(r, s, c.Unit))
	}
	return time.Time{}, fmt.Errorf("there is no %s", l.describe(r, s, c.Unit))
}

// sameReadings returns the readings of a day that the layout prints like the first one: others only if it prints the minute or the
// second without what is coarser. wall has 0 for the parts of the clock that are not printed.
func (l *layout) sameReadings(wall time.Time) []time.Time {
	hours, minutes := 1, 1
	if !l.has[hour] && l.finest().ShorterThanDay() {
		hours = 24
	}
	if !l.has[minute] && l.has[second] {
		minutes = 60
	}
	all := make([]time.Time, 0, hours*minutes)
	for h := range hours {
		for m := range minutes {
			all = append(all, wall.Add(time.Duration(h)*time.Hour+time.Duration(m)*time.Minute))
		}
	}
	return all
}

// describe names what a date text shows, such as "day 2021-10-24".
func (l *layout) describe(r reading, s string, per calendar.Unit) string {
	if !l.isUsual(per) {
		return "date " + s
	}
	text := fmt.Sprintf("%04d-%02d-%02d %02d:%02d:%02d", r[year], r[month], r[day], r[hour], r[minute], r[second])
	return per.Noun() + " " + text[:len("2006")+len("-01")*slices.Index(usualParts, finestParts[per])]
}

// candidates returns the days that may print a reading: the first one, and how many.
func (l *layout) candidates(r reading, start calendar.YearStart) (first time.Time, days int) {
	date := func(y, m, d int) time.Time { return time.Date(y, time.Month(m), d, 0, 0, 0, 0, time.UTC) }
	const all = 366
	switch {
	case l.has[year] && l.has[month] && l.has[day]:
		return date(r[year], r[month], r[day]), 1
	case l.has[year] && l.has[dayOfYear]:
		return date(r[year], 1, r[dayOfYear]), 1
	case l.has[year] && l.has[month]:
		return date(r[year], r[month], 1), 31
	case l.has[year]:
		return date(r[year], 1, 1), all
	case l.has[weekYear]:
		fourth := date(r[weekYear], 1, 4) // is always in week 1
		monday := fourth.AddDate(0, 0, -(int(fourth.Weekday())+6)%7)
		if l.has[week] {
			return monday.AddDate(0, 0, 7*(r[week]-1)), 7
		}
		return monday, 7 * 53
	case l.has[businessYear]:
		return date(r[businessYear], 1+start.Month, 1+start.Day), all
	case l.has[businessEnd]:
		y := r[businessEnd] - start.EndOf(0)
		return date(y, 1+start.Month, 1+start.Day), all
	}
	return date(1969, 12, 31), 28 * 366 // of Never: no year is printed, and the calendar repeats after so long
}

// usual lists the tokens in order, in their usual spelling.
func (l *layout) usual() string {
	var all []string
	for _, f := range l.fields {
		if f.part != separator {
			all = append(all, cmp.Or(usual[f.text], f.text))
		}
	}
	return strings.Join(all, " ")
}

// varies reports whether what the layout prints may change within a period.
func (l *layout) varies(c calendar.Calendar) bool {
	january, first := c.YearStart == (calendar.YearStart{}), c.YearStart.Day == 0
	for p := year; p <= second; p++ {
		same := false // throughout a period
		switch per := c.Unit; {
		case per == calendar.Never:
		case p >= hour:
			same = per <= parts[p].unit
		case per <= calendar.Day:
			same = true
		case p == weekYear || p == week:
			same = per == calendar.Week
		case p == year:
			same = per == calendar.Month || january && (per == calendar.Quarter || per == calendar.Year)
		case p == month:
			same = per == calendar.Month
		case p == quarter:
			same = per == calendar.Quarter || first && per == calendar.Month
		case p == businessYear || p == businessEnd:
			same = per == calendar.Year || per == calendar.Quarter || first && per == calendar.Month
		}
		if l.has[p] && !same {
			return true
		}
	}
	return false
}

// sortable returns the parts by which dates sort as integers, and false if there are none.
func (l *layout) sortable() (order []part, ok bool) {
	for p := year; p <= second; p++ {
		if l.has[p] && !(p == businessEnd && l.has[businessYear]) {
			order = append(order, p)
		}
	}
	days := order
	for p := second; p >= hour; p-- {
		if n := len(days) - 1; n > 0 && days[n] == p {
			days = days[:n]
		}
	}
	for _, allowed := range [][]part{
		{year}, {weekYear}, {businessYear}, {businessEnd}, {year, month}, {weekYear, week}, {businessYear, quarter},
		{year, month, day}, {year, dayOfYear},
	} {
		if slices.Equal(days, allowed) {
			last := allowed[len(allowed)-1] // hours belong to days, minutes to hours
			clock := len(order) - len(days)
			return order, clock == 0 || (last == day || last == dayOfYear) && order[len(order)-1] == hour+part(clock-1)
		}
	}
	return nil, false
}

// usualParts are what the usual dates print, from coarse to fine.
var usualParts = []part{year, month, day, hour, minute, second}

// finestParts are the finest parts of the usual dates of a period, which have all coarser ones too.
var finestParts = map[calendar.Unit]part{
	calendar.Year: year, calendar.Month: month, calendar.Day: day,
	calendar.Hour: hour, calendar.Minute: minute, calendar.Second: second,
}

// isUsual reports whether the layout has exactly the parts of a period's usual date.
func (l *layout) isUsual(per calendar.Unit) bool {
	finest, ok := finestParts[per]
	for _, p := range usualParts {
		ok = ok && l.has[p] == (p <= finest)
	}
	return ok && !slices.Contains(l.has[dayOfYear:hour], true)
}

// usualDates are date layouts that tell the periods of each unit apart.
var usualDates = [...]string{
	calendar.Second: "yyyyMMddHHmmss", calendar.Minute: "yyyyMMddHHmm", calendar.Hour: "yyyyMMddHH",
	calendar.Day: "yyyyMMdd", calendar.Month: "yyyyMM", calendar.Year: "yyyy",
	calendar.Week: "GGGG-WW", calendar.Quarter: "FFFF-Q", calendar.Never: "",
}

// usualDate is a date layout that tells the calendar's periods apart, "" where none has to.
func usualDate(c calendar.Calendar) string {
	if c.Unit == calendar.Year && c.YearStart != (calendar.YearStart{}) {
		return "FFFF"
	}
	return usualDates[c.Unit]
}

// Usual returns the default template with a date that suits a calendar.
func Usual(c calendar.Calendar) string {
	date := usualDate(c)
	if date == "" {
		return strings.Replace(Default, "{date:yyyyMMdd}", "", 1)
	}
	return strings.Replace(Default, "yyyyMMdd", date, 1)
}
