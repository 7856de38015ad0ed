// Package migrating moves series from other systems to package serial, and back. docs/migrating.md explains the steps
// and shows the code of this file.
package migrating

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial"
)

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
