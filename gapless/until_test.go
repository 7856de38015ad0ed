package gapless_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

// WithUntil ends a series after a day, and WithLast after a sequence. A call that fails for this reason takes nothing,
// and the transaction can continue.
func TestUntil(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		db := d.open(t)
		now, noon := d.clock(t, db), d.noon(t, db)
		today, yesterday := serial.OnDateOf(now.In(noon)), serial.OnDateOf(now.In(noon).AddDate(0, 0, -1))
		for typ, opts := range map[string][]serial.Option{
			"N": {serial.WithPeriod(serial.Never), serial.WithTemplate("{type}{seq:8}")},
			"D": {serial.WithPeriod(serial.Never), serial.WithTemplate("{type}{date:yyyyMMdd}{seq:8}")},
			"H": {serial.WithPeriod(serial.PerHour), serial.WithTemplate("{type}{date:yyyyMMddHH}{seq:8}")},
			"P": {serial.WithTemplate("{type}{date:yyyyMMdd}{seq:4}")},
		} {
			s := d.steps(t, schemes{
				"":     append(opts, serial.WithLocation(noon), serial.WithLast(3), serial.WithUntil(today)),
				"over": append(opts, serial.WithLocation(noon), serial.WithLast(9), serial.WithUntil(yesterday)),
			})
			run := func(script string) {
				t.Helper()
				s.run(strings.ReplaceAll(script, "T/", typ+"/"))
			}
			run("begin T/next=1 over.T/next!exhausted over.T/take2!exhausted over.T/on!exhausted over.T/raise=5!exhausted")
			for _, verb := range []string{"next", "on", "raise"} {
				require.ErrorContains(t, call{s.generators["over"], typ, verb, "", "5"}.do(t.Context(), s.sessions[""].tx).err,
					"the last day for numbers of "+typ+" is "+yesterday.String()+", but the date is "+today.String()+
						"; if the authorized range was extended, a later WithUntil takes effect at once", verb)
			}
			run("over.T/last=1 T/next=2 commit begin T/take2!exhausted T/raise=4!above T/next=3 T/next!exhausted")
			posted := "over.T/on" + strings.ReplaceAll(yesterday.String(), "-", "") // later than the document's date
			run(map[string]string{"N": posted + "=4", "D": posted + "=4", "P": posted + "=1"}[typ] + " commit")
			report, err := s.generators["over"].Audit(t.Context(), s.db, typ, serial.At(now), numbers(nil))
			require.NoError(t, err)
			require.GreaterOrEqual(t, report.Last, int64(3))
		}
	})
}
