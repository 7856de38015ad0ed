package gapless_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/gapless"
)

// closes closes the periods of IS that end by before, and commits.
func (d *database) closes(t testing.TB, db *sql.DB, g *gapless.Generator, before time.Time) {
	t.Helper()
	tx := beginAt(t, db, d.readCommitted())
	require.NoError(t, g.ClosePeriods(t.Context(), tx, "IS", serial.At(before)))
	require.NoError(t, tx.Commit())
}

// Periods with and without rows are closed and reopened. The test checks the effect in the closing transaction and
// after it. The closing transaction also takes numbers of other periods.
func TestClosePeriods(t *testing.T) {
	// In each step such as closed12, neither generator takes or raises numbers of the named days.
	digits := regexp.MustCompile(`closed(\d+)`)
	expand := func(step string) (all string) {
		for _, day := range strings.TrimPrefix(step, "closed") {
			for _, g := range []string{"", "another."} {
				for _, on := range []string{"on", "late"} { // late: the generator believes that the day has not ended
					for _, call := range []string{on + "%c!closed ", "raise%c=0!closed ", "raise%c=99!closed "} {
						all += g + fmt.Sprintf(call, day)
					}
				}
			}
		}
		return all
	}
	each(t, func(t *testing.T, d *database) {
		s := d.steps(t, map[string][]serial.Option{"": nil, "another": nil})
		run := func(script string) {
			t.Helper()
			s.run(digits.ReplaceAllStringFunc(script, expand))
		}
		run(`
			another.until=0 close2 another.until=20211002 # the type has no numbers yet
			begin closed1 on2=1 on3=1 on5=1 commit
			begin=committed on3=2 close4 closed123 on4=1 close5 closed1234 another.until=20211005 commit
			another.until=20211005
		`)
		another := s.generators["another"]
		for _, day := range []int{2, 3} { // closed one after the other; the error must name the latest end
			commits(t, s.db, func(tx *sql.Tx) {
				require.EqualError(t, onlyErr(s.generators[""].NextOn(t.Context(), tx, "IS", serial.At(october(day)))),
					fmt.Sprintf("gapless: period closed: IS in period 2021100%d: all periods that "+
						"end by 2021-10-05 (2021-10-05T00:00:00Z) are closed; use a later period", day))
			})
		}
		another.Misjudge(time.Until(october(2)))
		commits(t, s.db, func(tx *sql.Tx) {
			require.ErrorContains(t, onlyErr(another.NextOn(t.Context(), tx, "IS", serial.At(october(2)))), "end by 2021-10-05")
		})
		run(`
			begin closed1234 on5=2 on6=1 next=1 IT/on3=1 commit

			# Closing up to an earlier end changes nothing, and neither does a closing that is rolled back.
			close2 close5 until=20211005
			begin=committed on6=2 save close7 closed56 back until=20211005 on6=3
			reopen2 on2=2 back closed2 rollback
			until=20211005

			# Reopen the latest periods, and then close some of them again.
			begin=committed reopen5 until=20211005 reopen3 until=20211003 closed12 on3=3 commit
			begin closed12 on3=4 on4=2 commit
			close4
			begin=committed closed123 on4=3 reopen19700101 until=0 on1=1 on2=2 commit
		`)
	})
}

