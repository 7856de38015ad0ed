package serialpage

import (
	"context"
	"database/sql"
	"fmt"
	"iter"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/gapless"
)

// sample serves the pages of a company with orders and delivery notes of forty days, and invoices of three months.
// today is the page of the orders' current day, on which some missing numbers are not explained.
func sample(t *testing.T, change func(*site)) (s *site, today string) {
	t.Helper()
	now := time.Now().UTC().Truncate(24 * time.Hour).Add(12 * time.Hour)
	s = open(t, func(s *site) {
		rdb := redis.NewClient(&redis.Options{Addr: s.redis.Addr()})
		t.Cleanup(func() { require.NoError(t, rdb.Close()) })
		generator := func(opts ...serial.Option) *serial.Generator {
			gen, err := serial.New(rdb, append(opts, serial.WithLocation(time.UTC), serial.WithMaxSkew(-1))...)
			require.NoError(t, err)
			return gen
		}
		orders := generator(serial.WithRetention(60))
		notes := generator(serial.WithKeyPrefix("north"), serial.WithRetention(60))
		s.start = now.Truncate(24 * time.Hour)
		s.stored = nil
		stored := map[string][]string{}
		issue := func(name string, gen *serial.Generator, typ string, day, n int) {
			at := now.AddDate(0, 0, -day).Truncate(24 * time.Hour).Add(time.Minute)
			s.redis.SetTime(at)
			numbers, err := gen.NextN(t.Context(), typ, n)
			require.NoError(t, err)
			series, err := gen.Scheme().Series(typ)
			require.NoError(t, err)
			explain := func(seq int64, reason, by string) {
				require.NoError(t, s.register.Explain(t.Context(), serial.Explanation{Series: series, Type: typ,
					Start: numbers[0].Start, First: seq, Last: seq, Reason: reason, By: by, At: at}))
			}
			for _, number := range numbers {
				switch i := number.Seq + int64(3*day); {
				case i%29 == 5:
					explain(number.Seq, "caller left", "")
				case i%41 == 7:
					explain(number.Seq, "ordered twice, void", "Ada Lovelace")
				case day%9 == 0 && i%17 == 11: // without a reason
				default:
					stored[name] = append(stored[name], number.String())
				}
			}
		}
		for day := 39; day >= 0; day-- {
			issue("orders", orders, "ORD", day, 24+day*11%37)
			issue("notes", notes, "DN", day, 5+day*5%13)
		}
		require.NoError(t, s.register.Explain(t.Context(), serial.Explanation{Series: "serial:ORD", Type: "ORD",
			Start: s.start, First: 9, Last: 9999, Reason: serial.AnswerLost + ": 1 attempt", At: s.start.Add(9 * time.Hour),
			Possible: true}))
		of := func(name string) func(context.Context, time.Time, time.Time) iter.Seq2[string, error] {
			return func(context.Context, time.Time, time.Time) iter.Seq2[string, error] { return yields(stored[name]) }
		}
		s.series = []Series{
			{Type: "ORD", Name: "Orders", Source: Redis(orders), Stored: of("orders"), Explanations: s.register,
				Link: func(number string) string { return "/orders/" + number }},
			{Type: "DN", Name: "Delivery notes, north", Source: Redis(notes), Stored: of("notes"), Explanations: s.register},
			{Type: "RMA", Name: "Returns", Source: Redis(orders), Stored: of("returns"), Explanations: s.register},
		}
		if slices.Contains(sql.Drivers(), "sqlite") {
			invoices := table(t, now)
			invoices.Explanations = s.register
			s.series = slices.Insert(s.series, 1, invoices)
		}
		if change != nil {
			change(s)
		}
	})
	return s, "/numbers/" + address("period", "ORD", s.start)
}

// number returns the number of one of today's orders.
func (s *site) number(seq int) string {
	return fmt.Sprintf("ORD%s%04d", s.start.Format("20060102"), seq)
}

