package sqlledger_test

import (
	"context"
	"database/sql"
	"iter"
	"log"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/redistest"
	"github.com/dailyserial/serial/sqlledger"
)

// openRegister returns a generator whose explanations a register keeps.
func openRegister(ctx context.Context, rdb *redis.Client, db *sql.DB) (*serial.Generator, *sqlledger.Register, error) {
	register, err := sqlledger.NewRegister(db, sqlledger.PostgreSQL)
	if err != nil {
		return nil, nil, err
	}
	if err := register.CreateTable(ctx); err != nil {
		return nil, nil, err
	}
	gen, err := serial.New(rdb, serial.WithHooks(register.Hooks(func(e serial.Explanation, err error) {
		log.Printf("%s %d to %d: %s: not kept: %v", e.Type, e.First, e.Last, e.Reason, err)
	})))
	return gen, register, err
}

// voidOrder deletes an order, and keeps why its number is missing, in one transaction.
func voidOrder(ctx context.Context, register *sqlledger.Register, tx *sql.Tx, n serial.Number,
	reason, user string) error {
	if _, err := tx.ExecContext(ctx, "DELETE FROM orders WHERE number = $1", n); err != nil {
		return err
	}
	return register.ExplainIn(ctx, tx, serial.Explanation{
		Series: "serial:" + n.Type, Type: n.Type, Start: n.Start, First: n.Seq, Last: n.Seq,
		Reason: reason, By: user, At: time.Now(),
	})
}

// accountOf audits the orders of a period, with their explanations.
func accountOf(ctx context.Context, gen *serial.Generator, register *sqlledger.Register, start time.Time,
	stored iter.Seq2[string, error]) (serial.Report, error) {
	return gen.Audit(ctx, "IS", start, stored, serial.WithExplanations(register.Explanations(ctx, "serial:IS", start)))
}

// The guide's code is that of the functions above, and it works.
func TestRegisterGuide(t *testing.T) {
	unix := strings.NewReplacer("\r\n", "\n")
	source, err := os.ReadFile("guide_test.go")
	require.NoError(t, err)
	text, err := os.ReadFile("../docs/audit.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(unix.Replace(string(text)), "\n## Keep explanations in your database\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	shown := 0
	for line := range strings.SplitSeq(section, "\n") {
		if code, indented := strings.CutPrefix(line, "    "); indented && !strings.HasPrefix(code, "SELECT ") {
			require.Contains(t, unix.Replace(string(source)), "\n\t"+strings.ReplaceAll(code, "    ", "\t")+"\n")
			shown++
		}
	}
	require.Greater(t, shown, 10)

	d := postgres(t)
	db := d.open(t, nil)
	gen, register, err := openRegister(t.Context(), redistest.Start(t).Client(t), db)
	require.NoError(t, err)
	numbers, err := gen.NextN(t.Context(), "IS", 3)
	require.NoError(t, err)
	execSQL(t, db, "CREATE TABLE orders (number text)")
	tx := begin(t, db)
	for _, n := range numbers {
		require.NoError(t, errOf(tx.Exec("INSERT INTO orders VALUES ($1)", n)))
	}
	require.NoError(t, voidOrder(t.Context(), register, tx, numbers[1], "ordered twice", "Ada"))
	require.NoError(t, tx.Commit())

	stored := func(yield func(string, error) bool) {
		for _, n := range slices.Delete(slices.Clone(numbers), 1, 2) {
			if !yield(n.String(), nil) {
				return
			}
		}
	}
	report, err := accountOf(t.Context(), gen, register, numbers[0].Start, stored)
	require.NoError(t, err)
	require.Equal(t, []serial.Range{{First: 2, Last: 2}}, report.Missing)
	require.True(t, report.Clean())
	all, err := collect(register, "serial:IS", numbers[0].Start)
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.Equal(t, "ordered twice", all[0].Reason)

	_, query, _ := strings.Cut(section, "\n    SELECT ")
	query, _, _ = strings.Cut(query, "\n")
	rows, err := db.QueryContext(t.Context(), "SELECT "+query)
	require.NoError(t, err)
	defer func() { require.NoError(t, rows.Close()) }()
	require.True(t, rows.Next())
	var start, at time.Time
	var first, last int64
	var reason, by string
	require.NoError(t, rows.Scan(&start, &first, &last, &reason, &by, &at))
	require.Equal(t, "ordered twice Ada", reason+" "+by)
}
