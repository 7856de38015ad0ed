package sqlledger_test

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"iter"
	"log"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/redistest"
	"github.com/dailyserial/serial/sqlledger"
)

// openRegister returns a generator, and the register that stores its explanations.
func openRegister(ctx context.Context, rdb *redis.Client, db *sql.DB) (*serial.Generator, *sqlledger.Register, error) {
	register, err := sqlledger.NewRegister(db, sqlledger.PostgreSQL)
	if err != nil {
		return nil, nil, err
	}
	if err := register.CreateTable(ctx); err != nil {
		return nil, nil, err
	}
	hooks := register.Hooks(func(e serial.Explanation, err error) {
		log.Printf("%s %d to %d: %s: not kept: %v", e.Type, e.First, e.Last, e.Reason, err)
	})
	gen, err := serial.New(rdb, serial.WithLocation(time.UTC), serial.WithHooks(hooks))
	return gen, register, err
}

// voidOrder deletes an order and stores the reason for the missing number, in one transaction.
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

// auditOrders audits the orders of a day with the explanations of the register.
func auditOrders(ctx context.Context, gen *serial.Generator, register *sqlledger.Register, db *sql.DB,
	day serial.When) (serial.Report, error) {
	_, start, _ := gen.Scheme().Period(day)
	return gen.Audit(ctx, "IS", day, stored(ctx, db),
		serial.WithExplanations(register.Explanations(ctx, "serial:IS", start)))
}

// stored yields the numbers of all orders.
func stored(ctx context.Context, db *sql.DB) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		rows, err := db.QueryContext(ctx, "SELECT number FROM orders")
		if err != nil {
			yield("", err)
			return
		}
		defer rows.Close()
		for rows.Next() {
			var number string
			err := rows.Scan(&number)
			if !yield(number, err) || err != nil {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield("", err)
		}
	}
}

// printReport prints the results of an audit.
func printReport(w io.Writer, report serial.Report) {
	fmt.Fprintf(w, "issued %d, stored %d, missing %d, not explained %d\n",
		report.Last, report.Count, report.MissingCount, report.UnexplainedCount)
	for _, e := range report.Explained {
		fmt.Fprintf(w, "%d: %s %s\n", e.First, e.Explanation.Reason, e.Explanation.By)
	}
}

// The code in the guide must be the same as in the functions above. If it is run for the day in the guide, it must
// print the output that the guide shows.
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
	require.Equal(t, 11, shown)

	d := postgres(t)
	db := d.open(t, nil)
	rdb := redistest.Start(t).Client(t)
	gen, register, err := openRegister(t.Context(), rdb, db)
	require.NoError(t, err)
	execSQL(t, db, "CREATE TABLE orders (number text)")
	tx := begin(t, db)
	place := func(stored bool) serial.Number {
		n, err := gen.NextNumber(t.Context(), "IS")
		require.NoError(t, err)
		if stored {
			require.NoError(t, onlyErr(tx.Exec("INSERT INTO orders VALUES ($1)", n)))
		}
		return n
	}
	place(true)
	second := place(true)
	place(true)
	fourth := place(false)
	explanation, err := gen.Scheme().Explanation(fourth, fourth, serial.CallerLeft, "") // as if the call were canceled
	require.NoError(t, err)
	register.Hooks(nil).Unused(t.Context(), explanation)
	place(true)
	require.NoError(t, voidOrder(t.Context(), register, tx, second, "ordered twice", "Ada"))
	require.NoError(t, tx.Commit())

	report, err := auditOrders(t.Context(), gen, register, db, serial.At(second.Start))
	require.NoError(t, err)
	require.True(t, report.Clean())
	var printed strings.Builder
	printReport(&printed, report)
	_, account, _ := strings.Cut(section, "\n```text\n")
	account, _, _ = strings.Cut(account, "```")
	require.Equal(t, strings.Split(account, "\n"), strings.Split(strings.ReplaceAll(printed.String(), " \n", "\n"), "\n"))

	_, query, _ := strings.Cut(section, "\n    SELECT ")
	query, _, _ = strings.Cut(query, "\n")
	const voided = ` WHERE reason = 'ordered twice' AND explained_by = 'Ada' AND NOT possible`
	require.Equal(t, 1, value[int](t, db, "SELECT count(*) FROM (SELECT "+query+") AS shown"+voided))
}
