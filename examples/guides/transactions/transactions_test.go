package transactions

import (
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/examples/internal/exampletest"
	"github.com/dailyserial/serial/serialtest"
)

func TestGuide(t *testing.T) {
	exampletest.RequireCode(t, exampletest.ReadFile(t, "../../../docs/transactions.md"), "transactions.go")
}

// Each function must store the number that it returns.
func TestPlace(t *testing.T) {
	db, _ := exampletest.PostgreSQL(t, "CREATE TABLE orders (number text UNIQUE, request text UNIQUE, customer text)")
	gen, r := serialtest.New(t, time.Date(2021, time.October, 24, 12, 0, 0, 0, time.UTC))
	first := exampletest.Must(placeSQL(t.Context(), gen, db, "Ada"))
	second := exampletest.Must(placeOnce(t.Context(), gen, db, "request", "Ada"))

	r.Advance(72 * time.Hour) // after that, only the row contains the number of the request
	again := exampletest.Must(placeOnce(t.Context(), gen, db, "request", "Ada"))
	require.Equal(t, second, again)
	last := exampletest.Must(gen.Peek(t.Context(), "IS"))
	require.Zero(t, last.Seq, "the repeated request took no number")
	_, err := placeOnce(t.Context(), gen, db, "request", "Bob")
	require.ErrorContains(t, err, "used for another order")
	var stored string
	require.NoError(t, db.QueryRow("SELECT string_agg(number, ' ' ORDER BY number) FROM orders").Scan(&stored))
	require.Equal(t, first+" "+second, stored)

	exampletest.Must(db.Exec("INSERT INTO orders VALUES ('IS202110270001', 'typed', 'Eve')"))
	_, err = placeOnce(t.Context(), gen, db, "another request", "Ada")
	require.ErrorIs(t, err, sql.ErrNoRows)
}

// The ledger must have reserved the numbers before they are issued.
func TestLedger(t *testing.T) {
	db, dsn := exampletest.PostgreSQL(t)
	gen := exampletest.Must(newGenerator(t.Context(), serialtest.NewRedis(t, time.Now()).Client(), dsn))
	exampletest.Must(gen.Next(t.Context(), "IS"))
	var last int64
	require.NoError(t, db.QueryRow("SELECT max(last) FROM serial_ledger").Scan(&last))
	require.EqualValues(t, 100, last)
}
