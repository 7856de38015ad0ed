package sqlledger

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// Purge finds old rows by old, after a series and period, and deletes each by remove, with the same age and the row's
// series and period. The youngest period of a series is never old: it may be the current one. So a series always needs
// its own row, which is never old either. MariaDB may take an empty argument for NULL.
const (
	page = 1000

	old = `SELECT {keys} FROM {table} l WHERE reserved_at < {ago} AND period <> {none}
		AND (series, period) > (coalesce({series}, {none}), coalesce({period}, {none}))
		AND EXISTS (SELECT 1 FROM {table} y WHERE y.series = l.series AND y.period <> {none}
			AND y.reserved_at > l.reserved_at)
		ORDER BY series, period LIMIT {page}`
	remove = `DELETE FROM {table} WHERE reserved_at < {ago} AND series = {series} AND period = {period}`
)

// Purge deletes the rows of old periods and returns how many it deleted. A row is old if its last reservation is longer
// ago than age, by the database's clock. The youngest period and the calendar of each series are kept. After an error
// or a cancelled call, the count is the number of rows deleted until then. If row security, a rule or a trigger
// protects old rows, Purge deletes the others and then returns an error.
//
// age must be longer than the longest period in use plus the time for which periods are prepared ahead. Once a period's
// row is gone, no number of the period may be issued, since only the row keeps numbers from being issued twice when
// Redis loses them. Less than 72 h is refused. For daily numbers, 30 days is a good choice, and once a day is often
// enough.
func (l *Ledger) Purge(ctx context.Context, age time.Duration) (int64, error) {
	if age < minAge {
		return 0, fmt.Errorf("sqlledger: purge: an age of %v: want %v or more", age, minAge)
	}
	seconds := int64((age + time.Second - 1) / time.Second)
	var purged, kept int64
	var first key // key of the first old row that was not deleted
	for from := (key{}); ; {
		var found []key
		var left map[key]bool
		var deleted int64
		err := l.do(ctx, "purge", func(c *sql.Conn) (err error) {
			found, left, deleted, err = l.purge(ctx, c, seconds, from)
			return err
		})
		if err != nil {
			return purged, err
		}
		purged += deleted
		if len(left) > 0 {
			// Another Purge may have deleted these rows meanwhile, or a reservation may have renewed them. If they are
			// found again, neither happened.
			var there []key
			err := l.do(ctx, "purge", func(c *sql.Conn) (err error) {
				there, err = l.old(ctx, c, seconds, from)
				return err
			})
			if err != nil {
				return purged, err
			}
			for _, k := range there {
				if !left[k] {
					continue
				}
				if kept++; kept == 1 {
					first = k
				}
			}
		}
		if len(found) < page {
			break
		}
		from = found[len(found)-1] // these rows are not queried again, deleted or not
	}
	if kept > 0 {
		return purged, fmt.Errorf("sqlledger: purge: %d old rows were found but not deleted, such as period %q "+
			"of %q: row security, a rule or a trigger may prevent it", kept, first.period, first.series)
	}
	return purged, nil
}

// A key is the primary key of a row.
type key struct{ series, period string }

// arguments returns the arguments of the queries of Purge.
func (k key) arguments(seconds int64) arguments {
	return arguments{"series": []byte(k.series), "period": []byte(k.period), "seconds": seconds, "page": page}
}

// old returns the keys of the first old rows after from, in order.
func (l *Ledger) old(ctx context.Context, c *sql.Conn, seconds int64, from key) ([]key, error) {
	q := l.sql.old
	rows, err := c.QueryContext(ctx, q.text, q.bind(from.arguments(seconds))...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var keys []key
	for rows.Next() {
		var k key
		if err := rows.Scan((*hexText)(&k.series), (*hexText)(&k.period)); err != nil {
			return nil, err
		}
		keys = append(keys, k)
	}
	return keys, rows.Err()
}

// purge deletes the rows that old returns, each by its key: in MySQL, a DELETE that searches for them would lock every
// row that it examines, including rows in use. left are the keys of the rows that were not deleted.
func (l *Ledger) purge(ctx context.Context, c *sql.Conn, seconds int64, from key) (
	found []key, left map[key]bool, deleted int64, err error,
) {
	found, err = l.old(ctx, c, seconds, from)
	if err != nil {
		return nil, nil, 0, err
	}
	left = make(map[key]bool)
	for _, k := range found {
		r, err := c.ExecContext(ctx, l.sql.remove.text, l.sql.remove.bind(k.arguments(seconds))...)
		if err != nil {
			return nil, nil, 0, err
		}
		n, err := r.RowsAffected()
		if err != nil {
			return nil, nil, 0, err
		}
		if deleted += n; n == 0 {
			left[k] = true
		}
	}
	return found, left, deleted, nil
}
