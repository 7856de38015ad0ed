package migrating

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/examples/guides/internal/guidetest"
	"github.com/dailyserial/serial/gapless"
)

// Numbers continue where a table of 0.4.0 ends, for every tenant, type and period.
func TestUpgradeGapless(t *testing.T) {
	ctx := t.Context()
	db := guidetest.SQLite(t)
	exec := func(query string, args ...any) {
		_, err := db.ExecContext(ctx, query, args...)
		require.NoError(t, err)
	}
	exec(`CREATE TABLE serial_gapless (series BLOB NOT NULL, period BLOB NOT NULL, mark BLOB NOT NULL,
		previous INTEGER NOT NULL, last INTEGER NOT NULL, PRIMARY KEY (series, period)) WITHOUT ROWID`)
	for _, row := range []struct {
		series, period string
		last           int
	}{
		{"serial:INV", "20261031", 7}, {"serial:INV", "20261101", 12}, {"serial:CN", "20261101", 1},
		{"acme:INV", "20261101", 120}, {"serial/x:INV", "20261101", 125},
	} {
		exec("INSERT INTO serial_gapless VALUES (?, ?, ?, ?, ?)", []byte(row.series), []byte(row.period),
			[]byte("d40a646f23ff"), row.last-1, row.last)
	}

	// Each tenant has its own prefix, and thus its own generator.
	generators := map[string]*gapless.Generator{}
	for _, prefix := range []string{"serial", "acme"} {
		scheme, err := serial.NewScheme(serial.WithLocation(time.UTC), serial.WithKeyPrefix("new/"+prefix))
		require.NoError(t, err)
		gen, err := gapless.New(gapless.SQLite, scheme, gapless.WithTable("numbers"))
		require.NoError(t, err)
		require.NoError(t, gen.CreateTable(ctx, db))
		require.NoError(t, upgradeGapless(ctx, db, gen, "serial_gapless", prefix))
		require.NoError(t, upgradeGapless(ctx, db, gen, "serial_gapless", prefix), "a second time changes nothing")
		require.ErrorContains(t, upgradeGapless(ctx, db, gen, "serial_gapless", "new/"+prefix),
			"no numbers of the key prefix")
		generators[prefix] = gen
	}

	for _, test := range []struct {
		prefix, typ string
		date        serial.When
		want        string
	}{
		{"serial", "INV", serial.On(2026, time.October, 31), "INV202610310008"},
		{"serial", "INV", serial.On(2026, time.November, 1), "INV202611010013"},
		{"serial", "CN", serial.On(2026, time.November, 1), "CN202611010002"},
		{"serial", "CN", serial.On(2026, time.October, 31), "CN202610310001"},
		{"acme", "INV", serial.On(2026, time.October, 31), "INV202610310001"},
		{"acme", "INV", serial.On(2026, time.November, 1), "INV202611010121"},
		{"acme", "CN", serial.On(2026, time.November, 1), "CN202611010001"},
	} {
		tx, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		number, err := generators[test.prefix].NextOn(ctx, tx, test.typ, test.date)
		require.NoError(t, err)
		require.NoError(t, tx.Commit())
		require.Equal(t, test.want, number.String(), test.prefix)
	}
}
