package gapless

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Schema returns the statements with which [Generator.CreateTable] creates the two tables. It is for programs that
// manage their schema themselves. A table may have additional columns if these have defaults. Do not change the types
// of the columns: names are stored as bytes, because a comparison of text may treat "IS" as equal to "is" or to "IS ".
// The tables must not be unlogged or temporary, and on MySQL they must use InnoDB.
//
// The first table has a row for each type and period, with these columns:
//
//   - series is the key prefix, a colon and the type.
//   - period is the label of the period, such as 20211024.
//   - mark is the scheme's [serial.Scheme.Calendar], a colon and its [serial.Scheme.PrintMark].
//   - last is the last sequence taken, or 0 if none was taken.
//   - previous is the value of last before its last change.
//   - closed is NULL unless the period is closed.
//
// In PostgreSQL, this query shows the table as text:
//
//	SELECT convert_from(series, 'UTF8'), convert_from(period, 'UTF8'), last FROM serial_gapless
//
// In other databases, the columns can be read without conversion. The second table, whose name ends with _series, has a
// row for each series. Its column calendar contains the calendar of the series. Its column closed contains the end of
// the last closed period in Unix seconds, or NULL if no period is closed. With [WithChronology], the first table has
// two more columns, which are described there.
//
// Never delete the row of a period in which numbers may still be taken, for example by [Generator.NextOn], and never
// delete a row of the second table. If a series has no rows at all, it starts again at its first number, and may have a
// different calendar.
//
// In your tables of documents, the column with the numbers must be compared byte by byte, too. PostgreSQL and SQLite do
// this by default. MySQL and MariaDB need a binary collation, such as
//
//	number varchar(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL UNIQUE
//
// Their default collations treat the types IS and is, É and E, or ß and s as equal. A UNIQUE column then rejects the
// numbers of the second type. A rejected number becomes free again, so every further transaction of the second type
// gets the same number, and is rejected, too.
func (g *Generator) Schema() []string {
	return []string{g.sql.tables[0].create, g.sql.tables[1].create}
}

// CreateTable creates the two tables if they do not exist. On PostgreSQL, it uses tables that exist anywhere in
// search_path. With [WithChronology], it adds the columns dated and dated_before if the first table lacks them. Any
// number of processes may call CreateTable at the same time.
//
// The database's user needs the right to create tables; on MySQL, even if they exist already. To add columns, the user
// needs the right to alter the table, and on PostgreSQL must own the table. On PostgreSQL and MySQL, adding a column
// waits for the transactions that have used the table. During this wait, other transactions that need the table have to
// wait, too.
//
// If other transactions are in the way, CreateTable repeats its statements for up to 30 s. It returns an error if a
// table could lose numbers whose documents are kept: on PostgreSQL if it is unlogged or temporary, and on MySQL if it
// does not use InnoDB. Every other error wraps the driver's error, for example if an existing table of that name
// lacks the columns of [Generator.Schema]. After such an error, or if ctx has ended, the tables may or may not exist,
// and CreateTable can be called again.
func (g *Generator) CreateTable(ctx context.Context, db *sql.DB) error {
	const what = "create the table"
	if db == nil {
		return fmt.Errorf("gapless: %s: the database is nil", what)
	}
	end := time.Now().Add(30 * time.Second)
	for wait := time.Millisecond; ; wait = min(2*wait, 64*time.Millisecond) {
		err := g.create(ctx, db, end)
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
	for _, t := range g.sql.tables {
		if err := g.read(ctx, db, t.probe); !errors.Is(err, sql.ErrNoRows) {
			return g.failed(ctx, what, fmt.Errorf("an existing table lacks a column of Schema; if it contains the numbers "+
				"of release 0.4.0, use another table and see docs/migrating.md: %w", err))
		}
		if t.flaw == "" {
			continue
		}
		var flaw string
		if err := g.read(ctx, db, t.flaw, &flaw); err != nil {
			return g.failed(ctx, what, err)
		}
		if flaw != "-" {
			return fmt.Errorf("gapless: %s: %s, so numbers would not be stored as safely as documents", what, flaw)
		}
	}
	return nil
}

// create creates the tables and columns that do not exist. If columns are not added by the time end, it returns an
// error.
func (g *Generator) create(ctx context.Context, db *sql.DB, end time.Time) error {
	for _, t := range g.sql.tables {
		if t.exists != "" {
			var exists bool
			if err := g.read(ctx, db, t.exists, &exists); err != nil {
				return err
			}
			if exists {
				continue
			}
		}
		if _, err := db.ExecContext(ctx, t.create); err != nil {
			return err
		}
	}
	if !g.chronology {
		return nil
	}
	adding, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	for _, c := range g.sql.columns {
		if errors.Is(g.read(ctx, db, c.probe), sql.ErrNoRows) {
			continue
		}
		if _, err := db.ExecContext(adding, c.add); err != nil {
			return fmt.Errorf("add a column of WithChronology: %w", err)
		}
	}
	return nil
}

// read runs a statement that returns at most one row. On MySQL, it uses a separate transaction, because if autocommit
// is off, the statement would otherwise leave a transaction open on a connection of the pool. Then the table could not
// be altered, and the next BeginTx could not set its isolation level.
func (g *Generator) read(ctx context.Context, db *sql.DB, statement string, dest ...any) error {
	if g.dialect != MySQL {
		return g.scan(ctx, db, statement, nil, dest...)
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	return g.scan(ctx, tx, statement, nil, dest...)
}
