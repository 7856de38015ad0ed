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
		reservation := func(series, period, calendar, printMark string) serial.Reservation {
			return serial.Reservation{Series: series, Period: period, Calendar: calendar, Print: printMark, N: 10}
		}
		reserves := func(after int64, series, period, calendar, printMark string) {
			t.Helper()
			requireResult(t, after)(l.Reserve(t.Context(), reservation(series, period, calendar, printMark)))
		}
		refused := func(period, calendar, printMark, wantCalendar, wantMark string) {
			t.Helper()
			r := reservation("serial:IS", period, calendar, printMark)
			_, err := l.Reserve(t.Context(), r)
			require.ErrorIs(t, err, serial.ErrConflict)
			require.EqualError(t, err, "sqlledger: reserve: "+r.Check(wantCalendar, wantMark).Error())
		}
		reserves(0, "serial:IS", "2024W45", "weeks", "a")
		for _, other := range []string{"days", "Weeks", "weeks ", "week", "years from April 1", strings.Repeat("é", 32)} {
			refused("2024W45", other, "a", "weeks", "a")
			refused("20241104", other, "a", "weeks", "")
		}
		for _, other := range []string{"b", "A", "a ", strings.Repeat("é", 32)} {
			refused("2024W45", "weeks", other, "weeks", "a")
		}
		reserves(10, "serial:IS", "2024W45", "weeks", "a") // the refused reservations have reserved nothing
		reserves(0, "serial:IS", "20241104", "weeks", "b") // and stored nothing
		refused("20241104", "weeks", "a", "weeks", "b")
		for i, long := range []string{strings.Repeat("é", 32), strings.Repeat("é", 31) + "e"} {
			reserves(0, fmt.Sprint(i), "2024", long, long) // other series have their own calendars
		}

		execSQL(t, db, "DELETE FROM serial_ledger WHERE period <> "+literal(d, ""))
		refused("2024W45", "days", "b", "weeks", "")
		reserves(0, "serial:IS", "2024W45", "weeks", "b")
		for _, c := range conns {
			require.Same(t, conns[0], c, "a conflict costs no connection")
		}
	})
}
