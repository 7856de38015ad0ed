package gapless_test

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/gapless"
)

// createV040 contains the statements with which release 0.4.0 created its table.
var createV040 = map[gapless.Dialect]string{
	gapless.PostgreSQL: `CREATE TABLE IF NOT EXISTS "serial_gapless" (
	series   bytea  NOT NULL,
	period   bytea  NOT NULL,
	mark     bytea  NOT NULL,
	previous bigint NOT NULL,
	last     bigint NOT NULL,
	PRIMARY KEY (series, period)
)`,
	gapless.MySQL: "CREATE TABLE IF NOT EXISTS `serial_gapless`" + ` (
	series   varbinary(255) NOT NULL,
	period   varbinary(64)  NOT NULL,
	mark     varbinary(64)  NOT NULL,
	previous bigint         NOT NULL,
	last     bigint         NOT NULL,
	PRIMARY KEY (series, period)
) ENGINE = InnoDB`,
	gapless.SQLite: `CREATE TABLE IF NOT EXISTS "serial_gapless" (
	series   BLOB    NOT NULL,
	period   BLOB    NOT NULL,
	mark     BLOB    NOT NULL,
	previous INTEGER NOT NULL,
	last     INTEGER NOT NULL,
	PRIMARY KEY (series, period)
) WITHOUT ROWID`,
}

// A table of release 0.4.0 is refused and stays as it is. On every database, a generator with another table continues
// its numbers as docs/migrating.md says.
func TestTableOfV040(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		db := d.open(t)
		execSQL(t, db, createV040[d.dialect])
		hex := map[gapless.Dialect]string{gapless.PostgreSQL: `'\x%x'`}[d.dialect]
		if hex == "" {
			hex = "x'%x'"
		}
		for _, row := range []struct {
			series, period string
			last           int
		}{{"serial:IS", "20211023", 7}, {"serial:IS", "20211024", 41}, {"serial:IT", "20211024", 3}} {
			key := fmt.Sprintf(hex+", "+hex+", "+hex, row.series, row.period, "")
			execSQL(t, db, fmt.Sprintf("INSERT INTO serial_gapless VALUES (%s, %d, %d)", key, row.last-1, row.last))
		}
		g, err := gapless.New(d.dialect, scheme(t))
		require.NoError(t, err)
		require.ErrorContains(t, g.CreateTable(t.Context(), db), "docs/migrating.md")

		g, err = gapless.New(d.dialect, scheme(t), gapless.WithTable("numbers"))
		require.NoError(t, err)
		require.NoError(t, g.CreateTable(t.Context(), db))
		rows, err := db.QueryContext(t.Context(), "SELECT series, period, last FROM serial_gapless ORDER BY series, period")
		require.NoError(t, err)
		var read []string
		raises := map[string]map[string]int64{"IS": {}, "IT": {}}
		for rows.Next() {
			var series, period string
			var last int64
			require.NoError(t, rows.Scan(&series, &period, &last))
			read = append(read, fmt.Sprint(series, " ", period, " ", last))
			raises[strings.TrimPrefix(series, "serial:")][period] = last
		}
		require.NoError(t, rows.Err())
		require.Equal(t, []string{"serial:IS 20211023 7", "serial:IS 20211024 41", "serial:IT 20211024 3"}, read)
		on := func(period string) serial.When {
			day, err := time.Parse("20060102", period)
			require.NoError(t, err)
			return serial.OnDateOf(day)
		}
		commits(t, db, func(tx *sql.Tx) {
			for typ, periods := range raises {
				for period, last := range periods {
					require.NoError(t, g.Raise(t.Context(), tx, typ, on(period), last))
				}
			}
		})
		commits(t, db, func(tx *sql.Tx) {
			requireSeq(t, 8)(g.NextOn(t.Context(), tx, "IS", on("20211023")))
			requireSeq(t, 42)(g.NextOn(t.Context(), tx, "IS", on("20211024")))
			requireSeq(t, 4)(g.NextOn(t.Context(), tx, "IT", on("20211024")))
			requireSeq(t, 1)(g.NextOn(t.Context(), tx, "NEW", on("20211024")))
		})
	})
}
