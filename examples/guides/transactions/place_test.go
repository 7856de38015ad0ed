package transactions

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/stretchr/testify/require"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/examples/guides/internal/guidetest"
	"github.com/dailyserial/serial/examples/guides/transactions/ent"
	"github.com/dailyserial/serial/internal/redistest"
	"github.com/dailyserial/serial/sqlledger"
)

// The guide's code comes from this package and from package floor.
func TestGuide(t *testing.T) {
	guidetest.RequireCode(t, "transactions.md", "place.go", "../floor/floor.go")
}

// Every tool can place orders, while orders and ledger share a pool of one connection.
func TestPlace(t *testing.T) {
	db, _ := guidetest.PostgreSQL(t)
	guidetest.Exec(t, db, guidetest.ReadFile(t, "sqlc/schema.sql"))
	db.SetMaxOpenConns(1)
	gen := generator(t, db, sqlledger.PostgreSQL)
	orm, err := gorm.Open(postgres.New(postgres.Config{Conn: db}))
	require.NoError(t, err)
	client := ent.NewClient(ent.Driver(entsql.OpenDB(dialect.Postgres, db)))

	var mu sync.Mutex
	var got []string
	var wg sync.WaitGroup
	for name, place := range map[string]func(customer string) (string, error){
		"database/sql": func(customer string) (string, error) { return placeSQL(t.Context(), gen, db, customer) },
		"GORM":         func(customer string) (string, error) { return placeGORM(t.Context(), gen, orm, customer) },
		"sqlc":         func(customer string) (string, error) { return placeSQLC(t.Context(), gen, db, customer) },
		"ent":          func(customer string) (string, error) { return placeEnt(t.Context(), gen, client, customer) },
	} {
		for range 3 {
			wg.Go(func() {
				for range 4 {
					number, err := place(name)
					if err != nil {
						t.Error(name, err)
					}
					mu.Lock()
					got = append(got, number)
					mu.Unlock()
				}
			})
		}
	}
	wg.Wait()
	slices.Sort(got)
	require.Len(t, slices.Compact(slices.Clone(got)), 4*3*4)
	require.Equal(t, got, guidetest.Strings(t, db, "SELECT number FROM orders ORDER BY number"))
}

// A request that is repeated, at once or later, gets the number of its row, also when Redis has forgotten it.
func TestPlaceOnce(t *testing.T) {
	db, _ := guidetest.PostgreSQL(t)
	guidetest.Exec(t, db, guidetest.ReadFile(t, "sqlc/schema.sql"))
	guidetest.Exec(t, db, "ALTER TABLE orders ADD COLUMN request text UNIQUE")
	rdb := redistest.Start(t).Client(t)
	gen, err := serial.New(rdb, serial.WithLocation(guidetest.Noon()))
	require.NoError(t, err)
	var numbers [8]string
	var wg sync.WaitGroup
	for i := range numbers {
		wg.Go(func() {
			number, err := placeOnce(t.Context(), gen, db, "request 1", "Ada")
			if err != nil {
				t.Error(err)
			}
			numbers[i] = number
		})
	}
	wg.Wait()
	require.Len(t, slices.Compact(numbers[:]), 1)
	require.NoError(t, rdb.Del(t.Context(), "serial:{IS}:once:request 1").Err())
	number, err := placeOnce(t.Context(), gen, db, "request 1", "Ada")
	require.NoError(t, err)
	require.Equal(t, numbers[0], number)
	require.Equal(t, []string{number}, guidetest.Strings(t, db, "SELECT number FROM orders"))

	_, err = placeOnce(t.Context(), gen, db, "request 1", "Bob")
	require.ErrorContains(t, err, "used for another order")
	other, err := placeOnce(t.Context(), gen, db, "request 2", "Bob")
	require.NoError(t, err)
	require.NotEqual(t, number, other)
}

