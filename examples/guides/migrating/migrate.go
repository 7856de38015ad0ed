// Package migrating moves series from other systems to package serial, and back. docs/migrating.md explains the steps;
// its code is this file's.
package migrating

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial"
)

func newShared(rdb redis.UniversalClient, zone *time.Location) (*serial.Generator, error) {
	return serial.New(rdb, serial.WithLocation(zone), serial.WithTemplate("{type}{date:yyyyMMdd}{seq:4}"))
}

func newUpperHalf(rdb redis.UniversalClient, zone *time.Location) (*serial.Generator, error) {
	return serial.New(rdb, serial.WithLocation(zone), serial.WithStart(5001))
}

// closeScript returns the last number of an old counter and replaces it with a text, which INCR refuses. It may be
// repeated.
var closeScript = redis.NewScript(`
local held = redis.call('GET', KEYS[1]) or '0'
local closed = string.match(held, '^closed at (%d+)$')
if not closed and string.match(held, '^%d+$') then
	redis.call('SET', KEYS[1], 'closed at ' .. held)
	redis.call('EXPIREAT', KEYS[1], ARGV[1])
end
return closed or held`)

func closeOld(ctx context.Context, rdb redis.UniversalClient, typ string, start time.Time) (int64, error) {
	key := typ + start.Format("20060102")    // as the old system names it
	expires := start.AddDate(0, 0, 2).Unix() // when nobody asks for this day any more
	return closeScript.Run(ctx, rdb, []string{key}, expires).Int64()
}

func newSuccessor(rdb redis.UniversalClient, zone *time.Location) (*serial.Generator, error) {
	floor := func(ctx context.Context, typ string, start time.Time) (int64, error) {
		return closeOld(ctx, rdb, typ, start)
	}
	return serial.New(rdb, serial.WithLocation(zone), serial.WithFloor(floor))
}

// reopenScript gives a closed counter back to the old system.
var reopenScript = redis.NewScript(`
local closed = string.match(redis.call('GET', KEYS[1]) or '', '^closed at (%d+)$')
if closed then
	redis.call('SET', KEYS[1], math.max(tonumber(closed), tonumber(ARGV[1])), 'KEEPTTL')
end
return 0`)

func rollBack(ctx context.Context, rdb redis.UniversalClient, gen *serial.Generator, typ string) error {
	last, err := gen.Peek(ctx, typ)
	if err != nil {
		return err
	}
	key := typ + last.Start.Format("20060102")
	return reopenScript.Run(ctx, rdb, []string{key}, last.Seq).Err()
}

func cutOverAgain(ctx context.Context, rdb redis.UniversalClient, gen *serial.Generator, typ string) error {
	last, err := gen.Peek(ctx, typ)
	if err != nil {
		return err
	}
	used, err := closeOld(ctx, rdb, typ, last.Start)
	if err != nil {
		return err
	}
	return gen.Raise(ctx, typ, used)
}

func placeBesideMax(ctx context.Context, gen *serial.Generator, db *sql.DB, typ, customer string) (string, error) {
	for {
		number, err := gen.NextNumber(ctx, typ)
		if err != nil {
			return "", err
		}
		day := number.Start.Format(time.DateOnly)
		result, err := db.ExecContext(ctx, `INSERT INTO orders (number, type, day, seq, customer) VALUES ($1, $2, $3, $4, $5)
			ON CONFLICT (number) DO NOTHING`, number, typ, day, number.Seq, customer)
		if err != nil {
			return "", err
		}
		if rows, err := result.RowsAffected(); err != nil || rows == 1 {
			return number.String(), err
		}
		// The old code was here first. Continue above everything that it has stored.
		var last int64
		row := db.QueryRowContext(ctx, "SELECT max(seq) FROM orders WHERE type = $1 AND day = $2", typ, day)
		if err := row.Scan(&last); err != nil {
			return "", err
		}
		if err := gen.Raise(ctx, typ, last); err != nil {
			return "", err
		}
	}
}

func closeSequence(ctx context.Context, db *sql.DB, gen *serial.Generator, typ string) (err error) {
	for range 1000 { // a number may be taken between the two statements, which the second one then refuses
		var last int64
		row := db.QueryRowContext(ctx, "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM order_numbers")
		if err := row.Scan(&last); err != nil {
			return err
		}
		_, err = db.ExecContext(ctx, fmt.Sprintf("ALTER SEQUENCE order_numbers MINVALUE 0 MAXVALUE %d NO CYCLE",
			max(last, 1)))
		if err == nil {
			return gen.Raise(ctx, typ, max(last, 1))
		}
	}
	return err
}

func reopenSequence(ctx context.Context, db *sql.DB, gen *serial.Generator, typ string) error {
	last, err := gen.Peek(ctx, typ)
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, "ALTER SEQUENCE order_numbers NO MINVALUE NO MAXVALUE")
	if err == nil && last.Seq > 0 {
		_, err = db.ExecContext(ctx, "SELECT setval('order_numbers', $1)", last.Seq)
	}
	return err
}
