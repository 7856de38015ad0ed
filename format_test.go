package serial_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

// Every period prints what tells it from the others, and reads back.
func TestTemplates(t *testing.T) {
	at := time.Date(2021, 10, 24, 15, 30, 59, 0, time.UTC)
	for _, c := range []struct {
		per      serial.Period
		dayStart time.Duration
		template string
		typ      string
		seq      int64
		want     string
		integer  int64 // 0: it does not fit, or has outgrown its width
	}{
		{serial.PerDay, 0, "{type}{date:yyyyMMdd}{seq:4}", "IS", 7, "IS202110240007", 202110240007},
		{serial.PerDay, 0, "{type}{date:YYYYMMDD}{seq}", "IS", 7, "IS202110240007", 202110240007},
		{serial.PerDay, 0, "{type}-{date:yyMMdd}-{seq:6}", "PO", 7, "PO-211024-000007", 211024000007},
		{serial.PerDay, 0, "{seq:1}/{date:dd.MM.yyyy}/{type}", "a/b", 7, "7/24.10.2021/a/b", 202110247},
		{serial.PerDay, 0, "{{{type}}}{date:yyyy年MM月dd日}号{seq:3}", "订单", 7, "{订单}2021年10月24日号007", 20211024007},
		{serial.PerDay, 0, "{date:ddMMyy}{seq:15}{type}", "7", 7, "2410210000000000000077", 0},
		{serial.PerDay, 0, "{date:yyyyMMdd}{seq:10}{type}", "x", 7, "202110240000000007x", 202110240000000007},
		{serial.PerDay, 0, "{date:yyyyMMdd}{seq:11}{type}", "x", 7, "2021102400000000007x", 2021102400000000007},
		{serial.PerDay, 0, "{date:yyyyMMdd}{seq:12}{type}", "x", 7, "20211024000000000007x", 0},
		{serial.PerDay, 0, "No. {type} {date:yyyy MM dd} {seq:4}.", strings.Repeat("x", 64), 7,
			"No. " + strings.Repeat("x", 64) + " 2021 10 24 0007.", 202110240007},

		{serial.PerSecond, 0, "{type}{date:yyMMddHHmmss}{seq:4}", "IS", 1, "IS2110241530590001", 2110241530590001},
		{serial.PerSecond, 0, "{type}-{date:dd.MM.yyyy HH:mm:ss}-{seq:1}", "IS", 7,
			"IS-24.10.2021 15:30:59-7", 202110241530597},
		{serial.PerMinute, 0, "{type}{date:yyyyMMddHHmm}{seq:6}", "IS", 42, "IS202110241530000042", 202110241530000042},
		{serial.PerHour, 0, "{type}{date:yyyyMMddHH}{seq:4}", "IS", 42, "IS20211024150042", 20211024150042},
		{serial.PerMonth, 0, "{type}{date:yyyyMM}{seq:4}", "IS", 42, "IS2021100042", 2021100042},
		{serial.PerMonth, 0, "{date:MM/yy}/{type}/{seq:4}", "IS", 42, "10/21/IS/0042", 21100042},
		{serial.PerYear, 0, "{type}{date:yyyy}{seq:4}", "IS", 42, "IS20210042", 20210042},
		{serial.PerYear, 0, "{date:yy}{type}{seq:4}", "IS", 42, "21IS0042", 210042},
		{serial.PerDay, 15 * time.Hour, "{type}{date:yyyyMMdd}{seq:4}", "IS", 42, "IS202110240042", 202110240042},
		{serial.PerDay, 16 * time.Hour, "{type}{date:yyyyMMdd}{seq:4}", "IS", 42, "IS202110230042", 202110230042},

		{serial.PerDay, 0, "{type}{date:yyyyMMdd}-{seq:4+}", "IS", 1, "IS20211024-0001", 202110240001},
		{serial.PerDay, 0, "{type}{date:yyyyMMdd}-{seq:4+}", "IS", 9999, "IS20211024-9999", 202110249999},
		{serial.PerDay, 0, "{type}{date:yyyyMMdd}-{seq:4+}", "IS", 10000, "IS20211024-10000", 0},
		{serial.PerDay, 0, "{type}{date:yyyyMMdd}-{seq:4+}", "IS", 999_999_999_999_999, "IS20211024-999999999999999", 0},
		{serial.PerDay, 0, "{type}{date:yyyyMMdd}-{seq:15+}", "IS", 999_999_999_999_999, "IS20211024-999999999999999", 0},
		{serial.PerDay, 0, "No {seq:1+} of {type}{date:yyyyMMdd}", "IS", 10, "No 10 of IS20211024", 0},
		{serial.PerDay, 0, "{date:yyyy年MM月dd日}{seq:4+}/{type}", "IS", 10000, "2021年10月24日10000/IS", 0},
		{serial.PerDay, 0, "{type}{{{seq:4+}}}{date:yyMMdd}", "IS", 10000, "IS{10000}211024", 0},
		{serial.PerSecond, 0, "{type}.{seq:4+}{date:-yyMMddHHmmss}", "IS", 10000, "IS.10000-211024153059", 0},
	} {
		t.Run(fmt.Sprint(c.template, c.seq, c.dayStart), func(t *testing.T) {
			s := newScheme(t, serial.WithTemplate(c.template), serial.WithDayStart(c.dayStart), serial.WithPeriod(c.per))
			n, err := s.Number(c.typ, at, c.seq)
			require.NoError(t, err)
			require.Equal(t, c.want, n.String())
			requireResult(t, n)(s.Parse(c.want))
			integer, err := n.Int64()
			if c.integer == 0 {
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
	rdb := closing(t, redis.NewClient(&redis.Options{}))
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
			template := before + order[0] + first + order[1] + second + order[2] + end
			gen, err := serial.New(rdb, serial.WithTemplate(template), serial.WithLocation(time.UTC))
			if err != nil {
				require.ErrorContains(t, err, "{seq:2+}: a sequence that may grow needs a literal", template)
				continue
			}
			accepted++
			printed := map[string]serial.Number{}
			for _, typ := range types {
				for _, seq := range seqs {
					for _, day := range days {
						n, err := gen.Scheme().Number(typ, day, seq)
						require.NoError(t, err)
						s := n.String()
						if other, twice := printed[s]; twice {
							require.Fail(t, "reads the same", "%s: %q is %v and %v", template, s, n, other)
						}
						printed[s] = n
						back, err := gen.Parse(s)
						if err != nil || back != n {
							require.Fail(t, "does not read back", "%s: %q: %v %v", template, s, back, err)
						}
					}
				}
			}
		}
	}
	require.Greater(t, accepted, 500)
}

// Types and key prefixes are names by one rule, which internal/name tests in full.
func TestTypesAndPrefixes(t *testing.T) {
	rdb := closing(t, redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}))
	gen := newGenerator(t, rdb)
	for _, name := range []string{"IS", "A-b_c.d/9", strings.Repeat("x", 64), "入库", "송장", "१२३", "𠀀"} {
		n, err := gen.Parse(name + "202110240001")
		require.NoError(t, err, name)
		require.Equal(t, name, n.Type)
		newGenerator(t, rdb, serial.WithKeyPrefix(name))
	}
	for name, says := range map[string]string{
		"":                      "empty; want 1 to 64 bytes",
		strings.Repeat("x", 65): "65 bytes; want 1 to 64",
		"a\xff":                 "not valid UTF-8",
		"a:b":                   "it has ':' (U+003A); want letters, digits and - _ . /",
		"IS\u115f":              "it has U+115F, which prints nothing",
		"ＩＳ":                    `it has "Ｉ" (U+FF29), which NFKC changes to "I"`,
	} {
		_, err := gen.Next(t.Context(), name)
		require.ErrorIs(t, err, serial.ErrInvalidType, "%q", name)
		require.ErrorContains(t, err, says)
		require.ErrorContains(t, errOf(serial.New(rdb, serial.WithKeyPrefix(name))), says)
		if name != "" {
			require.ErrorIs(t, errOf(gen.Parse(name+"202110240001")), serial.ErrInvalidType, "%q", name)
		}
	}
}

