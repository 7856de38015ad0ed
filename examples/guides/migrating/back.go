package migrating

import (
	"context"
	"database/sql"

	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial"
)

// reopenScript gives a closed counter back to the old system.
var reopenScript = redis.NewScript(`
local closed = string.match(redis.call('GET', KEYS[1]) or '', '^closed at (%d+)$')
if closed then
	redis.call('SET', KEYS[1], math.max(tonumber(closed), tonumber(ARGV[1])), 'KEEPTTL')
end
return 0`)

// rollBack gives today's counter of a type back to the old system. It may be repeated.
func rollBack(ctx context.Context, rdb redis.UniversalClient, gen *serial.Generator, typ string) error {
	last, err := gen.Peek(ctx, typ)
	if err != nil {
		return err
	}
	key := typ + last.Start.Format("20060102")
	return reopenScript.Run(ctx, rdb, []string{key}, last.Seq).Err()
}

// cutOverAgain moves a type once more on the day of a rollback, after the old processes have stopped.
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

// reopenSequence gives today's numbers of a type back to the sequence.
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
