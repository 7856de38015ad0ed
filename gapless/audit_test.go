package gapless_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/gapless"
)

// numbers returns an iterator that yields texts in order and calls between before each of them.
func numbers(between func(i int), texts ...string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for i, text := range texts {
			between(i)
			if !yield(text, nil) {
				return
			}
		}
	}
}

// taking returns a function that takes n numbers of IS on a day of October 2021.
func taking(t *testing.T, db *sql.DB, g *gapless.Generator) func(day, n int) {
	return func(day, n int) {
		t.Helper()
		commits(t, db, func(tx *sql.Tx) {
			for range n {
				require.NoError(t, onlyErr(g.NextOn(t.Context(), tx, "IS", serial.On(2021, time.October, day))))
			}
		})
	}
}

// Numbers are taken while an audit reads the stored numbers, and the audit must ignore them. A stored number above the
// last one taken must be reported as never taken. A closed period, and numbers taken before the template was changed,
// can be audited, too.
func TestAudit(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		db, g := d.start(t)
		take, on := taking(t, db, g), serial.On(2021, time.October, 24)
		take(24, 3)
		audit := func(q gapless.Querier, between func(int)) serial.Report {
			t.Helper()
			r, err := g.Audit(t.Context(), q, "IS", on, numbers(between, "IS202110240001", "IS202110240003",
				"IS202110240004", "IS202110240004", "IS202110240006", "IS202110250001", "no number"))
			require.NoError(t, err)
			return r
		}
		r := audit(db, func(i int) {
			if i == 1 {
				take(24, 2)
			}
		})
		require.Equal(t, []int64{3, 2, 0, 1, 1}, []int64{r.Last, r.Count, r.DuplicateCount, r.BeyondCount, r.OtherCount})
		require.Equal(t, []serial.Range{{First: 2, Last: 2}}, r.Missing)
		require.Equal(t, "IS202110240006", r.Beyond[0].String())
		require.Equal(t, []string{"no number"}, r.Foreign)
		tx := beginAt(t, db, d.readCommitted()) // one connection is enough
		r = audit(tx, func(int) {})
		require.Equal(t, []int64{5, 1}, []int64{r.Last, r.DuplicateCount})
		require.NoError(t, tx.Commit())
		d.closes(t, db, g, october(25))
		require.Equal(t, r, audit(db, func(int) {}))

		first, err := g.Scheme().Number("IS", on, 2)
		require.NoError(t, err)
		void, err := g.Scheme().Explanation(first, first, "void", "Ada")
		require.NoError(t, err)
		after := d.generator(t, db, serial.WithTemplate("{type}{date:yyyyMMdd}-{seq:6}"))
		r, err = after.Audit(t.Context(), db, "IS", on, numbers(func(int) {}, "IS202110240001", "IS202110240003",
			"IS20211024-000004"), serial.WithEarlier(g.Scheme()), serial.WithExplanations(
			func(yield func(serial.Explanation, error) bool) { yield(void, nil) }))
		require.NoError(t, err)
		require.Equal(t, []int64{5, 3, 2, 1}, []int64{r.Last, r.Count, r.MissingCount, r.ExplainedCount})
	})
}

// An audit of all periods ignores numbers that are taken during the audit, in existing periods and in new ones.
func TestAuditAll(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		db, g := d.start(t)
		take := taking(t, db, g)
		take(24, 2)
		take(26, 3)
		got, err := g.AuditAll(t.Context(), db, "IS", numbers(func(i int) {
			if i == 0 {
				take(26, 1)
				take(27, 1)
			}
		}, "IS202110240001", "IS202110240002", "IS202110260003", "IS202110260004", "IS202110260005", "IS202110270001",
			"IS202110270002", "no number"))
		require.NoError(t, err)
		require.Len(t, got.Periods, 3)
		require.Equal(t, []serial.Range{{First: 1, Last: 2}}, got.Periods[0].Missing, "the newest first")
		require.EqualValues(t, []int64{3, 1}, []int64{got.Periods[0].Last, got.Periods[0].BeyondCount})
		require.True(t, got.Periods[1].Clean())
		require.Equal(t, "IS202110270002", got.Periods[2].Beyond[0].String())
		require.Equal(t, []time.Time{october(25)}, got.Without)
		require.Equal(t, []string{"no number"}, got.Foreign)
	})
}