func TestNumbersThatNoGeneratorMade(t *testing.T) {
	var n serial.Number
	require.Empty(t, n.String())
	require.Error(t, errOf(n.Int64()))
	n = serial.Number{Type: "IS", Start: time.Now(), Seq: 1}
	require.Empty(t, n.String())
	require.Error(t, errOf(n.Int64()))

	n, err := parser(t).Parse("IS202110240001")
	require.NoError(t, err)
	n.Seq = 10_000
	require.Equal(t, "IS2021102410000", n.String())
	require.ErrorContains(t, errOf(n.Int64()), "outgrown")
	n.Seq = -1
	require.Error(t, errOf(n.Int64()))
}

// In JSON a Number is its text, which Parse reads back.
func TestNumbersInJSON(t *testing.T) {
	at := time.Date(2021, 10, 24, 15, 30, 59, 0, time.UTC)
	for _, c := range []struct {
		typ, want string
		opts      []serial.Option
	}{
		{"IS", `"IS202110240007"`, nil},
		{"订单", `"{订单}\"2021年10月24日\\007"`, []serial.Option{
			serial.WithTemplate(`{{{type}}}"{date:yyyy年MM月dd日}\{seq:3}`),
		}},
		{"IS", `"\u003cIS\u003e-10-2021\n0007"`, []serial.Option{
			serial.WithPeriod(serial.PerYear), serial.WithTemplate("<{type}>-{date:MM-yyyy}\n{seq}"),
		}},
		{"IS", `"IS-455143"`, []serial.Option{
			serial.WithPeriod(serial.Never), serial.WithTemplate("{type}-{seq:6}"),
			serial.WithHiddenSequence([]byte("0123456789abcdef")),
		}},
	} {
		s := newScheme(t, c.opts...)
		n, err := s.Number(c.typ, at, 7)
		require.NoError(t, err)
		text, err := n.MarshalText()
		require.NoError(t, err)
		require.Equal(t, n.String(), string(text))

		encoded, err := json.Marshal(map[string]any{"a field": struct{ No serial.Number }{n},
			"list": []*serial.Number{&n, nil}})
		require.NoError(t, err)
		require.Equal(t, `{"a field":{"No":`+c.want+`},"list":[`+c.want+`,null]}`, string(encoded))
		var decoded struct{ List []string }
		require.NoError(t, json.Unmarshal(encoded, &decoded))
		back, err := s.Parse(decoded.List[0])
		require.NoError(t, err)
		require.True(t, n.Equal(back))

		encoded, err = json.Marshal(map[serial.Number]int{n: 3})
		require.NoError(t, err)
		require.Equal(t, "{"+c.want+":3}", string(encoded))
		require.Error(t, json.Unmarshal([]byte(c.want), &n), "a text alone does not tell")
	}

	encoded, err := json.Marshal(struct {
		Zero serial.Number
		Left serial.Number `json:",omitzero"`
	}{})
	require.NoError(t, err)
	require.Equal(t, `{"Zero":""}`, string(encoded))
}

