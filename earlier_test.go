package serial_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

// retemplated returns a scheme with another template.
func retemplated(t testing.TB, s *serial.Scheme, text string) *serial.Scheme {
	t.Helper()
	other, err := s.WithTemplate(text)
	require.NoError(t, err)
	return other
}

// A text counts for the first scheme that reads it as a number of the audited type and period.
func TestWithEarlier(t *testing.T) {
	t.Parallel()
	wide := newScheme(t, serial.WithPeriod(serial.PerYear), serial.WithTemplate("{type}{date:yyyy}{seq:6}"))
	narrow, slash := retemplated(t, wide, "{type}{date:yyyy}{seq:4}"), retemplated(t, wide, "{date:yyyy}/{type}/{seq:4}")
	base32 := retemplated(t, wide, "{type}{date:yyyy}{seq:4:base32}")
	twenty := retemplated(t, wide, "{type}20{date:yyyy}{seq:6}")
	monthly := newScheme(t, serial.WithPeriod(serial.PerMonth), serial.WithTemplate("{type}{date:MMyy}{seq:4}"))
	turned := retemplated(t, monthly, "{type}{date:yyMM}{seq:4}")
	type outcome struct {
		count, missing, others     int64
		duplicate, beyond, foreign []string
	}
	type schemes []*serial.Scheme
	for name, row := range map[string]struct {
		schemes // the audited one first
		date    serial.When
		texts   []string
		want    outcome
	}{
		"no other scheme": {schemes{wide}, serial.On(2021, 10, 24), []string{"IS2021000002", "IS20210001"},
			outcome{count: 1, missing: 39, foreign: []string{"IS20210001"}}},
		"widened": {schemes{wide, narrow}, serial.On(2021, 10, 24),
			[]string{"IS20210001", "IS2021000002", "IS20210003 ", "IS20219999"},
			outcome{count: 3, missing: 37, beyond: []string{"IS20219999"}}},
		"narrowed": {schemes{narrow, wide}, serial.On(2021, 10, 24), []string{"IS20210001", "IS2021000002", "IS2021010000"},
			outcome{count: 2, missing: 38, beyond: []string{"IS2021010000"}}},
		"changed twice": {schemes{wide, narrow, slash}, serial.On(2021, 10, 24),
			[]string{"IS20210001", "2021/IS/0002", "2021-IS-0003"},
			outcome{count: 2, missing: 38, foreign: []string{"2021-IS-0003"}}},
		"other types and periods, by any scheme": {schemes{wide, narrow, slash}, serial.On(2021, 10, 24),
			[]string{"PO20210001", "IS20200001", "2020/IS/0001", "2021/PO/0001", "PO2021000001", "IS2021000001"},
			outcome{count: 1, missing: 39, others: 5}},
		"printed twice": {schemes{wide, narrow, slash}, serial.On(2021, 10, 24),
			[]string{"IS2021000001", "IS20210001", "2021/IS/0002", "IS20210002", "IS2021000002", "2021/IS/0041"},
			outcome{count: 2, missing: 38, duplicate: []string{"IS20210001", "IS20210002"}, beyond: []string{"2021/IS/0041"}}},

		// IS20210010 is number 10 or, in base 32, number 32.
		"read by two, the first is narrow": {schemes{wide, narrow, base32}, serial.On(2021, 10, 24),
			[]string{"IS20210010", "IS2021000010"}, outcome{count: 1, missing: 39, duplicate: []string{"IS2021000010"}}},
		"read by two, the first is base 32": {schemes{wide, base32, narrow}, serial.On(2021, 10, 24),
			[]string{"IS20210010", "IS2021000032"}, outcome{count: 1, missing: 39, duplicate: []string{"IS2021000032"}}},
		// It is number 3 of type IS20, too.
		"read by the first as of another type": {schemes{wide, twenty}, serial.On(2021, 10, 24),
			[]string{"IS202021000003"}, outcome{count: 1, missing: 39}},
		"which is the audited one": {schemes{twenty, wide}, serial.On(2021, 10, 24),
			[]string{"IS202021000003", "IS2021000003"}, outcome{count: 1, missing: 39, duplicate: []string{"IS2021000003"}}},
		"read by the first as of another period": {schemes{monthly, turned}, serial.On(2011, 12, 24),
			[]string{"IS11120001", "IS12110002"}, outcome{count: 2, missing: 38}},
		"which is audited": {schemes{monthly, turned}, serial.On(2012, 11, 24),
			[]string{"IS11120001", "IS12110002"}, outcome{count: 2, missing: 38}},
	} {
		t.Run(name, func(t *testing.T) {
			var opts []serial.AuditOption
			for _, s := range row.schemes[1:] { // all options count
				opts = append(opts, serial.WithEarlier(s))
			}
			got, err := row.schemes[0].Audit("IS", row.date, 40, used(row.texts...), opts...)
			require.NoError(t, err)
			require.Equal(t, row.want, outcome{got.Count, got.MissingCount, got.OtherCount, texts(got.Duplicates),
				texts(got.Beyond), got.Foreign})
			again, err := row.schemes[0].Audit("IS", row.date, 40, used(row.texts...), serial.WithEarlier(row.schemes[1:]...))
			require.NoError(t, err)
			require.Equal(t, got, again)
		})
	}
}

