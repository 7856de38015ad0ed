package gapless_test

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/gapless"
)

// WithUntil ends a series after a day, and WithLast after a sequence. A call that fails for this reason takes nothing,
// and the transaction can continue.
func TestUntil(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		endless := []serial.Option{serial.WithPeriod(serial.Never), serial.WithTemplate("{type}{seq:8}")}
		dated := []serial.Option{serial.WithPeriod(serial.Never), serial.WithTemplate("{type}{date:yyyyMMdd}{seq:8}")}
		hours := []serial.Option{serial.WithPeriod(serial.PerHour), serial.WithTemplate("{type}{date:yyyyMMddHH}{seq:8}")}
		for typ, opts := range map[string][]serial.Option{"N": endless, "D": dated, "H": hours, "P": nil} {
			db := d.open(t)
			now := d.clock(t, db)
			noon := d.noon(t, db)
			today := serial.OnDateOf(now.In(noon))
			yesterday := serial.OnDateOf(now.In(noon).AddDate(0, 0, -1))
			range1 := func(last int64, until serial.When) *gapless.Generator {
				return d.generator(t, db, append(opts, serial.WithLocation(noon), serial.WithLast(last),
					serial.WithUntil(until))...)
			}
			open, over := range1(3, today), range1(9, yesterday)
			at := serial.At(now)
			commits(t, db, func(tx *sql.Tx) {
				requireSeq(t, 1)(open.Next(t.Context(), tx, typ))
				for name, err := range map[string]error{
					"Next":  onlyErr(over.Next(t.Context(), tx, typ)),
					"NextN": onlyErr(over.NextN(t.Context(), tx, typ, 2)),
					"On":    onlyErr(over.NextOn(t.Context(), tx, typ, at)),
					"Raise": over.Raise(t.Context(), tx, typ, at, 5),
				} {
					require.ErrorIs(t, err, serial.ErrExhausted, name)
					require.ErrorContains(t, err, "the last day for numbers of "+typ+" is "+yesterday.String()+
						", but the date is "+today.String()+"; a later WithUntil takes effect at once", name)
				}
				requireSeq(t, 1)(over.Last(t.Context(), tx, typ, at))
				requireSeq(t, 2)(open.Next(t.Context(), tx, typ))
			})
			commits(t, db, func(tx *sql.Tx) {
				require.ErrorIs(t, onlyErr(open.NextN(t.Context(), tx, typ, 2)), serial.ErrExhausted)
				require.ErrorContains(t, open.Raise(t.Context(), tx, typ, at, 4), "want 0 to 3")
				requireSeq(t, 3)(open.Next(t.Context(), tx, typ))
				require.ErrorIs(t, onlyErr(open.Next(t.Context(), tx, typ)), serial.ErrExhausted)
				if typ != "H" { // a document of the last day that is posted later
					n, err := over.NextOn(t.Context(), tx, typ, yesterday)
					require.NoError(t, err)
					if typ != "P" {
						require.EqualValues(t, 4, n.Seq)
					}
				}
			})
			report, err := over.Audit(t.Context(), db, typ, at, func(yield func(string, error) bool) {})
			require.NoError(t, err)
			require.GreaterOrEqual(t, report.Last, int64(3))
		}
	})
}
