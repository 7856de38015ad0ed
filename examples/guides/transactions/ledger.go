package transactions

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/dailyserial/serial/sqlledger"
)

// openLedger returns a ledger with a pool of its own, and a function that closes the pool.
func openLedger(ctx context.Context, dsn string) (*sqlledger.Ledger, func(), error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, nil, err
	}
	config.MaxConns = 2
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, nil, err
	}
	ledger, err := sqlledger.New(stdlib.OpenDBFromPool(pool), sqlledger.PostgreSQL)
	if err == nil {
		err = ledger.CreateTable(ctx)
	}
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	return ledger, pool.Close, nil
}