// Audit and AuditAll must return an error for an invalid argument, and the errors of the iterator and of the context.
func TestAuditRefused(t *testing.T) {
	db, g := inFile(t).start(t)
	on := serial.On(2021, time.October, 24)
	audits := map[string]func(context.Context, gapless.Querier, string, iter.Seq2[string, error]) error{
		"Audit": func(ctx context.Context, q gapless.Querier, typ string, used iter.Seq2[string, error]) error {
			return onlyErr(g.Audit(ctx, q, typ, on, used))
		},
		"AuditAll": func(ctx context.Context, q gapless.Querier, typ string, used iter.Seq2[string, error]) error {
			return onlyErr(g.AuditAll(ctx, q, typ, used))
		},
	}
	for name, audit := range audits {
		require.ErrorContains(t, audit(t.Context(), db, "IS", nil), "gapless: serial: "+name+": the used numbers are nil")
		require.ErrorIs(t, audit(t.Context(), db, "I S", numbers(nil)), serial.ErrInvalidType)
		require.EqualError(t, audit(t.Context(), nil, "IS", numbers(nil)), "gapless: the Querier is nil")
		failure := errors.New("no connection")
		require.ErrorIs(t, audit(t.Context(), db, "IS", func(yield func(string, error) bool) { yield("", failure) }), failure)
		ctx, cancel := context.WithCancel(t.Context())
		require.ErrorIs(t, audit(ctx, db, "IS", numbers(func(i int) {
			require.Zero(t, i)
			cancel()
		}, "IS202110240001", "IS202110240002")), context.Canceled)
	}
	require.ErrorContains(t, onlyErr(g.Audit(t.Context(), db, "IS", on, numbers(nil), nil)), "option 2 is nil")
}

// Schemes with all kinds of periods take numbers. History must return the last numbers of the latest periods.
func TestHistory(t *testing.T) {
	east, april := serial.WithLocation(time.FixedZone("", 14*3600)), serial.WithYearStart(time.April, 1)
	each(t, func(t *testing.T, d *database) {
		db := d.open(t)
		for i, r := range []struct {
			opts []serial.Option
			on   string // instants from the newest period to the oldest
			want string // numbers, or year of the period and sequence if the printed date is unknown
		}{
			{nil, "9999-12-30T23 2040-02-29T12 2021-10-25T12 2021-10-24T12 1970-01-01T00",
				"IS999912300001 IS204002290002 IS202110250003 IS202110240004 IS197001010005"},
			{[]serial.Option{east, serial.WithPeriod(serial.PerHour), serial.WithTemplate("{type}{date:yyyyMMddHH}{seq:2}")},
				"9999-12-31T09 2021-10-24T12 1969-12-31T10", "IS999912312301 IS202110250202 IS197001010003"},
			{[]serial.Option{east, serial.WithPeriod(serial.PerWeek), serial.WithTemplate("{type}{date:GGGG-WW}-{seq:4}")},
				"2025-01-01T00 2024-12-25T00 1970-01-01T00", "IS2025-01-0001 IS2024-52-0002 IS1970-01-0003"},
			{[]serial.Option{serial.WithPeriod(serial.PerQuarter), april, serial.WithTemplate("{type}{date:FFFF/Q}-{seq:4}")},
				"2025-01-01T00 2024-12-25T00 1970-01-01T00", "IS2024/4-0001 IS2024/3-0002 IS1969/4-0003"},
			{[]serial.Option{serial.WithPeriod(serial.PerHalfYear), april,
				serial.WithTemplate("{type}{date:FFFF/'H'S}-{seq:4}")},
				"2025-01-01T00 2024-09-25T00 1970-01-01T00", "IS2024/H2-0001 IS2024/H1-0002 IS1969/H2-0003"},
			{[]serial.Option{serial.WithPeriod(serial.PerYear), serial.WithTemplate("{type}{date:yyyyMM}-{seq:4}")},
				"2025-05-01T00 2024-12-25T00", "2025:1 2024:2"},
			{[]serial.Option{serial.WithPeriod(serial.Never), serial.WithTemplate("{type}-{seq:4}")},
				"2025-05-01T00", "IS-0001"},
		} {
			g := d.generator(t, db, append(r.opts, serial.WithKeyPrefix(fmt.Sprint("p", i)))...)
			history := func(q gapless.Querier, n int) string {
				t.Helper()
				numbers, err := g.History(t.Context(), q, "IS", n)
				require.NoError(t, err)
				var texts []string
				for _, n := range numbers {
					if n.Date.IsZero() {
						require.Empty(t, n.String())
						texts = append(texts, fmt.Sprintf("%d:%d", n.Start.Year(), n.Seq))
					} else {
						texts = append(texts, n.String())
					}
				}
				return strings.Join(texts, " ")
			}
			require.Empty(t, history(db, 3))
			instants := strings.Fields(r.on)
			commits(t, db, func(tx *sql.Tx) {
				for n := len(instants); n > 0; n-- {
					at, err := time.Parse("2006-01-02T15", instants[n-1])
					require.NoError(t, err)
					require.NoError(t, onlyErr(g.NextN(t.Context(), tx, "IT", n)))
					for range n {
						require.NoError(t, onlyErr(g.NextOn(t.Context(), tx, "IS", serial.At(at))))
					}
				}
				require.NoError(t, g.Raise(t.Context(), tx, "IS", serial.At(october(2)), 0)) // a row without numbers
				require.Equal(t, r.want, history(tx, 10_000))
				require.Equal(t, strings.Fields(r.want)[0], history(tx, 1))
			})
			if i == 0 {
				d.closes(t, db, g, october(25))
			}
			require.Equal(t, r.want, history(db, len(instants)))
		}
	})
}

