package template_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/internal/calendar"
	"github.com/dailyserial/serial/internal/redistest"
	"github.com/dailyserial/serial/internal/template"
)

// A scheme prints and parses numbers like the Scheme of package serial.
type scheme struct {
	*template.Template
	calendar calendar.Calendar
	text     string
}

// A number is like the Number of package serial.
type number struct {
	Type        string
	Start, Date time.Time
	Seq         int64

	date, label string
	template    *template.Template
}

func (n number) String() string { return n.template.PrintNumber(n.Type, n.date, n.label, n.Seq) }

func (n number) Int64() (int64, error) { return n.template.Int64(n.date, n.Seq) }

func (s *scheme) number(typ string, span *calendar.Span, seq int64) number {
	start, date := s.Dates.Instants(span)
	return number{typ, start, date, seq, span.Date, span.Label, s.Template}
}

func (s *scheme) Number(typ string, at time.Time, seq int64) (number, error) {
	if err := s.CheckType(typ); err != nil {
		return number{}, err
	}
	span, err := s.Dates.SpanAt(at)
	if !s.calendar.HasPeriod(at) || !s.calendar.With(calendar.Day).HasPeriod(at) {
		err = fmt.Errorf("%v: want 1970 to 9999", at)
	}
	if err != nil {
		return number{}, err
	}
	return s.number(typ, &span, seq), nil
}

func (s *scheme) Parse(text string) (number, error) {
	n, err := s.ParseNumber(text)
	if err != nil {
		return number{}, err
	}
	return s.number(n.Type, n.Span, n.Seq), nil
}

// settings has everything that a scheme is made of.
type settings struct {
	calendar.Calendar
	text, prefix string
	key          []byte
	shared       bool
}

type setting func(s *settings)

func withText(text string) setting     { return func(s *settings) { s.text = text } }
func withPrefix(prefix string) setting { return func(s *settings) { s.prefix = prefix } }
func hidden(key []byte) setting        { return func(s *settings) { s.key = key } }
func shared(s *settings)               { s.shared = true }
func per(unit calendar.Unit) setting   { return func(s *settings) { s.Unit = unit } }
func in(loc *time.Location) setting    { return func(s *settings) { s.Location = loc } }
func dayStart(start time.Duration) setting {
	return func(s *settings) { s.DayStart = int64(start / time.Second) }
}
func from(start calendar.YearStart) setting { return func(s *settings) { s.YearStart = start } }

// parse returns a scheme. Its periods are days in UTC by default.
func parse(all ...setting) (*scheme, error) {
	c := settings{Calendar: calendar.Calendar{Location: time.UTC, Unit: calendar.Day}, text: template.Default,
		prefix: "serial"}
	for _, set := range all {
		set(&c)
	}
	t, err := template.Parse(c.text, c.Calendar)
	if err == nil {
		err = t.Prove(c.shared)
	}
	if err == nil && c.key != nil {
		err = t.Hide(c.key, c.prefix, map[bool]string{true: "*"}[c.shared])
	}
	if err == nil && c.DayStart != 0 && (c.Unit.ShorterThanDay() || c.Unit == calendar.Never) {
		err = errors.New("such periods have no business days") // package serial refuses this
	}
	return &scheme{t, c.Calendar, c.text}, err
}

func newScheme(t testing.TB, all ...setting) *scheme {
	t.Helper()
	s, err := parse(all...)
	require.NoError(t, err)
	return s
}

var hiddenKey = []byte("0123456789abcdef")

func location(t *testing.T, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	require.NoError(t, err)
	return loc
}

// errOf returns the error of a call.
func errOf[T any](_ T, err error) error { return err }

// requireResult returns a function that checks the results of a call, which must be want and no error.
func requireResult(t testing.TB, want number) func(got number, err error) {
	return func(got number, err error) {
		t.Helper()
		require.NoError(t, err)
		require.True(t, got == want, "got %v with %+v, want %v", got, [...]any{got.Start, got.Date, got.Seq}, want)
	}
}

// randomTemplate returns a template with random fields, which may be invalid.
func randomTemplate(r *rand.Rand) string {
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	var layout []string
	for _, part := range [][]string{
		{"yyyy", "yy", "YYYY", "yyyy", "BBBB", "BB"}, {"MM", "MM", "MMM", "Mmm", ":M:", "'5'R:"}, {"dd", "DD", "'d'd-"},
		{"DDD"}, {"GGGG", "GG", "GG-GGGG"}, {"WW"}, {"Q"}, {"S"},
		{"FFFF", "FF", "FF/FFFF", "FFFF"}, {"EEEE", "EE", "EE/EEEE"}, {"HH"}, {"mm"}, {"ss"},
	} {
		if r.IntN(3) == 0 {
			layout = append(layout, pick(part...))
		}
	}
	r.Shuffle(len(layout), func(i, j int) { layout[i], layout[j] = layout[j], layout[i] })
	date := strings.Join(layout, pick("", "", "-", ".", "_", "年"))
	fields := []string{pick("{type}", "{type}", "{type}", ""), pick("{seq}",
		"{seq:1}", "{seq:6}", "{seq:6}", "{seq:15}", "-{seq:2+}.", "{seq:2+}", "{seq:2+}", "{seq:4:base32}",
		"{seq:9:base32}", "{seq:1:base36}", "{seq:9:base36}", "{seq:3:letters}", "{seq:9:letters}",
		"{seq:1:alpha}", "{seq:9:alpha}")}
	if date != "" || r.IntN(5) > 0 {
		fields = append(fields, "{date:"+date+"}")
	}
	if r.IntN(3) == 0 {
		fields = append(fields, "{check:"+pick("luhn", "damm", "gs1", "11-10", "97-10", "97-10", "37-36", "37-36", "731",
			"be97", "10r", "11")+"}")
	}
	r.Shuffle(len(fields), func(i, j int) { fields[i], fields[j] = fields[j], fields[i] })
	pattern := ""
	for _, f := range fields {
		pattern += f + pick("", "", "", "-", "-", "A", "7", "-1", "1-", "１", "{{")
	}
	return pattern
}

