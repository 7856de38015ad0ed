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
		s := d.steps(t, schemes{"": nil, "another": nil})
		run := func(script string) {
			t.Helper()
			s.run(digits.ReplaceAllStringFunc(script, expand))
		}
		run(`
			another.until=0 close2 another.until=20211002 # the type has no numbers yet
			begin closed1 on2=1 on3=1 on5=1 commit
			begin=committed on3=2 close4 closed123 on4=1 close5 closed1234 another.until=20211005 commit
			another.until=20211005
			on2!ending on3!latest another.late2!latest # closed one after the other; the error must name the latest end
			begin closed1234 on5=2 on6=1 next=1 IT/on3=1 commit

			# Closing up to an earlier end changes nothing, and neither does a closing that is rolled back.
			close2 until=20211005 close5 until=20211005
			begin=committed on6=2 save close7 closed56 back until=20211005 on6=3
			reopen2 on2=2 back closed2 rollback
			until=20211005

			# Reopen the latest periods, and then close some of them again.
			begin=committed IT/reopen5 IT/until=0 IT/on4=1 reopen7 reopen5 until=20211005
			reopen3 until=20211003 closed12 on3=3 commit
			begin closed12 on3=4 on4=2 commit
			close4
			begin=committed closed123 on4=3 reopen19700101 until=0 on1=1 on2=2 commit
		`)
	})
}

// If periods cannot be closed, ClosePeriods must write nothing, and the transaction can continue.
func TestClosePeriodsRefused(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		s := d.steps(t, schemes{"": nil, "weeks": perWeek(),
			"never": {serial.WithPeriod(serial.Never), serial.WithTemplate("{type}-{seq:4}")}})
		db, g, never, weeks := s.db, s.generators[""], s.generators["never"], s.generators["weeks"]
		tx := beginAt(t, db, d.readCommitted())
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
		require.NoError(t, tx.Rollback())
		s.run("begin=committed close" + today.Format("20060102") + " weeks.close" + monday.Format("20060102") + "!conflict")
		s.run(`
			weeks.until!conflict next weeks.reopen20211004!conflict
			sql DELETE FROM serial_gapless_series
			weeks.close20211004!conflict rows=1 commit # the periods still have the calendar
		`)
		for _, tx := range []gapless.Tx{nil, (*sql.Tx)(nil)} {
			require.EqualError(t, g.ClosePeriods(t.Context(), tx, "IS", serial.At(today)), "gapless: the transaction is nil")
			require.EqualError(t, g.ReopenPeriods(t.Context(), tx, "IS", serial.At(today)), "gapless: the transaction is nil")
		}
		require.EqualError(t, onlyErr(g.ClosedUntil(t.Context(), nil, "IS")), "gapless: the Querier is nil")
		if d.dialect == gapless.PostgreSQL { // with another level, the snapshot could lack the latest numbers
			s.run(`
				begin=uncommitted NEW/close1!level NEW/on1=1 NEW/reopen1 commit
				begin=repeatable NEW/close1!level NEW/on1=2 NEW/reopen1 commit
				begin=serializable NEW/close1!level NEW/on1=3 NEW/reopen1 commit
			`)
		}
	})
}

// Periods, including those that began before 1970, end in the time zone of the scheme, here 14 hours east of UTC.
func TestClosedUntilInZone(t *testing.T) {
	zone := time.FixedZone("", 14*3600)
	east := serial.WithLocation(zone)
	each(t, func(t *testing.T, d *database) {
		s := d.steps(t, schemes{
			"":      {east, serial.WithPeriod(serial.PerHour), serial.WithTemplate("{type}{date:yyyyMMddHH}{seq:4}")},
			"days":  {east, serial.WithKeyPrefix("days")},
			"years": append(perYear(time.April), east, serial.WithKeyPrefix("years")),
			"weeks": append(perWeek(), east, serial.WithKeyPrefix("weeks"))})
		s.run(`
			on19691231T14=1 close19691231T15 on19691231T14!closed on19691231T15=1 until=19700101
			days.on19691231T14=1 days.close19691231T10 days.until=0 days.on19691231T14=2
			years.on19691231T14=1 years.close20250401 years.until=20250401
			years.on19691231T14!closed years.on20250331!closed years.on20250401=1
			weeks.on19691231T14=1 weeks.close20241230 weeks.until=20241230
			weeks.on19691231T14!closed weeks.on20241229!closed weeks.on20241230=1
		`)
		requireResult(t, time.Date(1970, 1, 1, 5, 0, 0, 0, zone))(s.generators[""].ClosedUntil(t.Context(), s.db, "IS"))
	})
}

