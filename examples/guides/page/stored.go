package page

import (
	"context"
	"database/sql"
	"iter"
	"time"
)

// stored yields all numbers that a query selects. The column must not contain NULL.
func stored(db *sql.DB, query string, args ...any) func(_ context.Context, _, _ time.Time) iter.Seq2[string, error] {
	return func(ctx context.Context, _, _ time.Time) iter.Seq2[string, error] {
		return func(yield func(string, error) bool) {
			rows, err := db.QueryContext(ctx, query, args...)
			if err != nil {
				yield("", err)
				return
			}
			defer func() { _ = rows.Close() }()
			for rows.Next() {
				var number string
				if err := rows.Scan(&number); !yield(number, err) || err != nil {
					return
				}
			}
			if err := rows.Err(); err != nil {
				yield("", err)
			}
		}
	}
}