// If periods cannot be closed, ClosePeriods must write nothing, and the transaction can continue.
func TestClosePeriodsRefused(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		db, g := d.start(t)
		never := d.generator(t, db, serial.WithPeriod(serial.Never), serial.WithTemplate("{type}-{seq:4}"))
		tx := beginAt(t, db, d.readCommitted())
		weeks := d.generator(t, db, perWeek()...)
		today := d.clock(t, db).UTC().Truncate(24 * time.Hour)
		_, monday, _ := weeks.Scheme().Period(serial.At(today))
		for _, r := range []struct {
			g      *gapless.Generator
			typ    string
			before serial.When
			want   string
		}{
			{g, "I S", serial.At(october(1)), "invalid type"},
			{never, "IS", serial.At(october(1)),
				"gapless: close periods of IS: numbers that never start again have no periods to close or reopen"},
			{g, "IS", serial.At(time.Time{}), "want 1970 to 9999"},
			{g, "IS", serial.At(time.Unix(1<<62, 0)), "want 1970 to 9999"},
			{g, "IS", serial.When{}, "the When is zero"},
			{g, "IS", serial.On(2021, time.June, 31), "does not exist"},
			{g, "IS", serial.At(october(2).Add(time.Nanosecond)), "gapless: close periods of IS: no period begins at " +
				"2021-10-02T00:00:00.000000001Z: want 2021-10-02 (2021-10-02T00:00:00Z) or 2021-10-03 (2021-10-03T00:00:00Z)"},
			{weeks, "IS", serial.At(october(3)), "no period begins at 2021-10-03T00:00:00Z: " +
				"want 2021-09-27 (2021-09-27T00:00:00Z) or 2021-10-04 (2021-10-04T00:00:00Z)"},
			{weeks, "IS", serial.On(2021, time.October, 3), "no period begins at 2021-10-03: "},
			{g, "IS", serial.At(today.AddDate(0, 0, 1)), gapless.ErrPeriodOpen.Error()},
			{g, "IS", serial.At(today.AddDate(20, 0, 0)), gapless.ErrPeriodOpen.Error()},
		} {
			err := r.g.ClosePeriods(t.Context(), tx, r.typ, r.before)
			require.ErrorContains(t, err, r.want)
			open := r.want == gapless.ErrPeriodOpen.Error()
			require.Equal(t, open, errors.Is(err, gapless.ErrPeriodOpen))
			if !open {
				require.Error(t, r.g.ReopenPeriods(t.Context(), tx, r.typ, r.before))
			}
		}
		require.Zero(t, rows(t, tx))
		require.NoError(t, g.ClosePeriods(t.Context(), tx, "IS", serial.At(today)), "periods that ended yesterday")
		require.ErrorIs(t, weeks.ClosePeriods(t.Context(), tx, "IS", serial.At(monday)), serial.ErrConflict)
		require.ErrorIs(t, weeks.ReopenPeriods(t.Context(), tx, "IS", serial.At(monday)), serial.ErrConflict)
		require.ErrorIs(t, onlyErr(weeks.ClosedUntil(t.Context(), tx, "IS")), serial.ErrConflict)
		require.NoError(t, onlyErr(g.Next(t.Context(), tx, "IS")))
		execSQL(t, tx, "DELETE FROM serial_gapless_series") // the periods still have the calendar
		require.ErrorIs(t, weeks.ClosePeriods(t.Context(), tx, "IS", serial.At(october(4))), serial.ErrConflict)
		require.Equal(t, 1, rows(t, tx))
		require.NoError(t, tx.Commit())
		for _, tx := range []gapless.Tx{nil, (*sql.Tx)(nil)} {
			require.EqualError(t, g.ClosePeriods(t.Context(), tx, "IS", serial.At(today)), "gapless: the transaction is nil")
			require.EqualError(t, g.ReopenPeriods(t.Context(), tx, "IS", serial.At(today)), "gapless: the transaction is nil")
		}
		require.EqualError(t, onlyErr(g.ClosedUntil(t.Context(), nil, "IS")), "gapless: the Querier is nil")
		if d.dialect != gapless.PostgreSQL {
			return
		}
		// At any other level, the closing transaction could have a snapshot without the latest numbers.
		for _, level := range []sql.IsolationLevel{sql.LevelReadUncommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
			tx := beginAt(t, db, level)
			require.ErrorContains(t, g.ClosePeriods(t.Context(), tx, "NEW", serial.At(october(1))), "want READ COMMITTED")
			require.NoError(t, onlyErr(g.NextOn(t.Context(), tx, "NEW", serial.At(october(1)))))
			require.NoError(t, g.ReopenPeriods(t.Context(), tx, "NEW", serial.At(october(1))))
			require.NoError(t, tx.Commit())
		}
	})
}

