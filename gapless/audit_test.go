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

// Numbers are taken while an audit reads the stored numbers, and the audit must ignore them. A stored number above the
// last one taken must be reported as never taken. A closed period, and numbers taken before the template was changed,
// can be audited, too.
func TestAudit(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		s := d.steps(t, nil)
		db, g, on := s.db, s.generators[""], serial.On(2021, time.October, 24)
		s.run("on24 on24 on24=3")
		audit := func(q gapless.Querier, between func(int)) serial.Report {
			t.Helper()
			r, err := g.Audit(t.Context(), q, "IS", on, numbers(between, "IS202110240001", "IS202110240003",
				"IS202110240004", "IS202110240004", "IS202110240006", "IS202110250001", "no number"))
			require.NoError(t, err)
			return r
		}
		r := audit(db, func(i int) {
			if i == 1 {
				s.run("on24 on24")
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
		s.run("close25")
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
		s := d.steps(t, nil)
		s.run("on24 on24 on26 on26 on26=3")
		got, err := s.generators[""].AuditAll(t.Context(), s.db, "IS", numbers(func(i int) {
			if i == 0 {
				s.run("on26 on27")
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
		failing := func(yield func(string, error) bool) { yield("", failure) }
		require.ErrorIs(t, audit(t.Context(), db, "IS", failing), failure)
		ctx, cancel := context.WithCancel(t.Context())
		require.ErrorIs(t, audit(ctx, db, "IS", numbers(func(i int) {
			require.Zero(t, i)
			cancel()
		}, "IS202110240001", "IS202110240002")), context.Canceled)
	}
	require.ErrorContains(t, onlyErr(g.Audit(t.Context(), db, "IS", on, numbers(nil), nil)), "option 2 is nil")
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
		s := d.steps(t, nil)
		s.run("on1 on2 on3 on4 on5 on6 on7 on8 on9 on10 begin=committed")
		g, tx, statements := s.generators[""], s.sessions[""].tx, 0
		all, err := g.History(t.Context(), counting(tx, &statements), "IS", 9)
		require.NoError(t, err)
		require.Len(t, all, 9)
		require.Equal(t, 1, statements)
		requireResult(t, all)(g.History(t.Context(), struct{ gapless.Querier }{tx}, "IS", 9))
	})
}

// History must return numbers that were taken by other schemes without their printed date, and fail if the calendar
// differs.
func TestHistoryFromOtherSchemes(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		s := d.steps(t, schemes{"": nil, "weeks": perWeek(),
			"letters": {serial.WithTemplate("{type}{date:yyMMdd}{seq:4:base36}")}})
		db, g, letters := s.db, s.generators[""], s.generators["letters"]
		s.run("on19991024 on24 letters.on25") // yy cannot print 1999
		all, err := letters.History(t.Context(), db, "IS", 3)
		require.NoError(t, err)
		require.Equal(t, "IS2110250001  ", fmt.Sprint(all[0], " ", all[1], " ", all[2]))
		require.EqualValues(t, 1, all[1].Seq)
		require.True(t, all[1].Start.Equal(october(24)))
		require.ErrorIs(t, onlyErr(s.generators["weeks"].History(t.Context(), db, "IS", 2)), serial.ErrConflict)
		for _, n := range []int{-1, 0, 10_001} {
			require.EqualError(t, onlyErr(g.History(t.Context(), db, "IS", n)),
				fmt.Sprintf("gapless: History of %d periods: want 1 to 10000", n))
		}
		require.ErrorIs(t, onlyErr(g.History(t.Context(), db, "I S", 1)), serial.ErrInvalidType)
		require.EqualError(t, onlyErr(g.History(t.Context(), nil, "IS", 1)), "gapless: the Querier is nil")
	})
}
