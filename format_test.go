package serial_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

// parser is a generator that is never asked to issue.
func parser(t testing.TB, opts ...serial.Option) *serial.Generator {
	rdb := redis.NewClient(&redis.Options{})
	t.Cleanup(func() { _ = rdb.Close() })
	gen, err := serial.New(rdb, append([]serial.Option{serial.WithLocation(time.UTC)}, opts...)...)
	require.NoError(t, err)
	return gen
}

func TestTemplates(t *testing.T) {
	m := miniredis.RunT(t)
	m.SetTime(time.Date(2021, 10, 24, 12, 0, 0, 0, time.UTC))
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	defer func() { _ = rdb.Close() }()
	for i, c := range []struct {
		template, typ string
		want          string
		integer       int64 // 0: it does not fit
	}{
		{"{type}{date:yyyyMMdd}{seq:4}", "IS", "IS202110240007", 202110240007},
		{"{type}{date:YYYYMMDD}{seq}", "IS", "IS202110240007", 202110240007},
		{"{type}-{date:yyMMdd}-{seq:6}", "PO", "PO-211024-000007", 211024000007},
		{"{seq:1}/{date:dd.MM.yyyy}/{type}", "a/b", "7/24.10.2021/a/b", 202110247},
		{"{{{type}}}{date:yyyy年MM月dd日}号{seq:3}", "订单", "{订单}2021年10月24日号007", 20211024007},
		{"{date:ddMMyy}{seq:15}{type}", "7", "2410210000000000000077", 0},
		{"{date:yyyyMMdd}{seq:10}{type}", "x", "202110240000000007x", 202110240000000007},
		{"{date:yyyyMMdd}{seq:11}{type}", "x", "2021102400000000007x", 2021102400000000007},
		{"{date:yyyyMMdd}{seq:12}{type}", "x", "20211024000000000007x", 0},
		{"No. {type} {date:yyyy MM dd} {seq:4}.", strings.Repeat("x", 64), "No. " + strings.Repeat("x", 64) + " 2021 10 24 0007.", 202110240007},
	} {
		t.Run(c.template, func(t *testing.T) {
			gen := newGenerator(t, rdb, serial.WithLocation(time.UTC), serial.WithTemplate(c.template), serial.WithMaxSkew(-1),
				serial.WithKeyPrefix(fmt.Sprint(i)))
			require.NoError(t, gen.Raise(t.Context(), c.typ, 6))
			n, err := gen.NextNumber(t.Context(), c.typ)
			require.NoError(t, err)
			require.Equal(t, c.want, n.String())

			back, err := gen.Parse(c.want)
			require.NoError(t, err)
			require.Equal(t, n, back)
			require.True(t, n == back, "numbers can be compared")
			integer, err := n.Int64()
			if c.integer == 0 {
				require.ErrorContains(t, err, "larger than")
			} else {
				require.NoError(t, err)
				require.Equal(t, c.integer, integer)
			}
		})
	}
}

func TestNumbersThatNoGeneratorMade(t *testing.T) {
	var n serial.Number
	require.Empty(t, n.String())
	_, err := n.Int64()
	require.Error(t, err)
	n = serial.Number{Type: "IS", Start: time.Now(), Seq: 1}
	require.Empty(t, n.String())
	_, err = n.Int64()
	require.Error(t, err)

	n, err = parser(t).Parse("IS202110240001")
	require.NoError(t, err)
	n.Seq = 10_000
	require.Equal(t, "IS2021102410000", n.String())
	_, err = n.Int64()
	require.ErrorContains(t, err, "outgrown")
	n.Seq = -1
	_, err = n.Int64()
	require.Error(t, err)
}

func TestFormattingAllocatesTheStringOnly(t *testing.T) {
	n, err := parser(t).Parse("IS202110240001")
	require.NoError(t, err)
	require.EqualValues(t, 1, testing.AllocsPerRun(100, func() { _ = n.String() }))
}