// Wherever a scheme has the period, its numbers count, and so do explanations with the first instant of that period.
func TestWithEarlierZoneAndDayStart(t *testing.T) {
	t.Parallel()
	zone := func(name string, opts ...serial.Option) *serial.Scheme {
		return newScheme(t, append(opts, serial.WithLocation(location(t, name)))...)
	}
	kolkata := zone("Asia/Kolkata")
	late := zone("America/Sao_Paulo", serial.WithDayStart(4*time.Hour),
		serial.WithTemplate("{type}-{date:yyyyMMdd}-{seq:4}"))
	apia, pago := zone("Pacific/Apia"), zone("Pacific/Pago_Pago", serial.WithTemplate("{type}/{date:yyyyMMdd}/{seq:4}"))
	numbers := used("IS202110240001", "IS-20211024-0002", "IS/20211024/0003", "IS-20211024-0002", "IS-20211025-0001")
	explain := func(start time.Time, seq int64) serial.Explanation {
		return serial.Explanation{Series: "serial:IS", Type: "IS", Start: start, First: seq, Last: seq, Reason: "void",
			At: start, Possible: true}
	}
	startOf := func(s *serial.Scheme, day int) time.Time {
		_, start, _ := s.Period(serial.On(2021, time.October, day))
		return start
	}

	var all []serial.Explanation
	for i, s := range []*serial.Scheme{kolkata, late, apia, pago} {
		all = append(all, explain(startOf(s, 24), 10+int64(i)), explain(startOf(s, 22), 20), explain(startOf(s, 26), 30))
	}
	got, err := kolkata.Audit("IS", serial.On(2021, 10, 24), 40, numbers, serial.WithEarlier(late, apia, pago),
		given(all...))
	require.NoError(t, err)
	require.Equal(t, []int64{3, 1}, []int64{got.Count, got.OtherCount})
	require.True(t, got.Start.Equal(startOf(kolkata, 24)))
	require.Equal(t, []string{"IS-20211024-0002"}, texts(got.Duplicates))
	require.True(t, got.Duplicates[0].Start.Equal(startOf(late, 24)))
	var found []int64
	for _, e := range got.Possible {
		found = append(found, e.First)
		require.Equal(t, got.Start, e.Start)
	}
	require.ElementsMatch(t, []int64{10, 11, 12, 13}, found)

	// The 24th on Pago Pago and the 25th in Apia begin at the same instant: that explanation counts for both.
	require.True(t, startOf(pago, 24).Equal(startOf(apia, 25)))
	for s, day := range map[*serial.Scheme]int{pago: 24, apia: 25} {
		got, err := s.Audit("IS", serial.On(2021, 10, day), 1, used(), serial.WithEarlier(pago, apia),
			given(explain(startOf(pago, 24), 1)))
		require.NoError(t, err)
		require.EqualValues(t, 1, got.PossibleCount)
	}

	// In Apia, there was no 30 December 2011: what is explained there is the 31st.
	_, next, _ := apia.Period(serial.On(2011, 12, 31))
	got, err = kolkata.Audit("IS", serial.On(2011, 12, 30), 1, used(), serial.WithEarlier(apia), given(explain(next, 1)))
	require.NoError(t, err)
	require.Zero(t, got.PossibleCount)
}