// Periods, including those that began before 1970, end in the time zone of the scheme.
func TestClosedUntilInZone(t *testing.T) {
	east := time.FixedZone("", 14*3600)
	hours := []serial.Option{serial.WithPeriod(serial.PerHour), serial.WithTemplate("{type}{date:yyyyMMddHH}{seq:4}")}
	each(t, func(t *testing.T, d *database) {
		db := d.open(t)
		for prefix, r := range map[string]struct {
			opts   []serial.Option
			before time.Time
		}{
			"hours": {hours, time.Date(1970, 1, 1, 5, 0, 0, 0, east)},
			"none":  {nil, time.Date(1970, 1, 1, 0, 0, 0, 0, east)},
			"years": {perYear(time.April), time.Date(2025, 4, 1, 0, 0, 0, 0, east)},
			"weeks": {perWeek(), time.Date(2024, 12, 30, 0, 0, 0, 0, east)},
		} {
			g := d.generator(t, db, append(r.opts, serial.WithLocation(east), serial.WithKeyPrefix(prefix))...)
			first := serial.At(time.Date(1970, 1, 1, 4, 0, 0, 0, east))
			commits(t, db, func(tx *sql.Tx) { require.NoError(t, onlyErr(g.NextOn(t.Context(), tx, "IS", first))) })
			d.closes(t, db, g, r.before)
			tx := begin(t, db)
			if prefix == "none" {
				requireResult(t, time.Time{})(g.ClosedUntil(t.Context(), db, "IS"))
				require.NoError(t, onlyErr(g.NextOn(t.Context(), tx, "IS", first)))
			} else {
				requireResult(t, r.before, prefix)(g.ClosedUntil(t.Context(), db, "IS"))
				for _, at := range []serial.When{first, serial.At(r.before.Add(-time.Second))} {
					require.ErrorIs(t, onlyErr(g.NextOn(t.Context(), tx, "IS", at)), gapless.ErrPeriodClosed)
				}
				require.NoError(t, onlyErr(g.NextOn(t.Context(), tx, "IS", serial.At(r.before))))
			}
			require.NoError(t, tx.Rollback())
		}
	})
}

// If a generator assumes that a closed period is the current one, Next must take a number of the period that is really
// current. If the database's clock was set back to a closed period, Next must fail.
func TestNextInClosedPeriod(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		db, g := d.start(t)
		now := d.clock(t, db)
		for _, typ := range []string{"IS", "ROW"} {
			tx := beginAt(t, db, d.readCommitted())
			if typ == "ROW" {
				require.NoError(t, onlyErr(g.NextOn(t.Context(), tx, typ, serial.At(now.AddDate(0, 0, -1)))))
			}
			require.NoError(t, g.ClosePeriods(t.Context(), tx, typ, serial.At(now.UTC().Truncate(24*time.Hour))))
			require.NoError(t, tx.Commit())
			commits(t, db, func(tx *sql.Tx) {
				for want := range int64(2) {
					g.Misjudge(-24 * time.Hour)
					requireSeq(t, want+1)(g.Next(t.Context(), tx, typ))
				}
			})
			for _, table := range []string{"serial_gapless", "serial_gapless_series"} {
				execSQL(t, db, fmt.Sprintf("UPDATE %s SET closed = %d", table, now.Add(48*time.Hour).Unix()))
			}
			commits(t, db, func(tx *sql.Tx) {
				require.ErrorIs(t, onlyErr(g.Next(t.Context(), tx, typ)), gapless.ErrPeriodClosed)
				require.ErrorIs(t, onlyErr(g.NextN(t.Context(), tx, typ, 3)), gapless.ErrPeriodClosed)
				require.NoError(t, onlyErr(g.NextOn(t.Context(), tx, typ, serial.At(now.AddDate(0, 0, 4)))))
			})
		}
	})
}

