package serial_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

// Types and key prefixes are names by one rule, which internal/name tests in full.
func TestTypesAndPrefixes(t *testing.T) {
	rdb := closing(t, redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}))
	gen := newGenerator(t, rdb)
	for _, name := range []string{"IS", "A-b_c.d/9", strings.Repeat("x", 64), "入库", "송장", "१२३", "𠀀", "हिन्दी", "বই",
		"ใบกำกับ"} {
		n, err := gen.Parse(name + "202110240001")
		require.NoError(t, err, name)
		require.Equal(t, name, n.Type)
		newGenerator(t, rdb, serial.WithKeyPrefix(name))
	}
	for name, says := range map[string]string{
		"":                      "empty; want 1 to 64 bytes",
		strings.Repeat("x", 65): "65 bytes; want 1 to 64",
		"a\xff":                 "not valid UTF-8",
		"a:b":                   "it contains ':' (U+003A); want letters with their marks, digits and - _ . /",
		"IS\u115f":              "it contains U+115F, which is invisible",
		"ＩＳ":                    `it contains "Ｉ" (U+FF29), which Unicode normalization (NFKC) changes to "I"`,
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
		n, err := s.Number(c.typ, serial.At(at), 7)
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
		require.Error(t, json.Unmarshal([]byte(c.want), &n), "a text alone does not have its period")
	}

	encoded, err := json.Marshal(struct {
		Zero serial.Number
		Left serial.Number `json:",omitzero"`
	}{})
	require.NoError(t, err)
	require.Equal(t, `{"Zero":""}`, string(encoded))
}

// As an argument of a query, a Number is its text. A Number without text is not sent.
func TestNumbersInQueries(t *testing.T) {
	var sent queries
	db := closing(t, sql.OpenDB(&sent))
	n, err := newScheme(t).Number("IS", serial.At(time.Date(2021, 10, 24, 12, 0, 0, 0, time.UTC)), 7)
	require.NoError(t, err)
	require.NoError(t, errOf(db.ExecContext(t.Context(), "INSERT", n, &n, (*serial.Number)(nil))))
	require.Equal(t, queries{"IS202110240007", "IS202110240007", nil}, sent)

	for _, none := range []serial.Number{{}, {Type: "IS", Start: n.Start, Date: n.Date, Seq: 7}} {
		_, err = db.ExecContext(t.Context(), "INSERT", none)
		require.ErrorContains(t, err, "serial: Value of a Number that no Generator or Scheme made")
		require.Len(t, sent, 3)
	}
}

// queries is a driver that records the arguments of all queries.
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

