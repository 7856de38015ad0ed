package recipes

import (
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/examples/internal/exampletest"
	"github.com/dailyserial/serial/serialtest"
)

var noon = time.Date(2021, time.October, 24, 12, 0, 0, 0, time.UTC)

// database returns a database with a table that the guide shows.
func database(t *testing.T, table string) *sql.DB {
	t.Helper()
	require.Contains(t, exampletest.ReadFile(t, "README.md"), "\n    "+table+"\n")
	db, _ := exampletest.PostgreSQL(t, table)
	return db
}

func TestGuide(t *testing.T) {
	exampletest.RequireCode(t, exampletest.ReadFile(t, "README.md"), "recipes.go")
}

func TestWrap(t *testing.T) {
	gen := exampletest.Must(newControls(serialtest.NewRedis(t, time.Now()).Client()))
	require.NoError(t, gen.Raise(t.Context(), "12104288", 999_999_998))
	numbers := exampletest.Must(gen.NextN(t.Context(), "12104288", 2))
	require.Equal(t, []string{"999999999", "000000001"}, []string{interchange(numbers[0]), interchange(numbers[1])})
	require.Equal(t, "121042880000100", trace(numbers[1]), "1,000,000,000 is 100 times 9,999,999, and 100")
}

func TestTicket(t *testing.T) {
	gen, _ := serialtest.New(t, noon, serial.WithTemplate("{type}-{date:yyyyMMdd}-{seq:3}"))
	n := exampletest.Must(gen.NextNumber(t.Context(), "A"))
	require.Equal(t, "A-20211024-001 A001", n.String()+" "+ticket(n))
}

func TestCorrect(t *testing.T) {
	db := database(t,
		"CREATE TABLE documents (number varchar(100), revision integer, PRIMARY KEY (number, revision))")
	_, err := correct(t.Context(), db, "ABBV180001")
	require.ErrorIs(t, err, sql.ErrNoRows)
	exampletest.Must(db.Exec("INSERT INTO documents VALUES ('ABBV180001', 0)"))
	for _, want := range []string{"ABBV180001-01", "ABBV180001-02"} {
		text := exampletest.Must(correct(t.Context(), db, "ABBV180001"))
		require.Equal(t, want, text)
	}
}

func TestSkipped(t *testing.T) {
	db := database(t, "CREATE TABLE skipped (seq bigint PRIMARY KEY, number varchar(100) NOT NULL)")
	gen, _ := serialtest.New(t, noon)
	tx := exampletest.Must(db.BeginTx(t.Context(), nil))
	defer func() { _ = tx.Rollback() }()
	require.NoError(t, keepSkipped(t.Context(), tx, gen.Scheme(), "IS", serial.At(noon), 501, 502))
	for _, want := range []string{"IS202110240501", "IS202110240502", ""} {
		number, found, err := nextSkipped(t.Context(), tx)
		require.NoError(t, err)
		require.Equal(t, want, number)
		require.Equal(t, want != "", found)
	}
}
