package main

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial"
)

// A call gets a number. Several callers may use it concurrently, each with its own source of random numbers.
type call func(rnd *rand.Rand) error

// A way is one way of getting a number. Its title is in titles.
type way struct {
	id   string
	open func(b *testing.B, s *server) call // returns the call after it has opened the period or created the key
}

var ways = []way{
	{"incr", openIncr},
	{"get-incr", openGetIncr},
	{"autopipelined", openAutopipelined},
	{"script", openScript},
	{"script-goroutine", openScriptGoroutine},
	{"next", openNext("next")},
	{"next-deadline", openNextDeadline},
	{"next-types", openNextTypes},
}

var ctx = context.Background()

func openIncr(_ *testing.B, s *server) call {
	return func(*rand.Rand) error { return s.rdb.Incr(ctx, "plain").Err() }
}

// newNames is the count of the new keys and types.
var newNames atomic.Int64

// openIncrNew increments a new key in every call.
func openIncrNew(_ *testing.B, s *server) call {
	return func(*rand.Rand) error { return s.rdb.Incr(ctx, "new:"+strconv.FormatInt(newNames.Add(1), 10)).Err() }
}

// openGetIncr is the published sequence on an open day. If GET found no counter, that sequence would take a lock.
func openGetIncr(b *testing.B, s *server) call {
	must(b, s.rdb.SetNX(ctx, "published", 0, 0).Err())
	return func(*rand.Rand) error {
		if err := s.rdb.Get(ctx, "published").Err(); err != nil {
			return err
		}
		return s.rdb.Incr(ctx, "published").Err()
	}
}

func openAutopipelined(b *testing.B, s *server) call {
	pipeline, err := s.rdb.AutoPipeline() // the blocking form, in which Incr returns after the reply has arrived
	must(b, err)
	return func(*rand.Rand) error { return pipeline.Incr(ctx, "autopipelined").Err() }
}

// bareScript runs the same commands as Next on an open day, without its rules.
var bareScript = redis.NewScript(`
redis.call('TIME')
redis.call('HGET', KEYS[2], 'entered')
redis.call('GET', KEYS[1])
return redis.call('INCRBY', KEYS[1], ARGV[6])`)

// openScript calls the script with as many keys and arguments as Next uses, and of about the same length.
func openScript(b *testing.B, s *server) call {
	keys := []string{"script:{IS}:20211024", "script:{IS}"}
	settings := "20211024 1635030000 1635116400 day UTC 00:00 #0123456789abcdef"
	must(b, s.rdb.Set(ctx, keys[0], 0, 24*time.Hour).Err())
	must(b, s.rdb.HSet(ctx, keys[1], "entered", settings).Err())
	return func(*rand.Rand) error {
		return bareScript.Run(ctx, s.rdb, keys, settings,
			"1635030000", "1635116400", "999999999999999", "1635116400", "1", "0", "af").Err()
	}
}

// openScriptGoroutine lets another goroutine run the script, as Next does if its context has a deadline.
func openScriptGoroutine(b *testing.B, s *server) call {
	script := openScript(b, s)
	return func(rnd *rand.Rand) error {
		done := make(chan error, 1)
		go func() { done <- script(rnd) }()
		return <-done
	}
}

// newGenerator returns a generator with its own key prefix.
func newGenerator(b *testing.B, s *server, prefix string, opts ...serial.Option) *serial.Generator {
	gen, err := serial.New(s.rdb, append(opts, serial.WithKeyPrefix(prefix), serial.WithLocation(s.zone),
		serial.WithTemplate("{type}{date:yyyyMMdd}{seq:15}"))...)
	must(b, err)
	return gen
}

// opened calls c once, which opens the period.
func opened(b *testing.B, c call) call {
	must(b, c(nil))
	return c
}

// openNext calls Next of a new generator, for one type on an open day.
func openNext(prefix string, opts ...serial.Option) func(*testing.B, *server) call {
	return func(b *testing.B, s *server) call {
		gen := newGenerator(b, s, prefix, opts...)
		return opened(b, func(*rand.Rand) error {
			_, err := gen.Next(ctx, "IS")
			return err
		})
	}
}

func openNextDeadline(b *testing.B, s *server) call {
	gen := newGenerator(b, s, "deadline")
	return opened(b, func(*rand.Rand) error {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		_, err := gen.Next(ctx, "IS")
		return err
	})
}

func openNextTypes(b *testing.B, s *server) call {
	gen, types := newGenerator(b, s, "types"), make([]string, 1000)
	for i := range types {
		types[i] = "IS" + strconv.Itoa(i)
		_, err := gen.Next(ctx, types[i])
		must(b, err)
	}
	return func(rnd *rand.Rand) error {
		_, err := gen.Next(ctx, types[rnd.IntN(len(types))])
		return err
	}
}

// openNextNew issues the first number of a new type in every call.
func openNextNew(prefix string, opts ...serial.Option) func(*testing.B, *server) call {
	return func(b *testing.B, s *server) call {
		gen := newGenerator(b, s, prefix, opts...)
		return func(*rand.Rand) error {
			_, err := gen.Next(ctx, "T"+strconv.FormatInt(newNames.Add(1), 10))
			return err
		}
	}
}
