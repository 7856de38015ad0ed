package ranges

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/examples/internal/exampletest"
	"github.com/dailyserial/serial/gapless"
	"github.com/dailyserial/serial/sqlledger"
)

func TestGuide(t *testing.T) {
	guide := exampletest.ReadFile(t, "../../../docs/business-numbers.md")
	_, section, _ := strings.Cut(guide, "\n## An authorised range\n")
	exampletest.RequireCode(t, section, "ranges.go")
}

// The next range begins before the first is used up. The numbers in between must be explained, and the audit clean.
func TestNextRange(t *testing.T) {
	ctx, today := t.Context(), serial.OnDateOf(time.Now().UTC())
	later := serial.OnDateOf(time.Now().UTC().AddDate(1, 0, 0))
	db, _ := exampletest.PostgreSQL(t)
	register := exampletest.Must(sqlledger.NewRegister(db, sqlledger.PostgreSQL))
	require.NoError(t, register.CreateTable(ctx))
	first := exampletest.Must(newNumbers(time.UTC, 110, later))
	require.NoError(t, first.CreateTable(ctx, db))
	second := exampletest.Must(newNumbers(time.UTC, 502, later))
	stored := map[string]error{}
	take := func(numbers *gapless.Generator) error {
		tx := exampletest.Must(db.BeginTx(ctx, nil))
		defer func() { _ = tx.Rollback() }()
		number, err := numbers.NextOn(ctx, tx, "B01", today)
		if err != nil {
			return err
		}
		stored[number.String()] = nil
		return tx.Commit()
	}
	require.NoError(t, take(first))
	require.NoError(t, take(first))
	require.NoError(t, beginRange(ctx, db, second, register, "B01", 501, today, "Ada"))
	require.ErrorIs(t, take(first), serial.ErrExhausted)
	require.NoError(t, take(second))
	require.ErrorContains(t, beginRange(ctx, db, second, register, "B01", 501, today, "Ada"), "B01 is at 501")
	require.NoError(t, take(second))
	require.ErrorIs(t, take(second), serial.ErrExhausted)
	require.Equal(t, []string{"B0100000101", "B0100000102", "B0100000501", "B0100000502"},
		slices.Sorted(maps.Keys(stored)))

	_, start, _ := second.Scheme().Period(today)
	report, err := second.Audit(ctx, db, "B01", today, maps.All(stored),
		serial.WithExplanations(register.Explanations(ctx, "serial:B01", start)))
	require.NoError(t, err)
	require.True(t, report.Clean(), "%+v", report)
	require.EqualValues(t, 398, report.MissingCount)
}
