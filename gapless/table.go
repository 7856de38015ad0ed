package gapless

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"time"
)

// Schema returns the statement with which [Generator.CreateTable] creates the table, for programs that manage their
// schema themselves. A table may have more columns if they have defaults. The types must stay: names are bytes, because
// a comparison of text may take "IS" for "is" or for "IS ". The table must be neither unlogged nor temporary, and on
// MySQL it must use InnoDB.
//
// There is a row for each type and period: series is the key prefix, a colon and the type; period is the period's
// label, such as 20211024; mark is the scheme's [serial.Scheme.Calendar], a colon and its [serial.Scheme.PrintMark];
// last is the last sequence taken, 0 if none was, and previous is the value of last before its last change; closed is
// NULL unless the period is closed. In addition, each series has a row whose period is "", whose mark is the calendar,
// and whose closed is the end of the last closed period in Unix seconds. To read the table in PostgreSQL:
//
//	SELECT convert_from(series, 'UTF8'), convert_from(period, 'UTF8'), last FROM serial_gapless WHERE period <> ''
//
// Elsewhere no conversion is needed. Never delete rows of periods in which numbers may still be taken, also by
// [Generator.NextOn], nor a series' row whose period is empty, which keeps its calendar and what is closed: a condition
// such as period < '20210101' matches that too. Without any row, a series starts over, with any calendar.
//
// In the tables of documents, compare the column of the numbers byte by byte, too. PostgreSQL and SQLite do so by
// default. MySQL and MariaDB need a binary collation, such as
//
//	number varchar(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL UNIQUE
//
// Their default collations do not distinguish the types IS and is, É and E, or ß and s, so the UNIQUE column refuses
// the numbers of the second type. As each refused number is free again, that type gets the same number for ever.
func (g *Generator) Schema() string { return g.sql.schema }

// CreateTable creates the table unless it exists, in PostgreSQL anywhere in search_path. Any number of processes may do
// so at once. The database's user needs the right to create it, in MySQL even if the table exists. It is an error if
// the table would not keep numbers together with documents, because it is unlogged in PostgreSQL or does not use InnoDB
// in MySQL. Every other error wraps the driver's, as for a table of that name without the columns of
// [Generator.Schema]; after it, or if ctx has ended, the table may exist or not, and CreateTable may be repeated. If
// others are in the way, it ends within 30 s plus the time of one statement.
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
		return g.failed(ctx, what, fmt.Errorf("the table lacks a column of Schema, as one of an earlier version does: add "+
			"it, or create the table anew: %w", err))
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
