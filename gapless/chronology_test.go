package gapless_test

import (
	"database/sql"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/gapless"
)

// perMonth returns options for a scheme with monthly periods that prints the day.
func perMonth(opts ...serial.Option) []serial.Option {
	return append([]serial.Option{serial.WithPeriod(serial.PerMonth),
		serial.WithTemplate("{type}{date:yyyyMMdd}-{seq:3}")}, opts...)
}

// chronological returns a generator with WithChronology and creates its tables.
func (d *database) chronological(t testing.TB, db *sql.DB, opts ...serial.Option) *gapless.Generator {
	t.Helper()
	return d.generatorWith(t, db, opts, gapless.WithChronology())
}

// row returns the last sequence of IS in a period, its date and the previous date, with 0 for a missing value.
func (d *database) row(t testing.TB, tx gapless.Querier, period string) string {
	t.Helper()
	literal := "x'%x'"
	if d.dialect == gapless.PostgreSQL {
		literal = `'\x%x'`
	}
	query := fmt.Sprintf("SELECT last, coalesce(dated, 0), coalesce(dated_before, 0) FROM serial_gapless "+
		"WHERE series = "+literal+" AND period = "+literal, "serial:IS", period)
	var last, dated, before int64
	require.NoError(t, tx.QueryRowContext(t.Context(), query).Scan(&last, &dated, &before))
	return fmt.Sprintf("%d,%d,%d", last, dated, before)
}

// A call with an earlier date than an existing number must fail, whatever has happened to the row in between. It takes
// nothing, and the transaction can continue. Every driver must read the stored dates unchanged, whatever its settings
// do to the type DATE.
func TestChronology(t *testing.T) {
	each(t, func(t *testing.T, d *database) { requireChronology(t, d, d.open(t)) })
	t.Run("lib/pq", func(t *testing.T) {
		d := postgreSQL(t)
		requireChronology(t, d, d.openPQ(t))
	})
	t.Run("parseTime and loc", func(t *testing.T) {
		d := mariaDB(t).with("parseTime=true&loc=America%2FSao_Paulo")
		requireChronology(t, d, d.open(t))
	})
}

func requireChronology(t *testing.T, d *database, db *sql.DB) {
	t.Helper()
	s := &steps{t: t, d: d, db: db, sessions: map[string]*session{}, generators: map[string]*gapless.Generator{
		"":      d.chronological(t, db, perMonth()...),
		"other": d.chronological(t, db, perMonth(serial.WithTemplate("{type}{date:yyyyMMdd}-{seq:3:base36}"))...)}}
	s.run(`
		begin on5=1 on4!order on5=2 on6=3
		on20210930=1 # another period
		on20211006T23=4 on20211005T23!order row202110=4,20211006,20211006
		take2=2 # of the current month
		commit

		# A number that is rolled back, completely or to a savepoint, leaves no date.
		begin on30=5 rollback
		begin save on30=5 back on8=5 row202110=5,20211008,20211006 commit

		# After other errors, the date is restored, too. Raise writes no date.
		begin other.on30!conflict row202110=5,20211008,20211008
		on9=6 row202110=6,20211009,20211008
		other.raise30=20!conflict row202110=6,20211009,20211008
		raise1=20 row202110=20,20211009,20211008
		on8!order on9=21
		raise20210801=7 row202108=7,0,0 on20210802=8 # a new row
		raise1=998 on9=999 on30!exhausted on8!order row202110=999,20211009,20211009 commit

		close1
		begin=committed on20210901!closed on20210930!closed
		reopen20210901 on20210929!order on20210930=2 on8!dated commit
	`)
}

// Next must use the date of the database's clock, even if the generator expects a different date, and even if the
// template prints no day. After a number with a date in the future, Next must fail until that day.
func TestChronologyByDatabaseClock(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		db := d.open(t)
		noon := d.noon(t, db)
		g := d.chronological(t, db, serial.WithPeriod(serial.Never), serial.WithTemplate("{type}-{seq:4}"),
			serial.WithLocation(noon))
		today := d.clock(t, db).In(noon)
		commits(t, db, func(tx *sql.Tx) {
			for i, ahead := range []int{-1, 0, -400, 0, 1, 400} {
				g.Misjudge(time.Duration(ahead) * 24 * time.Hour)
				requireSeq(t, int64(i+1))(g.Next(t.Context(), tx, "IS"))
				require.Contains(t, d.row(t, tx, "all"), today.Format(",20060102,"))
			}
			g.Misjudge(24 * time.Hour)
			require.ErrorIs(t, onlyErr(g.NextOn(t.Context(), tx, "IS", serial.OnDateOf(today.AddDate(0, 0, -1)))),
				gapless.ErrOutOfOrder)
			requireSeq(t, 7)(g.NextOn(t.Context(), tx, "IS", serial.OnDateOf(today.AddDate(0, 0, 2))))
			for _, ahead := range []int{0, 3, -3} {
				g.Misjudge(time.Duration(ahead) * 24 * time.Hour)
				_, err := g.Next(t.Context(), tx, "IS")
				require.ErrorIs(t, err, gapless.ErrOutOfOrder)
				require.ErrorContains(t, err, today.Format(time.DateOnly)+": period all already has a number dated "+
					today.AddDate(0, 0, 2).Format(time.DateOnly))
				require.ErrorIs(t, onlyErr(g.NextN(t.Context(), tx, "IS", 3)), gapless.ErrOutOfOrder)
			}
			requireSeq(t, 8)(g.NextOn(t.Context(), tx, "IS", serial.OnDateOf(today.AddDate(0, 0, 2))))
		})
	})
}

