// Command process is built with release 0.5.0 and with this version. It makes the calls that it reads from stdin, and
// prints the results.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial"
)

// A ledger is in Redis, so that processes share it.
type ledger struct{ rdb *redis.Client }

func (l ledger) Reserve(ctx context.Context, r serial.Reservation) (int64, error) {
	return l.rdb.Eval(ctx, `local last = math.max(tonumber(redis.call('GET', KEYS[1]) or '0'), tonumber(ARGV[1]))
redis.call('SET', KEYS[1], string.format('%.0f', last + ARGV[2]))
return last`, []string{"ledger:" + r.Series + r.Period}, r.Above, r.N).Int64()
}

// A preparer is a generator of the release. In this version, Prepare has no number of periods.
type preparer interface {
	Prepare(ctx context.Context, typ string, periods int) error
}

func main() {
	rdb := redis.NewClient(&redis.Options{Addr: os.Args[1]})
	opts := []serial.Option{serial.WithLocation(time.UTC), serial.WithMaxSkew(-1), serial.WithRetention(9)}
	var start int64
	if _, err := fmt.Sscan(os.Args[2], &start); err == nil && start != 1 {
		opts = append(opts, serial.WithStart(start))
	}
	if os.Args[3] == "true" {
		opts = append(opts, serial.WithLedger(ledger{rdb}, 5))
	}
	gen, err := serial.New(rdb, opts...)
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var call, result string
		var n int
		_, _ = fmt.Sscan(lines.Text(), &call, &n)
		var err error
		switch call {
		case "next":
			result, err = gen.Next(ctx, "IS")
		case "once":
			var number serial.Number
			number, err = gen.NextOnce(ctx, "IS", fmt.Sprint("id", n))
			result = number.String()
		case "peek":
			var number serial.Number
			number, err = gen.Peek(ctx, "IS")
			result = number.String()
		case "history":
			_, err = gen.History(ctx, "IS", 3)
		case "audit":
			var report serial.Report
			report, err = gen.Audit(ctx, "IS", serial.On(2021, time.October, 24), func(yield func(string, error) bool) {
				_ = yield("IS202110241000", nil) && yield("IS202110241001", nil)
			})
			if err == nil && !report.Clean() {
				err = fmt.Errorf("the report is not clean: %v", report)
			}
		case "prepare":
			err = any(gen).(preparer).Prepare(ctx, "IS", n)
		case "raise":
			err = gen.Raise(ctx, "IS", int64(n))
		}
		if err != nil {
			result = "error: " + err.Error()
		}
		fmt.Println(result)
	}
}