// Numbers of random templates, printed near changes of clocks and calendars, are parsed as themselves.
func TestNumbersReadBack(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	zones := []string{"UTC", "America/New_York", "America/Havana", "Pacific/Apia", "Pacific/Kwajalein", "Antarctica/Casey",
		"Antarctica/Troll", "Australia/Lord_Howe", "Asia/Shanghai"}
	var instants []int64
	for _, text := range strings.Fields("1970-01-01T00 1992-12-31T23 1993-08-20T11 2000-01-01T00 2004-12-31T12 " +
		"2010-03-04T15 2011-12-30T09 2016-01-01T00 2020-03-08T05 2020-11-01T04 2021-04-03T14 2024-02-29T23 2024-03-31T01 " +
		"2024-04-05T23 2024-12-29T23 2025-03-09T06 2037-12-31T22") {
		at, err := time.Parse("2006-01-02T15", text)
		require.NoError(t, err)
		instants = append(instants, at.Unix(), at.Unix()+3599, at.Unix()+r.Int64N(7200), r.Int64N(2145916800))
	}
	numbers, wanted := 0, 120
	if redistest.Long() {
		wanted = 500
	}
	for made := 0; made < wanted; {
		start, unit := yearStarts[r.IntN(len(yearStarts))], calendar.Unit(1+r.IntN(10))
		zone := location(t, zones[r.IntN(len(zones))])
		opts := []setting{withText(randomTemplate(r)), in(zone), per(unit), from(start)}
		if unit >= calendar.Day && unit != calendar.Never && r.IntN(3) == 0 {
			opts = append(opts, dayStart(time.Duration(1+r.IntN(86399))*time.Second))
		}
		if r.IntN(4) == 0 {
			opts = append(opts, hidden(hiddenKey))
		}
		if r.IntN(2) == 0 {
			opts = append(opts, shared)
		}
		s, err := parse(opts...)
		if err != nil {
			continue
		}
		made++
		for range 5 {
			at, typ := instants[r.IntN(len(instants))], ""
			if s.Typed {
				typ = []string{"IS", "7", "a/b-1", "-1", "1-", "20211024-1", "订单"}[r.IntN(7)]
			}
			last := s.Largest()
			seq := []int64{1, last, 1 + r.Int64N(last), min(111, last)}[r.IntN(4)]
			name := fmt.Sprintf("%s %v from %v in %s at %d: %s %d", s.text, unit, start, zone, at, typ, seq)
			n, err := s.Number(typ, time.Unix(at, 0), seq)
			if err == nil {
				numbers++
				s.checkNumber(t, name, n, at)
			} else if at >= 2*86400 {
				require.Regexp(t, "cannot be printed as|covers letters", err.Error(), name)
			}
		}
	}
	require.Greater(t, numbers, 3*wanted)
}

// checkNumber parses the number that was printed for an instant. It checks the number's dates: the same is printed from
// Date on, and as long as the span lasts, and afterwards something else, unless another period begins.
func (s *scheme) checkNumber(t *testing.T, name string, n number, at int64) {
	requireResult(t, n)(s.Parse(n.String()))
	p := s.calendar.At(time.Unix(at, 0))
	span, _ := s.Dates.SpanAt(time.Unix(at, 0))
	require.True(t, p.Start <= at && at < p.End && p.Start == n.Start.Unix() && !n.Date.Before(n.Start), name)
	require.True(t, span.From <= at && at < span.To && n.Date.Unix() <= span.From, name)
	for _, other := range []int64{n.Date.Unix(), span.From, span.To - 1} {
		if other >= 2*86400 { // the first day in every zone
			requireResult(t, n)(s.Number(n.Type, time.Unix(other, 0), n.Seq))
		}
	}
	after, _ := s.Dates.SpanAt(time.Unix(span.To, 0))
	require.False(t, after.Date == span.Date && span.To < p.End && !s.hasWeekYear(), "%s: the span ends too early", name)
	if !s.Dates.Vary {
		require.Equal(t, n.Start, n.Date, name)
		require.True(t, span.From == p.Start && span.To == p.End, name)
	}
}

// hasWeekYear reports whether week years are printed. Their spans may be single weeks.
func (s *scheme) hasWeekYear() bool { return strings.Contains(s.text, "GG") }