// rough serves pages that are hard to lay out: names without spaces, few columns, hidden sequences, and all kinds of
// reasons. pages has their addresses.
func rough(t *testing.T) (s *site, pages map[string]string) {
	t.Helper()
	long := strings.Repeat("Auftragsbestätigung", 6)
	s = open(t, func(s *site) {
		rdb := redis.NewClient(&redis.Options{Addr: s.redis.Addr()})
		t.Cleanup(func() { require.NoError(t, rdb.Close()) })
		s.series = nil
		stored := map[string][]string{}
		add := func(key, name, typ string, days int, opts ...serial.Option) {
			gen, err := serial.New(rdb, append(opts, serial.WithLocation(time.UTC), serial.WithMaxSkew(-1),
				serial.WithRetention(60), serial.WithKeyPrefix(key))...)
			require.NoError(t, err)
			series, err := gen.Scheme().Series(typ)
			require.NoError(t, err)
			for day := days - 1; day >= 0; day-- {
				at := s.start.AddDate(0, 0, -day).Add(time.Minute)
				s.redis.SetTime(at)
				numbers, err := gen.NextN(t.Context(), typ, 40)
				require.NoError(t, err)
				for _, n := range numbers {
					if n.Seq < 10 || n.Seq > 36 {
						stored[key] = append(stored[key], n.String())
					}
				}
				for i, e := range []serial.Explanation{
					{First: 14, Last: 14, Reason: serial.CallerLeft}, {First: 11, Last: 14, Reason: long, By: "Ada Lovelace"},
					{First: 11, Last: 12, Reason: "torn in the printer", By: "Grace Hopper"},
					{First: 20, Last: 35, Reason: "test", By: long[:90]},
					{First: 10, Last: 15, Reason: serial.Raised, Possible: true},
					{First: 15, Last: 9999, Reason: serial.AnswerLost, Possible: true},
					{First: 14, Last: 17, Reason: long, By: "Eve", Possible: true},
					{First: 12, Last: 16, Reason: "other", Possible: true},
				} {
					e.Series, e.Type, e.Start, e.At = series, typ, numbers[0].Start, at.Add(time.Duration(i)*time.Minute)
					s.register.all = append(s.register.all, e)
				}
			}
			s.series = append(s.series, Series{Key: key, Type: typ, Name: name, Source: Redis(gen), Explanations: s.register,
				Stored: func(context.Context, time.Time, time.Time) iter.Seq2[string, error] { return yields(stored[key]) }})
		}
		add("long", long, strings.Repeat("LONGTYPE", 7), 60, serial.WithTemplate("{type}{date:yyyyMMdd}{seq:4}"))
		add("single", "\u202eשלום", "שלום", 1)
		add("pair", "Two days", "TWO", 2)
		add("twin", "\u202eשני ימים", "TWO", 1)
		add("hidden", "Hidden", "HID", 2, hidden, serial.WithTemplate("{type}{date:yyyyMMdd}{seq:6}"))
		stored["long"] = append(stored["long"], strings.Repeat("x", 300), strings.Repeat("long text ", 20))
	})
	pages = map[string]string{"rough": "/numbers/"}
	for _, series := range s.series {
		period := address("period", series.Key, s.start)
		s.get(200, "/numbers/"+period)
		pages[series.Key] = "/numbers/" + seriesLink(&series).Href
		pages[series.Key+"-period"] = "/numbers/" + period
	}
	s.answers(pages)
	return s, pages
}

// answers adds the addresses of answers to look-ups, and of a page of older periods, to the pages of rough.
func (s *site) answers(pages map[string]string) {
	number := func(key string, seq int64) string {
		i := slices.IndexFunc(s.series, func(one Series) bool { return one.Key == key })
		n, err := s.series[i].Source.scheme().Number(s.series[i].Type, serial.At(s.start), seq)
		require.NoError(s.t, err)
		return n.String()
	}
	pages["long-answer"] = "/numbers/" + address("period", "long", s.start, "number", number("long", 15))
	pages["right-to-left"] = "/numbers/" + address("period", "single", s.start, "number", number("single", 12))
	pages["older"] = "/numbers/" + selection{before: s.start.AddDate(0, 0, -49)}.address(&s.series[0])
	pages["several"] = "/numbers/find?" + url.Values{"number": {number("twin", 1)}}.Encode()
}

// yields yields numbers.
func yields(numbers []string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for _, number := range numbers {
			if !yield(number, nil) {
				return
			}
		}
	}
}

// table returns a gapless series of invoices of three months. The first month is closed.
func table(t *testing.T, now time.Time) Series {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "invoices.db")+"?_txlock=immediate")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	scheme, err := serial.NewScheme(serial.WithLocation(time.UTC), serial.WithPeriod(serial.PerMonth),
		serial.WithTemplate("{type}-{date:yyyyMM}-{seq:4}"))
	require.NoError(t, err)
	gen, err := gapless.New(gapless.SQLite, scheme)
	require.NoError(t, err)
	require.NoError(t, gen.CreateTable(t.Context(), db))
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	var numbers []string
	month := time.Date(now.Year(), now.Month(), 1, 12, 0, 0, 0, time.UTC)
	for i, many := range []int{212, 187, 64} {
		for range many {
			n, err := gen.NextOn(t.Context(), tx, "INV", serial.At(month.AddDate(0, i-2, 0)))
			require.NoError(t, err)
			numbers = append(numbers, n.String())
		}
	}
	require.NoError(t, gen.ClosePeriods(t.Context(), tx, "INV", serial.At(month.AddDate(0, -1, 0).Truncate(24*time.Hour))))
	require.NoError(t, tx.Commit())
	return Series{Type: "INV", Name: "Invoices", Source: Table(db, gen),
		Stored: func(context.Context, time.Time, time.Time) iter.Seq2[string, error] { return yields(numbers) }}
}