// After periods have been closed, a number of the current period must cost no additional statement.
func TestCloseCostsNoStatement(t *testing.T) {
	kinds(t, each, func(t *testing.T, d *database) {
		db := d.open(t)
		g := d.generator(t, db, serial.WithLocation(d.noon(t, db)))
		commits(t, db, func(tx *sql.Tx) { require.NoError(t, onlyErr(g.Next(t.Context(), tx, "IS"))) })
		tx := beginAt(t, db, d.readCommitted())
		require.NoError(t, g.ClosePeriods(t.Context(), tx, "IS", serial.OnDateOf(october(3))))
		require.NoError(t, tx.Commit())
		want := map[gapless.Dialect]int{gapless.PostgreSQL: 1, gapless.MySQL: 1, gapless.SQLite: 2}[d.dialect]
		switch d.comment {
		case "/*M!100500":
			want = 2
		case "/*M!": // MySQL also needs a savepoint
			want = 4
		}
		statements := 0
		require.NoError(t, onlyErr(g.Next(t.Context(), counting{begin(t, db), &statements}, "IS")))
		require.Equal(t, want, statements)
	})
}

// While periods of one type are being closed, callers of series with another key prefix, type, table or schema must not
// wait.
func TestSeriesRowsAreSeparate(t *testing.T) {
	servers(t, func(t *testing.T, d *database) {
		db, g := d.start(t)
		closer := beginAt(t, db, sql.LevelReadCommitted)
		require.NoError(t, g.ClosePeriods(t.Context(), closer, "IS", serial.At(october(5))))
		another, err := gapless.New(d.dialect, scheme(t), gapless.WithTable("another"))
		require.NoError(t, err)
		require.NoError(t, another.CreateTable(t.Context(), db))
		e := map[gapless.Dialect]func(testing.TB) *database{
			gapless.PostgreSQL: postgreSQL, gapless.MySQL: mariaDB}[d.dialect](t)
		elsewhere := e.open(t)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		for _, r := range []struct {
			g   *gapless.Generator
			db  *sql.DB
			typ string
		}{
			{g, db, "IR"}, {g, db, "IT"}, {d.generator(t, db, serial.WithKeyPrefix("other")), db, "IS"}, {another, db, "IS"},
			{e.generator(t, elsewhere), elsewhere, "IS"},
		} {
			tx := begin(t, r.db)
			require.NoError(t, onlyErr(r.g.NextOn(ctx, tx, r.typ, serial.At(october(1)))))
			require.NoError(t, tx.Commit())
		}
	})
}

// With innodb_snapshot_isolation, MariaDB itself detects that the snapshot is too old. The message must recommend READ
// COMMITTED.
func TestCloseWithSnapshotIsolation(t *testing.T) {
	d := mariaDB(t).with("innodb_snapshot_isolation=ON")
	db := d.open(t)
	if err := db.PingContext(t.Context()); err != nil {
		skip(t, "no innodb_snapshot_isolation: %v", err)
	}
	g := d.generator(t, db)
	for _, level := range []sql.IsolationLevel{sql.LevelRepeatableRead, sql.LevelReadCommitted} {
		tx := beginAt(t, db, level)
		require.NoError(t, onlyErr(g.Last(t.Context(), tx, "IS", serial.At(october(1)))))
		commits(t, db, func(tx *sql.Tx) {
			require.NoError(t, onlyErr(g.NextOn(t.Context(), tx, "IS", serial.At(october(1)))))
		})
		err := g.ClosePeriods(t.Context(), tx, "IS", serial.At(october(2)))
		if level == sql.LevelReadCommitted {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, "want READ COMMITTED")
		}
		require.NoError(t, tx.Rollback())
	}
}

// old makes a server look as if it did not support SKIP LOCKED.
type old struct{ *sql.Tx }

func (tx old) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	return tx.Tx.QueryRowContext(ctx, strings.Replace(query, "SKIP LOCKED", "SKIP WHAT", 1), args...)
}