// A wrong check digit is reported before a sequence of 0 or a date that does not exist. Some checks do not suit every
// type.
func TestCheckDigits(t *testing.T) {
	s := newScheme(t, withText("{type}{date:yyyyMM}{seq:4}{check:luhn}"), per(calendar.Month))
	for _, text := range []string{"IS20241200018", "IS20241200008", "IS20241300018"} {
		require.ErrorIs(t, errOf(s.Parse(text)), template.ErrCheckDigit, text)
	}
	untyped := newScheme(t, shared, withText("{seq}"), per(calendar.Never))
	require.ErrorIs(t, untyped.CheckType("IS"), template.ErrInvalidType)
	for pattern, text := range map[string]string{"{type}{seq:8}{check:s10}": "R1000000080",
		"{type}-{seq}{check:97-10}": "订单-000100", "{type}-{seq}{check:37-36}": "订单-000100"} {
		s := newScheme(t, withText(pattern), per(calendar.Never))
		require.ErrorIs(t, errOf(s.Parse(text)), template.ErrInvalidType, pattern)
	}
}

// Sequences in other alphabets sort in the order in which they are issued. A sequence that does not fit is printed in
// decimal.
func TestAlphabets(t *testing.T) {
	at := time.Date(2024, 12, 30, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		alphabet string
		width    int
		last     int64
		samples  map[int64]string
	}{
		{"base32", 4, 1<<20 - 1, map[int64]string{1: "0001", 31: "000Z", 32: "0010", 1<<20 - 1: "ZZZZ"}},
		{"base32", 9, 1<<45 - 1, nil}, {"base36", 9, 101559956668415, nil},
		{"base36", 2, 1295, map[int64]string{1: "01", 35: "0Z", 36: "10", 1295: "ZZ"}},
		{"letters", 3, 17_575, map[int64]string{1: "AAB", 25: "AAZ", 26: "ABA", 17_575: "ZZZ"}},
		{"alpha", 3, 17_576, map[int64]string{1: "AAA", 2: "AAB", 26: "AAZ", 27: "ABA", 17_576: "ZZZ"}},
		{"letters", 9, 5_429_503_678_975, nil}, {"alpha", 9, 5_429_503_678_976, nil},
	} {
		s := newScheme(t, withText(fmt.Sprintf("{type}-{seq:%d:%s}", c.width, c.alphabet)), per(calendar.Never))
		require.Equal(t, c.last, s.Largest())
		before := ""
		for i := int64(1); i <= 500; i++ {
			n, err := s.Number("T", at, max(1, c.last/500*i, c.last-500+i))
			require.NoError(t, err)
			require.Greater(t, n.String(), before)
			before = n.String()
			require.Len(t, before, 2+c.width)
		}
		require.Equal(t, "T-"+strings.Repeat("Z", c.width), before)
		require.ErrorIs(t, errOf(s.Parse(strings.ToLower(before))), template.ErrInvalidNumber)
		for seq, want := range c.samples {
			n, err := s.Number("T", at, seq)
			require.NoError(t, err)
			require.Equal(t, "T-"+want, n.String())
			requireResult(t, n)(s.Parse("T-" + want))
		}
		for _, seq := range []int64{c.last + 1, -1} { // as Peek shows them if something else has written the counter
			require.Equal(t, fmt.Sprint("T-", seq), s.PrintNumber("T", "", "", seq))
		}
	}
	letters := newScheme(t, withText("{type}-{seq:3:letters}"), per(calendar.Never))
	require.ErrorContains(t, errOf(letters.Parse("T-AAA")), "its sequence is 0")
	require.ErrorContains(t, errOf(letters.Parse("T-AA1")), `got "AA1", want 3 letters (ABCDEFGHIJKLMNOPQRSTUVWXYZ)`)
	alpha := newScheme(t, withText("{type}-{seq:3:alpha}"), per(calendar.Never))
	require.Equal(t, "T-0", alpha.PrintNumber("T", "", "", 0)) // as Peek shows it before the first number
	for _, letter := range []string{"I", "L", "O", "U"} {      // left out because they are misread
		s := newScheme(t, withText("{type}-{seq:4:base32}"), per(calendar.Never))
		require.ErrorContains(t, errOf(s.Parse("T-000"+letter)), "base32")
	}
	require.Equal(t, "{type}-{seq:4:alpha}", alpha.Widen())
	require.Equal(t, "A{type}-{seq:5}B", newScheme(t, withText("A{type}-{seq}B"), per(calendar.Never)).Widen())
}

