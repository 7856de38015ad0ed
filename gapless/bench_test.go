package gapless_test

import (
	"database/sql"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/gapless"
)

// BenchmarkAgainstMinimum compares transactions that take a number and store a document with the simplest hand-written
// counter: one UPDATE … RETURNING of an existing row or, on MySQL, an UPDATE and a SELECT. That counter has no table of
// periods, no clock and no limit. An operation is a round that runs both in turn. The reported values are medians of
// the rounds:
//
//	go test -run '^$' -bench AgainstMinimum -benchtime 21x
func BenchmarkAgainstMinimum(b *testing.B) {
	for _, make := range []struct {
		name string
		new  func(testing.TB) *database
	}{{"PostgreSQL", postgreSQL}, {"MySQL", mariaDB}, {"SQLite", inFile}} {
		b.Run(make.name, func(b *testing.B) {
			d := make.new(b)
			if d.dialect == gapless.MySQL {
				d = d.with("interpolateParams=true") // otherwise the minimum takes more round trips
			}
			for _, load := range []struct{ callers, types int }{{1, 1}, {8, 1}, {64, 1}, {8, 8}, {64, 8}, {64, 64}} {
				if d.dialect == gapless.SQLite && load.types > 8 {
					continue // SQLite has one writer, so more types make no difference
				}
				b.Run(fmt.Sprintf("callers=%d/types=%d", load.callers, load.types), func(b *testing.B) {
					against(b, d, load.callers, load.types)
				})
			}
		})
	}
}

// against measures transactions with the given numbers of callers and of types.
func against(b *testing.B, d *database, callers, types int) {
	round := 300 * time.Millisecond
	if d.dialect == gapless.SQLite {
		round = time.Second // callers that wait for the writer sleep for up to 100 ms at a time
	}
	ctx := b.Context()
	db := d.open(b)
	db.SetMaxOpenConns(callers)
	db.SetMaxIdleConns(callers)
	for _, table := range []string{"documents", "minimum"} {
		execSQL(b, db, "DROP TABLE IF EXISTS "+table)
	}
	if d.dialect == gapless.SQLite {
		execSQL(b, db, "PRAGMA journal_mode = WAL")
	}
	execSQL(b, db, "CREATE TABLE documents (number varchar(100) NOT NULL)")
	execSQL(b, db, "CREATE TABLE minimum (type varchar(100) NOT NULL PRIMARY KEY, last bigint NOT NULL)")
	opts := []serial.Option{serial.WithTemplate("{type}{date:yyyyMMdd}{seq:12}"),
		serial.WithKeyPrefix(fmt.Sprint("p", time.Now().UnixNano()))}
	g := d.generator(b, db, opts...)
	typ := func(i int) string { return fmt.Sprintf("T%02d", i%types) }
	for i := range types {
		execSQL(b, db, fmt.Sprintf("INSERT INTO minimum VALUES ('%s', 0)", typ(i)))
	}
	placeholder := "?"
	if d.dialect == gapless.PostgreSQL {
		placeholder = "$1"
	}
	insert := "INSERT INTO documents VALUES (" + placeholder + ")"
	update := "UPDATE minimum SET last = last + 1 WHERE type = " + placeholder
	minimum := func(tx *sql.Tx, typ string) (text string, err error) {
		var last int64
		if d.dialect == gapless.MySQL {
			if _, err = tx.ExecContext(ctx, update, typ); err == nil {
				err = tx.QueryRowContext(ctx, "SELECT last FROM minimum WHERE type = ?", typ).Scan(&last)
			}
		} else {
			err = tx.QueryRowContext(ctx, update+" RETURNING last", typ).Scan(&last)
		}
		return fmt.Sprintf("%s%s%012d", typ, time.Now().UTC().Format("20060102"), last), err
	}
	withGapless := func(tx *sql.Tx, typ string) (string, error) {
		n, err := g.Next(ctx, tx, typ)
		return n.String(), err
	}
	measure := func(take func(*sql.Tx, string) (string, error)) float64 {
		var done atomic.Int64
		var workers sync.WaitGroup
		start := time.Now()
		for i := range callers {
			workers.Go(func() {
				for time.Since(start) < round {
					err := inTx(ctx, db, sql.LevelDefault, func(tx *sql.Tx) error {
						text, err := take(tx, typ(i))
						if err != nil {
							return err
						}
						return onlyErr(tx.ExecContext(ctx, insert, text))
					})
					if err == nil {
						done.Add(1)
					} else if !repeatable(err) { // on MySQL, the first numbers of a row can cause deadlocks
						b.Error(err)
						return
					}
				}
			})
		}
		workers.Wait()
		return float64(done.Load()) / time.Since(start).Seconds()
	}
	measure(minimum) // warm up
	measure(withGapless)
	var rates [2][]float64
	var ratios []float64
	for i := range b.N {
		var got [2]float64
		for j := range 2 {
			which := (i + j) % 2 // alternate, because the first one may have an advantage
			got[which] = measure([]func(*sql.Tx, string) (string, error){minimum, withGapless}[which])
			rates[which] = append(rates[which], got[which])
		}
		require.Positive(b, got[0])
		ratios = append(ratios, got[1]/got[0])
	}
	median := func(values []float64) float64 {
		slices.Sort(values)
		return values[len(values)/2]
	}
	b.ReportMetric(median(rates[0]), "minimum/s")
	b.ReportMetric(median(rates[1]), "gapless/s")
	b.ReportMetric(median(ratios), "ratio")
	b.ReportMetric(0, "ns/op")
}
