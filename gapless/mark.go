package gapless

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// A rowRange is the rows of a series whose labels are greater than lower, up to upper, that change if their periods are
// closed or reopened: end is the new end of the last closed period, or nil if they are reopened.
type rowRange struct {
	series, lower, upper []byte
	end                  any
}

// errUnmoved is the error of a transaction in which periods cannot be closed or reopened. Nothing was written.
var errUnmoved = errors.New("nothing was changed")

// markByKey changes each row by its whole primary key, in MySQL, where a change of a range also locks a row of a
// neighbour. It first locks them all, which waits for those who have taken numbers without locking the gate. Then the
// transaction must see the rows as they are: if it has an older snapshot, it would miss documents, too.
func (g *Generator) markByKey(ctx context.Context, tx Tx, r rowRange) error {
	get := func(dest any, query string, more ...any) error {
		query, args := g.dialect.bind(query, append([]any{r.series, r.lower, r.upper, r.end}, more...)...)
		return tx.QueryRowContext(ctx, query, args...).Scan(dest)
	}
	var locked int64
	if err := get(&locked, g.sql.lockRows, r.series); err != nil {
		return err
	}
	// Sequences only grow, and all rows that are seen are locked by now: if the sums are equal, so are the rows.
	var seen, present string
	if err := get(&seen, g.sql.seen); err != nil {
		return err
	}
	err := get(&present, g.sql.present)
	switch {
	case err != nil && syntaxError.MatchString(err.Error()):
		return fmt.Errorf("%w: the server does not know SKIP LOCKED; want MariaDB 10.6, MySQL 8.0 or later: %w", errUnmoved,
			err)
	case err != nil:
		return err
	case seen != present:
		return fmt.Errorf("%w: the transaction's snapshot lacks what others have committed since; want READ COMMITTED",
			errUnmoved)
	}
	for {
		var list sql.NullString
		if err := get(&list, g.sql.list); err != nil || !list.Valid {
			return err
		}
		labels := bytes.Split([]byte(list.String), []byte{','})
		query, args := g.dialect.bind(g.sql.markRows, labels, r.series, r.end)
		result, err := tx.ExecContext(ctx, query, args...)
		if err != nil {
			return err
		}
		if n, err := result.RowsAffected(); err != nil || n != int64(len(labels)) {
			return cmp.Or(err, fmt.Errorf("%d of %d rows were changed; want a group_concat_max_len of 1024 or more", n,
				len(labels)))
		}
		r.lower = labels[len(labels)-1]
	}
}
