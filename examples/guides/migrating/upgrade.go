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

// upgradeGapless raises the counters of gen to those that a table of gapless 0.4.0 has under a key prefix, in one
// transaction. Call it once for each prefix in the table, such as each tenant's: types of the same name count apart. It
// is for days: a period's label is then its date.
func upgradeGapless(ctx context.Context, db *sql.DB, gen *gapless.Generator, table, prefix string) error {
	type counter struct {
		typ, period string
		last        int64
	}
	var counters []counter
	rows, err := db.QueryContext(ctx, "SELECT series, period, last FROM "+table)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var c counter
		var series string
		if err := rows.Scan(&series, &c.period, &c.last); err != nil {
			return err
		}
		var found bool
		if c.typ, found = strings.CutPrefix(series, prefix+":"); found {
			counters = append(counters, c)
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	if len(counters) == 0 {
		return fmt.Errorf("%s has no numbers of the key prefix %q", table, prefix)
	}

	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	for _, c := range counters {
		day, err := time.Parse("20060102", c.period)
		if err != nil {
			return fmt.Errorf("%s: %w", c.period, err)
		}
		if err := gen.Raise(ctx, tx, c.typ, serial.OnDateOf(day), c.last); err != nil {
			return fmt.Errorf("%s of %s: %w", c.typ, c.period, err)
		}
	}
	return tx.Commit()
}
