//go:build !race

package serialpage

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite" // takes a quarter of an hour to compile with the race detector

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/gapless"
)

// The counters of the series are in a table. The pages must show which periods are closed.
func TestTable(t *testing.T) {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "invoices.db")+"?_txlock=immediate")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	scheme := newScheme(t, "{type}-{date:yyyyMM}-{seq:4}", "UTC", serial.WithPeriod(serial.PerMonth))
	gen, err := gapless.New(gapless.SQLite, scheme)
	require.NoError(t, err)
	require.NoError(t, gen.CreateTable(t.Context(), db))
	s := open(t, func(s *site) { s.stored, s.series[0].Source = nil, Table(db, gen) })
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	now := time.Now().UTC()
	month := time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC)
	for back := range 3 {
		n, err := gen.NextOn(t.Context(), tx, "IS", serial.At(month.AddDate(0, -back, 0)))
		require.NoError(t, err)
		s.stored = append(s.stored, n.String())
	}
	require.NoError(t, gen.ClosePeriods(t.Context(), tx, "IS", serial.At(month.AddDate(0, -1, 0))))
	require.NoError(t, tx.Commit())

	require.Contains(t, s.get(200, "/numbers/"), fmt.Sprintf("IS-%s-0001", month.Format("200601")))
	for back, says := range map[int]string{0: "Closedno", 1: "Closedno", 2: "Closedyes", 3: "Closedyes"} {
		page := pageText(s.get(200, "/numbers/"+address("period", "IS", month.AddDate(0, -back, 0))))
		require.Contains(t, page, says)
		require.Contains(t, page, "✓ All numbers are accounted for.")
	}
	require.Contains(t, s.check("IS"), "covered 3 periods.")
	var closed []string
	for _, line := range parseCSV(t, s.get(200, "/numbers/series.csv?key=IS")) {
		closed = append(closed, line[12])
	}
	require.Equal(t, []string{"closed", "no", "no", "yes"}, closed)
	require.Contains(t, s.get(200, "/numbers/series.json?key=IS"), `"closed":true`)
}
