package serial_test

import (
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

// Generators that might print different sequences of a period alike refuse each other until it has ended. Nothing is written.
func TestPrintsOfAPeriod(t *testing.T) {
	key, other := []byte("0123456789abcdef"), []byte("fedcba9876543210")
	noon := time.Date(2021, 10, 24, 12, 0, 0, 0, time.UTC)
	prints := map[string][]serial.Option{
		"plain":    {serial.WithTemplate("{type}{date:yyyyMMdd}{seq:6}")},
		"time":     {serial.WithTemplate("{type}{date:yyyyMMddHHmm}{seq:6}")},
		"base32":   {serial.WithTemplate("{type}{date:yyyyMMdd}{seq:6:base32}")},
		"base36":   {serial.WithTemplate("{type}{date:yyyyMMdd}{seq:6:base36}")},
		"luhn":     {serial.WithTemplate("{type}{date:yyyyMMdd}{seq:6}{check:luhn}")},
		"damm":     {serial.WithTemplate("{type}{date:yyyyMMdd}{seq:6}{check:damm}")},
		"in front": {serial.WithTemplate("{check:damm}{type}{date:yyyyMMdd}{seq:6}")},
		"hidden":   {serial.WithTemplate("{type}{date:yyyyMMdd}{seq:6}"), serial.WithHiddenSequence(key)},
		"rotated":  {serial.WithTemplate("{type}{date:yyyyMMdd}{seq:6}"), serial.WithHiddenSequence(other)},
	}
	for name, opts := range prints {
		t.Run(name, func(t *testing.T) {
			m := miniredis.RunT(t)
			reigning(m)
			rdb := closing(t, redis.NewClient(&redis.Options{Addr: m.Addr()}))
			with := func(opts ...serial.Option) *serial.Generator {
				return newGenerator(t, rdb, append(opts, serial.WithLocation(time.UTC), serial.WithMaxSkew(-1))...)
			}
			m.SetTime(noon)
			gen := with(opts...)
			_, err := gen.Next(t.Context(), "IS")
			require.NoError(t, err)
			once, err := textOf(gen.NextOnce(t.Context(), "IS", "request"))
			require.NoError(t, err)
			before := m.Dump()
			for foreign, opts := range prints {
				if foreign == name {
					continue
				}
				for _, gen := range []*serial.Generator{with(opts...), with(append(opts, serial.WithLedger(&notebook{}, 5))...)} {
					_, err := gen.Next(t.Context(), "IS")
					require.ErrorIs(t, err, serial.ErrConflict, foreign)
					require.ErrorContains(t, err, "give it its old template and key until 2021-10-24 has ended, and then the new one to all processes")
					_, err = gen.NextOnce(t.Context(), "IS", "another")
					require.ErrorIs(t, err, serial.ErrConflict, foreign)
					_, err = gen.Peek(t.Context(), "IS")
					require.ErrorIs(t, err, serial.ErrConflict, foreign)
					_, err = gen.History(t.Context(), "IS", 2)
					require.ErrorIs(t, err, serial.ErrConflict, foreign)
					require.ErrorIs(t, gen.Prepare(t.Context(), "IS", 2), serial.ErrConflict, foreign)
					require.ErrorIs(t, gen.Raise(t.Context(), "IS", 9), serial.ErrConflict, foreign)
					require.ErrorIs(t, gen.Takeover(t.Context(), "IS", 9), serial.ErrConflict, foreign)
				}
				again, err := textOf(with(opts...).NextOnce(t.Context(), "IS", "request"))
				if name == "hidden" || name == "rotated" {
					require.ErrorIs(t, err, serial.ErrConflict, foreign)
				} else {
					require.NoError(t, err, foreign)
					require.Equal(t, once, again, foreign)
				}
			}
			require.Equal(t, before, m.Dump())

			// A ledger may be turned on, and literals and spellings change.
			n, err := with(append(opts, serial.WithLedger(&notebook{}, 5))...).NextNumber(t.Context(), "IS")
			require.NoError(t, err)
			require.EqualValues(t, 3, n.Seq)
			_, err = gen.Next(t.Context(), "IS")
			require.ErrorContains(t, err, "set aside in a ledger, which this generator does not have")
			require.NoError(t, gen.Takeover(t.Context(), "IS", 0))

			// What was prepared has no print yet.
			require.NoError(t, gen.Prepare(t.Context(), "IS", 2))
			m.SetTime(noon.Add(12 * time.Hour))
			for foreign, opts := range prints {
				if foreign != name {
					_, err := with(opts...).Next(t.Context(), "IS")
					require.NoError(t, err)
					break
				}
			}
			_, err = gen.Next(t.Context(), "IS")
			require.ErrorIs(t, err, serial.ErrConflict)
		})
	}
}

// Widths, literals and spellings may change at any time.
func TestPrintsThatMayChange(t *testing.T) {
	m := miniredis.RunT(t)
	rdb := closing(t, redis.NewClient(&redis.Options{Addr: m.Addr()}))
	m.SetTime(time.Date(2021, 10, 24, 12, 0, 0, 0, time.UTC))
	for i, template := range []string{
		"{type}{date:yyyyMMddHH}{seq:6:base32}", "{type}-{date:yy-MM-dd-HH}-{seq:4:base32}", "X{type}/{date:YYYY.MM.DD HH}{seq:9:base32}",
	} {
		n, err := newGenerator(t, rdb, serial.WithLocation(time.UTC), serial.WithMaxSkew(-1), serial.WithTemplate(template)).NextNumber(t.Context(), "IS")
		require.NoError(t, err)
		require.EqualValues(t, i+1, n.Seq)
	}
}

// No operator gives a label another print: neither by way of another time zone nor of a clock that was ahead.
func TestPrintsOutliveTakeovers(t *testing.T) {
	m := miniredis.RunT(t)
	rdb := closing(t, redis.NewClient(&redis.Options{Addr: m.Addr()}))
	with := func(template string, opts ...serial.Option) *serial.Generator {
		return newGenerator(t, rdb, append(opts, serial.WithTemplate(template), serial.WithMaxSkew(-1))...)
	}
	utc, never := serial.WithLocation(time.UTC), serial.WithPeriod(serial.Never)
	day := with("{type}{date:yyyyMMdd}{seq}", utc)
	m.SetTime(time.Date(2021, 10, 24, 12, 0, 0, 0, time.UTC))

	decimal, letters := with("{type}{seq:6}", utc, never), with("{type}{seq:6:base32}", utc, never)
	_, err := decimal.Next(t.Context(), "N")
	require.NoError(t, err)
	require.ErrorIs(t, letters.Takeover(t.Context(), "N", 0), serial.ErrConflict)
	require.ErrorContains(t, letters.Takeover(t.Context(), "N", 0), "another type or key prefix")
	n, err := decimal.NextNumber(t.Context(), "N")
	require.NoError(t, err)
	require.EqualValues(t, 2, n.Seq)

	// A zone that is ahead has entered the 25th, so another print waits until that has passed everywhere.
	at := func(d, h int) { m.SetTime(time.Date(2021, 10, d, h, 0, 0, 0, time.UTC)) }
	letterDay := with("{type}{date:yyyyMMdd}{seq:4:base32}", utc)
	east := with("{type}{date:yyyyMMdd}{seq:4:base32}", serial.WithLocation(time.FixedZone("east", 14*3600)))
	_, err = east.Next(t.Context(), "Z")
	require.NoError(t, err)
	require.ErrorIs(t, day.Takeover(t.Context(), "Z", 0), serial.ErrConflict)
	at(25, 12)
	_, err = day.Next(t.Context(), "Z")
	require.ErrorIs(t, err, serial.ErrConflict)
	at(26, 0)
	_, err = day.Next(t.Context(), "Z")
	require.NoError(t, err)

	// A clock that is ahead enters the 28th. Until that has passed, there is one print; of labels used before, there is none.
	at(28, 12)
	_, err = letterDay.Next(t.Context(), "Z")
	require.NoError(t, err)
	at(27, 12)
	require.ErrorContains(t, day.Raise(t.Context(), "Z", 0), "until 2021-10-28 has ended")
	require.NoError(t, letterDay.Raise(t.Context(), "Z", 0))
	at(26, 12)
	for _, gen := range []*serial.Generator{day, letterDay} {
		require.ErrorIs(t, gen.Raise(t.Context(), "Z", 5), serial.ErrConflict)
		require.ErrorIs(t, gen.Takeover(t.Context(), "Z", 5), serial.ErrConflict)
	}
	at(28, 13)
	_, err = day.Next(t.Context(), "Z")
	require.ErrorIs(t, err, serial.ErrConflict)
	n, err = letterDay.NextNumber(t.Context(), "Z")
	require.NoError(t, err)
	require.EqualValues(t, 2, n.Seq)
	at(29, 12)
	_, err = day.Next(t.Context(), "Z")
	require.NoError(t, err)
	at(28, 14)
	for _, gen := range []*serial.Generator{day, letterDay} {
		require.ErrorIs(t, gen.Raise(t.Context(), "Z", 5), serial.ErrConflict)
	}
}
