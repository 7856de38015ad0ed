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
		g.clock.Store(&clock{now.Time, time.Now()})
	}
	return now.Time, err
}
