package main

import (
	"errors"
	"fmt"
)

// schema creates the tables. In production, leave this to your migrations.
//
// Numbers are unique, whoever issues them, and compared byte by byte; MySQL would need COLLATE utf8mb4_bin for that.
// Column day is the day printed in the number. An order has at most one invoice that is not void. No invoice can be
// deleted, since its number would be missing. Table closings records who closed and reopened months, and why.
var schema = fmt.Sprintf(`
CREATE TABLE IF NOT EXISTS orders (
	number       text    PRIMARY KEY,
	day          text    NOT NULL,
	seq          integer NOT NULL,
	customer     text    NOT NULL,
	amount_cents integer NOT NULL CHECK (amount_cents BETWEEN 0 AND %d)
);
CREATE INDEX IF NOT EXISTS orders_by_seq ON orders (day, seq);
CREATE TABLE IF NOT EXISTS invoices (
	number       text    PRIMARY KEY,
	day          text    NOT NULL,
	order_number text    NOT NULL REFERENCES orders (number),
	amount_cents integer NOT NULL CHECK (amount_cents > 0),
	voided_at    text
);
CREATE UNIQUE INDEX IF NOT EXISTS one_invoice ON invoices (order_number) WHERE voided_at IS NULL;
CREATE TRIGGER IF NOT EXISTS invoices_stay BEFORE DELETE ON invoices
BEGIN
	SELECT RAISE(ABORT, 'invoices are voided, not deleted');
END;
CREATE TABLE IF NOT EXISTS closings (
	action  text NOT NULL CHECK (action IN ('close', 'reopen')),
	month   text NOT NULL,
	done_by text NOT NULL,
	reason  text NOT NULL,
	done_at text NOT NULL DEFAULT (strftime('%%Y-%%m-%%dT%%H:%%M:%%SZ', 'now'))
)`, largest)

// SQLite's codes for violated constraints.
const (
	checkFailed = 275 // SQLITE_CONSTRAINT_CHECK
	keyFailed   = 787 // SQLITE_CONSTRAINT_FOREIGNKEY
)

// broken reports whether the database refused a statement because of a constraint of that kind.
func broken(err error, kind int) bool {
	var e interface{ Code() int }
	return errors.As(err, &e) && e.Code() == kind
}
