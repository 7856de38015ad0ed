// Package serial issues business serial numbers that start again every day (or every month, or every second) and are
// never issued twice, however many processes on however many hosts ask at once.
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
// # What is guaranteed
//
//   - Unique: no two successful calls ever return the same number of one key prefix, as long as Redis keeps what it
//     acknowledged. What Redis loses is detected where it can be, and then refused with [ErrCounterLost], never guessed.
//   - Ordered: a call that starts after another one has returned gets a greater number of that type.
//   - Right day: the printed day is the local day, by Redis's clock, at the instant of issue, in every time zone. What is
//     said here of days holds for every [Period].
//   - Live: a process that crashes or hangs while it opens a day delays the others by 8 s in all. A call without a deadline
//     fails within 10 s where Redis or the lock servers do not answer or answer slowly, and within 30 s where others keep
//     the lock.
//
// # What is not
//
//   - Gapless: a caller that gives up, or an answer that is lost, leaves a gap. Where a law demands that there be none,
//     use a table and a database transaction.
//   - Safe, by itself, from a Redis that loses what it acknowledged and from what nobody remembers: an empty restart, a
//     restored backup, a clock that was more than a week ahead. [WithLedger] is; [WithReplicas] is for failovers;
//     [WithFloor] bounds the damage where the numbers are stored elsewhere.
//   - Safe from a running Redis that goes back in time with its memory, as a resumed snapshot of a virtual machine does.
//     Restart Redis after that, before a client reaches it.
package serial
