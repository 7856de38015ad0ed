package serial_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

// testOnce is the part of the behaviour suite for repeated requests.
func testOnce(t *testing.T, b backend) {
	b.run(t, "the same request gets the same number", func(t *testing.T, s *series) {
		s.gens = map[string]*serial.Generator{"other": s.generator()}
		s.play("once a 1; once b 2; other.once a 1; next 3; once 订单/{3}:* 4; other.once 订单/{3}:* 4; once PO a 1")
		require.ErrorIs(t, s.rdb.Watch(t.Context(), func(tx *redis.Tx) error {
			s.play("once b 2")
			return errOf(tx.TxPipelined(t.Context(), func(p redis.Pipeliner) error {
				return p.Get(t.Context(), s.counter).Err()
			}))
		}, s.record+":once:b"), redis.TxFailedErr, "the answer is written again, so that replicas can confirm it")
		requireExpiry(t, s.rdb, s.record+":once:a", time.Now().Add(48*time.Hour))
	})
}

// A request is repeated after midnight. Its number must be remembered for 48 hours after the first call, or for the
// duration that WithOnceFor sets.
func TestOnceFor(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		const brief = 90*time.Second + 500*time.Millisecond
		other := newGenerator(t, m.Client(), serial.WithLocation(time.UTC))
		for kept, opts := range map[time.Duration][]serial.Option{48 * time.Hour: nil, brief: {serial.WithOnceFor(brief)}} {
			gen := newGenerator(t, m.Client(), append(opts, serial.WithLocation(time.UTC))...)
			first := must(gen.NextOnce(t.Context(), "IS", kept.String())).String()
			m.requireExpiries()
			time.Sleep(kept - time.Millisecond)
			requireResult(t, first, "a repetition does not extend it")(textOf(other.NextOnce(t.Context(), "IS", kept.String())))
			time.Sleep(2 * time.Millisecond)
			require.NotEqual(t, first, must(gen.NextOnce(t.Context(), "IS", kept.String())).String())
		}
	})
}

// A request is repeated after the template, the period or the time zone was changed. It must return the number of the first call.
// Guarantees: once-repeated.
func TestOnceAsPrinted(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		with := func(template string, opts ...serial.Option) *serial.Generator {
			return newGenerator(t, m.Client(), append(opts, serial.WithLocation(time.UTC), serial.WithTemplate(template))...)
		}
		wide, narrow := with("b-{date:yyyyMMdd}{type}{seq:5}"), with("a-{date:yyyyMMdd}{type}{seq:4}")
		require.NoError(t, wide.Raise(t.Context(), "IS", 10000))
		first := must(wide.NextOnce(t.Context(), "IS", "r"))
		requireResult(t, "a-20000101IS10001", "as this template prints it")(narrow.Next(t.Context(), "IS1"))
		odd := with("\"q\\\" é 1 \n{{{type}}} {date:yyMM\"dd} {seq:2}")
		months := with("{type}-{date:yyyy-MM}-{seq:6}", serial.WithPeriod(serial.PerMonth))
		west := newGenerator(t, m.Client(), serial.WithLocation(location(t, "America/New_York")))
		for _, gen := range []*serial.Generator{wide, narrow, odd, months, west} {
			again := must(gen.NextOnce(t.Context(), "IS", "r"))
			require.Equal(t, "b-20000101IS10001", again.String())
			require.True(t, first.Equal(again) && first.Date.Equal(again.Date), "%v", again.Date)
		}

		const text = "\"q\\\" é 1 \n{ODD} 0001\"01 01"
		requireResult(t, text)(textOf(odd.NextOnce(t.Context(), "ODD", "r")))
		time.Sleep(36 * time.Hour)
		requireResult(t, text)(textOf(narrow.NextOnce(t.Context(), "ODD", "r")))
	})
}

// The key of a request contains a value that another program or an earlier version has written.
func TestOnceBrokenAnswers(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		var failed []int
		gen := newGenerator(t, m.Client(), serial.WithLocation(time.UTC), serial.WithHooks(serial.Hooks{
			Failed: func(_ context.Context, i serial.FailedInfo) { failed = append(failed, i.Count) },
		}))
		must(gen.NextOnce(t.Context(), "IS", "whole"))
		whole := must(m.Get("serial:{IS}:once:whole"))
		const day = "20000101 946684800 946771200"
		require.Regexp(t, "^"+day+` days #[0-9a-f]{12} "20000101" "\{type\}\{date:yyyyMMdd\}\{seq:4\}" 1 plain$`, whole)
		broken := []string{"", "x", day, day + " 17", day + ` "20000101" 3`, strings.TrimSuffix(whole, " plain")}
		for old, wrong := range map[string]string{"days": "moons", "seq:4": "seq:99", `"20000101"`: `20000101`,
			"946684800": "99999999999999999999", " 1 plain": " x plain"} {
			broken = append(broken, strings.Replace(whole, old, wrong, 1))
		}
		for _, held := range broken {
			require.NoError(t, m.Set("serial:{IS}:once:broken", held))
			require.ErrorContains(t, errOf(gen.NextOnce(t.Context(), "IS", "broken")), "which is not a stored answer", held)
		}
		failed = nil
		require.NoError(t, m.Set("serial:{IS}:once:hidden", strings.NewReplacer("plain", "0123456789abcdef", "seq:4",
			"seq:6").Replace(whole)))
		require.ErrorIs(t, errOf(gen.NextOnce(t.Context(), "IS", "hidden")), serial.ErrConflict)
		require.Equal(t, []int{1}, failed)
	})
}
