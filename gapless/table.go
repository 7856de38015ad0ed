package gapless

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// A counter is the row of a type and period as a statement left it. Its lock is held until the transaction ends.
type counter struct {
	last     int64     // sequence taken, 0 for none
	previous int64     // last before the statement
	mark     string    // print mark of the scheme that took the numbers
	now      time.Time // by the database's clock, after the lock was got
}

// series is a type's key in the table. A prefix has no colon.
func (g *Generator) series(typ string) []byte { return []byte(g.inside.Prefix + ":" + typ) }

// take waits for the counter's lock and adds n to it, or to above if that is greater. Whether this may be so is for the caller
// to judge, by what the counter was and by its clock: under the lock, undo can follow.
func (g *Generator) take(ctx context.Context, tx Tx, typ, label string, above, n int64) (counter, error) {
	series, period, mark := g.series(typ), []byte(label), []byte(g.inside.PrintMark)
	c := counter{mark: g.inside.PrintMark}
	var err error
	if g.sql.update != "" {
		c.now, err = g.query(ctx, tx, g.sql.update, []any{n, series, period, mark, above}, &c.last)
		if !errors.Is(err, sql.ErrNoRows) {
			c.previous = c.last - n
			return c, err
		}
	}
	upsert := []any{series, period, mark, above + n, mark, n, above + n}
	read := upsert
	if g.sql.upsert != "" {
		query, args := g.dialect.bind(g.sql.upsert, upsert...)
		if _, err := tx.ExecContext(ctx, query, args...); err != nil {
			return c, err
		}
		read = []any{series, period}
	}
	c.now, err = g.query(ctx, tx, g.sql.read, read, &c.last, &c.previous, &c.mark)
	return c, err
}

// undo takes back what take did to the counter, whose lock is held.
func (g *Generator) undo(ctx context.Context, tx Tx, typ, label string) error {
	query, args := g.dialect.bind(g.sql.undo, g.series(typ), []byte(label))
	_, err := tx.ExecContext(ctx, query, args...)
	return err
}

// query runs a statement that returns dest and the database's clock, and remembers what that said.
func (g *Generator) query(ctx context.Context, tx Tx, query string, args []any, dest ...any) (time.Time, error) {
	var now reading
	query, args = g.dialect.bind(query, args...)
	err := tx.QueryRowContext(ctx, query, args...).Scan(append(dest, &now)...)
	if err == nil {
		g.clock.Store(&clock{now.Time, time.Now()})
	}
	return now.Time, err
}

// Schema returns the statement with which [Generator.CreateTable] creates the table, for those who keep their schema
// themselves. A table may have more columns if they have defaults. The types must stay: names are bytes, because a comparison
// of text may take "IS" for "is" or for "IS ". The table must be neither unlogged nor temporary, and on MySQL of InnoDB.
//
// There is a row for each type and period: series is the key prefix, a colon and the type; period is the period's label, such
// as 20211024; mark is a hash of how the template prints the sequence, "" for the usual way; last is the last sequence
// taken, 0 if none was, and previous what last was before its last change. To read it in PostgreSQL:
//
//	SELECT convert_from(series, 'UTF8'), convert_from(period, 'UTF8'), last FROM serial_gapless
//
// Elsewhere no conversion is needed. Never delete rows of periods in which numbers may still be taken, also by [Generator.NextOn].
func (g *Generator) Schema() string { return g.sql.schema }

// CreateTable creates the table unless it exists, in PostgreSQL anywhere in search_path. Any number of processes may do so at once.
// The database's user needs the right to create it, in MySQL even if the table exists. It is an error if the table would not keep
// numbers together with documents, since it is unlogged in PostgreSQL or not of InnoDB in MySQL. Every other error wraps the
// driver's, as for a table of that name without the columns of [Generator.Schema]; after it, or if ctx has ended, the table may
// exist or not, and CreateTable may be repeated. It ends within 30 s and the time of one statement if others are in the way.
func (g *Generator) CreateTable(ctx context.Context, db *sql.DB) error {
	const what = "create the table"
	if db == nil {
		return fmt.Errorf("gapless: %s: the database is nil", what)
	}
	end := time.Now().Add(30 * time.Second)
	for wait := time.Millisecond; ; wait = min(2*wait, 64*time.Millisecond) {
		err := g.create(ctx, db)
		if err == nil {
			break
		}
		if ctx.Err() != nil || !g.dialect.again(err) || time.Now().After(end) {
			return g.failed(ctx, what, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(rand.N(wait)):
		}
	}
	if _, err := db.ExecContext(ctx, g.sql.probe); err != nil {
		return g.failed(ctx, what, err)
	}
	if g.sql.flaw == "" {
		return nil
	}
	var flaw string
	if err := db.QueryRowContext(ctx, g.sql.flaw).Scan(&flaw); err != nil {
		return g.failed(ctx, what, err)
	}
	if flaw != "-" {
		return fmt.Errorf("gapless: %s: %s: numbers would not be kept as documents are", what, flaw)
	}
	return nil
}

// create creates the table if there is none.
func (g *Generator) create(ctx context.Context, db *sql.DB) error {
	if g.sql.exists != "" {
		var exists bool
		if err := db.QueryRowContext(ctx, g.sql.exists).Scan(&exists); err != nil || exists {
			return err
		}
	}
	_, err := db.ExecContext(ctx, g.sql.schema)
	return err
}