// An explanation in a period of the audited label is an error if no period of any scheme begins with it.
func TestWithEarlierRefusesExplanations(t *testing.T) {
	t.Parallel()
	utc, east := newScheme(t), newScheme(t, serial.WithLocation(location(t, "Asia/Kolkata")))
	day := time.Date(2021, 10, 24, 0, 0, 0, 0, time.UTC)
	for at, refused := range map[time.Duration]bool{
		-5*time.Hour - 30*time.Minute: false, -5*time.Hour - 30*time.Minute + 1: true, -time.Hour: true, 0: false, 1: true,
		time.Hour:                     true,
		18*time.Hour + 30*time.Minute: false, // the 25th in Kolkata
		18*time.Hour + 31*time.Minute: true, 24 * time.Hour: false, 25 * time.Hour: false, -6 * time.Hour: false,
	} {
		for audited, earlier := range map[*serial.Scheme]*serial.Scheme{utc: east, east: utc} {
			e := serial.Explanation{Series: "serial:IS", Type: "IS", Start: day.Add(at), First: 1, Last: 2, Reason: "void",
				At: day}
			audit := func() error {
				return errOf(audited.Audit("IS", serial.On(2021, 10, 24), 2, used(), serial.WithEarlier(earlier), given(e)))
			}
			err := audit()
			require.Equal(t, refused, err != nil, "%v: %v", at, err)
			if refused {
				require.ErrorContains(t, err, "serial: explanation of IS 1 to 2: Start "+serial.At(e.Start).String()+
					" lies in the period 2021-10-24, which begins at ")
			}
			e.Series = "serial:PO"
			require.NoError(t, audit())
		}
	}
}

// The only period of Never contains no instant before 1970.
func TestWithEarlierOfNever(t *testing.T) {
	t.Parallel()
	s := newScheme(t, serial.WithPeriod(serial.Never), serial.WithTemplate("{type}{seq:6}"))
	day := time.Date(2021, 10, 24, 0, 0, 0, 0, time.UTC)
	e := serial.Explanation{Series: "serial:IS", Type: "IS", First: 1, Last: 1, Reason: "void", At: day}
	audit := func(start time.Time) (serial.Report, error) {
		e.Start = start
		return s.Audit("IS", serial.At(day), 3, used("IS0002", "IS000003"),
			serial.WithEarlier(retemplated(t, s, "{type}{seq:4}")), given(e))
	}
	got, err := audit(time.Unix(0, 0))
	require.NoError(t, err)
	require.True(t, got.Clean())
	got, err = audit(time.Time{})
	require.NoError(t, err)
	require.Equal(t, []serial.Range{{First: 1, Last: 1}}, got.Unexplained)
	require.ErrorContains(t, errOf(audit(day)), "lies in the period all time")
}

