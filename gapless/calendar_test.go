package gapless_test

import (
	"database/sql"
	"strings"
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
	for _, date := range []string{"19991024", "20211024", "20401024"} {
		for _, verb := range []string{"next", "on", "raise", "last"} {
			err := call{g, typ, verb, date, "5"}.do(t.Context(), tx).err
			require.ErrorIs(t, err, serial.ErrConflict)
			require.ErrorContains(t, err, want)
			require.True(t, verb == "next" || strings.Contains(err.Error(), "to count in another way, use another type, or "+
				"another key prefix together with another literal in the template"), err)
		}
	}
}

// As long as any row of a series exists, calls with a different period length or year start must fail.
func TestCalendarCannotChange(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		s := d.steps(t, schemes{"": nil, "weeks": perWeek(),
			"april": perYear(time.April), "july": perYear(time.July)})
		conflicts := func(generator, typ, want string) {
			t.Helper()
			requireConflict(t, s.generators[generator], s.sessions[""].tx, typ, want)
		}
		const days = "D is counted by days, but this scheme counts by weeks;"
		s.run("begin D/on24=1 april.A/on24=1 weeks.W/raise24=7") // the same errors must occur before the rows are committed
		conflicts("weeks", "D", days)
		s.run("D/on24=2 commit begin")
		conflicts("weeks", "D", days)
		conflicts("", "W", "W is counted by weeks, but this scheme counts by days;")
		conflicts("july", "A", "A is counted by years from April 1, but this scheme counts by years from July 1;")
		s.run("D/on24=3 april.A/on24=2 weeks.W/on24=8 weeks.X/on24=1 commit") // X is another type

		// The result is the same after the series' table was created again, or only the rows of its periods were deleted.
		s.run("sql DROP TABLE serial_gapless_series")
		require.NoError(t, s.generators["weeks"].CreateTable(t.Context(), s.db))
		s.run("begin")
		conflicts("weeks", "D", days)
		s.run(`
			D/on24=4 D/on20221024=1
			sql DELETE FROM serial_gapless
		`)
		conflicts("weeks", "D", days)
		s.run(`
			sql DELETE FROM serial_gapless_series
			weeks.D/on24=1 commit
		`)
	})
}

// Two schemes with different calendars begin a series at the same time. The second one must wait for the first, and
// then fail.
func TestCalendarsAtOnce(t *testing.T) {
	servers(t, func(t *testing.T, d *database) {
		d.steps(t, schemes{"": nil, "weeks": perWeek()}).run(`
			first: begin C/on24=1
			second: begin weeks.C/on24&
			first: commit
			second: !conflict commit
			C/last24=1

			first: begin R/on24=1
			second: begin weeks.R/on24&
			first: rollback
			second: =1 commit
			weeks.R/last24=1
		`)
	})
}

// A transaction uses a scheme with a different calendar, gets an error, and commits. Later transactions must get the
// same error, whatever row the first one has left behind.
func TestRefusedCalendarRetried(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		d.steps(t, schemes{"": nil, "months": perMonth()}).run(`
			begin on24 commit
			begin=serializable months.on24!conflict commit
			begin months.on24!conflict commit
			begin=serializable months.on24!conflict commit
		`)
	})
}