// As an argument of a query, a Number is its text. One that has none is not sent.
func TestNumbersInQueries(t *testing.T) {
	var sent queries
	db := closing(t, sql.OpenDB(&sent))
	n, err := newScheme(t).Number("IS", time.Date(2021, 10, 24, 12, 0, 0, 0, time.UTC), 7)
	require.NoError(t, err)
	require.NoError(t, errOf(db.ExecContext(t.Context(), "INSERT", n, &n, (*serial.Number)(nil))))
	require.Equal(t, queries{"IS202110240007", "IS202110240007", nil}, sent)

	for _, none := range []serial.Number{{}, {Type: "IS", Start: n.Start, Date: n.Date, Seq: 7}} {
		_, err = db.ExecContext(t.Context(), "INSERT", none)
		require.ErrorContains(t, err, "serial: Value of a Number that no Generator or Scheme made")
		require.Len(t, sent, 3)
	}
}

// queries is a driver that keeps the arguments of all queries.
type queries []driver.Value

func (q *queries) Connect(context.Context) (driver.Conn, error) { return queryConn{nil, q}, nil }
func (q *queries) Driver() driver.Driver                        { return nil }

type queryConn struct {
	driver.Conn
	queries *queries
}

func (c queryConn) Close() error { return nil }
func (c queryConn) ExecContext(_ context.Context, _ string, args []driver.NamedValue) (driver.Result, error) {
	for _, arg := range args {
		*c.queries = append(*c.queries, arg.Value)
	}
	return driver.ResultNoRows, nil
}

