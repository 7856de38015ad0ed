package template_test

import (
	"cmp"
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
}

// A number is like the Number of package serial, and has the printed number.
type number struct {
	text, Type  string
	Seq         int64
	Start, Date time.Time
}

func (s *scheme) number(typ string, span *calendar.Span, seq int64) number {
	start, date := s.Dates.Instants(span)
	return number{s.PrintNumber(typ, span.Date, span.Label, seq), typ, seq, start, date}
}

func (s *scheme) Number(typ string, at time.Time, seq int64) (number, error) {
	span, err := s.Dates.SpanAt(at)
	if !s.calendar.HasPeriod(at) || !s.calendar.With(calendar.Day).HasPeriod(at) {
		err = fmt.Errorf("%v: want 1970 to 9999", at)
	}
	if err = cmp.Or(s.CheckType(typ), err); err != nil {
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

// parse returns a scheme with a template. A template without braces is the layout of its date, and "" is the default.
// The words are a unit, a zone, the start of a day such as 4h, or of business years such as 04-06, "key=KEY",
// "prefix=PREFIX" and "shared". Without words, periods are days in UTC.
func parse(text, words string) (*scheme, error) {
	c, counter, prefix, key := calendar.Calendar{Location: time.UTC, Unit: calendar.Day}, "", "serial", ""
	for word := range strings.FieldsSeq(words) {
		name, value, _ := strings.Cut(word, "=")
		dayStart, err := time.ParseDuration(word)
		switch {
		case units[word].Valid():
			c.Unit = units[word]
		case err == nil:
			c.DayStart = int64(dayStart / time.Second)
		case name == "key":
			key = value
		case name == "prefix":
			prefix = value
		case word == "shared":
			counter = "*"
		case strings.Contains(word, "/"):
			if c.Location, err = time.LoadLocation(word); err != nil {
				return nil, err
			}
		default:
			at, err := time.Parse("01-02", word)
			if err != nil {
				return nil, err
			}
			c.YearStart = calendar.NewYearStart(at.Month(), at.Day())
		}
	}
	if text = cmp.Or(text, template.Default); !strings.Contains(text, "{") {
		text = "{type}{date:" + text + "}{seq}"
	}
	t, err := template.Parse(text, c)
	if err == nil {
		err = t.Prove(counter != "")
	}
	if err == nil && key != "" {
		err = t.Hide([]byte(key), prefix, counter)
	}
	return &scheme{t, c}, err
}

const hidden = " key=0123456789abcdef "

var units = map[string]calendar.Unit{"second": calendar.Second, "minute": calendar.Minute, "hour": calendar.Hour,
	"day": calendar.Day, "week": calendar.Week, "month": calendar.Month, "quarter": calendar.Quarter,
	"half-year": calendar.HalfYear, "year": calendar.Year, "never": calendar.Never}

func newScheme(t testing.TB, text, words string) *scheme {
	t.Helper()
	s, err := parse(text, words)
	require.NoError(t, err, "%s %s", text, words)
	return s
}

// print returns a number, which must be parsed as itself.
func (s *scheme) print(t testing.TB, typ string, at time.Time, seq int64) number {
	t.Helper()
	n, err := s.Number(typ, at, seq)
	require.NoError(t, err)
	parsed, err := s.Parse(n.text)
	require.NoError(t, err)
	require.True(t, n == parsed, "printed %+v, parsed %+v", n, parsed)
	return n
}

// errOf returns the error of a call.
func errOf[T any](_ T, err error) error { return err }

// randomTemplate returns a template with random fields, which may be invalid.
func randomTemplate(r *rand.Rand) string {
	pick := func(words string) string { // any of words that are separated by spaces
		all := strings.Split(words, " ")
		return all[r.IntN(len(all))]
	}
	var layout []string
	for _, part := range []string{
		"yyyy yy YYYY yyyy BBBB BB", "MM MM MMM Mmm :M: '5'R:", "dd DD 'd'd-", "DDD", "GGGG GG GG-GGGG", "WW", "Q", "S",
		"FFFF FF FF/FFFF FFFF", "EEEE EE EE/EEEE", "HH", "mm", "ss",
	} {
		if r.IntN(3) == 0 {
			layout = append(layout, pick(part))
		}
	}
	r.Shuffle(len(layout), func(i, j int) { layout[i], layout[j] = layout[j], layout[i] })
	date := strings.Join(layout, pick("  - . _ 年"))
	fields := []string{pick("{type} {type} {type} "), pick("{seq} {seq:1} {seq:6} {seq:6} {seq:15} -{seq:2+}. {seq:2+} " +
		"{seq:2+} {seq:4:base32} {seq:9:base32} {seq:1:base36} {seq:9:base36} {seq:3:letters} {seq:9:letters} " +
		"{seq:1:alpha} {seq:9:alpha}")}
	if date != "" || r.IntN(5) > 0 {
		fields = append(fields, "{date:"+date+"}")
	}
	if r.IntN(3) == 0 {
		fields = append(fields, "{check:"+pick("luhn damm gs1 11-10 97-10 97-10 37-36 37-36 731 be97 10r 11")+"}")
	}
	r.Shuffle(len(fields), func(i, j int) { fields[i], fields[j] = fields[j], fields[i] })
	pattern := ""
	for _, f := range fields {
		pattern += f + pick("   - - A 7 -1 1- １ {{")
	}
	return pattern
}

// Numbers of random templates, printed near changes of clocks and calendars, are parsed as themselves.
func TestNumbersReadBack(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	zones := strings.Fields("Etc/UTC America/New_York America/Havana Pacific/Apia Pacific/Kwajalein Antarctica/Casey " +
		"Antarctica/Troll Australia/Lord_Howe Asia/Shanghai")
	var instants []int64
	for text := range strings.FieldsSeq("1970-01-01T00 1992-12-31T23 1993-08-20T11 2000-01-01T00 2004-12-31T12 " +
		"2010-03-04T15 2011-12-30T09 2016-01-01T00 2020-03-08T05 2020-11-01T04 2021-04-03T14 2024-02-29T23 2024-03-31T01 " +
		"2024-04-05T23 2024-12-29T23 2025-03-09T06 2037-12-31T22") {
		at, err := time.Parse("2006-01-02T15", text)
		require.NoError(t, err)
		instants = append(instants, at.Unix(), at.Unix()+3599, at.Unix()+r.Int64N(7200), r.Int64N(2145916800))
	}
	numbers, wanted := 0, map[bool]int{false: 120, true: 500}[redistest.Long()]
	for made := 0; made < wanted; {
		unit := calendar.Unit(1 + r.IntN(10))
		words := strings.Join([]string{unit.Noun(), yearStarts[r.IntN(len(yearStarts))], zones[r.IntN(len(zones))]}, " ")
		if unit >= calendar.Day && unit != calendar.Never && r.IntN(3) == 0 {
			words += fmt.Sprintf(" %ds", 1+r.IntN(86399))
		}
		words += []string{"", "", "", hidden}[r.IntN(4)] + []string{"", " shared"}[r.IntN(2)]
		text := randomTemplate(r)
		s, err := parse(text, words)
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
			name := fmt.Sprintf("%s %s at %d: %s %d", text, words, at, typ, seq)
			n, err := s.Number(typ, time.Unix(at, 0), seq)
			if err == nil {
				numbers++
				s.checkNumber(t, name, n, at, strings.Contains(text, "GG"))
			} else if at >= 2*86400 {
				require.Regexp(t, "cannot be printed as|covers letters", err.Error(), name)
			}
		}
	}
	require.Greater(t, numbers, 3*wanted)
}

// checkNumber parses the number that was printed for an instant. It checks the number's dates: the same is printed from
// Date on, and as long as the span lasts, and afterwards something else, unless another period begins. With a week year,
// spans may be single weeks.
func (s *scheme) checkNumber(t *testing.T, name string, n number, at int64, hasWeekYear bool) {
	p := s.calendar.At(time.Unix(at, 0))
	span, _ := s.Dates.SpanAt(time.Unix(at, 0))
	require.True(t, p.Start <= at && at < p.End && p.Start == n.Start.Unix() && !n.Date.Before(n.Start), name)
	require.True(t, span.From <= at && at < span.To && n.Date.Unix() <= span.From, name)
	for _, other := range []int64{at, n.Date.Unix(), span.From, span.To - 1} {
		if other == at || other >= 2*86400 { // the first day in every zone
			require.True(t, n == s.print(t, n.Type, time.Unix(other, 0), n.Seq), name)
		}
	}
	after, _ := s.Dates.SpanAt(time.Unix(span.To, 0))
	require.False(t, after.Date == span.Date && span.To < p.End && !hasWeekYear, "%s: the span ends too early", name)
	if !s.Dates.Vary {
		require.Equal(t, n.Start, n.Date, name)
		require.True(t, span.From == p.Start && span.To == p.End, name)
	}
}

// Sequences in other alphabets sort in the order in which they are issued. A sequence that does not fit is printed in
// decimal.
func TestAlphabets(t *testing.T) {
	at := time.Date(2024, 12, 30, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		seq     string // its width and alphabet
		last    int64
		samples map[int64]string
	}{
		{"4:base32", 1<<20 - 1, map[int64]string{1: "0001", 31: "000Z", 32: "0010", 1<<20 - 1: "ZZZZ"}},
		{"9:base32", 1<<45 - 1, nil}, {"9:base36", 101559956668415, nil},
		{"2:base36", 1295, map[int64]string{1: "01", 35: "0Z", 36: "10", 1295: "ZZ"}},
		{"3:letters", 17_575, map[int64]string{1: "AAB", 25: "AAZ", 26: "ABA", 17_575: "ZZZ"}},
		{"3:alpha", 17_576, map[int64]string{1: "AAA", 2: "AAB", 26: "AAZ", 27: "ABA", 17_576: "ZZZ"}},
		{"9:letters", 5_429_503_678_975, nil}, {"9:alpha", 5_429_503_678_976, nil},
	} {
		s := newScheme(t, "{type}-{seq:"+c.seq+"}", "never")
		require.Equal(t, c.last, s.Largest())
		before := ""
		for i := int64(1); i <= 500; i++ {
			n, err := s.Number("T", at, max(1, c.last/500*i, c.last-500+i))
			require.NoError(t, err)
			require.Greater(t, n.text, before)
			before = n.text
			require.Len(t, before, 2+int(c.seq[0]-'0'))
		}
		require.Equal(t, "T-"+strings.Repeat("Z", len(before)-2), before)
		require.ErrorIs(t, errOf(s.Parse(strings.ToLower(before))), template.ErrInvalidNumber)
		for seq, want := range c.samples {
			require.Equal(t, "T-"+want, s.print(t, "T", at, seq).text)
		}
		for _, seq := range []int64{c.last + 1, -1} { // as Peek shows them if something else has written the counter
			require.Equal(t, fmt.Sprint("T-", seq), s.PrintNumber("T", "", "", seq))
		}
	}
	alpha := newScheme(t, "{type}-{seq:3:alpha}", "never")
	require.Equal(t, "T-0", alpha.PrintNumber("T", "", "", 0)) // as Peek shows it before the first number
	require.Equal(t, "{type}-{seq:4:alpha}", alpha.Widen())
	require.Equal(t, "A{type}-{seq:5}B", newScheme(t, "A{type}-{seq}B", "never").Widen())
}

// A hidden sequence is printed as another sequence of the template, and each counter and key has its own mapping.
func TestHiddenSequences(t *testing.T) {
	at := time.Date(2024, 12, 30, 12, 0, 0, 0, time.UTC)
	image := func(seq, words, typ string, at time.Time, n int64) string {
		s := newScheme(t, "{type}{date:yyyyMMdd}{seq:"+seq+"}", hidden+words)
		return s.print(t, typ, at, n).text[len("IS20241230"):]
	}
	require.Len(t, map[string]bool{
		image("6", "", "IS", at, 1): true, image("6", "", "IS", at, 2): true, image("6", "", "PO", at, 1): true,
		image("6", "", "IS", at.AddDate(0, 0, 1), 1): true, image("6", "prefix=other", "IS", at, 1): true,
		image("6", "key=another_key_of_24_bytes.", "IS", at, 1): true, image("6", "shared", "IS", at, 1): true,
	}, 7)
	require.Equal(t, image("6", "shared", "IS", at, 1), image("6", "shared", "PO", at, 1))

	// The alphabet alpha has the same images as letters, for sequences that are larger by 1.
	for seq := int64(1); seq <= 100; seq++ {
		require.Equal(t, image("5:letters", "", "IS", at, seq), image("5:alpha", "", "IS", at, seq+1))
	}
	image("5:alpha", "", "IS", at, 11_881_376)
	for _, text := range []string{"IS20241230AAAAA", "IS20241230ZZZZZ"} {
		n, err := newScheme(t, "{type}{date:yyyyMMdd}{seq:5:alpha}", hidden).Parse(text)
		require.NoError(t, err)
		require.Equal(t, text, n.text)
	}

	// Sequences that cannot be issued are printed in decimal.
	s := newScheme(t, "{type}{date:yyyyMMdd}{seq:6}", hidden)
	require.ErrorContains(t, errOf(s.Int64("20241230", 1)), "hidden")
	zero := s.PrintNumber("IS", "20241230", "20241230", 0)
	require.ErrorContains(t, errOf(s.Parse(zero)), "its sequence is 0 when decrypted")
	for _, seq := range []int64{-1, 1_000_000, 1 << 62} {
		require.Equal(t, fmt.Sprint("IS20241230", seq), s.PrintNumber("IS", "20241230", "20241230", seq))
	}
}

// Numbers become integers only if these sort as the dates and sequences do. A layout stands for a template with a check
// digit.
func TestInt64(t *testing.T) {
	integers := map[string]any{ // an integer, or part of the error
		"yyyy": 2024_0017, "yy": 24_0017, "GGGG": 2025_0017, "GG": 25_0017, "FFFF": 2024_0017, "EE": 25_0017,
		"FFFF-EE": 2024_0017, "EE/FFFF": 2024_0017, "FF-EE": 24_0017, "EEEE-EE": 2025_0017, "MM.yyyy": 202412_0017,
		"HH dd MM yyyy": 2024123015_0017, "ss:mm:HH yy-MM-dd": 241230150405_0017, "DDD/yyyy": 2024365_0017,
		"yyyyDDDHHmmss": 2024365150405_0017, "WW/GGGG": 202501_0017, "Q/FFFF": 20243_0017, "YYYYMMDD": 20241230_0017,
		"BBBB": 2024_0017, "dd/MM/BB": 241230_0017, "FFFF-EE 'H'S": 20242_0017, "yyyy'W'": 2024_0017, "{type}{seq:3}": 17,
		"{type}{seq:4:base32}": "base32", "{type}{seq:4:alpha}": "alpha", "{type}-{seq:1+}": "sequence 17 has outgrown its 1",
		"{type}{date:yyyyMMddHHmmss}{seq:9}": "20241230150405000000017 is larger than", // 2^63 - 1
	}
	for layout := range strings.SplitSeq("MM,dd,DDD,WW,Q,HH,mm,S,yyyy-FFFF,yyyy-GGGG,FFFFMM,GGGGWWdd,yyyyWW,yyyyQ,EEEEQ,"+
		"yyyyMMDDD,yyyydd,yyyyMMHH,yyyyMMddmm,yyyyMMddHHss,yyyyDDDmm,GGGGWWHH,yyyy-M.,yyyyMmm,yyyy R-,yyyyMM.d.,yyyyS,"+
		"FFFFSQ,EEEES,yyyyHH,yyyyMMddWW", ",") {
		integers[layout] = "do not sort as integers"
	}
	for pattern, want := range integers {
		if !strings.Contains(pattern, "{") {
			pattern = "{type}{date:" + pattern + "}{check:luhn}{seq}"
		}
		s := newScheme(t, pattern, "never 04-06")
		span, err := s.Dates.SpanAt(time.Date(2024, 12, 30, 15, 4, 5, 0, time.UTC))
		require.NoError(t, err)
		got, err := s.Int64(span.Date, 17)
		if part, ok := want.(string); ok {
			require.ErrorContains(t, err, part, pattern)
			continue
		}
		require.NoError(t, err, pattern)
		require.EqualValues(t, want, got, pattern)
	}
}

// Two templates that could print different sequences as the same number have different print marks. Widths, literals
// and spellings do not count.
func TestPrintMarks(t *testing.T) {
	mark := func(pattern, words string) string {
		m := newScheme(t, pattern, words).PrintMark()
		require.Len(t, m, 12)
		return m
	}
	for _, same := range [][]string{ // a unit, and templates with the same mark
		{"week", "{type}{date:GGGGWW}{seq:4}", "A{type}-{date:GG-WW}/{seq:9}"},
		{"day", "{type}{date:FFFFMMdd}{seq:4:base32}", "{type}{date:FFMMDD}{seq:9:base32}"},
		{"year", "{type}{date:FFFF-EE}{seq}", "{type}{date:FF/EEEE}{seq}"},
		{"day", "{type}{date:YYYYMMddFFFF}{seq}", "{type}{date:yyMMDDFF}{seq}"},
		{"day", "{type}{date:BBBBMMMdd}{seq}", "{type}{date:BBMmm'x'd}-{seq}"},
		{"day", "{type}{date:yyyyMMdd}{seq}", "{type}{date:yy'W'/M/d}-{seq}", "{type}{date:YYYYMMDD}-{seq:4+}",
			"{{{type}.{date:yy年MM月dd日}{seq:15}}}"},
	} {
		for _, other := range same[2:] {
			require.Equal(t, mark(same[1], same[0]), mark(other, same[0]), other)
			require.Equal(t, mark(other, same[0]), mark(other, same[0]+" 04-06"), other)
		}
	}
	different := map[string]string{}
	for pattern := range strings.FieldsSeq(`
		{type}{date:GGGGWW}{seq:6} {type}{seq:6}{date:GGGGWW} {date:GGGGWW}{type}{seq:6} {type}{date:WWGGGG}{seq:6}
		{type}{date:GGGGWWdd}{seq:6} {type}{date:GGGGWW}{seq:6:base32} {type}{date:GGGGWW}{seq:6:base36}
		{type}{date:GGGGWW}{seq:6:letters} {type}{date:GGGGWW}{seq:6:alpha} {type}{date:GGGGWW}{seq:6}{check:luhn}
		{type}{date:GGGGWW}{seq:6}{check:731} {type}{date:GGGGWW}{seq:6}{check:damm}
		{type}{date:GGGGWW}{check:damm}{seq:6} {type}{date:yyyyMMdd}{seq:6} {type}{date:yyyyDDD}{seq:6}
		{type}{date:FFFFMMdd}{seq:6} {type}{date:BBBBMMdd}{seq:6} {type}{date:yyyyMMMdd}{seq:6}
		{type}{date:yyyyMMddS}{seq:6} {type}{date:yyyyMMddQ}{seq:6} {type}{date:yyyy-R-dd}{seq:6}`) {
		for _, key := range []string{"", hidden, " key=fedcba9876543210"} {
			m := mark(pattern, "week"+key)
			require.Empty(t, different[m], pattern+key)
			different[m] = pattern + key
		}
	}
}

// Numbers as printed, those with check digits as published or as their standard prints them. With another last digit,
// such a number is refused.
func TestTemplates(t *testing.T) {
	at := time.Date(2021, 10, 24, 15, 30, 59, 0, time.UTC)
	for _, c := range []struct {
		words, pattern, typ string
		seq                 int64
		want                string
	}{
		{"", "{type}{date:yyyyMMdd}{seq:4}", "IS", 7, "IS202110240007"},
		{"", "{seq:1}/{date:dd.MM.yyyy}/{type}", "a/b", 7, "7/24.10.2021/a/b"},
		{"", "{{{type}}}{date:yyyy年MM月dd日}号{seq:3}", "订单", 7, "{订单}2021年10月24日号007"},
		{"month", "{date:MM/yy}/{type}/{seq:4}", "IS", 42, "10/21/IS/0042"},
		{"16h", "{type}{date:yyyyMMdd}{seq:4}", "IS", 42, "IS202110230042"},
		{"", "{type}{date:yyyyMMdd}-{seq:4+}", "IS", 999_999_999_999_999, "IS20211024-999999999999999"},
		{"", "No {seq:1+} of {type}{date:yyyyMMdd}", "IS", 10, "No 10 of IS20211024"},
		{"", "{type}{date:yyyyddMMM}{seq:1+}", "IS", 10, "IS202124OCT10"},
		{"", "{seq:1+}{date:Mmm-dd-yyyy} {type}", "IS", 10, "10Oct-24-2021 IS"},
		{"half-year", "{type}{date:yyyy-'H'S}-{seq:4}", "IS", 1, "IS2021-H2-0001"},
		{"", "{type}{date:yyyy''MM'o''clock'dd''''}{seq:2}", "IS", 1, "IS2021'10o'clock24''01"},
		{"", "{type}-{date:d.M.yyyy}-{seq:2}", "IS.1", 1, "IS.1-24.10.2021-01"},
		{"", "{date:d/R/BBBB} {type} {seq:2}", "1", 1, "24/X/2564 1 01"},
		{"second", "{type}{date:yyyyddHHmmMmmss}{seq:2}", "IS", 1, "IS2021241530Oct5901"},
		{"never 04-06", "yyyy Q", "IS", 1, "IS2021 30001"}, // first printed in January

		{"never", "RF{check:97-10}{type}{seq:8}", "5390", 7547034, "RF18539007547034"}, // ISO 11649
		{"never", "{check:gs1}-{type}{seq:9}", "629", 104150021, "3-629104150021"},
		{"never", "{type}{check:gs1}{seq:9}", "629", 104150021, "6293104150021"},
		{"never", "{type}{seq:4}{check:37-36}", "a12425gabc123", 4002, "a12425gabc1234002M"},
		{"never", "+++{type}/{seq:4}/554{check:be97}+++", "090", 9337, "+++090/9337/55493+++"},
		{"never", "{type}{seq:8}{check:s10}GB", "RR", 47312482, "RR473124829GB"},
		{"never", "{type}-{date:'7'MMM-}{seq:7}-GB{check:s10}", "RR", 3124829, "RR-7OCT-3124829-GB5"},
		{"never", "{type}{seq:8}{check:s10}", "१", 8, "१000000080"}, // digits of another script do not count
	} {
		s := newScheme(t, c.pattern, c.words)
		require.Equal(t, c.want, s.print(t, c.typ, at, c.seq).text)
		if strings.Contains(c.pattern, "{check:") {
			wrong := []byte(c.want)
			i := strings.LastIndexAny(c.want, "0123456789")
			wrong[i] = '0' + (wrong[i]-'0'+1)%10
			err := errOf(s.Parse(string(wrong)))
			require.ErrorIs(t, err, template.ErrCheckDigit, "%s", wrong)
			require.ErrorIs(t, err, template.ErrInvalidNumber)
		}
	}
	require.Empty(t, newScheme(t, "", "").PrintNumber("IS", "", "20211024", 1), "the date is not known")
	const padded = "{type}{date:yyyyMMdd}{seq:4} "
	for text, accepted := range map[string][2]bool{ // by the default template, and by one that is padded itself
		"IS202110240007": {true, false}, "IS202110240007 ": {true, true}, " IS202110240007\t": {true, false},
		"\u00a0IS202110240007": {true, false},
	} {
		for i, pattern := range []string{"", padded} {
			n, err := newScheme(t, pattern, "").ParseStored(text)
			require.Equal(t, accepted[i], err == nil && n.Seq == 7, "%q with %q", text, pattern)
		}
	}
}

// Texts, and either their date or the error. The date is the first instant at which the period prints it, even if it
// recurs. Errors match ErrImpossibleDate if only the date is wrong.
func TestParse(t *testing.T) {
	sentinels := map[error]*regexp.Regexp{
		template.ErrImpossibleDate: regexp.MustCompile("has no |there is no |before 1970|end of all time"),
		template.ErrCheckDigit:     regexp.MustCompile("wrong check digit"),
		template.ErrInvalidType:    regexp.MustCompile("invalid type|65 bytes"),
	}
	for _, c := range []struct {
		words, pattern string
		texts, want    string // separated by commas; RFC 3339, or part of the error
	}{
		{"second", "yyyyMMddHHmmss", "IS202110241530600001", "there is no second 2021-10-24 15:30:60"},
		{"second America/New_York", "yyyyMMddHHmmss", "IS202503090230000001",
			"America/New_York has no second 2025-03-09 02:30:00"},
		{"second America/New_York", "yyyyMMddHHmmss", "IS202511020130000001", "2025-11-02T01:30:00-04:00"},
		{"hour America/New_York", "yyyyMMddHH", "IS20250309020001", "America/New_York has no hour 2025-03-09 02"},
		{"Pacific/Apia", "", "IS201112300001", "Pacific/Apia has no day 2011-12-30"},
		{"Pacific/Apia 4h", "", "IS201112300001", "2011-12-31T00:00:00+14:00"},
		{"America/New_York 150m", "", "IS202503090001", "2025-03-09T03:00:00-04:00"},
		{"month 4h", "yyyyMM", "IS2021100001", "2021-10-01T04:00:00Z"},
		{"Asia/Shanghai", "", "IS197001010001", "1970-01-01T00:00:00+08:00"},

		{"year 04-06", "FFFF Q dd", "IS2024 3 300001", "2024-10-30T00:00:00Z"},
		{"04-06", "yyyyMMdd mm", "IS20241230 040001", "2024-12-30T00:04:00Z"},
		{"04-06", "yyyyMMdd ss", "IS20241230 050001", "2024-12-30T00:00:05Z"},
		{"never 04-06", "MM", "IS120001", "1970-12-01T00:00:00Z"},
		{"never 04-06", "yyyy Q", "IS2024 30001", "2024-01-01T00:00:00Z"}, // also from 6 October on
		{"never 04-06", "GGGG", "IS20250001", "2024-12-30T00:00:00Z"},
		{"never 04-06", "WW Q", "IS01 30001", "1970-01-01T00:00:00Z"},

		// Dates that the template cannot have printed, even if they look like a date.
		{"year 04-06", "FF-FFFF", "IS24-21240001", "there is no date 24-2124"},
		{"04-06", "yyMMdd FF", "IS000405 990001", "there is no date"}, // of 1999
		{"week 04-06", "GGGG-WW", "IS2024-530001, IS2020-000001", "there is no date 202"},
		{"week 04-06", "yyyyMM GGGGWW", "IS202411 2025010001", "there is no date"},
		{"year 04-06", "FFFF MM dd", "IS2024 02 290001", "there is no date"}, // it is in 2023
		{"04-06", "yyyyDDD", "IS20233660001", "there is no date"},
		{"half-year 04-06", "FFFF-S", "IS2024-30001", "there is no date"},
		{"04-06", "yyyy-M-d.", "IS2024-07-1.0001, IS2024--1.0001, IS2024-123-1.0001", "want the month (MM) without padding"},
		{"04-06", "yyyy-M-d.", "IS2024-6-31.0001", "there is no day 2024-06-31"},
		{"04-06", "yyyy-R-dd", "IS2024-IIII-010001, IS2024--010001", `, want one of I, II, III, IV,`},
		{"04-06", "yyyyMMMdd", "IS2024Jan010001", `got "Jan", want one of JAN, FEB,`},
		{"year 04-06", "'W'FFFF", "ISw20240001", `got "w", want "W"`},
		{"04-06", "BBBBMMdd", "IS251201010001", "before 1970"},
		{"04-06", "BBBBMMdd", "IS000001010001, IS256702300001", "there is no date"},
		{"never 04-06", "yyyyMMdd", "IS999912310001", "is not before the end of all time"},
		{"never 04-06", "yyyyMMdd", "IS196912310001", "before 1970"},
		{"America/Santiago", "", "IS196912310001", "before 1970"}, // ends after 1970 has begun in UTC
		{"4h", "", "IS196912310001", "before 1970"},
		{"year 04-06", "FFFF", "IS19680001", "is before 1970"},
		{"year 04-06", "FFFF", "IS19690001", "1969-04-06T00:00:00Z"}, // begins before 1970 and ends after it

		{"", "", "202110240001", "it has 12 bytes; at least 13 are needed"},
		{"", "", "IS20211024001", `got "S202", want 4 decimal digits`}, // without padding, every field shifts
		{"", "", "IS202110240000", "sequence is 0"},
		{"", "", " IS202110240001", `invalid type " IS": it contains ' '`},
		{"", "", "IS20211024+001", "want 4 decimal digits"},
		{"", "", strings.Repeat("x", 65) + "202110240001", "65 bytes"},
		{"", "{type}-{date:yyMMdd}-{seq:6}", "PO_211024-000001", `got "_", want "-"`},
		{"never", "{type}{seq:8}{check:s10}", "R1000000080", `invalid type "R1": {check:s10} covers 8 digits`},
		{"never", "{type}-{seq}{check:37-36}", "订单-00010", `invalid type "订单": {check:37-36} covers letters`},
		{"never", "{type}-{seq:3:letters}", "T-AAA", "its sequence is 0"},
		{"never", "{type}-{seq:3:letters}", "T-AA1", `got "AA1", want 3 letters (ABCDEFGHIJKLMNOPQRSTUVWXYZ)`},
		{"never", "{type}-{seq:4:base32}", "T-000I, T-000L, T-000O, T-000U", "want 4 base32 digits"}, // misread letters
		{"never shared", "A{seq}", "A00011", `"1" is left over at its end`},
		{"never shared", "{seq:4+}-B", "12345-", "its end is missing"},

		// A wrong check digit is reported before a sequence of 0 or a date that does not exist.
		{"month", "{type}{date:yyyyMM}{seq}{check:luhn}", "IS20241200018, IS20241200008, IS20241300018",
			"is not a number of this scheme: wrong check digit"},
		{"", "{check:luhn}{type}{date:yyyyMMdd}{seq:4}", "５IS202110240001", "wrong check digit: got …, want"},

		{"", "{type}{date:yyyyMMdd}-{seq:4+}", "IS20211024-00001", "00001 is padded to more than 4 digits"},
		{"", "{type}{date:yyyyMMdd}-{seq:4+}", "IS20211024-001", "3 digits; want 4 to 15"},
		{"", "{type}{date:yyyyMMdd}-{seq:4+}", "IS20211024-1000000000000000", "16 digits; want 4 to 15"},
		{"", "{type}{date:yyyyMMdd}-{seq:4+}", "20211024-10000", "nothing is left for its type"},
		{"", "{type}{date:yyyyMMdd}-{seq:4+}", "IS20211024.10000", `got ".", want "-"`},
		{"", "{type}{date:yyyyMMdd}-{seq:4+}", "IS20211024-10000-", "0 digits"},
		{"", "-{seq:4+}-{date:yyyyMMdd}{type}", "-00001-20211024IS", "padded to more than 4 digits"},

		// The width of a field may cut a character. The error does not contain a part of that character.
		{"", "", "IS20211024０００１", `got "０…", want 4 decimal digits (0123456789)`},
		{"", "", "IS２0211024000",
			`scheme: invalid type "IS２": it contains "２" (U+FF12), which Unicode normalization (NFKC) changes to "2"`},
		{"", "", "ISé20211024001", `got "…202", want 4 decimal digits`},
		{"", "", "IS20211024000\xe9", `"IS20211024000\xe9" is not a number of this scheme`},
		{"", "{date:yyyyMMdd}{seq:4}{type}", "2021102400１IS", `got "00…"`},
		{"", "{type}/{date:yyyy'/'MMdd}{seq:4}", "IS/2021／240001", `got "…", want "/"`},
		{"", "yyyyMmmdd", "IS2021Oｃ20001", `got "O…", want one of Jan,`},
	} {
		scheme := newScheme(t, c.pattern, c.words)
		for text := range strings.SplitSeq(c.texts, ", ") {
			n, err := scheme.Parse(text)
			if strings.Contains(c.want, "T") && err == nil {
				require.Equal(t, c.want, n.Date.Format(time.RFC3339), text)
				require.Equal(t, text, n.text)
				continue
			}
			require.ErrorContains(t, err, c.want, text)
			require.ErrorIs(t, err, template.ErrInvalidNumber)
			require.True(t, utf8.ValidString(err.Error()), "%q", err)
			require.False(t, utf8.ValidString(text) && strings.Contains(err.Error(), `\x`), "%q", err)
			for sentinel, words := range sentinels {
				require.Equal(t, words.MatchString(c.want), errors.Is(err, sentinel), "%s: %v", text, sentinel)
			}
			err = errOf(scheme.Parse(strings.TrimSuffix(text, "0001") + "0000")) // the sequence is wrong too
			require.NotErrorIs(t, err, template.ErrImpossibleDate)
		}
	}
	require.ErrorIs(t, newScheme(t, "{seq}", "never shared").CheckType("IS"), template.ErrInvalidType)
}