// A hidden sequence is printed as another sequence of the template, and each counter and key has its own mapping.
func TestHiddenSequences(t *testing.T) {
	at := time.Date(2024, 12, 30, 12, 0, 0, 0, time.UTC)
	hide := func(opts ...setting) *scheme {
		return newScheme(t, append([]setting{withText("{type}{date:yyyyMMdd}{seq:6}"), hidden(hiddenKey)}, opts...)...)
	}
	image := func(s *scheme, typ string, at time.Time, seq int64) string {
		n, err := s.Number(typ, at, seq)
		require.NoError(t, err)
		requireResult(t, n)(s.Parse(n.String()))
		return n.String()[len("IS20241230"):]
	}
	s := hide()
	images := map[string]bool{}
	for name, text := range map[string]string{
		"usual": image(s, "IS", at, 1), "seq": image(s, "IS", at, 2), "type": image(s, "PO", at, 1),
		"day":    image(s, "IS", at.AddDate(0, 0, 1), 1),
		"prefix": image(hide(withPrefix("other")), "IS", at, 1),
		"key":    image(hide(hidden([]byte("another key of 24 bytes."))), "IS", at, 1),
		"shared": image(hide(shared), "IS", at, 1),
	} {
		require.False(t, images[text], name)
		images[text] = true
	}
	require.Equal(t, image(hide(shared), "IS", at, 1), image(hide(shared), "PO", at, 1))

	// The alphabet alpha has the same images as letters, for sequences that are larger by 1.
	letters := hide(withText("{type}{date:yyyyMMdd}{seq:5:letters}"))
	alpha := hide(withText("{type}{date:yyyyMMdd}{seq:5:alpha}"))
	for seq := int64(1); seq <= 100; seq++ {
		require.Equal(t, image(letters, "IS", at, seq), image(alpha, "IS", at, seq+1))
	}
	image(alpha, "IS", at, 11_881_376)
	for _, text := range []string{"IS20241230AAAAA", "IS20241230ZZZZZ"} {
		n, err := alpha.Parse(text)
		require.NoError(t, err)
		require.Equal(t, text, n.String())
	}
	for text, want := range map[string]string{"{seq:4:letters}": "has 456975 sequences; want a million or more",
		"{seq:4:alpha}": "456976 sequences", "{seq:5}": "99999 sequences", "-{seq:6+}": "without +", "{seq:9:letters}": ""} {
		_, err := parse(withText("{type}{date:yyyyMMdd}"+text), hidden(hiddenKey))
		require.Equal(t, want == "", err == nil, text)
		if want != "" {
			require.ErrorContains(t, err, want)
		}
	}

	// Sequences that cannot be issued are printed in decimal.
	n, err := s.Number("IS", at, 1)
	require.NoError(t, err)
	require.ErrorContains(t, errOf(n.Int64()), "hidden")
	n.Seq = 0
	require.ErrorContains(t, errOf(s.Parse(n.String())), "its sequence is 0 when decrypted")
	for _, seq := range []int64{-1, 1_000_000, 1 << 62} {
		n.Seq = seq
		require.Equal(t, fmt.Sprint("IS20241230", seq), n.String())
	}
}

// Numbers become integers only if these sort as the dates and sequences do.
func TestInt64(t *testing.T) {
	at := time.Date(2024, 12, 30, 15, 4, 5, 0, time.UTC)
	integer := func(pattern string) (int64, error) {
		s := newScheme(t, per(calendar.Never), from(april6), withText(pattern))
		n, err := s.Number("IS", at, 17)
		require.NoError(t, err)
		return n.Int64()
	}
	for layout, want := range map[string]int64{
		"yyyy": 2024_0017, "yy": 24_0017, "GGGG": 2025_0017, "GG": 25_0017, "FFFF": 2024_0017, "EE": 25_0017,
		"FFFF-EE": 2024_0017, "EE/FFFF": 2024_0017, "FF-EE": 24_0017, "EEEE-EE": 2025_0017, "MM.yyyy": 202412_0017,
		"HH dd MM yyyy": 2024123015_0017, "ss:mm:HH yy-MM-dd": 241230150405_0017, "DDD/yyyy": 2024365_0017,
		"yyyyDDDHHmmss": 2024365150405_0017, "WW/GGGG": 202501_0017, "Q/FFFF": 20243_0017, "YYYYMMDD": 20241230_0017,
		"BBBB": 2024_0017, "dd/MM/BB": 241230_0017, "FFFF-EE 'H'S": 20242_0017, "yyyy'W'": 2024_0017,
	} {
		got, err := integer("{type}{date:" + layout + "}{check:luhn}{seq}")
		require.NoError(t, err, layout)
		require.Equal(t, want, got, layout)
	}
	for _, layout := range strings.Split("MM,dd,DDD,WW,Q,HH,mm,S,yyyy-FFFF,yyyy-GGGG,FFFFMM,GGGGWWdd,yyyyWW,yyyyQ,EEEEQ,"+
		"yyyyMMDDD,yyyydd,yyyyMMHH,yyyyMMddmm,yyyyMMddHHss,yyyyDDDmm,GGGGWWHH,yyyy-M.,yyyyMmm,yyyy R-,yyyyMM.d.,yyyyS,"+
		"FFFFSQ,EEEES,yyyyHH,yyyyMMddWW", ",") {
		_, err := integer("{type}{date:" + layout + "}{check:luhn}{seq}")
		require.ErrorContains(t, err, "do not sort as integers", layout)
	}
	for pattern, want := range map[string]string{
		"{type}{seq:4:base32}": "base32", "{type}{seq:4:alpha}": "alpha", "{type}-{seq:1+}": "sequence 17 has outgrown its 1",
		"{type}{date:yyyyMMddHHmmss}{seq:9}": "20241230150405000000017 is larger than", // 2^63 - 1
	} {
		require.ErrorContains(t, errOf(integer(pattern)), want)
	}
	got, err := integer("{type}{seq:3}")
	require.NoError(t, err)
	require.EqualValues(t, 17, got)
}