// A number whose date nobody knows has no text, and is not taken for one that has none either.
func TestNumbersWithoutDate(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		gen := newGenerator(t, m.client(), serial.WithLocation(time.UTC), serial.WithPeriod(serial.PerYear),
			serial.WithTemplate("{type}{date:yyyyMM}{seq:4}"))
		issued, err := gen.NextNumber(t.Context(), "IS")
		require.NoError(t, err)
		require.NoError(t, errOf(gen.NextNumber(t.Context(), "PO")))
		peeked, err := gen.Peek(t.Context(), "IS")
		require.NoError(t, err)
		history, err := gen.History(t.Context(), "IS", 1)
		require.NoError(t, err)
		for _, n := range append(history, peeked) {
			const says = " of sequence 1 of IS: its date is not known, because its template prints more than its period; " +
				"use Type, Start and Seq"
			require.EqualError(t, errOf(n.MarshalText()), "serial: MarshalText"+says)
			require.EqualError(t, errOf(n.Value()), "serial: Value"+says)
			require.ErrorContains(t, errOf(json.Marshal([]serial.Number{n})), says)
			require.False(t, n.Equal(issued))
			require.True(t, n.Equal(peeked))
		}
		require.NoError(t, errOf(gen.NextNumber(t.Context(), "IS")))
		for _, typ := range []string{"IS", "PO"} {
			other, err := gen.Peek(t.Context(), typ)
			require.NoError(t, err)
			require.False(t, other.Equal(peeked))
		}
	})
	_, err := serial.Number{Type: "IS", Seq: 1}.MarshalText()
	require.EqualError(t, err, "serial: MarshalText of a Number that no Generator or Scheme made")
}

// Numbers are the same if their texts, sequences and periods are, whoever made them.
func TestEqual(t *testing.T) {
	at := time.Date(2021, 10, 24, 12, 0, 0, 0, time.UTC)
	number := func(at time.Time, typ string, seq int64, opts ...serial.Option) serial.Number {
		n, err := newScheme(t, opts...).Number(typ, at, seq)
		require.NoError(t, err)
		return n
	}
	n := number(at, "IS", 7)
	same := number(at.Add(time.Hour), "IS", 7, serial.WithLocation(time.FixedZone("like UTC", 0)))
	require.NotEqual(t, n.Start.Location(), same.Start.Location())
	stored := n
	stored.Start = n.Start.In(location(t, "Asia/Shanghai"))
	for _, other := range []serial.Number{n, same, stored} {
		require.True(t, n.Equal(other) && other.Equal(n), "%#v", other)
	}
	for name, other := range map[string]serial.Number{
		"zero":     {},
		"no text":  {Type: n.Type, Start: n.Start, Date: n.Date, Seq: n.Seq},
		"type":     number(at, "IT", 7),
		"sequence": number(at, "IS", 8),
		"day":      number(at.AddDate(0, 0, 1), "IS", 7),
		"template": number(at, "IS", 7, serial.WithTemplate("{type}{date:yyyyMMdd}{seq:5}")),
		"zone":     number(at, "IS", 7, serial.WithLocation(location(t, "Asia/Shanghai"))),   // the same text
		"cut":      number(at, "S", 7, serial.WithTemplate("I{type}{date:yyyyMMdd}{seq:4}")), // the same text
	} {
		require.False(t, n.Equal(other) || other.Equal(n), name)
	}
	require.True(t, serial.Number{}.Equal(serial.Number{}))
	require.False(t, serial.Number{Type: "IS"}.Equal(serial.Number{}))
}

