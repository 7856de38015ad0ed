package serial_test

import (
	"database/sql/driver"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

// Types and key prefixes must follow the same rule for names. The tests of internal/name cover the rule.
func TestTypesAndPrefixes(t *testing.T) {
	gen := parser(t)
	for _, name := range []string{"A-b_c.d/9", strings.Repeat("x", 64), "入库", "हिन्दी"} {
		require.Equal(t, name, must(gen.Parse(name+"202110240001")).Type)
		newScheme(t, serial.WithKeyPrefix(name))
	}
	for name, says := range map[string]string{"": "empty; want 1 to 64 bytes", "a\xff": "not valid UTF-8",
		"a:b": "it contains ':' (U+003A); want letters with their marks, digits and - _ . /"} {
		for call, err := range callsOf(t.Context(), gen, name) {
			require.ErrorIs(t, err, serial.ErrInvalidType, call)
			require.ErrorContains(t, err, says, call)
		}
		require.ErrorContains(t, errOf(serial.NewScheme(serial.WithKeyPrefix(name))), says)
		require.True(t, name == "" || errors.Is(errOf(gen.Parse(name+"202110240001")), serial.ErrInvalidType), "%q", name)
	}
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
		requireResult(t, `{"a field":{"No":`+want+`},"list":[`+want+`,null]}`)(textOfJSON(map[string]any{
			"a field": struct{ No serial.Number }{n}, "list": []*serial.Number{&n, nil}}))
		requireResult(t, "{"+want+":3}")(textOfJSON(map[serial.Number]int{n: 3}))
		var decoded string
		require.NoError(t, json.Unmarshal([]byte(want), &decoded))
		require.True(t, n.Equal(must(s.Parse(decoded))))
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
	requireResult(t, `{"Zero":""}`)(textOfJSON(struct {
		Zero serial.Number
		Left serial.Number `json:",omitzero"`
	}{}))
	require.EqualError(t, errOf(serial.Number{Type: "IS", Seq: 1}.MarshalText()),
		"serial: MarshalText of a Number that does not come from a Generator or Scheme")
	n := must(parser(t).Parse("IS202110240001"))
	n.Seq = 10_000
	require.Equal(t, "IS2021102410000", n.String())
	require.ErrorContains(t, errOf(n.Int64()), "outgrown")
}

func textOfJSON(value any) (string, error) {
	text, err := json.Marshal(value)
	return string(text), err
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
	none := serial.Number{Type: "IS", Start: n.Start, Seq: 7} // its date is not known, so it has no text
	require.True(t, none.Equal(none) && serial.Number{}.Equal(serial.Number{}))
	for _, other := range []serial.Number{{}, {Type: "PO", Start: n.Start, Seq: 7}, {Type: "IS", Start: n.Start, Seq: 8}} {
		require.False(t, none.Equal(other))
	}
}

// Any text that Parse accepts must be a number that could have been issued, with exactly this text. Parse must return
// the same number for every printed number, which proves that no two numbers print the same text. The first arguments
// are the template, the text, and the type, sequence and time of a number; the others select the period, the day start,
// and the zone and the year start. If the template is not valid with these settings, nothing else is tried.
func FuzzParse(f *testing.F) {
	for _, seed := range []struct {
		template, s, typ string
		seq, at          int64
		per              uint8
		dayStart         uint32
		zone             uint8
	}{
		{"{type}{date:yyyyMMdd}{seq:4}", "IS202110240001", "IS", 1, 0, 3, 0, 0},
		{"{seq:15}{{{type}}}{date:dd年MM月yyyy}", "000000000000001{x}24年10月2021", "x", 1, 0, 3, 9000, 2},
		{"{type}{date:yyMM}-{seq:4+}", "IS2110-10000", "1-1", 99999, 1325239200, 4, 1, 2},
		{"{type}{date:GGGG-WW}{seq:4:base32}{check:37-36}", "IS2025-0100011", "x", 9, 1735516800, 6, 14400, 1},
		{"RF{check:97-10}{type}{seq:8}", "RF18539007547034", "5390", 1, 0, 8, 0, 0},
		{"{type}{date:yyyy dd}{seq:6}", "IS2024 30000001", "x", 9, 1735516800, 143, 0, 2},
		{"{date:yyyy-MM-dd HH:}{seq:1+}:{type}", "x", "1:1", 10, 1762065000, 2, 0, 1},
		{"{type}/{seq:3+}/{date:yyMMddHHmmss}", "x", "1/1", 1000, 1325239200, 0, 0, 2},
		{"{date:FF-FFFF Q ss}{type}{seq:1}", "x", "x", 9, 1735516800, 7, 0, 16},
	} {
		f.Add(seed.template, seed.s, seed.typ, seed.seq, seed.at, seed.per, seed.dayStart, seed.zone)
	}
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