// A number whose date is unknown has no text, and is distinguished from an empty one.
func TestNumbersWithoutDate(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		gen := newGenerator(t, m.Client(), serial.WithLocation(time.UTC), serial.WithPeriod(serial.PerYear),
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

// Numbers are equal if their texts, sequences and periods are, whatever made them.
func TestEqual(t *testing.T) {
	at := time.Date(2021, 10, 24, 12, 0, 0, 0, time.UTC)
	number := func(at time.Time, typ string, seq int64, opts ...serial.Option) serial.Number {
		n, err := newScheme(t, opts...).Number(typ, serial.At(at), seq)
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
	n, err = gen.Parse("IS202113010001")
	require.ErrorContains(t, err, "is not a number of this scheme")
	require.Zero(t, n)
	require.ErrorIs(t, errOf(gen.Parse("a b202110240001")), serial.ErrInvalidType)
}

// A template prints two years alike only where it cannot distinguish them; then it refuses.
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

// fuzzed returns a generator with one of all periods, some zones and year starts, and perhaps a key, or nil if a
// fuzzer's template does not fit.
func fuzzed(t *testing.T, template string, per uint8, dayStart uint32, zone uint8) *serial.Generator {
	rdb := closing(t, redis.NewClient(&redis.Options{}))
	zones := []string{"UTC", "America/New_York", "Pacific/Apia", "Australia/Lord_Howe", "Africa/Monrovia"}
	start, period := yearStarts[int(zone)/len(zones)%len(yearStarts)], serial.Period(per%10+1)
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

// A readable number could have been issued, with the same text.
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
		made, err := gen.Scheme().Number(n.Type, serial.At(n.Date), n.Seq)
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

// Every printed number reads back as the same one, so no other number prints like it.
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
		n, err := gen.Scheme().Number(typ, serial.At(time.Unix(at%253402300800, 0)), seq)
		if err != nil {
			return
		}
		requireResult(t, n, "%q", n.String())(gen.Parse(n.String()))
	})
}

// Numbers as firms and tax offices elsewhere print them. Those that no template can tell apart are refused with a
// reason.
func TestFormatsElsewhere(t *testing.T) {
	april, july := serial.WithYearStart(time.April, 1), serial.WithYearStart(time.July, 1)
	for _, c := range []struct {
		number, template string
		per              serial.Period
		typ, day         string // "" for 30 December 2024
		seq              int64
		opt              serial.Option
	}{
		{"SINV-2024-00001", "{type}-{date:yyyy}-{seq:5}", serial.PerYear, "SINV", "", 1, nil},
		{"INV20170500003", "{type}{date:yyyyMM}{seq:5}", serial.PerMonth, "INV", "2017-05-02", 3, nil},
		{"INVOICE/001/07/17/PL", "{type}/{seq:3}/{date:MM/yy}/PL", serial.PerMonth, "INVOICE", "2017-07-31", 1, nil},
		{"SINV-2017-2018-000001", "{type}-{date:FFFF-EEEE}-{seq:6}", serial.PerYear, "SINV", "2018-03-31", 1, april},
		{"INV/17-18/ABC/0002", "INV/{date:FF-EE}/{type}/{seq:4}", serial.PerYear, "ABC", "2017-04-01", 2, april},
		{"T-2024-365-0001", "{type}-{date:yyyy-DDD}-{seq:4}", serial.PerDay, "T", "", 1, nil},
		{"EXAMPLE-05-test-red-42-00001", "{type}-{seq:5}", serial.Never, "EXAMPLE-05-test-red-42", "", 1, nil},
		{"INV/2024/01/0001", "{type}/{date:yyyy/MM}/{seq:4}", serial.PerMonth, "INV", "2024-01-01", 1, nil},
		{"INV/2025/00005", "{type}/{date:yyyy}/{seq:5}", serial.PerYear, "INV", "2025-01-01", 5, nil},
		{"2022F00001", "{date:yyyy}{type}{seq:5}", serial.PerYear, "F", "2022-01-01", 1, nil},
		{"F200520", "{type}{date:yy}{seq:4}", serial.PerYear, "F", "2020-01-01", 520, nil},
		{"045-001-0000001", "{type}-{seq:7}", serial.Never, "045-001", "", 1, nil},
		{"INV/2026/00010A", "{type}/{date:yyyy}/{seq:5}A", serial.PerYear, "INV", "2026-01-01", 10, nil},
		{"26JAN_SEQ_00001", "{date:yyMMM}_{type}_{seq:5}", serial.PerMonth, "SEQ", "2026-01-31", 1, nil},
		{"BILL/2563/0001", "{type}/{date:BBBB}/{seq:4}", serial.PerYear, "BILL", "2020-12-31", 1, nil},
		{"001/INV/XI/2024", "{seq:3}/{type}/{date:R/yyyy}", serial.PerMonth, "INV", "2024-11-30", 1, nil},
		{"FV/001/02/2023", "{type}/{seq:3}/{date:MM/yyyy}", serial.PerMonth, "FV", "2023-02-01", 1, nil},
		{"FA2101-0001", "{type}{date:yyMM}-{seq:4}", serial.PerYear, "FA", "2021-01-01", 1, nil},
		{"INV12340001", "{type}{seq:4}", serial.Never, "INV1234", "", 1, nil},
		{"K1007/2024-1", "{type}/{date:yyyy}-{seq:1+}", serial.PerYear, "K1007", "", 1, nil},
		{"FV 1/2018", "{type} {seq:1+}/{date:yyyy}", serial.PerYear, "FV", "2018-01-01", 1, nil},
		{"INV-1-2023-3", "{type}-{seq:1+}-{date:yyyy-M}", serial.PerMonth, "INV", "2023-03-01", 1, nil},
		{"RE-0351", "{type}-{seq:4}", serial.Never, "RE", "", 351, nil},
		{"INV-2605-063", "{type}-{date:yyMM}-{seq:3}", serial.PerMonth, "INV", "2026-05-01", 63, nil},
		{"DDLI00001/2025", "{type}{seq:5}/{date:yyyy}", serial.PerYear, "DDLI", "2025-01-01", 1, nil},
		{"VET-411600001", "{type}{date:yy}{seq:5}", serial.PerYear, "VET-41", "2016-01-01", 1, nil},
		{"120126-RF-000001", "{date:ddMMyy}-{type}-{seq:6}", serial.PerDay, "RF", "2026-01-12", 1, nil},
		{"ABBV180001", "{type}{date:yy}{seq:4}", serial.PerYear, "ABBV", "2018-01-01", 1, nil},
		{"5200000126", "{type}{seq:8}", serial.Never, "52", "", 126, nil},
		{"0090009128", "{type}{seq:7}", serial.Never, "009", "", 9128, nil},
		{"TS00001", "{type}{seq:5}", serial.Never, "TS", "", 1, nil},
		{"PS-INV103001", "{type}{seq:6}", serial.Never, "PS-INV", "", 103001, serial.WithStart(103001)},
		{"FT A2020/1", "{type} A{date:yyyy}/{seq:1+}", serial.PerYear, "FT", "2020-01-01", 1, nil},
		{"B0100000001", "{type}{seq:8}", serial.Never, "B01", "", 1, nil},
		{"E310000000001", "{type}{seq:10}", serial.Never, "E31", "", 1, nil},
		{"00100001010000000001", "{type}{seq:10}", serial.Never, "0010000101", "", 1, nil},
		{"F001-1", "{type}-{seq:1+}", serial.Never, "F001", "", 1, nil},
		{"AB12345650", "{type}{seq:8}", serial.Never, "AB", "", 12345650, serial.WithStart(12345650)},
		{"SO-99999", "{type}-{seq:5}", serial.Never, "SO", "", 99999, nil},
		{"R24001", "{type}{date:yy}{seq:3}", serial.PerYear, "R", "", 1, nil},
		{"#FA000001/2020", "#{type}{seq:6}/{date:yyyy}", serial.PerYear, "FA", "2020-01-01", 1, nil},
		{"SEQ-AAB", "{type}-{seq:3:letters}", serial.Never, "SEQ", "", 1, nil},
		{"FY24/25-0001", "{type}{date:FF/EE}-{seq:4}", serial.PerYear, "FY", "2025-06-30", 1, july},
		{"Q1/2024-0001", "{type}{date:Q/yyyy}-{seq:4}", serial.PerQuarter, "Q", "2024-03-31", 1, nil},
		{"123456700000017", "{type}{seq:7}{check:luhn}", serial.Never, "1234567", "", 1, nil},
		{"1234561", "{type}{seq:5}{check:731}", serial.Never, "1", "", 23456, nil},
		{"090933755493", "{type}{seq:7}{check:be97}", serial.Never, "090", "", 9337554, nil},
		{"210000000003139471430009017", "{type}{seq:15}{check:10r}", serial.Never, "21000000000", "", 313947143000901, nil},
	} {
		at := time.Date(2024, time.December, 30, 12, 0, 0, 0, time.UTC)
		if c.day != "" {
			at = utc(t, c.day)
		}
		opts := options(serial.WithLocation(time.UTC), serial.WithPeriod(c.per), serial.WithTemplate(c.template))
		if c.opt != nil {
			opts = append(opts, c.opt)
		}
		s, err := serial.NewScheme(opts...)
		require.NoError(t, err, c.number)
		n, err := s.Number(c.typ, serial.At(at), c.seq)
		require.NoError(t, err, c.number)
		require.Equal(t, c.number, n.String())
		requireResult(t, n)(s.Parse(c.number))
	}
	for template, c := range map[string]struct {
		per  serial.Period
		want string
	}{
		"{type}-{date:yyyy-WW}-{seq:4}":      {serial.PerWeek, "print GGGG-WW"},               // T-2024-01-0001
		"{type}/{date:FFFF-EEEE/MM}/{seq:4}": {serial.PerMonth, "does not tell months apart"}, // INV/2024-2025/03/0001
	} {
		_, err := serial.NewScheme(serial.WithPeriod(c.per), serial.WithTemplate(template),
			serial.WithYearStart(time.March, 16))
		require.ErrorContains(t, err, c.want)
	}
}
