package template_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/internal/calendar"
	"github.com/dailyserial/serial/internal/redistest"
	"github.com/dailyserial/serial/internal/template"
)

// A scheme prints and parses numbers as that of package serial does.
type scheme struct {
	*template.Template
	calendar calendar.Calendar
}

// A number is like that of package serial.
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

// settings are what a scheme is made of.
type settings struct {
	calendar.Calendar
	text, prefix string
	key          []byte
	shared       bool
}

// counter returns the name of the counter that all types share, "" for none.
func (s *settings) counter() string {
	if s.shared {
		return "*"
	}
	return ""
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
func from(month time.Month, day int) setting {
	return func(s *settings) { s.YearStart = calendar.NewYearStart(month, day) }
}

// parse makes a scheme of days in UTC, unless a setting says otherwise.
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
		err = t.Hide(c.key, c.prefix, c.counter())
	}
	if err == nil && c.DayStart != 0 && (c.Unit.ShorterThanDay() || c.Unit == calendar.Never) {
		err = errors.New("such periods have no business days") // package serial refuses this
	}
	return &scheme{t, c.Calendar}, err
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

// requireResult requires that the call whose results follow succeeds with want.
func requireResult(t testing.TB, want number) func(got number, err error) {
	return func(got number, err error) {
		t.Helper()
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

// randomTemplate is a template of all that templates may hold, which need not suit any period.
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
	date := ""
	for i, token := range layout {
		if separator := pick("", "", "-", ".", "年"); i > 0 && (separator != "" || date[len(date)-1] != token[0]) {
			date += separator
		} else if i > 0 {
			date += "_"
		}
		date += token
	}
	fields := []string{pick("{type}", "{type}", "{type}", ""), pick("{seq}",
		"{seq:1}", "{seq:6}", "{seq:6}", "{seq:15}", "-{seq:2+}.", "{seq:4:base32}",
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
		pattern += f + pick("", "", "", "-", "A", "7", "{{")
	}
	return pattern
}

// What a random Scheme prints around changes of clocks and calendars reads back as the same number, and nothing else
// does.
func TestNumbersReadBack(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	zones := []string{"UTC", "America/New_York", "America/Havana", "Pacific/Apia", "Pacific/Kwajalein", "Antarctica/Casey",
		"Antarctica/Troll", "Australia/Lord_Howe", "Asia/Shanghai"}
	var instants []int64
	for _, at := range []string{
		"1970-01-01T00:00:00Z", "1992-12-31T23:59:59Z", "1993-08-20T11:59:59Z", "1999-12-31T23:59:59Z",
		"2000-01-01T00:00:00Z", "2004-12-31T12:00:00Z", "2009-10-17T18:00:00Z", "2010-03-04T15:00:00Z",
		"2011-12-30T09:59:59Z", "2011-12-30T10:00:00Z", "2016-01-01T00:00:00Z", "2020-03-08T05:00:00Z",
		"2020-11-01T04:59:59Z", "2021-04-03T14:59:59Z", "2024-02-29T23:59:59Z", "2024-03-31T01:00:00Z",
		"2024-04-05T23:59:59Z", "2024-12-29T23:59:59Z", "2024-12-31T00:00:00Z", "2025-03-09T06:59:59Z",
		"2037-12-31T23:59:59Z",
	} {
		instant, err := time.Parse(time.RFC3339, at)
		require.NoError(t, err)
		instants = append(instants, instant.Unix())
	}
	numbers, wanted := 0, 500
	if !redistest.Long() {
		wanted = 200
		t.Log("three of five templates are left out without SERIAL_TEST_LONG=1")
	}
	for made := 0; made < wanted; {
		pattern, zone := randomTemplate(r), zones[r.IntN(len(zones))]
		unit, start := calendar.Unit(1+r.IntN(10)), yearStarts[r.IntN(len(yearStarts))]
		opts := []setting{
			withText(pattern), in(location(t, zone)), per(unit),
			from(start.month, start.day),
		}
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
			at := instants[r.IntN(len(instants))]
			switch r.IntN(3) {
			case 0:
				at += r.Int64N(7200) - 3600
			case 1:
				at = r.Int64N(2145916800)
			}
			typ := []string{"IS", "7", "a/b-1", "X2", "订单"}[r.IntN(5)]
			if !s.Typed {
				typ = ""
			}
			last := s.Largest()
			seq := []int64{1, last, 1 + r.Int64N(last)}[r.IntN(3)]
			name := fmt.Sprintf("%s %v from %v in %s at %d: %s %d", pattern, unit, start, zone, at, typ, seq)
			n, err := s.Number(typ, time.Unix(at, 0), seq)
			if err != nil {
				printable := strings.Contains(err.Error(), "cannot be printed as") || typ == "订单" &&
					strings.Contains(err.Error(), "covers letters")
				require.True(t, printable || at < 2*86400, "%s: %v", name, err)
				continue
			}
			numbers++
			back, err := s.Parse(n.String())
			require.NoError(t, err, "%s: %s", name, n)
			require.True(t, n == back, "%s: %s: %#v %#v", name, n, n, back)
			require.False(t, n.Date.Before(n.Start), name)
			p := s.calendar.At(time.Unix(at, 0))
			require.True(t, p.Start <= at && at < p.End && p.Start == n.Start.Unix(), "%s: %v", name, p)

			// The same is printed from Date on, and as long as the span lasts; afterwards something else, or another
			// period begins.
			text := n.String()
			span, _ := s.Dates.SpanAt(time.Unix(at, 0))
			require.True(t, span.From <= at && at < span.To && n.Date.Unix() <= span.From, name)
			for _, other := range []int64{n.Date.Unix(), span.From, span.To - 1} {
				if other < 2*86400 {
					continue
				}
				same, err := s.Number(typ, time.Unix(other, 0), seq)
				require.NoError(t, err, "%s: %d", name, other)
				require.True(t, same == n, "%s: %d: %v", name, other, same)
			}
			after, _ := s.Dates.SpanAt(time.Unix(span.To, 0))
			if after.Date == span.Date && span.To < p.End && !strings.Contains(pattern, "GG") {
				require.Fail(t, "a span ends too early", name)
			}
			if !s.Dates.Vary {
				require.Equal(t, n.Start, n.Date, name)
				require.True(t, span.From == p.Start && span.To == p.End, name)
			}

			// Whatever else can be read prints exactly what was read.
			for range 20 {
				b := []byte(text)
				b[r.IntN(len(b))] = "0123456789AZa-/.\x80"[r.IntN(17)]
				if r.IntN(10) == 0 {
					b = append(b, b[r.IntN(len(b))])
				}
				if other, err := s.Parse(string(b)); err == nil {
					require.Equal(t, string(b), other.String(), name)
					if other.Date.Unix() < 2*86400 {
						continue
					}
					again, err := s.Number(other.Type, other.Date, other.Seq)
					require.NoError(t, err, "%s: %s", name, b)
					require.True(t, again == other, "%s: %s: %v %v", name, b, again, other)
				} else {
					require.ErrorIs(t, err, template.ErrInvalidNumber)
					require.Zero(t, other)
				}
			}
		}
	}
	require.Greater(t, numbers, 3*wanted)
}

// Published numbers, and check digits in front, in the middle and at the end.
func TestCheckDigits(t *testing.T) {
	at := time.Date(2024, 12, 30, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		pattern, typ string
		seq          int64
		want         string
	}{
		{"RF{check:97-10}{type}{seq:8}", "5390", 7547034, "RF18539007547034"}, // ISO 11649
		{"{type}{seq:7}{check:97-10}", "0", 794, "0000079444"},
		{"{type}{seq:10}{check:luhn}", "0", 7992739871, "079927398713"},
		{"{type}-{seq:3}{check:damm}", "X", 572, "X-5724"},
		{"{type}{seq:9}{check:gs1}", "629", 104150021, "6291041500213"},
		{"{check:gs1}-{type}{seq:9}", "629", 104150021, "3-629104150021"},
		{"{type}{check:gs1}{seq:9}", "629", 104150021, "6293104150021"},
		{"{type}{seq:4}{check:11-10}", "X", 794, "X07945"},
		{"{type}{seq:4}{check:37-36}", "A12425GABC123", 4002, "A12425GABC1234002M"},
		{"{type}{seq:4}{check:37-36}", "a12425gabc123", 4002, "a12425gabc1234002M"},
		{"{type}{seq:5}{check:731}", "1", 23456, "1234561"},
		{"+++{type}/{seq:4}/554{check:be97}+++", "090", 9337, "+++090/9337/55493+++"},
		{"{type}{seq:8}{check:s10}GB", "RR", 47312482, "RR473124829GB"},
		{"{type}-{date:'7'MMM-}{seq:7}-GB{check:s10}", "RR", 3124829, "RR-7DEC-3124829-GB5"},
		{"{type}{seq:15}{check:11}", "5206043300991100250655012000", 780_026_730_161,
			"52060433009911002506550120000007800267301615"}, // an access key of a Brazilian NF-e
		{"{type}{check:10r}{seq:15}", "21000000000", 313_947_143_000_901, "210000000007313947143000901"},
	} {
		s := newScheme(t, withText(c.pattern), per(calendar.Never))
		n, err := s.Number(c.typ, at, c.seq)
		require.NoError(t, err)
		require.Equal(t, c.want, n.String())
		requireResult(t, n)(s.Parse(c.want))
	}

	// Every wrong digit is found, also where the sequence would be 0 or the date does not exist. 11 and s10 miss some.
	for _, algorithm := range []string{"luhn", "damm", "gs1", "11-10", "97-10", "37-36", "731", "be97", "10r"} {
		for _, pattern := range []string{"{type}{date:yyyyMMdd}{seq:4}{check:%s}", "{check:%s}{type}{date:yyyyMMdd}{seq:4}",
			"{type}{date:yyyyMM}{check:%s}{date}{seq}"} {
			pattern = strings.Replace(pattern, "{date}", "", 1)
			s := newScheme(t, withText(fmt.Sprintf(pattern, algorithm)), per(calendar.Month))
			n, err := s.Number("IS", at, 1)
			require.NoError(t, err)
			text := n.String()
			for i := range text {
				for digit := byte('0'); digit <= '9'; digit++ {
					if text[i] == digit || text[i] < '0' || text[i] > '9' {
						continue
					}
					wrong := text[:i] + string(digit) + text[i+1:]
					_, err := s.Parse(wrong)
					require.ErrorIs(t, err, template.ErrCheckDigit, "%s for %s", wrong, text)
					require.ErrorIs(t, err, template.ErrInvalidNumber)
				}
			}
		}
	}
	s := newScheme(t, withText("{type}{seq:8}{check:s10}"), per(calendar.Never)) // types may have other scripts' digits
	require.ErrorContains(t, errOf(s.Number("R1", at, 1)), "covers 8 digits, which the template prints; want no ASCII")
	require.ErrorIs(t, errOf(s.Number("R1", at, 1)), template.ErrInvalidType)
	require.ErrorIs(t, errOf(s.Parse("R1000000080")), template.ErrInvalidType)
	for _, typ := range []string{"订单", "१"} {
		n, err := s.Number(typ, at, 8)
		require.NoError(t, err)
		requireResult(t, n)(s.Parse(typ + "000000080"))
	}
	for _, algorithm := range []string{"97-10", "37-36"} {
		s := newScheme(t, withText("{type}-{seq}{check:"+algorithm+"}"), per(calendar.Never))
		require.ErrorIs(t, errOf(s.Number("订单", at, 1)), template.ErrInvalidType)
		require.ErrorIs(t, errOf(s.Parse("订单-000100")), template.ErrInvalidType)
	}
}

func TestAlphabets(t *testing.T) {
	at := time.Date(2024, 12, 30, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		alphabet string
		width    int
		last     int64
		text     string
	}{
		{"base32", 1, 31, "Z"}, {"base32", 4, 1<<20 - 1, "ZZZZ"}, {"base32", 9, 1<<45 - 1, "ZZZZZZZZZ"},
		{"base36", 1, 35, "Z"}, {"base36", 2, 1295, "ZZ"}, {"base36", 9, 101559956668415, "ZZZZZZZZZ"},
		{"letters", 1, 25, "Z"}, {"letters", 3, 17_575, "ZZZ"}, {"letters", 9, 5_429_503_678_975, "ZZZZZZZZZ"},
		{"alpha", 1, 26, "Z"}, {"alpha", 3, 17_576, "ZZZ"}, {"alpha", 9, 5_429_503_678_976, "ZZZZZZZZZ"},
	} {
		s := newScheme(t, withText(fmt.Sprintf("{type}-{seq:%d:%s}", c.width, c.alphabet)),
			per(calendar.Never))
		require.Equal(t, c.last, s.Largest())
		before := ""
		for i := int64(1); i <= 2000; i++ {
			seq := max(1, c.last/2000*i, c.last-2000+i)
			n, err := s.Number("T", at, seq)
			require.NoError(t, err)
			require.GreaterOrEqual(t, n.String(), before)
			before = n.String()
			require.Len(t, before, 2+c.width)
		}
		require.Equal(t, "T-"+c.text, before)
		require.ErrorIs(t, errOf(s.Parse("T-"+strings.ToLower(c.text))), template.ErrInvalidNumber)
		n, err := s.Parse("T-" + c.text)
		require.NoError(t, err)
		n.Seq++ // as Peek shows it if something else wrote the counter
		require.Equal(t, fmt.Sprint("T-", c.last+1), n.String())
	}
	s := newScheme(t, withText("{type}-{seq:3:letters}"), per(calendar.Never))
	for seq, want := range map[int64]string{1: "SEQ-AAB", 25: "SEQ-AAZ", 26: "SEQ-ABA", 17_575: "SEQ-ZZZ"} {
		n, err := s.Number("SEQ", at, seq)
		require.NoError(t, err)
		require.Equal(t, want, n.String())
		requireResult(t, n)(s.Parse(want))
	}
	require.ErrorContains(t, errOf(s.Parse("SEQ-AAA")), "its sequence is 0")
	require.ErrorContains(t, errOf(s.Parse("SEQ-AA1")), `got "AA1", want 3 letters (ABCDEFGHIJKLMNOPQRSTUVWXYZ)`)
	s = newScheme(t, withText("{type}-{seq:3:alpha}"), per(calendar.Never))
	for seq, want := range map[int64]string{1: "SEQ-AAA", 2: "SEQ-AAB", 26: "SEQ-AAZ", 27: "SEQ-ABA", 17_576: "SEQ-ZZZ"} {
		n, err := s.Number("SEQ", at, seq)
		require.NoError(t, err)
		require.Equal(t, want, n.String())
		requireResult(t, n)(s.Parse(want))
		n.Seq = 0 // as Peek shows it before the first number
		require.Equal(t, "SEQ-0", n.String())
		require.ErrorIs(t, errOf(s.Parse("SEQ-0")), template.ErrInvalidNumber)
	}
	s = newScheme(t, withText("{type}-{seq:4:base32}"), per(calendar.Never))
	for _, letter := range []string{"I", "L", "O", "U"} { // which are misread
		require.ErrorContains(t, errOf(s.Parse("T-000"+letter)), "base32")
	}
}

func TestHiddenSequences(t *testing.T) {
	at := time.Date(2024, 12, 30, 12, 0, 0, 0, time.UTC)
	encrypt := func(opts ...setting) *scheme {
		return newScheme(t,
			append([]setting{withText("{type}{date:yyyyMMdd}{seq:6}"), hidden(hiddenKey)},
				opts...)...)
	}
	s := encrypt()
	image := func(s *scheme, typ string, at time.Time, seq int64) string {
		n, err := s.Number(typ, at, seq)
		require.NoError(t, err)
		text := n.String()
		return text[len(text)-6:]
	}
	seen := map[string]bool{}
	inOrder := 0
	for seq := int64(1); seq <= 5000; seq++ {
		i := image(s, "IS", at, seq)
		require.False(t, seen[i])
		seen[i] = true
		if seq > 1 && i > image(s, "IS", at, seq-1) {
			inOrder++
		}
	}
	require.InDelta(t, 2500, inOrder, 200)

	n, err := s.Number("IS", at, 1)
	require.NoError(t, err)
	for name, other := range map[string]string{
		"type":   image(s, "PO", at, 1),
		"day":    image(s, "IS", at.AddDate(0, 0, 1), 1),
		"prefix": image(encrypt(withPrefix("other")), "IS", at, 1),
		"key":    image(encrypt(hidden([]byte("another key of 24 bytes."))), "IS", at, 1),
	} {
		require.NotEqual(t, n.String()[len("IS20241230"):], other, name)
	}
	back, err := encrypt(hidden([]byte("fedcba9876543210"))).Parse(n.String())
	require.NoError(t, err)
	require.NotEqual(t, n.Seq, back.Seq)

	letters := encrypt(withText("{type}{date:yyyyMMdd}{seq:5:letters}"))
	require.Regexp(t, "^IS20241230[A-Z]{5}$", "IS20241230"+image(letters, "IS", at, 1)[1:])
	_, err = parse(withText("{type}{date:yyyyMMdd}{seq:4:letters}"), hidden(hiddenKey))
	require.ErrorContains(t, err, "the template has 456975 sequences; want a million or more")
	_, err = parse(withText("{type}{date:yyyyMMdd}{seq:9:letters}"), hidden(hiddenKey))
	require.NoError(t, err)

	// The alphabet alpha has one more sequence, and prints the image of the sequence before.
	alpha := encrypt(withText("{type}{date:yyyyMMdd}{seq:5:alpha}"))
	for seq := int64(1); seq <= 100; seq++ {
		number, err := alpha.Number("IS", at, seq)
		require.NoError(t, err)
		requireResult(t, number)(alpha.Parse(number.String()))
		if seq > 1 {
			require.Equal(t, image(letters, "IS", at, seq-1), image(alpha, "IS", at, seq))
		}
	}
	_, err = alpha.Number("IS", at, 11_881_376)
	require.NoError(t, err)
	for _, text := range []string{"AAAAA", "ZZZZZ"} { // every image is a sequence's
		number, err := alpha.Parse("IS20241230" + text)
		require.NoError(t, err)
		require.Equal(t, "IS20241230"+text, number.String())
	}
	_, err = parse(withText("{type}{date:yyyyMMdd}{seq:4:alpha}"), hidden(hiddenKey))
	require.ErrorContains(t, err, "the template has 456976 sequences; want a million or more")
	number, err := alpha.Number("IS", at, 1)
	require.NoError(t, err)
	number.Seq = 0
	require.Equal(t, "IS202412300", number.String())

	// Sequences that are not issued print too: 0 as Peek shows it, and larger ones in full.
	zero := n
	zero.Seq = 0
	require.ErrorContains(t, errOf(s.Parse(zero.String())), "its sequence is 0 when decrypted")
	for _, seq := range []int64{-1, 1_000_000, 1 << 62} {
		n.Seq = seq
		require.Equal(t, fmt.Sprint("IS20241230", seq), n.String())
	}
	require.ErrorContains(t, errOf(n.Int64()), "hidden")
}

func TestInt64(t *testing.T) {
	at := time.Date(2024, 12, 30, 15, 4, 5, 0, time.UTC)
	for layout, want := range map[string]int64{
		"": 7, "yyyy": 20240007, "yy": 240007, "GGGG": 20250007, "GG": 250007, "FFFF": 20240007, "EEEE": 20250007,
		"EE": 250007, "FFFF-EE": 20240007, "EE/FFFF": 20240007, "FFFF-FF": 20240007, "FF-EE": 240007, "EEEE-EE": 20250007,
		"MM.yyyy": 2024120007, "dd.MM.yy": 2412300007, "HH dd MM yyyy": 2024123015_0007, "yyyyMMddHHmm": 202412301504_0007,
		"ss:mm:HH yy-MM-dd": 241230150405_0007, "DDD/yyyy": 20243650007, "yyyyDDDHH": 202436515_0007,
		"yyyyDDDHHmmss": 2024365150405_0007, "WW/GGGG": 2025010007, "GG-WW": 25010007, "Q/FFFF": 202430007,
		"FFFF-EE Q": 202430007, "YYYYMMDD": 20241230_0007, "BBBB": 20240007, "BB": 240007, "BBBB-MM": 2024120007,
		"dd/MM/BB": 2412300007, "BBDDDHH": 24365150007, "FFFF-S": 202420007, "S/FF": 2420007, "FFFF-EE 'H'S": 202420007,
		"yyyy'W'": 20240007,
		// The others would not sort, or say the same in two ways.
		"MM": 0, "dd": 0, "DDD": 0, "WW": 0, "Q": 0, "HH": 0, "mm": 0, "yyyy-FFFF": 0, "yyyy-GGGG": 0, "FFFFMM": 0,
		"FFFF MM dd": 0, "GGGGWWdd": 0, "GGGG-GG WW dd": 0, "yyyyWW": 0, "yyyyQ": 0, "EEEEQ": 0, "yyyyMMDDD": 0,
		"yyyyMMddDDD": 0, "yyyydd": 0, "yyyyMMHH": 0, "yyyyMMddmm": 0, "yyyyMMddHHss": 0, "yyyyDDDmm": 0, "GGGGWWHH": 0,
		"yyyy-M.": 0, "yyyy MMM": 0, "yyyyMmm": 0, "yyyy R-": 0, "yyyyMM.d.": 0, "S": 0, "yyyyS": 0, "FFFFSQ": 0, "EEEES": 0,
		"-M-": 0, "yyyyHH": 0, "yyyyMMQ": 0, "yyyyMMddWW": 0, "FFFFQMM": 0,
	} {
		pattern := "{type}{date:" + layout + "}{check:luhn}{seq}"
		s := newScheme(t, per(calendar.Never), from(time.April, 6),
			withText(strings.Replace(pattern, "{date:}", "", 1)))
		n, err := s.Number("IS", at, 7)
		require.NoError(t, err)
		integer, err := n.Int64()
		if want == 0 {
			require.ErrorContains(t, err, "do not sort as integers", layout)
			require.Zero(t, integer)
			continue
		}
		require.NoError(t, err, layout)
		require.Equal(t, want, integer, layout)
	}
	for pattern, want := range map[string]string{
		"{type}{seq:4:base32}": "base32", "{type}{seq:4:base36}": "base36", "{type}{seq:4:letters}": "letters",
		"{type}{seq:4:alpha}":                "alpha",
		"{type}{date:yyyyMMddHHmmss}{seq:9}": "larger than", "{type}-{seq:1+}": "outgrown",
	} {
		n, err := newScheme(t, per(calendar.Never), withText(pattern)).Number("IS", at, 10)
		require.NoError(t, err)
		require.ErrorContains(t, errOf(n.Int64()), want)
	}
}

// What is printed once in a while within a period has the date at which the period first printed it.
func TestDatesThatComeAgain(t *testing.T) {
	for _, c := range []struct {
		per        calendar.Unit
		layout     string
		text, date string
	}{
		{calendar.Year, "yyyy dd", "IS2024 300001", "2024-01-30T00:00:00Z"},
		{calendar.Year, "FFFF Q dd", "IS2024 3 300001", "2024-10-30T00:00:00Z"},
		{calendar.Day, "yyyyMMdd mm", "IS20241230 040001", "2024-12-30T00:04:00Z"},
		{calendar.Day, "yyyyMMdd ss", "IS20241230 050001", "2024-12-30T00:00:05Z"},
		{calendar.Never, "MM", "IS120001", "1970-12-01T00:00:00Z"},
		{calendar.Never, "GGGG", "IS20250001", "2024-12-30T00:00:00Z"},
		{calendar.Never, "WW Q", "IS01 30001", "1970-01-01T00:00:00Z"},
	} {
		start := yearStart{time.January, 1}
		if strings.Contains(c.layout, "Q") {
			start = yearStart{time.April, 6}
		}
		s := newScheme(t, per(c.per), from(start.month, start.day),
			withText("{type}{date:"+c.layout+"}{seq}"))
		n, err := s.Number("IS", time.Date(2024, 12, 30, 15, 4, 5, 0, time.UTC), 1)
		require.NoError(t, err)
		require.Equal(t, c.text, n.String())
		require.Equal(t, c.date, n.Date.Format(time.RFC3339), c.layout)
		back, err := s.Parse(c.text)
		require.NoError(t, err)
		require.True(t, n == back)
	}
}

// What could not have been printed is not read, though it reads like a date.
func TestDatesThatCannotBeRead(t *testing.T) {
	for _, c := range []struct {
		per  calendar.Unit
		date string
		text string
		want string
	}{
		{calendar.Year, "FF-FFFF", "24-2124", "there is no date 24-2124"},
		{calendar.Year, "FFFF-FF", "2124-24", "there is no date"},
		{calendar.Year, "FFFF-FF", "1924-24", "there is no date"},
		{calendar.Year, "FFFF-EE", "2024-26", "there is no date"},
		{calendar.Day, "yyMMdd FF", "000405 99", "there is no date"}, // of 1999
		{calendar.Week, "GGGG-WW", "2024-53", "there is no date 2024-53"},
		{calendar.Week, "GGGG-WW", "2020-00", "there is no date"},
		{calendar.Week, "GGGG-WW", "2020-54", "there is no date"},
		{calendar.Week, "yyyyMM GGGGWW", "202411 202501", "there is no date"},
		{calendar.Quarter, "FFFF-Q", "2024-5", "there is no date"},
		{calendar.Quarter, "FFFF-Q", "2024-0", "there is no date"},
		{calendar.Year, "FFFF MM dd", "2024 02 29", "there is no date"}, // it is in 2023
		{calendar.Day, "yyyyDDD", "2023366", "there is no date"},
		{calendar.Day, "yyyyDDD", "2024000", "there is no date"},
		{calendar.HalfYear, "FFFF-S", "2024-3", "there is no date"},
		{calendar.HalfYear, "FFFF-S", "2024-0", "there is no date"},
		{calendar.Day, "yyyy-M-d.", "2024-07-1.", `got "07", want the month (MM) without padding`},
		{calendar.Day, "yyyy-M-d.", "2024-7-01.", `got "01", want the day (dd) without padding`},
		{calendar.Day, "yyyy-M-d.", "2024--1.", `got "", want the month (MM) without padding`},
		{calendar.Day, "yyyy-M-d.", "2024-123-1.", `got "123", want the month`},
		{calendar.Day, "yyyy-M-d.", "2024-6-31.", "there is no day 2024-06-31"},
		{calendar.Day, "yyyy-M-d.", "2024-13-1.", "there is no day 2024-13-01"},
		{calendar.Day, "yyyy-R-dd", "2024-IIII-01", `got "IIII", want one of I, II, III, IV,`},
		{calendar.Day, "yyyy-R-dd", "2024--01", `got "", want one of I, II`},
		{calendar.Day, "yyyy-R-dd", "2024-i-01", "is not a number of this scheme"},
		{calendar.Day, "yyyyMMMdd", "2024Jan01", `got "Jan", want one of JAN, FEB,`},
		{calendar.Day, "yyyyMmmdd", "2024JAN01", `got "JAN", want one of Jan, Feb,`},
		{calendar.Year, "'W'FFFF", "w2024", `got "w", want "W"`},
		{calendar.Day, "BBBBMMdd", "25670230", "there is no date 25670230"},
		{calendar.Day, "BBBBMMdd", "25120101", "before 1970"},
		{calendar.Day, "BBBBMMdd", "00000101", "there is no date"},
		{calendar.Year, "FFFF", "1968", "is before 1970"},
		{calendar.Never, "ss", "60", "there is no date"},
		{calendar.Never, "yyyyMMdd", "99991231", "is not before the end of all time"},
		{calendar.Never, "yyyyMMdd", "19691231", "before 1970"},
	} {
		s := newScheme(t, per(c.per), from(time.April, 6),
			withText("{type}{date:"+c.date+"}{seq}"))
		_, err := s.Parse("IS" + c.text + "0001")
		require.ErrorContains(t, err, c.want, "%s: %s", c.date, c.text)
		require.ErrorIs(t, err, template.ErrInvalidNumber)
	}
	s := newScheme(t, per(calendar.Year), from(time.April, 6),
		withText("{type}{date:FFFF}{seq}"))
	n, err := s.Number("IS", time.Unix(0, 0), 1) // a year that began before 1970, and was not over
	require.NoError(t, err)
	back, err := s.Parse("IS19690001")
	require.NoError(t, err)
	require.True(t, n == back)
}

// The fixed width of a field may cut a character. No error then shows a part of that character, or says that the text is
// not UTF-8, which it is.
func TestCutCharacters(t *testing.T) {
	for _, c := range []struct{ text, number, want string }{
		{"{type}{date:yyyyMMdd}{seq:4}", "IS20211024０００１", `got "０…", want 4 decimal digits (0123456789)`},
		{"{type}{date:yyyyMMdd}{seq:4}", "IS2021102４0001", `got "2…", want 2 decimal digits`},
		{"{type}{date:yyyyMMdd}{seq:4}", "IS２0211024000",
			`type "IS２": it contains "２" (U+FF12), which Unicode normalization (NFKC) changes to "2"`},
		{"{type}{date:yyyyMMdd}{seq:4}", "ISé20211024001", `got "…202", want 4 decimal digits`},
		{"{type}{date:yyyyMMdd}{seq:4}", "IS20211024000\xe9", `"IS20211024000\xe9" is not a number of this scheme`},
		{"{type}{date:yyyyMMdd}{seq:4}", "I\xe9202110240001", `not valid UTF-8`},
		{"{date:yyyyMMdd}{seq:4}{type}", "2021102400１IS", `got "00…", want 4 decimal digits`},
		{"{date:yyyyMMdd}/{seq:4}/{type}", "20211024／001/IS", `got "…", want "/"`},
		{"{type}/{date:yyyy'/'MMdd}{seq:4}", "IS/2021／240001", `got "…", want "/"`},
		{"{type}{date:yyyyMmmdd}{seq:4}", "IS2021Oｃ20001", `got "O…", want one of Jan,`},
		{"{check:luhn}{type}{date:yyyyMMdd}{seq:4}", "５IS202110240001", "got …, want"},
		{"{type}{date:yyyyMMdd}-{seq:4+}", "IS20211024-０００１", "its sequence has 0 digits; want 4 to 15"},
	} {
		_, err := newScheme(t, withText(c.text)).Parse(c.number)
		require.ErrorIs(t, err, template.ErrInvalidNumber, c.number)
		require.ErrorContains(t, err, c.want)
		if utf8.ValidString(c.number) {
			require.NotContains(t, err.Error(), `\x`)
			require.NotContains(t, err.Error(), "UTF-8")
			require.True(t, utf8.ValidString(err.Error()), "%q", err)
		}
	}
}

// An error says whether only the date cannot be.
func TestImpossibleDate(t *testing.T) {
	s := newScheme(t, per(calendar.Day), withText("{type}-{date:yyyyMMdd}-{seq}"))
	for text, impossible := range map[string]bool{
		"IS-20211324-0001": true, "IS-19600101-0001": true, "P-O-20210230-0001": true, "IS-20211324-0000": false,
		"IS-2021x324-0001": false, "20211324-0001": false, "IS_20211324-0001": false, "IS-20211324-1": false,
	} {
		_, err := s.Parse(text)
		require.ErrorIs(t, err, template.ErrInvalidNumber, text)
		require.Equal(t, impossible, errors.Is(err, template.ErrImpossibleDate), "%s: %v", text, err)
	}
}

// Two templates that could print different sequences as the same number have different marks.
func TestPrintMarks(t *testing.T) {
	mark := func(unit calendar.Unit, pattern string, opts ...setting) string {
		return newScheme(t, append(opts, per(unit), withText(pattern))...).PrintMark()
	}
	for _, same := range [][]string{
		{"{type}{date:GGGGWW}{seq:4}", "{type}-{date:GG-WW}/{seq:9}", "A{type}{date:GGGG.WW}-{seq:4+}"},
		{"{type}{date:yyyyMMddWW}{seq}", "{type}{date:yy-MM-DD WW}{seq:7}."},
		{"{type}{date:FFFFMMdd}{seq:4:base32}", "{type}{date:FFMMDD}{seq:9:base32}"},
	} {
		for _, other := range same {
			require.Equal(t, mark(calendar.Week, same[0]), mark(calendar.Week, other), other)
			require.Len(t, mark(calendar.Week, other), 12)
		}
	}
	require.Equal(t, mark(calendar.Year, "{type}{date:FFFF-EE}{seq}"), mark(calendar.Year, "{type}{date:FF/EEEE}{seq}"))
	require.Equal(t, mark(calendar.Day, "{type}{date:yyyyMMddWW}{seq}"),
		mark(calendar.Day, "{type}{date:yyMMDDWW}{seq}"))
	require.Equal(t, mark(calendar.Day, "{type}{date:YYYYMMddFFFF}{seq}"),
		mark(calendar.Day, "{type}{date:yyMMDDFF}{seq}"))
	require.Equal(t, mark(calendar.Day, "{type}{date:yyyyMMdd}{seq}"), mark(calendar.Day, "{type}{date:yy'W'/M/d}-{seq}"))
	require.Equal(t, mark(calendar.Day, "{type}{date:BBBBMMMdd}{seq}"), mark(calendar.Day, "{type}{date:BBMmm'x'd}-{seq}"))
	apart := map[string]bool{}
	for _, date := range []string{"yyyyMMdd", "BBBBMMdd", "yyyyMMMdd", "yyyy-R-dd", "yyyyMMddS", "yyyyMMddQ"} {
		apart[mark(calendar.Day, "{type}{date:"+date+"}{seq}")] = true
	}
	require.Len(t, apart, 6)
	different := map[string]string{}
	for _, pattern := range []string{
		"{type}{date:GGGGWW}{seq:6}", "{type}{seq:6}{date:GGGGWW}", "{date:GGGGWW}{type}{seq:6}",
		"{type}{date:WWGGGG}{seq:6}", "{type}{date:GGGGWWdd}{seq:6}", "{type}{date:GGGGWW}{seq:6:base32}",
		"{type}{date:GGGGWW}{seq:6:base36}", "{type}{date:GGGGWW}{seq:6}{check:luhn}",
		"{type}{date:GGGGWW}{seq:6:letters}", "{type}{date:GGGGWW}{seq:6:alpha}", "{type}{date:GGGGWW}{seq:6}{check:731}",
		"{type}{date:GGGGWW}{seq:6}{check:be97}", "{type}{date:GGGGWW}{seq:6}{check:10r}",
		"{type}{date:GGGGWW}{seq:6}{check:11}",
		"{type}{date:GGGGWW}{seq:6}{check:damm}", "{type}{date:GGGGWW}{check:damm}{seq:6}", "{type}{date:yyyyMMdd}{seq:6}",
	} {
		for name, opts := range map[string][]setting{
			"": nil, "key": {hidden(hiddenKey)},
			"other": {hidden([]byte("fedcba9876543210"))},
		} {
			m := mark(calendar.Week, pattern, opts...)
			require.Empty(t, different[m])
			different[m] = pattern + name
		}
	}

	usual := mark(calendar.Day, "{type}{date:yyyyMMdd}{seq}")
	for _, pattern := range []string{"{type}{date:YYYYMMDD}-{seq:4+}", "{{{type}.{date:yy年MM月dd日}{seq:15}}}"} {
		require.Equal(t, usual, mark(calendar.Day, pattern))
		require.Equal(t, usual, mark(calendar.Day, pattern, from(time.April, 6)))
	}
	for _, pattern := range []string{"{type}{date:yyyyDDD}{seq}", "{type}{date:FFFFMMdd}{seq}",
		"{type}{date:yyyyMMdd}{seq:4:base36}", "{type}{date:yyyyMMdd}{seq}{check:gs1}"} {
		require.NotEqual(t, usual, mark(calendar.Day, pattern))
	}
}

// Every period prints what distinguishes it from the others, and reads back.
func TestTemplates(t *testing.T) {
	at := time.Date(2021, 10, 24, 15, 30, 59, 0, time.UTC)
	for _, c := range []struct {
		per      calendar.Unit
		dayStart time.Duration
		pattern  string
		typ      string
		seq      int64
		want     string
		integer  int64 // 0: it does not fit, or has outgrown its width; -1: the date does not sort
	}{
		{calendar.Day, 0, "{type}{date:yyyyMMdd}{seq:4}", "IS", 7, "IS202110240007", 202110240007},
		{calendar.Day, 0, "{type}{date:YYYYMMDD}{seq}", "IS", 7, "IS202110240007", 202110240007},
		{calendar.Day, 0, "{type}-{date:yyMMdd}-{seq:6}", "PO", 7, "PO-211024-000007", 211024000007},
		{calendar.Day, 0, "{seq:1}/{date:dd.MM.yyyy}/{type}", "a/b", 7, "7/24.10.2021/a/b", 202110247},
		{calendar.Day, 0, "{{{type}}}{date:yyyy年MM月dd日}号{seq:3}", "订单", 7, "{订单}2021年10月24日号007", 20211024007},
		{calendar.Day, 0, "{date:ddMMyy}{seq:15}{type}", "7", 7, "2410210000000000000077", 0},
		{calendar.Day, 0, "{date:yyyyMMdd}{seq:10}{type}", "x", 7, "202110240000000007x", 202110240000000007},
		{calendar.Day, 0, "{date:yyyyMMdd}{seq:11}{type}", "x", 7, "2021102400000000007x", 2021102400000000007},
		{calendar.Day, 0, "{date:yyyyMMdd}{seq:12}{type}", "x", 7, "20211024000000000007x", 0},
		{calendar.Day, 0, "No. {type} {date:yyyy MM dd} {seq:4}.", strings.Repeat("x", 64), 7,
			"No. " + strings.Repeat("x", 64) + " 2021 10 24 0007.", 202110240007},

		{calendar.Second, 0, "{type}{date:yyMMddHHmmss}{seq:4}", "IS", 1, "IS2110241530590001", 2110241530590001},
		{calendar.Second, 0, "{type}-{date:dd.MM.yyyy HH:mm:ss}-{seq:1}", "IS", 7,
			"IS-24.10.2021 15:30:59-7", 202110241530597},
		{calendar.Minute, 0, "{type}{date:yyyyMMddHHmm}{seq:6}", "IS", 42, "IS202110241530000042", 202110241530000042},
		{calendar.Hour, 0, "{type}{date:yyyyMMddHH}{seq:4}", "IS", 42, "IS20211024150042", 20211024150042},
		{calendar.Month, 0, "{type}{date:yyyyMM}{seq:4}", "IS", 42, "IS2021100042", 2021100042},
		{calendar.Month, 0, "{date:MM/yy}/{type}/{seq:4}", "IS", 42, "10/21/IS/0042", 21100042},
		{calendar.Year, 0, "{type}{date:yyyy}{seq:4}", "IS", 42, "IS20210042", 20210042},
		{calendar.Year, 0, "{date:yy}{type}{seq:4}", "IS", 42, "21IS0042", 210042},
		{calendar.Day, 15 * time.Hour, "{type}{date:yyyyMMdd}{seq:4}", "IS", 42, "IS202110240042", 202110240042},
		{calendar.Day, 16 * time.Hour, "{type}{date:yyyyMMdd}{seq:4}", "IS", 42, "IS202110230042", 202110230042},

		{calendar.Day, 0, "{type}{date:yyyyMMdd}-{seq:4+}", "IS", 1, "IS20211024-0001", 202110240001},
		{calendar.Day, 0, "{type}{date:yyyyMMdd}-{seq:4+}", "IS", 9999, "IS20211024-9999", 202110249999},
		{calendar.Day, 0, "{type}{date:yyyyMMdd}-{seq:4+}", "IS", 10000, "IS20211024-10000", 0},
		{calendar.Day, 0, "{type}{date:yyyyMMdd}-{seq:4+}", "IS", 999_999_999_999_999, "IS20211024-999999999999999", 0},
		{calendar.Day, 0, "{type}{date:yyyyMMdd}-{seq:15+}", "IS", 999_999_999_999_999, "IS20211024-999999999999999", 0},
		{calendar.Day, 0, "No {seq:1+} of {type}{date:yyyyMMdd}", "IS", 10, "No 10 of IS20211024", 0},
		{calendar.Day, 0, "{date:yyyy年MM月dd日}{seq:4+}/{type}", "IS", 10000, "2021年10月24日10000/IS", 0},
		{calendar.Day, 0, "{type}{{{seq:4+}}}{date:yyMMdd}", "IS", 10000, "IS{10000}211024", 0},
		{calendar.Second, 0, "{type}.{seq:4+}{date:-yyMMddHHmmss}", "IS", 10000, "IS.10000-211024153059", 0},
		{calendar.Year, 0, "{seq:1+}/{date:yyyy}/{type}", "FV", 7, "7/2021/FV", 20217},
		{calendar.Year, 0, "{seq:1+}/{date:yyyy}/{type}", "1/2", 10, "10/2021/1/2", 0},
		{calendar.Day, 0, "{type}{date:yyyyddMMM}{seq:1+}", "IS", 10, "IS202124OCT10", 0},
		{calendar.Day, 0, "{seq:1+}{date:Mmm-dd-yyyy} {type}", "IS", 10, "10Oct-24-2021 IS", 0},
		{calendar.Day, 0, "{type}{date:dd.MM.yyyy'№'}{seq:1+}", "IS", 10, "IS24.10.2021№10", 0},

		{calendar.HalfYear, 0, "{type}{date:yyyy-'H'S}-{seq:4}", "IS", 1, "IS2021-H2-0001", -1},
		{calendar.Week, 0, "{type}{date:GGGG-'W'WW}-{seq:4}", "IS", 1, "IS2021-W42-0001", 2021420001},
		{calendar.Day, 0, "{type}{date:yyyy''MM'o''clock'dd''''}{seq:2}", "IS", 1, "IS2021'10o'clock24''01", 2021102401},
		{calendar.Day, 0, "{type}-{date:d.M.yyyy}-{seq:2}", "IS.1", 1, "IS.1-24.10.2021-01", -1},
		{calendar.Day, 0, "{date:d/R/BBBB} {type} {seq:2}", "1", 1, "24/X/2564 1 01", -1},
		{calendar.Month, 0, "{type} {date:Mmm BB} {seq:2}", "IS", 1, "IS Oct 64 01", -1},
		{calendar.Minute, 0, "{type}{date:ddMMMyyyyHHmm}{seq:2}", "IS", 1, "IS24OCT2021153001", -1},
		{calendar.Minute, 0, "{type}{date:yyyyddHHMMmm}{seq:2}", "IS", 1, "IS20212415103001", 20211024153001},
		{calendar.Minute, 0, "{type}{date:yyyyddHHMMMmm}{seq:2}", "IS", 1, "IS20212415OCT3001", -1},
		{calendar.Second, 0, "{type}{date:yyyyddHHmmMmmss}{seq:2}", "IS", 1, "IS2021241530Oct5901", -1},
	} {
		t.Run(fmt.Sprint(c.pattern, c.seq, c.dayStart), func(t *testing.T) {
			s := newScheme(t, withText(c.pattern), dayStart(c.dayStart), per(c.per))
			n, err := s.Number(c.typ, at, c.seq)
			require.NoError(t, err)
			require.Equal(t, c.want, n.String())
			requireResult(t, n)(s.Parse(c.want))
			integer, err := n.Int64()
			if c.integer < 0 {
				require.ErrorContains(t, err, "do not sort as integers")
			} else if c.integer == 0 {
				require.Regexp(t, "larger than|outgrown", err)
			} else {
				require.NoError(t, err)
				require.Equal(t, c.integer, integer)
			}
		})
	}
}

// With sequences that grow no two numbers read the same, whatever the order of the fields, the literals between them,
// and types that look like a part of a number.
func TestGrowingSequencesReadBack(t *testing.T) {
	types := []string{"1", "11", "1-1", "-1", "1-", "a1", "20211024-1", "1.1-11", "١"}
	seqs := []int64{1, 10, 11, 99, 100, 111, 1020211024, 999_999_999_999_999}
	days := []time.Time{time.Date(2021, 10, 24, 0, 0, 0, 0, time.UTC), time.Date(2011, 11, 11, 0, 0, 0, 0, time.UTC)}
	between := []string{"", "-", "1", "-1", "1-", "a", "１"}
	accepted := 0
	for _, order := range [][3]string{
		{"{type}", "{date:yyMMdd}", "{seq:2+}"}, {"{type}", "{seq:2+}", "{date:yyMMdd}"},
		{"{date:yyMMdd}", "{type}", "{seq:2+}"}, {"{date:yyMMdd}", "{seq:2+}", "{type}"},
		{"{seq:2+}", "{type}", "{date:yyMMdd}"}, {"{seq:2+}", "{date:yyMMdd}", "{type}"},
		{"{type}", "{date:yy-MM-dd-}", "{seq:2+}"}, {"{seq:2+}", "{date:-yy-MM-dd}", "{type}"},
	} {
		for i := range 3 * 7 * 7 * 2 {
			before, first, second, end := between[i%3], between[i/3%7], between[i/21%7], []string{"", "."}[i/147]
			pattern := before + order[0] + first + order[1] + second + order[2] + end
			s, err := parse(withText(pattern))
			if err != nil {
				require.ErrorContains(t, err, "{seq:2+}: a sequence that may grow needs a literal", pattern)
				continue
			}
			accepted++
			printed := map[string]number{}
			for _, typ := range types {
				for _, seq := range seqs {
					for _, day := range days {
						n, err := s.Number(typ, day, seq)
						require.NoError(t, err)
						text := n.String()
						if other, twice := printed[text]; twice {
							require.Fail(t, "reads the same", "%s: %q is %v and %v", pattern, text, n, other)
						}
						printed[text] = n
						back, err := s.Parse(text)
						if err != nil || back != n {
							require.Fail(t, "does not read back", "%s: %q: %v %v", pattern, text, back, err)
						}
					}
				}
			}
		}
	}
	require.Greater(t, accepted, 500)
}

// Numbers of days that begin or end where clocks change have the day's first instant.
func TestParseOfUnusualDays(t *testing.T) {
	days, err := os.ReadFile("../calendar/testdata/days.csv")
	require.NoError(t, err)
	rows := strings.Split(strings.TrimSpace(string(days)), "\n")
	require.Greater(t, len(rows), 10)
	for _, line := range rows[1:] {
		row := strings.Split(line, ",")
		n, err := newScheme(t, in(location(t, row[0]))).Parse("IS" + row[1] + "0001")
		require.NoError(t, err)
		require.Equal(t, row[2], strconv.FormatInt(n.Start.Unix(), 10))
	}
}

func TestParseOfPeriods(t *testing.T) {
	newYork := in(location(t, "America/New_York"))
	apia := in(location(t, "Pacific/Apia"))
	pattern := withText
	second, minute := pattern("{type}{date:yyyyMMddHHmmss}{seq}"), pattern("{type}{date:yyyyMMddHHmm}{seq}")
	hour, month := pattern("{type}{date:yyyyMMddHH}{seq:4}"), pattern("{type}{date:yyyyMM}{seq}")
	growing, first := pattern("{type}{date:yyyyMMdd}-{seq:4+}"), pattern("-{seq:4+}-{date:yyyyMMdd}{type}")
	for _, c := range []struct {
		per  calendar.Unit
		opts []setting
		s    string
		want string // RFC 3339, or of the error
	}{
		{calendar.Second, []setting{second}, "IS202110241530590001", "2021-10-24T15:30:59Z"},
		{calendar.Second, []setting{second}, "IS202110241530600001", "there is no second 2021-10-24 15:30:60"},
		{calendar.Second, []setting{second, newYork}, "IS202503090230000001",
			"America/New_York has no second 2025-03-09 02:30:00"},
		{calendar.Second, []setting{second, newYork}, "IS202511020130000001", "2025-11-02T01:30:00-04:00"},
		{calendar.Minute, []setting{minute}, "IS2021102423590001", "2021-10-24T23:59:00Z"},
		{calendar.Minute, []setting{minute}, "IS2021102423600001", "there is no minute 2021-10-24 23:60"},
		{calendar.Minute, []setting{minute}, "IS2021063100000001", "there is no minute 2021-06-31 00:00"},
		{calendar.Hour, []setting{hour}, "IS20211024230001", "2021-10-24T23:00:00Z"},
		{calendar.Hour, []setting{hour}, "IS20211024240001", "there is no hour 2021-10-24 24"},
		{calendar.Hour, []setting{hour, newYork}, "IS20250309020001", "America/New_York has no hour 2025-03-09 02"},
		{calendar.Hour, []setting{hour, newYork}, "IS20250309030001", "2025-03-09T03:00:00-04:00"},
		{calendar.Hour, []setting{hour, newYork}, "IS20251102010001", "2025-11-02T01:00:00-04:00"},
		{calendar.Hour, []setting{hour, apia}, "IS20111230230001", "Pacific/Apia has no hour 2011-12-30 23"},
		{calendar.Hour, []setting{hour}, "IS19691231230001", "the hour 1969-12-31 23 is before 1970"},
		{calendar.Day, []setting{apia}, "IS201112300001", "Pacific/Apia has no day 2011-12-30"},
		{calendar.Day, []setting{apia, dayStart(4 * time.Hour)}, "IS201112300001", "2011-12-31T00:00:00+14:00"},
		{calendar.Day, []setting{newYork, dayStart(150 * time.Minute)}, "IS202503090001",
			"2025-03-09T03:00:00-04:00"},
		{calendar.Month, []setting{month}, "IS2021100001", "2021-10-01T00:00:00Z"},
		{calendar.Month, []setting{month, dayStart(4 * time.Hour)}, "IS2021100001", "2021-10-01T04:00:00Z"},
		{calendar.Month, []setting{month}, "IS2021130001", "there is no month 2021-13"},
		{calendar.Month, []setting{month}, "IS2021000001", "there is no month 2021-00"},
		{calendar.Year, []setting{pattern("{type}{date:yy}{seq}")}, "IS210001", "2021-01-01T00:00:00Z"},
		{calendar.Year, []setting{pattern("{type}{date:yyyy}{seq}")}, "IS19690001", "the year 1969 is before 1970"},

		{calendar.Day, nil, "", "0 bytes"},
		{calendar.Day, nil, "202110240001", "it has 12 bytes; at least 13 are needed"},
		{calendar.Day, nil, "IS20211024001", `got "S202", want 4 decimal digits`}, // padding missing: everything shifts
		{calendar.Day, nil, "IS2021102400001", "there is no day 0211-02-40"},
		{calendar.Day, nil, "IS202110240000", "sequence is 0"},
		{calendar.Day, nil, "IS202106310001", "2021-06-31"},
		{calendar.Day, nil, "IS202102290001", "2021-02-29"},
		{calendar.Day, nil, "IS202113010001", "2021-13-01"},
		{calendar.Day, nil, "IS202100010001", "2021-00-01"},
		{calendar.Day, nil, "IS202110000001", "2021-10-00"},
		{calendar.Day, nil, "IS196912310001", "before 1970"},
		{calendar.Day, nil, "IS000001010001", "before 1970"},
		{calendar.Day, nil, " IS202110240001", "' '"},
		{calendar.Day, nil, "IS202110240001 ", "want 4 decimal digits"},
		{calendar.Day, nil, "IS20211024000x", "want 4 decimal digits"},
		{calendar.Day, nil, "IS20211024+001", "want 4 decimal digits"},
		{calendar.Day, nil, "I:S202110240001", "':'"},
		{calendar.Day, nil, strings.Repeat("x", 65) + "202110240001", "65 bytes"},
		{calendar.Day, nil, "IS２０２１10240001", "invalid type"},
		{calendar.Day, nil, "IS202402290001", "2024-02-29T00:00:00Z"},
		{calendar.Day, []setting{in(location(t, "Asia/Shanghai"))}, "IS197001010001", "1970-01-01T00:00:00+08:00"},
		{calendar.Day, []setting{pattern("{type}-{date:yyMMdd}-{seq:6}")}, "PO_211024-000001", `got "_", want "-"`},

		{calendar.Day, []setting{growing}, "IS20211024-00001", "00001 is padded to more than 4 digits"},
		{calendar.Day, []setting{growing}, "IS20211024-00010000", "padded to more than 4 digits"},
		{calendar.Day, []setting{growing}, "IS20211024-001", "3 digits; want 4 to 15"},
		{calendar.Day, []setting{growing}, "IS20211024-1000000000000000", "16 digits; want 4 to 15"},
		{calendar.Day, []setting{growing}, "20211024-10000", "nothing is left for its type"},
		{calendar.Day, []setting{growing}, "IS20211024-0000", "its sequence is 0"},
		{calendar.Day, []setting{growing}, "IS20211024.10000", `got ".", want "-"`},
		{calendar.Day, []setting{growing}, "IS20211024-10000-", "0 digits"},
		{calendar.Day, []setting{pattern("{type}{date:yyyyMMdd}-{seq:4}")}, "IS20211024-10000",
			`got "4-", want 2 decimal digits`},
		{calendar.Day, []setting{first}, "-00001-20211024IS", "padded to more than 4 digits"},
		{calendar.Day, []setting{first}, "-001-20211024IS", "3 digits; want 4 to 15"},
	} {
		n, err := newScheme(t, append(c.opts, per(c.per))...).Parse(c.s)
		if strings.Contains(c.want, "T") && err == nil {
			require.Equal(t, c.want, n.Start.Format(time.RFC3339), "%s", c.s)
			require.Equal(t, c.s, n.String())
			continue
		}
		require.ErrorContains(t, err, c.want, "%s", c.s)
		require.ErrorIs(t, err, template.ErrInvalidNumber)
		require.Zero(t, n)
	}
}
