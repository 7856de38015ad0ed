package gapless_test

import (
	"testing"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"

	"github.com/dailyserial/serial/gapless"
)

var _ gapless.Tx = (*sqlx.Tx)(nil)

func TestSQLX(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		db := d.open(t)
		g := d.generator(t, db)
		x := sqlx.NewDb(db, map[gapless.Dialect]string{
			gapless.PostgreSQL: "pgx", gapless.MySQL: "mysql", gapless.SQLite: "sqlite",
		}[d.dialect])
		for _, end := range []func(*sqlx.Tx) error{(*sqlx.Tx).Rollback, (*sqlx.Tx).Commit} {
			tx, err := x.BeginTxx(t.Context(), nil)
			require.NoError(t, err)
			n, err := g.NextOn(t.Context(), tx, "IS", date(t, "2021-10-24"))
			require.NoError(t, err)
			require.Equal(t, "IS202110240001", n.String())
			require.NoError(t, end(tx))
		}
		last, err := g.Last(t.Context(), x, "IS", date(t, "2021-10-24"))
		require.NoError(t, err)
		require.EqualValues(t, 1, last.Seq)
	})
}

// A GORM transaction is one while its pool is a Tx; a GORM database is none.
func TestGORM(t *testing.T) {
	for _, prepare := range []bool{false, true} {
		d := postgreSQL(t)
		db := d.open(t)
		g := d.generator(t, db)
		orm, err := gorm.Open(postgres.New(postgres.Config{Conn: db}), &gorm.Config{PrepareStmt: prepare})
		require.NoError(t, err)
		type Invoice struct{ Number string }
		require.NoError(t, orm.AutoMigrate(&Invoice{}))
		_, ok := orm.Statement.ConnPool.(gapless.Tx)
		require.False(t, ok)
		place := func(fails error) error {
			return orm.WithContext(t.Context()).Transaction(func(tx *gorm.DB) error {
				n, err := g.NextOn(t.Context(), tx.Statement.ConnPool.(gapless.Tx), "IS", date(t, "2021-10-24"))
				if err != nil {
					return err
				}
				if err := tx.Create(&Invoice{n.String()}).Error; err != nil {
					return err
				}
				return fails
			})
		}
		require.ErrorIs(t, place(gorm.ErrInvalidData), gorm.ErrInvalidData)
		require.NoError(t, place(nil))
		require.NoError(t, place(nil))
		var numbers []string
		require.NoError(t, orm.Model(&Invoice{}).Order("number").Pluck("number", &numbers).Error)
		require.Equal(t, []string{"IS202110240001", "IS202110240002"}, numbers)
	}
}