func TestParse(t *testing.T) {
	gen := parser(t)
	n, err := gen.Parse("A-20211024202110249999") // a type that ends like a date
	require.NoError(t, err)
	require.Equal(t, "A-20211024", n.Type)
	require.Equal(t, int64(9999), n.Seq)

	for _, c := range []struct{ s, want string }{
		{"", "0 bytes"},
		{"202110240001", "the least is 13"},
		{"IS20211024001", `"S202" stands where 4 digits belong`}, // padding missing: everything shifts
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
		{"IS202110240001 ", "digits belong"},
		{"IS20211024000x", "digits belong"},
		{"IS20211024+001", "digits belong"},
		{"I:S202110240001", "':'"},
		{strings.Repeat("x", 65) + "202110240001", "65 bytes"},
		{"IS２０２１10240001", "invalid type"},
	} {
		n, err := gen.Parse(c.s)
		require.ErrorContains(t, err, c.want, "%q", c.s)
		require.ErrorContains(t, err, "is no number of this generator")
		require.Zero(t, n)
	}
	_, err = gen.Parse("a b202110240001")
	require.ErrorIs(t, err, serial.ErrInvalidType)

	leap, err := gen.Parse("IS202402290001")
	require.NoError(t, err)
	require.Equal(t, time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC), leap.Start)
	_, err = parser(t, serial.WithLocation(location(t, "Pacific/Apia"))).Parse("IS201112300001")
	require.ErrorContains(t, err, "Pacific/Apia has no day 2011-12-30")
	first, err := parser(t, serial.WithLocation(location(t, "Asia/Shanghai"))).Parse("IS197001010001")
	require.NoError(t, err)
	require.EqualValues(t, -8*3600, first.Start.Unix())
	_, err = parser(t, serial.WithTemplate("{type}-{date:yyMMdd}-{seq:6}")).Parse("PO_211024-000001")
	require.ErrorContains(t, err, `"_" stands where "-" belongs`)
}

// A template prints two years alike only where it cannot tell them apart; then it refuses.
func TestYearsThatCannotBePrinted(t *testing.T) {
	m := miniredis.RunT(t)
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	defer func() { _ = rdb.Close() }()
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
		back, err := gen.Parse(n.String())
		require.NoError(t, err)
		require.Equal(t, n, back)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("{type}{date:yyyyMMdd}{seq:4}", "IS202110240001")
	f.Add("{type}-{date:yyMMdd}-{seq:6}", "PO-211024-000001")
	f.Add("{seq:15}{{{type}}}{date:dd年MM月yyyy}", "000000000000001{x}24年10月2021")
	f.Fuzz(func(t *testing.T, template, s string) {
		rdb := redis.NewClient(&redis.Options{})
		defer func() { _ = rdb.Close() }()
		gen, err := serial.New(rdb, serial.WithTemplate(template), serial.WithLocation(time.UTC))
		if err != nil {
			require.Nil(t, gen)
			require.True(t, utf8.ValidString(err.Error()))
			return
		}
		n, err := gen.Parse(s)
		if err != nil {
			require.Zero(t, n)
			return
		}
		require.Equal(t, s, n.String())
		require.Positive(t, n.Seq)
		require.NotEmpty(t, n.Type)
		if v, err := n.Int64(); err == nil {
			require.Positive(t, v)
		}
	})
}

// Whatever is printed reads back the same, and nothing else prints like it.
func FuzzTemplate(f *testing.F) {
	f.Add("{type}{date:yyyyMMdd}{seq:4}", "IS", int64(1), 0)
	f.Add("{date:ddMMyy}{seq:1}{type}", "2410217", int64(9), 20000)
	f.Fuzz(func(t *testing.T, template, typ string, seq int64, day int) {
		rdb := redis.NewClient(&redis.Options{})
		defer func() { _ = rdb.Close() }()
		gen, err := serial.New(rdb, serial.WithTemplate(template), serial.WithLocation(time.UTC))
		if err != nil {
			return
		}
		n, ok := gen.Made(typ, time.Unix(0, 0).AddDate(0, 0, day), seq)
		if !ok {
			return
		}
		back, err := gen.Parse(n.String())
		require.NoError(t, err, "%q", n.String())
		require.Equal(t, n, back)
	})
}
