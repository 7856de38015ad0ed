package gapless_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"gorm.io/driver/mysql"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/gapless"
)

var _ gapless.Tx = (*sqlx.Tx)(nil)

func TestSQLX(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		db, g := d.start(t)
		x := sqlx.NewDb(db, map[gapless.Dialect]string{
			gapless.PostgreSQL: "pgx", gapless.MySQL: "mysql", gapless.SQLite: "sqlite",
		}[d.dialect])
		for _, end := range []func(*sqlx.Tx) error{(*sqlx.Tx).Rollback, (*sqlx.Tx).Commit} {
			tx, err := x.BeginTxx(t.Context(), nil)
			require.NoError(t, err)
			n, err := g.NextOn(t.Context(), tx, "IS", serial.At(october(24)))
			require.NoError(t, err)
			require.Equal(t, "IS202110240001", n.String())
			require.NoError(t, end(tx))
		}
		requireSeq(t, 1)(g.Last(t.Context(), x, "IS", serial.At(october(24))))
	})
}

// On PostgreSQL, a transaction of bun must cause an error. bun inserts an argument into a statement at each "?". The
// statements for PostgreSQL have other placeholders, so bun would drop the arguments.
func TestBun(t *testing.T) {
	d := postgreSQL(t)
	db, g := d.start(t)
	day := october(24)
	orm := bun.NewDB(db, pgdialect.New())
	tx, err := orm.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	const dropped = "drops the arguments of PostgreSQL's statements: use the value that it embeds, such as tx.Tx"
	for _, tx := range []gapless.Tx{tx, &tx} {
		require.ErrorContains(t, onlyErr(g.NextOn(t.Context(), tx, "IS", serial.At(day))), dropped)
		require.ErrorContains(t, g.Raise(t.Context(), tx, "IS", serial.At(day), 3), dropped)
		require.ErrorContains(t, onlyErr(g.Last(t.Context(), tx, "IS", serial.At(day))), dropped)
	}
	require.ErrorContains(t, onlyErr(g.Last(t.Context(), orm, "IS", serial.At(day))), dropped)
	requireSeq(t, 1)(g.NextOn(t.Context(), tx.Tx, "IS", serial.At(day)))
	require.NoError(t, tx.Commit())
	requireSeq(t, 1)(g.Last(t.Context(), orm.DB, "IS", serial.At(day)))
}

// openPQ does what open does, with lib/pq.
func (d *database) openPQ(t testing.TB) *sql.DB {
	t.Helper()
	connector, err := pq.NewConnector(d.dsn + "&search_path=" + d.name)
	require.NoError(t, err)
	db := sql.OpenDB(connector)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// lib/pq is another widely used driver for PostgreSQL. Calls must work with it, too.
func TestPQ(t *testing.T) {
	d := postgreSQL(t)
	db := d.openPQ(t)
	g := d.generator(t, db, serial.WithTemplate("{type}{date:yyyyMMdd}{seq:1}"))
	commits(t, db, func(tx *sql.Tx) {
		requireSeq(t, 1)(g.Next(t.Context(), tx, "IS"))
		require.ErrorIs(t, onlyErr(g.NextN(t.Context(), tx, "IS", 9)), serial.ErrExhausted)
		require.NoError(t, g.Raise(t.Context(), tx, "IS", serial.At(d.clock(t, db)), 5))
		numbers, err := g.NextN(t.Context(), tx, "IS", 4)
		require.NoError(t, err)
		require.EqualValues(t, 9, numbers[3].Seq)

		// If a context ends, the error of lib/pq does not match that of the context. If the server is between two steps
		// of a statement, it misses the driver's only request to cancel, and then only lock_timeout ends the wait.
		waiting := begin(t, db)
		execSQL(t, waiting, "SET LOCAL lock_timeout = '5s'")
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, onlyErr(g.Next(ctx, waiting, "IS")), context.DeadlineExceeded)
	})
}

// For each dialect, dialectors has a function that makes GORM use a database, or noDialector has the reason to skip the
// test.
var (
	dialectors = map[gapless.Dialect]func(*sql.DB) gorm.Dialector{
		gapless.PostgreSQL: func(db *sql.DB) gorm.Dialector { return postgres.New(postgres.Config{Conn: db}) },
		gapless.MySQL:      func(db *sql.DB) gorm.Dialector { return mysql.New(mysql.Config{Conn: db}) },
	}
	noDialector = map[gapless.Dialect]string{}
)

// A GORM handle is a transaction if its pool implements Tx. The handle of a GORM database does not.
func TestGORM(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		if why := noDialector[d.dialect]; why != "" {
			t.Skip(why)
		}
		db, g := d.start(t)
		for i, prepare := range []bool{false, true} {
			orm, err := gorm.Open(dialectors[d.dialect](db), &gorm.Config{PrepareStmt: prepare})
			require.NoError(t, err)
			type Invoice struct{ Number string }
			require.NoError(t, orm.AutoMigrate(&Invoice{}))
			_, ok := orm.Statement.ConnPool.(gapless.Tx)
			require.False(t, ok)
			day := october(24).AddDate(0, 0, i)
			store := func(fails error) error {
				return orm.WithContext(t.Context()).Transaction(func(tx *gorm.DB) error {
					n, err := g.NextOn(t.Context(), tx.Statement.ConnPool.(gapless.Tx), "IS", serial.At(day))
					if err != nil {
						return err
					}
					if err := tx.Create(&Invoice{n.String()}).Error; err != nil {
						return err
					}
					return fails
				})
			}
			require.ErrorIs(t, store(gorm.ErrInvalidData), gorm.ErrInvalidData)
			require.NoError(t, store(nil))
			require.NoError(t, store(nil))
			var numbers []string
			require.NoError(t, orm.Model(&Invoice{}).Order("number").Where("number LIKE ?", "IS"+day.Format("20060102")+"%").
				Pluck("number", &numbers).Error)
			require.Equal(t, []string{"IS" + day.Format("20060102") + "0001", "IS" + day.Format("20060102") + "0002"}, numbers)
		}
	})
}
