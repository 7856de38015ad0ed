package gapless

import (
	"context"
	"time"
)

// exec runs a statement that returns no rows.
func (g *Generator) exec(ctx context.Context, tx Tx, statement string, a arguments) error {
	text, values := g.dialect.bind(statement, a)
	_, err := tx.ExecContext(ctx, text, values...)
	return err
}

// scan runs a statement that returns one row, and scans that row into dest.
func (g *Generator) scan(ctx context.Context, q Querier, statement string, a arguments, dest ...any) error {
	text, values := g.dialect.bind(statement, a)
	return q.QueryRowContext(ctx, text, values...).Scan(dest...)
}

// query does what scan does, for a statement whose last column is the time of the database's clock. It returns that
// time and stores it in g.
func (g *Generator) query(ctx context.Context, tx Tx, statement string, a arguments, dest ...any) (time.Time, error) {
	var now clockTime
	err := g.scan(ctx, tx, statement, a, append(dest, &now)...)
	if err == nil {
		g.remember(now.Time, 0)
	}
	return now.Time, err
}

// queryWaiting does what query does, for a statement that reads the clock when it begins, and then waits for a lock.
// The statement got the lock at the returned time plus at most the duration waited.
func (g *Generator) queryWaiting(ctx context.Context, tx Tx, statement string, a arguments, dest ...any) (
	_ time.Time, waited time.Duration, err error,
) {
	var now clockTime
	start := time.Now()
	err = g.scan(ctx, tx, statement, a, append(dest, &now)...)
	// The monotonic clock stops while this host is suspended, so the wall clock is used as well. The additional second
	// covers a clock that drifts or is set during the call.
	waited = max(since(start), since(start.Round(0))) + time.Second
	if err == nil {
		g.remember(now.Time, waited)
	}
	return now.Time, waited, err
}
