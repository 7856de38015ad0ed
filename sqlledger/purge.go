package sqlledger

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// The statement old returns, in key order, the keys of old rows that follow a given series and period. The statement
// remove deletes one row by its key if the row is still old. The youngest period of a series is never old, because it
// may be the current one. So every series keeps at least one period, and therefore also needs its separate row, which
// has an empty period. The statement old never returns this separate row. MariaDB may treat an empty argument as NULL,
// so old restores it with coalesce.
const (
	page = 1000

	old = `SELECT {keys} FROM {table} l WHERE reserved_at < {ago} AND period <> {none}
		AND (series, period) > (coalesce({series}, {none}), coalesce({period}, {none}))
		AND EXISTS (SELECT 1 FROM {table} y WHERE y.series = l.series AND y.period <> {none}
			AND y.reserved_at > l.reserved_at)
		ORDER BY series, period LIMIT {page}`
	remove = `DELETE FROM {table} WHERE reserved_at < {ago} AND series = {series} AND period = {period}`
)

// Purge deletes the rows of old periods, and returns how many it has deleted. A row is old if, by the database's clock,
// more time than the given age has passed since its latest reservation. Purge keeps the youngest period and the
// calendar of each series. After an error or a canceled call, it returns the number of rows that were deleted by then.
// If row security, a rule or a trigger protects some of the old rows, Purge deletes the remaining ones and then returns
// an error.
//
// The age must be longer than the longest period in use plus the time for which periods are prepared ahead. No number
// of a period may be issued after its row has been deleted, because only the row prevents duplicates if Redis loses the
// counter. Purge rejects an age of less than 72 h. For daily numbers, 30 days is a good choice, and it is enough to
// call Purge once a day.
func (l *Ledger) Purge(ctx context.Context, age time.Duration) (int64, error) {
	if age < minAge {
		return 0, fmt.Errorf("sqlledger: purge: an age of %v: want %v or more", age, minAge)
	}
	seconds := int64((age + time.Second - 1) / time.Second)
	var purged, kept int64
	var first key // key of the first old row that was not deleted
	for from := (key{}); ; {
		var found []key
		var undeleted map[key]bool
		var deleted int64
		err := l.do(ctx, "purge", func(c *sql.Conn) (err error) {
			found, undeleted, deleted, err = l.purge(ctx, c, seconds, from)
			return err
		})
		if err != nil {
			return purged, err
		}
		purged += deleted
		if len(undeleted) > 0 {
			// In the meantime, another Purge may have deleted these rows, or reservations may have renewed them. If the
			// method old still returns a row, that row is unchanged.
			var remaining []key
			err := l.do(ctx, "purge", func(c *sql.Conn) (err error) {
				remaining, err = l.old(ctx, c, seconds, from)
				return err
			})
			if err != nil {
				return purged, err
			}
			for _, k := range remaining {
				if !undeleted[k] {
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
		from = found[len(found)-1] // the next page begins after these rows, whether or not they were deleted
	}
	if kept > 0 {
		return purged, fmt.Errorf("sqlledger: purge: %d old rows were found but not deleted, such as period %q "+
			"of %q: row security, a rule or a trigger may prevent it", kept, first.period, first.series)
	}
	return purged, nil
}

// A key is the primary key of a row.
type key struct{ series, period string }

// arguments returns the arguments for the statements of Purge.
func (k key) arguments(seconds int64) arguments {
	return arguments{"series": []byte(k.series), "period": []byte(k.period), "seconds": seconds, "page": page}
}

// old returns the keys of the old rows that follow the given key, in key order. It returns at most one page of them.
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

// purge deletes the rows that old returns. It deletes each by its key, because on MySQL, a DELETE with a search
// condition would lock every row that it examines, including rows in use. The map undeleted contains the keys of the
// rows that were not deleted.
func (l *Ledger) purge(ctx context.Context, c *sql.Conn, seconds int64, from key) (
	found []key, undeleted map[key]bool, deleted int64, err error,
) {
	found, err = l.old(ctx, c, seconds, from)
	if err != nil {
		return nil, nil, 0, err
	}
	undeleted = make(map[key]bool)
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
			undeleted[k] = true
		}
	}
	return found, undeleted, deleted, nil
}
