// Package serial issues business serial numbers. The sequence starts again every day, or in every other period, such as
// a business year. No number is issued twice, even if many processes on many hosts issue numbers at the same time.
//
//	IS 20211024 0001
//	│  │        └ sequence within the day, padded to 4 digits
//	│  └ the day, yyyyMMdd, in the configured time zone
//	└ the business type
//
// A [Generator] issues numbers:
//
//	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
//	gen, err := serial.New(rdb, serial.WithLocation(shanghai))
//	if err != nil {
//		return err
//	}
//	number, err := gen.Next(ctx, "IS") // "IS202110240001"
//
// Options determine how numbers are printed and when they start again, for example [WithTemplate], [WithPeriod],
// [WithYearStart] and [WithHiddenSequence]. A [Scheme] takes these options, too. It needs no Redis, and checks the
// numbers that users type.
//
// # What is guaranteed
//
//   - Unique: under one key prefix, no number is issued twice, as long as Redis keeps the data that it has
//     acknowledged. If a data loss is detected, calls fail with [ErrCounterLost].
//   - Ordered: a call that starts after another call has returned gets a larger number of the same type.
//   - Right day: the printed day is the local day at the instant of issue, by Redis's clock, in every time zone. The
//     same is true of the other periods; see [Period].
//   - Live: a process that crashes or hangs while it opens a day delays other processes by at most 8 s. A call without
//     a deadline fails within 10 s if Redis or the lock servers are slow or do not reply, and within 30 s if it has to
//     wait for other callers.
//
// # What is not guaranteed
//
//   - No gaps: a canceled call or a lost reply can leave a gap. If the law requires numbers without gaps, use package
//     github.com/dailyserial/serial/gapless.
//   - Uniqueness after a loss that neither Redis nor a running process can detect, such as a restart without data, a
//     restored backup, or a clock that was more than a week ahead. [WithLedger] guarantees unique numbers even then.
//     [WithReplicas] protects against failovers. [WithFloor] limits the damage if the numbers are stored elsewhere.
//   - Uniqueness if the memory of a running Redis returns to an older state, for example when a snapshot of a virtual
//     machine is resumed. Restart Redis before a client connects to it again.
package serial
