package migrating

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/gapless"
)

// upgradeGapless raises the counters of gen to those in a table of gapless 0.4.0, in one transaction. It is for days: a
// period's label is then its date.
func upgradeGapless(ctx context.Context, db *sql.DB, gen *gapless.Generator, table string) error {
	type counter struct {
		series, period string
		last           int64
	}
	var counters []counter
	rows, err := db.QueryContext(ctx, "SELECT series, period, last FROM "+table)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var c counter
		if err := rows.Scan(&c.series, &c.period, &c.last); err != nil {
			return err
		}
		counters = append(counters, c)
	}
	if err := rows.Err(); err != nil {
		return err
	}

	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	for _, c := range counters {
		_, typ, _ := strings.Cut(c.series, ":") // after the key prefix
		day, err := time.Parse("20060102", c.period)
		if err != nil {
			return fmt.Errorf("%s: %w", c.period, err)
		}
		if err := gen.Raise(ctx, tx, typ, serial.OnDateOf(day), c.last); err != nil {
			return fmt.Errorf("%s of %s: %w", typ, c.period, err)
		}
	}
	return tx.Commit()
}
