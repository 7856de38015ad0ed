package gapless_test

import (
	"database/sql"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/lib/pq"
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
	g, err := gapless.New(d.dialect, scheme(t, opts...), gapless.WithChronology())
	require.NoError(t, err)
	require.NoError(t, g.CreateTable(t.Context(), db))
	if d.comment != "" {
		g.AsOn(d.comment)
	}
	return g
}

// row returns the last sequence of IS in a period, its date and the previous date, with 0 for a missing value.
func (d *database) row(t testing.TB, tx gapless.Querier, period string) (row [3]int64) {
	t.Helper()
	literal := "x'%x'"
	if d.dialect == gapless.PostgreSQL {
		literal = `'\x%x'`
	}
	query := fmt.Sprintf("SELECT last, coalesce(dated, 0), coalesce(dated_before, 0) FROM serial_gapless "+
		"WHERE series = "+literal+" AND period = "+literal, "serial:IS", period)
	require.NoError(t, tx.QueryRowContext(t.Context(), query).Scan(&row[0], &row[1], &row[2]))
	return row
}

// A call with an earlier date than an existing number must fail, whatever has happened to the row in between. It takes
// nothing, and the transaction can continue.
func TestChronology(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		db := d.open(t)
		g, hexadecimal := d.chronological(t, db, perMonth()...),
			d.chronological(t, db, perMonth(serial.WithTemplate("{type}{date:yyyyMMdd}-{seq:3:base36}"))...)
		requireChronology(t, d, db, g, hexadecimal)
	})
}

func requireChronology(t *testing.T, d *database, db *sql.DB, g, other *gapless.Generator) {
	t.Helper()
	day := func(day int) serial.When { return serial.On(2021, time.October, day) }
	on := func(tx *sql.Tx, at serial.When, want int64) {
		t.Helper()
		requireSeq(t, want)(g.NextOn(t.Context(), tx, "IS", at))
	}
	late := func(tx *sql.Tx, at serial.When) {
		t.Helper()
		before := d.row(t, tx, "202110")
		_, err := g.NextOn(t.Context(), tx, "IS", at)
		require.ErrorIs(t, err, gapless.ErrOutOfOrder)
		last := fmt.Sprint(before[1])
		require.ErrorContains(t, err, " a number dated "+last[:4]+"-"+last[4:6]+"-"+last[6:]+"; want that date or")
		after := d.row(t, tx, "202110")
		require.Equal(t, before[:2], after[:2])
	}
	commits(t, db, func(tx *sql.Tx) {
		on(tx, day(5), 1)
		late(tx, day(4))
		on(tx, day(5), 2)
		on(tx, day(6), 3)
		on(tx, serial.On(2021, time.September, 30), 1) // another period
		on(tx, serial.At(october(6).Add(23*time.Hour)), 4)
		late(tx, serial.At(october(6).Add(-time.Second)))
		require.Equal(t, [3]int64{4, 20211006, 20211006}, d.row(t, tx, "202110"))
		numbers, err := g.NextN(t.Context(), tx, "IS", 2)
		require.NoError(t, err)
		require.EqualValues(t, 2, numbers[1].Seq) // of the current month
	})

	// A number that is rolled back, completely or to a savepoint, leaves no date.
	tx := begin(t, db)
	on(tx, day(30), 5)
	require.NoError(t, tx.Rollback())
	commits(t, db, func(tx *sql.Tx) {
		execSQL(t, tx, "SAVEPOINT s")
		on(tx, day(30), 5)
		execSQL(t, tx, "ROLLBACK TO SAVEPOINT s")
		on(tx, day(8), 5)
		require.Equal(t, [3]int64{5, 20211008, 20211006}, d.row(t, tx, "202110"))
	})

	// After other errors, the date is restored, too. Raise writes no date.
	commits(t, db, func(tx *sql.Tx) {
		require.ErrorIs(t, onlyErr(other.NextOn(t.Context(), tx, "IS", day(30))), serial.ErrConflict)
		require.Equal(t, [3]int64{5, 20211008, 20211008}, d.row(t, tx, "202110"))
		on(tx, day(9), 6)
		row := [3]int64{6, 20211009, 20211008}
		require.Equal(t, row, d.row(t, tx, "202110"))
		require.ErrorIs(t, other.Raise(t.Context(), tx, "IS", day(30), 20), serial.ErrConflict)
		require.Equal(t, row, d.row(t, tx, "202110"))
		require.NoError(t, g.Raise(t.Context(), tx, "IS", day(1), 20))
		row[0] = 20
		require.Equal(t, row, d.row(t, tx, "202110"))
		late(tx, day(8))
		on(tx, day(9), 21)
		require.NoError(t, g.Raise(t.Context(), tx, "IS", serial.On(2021, time.August, 1), 7)) // a new row
		require.Equal(t, [3]int64{7, 0, 0}, d.row(t, tx, "202108"))
		on(tx, serial.On(2021, time.August, 2), 8)
		require.NoError(t, g.Raise(t.Context(), tx, "IS", day(1), 998))
		on(tx, day(9), 999)
		require.ErrorIs(t, onlyErr(g.NextOn(t.Context(), tx, "IS", day(30))), serial.ErrExhausted)
		late(tx, day(8))
		require.Equal(t, [3]int64{999, 20211009, 20211009}, d.row(t, tx, "202110"))
	})
	d.closes(t, db, g, october(1))
	commits(t, db, func(tx *sql.Tx) {
		september := serial.On(2021, time.September, 30)
		for _, at := range []serial.When{serial.On(2021, time.September, 1), september} {
			require.ErrorIs(t, onlyErr(g.NextOn(t.Context(), tx, "IS", at)), gapless.ErrPeriodClosed)
		}
		require.NoError(t, g.ReopenPeriods(t.Context(), tx, "IS", serial.On(2021, time.September, 1)))
		require.ErrorIs(t, onlyErr(g.NextOn(t.Context(), tx, "IS", serial.On(2021, time.September, 29))),
			gapless.ErrOutOfOrder)
		on(tx, september, 2)
	})
}