// The Date of a number is the first instant at which its period prints the date, even if the date recurs.
func TestRecurringDates(t *testing.T) {
	for _, c := range []struct {
		per        calendar.Unit
		layout     string
		text, date string
	}{
		{calendar.Year, "FFFF Q dd", "IS2024 3 300001", "2024-10-30T00:00:00Z"},
		{calendar.Day, "yyyyMMdd mm", "IS20241230 040001", "2024-12-30T00:04:00Z"},
		{calendar.Day, "yyyyMMdd ss", "IS20241230 050001", "2024-12-30T00:00:05Z"},
		{calendar.Never, "MM", "IS120001", "1970-12-01T00:00:00Z"},
		{calendar.Never, "yyyy Q", "IS2024 30001", "2024-01-01T00:00:00Z"}, // also from 6 October on
		{calendar.Never, "GGGG", "IS20250001", "2024-12-30T00:00:00Z"},
		{calendar.Never, "WW Q", "IS01 30001", "1970-01-01T00:00:00Z"},
	} {
		s := newScheme(t, per(c.per), from(april6), withText("{type}{date:"+c.layout+"}{seq}"))
		n, err := s.Number("IS", time.Date(2024, 12, 30, 15, 4, 5, 0, time.UTC), 1)
		require.NoError(t, err)
		require.Equal(t, c.text, n.String())
		require.Equal(t, c.date, n.Date.Format(time.RFC3339), c.layout)
		requireResult(t, n)(s.Parse(c.text))
	}
}

// Two templates that could print different sequences as the same number have different print marks. Widths, literals
// and spellings do not count.
func TestPrintMarks(t *testing.T) {
	mark := func(unit calendar.Unit, pattern string, opts ...setting) string {
		m := newScheme(t, append(opts, per(unit), withText(pattern))...).PrintMark()
		require.Len(t, m, 12)
		return m
	}
	for _, c := range []struct {
		unit calendar.Unit
		same []string
	}{
		{calendar.Week, []string{"{type}{date:GGGGWW}{seq:4}", "A{type}-{date:GG-WW}/{seq:9}"}},
		{calendar.Day, []string{"{type}{date:FFFFMMdd}{seq:4:base32}", "{type}{date:FFMMDD}{seq:9:base32}"}},
		{calendar.Year, []string{"{type}{date:FFFF-EE}{seq}", "{type}{date:FF/EEEE}{seq}"}},
		{calendar.Day, []string{"{type}{date:YYYYMMddFFFF}{seq}", "{type}{date:yyMMDDFF}{seq}"}},
		{calendar.Day, []string{"{type}{date:BBBBMMMdd}{seq}", "{type}{date:BBMmm'x'd}-{seq}"}},
		{calendar.Day, []string{"{type}{date:yyyyMMdd}{seq}", "{type}{date:yy'W'/M/d}-{seq}",
			"{type}{date:YYYYMMDD}-{seq:4+}", "{{{type}.{date:yy年MM月dd日}{seq:15}}}"}},
	} {
		for _, other := range c.same {
			require.Equal(t, mark(c.unit, c.same[0]), mark(c.unit, other), other)
			require.Equal(t, mark(c.unit, other), mark(c.unit, other, from(april6)), other)
		}
	}
	different := map[string]string{}
	for _, pattern := range []string{
		"{type}{date:GGGGWW}{seq:6}", "{type}{seq:6}{date:GGGGWW}", "{date:GGGGWW}{type}{seq:6}",
		"{type}{date:WWGGGG}{seq:6}",
		"{type}{date:GGGGWWdd}{seq:6}", "{type}{date:GGGGWW}{seq:6:base32}", "{type}{date:GGGGWW}{seq:6:base36}",
		"{type}{date:GGGGWW}{seq:6:letters}", "{type}{date:GGGGWW}{seq:6:alpha}", "{type}{date:GGGGWW}{seq:6}{check:luhn}",
		"{type}{date:GGGGWW}{seq:6}{check:731}", "{type}{date:GGGGWW}{seq:6}{check:damm}",
		"{type}{date:GGGGWW}{check:damm}{seq:6}", "{type}{date:yyyyMMdd}{seq:6}", "{type}{date:yyyyDDD}{seq:6}",
		"{type}{date:FFFFMMdd}{seq:6}", "{type}{date:BBBBMMdd}{seq:6}", "{type}{date:yyyyMMMdd}{seq:6}",
		"{type}{date:yyyyMMddS}{seq:6}", "{type}{date:yyyyMMddQ}{seq:6}", "{type}{date:yyyy-R-dd}{seq:6}",
	} {
		for name, opts := range map[string][]setting{
			"": nil, "key": {hidden(hiddenKey)}, "other": {hidden([]byte("fedcba9876543210"))},
		} {
			m := mark(calendar.Week, pattern, opts...)
			require.Empty(t, different[m], pattern)
			different[m] = pattern + name
		}
	}
}

