package gapless_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

// Types share a counter. They have one row, so they must be audited, raised and closed together.
func TestSharedCounter(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		shared := []serial.Option{serial.WithSharedCounter(), serial.WithPeriod(serial.PerYear)}
		s := d.steps(t, schemes{
			"":        append(shared, serial.WithTemplate("{type}-{date:yyyy}-{seq:4}")),
			"untyped": append(shared, serial.WithTemplate("{seq:1+}/{date:yyyy}"), serial.WithKeyPrefix("untyped"))})
		used := []string{"FA-2021-0001", "AV-2021-0002", "FA-2021-0003", "CN-2021-0004"}
		for _, number := range used {
			s.run(number[:2] + "/on20210101=" + number)
		}
		on := serial.On(2021, time.January, 1)
		report, err := s.generators[""].Audit(t.Context(), s.db, "FA", on, numbers(func(int) {}, used...))
		require.NoError(t, err)
		require.True(t, report.Clean(), "%+v", report)
		require.Equal(t, "serial:*", report.Series)
		s.run(`
			X/last20210101=X-2021-0004
			begin=committed AV/raise20210101=30 FA/on20210101=31 CN/close20220101 FA/on20210101!closed
			untyped.FA/on20210101!type
		`)

		// With this option, a template may lack the type.
		untyped, tx := s.generators["untyped"], s.sessions[""].tx
		n, err := untyped.NextOn(t.Context(), tx, "", on)
		require.NoError(t, err)
		require.Equal(t, "1/2021", n.String())
		require.ErrorContains(t, untyped.Raise(t.Context(), tx, "", on, -1), "Raise of untyped:* to -1")
	})
}
