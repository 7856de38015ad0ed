package recipes

import (
	"context"
	"database/sql"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/examples/guides/internal/guidetest"
	"github.com/dailyserial/serial/serialtest"
)

var noon = time.Date(2021, time.October, 24, 12, 0, 0, 0, time.UTC)

const guide = "../examples/guides/recipes/README.md" // seen from docs

func TestGuide(t *testing.T) {
	guidetest.RequireCode(t, guide, "recipes.go")
}

// each runs a test on PostgreSQL and on SQLite.
func each(t *testing.T, test func(t *testing.T, db *sql.DB)) {
	t.Run("PostgreSQL", func(t *testing.T) {
		db, _ := guidetest.PostgreSQL(t)
		test(t, db)
	})
	t.Run("SQLite", func(t *testing.T) { test(t, guidetest.SQLite(t)) })
}

// create executes a statement that the guide shows.
func create(t *testing.T, db *sql.DB, statement string) {
	t.Helper()
	require.Contains(t, guidetest.ReadGuide(t, guide), "\n    "+statement+"\n")
	guidetest.Exec(t, db, statement)
}

func TestPlaceOrder(t *testing.T) {
	each(t, func(t *testing.T, db *sql.DB) {
		create(t, db, "CREATE TABLE orders (number varchar(100) PRIMARY KEY, type varchar(64), day date, seq bigint)")
		gen, _ := serialtest.New(t, noon)
		text, err := gen.Next(t.Context(), "IS")
		require.NoError(t, err)
		require.Equal(t, "IS202110240001", text)
		require.NoError(t, placeOrder(t.Context(), gen, db))
		var number, typ string
		var day time.Time
		var seq int64
		require.NoError(t, db.QueryRow("SELECT number, type, day, seq FROM orders").Scan(&number, &typ, &day, &seq))
		require.Equal(t, "IS202110240002 IS 2021-10-24", strings.Join([]string{number, typ, day.Format(time.DateOnly)}, " "))
		require.EqualValues(t, 2, seq)
	})
}

// The counters wrap, and each stored number stays unique.
func TestWrap(t *testing.T) {
	gen, err := newControls(serialtest.NewRedis(t, time.Now()).Client())
	require.NoError(t, err)
	for _, row := range []struct {
		typ       string
		last      int64
		print     func(serial.Number) string
		texts     []string
		different string
	}{
		{"ACME", 999_999_998, interchange, []string{"999999999", "000000001", "000000002"}, "ACME-000001000000000"},
		{"12104288", 9_999_998, trace, []string{"121042889999999", "121042880000001"}, "12104288-000000010000000"},
		{"12104287", 3_053_014, trace, []string{"121042873053015"}, ""},
	} {
		require.NoError(t, gen.Raise(t.Context(), row.typ, row.last))
		for i, want := range row.texts {
			n, err := gen.NextNumber(t.Context(), row.typ)
			require.NoError(t, err)
			require.Equal(t, want, row.print(n))
			if i == 1 {
				require.Equal(t, row.different, n.String())
			}
		}
	}
}

// A ticket is the same the next day, and what is stored differs. The day and the ticket find it again.
func TestTicket(t *testing.T) {
	gen, r := serialtest.New(t, noon, serial.WithTemplate("{type}-{date:yyyyMMdd}-{seq:3}"))
	for _, want := range []string{"A-20211024-001", "A-20211025-001"} {
		n, err := gen.NextNumber(t.Context(), "A")
		require.NoError(t, err)
		require.Equal(t, "A001", ticket(n))
		require.Equal(t, want, n.String())
		found, err := gen.Scheme().Number("A", serial.OnDateOf(n.Date), 1)
		require.NoError(t, err)
		require.Equal(t, want, found.String())
		r.Advance(24 * time.Hour)
	}
}

