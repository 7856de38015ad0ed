package gapless

import (
	"context"
	"time"
)

// exec runs a statement that returns nothing.
func (g *Generator) exec(ctx context.Context, tx Tx, statement string, a arguments) error {
	text, values := g.dialect.bind(statement, a)
	_, err := tx.ExecContext(ctx, text, values...)
	return err
}

// scan runs a statement that returns a row.
func (g *Generator) scan(ctx context.Context, q Querier, statement string, a arguments, dest ...any) error {
	text, values := g.dialect.bind(statement, a)
	return q.QueryRowContext(ctx, text, values...).Scan(dest...)
}

// query is scan for a statement that returns the database's clock behind dest. It remembers the clock's reading.
func (g *Generator) query(ctx context.Context, tx Tx, statement string, a arguments, dest ...any) (time.Time, error) {
	var now reading
	err := g.scan(ctx, tx, statement, a, append(dest, &now)...)
	if err == nil {
		g.remember(now.Time, 0)
	}
	return now.Time, err
}

// queryWaiting is query for a statement that reads the clock when it begins, and then waits for a lock. It got the lock
// at most waited after that.
func (g *Generator) queryWaiting(ctx context.Context, tx Tx, statement string, a arguments, dest ...any) (
	_ time.Time, waited time.Duration, err error,
) {
	var now reading
	start := time.Now()
	err = g.scan(ctx, tx, statement, a, append(dest, &now)...)
	// The monotonic clock stops while this host is suspended. The extra second allows for clocks that drift or are set.
	waited = max(since(start), since(start.Round(0))) + time.Second
	if err == nil {
		g.remember(now.Time, waited)
	}
	return now.Time, waited, err
}