func TestParse(t *testing.T) {
	gen := parser(t)
	n, err := gen.Parse("A-20211024202110249999") // a type that ends like a date
	require.NoError(t, err)
	require.Equal(t, "A-20211024", n.Type)
	require.Equal(t, int64(9999), n.Seq)

	for _, c := range []struct{ s, want string }{
		{"", "0 bytes"},
		{"202110240001", "it has 12 bytes; at least 13 are needed"},
		{"IS20211024001", `got "S202", want 4 decimal digits`}, // padding missing: everything shifts
		{"IS2021102400001", `there is no day 0211-02-40`},
		{"IS202110240000", "sequence is 0"},
		{"IS202106310001", "2021-06-31"},
		{"IS202102290001", "2021-02-29"},
		{"IS202113010001", "2021-13-01"},
		{"IS202100010001", "2021-00-01"},
		{"IS202110000001", "2021-10-00"},
		{"IS196912310001", "before 1970"},
		{"IS000001010001", "before 1970"},
		{" IS202110240001", "' '"},
		{"IS202110240001 ", "want 4 decimal digits"},
		{"IS20211024000x", "want 4 decimal digits"},
		{"IS20211024+001", "want 4 decimal digits"},
		{"I:S202110240001", "':'"},
		{strings.Repeat("x", 65) + "202110240001", "65 bytes"},
		{"IS２０２１10240001", "invalid type"},
	} {
		n, err := gen.Parse(c.s)
		require.ErrorContains(t, err, c.want, "%q", c.s)
		require.ErrorContains(t, err, "is not a number of this scheme")
		require.Zero(t, n)
	}
	require.ErrorIs(t, errOf(gen.Parse("a b202110240001")), serial.ErrInvalidType)

	leap, err := gen.Parse("IS202402290001")
	require.NoError(t, err)
	require.Equal(t, time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC), leap.Start)
	_, err = parser(t, serial.WithLocation(location(t, "Pacific/Apia"))).Parse("IS201112300001")
	require.ErrorContains(t, err, "Pacific/Apia has no day 2011-12-30")
	first, err := parser(t, serial.WithLocation(location(t, "Asia/Shanghai"))).Parse("IS197001010001")
	require.NoError(t, err)
	require.EqualValues(t, -8*3600, first.Start.Unix())
	_, err = parser(t, serial.WithTemplate("{type}-{date:yyMMdd}-{seq:6}")).Parse("PO_211024-000001")
	require.ErrorContains(t, err, `got "_", want "-"`)
}

// Numbers of days that begin or end where clocks change have the day's first instant.
func TestParseOfUnusualDays(t *testing.T) {
	days, err := os.ReadFile("internal/calendar/testdata/days.csv")
	require.NoError(t, err)
	rows := strings.Split(strings.TrimSpace(string(days)), "\n")
	require.Greater(t, len(rows), 10)
	for _, line := range rows[1:] {
		row := strings.Split(line, ",")
		n, err := parser(t, serial.WithLocation(location(t, row[0]))).Parse("IS" + row[1] + "0001")
		require.NoError(t, err)
		require.Equal(t, row[2], strconv.FormatInt(n.Start.Unix(), 10))
	}
}