// Settings that must be the same are compared before anything is read.
func TestWithEarlierRefuses(t *testing.T) {
	t.Parallel()
	six := serial.WithTemplate("{type}{date:yyyyMMdd}{seq:6}")
	key := func(last byte) serial.Option { return serial.WithHiddenSequence(append(make([]byte, 15), last)) }
	quarter := serial.WithTemplate("{type}{date:FFFF-Q}{seq:6}")
	april := options(quarter, serial.WithPeriod(serial.PerQuarter), serial.WithYearStart(time.April, 1))
	plain, hidden := options(six), options(six, key(1))
	const same = " and the same hidden key and WithSharedCounter, as in the audited scheme"
	days := `scheme 2 has the key prefix "serial" and the calendar "days": want "serial", "days"` + same
	for name, row := range map[string]struct {
		audited, earlier []serial.Option
		says             string
	}{
		"same": {plain, options(serial.WithStart(7), serial.WithDayStart(time.Hour), serial.WithLocation(noon())), ""},
		"prefix": {plain, options(serial.WithKeyPrefix("shop")),
			`scheme 2 has the key prefix "shop" and the calendar "days": want "serial", "days"` + same},
		"period": {plain, options(six, serial.WithPeriod(serial.PerMonth)),
			`scheme 2 has the key prefix "serial" and the calendar "months": want "serial", "days"` + same},
		"year start": {april, options(quarter, serial.WithPeriod(serial.PerQuarter)),
			`scheme 2 has the key prefix "serial" and the calendar "quarters": want "serial", "quarters from April 1"` + same},
		"key":       {hidden, options(six, key(1)), ""},
		"other key": {hidden, options(six, key(2)), days},
		"no key":    {hidden, plain, days},
		"new key":   {plain, hidden, days},
		"shared":    {plain, options(six, serial.WithSharedCounter()), days},
		"also shared": {options(six, serial.WithSharedCounter()),
			options(serial.WithSharedCounter(), serial.WithTemplate("{date:yyyyMMdd}{seq:6}")), ""},
	} {
		t.Run(name, func(t *testing.T) {
			s, earlier, gen := newScheme(t, row.audited...), newScheme(t, row.earlier...), parser(t, row.audited...)
			opt := serial.WithEarlier(s, earlier)
			if row.says == "" {
				require.NoError(t, errOf(s.Audit("IS", serial.On(2021, 10, 24), 1, used(), opt)))
				return
			}
			unread := func(func(string, error) bool) { t.Error("the numbers are read") }
			got, err := s.Audit("IS", serial.On(2021, 10, 24), 1, unread, opt)
			require.ErrorContains(t, err, "serial: WithEarlier: "+row.says)
			require.Zero(t, got)
			_, ofGenerator := gen.Audit(t.Context(), "IS", serial.On(2021, 10, 24), unread, opt)
			require.EqualError(t, ofGenerator, err.Error())
		})
	}
	s := newScheme(t)
	_, err := s.Audit("IS", serial.On(2021, 10, 24), 1, used(), serial.WithEarlier(s), serial.WithEarlier(s, nil))
	require.EqualError(t, err, "serial: WithEarlier: scheme 3 is nil")
	_, err = s.Audit("IS", serial.On(2021, 10, 24), 1, used(), serial.WithEarlier(new(serial.Scheme)))
	require.ErrorContains(t, err, `serial: WithEarlier: scheme 1 has the key prefix ""`)
	require.NoError(t, errOf(s.Audit("IS", serial.On(2021, 10, 24), 1, used(), serial.WithEarlier())))
}

