package serial_test

import (
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

// Types and key prefixes must follow the same rule for names. The tests of internal/name cover the rule.
func TestTypesAndPrefixes(t *testing.T) {
	rdb := closing(t, redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}))
	gen := newGenerator(t, rdb)
	for _, name := range []string{"A-b_c.d/9", strings.Repeat("x", 64), "入库", "हिन्दी"} {
		require.Equal(t, name, must(gen.Parse(name+"202110240001")).Type)
		newGenerator(t, rdb, serial.WithKeyPrefix(name))
	}
	for name, says := range map[string]string{
		strings.Repeat("x", 65): "65 bytes; want 1 to 64",
		"a\xff":                 "not valid UTF-8",
		"a:b":                   "it contains ':' (U+003A); want letters with their marks, digits and - _ . /",
		"IS\u115f":              "it contains U+115F, which is invisible",
		"ＩＳ":                    `it contains "Ｉ" (U+FF29), which Unicode normalization (NFKC) changes to "I"`,
	} {
		_, err := gen.Next(t.Context(), name)
		require.ErrorContains(t, err, says)
		require.ErrorContains(t, errOf(serial.New(rdb, serial.WithKeyPrefix(name))), says)
		for _, err := range []error{err, errOf(gen.Parse(name + "202110240001"))} {
			require.ErrorIs(t, err, serial.ErrInvalidType, "%q", name)
		}
	}
	require.ErrorContains(t, errOf(gen.Next(t.Context(), "")), "empty; want 1 to 64 bytes")
	require.ErrorContains(t, errOf(serial.New(rdb, serial.WithKeyPrefix(""))), "empty; want 1 to 64 bytes")
}

// A Number is encoded in JSON as its text, from which Parse must return the same Number. The driver of a database must
// receive this text, too. A Number without text must cause an error, except for the zero Number in JSON.
func TestNumbersEncoded(t *testing.T) {
	convert := driver.DefaultParameterConverter.ConvertValue // as package sql does
	for want, opts := range map[string][]serial.Option{
		`"IS202110240007"`:                     nil,
		`"\u003cIS\u003e\"2021年10月24日\\\n007"`: options(serial.WithTemplate("<{type}>\"{date:yyyy年MM月dd日}\\\n{seq:3}")),
	} {
		s := newScheme(t, opts...)
		n := must(s.Number("IS", auditedDay, 7))
		encoded, err := json.Marshal(map[string]any{"a field": struct{ No serial.Number }{n},
			"list": []*serial.Number{&n, nil}})
		require.NoError(t, err)
		require.Equal(t, `{"a field":{"No":`+want+`},"list":[`+want+`,null]}`, string(encoded))
		var decoded struct{ List []string }
		require.NoError(t, json.Unmarshal(encoded, &decoded))
		back := must(s.Parse(decoded.List[0]))
		require.True(t, n.Equal(back))
		requireResult(t, []byte("{"+want+":3}"))(json.Marshal(map[serial.Number]int{n: 3}))
		require.Error(t, json.Unmarshal([]byte(want), &n), "a text alone does not have its period")
		for value, text := range map[any]any{n: n.String(), &n: n.String(), (*serial.Number)(nil): nil} {
			requireResult[driver.Value](t, text)(convert(value))
		}
		for _, none := range []serial.Number{{}, {Type: "IS", Start: n.Start, Date: n.Date, Seq: 7}} {
			require.Empty(t, none.String())
			require.Error(t, errOf(none.Int64()))
			require.ErrorContains(t, errOf(convert(none)), "Value of a Number that does not come from a Generator or Scheme")
		}
	}
	requireResult(t, []byte(`{"Zero":""}`))(json.Marshal(struct {
		Zero serial.Number
		Left serial.Number `json:",omitzero"`
	}{}))
	_, err := serial.Number{Type: "IS", Seq: 1}.MarshalText()
	require.EqualError(t, err, "serial: MarshalText of a Number that does not come from a Generator or Scheme")
	n := must(parser(t).Parse("IS202110240001"))
	n.Seq = 10_000
	require.Equal(t, "IS2021102410000", n.String())
	require.ErrorContains(t, errOf(n.Int64()), "outgrown")
}

// The date of a number is not known. The number must have no text, and it must differ from the zero Number.
func TestNumbersWithoutDate(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		gen := newGenerator(t, m.Client(), serial.WithLocation(time.UTC), serial.WithPeriod(serial.PerYear),
			serial.WithTemplate("{type}{date:yyyyMM}{seq:4}"))
		issued := must(gen.NextNumber(t.Context(), "IS"))
		require.NoError(t, errOf(gen.NextNumber(t.Context(), "PO")))
		peeked := must(gen.Peek(t.Context(), "IS"))
		for _, n := range append(must(gen.History(t.Context(), "IS", 1)), peeked) {
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
			require.False(t, must(gen.Peek(t.Context(), typ)).Equal(peeked))
		}
	})
}