// With Never, no number can be printed for the first instant of the period: its date is in 1969 west of Greenwich, and
// a two-digit year cannot print 1970. History and other calls that receive this instant must work all the same.
func TestFirstInstantWithoutDate(t *testing.T) {
	db := inFile(t).open(t)
	for _, zone := range []string{"UTC", "America/Sao_Paulo", "Pacific/Kiritimati"} {
		location, err := time.LoadLocation(zone)
		require.NoError(t, err)
		for i, template := range []string{"{type}-{seq:6}", "{type}{date:yyyy}-{seq:6}", "{type}{date:yyMM}-{seq:6}",
			"{type}{date:BB}-{seq:6}", "{type}{date:FF}-{seq:6}", "{type}{date:MM}-{seq:6}"} {
			g := (&database{dialect: gapless.SQLite}).generator(t, db, serial.WithPeriod(serial.Never),
				serial.WithLocation(location), serial.WithTemplate(template), serial.WithKeyPrefix(fmt.Sprint(zone[:2], i)))
			var taken []serial.Number
			commits(t, db, func(tx *sql.Tx) {
				taken, err = g.NextN(t.Context(), tx, "IS", 3)
				require.NoError(t, err)
			})
			all, err := g.History(t.Context(), db, "IS", 10)
			require.NoError(t, err, "%s %s", zone, template)
			require.Len(t, all, 1)
			require.EqualValues(t, 3, all[0].Seq)
			require.Equal(t, !strings.Contains(template, "date"), all[0].String() == taken[2].String(), all[0])
			first := serial.At(all[0].Start)
			requireResult(t, all[0], "%s %s", zone, template)(g.Last(t.Context(), db, "IS", first))
			report, err := g.Audit(t.Context(), db, "IS", first, numbers(func(int) {}, taken[0].String(), taken[2].String()))
			require.NoError(t, err, "%s %s", zone, template)
			require.Equal(t, []serial.Range{{First: 2, Last: 2}}, report.Missing)
			commits(t, db, func(tx *sql.Tx) {
				require.NoError(t, g.Raise(t.Context(), tx, "IS", first, 5), "%s %s", zone, template)
			})
		}
	}
}

// History must read any number of periods with one statement. It must also work with a Querier that can only query
// single rows.
func TestHistoryStatements(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		db, g := d.start(t)
		for day := range 10 {
			taking(t, db, g)(1+day, 1)
		}
		tx, statements := beginAt(t, db, d.readCommitted()), 0
		all, err := g.History(t.Context(), counting{tx, &statements}, "IS", 9)
		require.NoError(t, err)
		require.Len(t, all, 9)
		require.Equal(t, 1, statements)
		requireResult(t, all)(g.History(t.Context(), struct{ gapless.Querier }{tx}, "IS", 9))
		require.NoError(t, tx.Commit())
	})
}

// History must return numbers that were taken by other schemes without their printed date, and fail if the calendar
// differs.
func TestHistoryFromOtherSchemes(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		db := d.open(t)
		g, letters := d.generator(t, db), d.generator(t, db, serial.WithTemplate("{type}{date:yyMMdd}{seq:4:base36}"))
		commits(t, db, func(tx *sql.Tx) {
			require.NoError(t, onlyErr(g.NextOn(t.Context(), tx, "IS", serial.On(1999, time.October, 24)))) // unprintable as yy
			require.NoError(t, onlyErr(g.NextOn(t.Context(), tx, "IS", serial.At(october(24)))))
			require.NoError(t, onlyErr(letters.NextOn(t.Context(), tx, "IS", serial.At(october(25)))))
		})
		all, err := letters.History(t.Context(), db, "IS", 3)
		require.NoError(t, err)
		require.Equal(t, "IS2110250001  ", fmt.Sprint(all[0], " ", all[1], " ", all[2]))
		require.EqualValues(t, 1, all[1].Seq)
		require.True(t, all[1].Start.Equal(october(24)))
		require.ErrorIs(t, onlyErr(d.generator(t, db, perWeek()...).History(t.Context(), db, "IS", 2)), serial.ErrConflict)
		for _, n := range []int{-1, 0, 10_001} {
			require.EqualError(t, onlyErr(g.History(t.Context(), db, "IS", n)),
				fmt.Sprintf("gapless: History of %d periods: want 1 to 10000", n))
		}
		require.ErrorIs(t, onlyErr(g.History(t.Context(), db, "I S", 1)), serial.ErrInvalidType)
		require.EqualError(t, onlyErr(g.History(t.Context(), nil, "IS", 1)), "gapless: the Querier is nil")
	})
}