func TestParseOfPeriods(t *testing.T) {
	newYork := serial.WithLocation(location(t, "America/New_York"))
	apia := serial.WithLocation(location(t, "Pacific/Apia"))
	template := serial.WithTemplate
	second, minute := template("{type}{date:yyyyMMddHHmmss}{seq}"), template("{type}{date:yyyyMMddHHmm}{seq}")
	hour, month := template("{type}{date:yyyyMMddHH}{seq:4}"), template("{type}{date:yyyyMM}{seq}")
	growing, first := template("{type}{date:yyyyMMdd}-{seq:4+}"), template("-{seq:4+}-{date:yyyyMMdd}{type}")
	for _, c := range []struct {
		per  serial.Period
		opts []serial.Option
		s    string
		want string // RFC 3339, or of the error
	}{
		{serial.PerSecond, options(second), "IS202110241530590001", "2021-10-24T15:30:59Z"},
		{serial.PerSecond, options(second), "IS202110241530600001", "there is no second 2021-10-24 15:30:60"},
		{serial.PerSecond, options(second, newYork), "IS202503090230000001",
			"America/New_York has no second 2025-03-09 02:30:00"},
		{serial.PerSecond, options(second, newYork), "IS202511020130000001", "2025-11-02T01:30:00-04:00"},
		{serial.PerMinute, options(minute), "IS2021102423590001", "2021-10-24T23:59:00Z"},
		{serial.PerMinute, options(minute), "IS2021102423600001", "there is no minute 2021-10-24 23:60"},
		{serial.PerMinute, options(minute), "IS2021063100000001", "there is no minute 2021-06-31 00:00"},
		{serial.PerHour, options(hour), "IS20211024230001", "2021-10-24T23:00:00Z"},
		{serial.PerHour, options(hour), "IS20211024240001", "there is no hour 2021-10-24 24"},
		{serial.PerHour, options(hour, newYork), "IS20250309020001", "America/New_York has no hour 2025-03-09 02"},
		{serial.PerHour, options(hour, newYork), "IS20250309030001", "2025-03-09T03:00:00-04:00"},
		{serial.PerHour, options(hour, newYork), "IS20251102010001", "2025-11-02T01:00:00-04:00"},
		{serial.PerHour, options(hour, apia), "IS20111230230001", "Pacific/Apia has no hour 2011-12-30 23"},
		{serial.PerHour, options(hour), "IS19691231230001", "the hour 1969-12-31 23 is before 1970"},
		{serial.PerDay, options(apia), "IS201112300001", "Pacific/Apia has no day 2011-12-30"},
		{serial.PerDay, options(apia, serial.WithDayStart(4*time.Hour)), "IS201112300001", "2011-12-31T00:00:00+14:00"},
		{serial.PerDay, options(newYork, serial.WithDayStart(150*time.Minute)), "IS202503090001",
			"2025-03-09T03:00:00-04:00"},
		{serial.PerMonth, options(month), "IS2021100001", "2021-10-01T00:00:00Z"},
		{serial.PerMonth, options(month, serial.WithDayStart(4*time.Hour)), "IS2021100001", "2021-10-01T04:00:00Z"},
		{serial.PerMonth, options(month), "IS2021130001", "there is no month 2021-13"},
		{serial.PerMonth, options(month), "IS2021000001", "there is no month 2021-00"},
		{serial.PerYear, options(template("{type}{date:yy}{seq}")), "IS210001", "2021-01-01T00:00:00Z"},
		{serial.PerYear, options(template("{type}{date:yyyy}{seq}")), "IS19690001", "the year 1969 is before 1970"},

		{serial.PerDay, options(growing), "IS20211024-00001", "00001 is padded to more than 4 digits"},
		{serial.PerDay, options(growing), "IS20211024-00010000", "padded to more than 4 digits"},
		{serial.PerDay, options(growing), "IS20211024-001", "3 digits; want 4 to 15"},
		{serial.PerDay, options(growing), "IS20211024-1000000000000000", "16 digits; want 4 to 15"},
		{serial.PerDay, options(growing), "20211024-10000", "nothing is left for its type"},
		{serial.PerDay, options(growing), "IS20211024-0000", "its sequence is 0"},
		{serial.PerDay, options(growing), "IS20211024.10000", `got ".", want "-"`},
		{serial.PerDay, options(growing), "IS20211024-10000-", "0 digits"},
		{serial.PerDay, options(template("{type}{date:yyyyMMdd}-{seq:4}")), "IS20211024-10000",
			`got "4-", want 2 decimal digits`},
		{serial.PerDay, options(first), "-00001-20211024IS", "padded to more than 4 digits"},
		{serial.PerDay, options(first), "-001-20211024IS", "3 digits; want 4 to 15"},
	} {
		n, err := parser(t, append(c.opts, serial.WithPeriod(c.per))...).Parse(c.s)
		if strings.Contains(c.want, "T") && err == nil {
			require.Equal(t, c.want, n.Start.Format(time.RFC3339), "%s", c.s)
			require.Equal(t, c.s, n.String())
			continue
		}
		require.ErrorContains(t, err, c.want, "%s", c.s)
		require.Zero(t, n)
	}
}