// Numbers must be equal if their texts, sequences and periods are equal, however they were made.
func TestEqual(t *testing.T) {
	number := func(day int, typ string, seq int64, opts ...serial.Option) serial.Number {
		return must(newScheme(t, opts...).Number(typ, serial.On(2021, time.October, day), seq))
	}
	n := number(24, "IS", 7)
	same := number(24, "IS", 7, serial.WithLocation(time.FixedZone("like UTC", 0)))
	require.NotEqual(t, n.Start.Location(), same.Start.Location())
	stored := n
	stored.Start = n.Start.In(location(t, "Asia/Shanghai"))
	for _, other := range []serial.Number{n, same, stored} {
		require.True(t, n.Equal(other) && other.Equal(n), "%#v", other)
	}
	for name, other := range map[string]serial.Number{
		"zero":     {},
		"no text":  {Type: n.Type, Start: n.Start, Date: n.Date, Seq: n.Seq},
		"type":     number(24, "IT", 7),
		"sequence": number(24, "IS", 8),
		"day":      number(25, "IS", 7),
		"template": number(24, "IS", 7, serial.WithTemplate("{type}{date:yyyyMMdd}{seq:5}")),
		"zone":     number(24, "IS", 7, serial.WithLocation(location(t, "Asia/Shanghai"))),   // the same text
		"cut":      number(24, "S", 7, serial.WithTemplate("I{type}{date:yyyyMMdd}{seq:4}")), // the same text
	} {
		require.False(t, n.Equal(other) || other.Equal(n), name)
	}
	require.True(t, serial.Number{}.Equal(serial.Number{}))
	require.False(t, serial.Number{Type: "IS"}.Equal(serial.Number{}))
}

// Any text that Parse accepts must be a number that could have been issued, with exactly this text. Parse must return
// the same number for every printed number, which proves that no two numbers print the same text. The first arguments
// are the template, the text, and the type, sequence and time of a number; the others select the period, the day start,
// and the zone and the year start. If the template is not valid with these settings, nothing else is tried.
func FuzzParse(f *testing.F) {
	f.Add("{type}{date:yyyyMMdd}{seq:4}", "IS202110240001", "IS", int64(1), int64(0), uint8(3), uint32(0), uint8(0))
	f.Add("{seq:15}{{{type}}}{date:dd年MM月yyyy}", "000000000000001{x}24年10月2021", "x", int64(1), int64(0), uint8(3),
		uint32(9000), uint8(2))
	f.Add("{type}{date:yyMM}-{seq:4+}", "IS2110-10000", "1-1", int64(99999), int64(1325239200), uint8(4),
		uint32(1), uint8(2))
	f.Add("-{seq:2+}.{type}{date:yyyy}", "-100.100-.2021", "x", int64(100), int64(0), uint8(5), uint32(86399), uint8(0))
	f.Add("{type}{date:GGGG-WW}{seq:4:base32}{check:37-36}", "IS2025-0100011", "x", int64(9), int64(1735516800), uint8(6),
		uint32(14400), uint8(1))
	f.Add("{type}/{date:FFFF-EE}/{seq:4}", "INV/2024-25/0001", "1/1", int64(1), int64(0), uint8(5), uint32(0), uint8(10))
	f.Add("RF{check:97-10}{type}{seq:8}", "RF18539007547034", "5390", int64(1), int64(0), uint8(8), uint32(0), uint8(0))
	f.Add("{type}{date:yyyy dd}{seq:6}", "IS2024 30000001", "x", int64(9), int64(1735516800), uint8(143), uint32(0),
		uint8(2))
	f.Add("{date:ddMMyy}{seq:1}{type}", "x", "2410217", int64(9), int64(1728000000), uint8(3), uint32(1), uint8(1))
	f.Add("{date:yyyy-MM-dd HH:}{seq:1+}:{type}", "x", "1:1", int64(10), int64(1762065000), uint8(2), uint32(0), uint8(1))
	f.Add("{type}/{seq:3+}/{date:yyMMddHHmmss}", "x", "1/1", int64(1000), int64(1325239200), uint8(0), uint32(0), uint8(2))
	f.Add("{date:FF-FFFF Q ss}{type}{seq:1}", "x", "x", int64(9), int64(1735516800), uint8(7), uint32(0), uint8(16))
	f.Fuzz(func(t *testing.T, template, s, typ string, seq, at int64, per uint8, dayStart uint32, zone uint8) {
		zones := []string{"UTC", "America/New_York", "Pacific/Apia", "Australia/Lord_Howe", "Africa/Monrovia"}
		start, period := int(zone)/len(zones), serial.Period(per%10+1)
		opts := options(serial.WithTemplate(template), serial.WithLocation(location(t, zones[int(zone)%len(zones)])),
			serial.WithPeriod(period), serial.WithYearStart(time.Month(1+3*start%12), 1+start%28))
		if period >= serial.PerDay && period != serial.Never {
			opts = append(opts, serial.WithDayStart(time.Duration(dayStart%86400)*time.Second))
		}
		if per >= 128 {
			opts = append(opts, serial.WithHiddenSequence(hiddenKey))
		}
		scheme, err := serial.NewScheme(opts...)
		if err != nil {
			require.True(t, utf8.ValidString(err.Error()))
			return
		}
		if n, err := scheme.Number(typ, serial.At(time.Unix(at%253402300800, 0)), seq); err == nil {
			requireResult(t, n, "%q", n.String())(scheme.Parse(n.String()))
		}
		n, err := scheme.Parse(s)
		if err != nil {
			require.Zero(t, n)
			return
		}
		require.Equal(t, s, n.String())
		made, err := scheme.Number(n.Type, serial.At(n.Date), n.Seq)
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
