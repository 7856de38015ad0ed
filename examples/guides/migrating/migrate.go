// Package migrating contains the code of docs/migrating.md.
package migrating

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial"
)

// closeScript returns the last number of an old counter, and replaces the number by a text, which INCR refuses. Running
// it again changes nothing.
var closeScript = redis.NewScript(`
local content = redis.call('GET', KEYS[1]) or '0'
local closed = string.match(content, '^closed at (%d+)$')
if not closed and string.match(content, '^%d+$') then
	redis.call('SET', KEYS[1], 'closed at ' .. content)
	redis.call('EXPIREAT', KEYS[1], ARGV[1])
end
return closed or content`)

func closeOld(ctx context.Context, rdb redis.UniversalClient, typ string, start time.Time) (int64, error) {
	key := typ + start.Format("20060102")    // the old system's key
	expires := start.AddDate(0, 0, 2).Unix() // when this day is no longer needed
	return closeScript.Run(ctx, rdb, []string{key}, expires).Int64()
}

func newSuccessor(rdb redis.UniversalClient, zone *time.Location) (*serial.Generator, error) {
	floor := func(ctx context.Context, typ string, start time.Time) (int64, error) {
		return closeOld(ctx, rdb, typ, start)
	}
	return serial.New(rdb, serial.WithLocation(zone), serial.WithFloor(floor))
}
