package gapless_test

import (
	"database/sql"
	"fmt"
	"os"
	"strings"
	"testing"

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

// changelog returns the statements of CHANGELOG.md that migrate a table of release 0.4.0.
func changelog(t *testing.T, d gapless.Dialect) []string {
	t.Helper()
	text, err := os.ReadFile("../CHANGELOG.md")
	require.NoError(t, err)
	name := map[gapless.Dialect]string{gapless.PostgreSQL: "PostgreSQL", gapless.MySQL: "MySQL and MariaDB",
		gapless.SQLite: "SQLite"}[d]
	_, found, ok := strings.Cut(strings.ReplaceAll(string(text), "\r\n", "\n"), "```sql\n  -- "+name+"\n")
	require.True(t, ok, name)
	found, _, _ = strings.Cut(found, "```")
	statements := strings.Split(strings.TrimSpace(found), ";")
	require.Empty(t, statements[len(statements)-1])
	return statements[:len(statements)-1]
}

// The statements in the changelog migrate a table of release 0.4.0: numbers continue, the series keeps its calendar,
// and periods can be closed. Only those statements are needed.
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
		require.ErrorContains(t, g.CreateTable(t.Context(), db), "CHANGELOG.md")
		for _, statement := range changelog(t, d.dialect) {
			execSQL(t, db, statement)
		}
		weeks, err := gapless.New(d.dialect, scheme(t, perWeek()...))
		require.NoError(t, err)
		commits(t, db, func(tx *sql.Tx) {
			requireConflict(t, weeks, tx, "IS", "IS is counted by days, but this scheme counts by weeks;")
			for typ, want := range map[string]int64{"IS": 42, "IT": 4, "NEW": 1} {
				requireSeq(t, want)(g.NextOn(t.Context(), tx, typ, serial.At(date(t, "2021-10-24"))))
			}
			require.NoError(t, errOf(g.Next(t.Context(), tx, "IS")))
		})
		d.closes(t, db, g, october(24))
		commits(t, db, func(tx *sql.Tx) {
			require.ErrorIs(t, errOf(g.NextOn(t.Context(), tx, "IS", serial.At(date(t, "2021-10-23")))), gapless.ErrPeriodClosed)
			require.NoError(t, errOf(g.NextOn(t.Context(), tx, "IS", serial.At(date(t, "2021-10-24")))))
		})
		require.NoError(t, g.CreateTable(t.Context(), db))
		history, err := g.History(t.Context(), db, "IS", 5)
		require.NoError(t, err)
		require.Len(t, history, 3)
		require.Equal(t, []int64{1, 43, 7}, []int64{history[0].Seq, history[1].Seq, history[2].Seq})
	})
}

// The statements write the default scheme's values, and the table equals the one that CreateTable creates.
func TestChangelogNamesTheDefaultScheme(t *testing.T) {
	s, err := serial.NewScheme()
	require.NoError(t, err)
	for _, d := range []gapless.Dialect{gapless.PostgreSQL, gapless.MySQL, gapless.SQLite} {
		g, err := gapless.New(d, s)
		require.NoError(t, err)
		all := strings.Join(changelog(t, d), ";")
		require.Contains(t, all, "'"+s.Calendar()+":"+s.PrintMark()+"'")
		require.Contains(t, all, "'"+s.Calendar()+"'")
		plain := strings.NewReplacer(`"`, "", "`", "", "\t", " ", "\n", " ")
		require.Contains(t, strings.Join(strings.Fields(plain.Replace(all)), " "),
			strings.Join(strings.Fields(plain.Replace(g.Schema()[1])), " "))
	}
}