// Hooks are the wrong place to take a number: they run inside the transaction.
func TestHooksRunInTheTransaction(t *testing.T) {
	db, _ := guidetest.PostgreSQL(t)
	guidetest.Exec(t, db, guidetest.ReadFile(t, "sqlc/schema.sql"))
	orm, err := gorm.Open(postgres.New(postgres.Config{Conn: db}))
	require.NoError(t, err)
	row := &hooked{Number: "1", Customer: "Ada"}
	require.NoError(t, orm.Create(row).Error) // GORM begins a transaction by itself
	require.True(t, row.inside)

	client := ent.NewClient(ent.Driver(entsql.OpenDB(dialect.Postgres, db)))
	inside := false
	client.Order.Use(func(next ent.Mutator) ent.Mutator {
		return ent.MutateFunc(func(ctx context.Context, m ent.Mutation) (ent.Value, error) {
			_, err := m.(*ent.OrderMutation).Tx()
			inside = err == nil
			return next.Mutate(ctx, m)
		})
	})
	tx, err := client.Tx(t.Context())
	require.NoError(t, err)
	require.NoError(t, tx.Order.Create().SetNumber("2").SetCustomer("Ada").Exec(t.Context()))
	require.NoError(t, tx.Commit())
	require.True(t, inside)
}

type hooked struct {
	ID       int64
	Number   string
	Customer string
	inside   bool
}

func (*hooked) TableName() string { return "orders" }

func (h *hooked) BeforeCreate(tx *gorm.DB) error {
	_, h.inside = tx.Statement.ConnPool.(gorm.TxCommitter)
	return nil
}

// A number taken inside a transaction waits for it, as the guide shows, unless the ledger has a separate pool.
func TestInsideOfATransaction(t *testing.T) {
	db, dsn := guidetest.PostgreSQL(t)
	guidetest.Exec(t, db, guidetest.ReadFile(t, "sqlc/schema.sql"))
	db.SetMaxOpenConns(1)
	requireWaitsForItself(t, db, generator(t, db, sqlledger.PostgreSQL), "the pool were in use (it has 1)")

	ledger, closePool, err := openLedger(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(closePool)
	gen, err := serial.New(redistest.Start(t).Client(t), serial.WithLedger(ledger, 10))
	require.NoError(t, err)
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = gen.Next(t.Context(), "IS")
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
}

// With SQLite, more connections do not help.
func TestInsideOfATransactionOfSQLite(t *testing.T) {
	db := guidetest.SQLite(t)
	guidetest.Exec(t, db,
		"CREATE TABLE orders (id integer PRIMARY KEY, number text NOT NULL UNIQUE, customer text NOT NULL)")
	gen := generator(t, db, sqlledger.SQLite)
	number, err := placeSQL(t.Context(), gen, db, "Ada")
	require.NoError(t, err)
	require.Equal(t, []string{number}, guidetest.Strings(t, db, "SELECT number FROM orders"))
	requireWaitsForItself(t, db, generator(t, db, sqlledger.SQLite), "another connection is writing to this file")
}

// requireWaitsForItself requires the error that the guide quotes.
func requireWaitsForItself(t *testing.T, db *sql.DB, gen *serial.Generator, says string) {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = tx.ExecContext(t.Context(), "INSERT INTO orders (number, customer) VALUES ('none yet', 'Ada')")
	require.NoError(t, err)
	_, err = gen.Next(t.Context(), "IS")
	require.ErrorIs(t, err, context.DeadlineExceeded, "the ledger's own")
	require.ErrorContains(t, err, says)
	const advice = "if the caller has a transaction open here, it waits for itself: take the number before the " +
		"transaction begins"
	require.ErrorContains(t, err, advice)
	require.NoError(t, tx.Rollback())

	guide := strings.Join(strings.Fields(guidetest.ReadGuide(t, "transactions.md")), " ")
	require.Contains(t, guide, says)
	require.Contains(t, guide, advice)
}

// generator returns a Generator on a new Redis, with a ledger in db that is asked for every second number.
func generator(t *testing.T, db *sql.DB, d sqlledger.Dialect) *serial.Generator {
	t.Helper()
	ledger, err := sqlledger.New(db, d, sqlledger.WithTable(fmt.Sprintf("ledger_%d", guidetest.Unique())))
	require.NoError(t, err)
	require.NoError(t, ledger.CreateTable(t.Context()))
	gen, err := serial.New(redistest.Start(t).Client(t), serial.WithLocation(guidetest.Noon()),
		serial.WithLedger(ledger, 2))
	require.NoError(t, err)
	return gen
}
