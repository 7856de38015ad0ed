package gapless

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
)

// errUnchanged is the error if periods cannot be closed or reopened in this transaction. Nothing was written then.
var errUnchanged = errors.New("nothing was changed")

// setClosedByKey closes or reopens the rows of periods on MySQL. The map a contains the arguments series, lower, upper
// and end. setClosedByKey changes each row by its whole primary key, because an UPDATE of a range would also lock the
// row after the range, which may belong to another series.
//
// Before that, it locks the rows, and thus waits for transactions that have taken numbers without locking the series'
// row. It then checks that the transaction sees the current rows. If it does not, its snapshot is too old, and the
// caller would not see the latest documents either.
func (g *Generator) setClosedByKey(ctx context.Context, tx Tx, a arguments) error {
	var locked int64
	if err := g.scan(ctx, tx, g.sql.lockRows, a, &locked); err != nil {
		return err
	}
	if err := g.checkSnapshot(ctx, tx, a, locked); err != nil {
		return err
	}
	for {
		var list sql.NullString
		if err := g.scan(ctx, tx, g.sql.list, a, &list); err != nil || !list.Valid {
			return err
		}
		labels := bytes.Split([]byte(list.String), []byte{','})
		a["labels"] = labels
		text, values := g.dialect.bind(g.sql.setClosedRows, a)
		result, err := tx.ExecContext(ctx, text, values...)
		if err != nil {
			return err
		}
		if n, err := result.RowsAffected(); err != nil || n != int64(len(labels)) {
			return cmp.Or(err, fmt.Errorf("%d of %d rows were changed; want a group_concat_max_len of 1024 or more", n,
				len(labels)))
		}
		a["lower"] = labels[len(labels)-1]
	}
}

// checkSnapshot returns an error if the rows to be closed or reopened differ between the transaction's snapshot and the
// current state of the table. The argument locked is the number of these rows in the snapshot. The transaction has
// locked all of them. Sequences only grow. So if the number of rows, the sum of their sequences and the largest label
// are equal, all rows are equal.
func (g *Generator) checkSnapshot(ctx context.Context, tx Tx, a arguments, locked int64) error {
	var seen, present, largest string
	if err := g.scan(ctx, tx, g.sql.seen, a, &seen); err != nil {
		return err
	}
	a["limit"] = max(locked, 1)
	err := g.scan(ctx, tx, g.sql.present, a, &present)
	if err == nil && locked > 0 {
		err = g.scan(ctx, tx, g.sql.largest, a, &largest)
	}
	switch {
	case err != nil && syntaxError.MatchString(err.Error()):
		return fmt.Errorf("%w: the server does not support SKIP LOCKED; want MariaDB 10.6, MySQL 8.0 or later: %w",
			errUnchanged, err)
	case err != nil:
		return err
	case seen != present || !strings.HasSuffix(seen, largest):
		return fmt.Errorf("%w: other transactions have committed numbers that are not in the snapshot of this one; "+
			"want READ COMMITTED", errUnchanged)
	}
	return nil
}