// A template prints two years alike only where it cannot tell them apart; then it refuses.
func TestYearsThatCannotBePrinted(t *testing.T) {
	m, rdb := startMini(t)
	for _, c := range []struct {
		year     int
		template string
		ok       bool
	}{
		{2099, "{type}{date:yyMMdd}{seq}", true},
		{2100, "{type}{date:yyMMdd}{seq}", false},
		{1999, "{type}{date:yyMMdd}{seq}", false},
		{2100, "{type}{date:yyyyMMdd}{seq}", true},
	} {
		m.FlushAll()
		m.SetTime(time.Date(c.year, 12, 31, 12, 0, 0, 0, time.UTC))
		gen := newGenerator(t, rdb, serial.WithLocation(time.UTC), serial.WithTemplate(c.template), serial.WithMaxSkew(-1))
		n, err := gen.NextNumber(t.Context(), "IS")
		if !c.ok {
			require.ErrorContains(t, err, "cannot be printed as yy")
			require.Empty(t, m.Keys())
			continue
		}
		require.NoError(t, err)
		requireResult(t, n)(gen.Parse(n.String()))
	}
}

// fuzzed is a generator with one of all periods, some zones and year starts, and perhaps a key, or nil where a fuzzer's
// template does not fit.
func fuzzed(t *testing.T, template string, per uint8, dayStart uint32, zone uint8) *serial.Generator {
	rdb := closing(t, redis.NewClient(&redis.Options{}))
	zones := []string{"UTC", "America/New_York", "Pacific/Apia", "Australia/Lord_Howe", "Africa/Monrovia"}
	start, period := yearStarts[int(zone)/len(zones)%len(yearStarts)], serial.Period(per%9+1)
	opts := []serial.Option{
		serial.WithTemplate(template), serial.WithLocation(location(t, zones[int(zone)%len(zones)])),
		serial.WithPeriod(period), serial.WithYearStart(start.month, start.day),
	}
	if period >= serial.PerDay && period != serial.Never {
		opts = append(opts, serial.WithDayStart(time.Duration(dayStart%86400)*time.Second))
	}
	if per >= 128 {
		opts = append(opts, serial.WithHiddenSequence(hiddenKey))
	}
	gen, err := serial.New(rdb, opts...)
	if err != nil {
		require.Nil(t, gen)
		require.True(t, utf8.ValidString(err.Error()))
	}
	return gen
}