// The compared date must be the business date, by the scheme's time zone and day start. Apia skips 30 December. The
// business day of the 30th is from 00:00 to 04:00 on the 31st, which is 10:00 to 14:00 on the 30th in UTC.
func TestChronologyByBusinessDate(t *testing.T) {
	apia, err := time.LoadLocation("Pacific/Apia")
	require.NoError(t, err)
	d := inFile(t)
	s := d.steps(t, nil)
	s.generators[""] = d.chronological(t, s.db, perMonth(serial.WithLocation(apia), serial.WithDayStart(4*time.Hour))...)
	s.run(`
		begin on20111229=IS20111229-001 row201112=1,20111229,0
		on20111230T13=IS20111230-002 row201112=2,20111230,20111229
		on20111230T14=IS20111231-003 on20111230T13!order row201112=3,20111231,20111231 commit
	`)
}

// CreateTable must add the columns to an existing table, even if many processes call it at the same time. Generators
// without the option continue to use the table, and their numbers have no date.
func TestChronologyAddsColumns(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		s := d.steps(t, schemes{"plain": perMonth()})
		g, err := gapless.New(d.dialect, scheme(t, perMonth()...), gapless.WithChronology())
		require.NoError(t, err)
		s.generators[""] = g
		db, plain := s.db, s.generators["plain"]
		s.run("plain.on9=1")
		tx := begin(t, db)
		_, err = g.NextOn(t.Context(), tx, "IS", serial.At(october(9)))
		require.ErrorContains(t, err, "dated") // the driver's error, which contains the missing column
		require.NoError(t, tx.Rollback())
		require.NoError(t, plain.CreateTable(t.Context(), db))
		require.ErrorContains(t, onlyErr(db.ExecContext(t.Context(), "SELECT dated FROM serial_gapless")), "dated")

		blocker := begin(t, db)
		if d.dialect == gapless.PostgreSQL { // several processes check for the columns before one adds them
			execSQL(t, blocker, "LOCK TABLE serial_gapless")
		}
		const callers = 8
		var creators sync.WaitGroup
		for range callers {
			other := d.open(t)
			creators.Go(func() {
				if err := g.CreateTable(t.Context(), other); err != nil {
					t.Error(err)
				}
			})
		}
		if d.dialect == gapless.PostgreSQL {
			require.Eventually(t, func() bool {
				var waiting int
				return db.QueryRowContext(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "+
					"AND application_name = '"+d.name+"'").Scan(&waiting) == nil && waiting == callers
			}, 30*time.Second, 10*time.Millisecond)
		}
		require.NoError(t, blocker.Commit())
		creators.Wait()
		s.run("on4=2 plain.on20=3 on5=4 plain.on1=5 row202110=5,20211005,20211004") // the numbers before have no date
		s.run("on4!order on5=6")

		// The documented statements add the same columns. If one is missing, CreateTable adds it.
		statements := documented(t)
		require.Len(t, statements, 2)
		for _, executed := range []int{1, 2} {
			execSQL(t, db, "DROP TABLE serial_gapless")
			require.NoError(t, plain.CreateTable(t.Context(), db))
			for _, statement := range statements[:executed] {
				execSQL(t, db, statement)
			}
			if executed == 1 {
				require.NoError(t, g.CreateTable(t.Context(), db))
			}
			s.run("on5=1")
		}
	})
}

// documented returns the statements in the comment of WithChronology that add the columns.
func documented(t *testing.T) (statements []string) {
	t.Helper()
	source, err := os.ReadFile("chronology.go")
	require.NoError(t, err)
	for line := range strings.Lines(string(source)) {
		line = strings.TrimSpace(strings.TrimPrefix(line, "//"))
		if strings.HasPrefix(line, "ALTER TABLE serial_gapless ADD COLUMN dated") {
			statements = append(statements, strings.TrimSuffix(line, ";"))
		}
	}
	return statements
}