// The key of the hidden sequence is kept, so numbers of the old template are read, and everything else stays.
func TestSchemeWithTemplate(t *testing.T) {
	t.Parallel()
	opts := options(serial.WithHiddenSequence(make([]byte, 16)), serial.WithKeyPrefix("shop"), serial.WithStart(5),
		serial.WithDayStart(4*time.Hour), serial.WithLocation(noon()), serial.WithPeriod(serial.PerMonth))
	of := func(template string) *serial.Scheme {
		return newScheme(t, append(opts, serial.WithTemplate(template))...)
	}
	s, want := of("{type}-{date:yyyyMM}-{seq:8}"), of("{date:yyMM}{type}{seq:6}")
	got := retemplated(t, s, "{date:yyMM}{type}{seq:6}")
	at := serial.On(2021, time.October, 24)
	for _, scheme := range []*serial.Scheme{got, s} {
		n, err := scheme.Number("IS", at, 7)
		require.NoError(t, err)
		if scheme == got {
			require.Equal(t, n.String(), textOfSeq(t, want, at, 7))
		} else {
			require.Regexp(t, "^IS-202110-[0-9]{8}$", n, "it does not change")
		}
		parsed, err := scheme.Parse(n.String())
		require.NoError(t, err)
		require.EqualValues(t, 7, parsed.Seq)
	}
	gotFirst, gotLast := got.Limits()
	require.Equal(t, []int64{5, 999_999}, []int64{gotFirst, gotLast})
	require.Equal(t, want.PrintMark(), got.PrintMark())

	// Numbers of both templates are accounted for together.
	texts := used(textOfSeq(t, s, at, 5), textOfSeq(t, got, at, 6), textOfSeq(t, s, at, 8))
	report, err := s.Audit("IS", at, 8, texts, serial.WithEarlier(got))
	require.NoError(t, err)
	require.Equal(t, []serial.Range{{First: 7, Last: 7}}, report.Missing)

	for text, says := range map[string]string{
		"{type}":                     "{seq} is missing",
		"{type}{date:yyyyMM}{seq:4}": "WithHiddenSequence: the template has 9999 sequences",
		"{type}{seq:6}":              "{date} is missing",
	} {
		got, err := s.WithTemplate(text)
		require.ErrorContains(t, err, says)
		require.Nil(t, got)
	}
	_, err = newScheme(t, serial.WithStart(100)).WithTemplate("{type}{date:yyyyMMdd}{seq:2}")
	require.EqualError(t, err, "serial: WithStart(100): the template prints sequences up to 99; want 1 to that")
	_, err = new(serial.Scheme).WithTemplate("{type}{seq}")
	require.ErrorContains(t, err, "WithPeriod(Period(0))")
}

func textOfSeq(t *testing.T, s *serial.Scheme, at serial.When, seq int64) string {
	t.Helper()
	n, err := s.Number("IS", at, seq)
	require.NoError(t, err)
	return n.String()
}

// An audit of a generator counts numbers printed by an earlier template in the same period.
func TestGeneratorAuditWithEarlier(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		year := options(serial.WithPeriod(serial.PerYear), serial.WithLocation(time.UTC))
		of := func(template string) *serial.Generator {
			return newGenerator(t, m.Client(), append(year, serial.WithTemplate(template))...)
		}
		narrow, wide := of("{type}{date:yyyy}{seq:1}"), of("{type}{date:yyyy}{seq:6}")
		before, err := textsOf(narrow.NextN(t.Context(), "IS", 9))
		require.NoError(t, err)
		require.ErrorIs(t, errOf(narrow.Next(t.Context(), "IS")), serial.ErrExhausted)
		after, err := textsOf(wide.NextN(t.Context(), "IS", 3))
		require.NoError(t, err)
		require.Equal(t, []string{"IS2000000010", "IS2000000011", "IS2000000012"}, after)

		numbers := append(before, after[1:]...)
		got, err := wide.Audit(t.Context(), "IS", serial.At(time.Now()), used(numbers...))
		require.NoError(t, err)
		require.Equal(t, []int64{2, 10, 9}, []int64{got.Count, got.MissingCount, got.ForeignCount})
		got, err = wide.Audit(t.Context(), "IS", serial.At(time.Now()), used(numbers...), serial.WithEarlier(narrow.Scheme()))
		require.NoError(t, err)
		require.Equal(t, []serial.Range{{First: 10, Last: 10}}, got.Missing)
		require.Equal(t, []int64{11, 1, 0}, []int64{got.Count, got.MissingCount, got.ForeignCount})

	})
}