// Numbers as printed, those with check digits as published or as their standard prints them. With another last digit,
// such a number is refused.
func TestTemplates(t *testing.T) {
	at := time.Date(2021, 10, 24, 15, 30, 59, 0, time.UTC)
	for _, c := range []struct {
		per          calendar.Unit
		pattern, typ string
		seq          int64
		want         string
		opts         []setting
	}{
		{calendar.Day, "{type}{date:yyyyMMdd}{seq:4}", "IS", 7, "IS202110240007", nil},
		{calendar.Day, "{seq:1}/{date:dd.MM.yyyy}/{type}", "a/b", 7, "7/24.10.2021/a/b", nil},
		{calendar.Day, "{{{type}}}{date:yyyy年MM月dd日}号{seq:3}", "订单", 7, "{订单}2021年10月24日号007", nil},
		{calendar.Second, "{type}{date:yyMMddHHmmss}{seq:4}", "IS", 1, "IS2110241530590001", nil},
		{calendar.Minute, "{type}{date:yyyyMMddHHmm}{seq:6}", "IS", 42, "IS202110241530000042", nil},
		{calendar.Month, "{date:MM/yy}/{type}/{seq:4}", "IS", 42, "10/21/IS/0042", nil},
		{calendar.Day, "{type}{date:yyyyMMdd}{seq:4}", "IS", 42, "IS202110240042", []setting{dayStart(15 * time.Hour)}},
		{calendar.Day, "{type}{date:yyyyMMdd}{seq:4}", "IS", 42, "IS202110230042", []setting{dayStart(16 * time.Hour)}},
		{calendar.Day, "{type}{date:yyyyMMdd}-{seq:4+}", "IS", 10000, "IS20211024-10000", nil},
		{calendar.Day, "{type}{date:yyyyMMdd}-{seq:4+}", "IS", 999_999_999_999_999, "IS20211024-999999999999999", nil},
		{calendar.Day, "No {seq:1+} of {type}{date:yyyyMMdd}", "IS", 10, "No 10 of IS20211024", nil},
		{calendar.Year, "{seq:1+}/{date:yyyy}/{type}", "1/2", 10, "10/2021/1/2", nil},
		{calendar.Day, "{type}{date:yyyyddMMM}{seq:1+}", "IS", 10, "IS202124OCT10", nil},
		{calendar.Day, "{seq:1+}{date:Mmm-dd-yyyy} {type}", "IS", 10, "10Oct-24-2021 IS", nil},
		{calendar.HalfYear, "{type}{date:yyyy-'H'S}-{seq:4}", "IS", 1, "IS2021-H2-0001", nil},
		{calendar.Day, "{type}{date:yyyy''MM'o''clock'dd''''}{seq:2}", "IS", 1, "IS2021'10o'clock24''01", nil},
		{calendar.Day, "{type}-{date:d.M.yyyy}-{seq:2}", "IS.1", 1, "IS.1-24.10.2021-01", nil},
		{calendar.Day, "{date:d/R/BBBB} {type} {seq:2}", "1", 1, "24/X/2564 1 01", nil},
		{calendar.Second, "{type}{date:yyyyddHHmmMmmss}{seq:2}", "IS", 1, "IS2021241530Oct5901", nil},

		{calendar.Never, "RF{check:97-10}{type}{seq:8}", "5390", 7547034, "RF18539007547034", nil}, // ISO 11649
		{calendar.Never, "{type}{seq:7}{check:97-10}", "0", 794, "0000079444", nil},
		{calendar.Never, "{type}{seq:10}{check:luhn}", "0", 7992739871, "079927398713", nil},
		{calendar.Never, "{type}-{seq:3}{check:damm}", "X", 572, "X-5724", nil},
		{calendar.Never, "{check:gs1}-{type}{seq:9}", "629", 104150021, "3-629104150021", nil},
		{calendar.Never, "{type}{check:gs1}{seq:9}", "629", 104150021, "6293104150021", nil},
		{calendar.Never, "{type}{seq:4}{check:11-10}", "X", 794, "X07945", nil},
		{calendar.Never, "{type}{seq:4}{check:37-36}", "a12425gabc123", 4002, "a12425gabc1234002M", nil},
		{calendar.Never, "+++{type}/{seq:4}/554{check:be97}+++", "090", 9337, "+++090/9337/55493+++", nil},
		{calendar.Never, "{type}{seq:8}{check:s10}GB", "RR", 47312482, "RR473124829GB", nil},
		{calendar.Never, "{type}-{date:'7'MMM-}{seq:7}-GB{check:s10}", "RR", 3124829, "RR-7OCT-3124829-GB5", nil},
		{calendar.Never, "{type}{seq:8}{check:s10}", "१", 8, "१000000080", nil}, // digits of another script do not count
	} {
		s := newScheme(t, append(c.opts, withText(c.pattern), per(c.per))...)
		n, err := s.Number(c.typ, at, c.seq)
		require.NoError(t, err)
		require.Equal(t, c.want, n.String())
		requireResult(t, n)(s.Parse(c.want))
		if strings.Contains(c.pattern, "{check:") {
			wrong := []byte(c.want)
			i := strings.LastIndexAny(c.want, "0123456789")
			wrong[i] = '0' + (wrong[i]-'0'+1)%10
			err = errOf(s.Parse(string(wrong)))
			require.ErrorIs(t, err, template.ErrCheckDigit, "%s", wrong)
			require.ErrorIs(t, err, template.ErrInvalidNumber)
		}
	}
	require.Empty(t, newScheme(t).PrintNumber("IS", "", "20211024", 1), "the date is not known")
	stored := newScheme(t, withText("{type}{date:yyyyMMdd}{seq:4} "))
	for text, ok := range map[string]bool{"IS202110240007 ": true, " IS202110240007": false, "IS202110240007": false} {
		_, err := stored.ParseStored(text)
		require.Equal(t, ok, err == nil, text)
	}
	for _, text := range []string{"IS202110240007", " IS202110240007\t", "\u00a0IS202110240007"} {
		n, err := newScheme(t).ParseStored(text)
		require.NoError(t, err)
		require.EqualValues(t, 7, n.Seq)
	}
}

