package gapless_test

import (
	"database/sql"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/gapless"
)

// Types share a counter. They have one row, so they must be audited, raised and closed together.
func TestSharedCounter(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		db, g := d.start(t, serial.WithSharedCounter(), serial.WithPeriod(serial.PerYear),
			serial.WithTemplate("{type}-{date:yyyy}-{seq:4}"))
		on := serial.On(2021, time.January, 1)
		var used []string
		commits(t, db, func(tx *sql.Tx) {
			for i, typ := range []string{"FA", "AV", "FA", "CN"} {
				n, err := g.NextOn(t.Context(), tx, typ, on)
				require.NoError(t, err)
				require.EqualValues(t, i+1, n.Seq)
				used = append(used, n.String())
			}
		})
		last, err := g.Last(t.Context(), db, "X", on)
		require.NoError(t, err)
		require.Equal(t, []any{"X", int64(4)}, []any{last.Type, last.Seq})
		report, err := g.Audit(t.Context(), db, "FA", on, numbers(func(int) {}, used...))
		require.NoError(t, err)
		require.True(t, report.Clean() && slices.Equal(used, []string{"FA-2021-0001", "AV-2021-0002", "FA-2021-0003",
			"CN-2021-0004"}), "%+v", report)
		require.Equal(t, "serial:*", report.Series)
		tx := beginAt(t, db, d.readCommitted())
		require.NoError(t, g.Raise(t.Context(), tx, "AV", on, 30))
		requireSeq(t, 31)(g.NextOn(t.Context(), tx, "FA", on))
		require.NoError(t, g.ClosePeriods(t.Context(), tx, "CN", serial.On(2022, time.January, 1)))
		require.ErrorIs(t, onlyErr(g.NextOn(t.Context(), tx, "FA", on)), gapless.ErrPeriodClosed)

		// Without this option, a template must contain the type.
		untyped := d.generator(t, db, serial.WithSharedCounter(), serial.WithPeriod(serial.PerYear),
			serial.WithTemplate("{seq:1+}/{date:yyyy}"), serial.WithKeyPrefix("untyped"))
		n, err := untyped.NextOn(t.Context(), tx, "", on)
		require.NoError(t, err)
		require.Equal(t, "1/2021", n.String())
		require.ErrorIs(t, onlyErr(untyped.NextOn(t.Context(), tx, "FA", on)), serial.ErrInvalidType)
		require.ErrorContains(t, untyped.Raise(t.Context(), tx, "", on, -1), "Raise of untyped:* to -1")
	})
}
