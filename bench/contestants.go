package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/bwmarrin/snowflake"
	"github.com/dailyserial/serial"
	"github.com/redis/go-redis/v9"
)

// An op is one call. Any number of goroutines may call it, each with its own rnd.
type op func(ctx context.Context, rnd *rand.Rand) error

// A contestant is a way to get a number, or several.
type contestant struct {
	id      string
	title   string
	numbers int  // per call
	far     bool // also measured on the network
	inFleet bool // also measured in a fleet
	drawn   bool // has a curve in the plots
	// open returns the operation to measure, ready for use: periods are open and keys exist. It may return
	// errUnsupported.
	open func(ctx context.Context, t *target) (op, error)
}

// A target is a server reached through one network. All contestants share the client; the title of a contestant with
// its own client says so.
type target struct {
	rdb    *redis.Client
	addr   string
	prefix string    // of the generators' key prefixes
	noon   time.Time // in the generators' zone; zero means now
	fleet  fleet     // nil if this process makes the calls
}

// errUnsupported means that the server does not have the contestant's command.
var errUnsupported = errors.New("the server does not have this command")

const (
	baseline = "incr"
	keys     = 1000 // for contestants that use many
	batch    = 1000 // of NextN
)

// contestants lists all contestants; the first is what the others are compared with.
func contestants() []*contestant {
	return append([]*contestant{
		{baseline, "INCR", 1, true, true, true, openIncr},
		{"incr-1000-keys", "INCR, 1,000 keys", 1, false, true, false, openIncrKeys},
		{"get-incr", "GET, then INCR (the published sequence)", 1, false, false, true, openGetIncr},
		{"increx", "INCREX, with an upper bound and an expiry", 1, false, false, false, openIncrEX},
		{"autopipelined", "INCR, autopipelined", 1, true, false, true, openAutopipelined},
		{"next", "**Next**", 1, true, true, true, openPlainNext},
		{"next-deadline", "**Next**, with a deadline", 1, true, false, false, openNextDeadline},
		{"next-1000-types", "**Next**, 1,000 types", 1, false, true, true, openNextTypes},
		{"openings", "**Next**, a new type each time", 1, true, false, false, openOpenings},
		{"nextn-1000", "**NextN(1000)**", batch, true, false, false, openNextN},
		{"snowflake", "bwmarrin/snowflake (not the same job: no date, no shared order)", 1, false, false, false,
			openSnowflake},
	}, peers...)
}

// byID returns an existing contestant.
func byID(id string) *contestant {
	all := contestants()
	return all[slices.IndexFunc(all, func(c *contestant) bool { return c.id == id })]
}

func openIncr(_ context.Context, t *target) (op, error) {
	return func(ctx context.Context, _ *rand.Rand) error { return t.rdb.Incr(ctx, "plain").Err() }, nil
}

func openIncrKeys(_ context.Context, t *target) (op, error) {
	names := names("plain:")
	return func(ctx context.Context, rnd *rand.Rand) error {
		return t.rdb.Incr(ctx, names[rnd.IntN(keys)]).Err()
	}, nil
}

func openGetIncr(ctx context.Context, t *target) (op, error) {
	if err := t.rdb.SetNX(ctx, "published", 0, 0).Err(); err != nil {
		return nil, err
	}
	return func(ctx context.Context, _ *rand.Rand) error {
		// If GET finds nothing, the published sequence takes a lock; here it always finds the counter.
		if err := t.rdb.Get(ctx, "published").Err(); err != nil {
			return err
		}
		return t.rdb.Incr(ctx, "published").Err()
	}, nil
}

// openIncrEX limits the counter to 15 digits and lets it expire at midnight, which is as much as one command can do.
// The caller would have to put the date into the key, and to know whether a missing key means a new day.
func openIncrEX(ctx context.Context, t *target) (op, error) {
	midnight := cmp.Or(t.noon, time.Now()).Add(12 * time.Hour)
	args := redis.IncrEXIntArgs{
		UBound:     999_999_999_999_999,
		HasUBound:  true,
		Expiration: &redis.ExpirationOption{Mode: redis.EXAT, Value: midnight.Unix()},
		ENX:        true,
	}
	o, err := warm(ctx, func(ctx context.Context, _ *rand.Rand) error {
		result, err := t.rdb.IncrEXInt(ctx, "increx", args).Result()
		if err == nil && result.AppliedIncrement != 1 {
			err = fmt.Errorf("INCREX incremented by %d", result.AppliedIncrement)
		}
		return err
	})
	if redis.HasErrorPrefix(err, "unknown command") {
		err = errUnsupported
	}
	return o, err
}