func TestCloseWithoutSkipLocked(t *testing.T) {
	d := mariaDB(t)
	db, g := d.start(t)
	commits(t, db, func(tx *sql.Tx) {
		require.NoError(t, onlyErr(g.NextOn(t.Context(), tx, "IS", serial.At(october(1)))))
	})
	for _, typ := range []string{"IS", "NEW"} {
		commits(t, db, func(tx *sql.Tx) {
			const want = "SKIP LOCKED; want MariaDB 10.6, MySQL 8.0 or later"
			require.ErrorContains(t, g.ClosePeriods(t.Context(), old{tx}, typ, serial.At(october(2))), want)
		})
		require.Equal(t, 2, rows(t, db), "nothing was written")
		requireResult(t, time.Time{})(g.ClosedUntil(t.Context(), db, typ))
	}
}

// ClosePeriods and ReopenPeriods must read and write only the rows that they change, even if many other rows are closed
// already.
func TestCloseTouchesOnlyChangedRows(t *testing.T) {
	const closed, limit = 2_000, 200
	servers(t, func(t *testing.T, d *database) {
		db, g := d.start(t, serial.WithPeriod(serial.PerMinute), serial.WithTemplate("{type}{date:yyyyMMddHHmm}-{seq:4}"))
		minute := func(n int) serial.When { return serial.At(october(1).Add(time.Duration(n) * time.Minute)) }
		commits(t, db, func(tx *sql.Tx) { require.NoError(t, onlyErr(g.NextOn(t.Context(), tx, "IS", minute(0)))) })
		fill := "INSERT INTO serial_gapless SELECT series, convert_to(to_char(timestamp '2021-10-01' + i * interval " +
			"'1 minute', 'YYYYMMDDHH24MI'), 'UTF8'), mark, 0, 1, NULL FROM serial_gapless, generate_series(1, %d) i"
		touched := "SELECT sum(seq_tup_read + idx_tup_fetch + n_tup_upd) FROM pg_stat_xact_user_tables WHERE relname LIKE " +
			"'serial_gapless%'"
		analyze := "VACUUM ANALYZE serial_gapless"
		if d.dialect == gapless.MySQL {
			fill = "INSERT INTO serial_gapless SELECT series, date_format(date_add('2021-10-01', INTERVAL seq MINUTE), " +
				"'%%Y%%m%%d%%H%%i'), mark, 0, 1, NULL FROM serial_gapless, seq_1_to_%d"
			touched = "SELECT sum(variable_value) FROM information_schema.session_status " +
				"WHERE variable_name LIKE 'HANDLER_READ_%'"
			analyze = "ANALYZE TABLE serial_gapless"
		}
		execSQL(t, db, fmt.Sprintf(fill, closed+10))
		if d.dialect == gapless.MySQL {
			tx := beginAt(t, d.with("group_concat_max_len=40").open(t), sql.LevelReadCommitted)
			require.ErrorContains(t, g.ClosePeriods(t.Context(), tx, "IS", minute(closed)), "group_concat_max_len")
			require.NoError(t, tx.Rollback())
		}
		change := func(f func(context.Context, gapless.Tx, string, serial.When) error, to int) (n float64) {
			t.Helper()
			tx := beginAt(t, db, sql.LevelReadCommitted)
			count := func() (n float64) {
				require.NoError(t, tx.QueryRowContext(t.Context(), touched).Scan(&n))
				return n
			}
			before := count()
			require.NoError(t, f(t.Context(), tx, "IS", minute(to)))
			n = count() - before
			require.NoError(t, tx.Commit())
			var open int
			require.NoError(t, db.QueryRowContext(t.Context(),
				"SELECT count(*) FROM serial_gapless WHERE closed IS NULL").Scan(&open))
			require.Equal(t, closed+11-to, open)
			return n
		}
		change(g.ClosePeriods, closed) // more rows than setClosedByKey changes at once
		execSQL(t, db, analyze)
		require.Less(t, change(g.ClosePeriods, closed+3), float64(limit))
		require.Less(t, change(g.ReopenPeriods, closed+1), float64(limit))
		require.Less(t, change(g.ClosePeriods, closed+5), float64(limit))
	})
}