// Every driver must read the stored dates unchanged, whatever its settings do to the type DATE.
func TestChronologyWithDrivers(t *testing.T) {
	saoPaulo, err := time.LoadLocation("America/Sao_Paulo")
	require.NoError(t, err)
	other := serial.WithTemplate("{type}{date:yyyyMMdd}-{seq:3:base36}")
	t.Run("lib/pq", func(t *testing.T) {
		d := postgreSQL(t)
		connector, err := pq.NewConnector(d.dsn + "&search_path=" + d.name)
		require.NoError(t, err)
		db := sql.OpenDB(connector)
		t.Cleanup(func() { _ = db.Close() })
		requireChronology(t, d, db, d.chronological(t, db, perMonth()...), d.chronological(t, db, perMonth(other)...))
	})
	t.Run("parseTime and loc", func(t *testing.T) {
		d := mariaDB(t)
		config, err := mysql.ParseDSN(d.dsn)
		require.NoError(t, err)
		config.DBName, config.ParseTime, config.Loc = d.name, true, saoPaulo
		connector, err := mysql.NewConnector(config)
		require.NoError(t, err)
		db := sql.OpenDB(connector)
		t.Cleanup(func() { _ = db.Close() })
		requireChronology(t, d, db, d.chronological(t, db, perMonth()...), d.chronological(t, db, perMonth(other)...))
	})
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
		number := func(at time.Time) (n int64) {
			year, month, day := at.Date()
			return int64(year*10_000 + int(month)*100 + day)
		}
		commits(t, db, func(tx *sql.Tx) {
			for i, ahead := range []int{0, -1, -400, 0, 1, 400} {
				g.Misjudge(time.Duration(ahead) * 24 * time.Hour)
				requireSeq(t, int64(i+1))(g.Next(t.Context(), tx, "IS"))
				require.Equal(t, number(today), d.row(t, tx, "all")[1])
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

// The compared date must be the business date, by the scheme's time zone and day start.
func TestChronologyByBusinessDate(t *testing.T) {
	apia, err := time.LoadLocation("Pacific/Apia")
	require.NoError(t, err)
	d := inFile(t)
	db := d.open(t)
	g := d.chronological(t, db, perMonth(serial.WithLocation(apia), serial.WithDayStart(4*time.Hour))...)
	commits(t, db, func(tx *sql.Tx) {
		at := func(day, hour int) serial.When {
			return serial.At(time.Date(2011, time.December, day, hour, 59, 0, 0, apia))
		}
		// This zone skips 30 December. The business day of the 30th is from 00:00 to 04:00 on the 31st.
		for i, when := range []serial.When{serial.On(2011, time.December, 29), at(31, 3), at(31, 4)} {
			n, err := g.NextOn(t.Context(), tx, "IS", when)
			require.NoError(t, err)
			require.Equal(t, fmt.Sprintf("IS%d-00%d", []int{20111229, 20111230, 20111231}[i], i+1), n.String())
			require.Equal(t, fmt.Sprint(d.row(t, tx, "201112")[1]), n.String()[2:10])
		}
		require.ErrorIs(t, onlyErr(g.NextOn(t.Context(), tx, "IS", at(31, 3))), gapless.ErrOutOfOrder)
		require.Equal(t, [3]int64{3, 20111231, 20111231}, d.row(t, tx, "201112"))
	})
}

// CreateTable must add the columns to an existing table, even if many processes call it at the same time. Generators
// without the option continue to use the table, and their numbers have no date.
func TestChronologyAddsColumns(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		db := d.open(t)
		plain := d.generator(t, db, perMonth()...)
		day := func(day int) serial.When { return serial.On(2021, time.October, day) }
		takes := func(g *gapless.Generator, at, want int) {
			t.Helper()
			commits(t, db, func(tx *sql.Tx) { requireSeq(t, int64(want))(g.NextOn(t.Context(), tx, "IS", day(at))) })
		}
		takes(plain, 9, 1)
		g, err := gapless.New(d.dialect, scheme(t, perMonth()...), gapless.WithChronology())
		require.NoError(t, err)
		tx := begin(t, db)
		_, err = g.NextOn(t.Context(), tx, "IS", day(9))
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
		takes(g, 4, 2) // the numbers before have no date
		takes(plain, 20, 3)
		takes(g, 5, 4)
		takes(plain, 1, 5)
		require.Equal(t, [3]int64{5, 20211005, 20211004}, d.row(t, db, "202110"))
		commits(t, db, func(tx *sql.Tx) {
			require.ErrorIs(t, onlyErr(g.NextOn(t.Context(), tx, "IS", day(4))), gapless.ErrOutOfOrder)
		})
		takes(g, 5, 6)

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
			takes(g, 5, 1)
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