// Texts, and either the first instant of their period or the error, which matches ErrImpossibleDate if only the date is
// wrong.
func TestParse(t *testing.T) {
	newYork, apia := in(location(t, "America/New_York")), in(location(t, "Pacific/Apia"))
	pattern := withText
	second, month := pattern("{type}{date:yyyyMMddHHmmss}{seq}"), pattern("{type}{date:yyyyMM}{seq}")
	hour := pattern("{type}{date:yyyyMMddHH}{seq:4}")
	date := func(layout string) []setting {
		return []setting{from(april6), pattern("{type}{date:" + layout + "}{seq}")}
	}
	impossible := regexp.MustCompile("has no |there is no |before 1970|end of all time")
	growing, first := pattern("{type}{date:yyyyMMdd}-{seq:4+}"), pattern("-{seq:4+}-{date:yyyyMMdd}{type}")
	for _, c := range []struct {
		per  calendar.Unit
		opts []setting
		s    string
		want string // RFC 3339, or part of the error
	}{
		{calendar.Second, []setting{second}, "IS202110241530600001", "there is no second 2021-10-24 15:30:60"},
		{calendar.Second, []setting{second, newYork}, "IS202503090230000001",
			"America/New_York has no second 2025-03-09 02:30:00"},
		{calendar.Second, []setting{second, newYork}, "IS202511020130000001", "2025-11-02T01:30:00-04:00"},
		{calendar.Minute, []setting{pattern("{type}{date:yyyyMMddHHmm}{seq}")}, "IS2021063100000001",
			"there is no minute 2021-06-31 00:00"},
		{calendar.Hour, []setting{hour, newYork}, "IS20250309020001", "America/New_York has no hour 2025-03-09 02"},
		{calendar.Hour, []setting{hour}, "IS19691231230001", "the hour 1969-12-31 23 is before 1970"},
		{calendar.Day, []setting{apia}, "IS201112300001", "Pacific/Apia has no day 2011-12-30"},
		{calendar.Day, []setting{apia, dayStart(4 * time.Hour)}, "IS201112300001", "2011-12-31T00:00:00+14:00"},
		{calendar.Day, []setting{newYork, dayStart(150 * time.Minute)}, "IS202503090001", "2025-03-09T03:00:00-04:00"},
		{calendar.Month, []setting{month, dayStart(4 * time.Hour)}, "IS2021100001", "2021-10-01T04:00:00Z"},
		{calendar.Day, []setting{in(location(t, "Asia/Shanghai"))}, "IS197001010001", "1970-01-01T00:00:00+08:00"},

		// Dates that the template cannot have printed, even if they look like a date.
		{calendar.Year, date("FF-FFFF"), "IS24-21240001", "there is no date 24-2124"},
		{calendar.Day, date("yyMMdd FF"), "IS000405 990001", "there is no date"}, // of 1999
		{calendar.Week, date("GGGG-WW"), "IS2024-530001", "there is no date 2024-53"},
		{calendar.Week, date("GGGG-WW"), "IS2020-000001", "there is no date"},
		{calendar.Week, date("yyyyMM GGGGWW"), "IS202411 2025010001", "there is no date"},
		{calendar.Year, date("FFFF MM dd"), "IS2024 02 290001", "there is no date"}, // it is in 2023
		{calendar.Day, date("yyyyDDD"), "IS20233660001", "there is no date"},
		{calendar.HalfYear, date("FFFF-S"), "IS2024-30001", "there is no date"},
		{calendar.Day, date("yyyy-M-d."), "IS2024-07-1.0001", `got "07", want the month (MM) without padding`},
		{calendar.Day, date("yyyy-M-d."), "IS2024--1.0001", `got "", want the month (MM) without padding`},
		{calendar.Day, date("yyyy-M-d."), "IS2024-123-1.0001", `got "123", want the month`},
		{calendar.Day, date("yyyy-M-d."), "IS2024-6-31.0001", "there is no day 2024-06-31"},
		{calendar.Day, date("yyyy-R-dd"), "IS2024-IIII-010001", `got "IIII", want one of I, II, III, IV,`},
		{calendar.Day, date("yyyy-R-dd"), "IS2024--010001", `got "", want one of I, II`},
		{calendar.Day, date("yyyyMMMdd"), "IS2024Jan010001", `got "Jan", want one of JAN, FEB,`},
		{calendar.Year, date("'W'FFFF"), "ISw20240001", `got "w", want "W"`},
		{calendar.Day, date("BBBBMMdd"), "IS256702300001", "there is no date 25670230"},
		{calendar.Day, date("BBBBMMdd"), "IS251201010001", "before 1970"},
		{calendar.Day, date("BBBBMMdd"), "IS000001010001", "there is no date"},
		{calendar.Never, date("yyyyMMdd"), "IS999912310001", "is not before the end of all time"},
		{calendar.Never, date("yyyyMMdd"), "IS196912310001", "before 1970"},
		{calendar.Year, date("FFFF"), "IS19680001", "is before 1970"},
		{calendar.Year, date("FFFF"), "IS19690001", "1969-04-06T00:00:00Z"}, // begins before 1970 and ends after it

		{calendar.Day, nil, "202110240001", "it has 12 bytes; at least 13 are needed"},
		{calendar.Day, nil, "IS20211024001", `got "S202", want 4 decimal digits`}, // without padding, every field shifts
		{calendar.Day, nil, "IS202110240000", "sequence is 0"},
		{calendar.Day, nil, " IS202110240001", "' '"},
		{calendar.Day, nil, "IS20211024+001", "want 4 decimal digits"},
		{calendar.Day, nil, strings.Repeat("x", 65) + "202110240001", "65 bytes"},
		{calendar.Day, []setting{pattern("{type}-{date:yyMMdd}-{seq:6}")}, "PO_211024-000001", `got "_", want "-"`},
		{calendar.Never, []setting{shared, pattern("A{seq}")}, "A00011", `"1" is left over at its end`},
		{calendar.Never, []setting{shared, pattern("{seq:4+}-B")}, "12345-", "its end is missing"},

		{calendar.Day, []setting{growing}, "IS20211024-00001", "00001 is padded to more than 4 digits"},
		{calendar.Day, []setting{growing}, "IS20211024-001", "3 digits; want 4 to 15"},
		{calendar.Day, []setting{growing}, "IS20211024-1000000000000000", "16 digits; want 4 to 15"},
		{calendar.Day, []setting{growing}, "20211024-10000", "nothing is left for its type"},
		{calendar.Day, []setting{growing}, "IS20211024.10000", `got ".", want "-"`},
		{calendar.Day, []setting{growing}, "IS20211024-10000-", "0 digits"},
		{calendar.Day, []setting{first}, "-00001-20211024IS", "padded to more than 4 digits"},
		{calendar.Day, []setting{first}, "-001-20211024IS", "3 digits; want 4 to 15"},

		// The width of a field may cut a character. The error does not contain a part of that character.
		{calendar.Day, nil, "IS20211024０００１", `got "０…", want 4 decimal digits (0123456789)`},
		{calendar.Day, nil, "IS２0211024000",
			`type "IS２": it contains "２" (U+FF12), which Unicode normalization (NFKC) changes to "2"`},
		{calendar.Day, nil, "ISé20211024001", `got "…202", want 4 decimal digits`},
		{calendar.Day, nil, "IS20211024000\xe9", `"IS20211024000\xe9" is not a number of this scheme`},
		{calendar.Day, []setting{pattern("{date:yyyyMMdd}{seq:4}{type}")}, "2021102400１IS", `got "00…"`},
		{calendar.Day, []setting{pattern("{date:yyyyMMdd}/{seq:4}/{type}")}, "20211024／001/IS", `got "…", want "/"`},
		{calendar.Day, []setting{pattern("{type}/{date:yyyy'/'MMdd}{seq:4}")}, "IS/2021／240001", `got "…", want "/"`},
		{calendar.Day, []setting{pattern("{type}{date:yyyyMmmdd}{seq:4}")}, "IS2021Oｃ20001", `got "O…", want one of Jan,`},
		{calendar.Day, []setting{pattern("{check:luhn}{type}{date:yyyyMMdd}{seq:4}")}, "５IS202110240001", "got …, want"},
	} {
		scheme := newScheme(t, append(c.opts, per(c.per))...)
		n, err := scheme.Parse(c.s)
		if strings.Contains(c.want, "T") && err == nil {
			require.Equal(t, c.want, n.Start.Format(time.RFC3339), "%s", c.s)
			require.Equal(t, c.s, n.String())
			continue
		}
		require.ErrorContains(t, err, c.want, "%s", c.s)
		require.ErrorIs(t, err, template.ErrInvalidNumber)
		require.True(t, utf8.ValidString(err.Error()), "%q", err)
		if utf8.ValidString(c.s) {
			require.NotContains(t, err.Error(), `\x`)
		}
		require.Equal(t, impossible.MatchString(c.want), errors.Is(err, template.ErrImpossibleDate), c.s)
		err = errOf(scheme.Parse(strings.TrimSuffix(c.s, "0001") + "0000")) // the sequence is wrong too
		require.NotErrorIs(t, err, template.ErrImpossibleDate)
	}
}