// Revisions are counted for each number, and an audit sees the originals only.
func TestCorrect(t *testing.T) {
	each(t, func(t *testing.T, db *sql.DB) {
		create(t, db, "CREATE TABLE documents (number varchar(100), revision integer, PRIMARY KEY (number, revision))")
		gen, _ := serialtest.New(t, noon, serial.WithPeriod(serial.PerYear), serial.WithTemplate("{type}{date:yy}{seq:4}"))
		for range 2 {
			n, err := gen.NextNumber(t.Context(), "ABBV")
			require.NoError(t, err)
			guidetest.Exec(t, db, "INSERT INTO documents VALUES ('"+n.String()+"', 0)")
		}
		for number, want := range map[string][]string{
			"ABBV210001": {"ABBV210001-01", "ABBV210001-02"}, "ABBV210002": {"ABBV210002-01"},
		} {
			for _, want := range want {
				text, err := correct(t.Context(), db, number)
				require.NoError(t, err)
				require.Equal(t, want, text)
				_, err = gen.Scheme().Parse(text)
				require.ErrorIs(t, err, serial.ErrInvalidNumber)
			}
		}
		_, err := correct(t.Context(), db, "ABBV210003")
		require.ErrorIs(t, err, sql.ErrNoRows)

		const query = "SELECT number FROM documents WHERE revision = 0"
		require.Contains(t, guidetest.ReadGuide(t, guide), "`"+query+"`")
		requireClean(t, gen, "ABBV", db, query, 2)
	})
}

// requireClean audits the numbers of the current period that a query selects.
func requireClean(t *testing.T, gen *serial.Generator, typ string, db *sql.DB, query string, count int64) {
	t.Helper()
	report, err := gen.Audit(t.Context(), typ, serial.At(noon), func(yield func(string, error) bool) {
		rows, err := db.QueryContext(context.Background(), query)
		require.NoError(t, err)
		defer rows.Close()
		for rows.Next() {
			var number string
			if err := rows.Scan(&number); !yield(number, err) {
				return
			}
		}
	})
	require.NoError(t, err)
	require.True(t, report.Clean(), "%+v", report)
	require.Equal(t, count, report.Count)
}

// After a slip, concurrent callers fill the skipped range before they take new numbers. None comes twice.
func TestSkipped(t *testing.T) {
	each(t, func(t *testing.T, db *sql.DB) {
		create(t, db, "CREATE TABLE skipped (seq bigint PRIMARY KEY, number varchar(100) NOT NULL)")
		guidetest.Exec(t, db, "CREATE TABLE orders (number varchar(100) PRIMARY KEY)")
		gen, _ := serialtest.New(t, noon)
		inTx := func(f func(tx *sql.Tx) error) error {
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				return err
			}
			defer func() { _ = tx.Rollback() }()
			if err := f(tx); err != nil {
				return err
			}
			return tx.Commit()
		}
		place := func() error {
			return inTx(func(tx *sql.Tx) error {
				number, found, err := nextSkipped(t.Context(), tx)
				if err == nil && !found {
					number, err = gen.Next(t.Context(), "IS")
				}
				if err != nil {
					return err
				}
				_, err = tx.ExecContext(t.Context(), "INSERT INTO orders VALUES ($1)", number)
				return err
			})
		}
		require.NoError(t, place())
		require.NoError(t, gen.Raise(t.Context(), "IS", 50)) // meant was 5
		require.NoError(t, inTx(func(tx *sql.Tx) error {
			return keepSkipped(t.Context(), tx, gen.Scheme(), "IS", serial.At(noon), 2, 50)
		}))
		require.NoError(t, place())
		var second int
		require.NoError(t, db.QueryRow("SELECT count(*) FROM orders WHERE number = 'IS202110240002'").Scan(&second))
		require.Equal(t, 1, second)
		var callers sync.WaitGroup
		for range 4 {
			callers.Go(func() {
				for range 15 {
					if err := place(); err != nil {
						t.Error(err)
					}
				}
			})
		}
		callers.Wait()
		for left := 1; left > 0; {
			require.NoError(t, place())
			require.NoError(t, db.QueryRow("SELECT count(*) FROM skipped").Scan(&left))
		}
		var count int64
		require.NoError(t, db.QueryRow("SELECT count(*) FROM orders").Scan(&count))
		requireClean(t, gen, "IS", db, "SELECT number FROM orders", count)
	})
}