// What can be read could have been issued, and reads so.
func FuzzParse(f *testing.F) {
	f.Add("{type}{date:yyyyMMdd}{seq:4}", "IS202110240001", uint8(3), uint32(0), uint8(0))
	f.Add("{type}-{date:yyMMdd}-{seq:6}", "PO-211024-000001", uint8(3), uint32(14400), uint8(1))
	f.Add("{seq:15}{{{type}}}{date:dd年MM月yyyy}", "000000000000001{x}24年10月2021", uint8(3), uint32(9000), uint8(2))
	f.Add("{type}{date:yyMMddHHmmss}{seq:4}", "IS2110241530590001", uint8(0), uint32(0), uint8(3))
	f.Add("{type}{date:yyMM}-{seq:4+}", "IS2110-10000", uint8(4), uint32(1), uint8(4))
	f.Add("-{seq:2+}.{type}{date:yyyy}", "-100.100-.2021", uint8(5), uint32(86399), uint8(0))
	f.Add("{type}{date:GGGG-WW}{seq:4:base32}{check:37-36}", "IS2025-0100011", uint8(6), uint32(14400), uint8(1))
	f.Add("{type}/{date:FFFF-EE}/{seq:4}", "INV/2024-25/0001", uint8(5), uint32(0), uint8(10))
	f.Add("RF{check:97-10}{type}{seq:8}", "RF18539007547034", uint8(8), uint32(0), uint8(0))
	f.Add("{type}{date:yyyy dd}{seq:6}", "IS2024 30000001", uint8(140), uint32(0), uint8(3))
	f.Fuzz(func(t *testing.T, template, s string, per uint8, dayStart uint32, zone uint8) {
		gen := fuzzed(t, template, per, dayStart, zone)
		if gen == nil {
			return
		}
		n, err := gen.Parse(s)
		if err != nil {
			require.Zero(t, n)
			return
		}
		require.Equal(t, s, n.String())
		made, err := gen.Scheme().Number(n.Type, n.Date, n.Seq)
		if n.Date.Year() < 1970 { // a period may begin before, such as Never west of Greenwich
			require.Error(t, err)
			return
		}
		require.NoError(t, err)
		require.Equal(t, made, n)
		if v, err := n.Int64(); err == nil {
			require.Positive(t, v)
		}
	})
}

// Whatever is printed reads back the same; so nothing else prints like it.
func FuzzTemplate(f *testing.F) {
	f.Add("{type}{date:yyyyMMdd}{seq:4}", "IS", int64(1), int64(0), uint8(3), uint32(0), uint8(0))
	f.Add("{date:ddMMyy}{seq:1}{type}", "2410217", int64(9), int64(1728000000), uint8(3), uint32(1), uint8(1))
	f.Add("{date:yyyy-MM-dd HH:}{seq:1+}:{type}", "1:1", int64(10), int64(1762065000), uint8(2), uint32(0), uint8(1))
	f.Add("{type}/{seq:3+}/{date:yyMMddHHmmss}", "1/1", int64(1000), int64(1325239200), uint8(0), uint32(0), uint8(2))
	f.Add("{type}{date:yyMM}-{seq:4+}", "1-1", int64(99999), int64(1325239200), uint8(4), uint32(3600), uint8(2))
	f.Add("{type}{date:GG.WW}{seq:9:base36}{check:97-10}", "x", int64(101559956668415), int64(1735516800), uint8(6),
		uint32(9000), uint8(2))
	f.Add("{date:FF-FFFF Q ss}{type}{seq:1}", "x", int64(9), int64(1735516800), uint8(7), uint32(0), uint8(16))
	f.Add("{date:DDD}{type}{seq:4:base32}", "x", int64(9), int64(1735516800), uint8(143), uint32(0), uint8(13))
	f.Fuzz(func(t *testing.T, template, typ string, seq, at int64, per uint8, dayStart uint32, zone uint8) {
		gen := fuzzed(t, template, per, dayStart, zone)
		if gen == nil {
			return
		}
		n, err := gen.Scheme().Number(typ, time.Unix(at%253402300800, 0), seq)
		if err != nil {
			return
		}
		back, err := gen.Parse(n.String())
		require.NoError(t, err, "%q", n.String())
		require.Equal(t, n, back)
	})
}