func openAutopipelined(_ context.Context, t *target) (op, error) {
	pipeline, err := t.rdb.AutoPipeline() // its blocking form: Incr returns when the answer has arrived
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, _ *rand.Rand) error { return pipeline.Incr(ctx, "autopipelined").Err() }, nil
}

// newGenerator returns a generator with its own key prefix, in a zone where it is noon now, so no day ends during the
// run.
func newGenerator(t *target, prefix string, opts ...serial.Option) (*serial.Generator, error) {
	return generatorAt(t, prefix, 12*time.Hour, opts...)
}

// generatorAt is newGenerator with another time of day.
func generatorAt(t *target, prefix string, timeOfDay time.Duration, opts ...serial.Option) (*serial.Generator, error) {
	now := cmp.Or(t.noon, time.Now()).UTC()
	passed := now.Sub(now.Truncate(24 * time.Hour))
	zone := time.FixedZone("bench", int((timeOfDay-passed)/time.Second))
	return serial.New(t.rdb, append(opts, serial.WithKeyPrefix(t.prefix+prefix), serial.WithLocation(zone),
		serial.WithTemplate("{type}{date:yyyyMMdd}{seq:15}"))...)
}

func openPlainNext(ctx context.Context, t *target) (op, error) { return openNext(ctx, t, "next") }

func openNext(ctx context.Context, t *target, prefix string, opts ...serial.Option) (op, error) {
	gen, err := newGenerator(t, prefix, opts...)
	if err != nil {
		return nil, err
	}
	return warm(ctx, func(context.Context, *rand.Rand) error {
		_, err := gen.Next(context.Background(), "IS")
		return err
	})
}

func openNextDeadline(ctx context.Context, t *target) (op, error) {
	gen, err := newGenerator(t, "deadline")
	if err != nil {
		return nil, err
	}
	return warm(ctx, func(context.Context, *rand.Rand) error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_, err := gen.Next(ctx, "IS")
		return err
	})
}

func openNextTypes(ctx context.Context, t *target) (op, error) {
	gen, err := newGenerator(t, "types")
	if err != nil {
		return nil, err
	}
	names := names("IS")
	for _, name := range names {
		if _, err := gen.Next(ctx, name); err != nil {
			return nil, err
		}
	}
	return func(_ context.Context, rnd *rand.Rand) error {
		_, err := gen.Next(context.Background(), names[rnd.IntN(keys)])
		return err
	}, nil
}

// openOpenings issues the first number of a new type with each call.
func openOpenings(ctx context.Context, t *target) (op, error) {
	gen, err := newGenerator(t, "openings")
	if err != nil {
		return nil, err
	}
	var types atomic.Int64
	return warm(ctx, func(context.Context, *rand.Rand) error {
		_, err := gen.Next(context.Background(), "T"+strconv.FormatInt(types.Add(1), 10))
		return err
	})
}

func openNextN(ctx context.Context, t *target) (op, error) {
	gen, err := newGenerator(t, "many")
	if err != nil {
		return nil, err
	}
	return warm(ctx, func(context.Context, *rand.Rand) error {
		numbers, err := gen.NextN(context.Background(), "IS", batch)
		if err == nil && len(numbers) != batch {
			err = fmt.Errorf("NextN returned %d numbers", len(numbers))
		}
		for _, n := range numbers { // the other contestants return text, too
			_ = n.String()
		}
		return err
	})
}

func openSnowflake(context.Context, *target) (op, error) {
	node, err := snowflake.NewNode(1)
	if err != nil {
		return nil, err
	}
	return func(context.Context, *rand.Rand) error {
		_ = node.Generate().String()
		return nil
	}, nil
}

// warm calls o once, which opens the period.
func warm(ctx context.Context, o op) (op, error) {
	return o, o(ctx, rand.New(rand.NewPCG(0, 0)))
}

func names(prefix string) []string {
	names := make([]string, keys)
	for i := range names {
		names[i] = prefix + strconv.Itoa(i)
	}
	return names
}
