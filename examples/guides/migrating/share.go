package migrating

import (
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
