// Package serial issues business serial numbers that start again every day (or every week, business year or second, or
// never). No number is ever issued twice, however many processes on however many hosts ask at once.
//
//	IS 20211024 0001
//	│  │        └ sequence within the day, padded to 4 digits
//	│  └ the day, yyyyMMdd, in the configured time zone
//	└ the business type
//
// A program:
//
//	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
//	gen, err := serial.New(rdb, serial.WithLocation(shanghai))
//	if err != nil {
//		return err
//	}
//	number, err := gen.Next(ctx, "IS") // "IS202110240001"
//
// A [Generator] issues numbers. Its options say how they look and when they start again: [WithTemplate] (business
// years, weeks, check digits, short alphabets), [WithPeriod], [WithYearStart], [WithHiddenSequence]. A [Scheme] takes
// the same options and needs no Redis: it checks what a user typed.
//
// # What is guaranteed
//
//   - Unique: no two successful calls under one key prefix ever return the same number, as long as Redis keeps what it
//     acknowledged. Where a loss can be detected, calls fail with [ErrCounterLost]; a number is never guessed.
//   - Ordered: a call that starts after another has returned gets a greater number of the same type.
//   - Right day: the printed day is the local day at the instant of issue, by Redis's clock, in every time zone. The
//     same is true of every other [Period].
//   - Live: a process that crashes or hangs while it opens a day delays the others by at most 8 s. A call without a
//     deadline fails within 10 s if Redis or the lock servers are slow or silent, and within 30 s if it has to wait for
//     other callers.
//
// # What is not guaranteed
//
//   - No gaps: a caller that gives up, or a lost answer, leaves a gap. If the law requires numbers without gaps, use
//     package github.com/dailyserial/serial/gapless.
//   - Uniqueness after a loss that neither Redis nor a running process can notice: an empty restart, a restored backup,
//     a clock that was more than a week ahead. [WithLedger] guarantees it even then; [WithReplicas] covers failovers;
//     [WithFloor] limits the damage if the numbers are stored elsewhere.
//   - Uniqueness if the memory of a running Redis goes back in time, as when a snapshot of a virtual machine is
//     resumed. After that, restart Redis before a client reaches it.
package serial