// If a generator assumes that a closed period is the current one, Next must take a number of the period that is really
// current. If the database's clock was set back to a closed period, Next must fail.
func TestNextInClosedPeriod(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		s := d.steps(t, nil)
		now := d.clock(t, s.db).UTC()
		for _, typ := range []string{"IS", "ROW"} {
			if typ == "ROW" {
				s.run(typ + "/on" + now.AddDate(0, 0, -1).Format("20060102"))
			}
			s.run(typ + "/close" + now.Format("20060102") + " begin")
			for _, next := range []string{"/next=1 ", "/next=2 commit"} {
				s.generators[""].Misjudge(-24 * time.Hour)
				s.run(typ + next)
			}
			for _, table := range []string{"serial_gapless", "serial_gapless_series"} {
				execSQL(t, s.db, fmt.Sprintf("UPDATE %s SET closed = %d", table, now.Add(48*time.Hour).Unix()))
			}
			s.run(fmt.Sprintf("begin %s/next!closed %[1]s/take3!closed %[1]s/on%s commit", typ,
				now.AddDate(0, 0, 4).Format("20060102")))
		}
	})
}

// After periods have been closed, a number of the current period must cost no additional statement.
func TestCloseCostsNoStatement(t *testing.T) {
	kinds(t, each, func(t *testing.T, d *database) {
		s := d.steps(t, schemes{"": {serial.WithLocation(d.noon(t, d.open(t)))}})
		s.run("next close3")
		want := map[gapless.Dialect]int{gapless.PostgreSQL: 1, gapless.MySQL: 1, gapless.SQLite: 2}[d.dialect]
		switch d.comment {
		case "/*M!100500":
			want = 2
		case "/*M!": // MySQL also needs a savepoint
			want = 4
		}
		statements := 0
		tx := counting(begin(t, s.db), &statements)
		require.NoError(t, onlyErr(s.generators[""].Next(t.Context(), tx, "IS")))
		require.Equal(t, want, statements)
	})
}

// While periods of one type are being closed, callers of series with another key prefix, type, table or schema must not
// wait.
func TestSeriesRowsAreSeparate(t *testing.T) {
	servers(t, func(t *testing.T, d *database) {
		s := d.steps(t, schemes{"": nil, "other": {serial.WithKeyPrefix("other")}})
		s.generators["another"] = d.generatorWith(t, s.db, nil, gapless.WithTable("another"))
		elsewhere := map[gapless.Dialect]func(testing.TB) *database{gapless.PostgreSQL: postgreSQL, gapless.MySQL: mariaDB}
		s.run(`
			closer: begin=committed close5
			IR/on1=1 IT/on1=1 other.on1=1 another.on1=1
		`)
		elsewhere[d.dialect](t).steps(t, nil).run("on1=1")
	})
}

// With innodb_snapshot_isolation, MariaDB itself detects that the snapshot is too old. The message must recommend READ
// COMMITTED.
func TestCloseWithSnapshotIsolation(t *testing.T) {
	d := mariaDB(t).with("innodb_snapshot_isolation=ON")
	if err := d.open(t).PingContext(t.Context()); err != nil {
		skip(t, "no innodb_snapshot_isolation: %v", err)
	}
	d.steps(t, nil).run(`
		begin=repeatable last1=0
		other: on1=1
		close2!level rollback
		begin=committed last1=1
		other: on1=2
		close2
	`)
}

// A server that does not support SKIP LOCKED, which a changed statement imitates, must cause an error.
func TestCloseWithoutSkipLocked(t *testing.T) {
	s := mariaDB(t).steps(t, nil)
	s.run("on1=1")
	for _, typ := range []string{"IS", "NEW"} {
		commits(t, s.db, func(tx *sql.Tx) {
			old := &hooked{tx, func(query string, _ bool) (string, error) {
				return strings.Replace(query, "SKIP LOCKED", "SKIP WHAT", 1), nil
			}}
			require.ErrorContains(t, s.generators[""].ClosePeriods(t.Context(), old, typ, serial.At(october(2))),
				"SKIP LOCKED; want MariaDB 10.6, MySQL 8.0 or later")
		})
		s.run("rows=2 " + typ + "/until=0") // nothing was written
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
