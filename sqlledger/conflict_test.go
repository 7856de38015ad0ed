package sqlledger_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

// A series must keep its calendar, and a period its print mark. A reservation with a different calendar or print mark
// must fail with ErrConflict, and reserve nothing.
func TestConflict(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		var conns []innerConn
		db := d.open(t, on("COMMIT", func(s *statement) error {
			conns = append(conns, s.conn)
			return s.run(s.text)
		}))
		db.SetMaxOpenConns(1)
		l := newLedger(t, d, db)
		reserve := func(series, period, calendar, printMark string) (int64, error) {
			r := serial.Reservation{Series: series, Period: period, Calendar: calendar, Print: printMark, N: 10}
			return l.Reserve(t.Context(), r)
		}
		refused := func(series, period, calendar, printMark, why string) {
			t.Helper()
			_, err := reserve(series, period, calendar, printMark)
			require.ErrorIs(t, err, serial.ErrConflict)
			require.EqualError(t, err, "sqlledger: reserve: serial: conflicting period: "+why)
		}
		const anew = "another type, or another key prefix together with another literal in the template"
		calendars := func(kept, other string) string {
			return fmt.Sprintf("series %q uses calendar %q in the ledger and %q here, but the calendar of a series "+
				"cannot change; use "+anew, "serial:IS", kept, other)
		}
		printed := func(period string) string {
			return fmt.Sprintf("numbers of period %q of series %q were printed with a different field order, alphabet, check "+
				"digit or key, so two sequences could print the same number; use the old settings until a later period begins, "+
				"or use "+anew,
				period, "serial:IS")
		}

		requireResult(t, int64(0))(reserve("serial:IS", "2024W45", "weeks", "a"))
		for _, other := range []string{"days", "Weeks", "weeks ", "week", "years from April 1", strings.Repeat("é", 32)} {
			refused("serial:IS", "2024W45", other, "a", calendars("weeks", other))
			refused("serial:IS", "20241104", other, "a", calendars("weeks", other))
		}
		for _, other := range []string{"b", "A", "a ", strings.Repeat("é", 32)} {
			refused("serial:IS", "2024W45", "weeks", other, printed("2024W45"))
		}
		requireResult(t, int64(10), "nothing was set aside meanwhile")(reserve("serial:IS", "2024W45", "weeks", "a"))
		requireResult(t, int64(0), "nothing is kept")(reserve("serial:IS", "20241104", "weeks", "b"))
		refused("serial:IS", "20241104", "weeks", "a", printed("20241104"))
		for i, long := range []string{strings.Repeat("é", 32), strings.Repeat("é", 31) + "e"} {
			requireResult(t, int64(0), "other series have their own calendars")(reserve(fmt.Sprint(i), "2024", long, long))
		}

		execSQL(t, db, "DELETE FROM serial_ledger WHERE period <> "+literal(d, ""))
		refused("serial:IS", "2024W45", "days", "b", calendars("weeks", "days"))
		requireResult(t, int64(0))(reserve("serial:IS", "2024W45", "weeks", "b"))
		for _, c := range conns {
			require.Same(t, conns[0], c, "a conflict costs no connection")
		}
	})
}

// The table lacks a column of this version. The error must contain the remedy.
func TestOutdatedTable(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		db := d.open(t, nil)
		l := newLedger(t, d, db)
		execSQL(t, db, "ALTER TABLE serial_ledger DROP COLUMN settings")
		_, err := l.Reserve(t.Context(), days("IS", day, 0, 10))
		for _, err := range []error{err, l.CreateTable(t.Context())} {
			require.ErrorContains(t, err, "settings")
			require.ErrorContains(t, err, "the table was not created by this version; choose another name with WithTable, "+
				"or drop this table, and then call CreateTable to create a new one")
		}
		execSQL(t, db, "DROP TABLE serial_ledger")
		reserves(t, newLedger(t, d, db))
	})
}
