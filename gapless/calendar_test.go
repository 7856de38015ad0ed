package gapless_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/gapless"
)

func perWeek() []serial.Option {
	return []serial.Option{serial.WithPeriod(serial.PerWeek), serial.WithTemplate("{type}{date:GGGGWW}{seq:4}")}
}

func perYear(from time.Month) []serial.Option {
	return []serial.Option{serial.WithPeriod(serial.PerYear), serial.WithYearStart(from, 1),
		serial.WithTemplate("{type}{date:FFFF}{seq:4}")}
}

// requireConflict checks that every call of g for a type fails with ErrConflict, in any period, and that the message
// contains want.
func requireConflict(t *testing.T, g *gapless.Generator, tx *sql.Tx, typ, want string) {
	t.Helper()
	_, err := g.Next(t.Context(), tx, typ)
	require.ErrorIs(t, err, serial.ErrConflict)
	require.ErrorContains(t, err, want)
	for _, year := range []int{1999, 2021, 2040} {
		at := serial.On(year, time.October, 24)
		_, err = g.NextOn(t.Context(), tx, typ, at)
		require.ErrorIs(t, err, serial.ErrConflict)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err,
			"to count in another way, use another type, or another key prefix together with another literal in the template")
		err = g.Raise(t.Context(), tx, typ, at, 5)
		require.ErrorIs(t, err, serial.ErrConflict)
		require.ErrorContains(t, err, want)
		_, err = g.Last(t.Context(), tx, typ, at)
		require.ErrorIs(t, err, serial.ErrConflict)
		require.ErrorContains(t, err, want)
	}
}

// As long as any row of a series exists, calls with a different period length or year start must fail.
func TestCalendarCannotChange(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		db := d.open(t)
		days, weeks := d.generator(t, db), d.generator(t, db, perWeek()...)
		april, july := d.generator(t, db, perYear(time.April)...), d.generator(t, db, perYear(time.July)...)
		day := october(24)
		takes := func(g *gapless.Generator, tx *sql.Tx, typ string, want int64) {
			t.Helper()
			requireSeq(t, want)(g.NextOn(t.Context(), tx, typ, serial.At(day)))
		}
		commits(t, db, func(tx *sql.Tx) { // the same errors must occur before the rows are committed and afterwards
			takes(days, tx, "D", 1)
			takes(april, tx, "A", 1)
			require.NoError(t, weeks.Raise(t.Context(), tx, "W", serial.At(day), 7))
			requireConflict(t, weeks, tx, "D", "D is counted by days, but this scheme counts by weeks;")
			takes(days, tx, "D", 2)
		})
		commits(t, db, func(tx *sql.Tx) {
			requireConflict(t, weeks, tx, "D", "D is counted by days, but this scheme counts by weeks;")
			requireConflict(t, days, tx, "W", "W is counted by weeks, but this scheme counts by days;")
			requireConflict(t, july, tx, "A",
				"A is counted by years from April 1, but this scheme counts by years from July 1;")
			takes(days, tx, "D", 3)
			takes(april, tx, "A", 2)
			takes(weeks, tx, "W", 8)
			takes(weeks, tx, "X", 1) // another type
		})

		// The result is the same after the series' row, or only the rows of its periods, were deleted.
		commits(t, db, func(tx *sql.Tx) {
			_, err := tx.ExecContext(t.Context(), "DELETE FROM serial_gapless_series")
			require.NoError(t, err)
			requireConflict(t, weeks, tx, "D", "D is counted by days, but this scheme counts by weeks;")
			takes(days, tx, "D", 4)
			require.NoError(t, onlyErr(days.NextOn(t.Context(), tx, "D", serial.On(2022, time.October, 24))))
			_, err = tx.ExecContext(t.Context(), "DELETE FROM serial_gapless")
			require.NoError(t, err)
			requireConflict(t, weeks, tx, "D", "D is counted by days, but this scheme counts by weeks;")
			require.NoError(t, onlyErr(tx.ExecContext(t.Context(), "DELETE FROM serial_gapless_series")))
			takes(weeks, tx, "D", 1)
		})
	})
}

// Two schemes with different calendars begin a series at the same time. The second one must wait for the first, and
// then fail.
func TestCalendarsAtOnce(t *testing.T) {
	servers(t, func(t *testing.T, d *database) {
		db := d.open(t)
		days, weeks := d.generator(t, db), d.generator(t, db, perWeek()...)
		at := serial.At(october(24))
		for typ, end := range map[string]func(*sql.Tx) error{"C": (*sql.Tx).Commit, "R": (*sql.Tx).Rollback} {
			first, second := begin(t, db), begin(t, db)
			require.NoError(t, onlyErr(days.NextOn(t.Context(), first, typ, at)))
			id, result := d.connection(t, second), make(chan error, 1)
			go func() { result <- onlyErr(weeks.NextOn(t.Context(), second, typ, at)) }()
			require.Eventually(t, func() bool { return d.waits(t, db, id) }, 30*time.Second, time.Millisecond)
			require.NoError(t, end(first))
			if typ == "C" {
				require.ErrorIs(t, <-result, serial.ErrConflict)
			} else {
				require.NoError(t, <-result)
			}
			require.NoError(t, second.Commit())
			requireSeq(t, 1)(map[string]*gapless.Generator{"C": days, "R": weeks}[typ].Last(t.Context(), db, typ, at))
		}
	})
}

// A transaction uses a scheme with a different calendar, gets an error, and commits. Later transactions must get the
// same error, whatever row the first one has left behind.
func TestRefusedCalendarRetried(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		db := d.open(t)
		days := d.generator(t, db)
		months := d.generator(t, db, serial.WithPeriod(serial.PerMonth), serial.WithTemplate("{type}{date:yyyyMMdd}{seq:4}"))
		day := october(24)
		commits(t, db, func(tx *sql.Tx) {
			require.NoError(t, onlyErr(days.NextOn(t.Context(), tx, "IS", serial.At(day))))
		})
		for _, level := range []sql.IsolationLevel{sql.LevelSerializable, sql.LevelDefault, sql.LevelSerializable} {
			tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
			require.NoError(t, err)
			require.ErrorIs(t, onlyErr(months.NextOn(t.Context(), tx, "IS", serial.At(day))), serial.ErrConflict)
			require.NoError(t, tx.Commit())
		}
	})
}
