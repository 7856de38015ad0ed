package transactions

import (
	"context"
	"database/sql"
	"errors"

	"gorm.io/gorm"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/examples/guides/transactions/ent"
	"github.com/dailyserial/serial/examples/guides/transactions/sqlc"
)

// An Order is a document with a number, as a model of GORM. On MySQL, the column of the number needs a binary
// collation, set by another tag: type:varchar(100) COLLATE utf8mb4_bin.
type Order struct {
	ID       int64
	Number   string `gorm:"uniqueIndex"`
	Customer string
}

func placeGORM(ctx context.Context, gen *serial.Generator, db *gorm.DB, customer string) (string, error) {
	number, err := gen.Next(ctx, "IS") // before the transaction begins
	if err != nil {
		return "", err
	}
	return number, db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		return tx.Create(&Order{Number: number, Customer: customer}).Error
	})
}

func placeSQLC(ctx context.Context, gen *serial.Generator, db *sql.DB, customer string) (string, error) {
	number, err := gen.Next(ctx, "IS") // before the transaction begins
	if err != nil {
		return "", err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return "", err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	err = sqlc.New(db).WithTx(tx).InsertOrder(ctx, sqlc.InsertOrderParams{Number: number, Customer: customer})
	if err != nil {
		return "", err
	}
	return number, tx.Commit()
}

func placeEnt(ctx context.Context, gen *serial.Generator, client *ent.Client, customer string) (string, error) {
	number, err := gen.Next(ctx, "IS") // before the transaction begins
	if err != nil {
		return "", err
	}
	tx, err := client.Tx(ctx)
	if err != nil {
		return "", err
	}
	err = tx.Order.Create().SetNumber(number).SetCustomer(customer).Exec(ctx)
	if err != nil {
		return "", errors.Join(err, tx.Rollback())
	}
	return number, tx.Commit()
}
