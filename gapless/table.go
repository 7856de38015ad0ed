package gapless

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Schema returns the statements with which [Generator.CreateTable] creates the two tables, for programs that manage
// their schema themselves. A table may have more columns if they have defaults. The types must stay: names are bytes,
// because a comparison of text may take "IS" for "is" or for "IS ". The tables must be neither unlogged nor temporary,
// and on MySQL they must use InnoDB.
//
// The first table has a row for each type and period: series is the key prefix, a colon and the type; period is the
// period's label, such as 20211024; mark is the scheme's [serial.Scheme.Calendar], a colon and its
// [serial.Scheme.PrintMark]; last is the last sequence taken, 0 if none was, and previous is the value of last before
// its last change; closed is NULL unless the period is closed. To read it in PostgreSQL:
//
//	SELECT convert_from(series, 'UTF8'), convert_from(period, 'UTF8'), last FROM serial_gapless
//
// Elsewhere no conversion is needed. The second table, whose name ends with _series, has a row for each series: its
// calendar, and in closed the end of the last closed period in Unix seconds, NULL if none is closed. With
// [WithChronology], the first table has two more columns, which are described there.
//
// Never delete rows of periods in which numbers may still be taken, also by [Generator.NextOn], nor rows of the second
// table: without any row, a series starts over, with any calendar.
//
// In the tables of documents, compare the column of the numbers byte by byte, too. PostgreSQL and SQLite do so by
// default. MySQL and MariaDB need a binary collation, such as
//
//	number varchar(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL UNIQUE
//
// Their default collations do not distinguish the types IS and is, É and E, or ß and s, so the UNIQUE column refuses
// the numbers of the second type. As each refused number is free again, that type gets the same number for ever.
func (g *Generator) Schema() []string {
	return []string{g.sql.tables[0].create, g.sql.tables[1].create}
}

// CreateTable creates the two tables unless they exist, in PostgreSQL anywhere in search_path. With
// [WithChronology], it adds the columns dated and dated_before to a table without them. Any number of processes may
// do so at once. The database's user needs the right to create the tables, in MySQL even if they exist, and to alter
// the one that lacks a column, in PostgreSQL as its owner. In PostgreSQL and MySQL, adding a column waits for the
// transactions that have used the table, and until then others who want to use it wait, too. It is an error if a
// table would not keep numbers together with documents, because it is unlogged in PostgreSQL or does not use InnoDB
// in MySQL. Every other error wraps the driver's, as for a table of that name without the columns of
// [Generator.Schema]; after it, or if ctx has ended, the tables may exist or not, and CreateTable may be repeated.
// If others are in the way, it ends within 30 s plus the time of a few statements.
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
			return g.failed(ctx, what, fmt.Errorf("a table lacks a column of Schema; to continue the numbers of "+
				"release 0.4.0, choose another table, as docs/migrating.md says: %w", err))
		}
		if t.flaw == "" {
			continue
		}
		var flaw string
		if err := g.read(ctx, db, t.flaw, &flaw); err != nil {
			return g.failed(ctx, what, err)
		}
		if flaw != "-" {
			return fmt.Errorf("gapless: %s: %s: numbers would not be kept as documents are", what, flaw)
		}
	}
	return nil
}

// create creates the tables and columns that do not exist. From end on, it adds no column.
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

// read runs a statement that returns at most one row. In MySQL, it does so in a transaction of its own: with autocommit
// off, it would otherwise leave a transaction open on a connection of the pool, which keeps the table from being
// altered and the next BeginTx from setting its level of isolation.
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
