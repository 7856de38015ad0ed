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

// errUnmoved is the error if periods cannot be closed or reopened in this transaction. Nothing was written.
var errUnmoved = errors.New("nothing was changed")

// markByKey closes or reopens the rows of periods on MySQL. It changes each row by its whole primary key, because an
// UPDATE of a range would also lock the row next to the range, which may belong to another series. The arguments are
// series, lower, upper and end. First it locks the rows, and thus waits for transactions that have taken numbers
// without locking the series' row. Then it checks that the transaction sees the current rows. If its snapshot is older,
// it would not see the latest documents either.
func (g *Generator) markByKey(ctx context.Context, tx Tx, a arguments) error {
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
		text, values := g.dialect.bind(g.sql.markRows, a)
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
// current state of the table. locked is the number of these rows in the snapshot; the transaction has locked all of
// them. Sequences only grow. So if the number of rows, the sum of their sequences and the last label are equal, all
// rows are equal.
func (g *Generator) checkSnapshot(ctx context.Context, tx Tx, a arguments, locked int64) error {
	var seen, present, greatest string
	if err := g.scan(ctx, tx, g.sql.seen, a, &seen); err != nil {
		return err
	}
	a["limit"] = max(locked, 1)
	err := g.scan(ctx, tx, g.sql.present, a, &present)
	if err == nil && locked > 0 {
		err = g.scan(ctx, tx, g.sql.greatest, a, &greatest)
	}
	switch {
	case err != nil && syntaxError.MatchString(err.Error()):
		return fmt.Errorf("%w: the server does not know SKIP LOCKED; want MariaDB 10.6, MySQL 8.0 or later: %w", errUnmoved,
			err)
	case err != nil:
		return err
	case seen != present || !strings.HasSuffix(seen, greatest):
		return fmt.Errorf("%w: the transaction's snapshot lacks what others have committed since; want READ COMMITTED",
			errUnmoved)
	}
	return nil
}
