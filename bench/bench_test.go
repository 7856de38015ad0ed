package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/redistest"
	"github.com/dailyserial/serial/serialtest"
)

// BenchmarkNext compares every way of getting a number with a plain INCR.
func BenchmarkNext(b *testing.B) {
	for _, network := range networks {
		b.Run(network, func(b *testing.B) {
			compareWays(b, newServer(b, network), []int{1, 10, 100, 1000}, openIncr, ways)
		})
	}
}

// BenchmarkOpenings compares the first number of a type with INCR on a new key.
func BenchmarkOpenings(b *testing.B) {
	ledger := serial.WithLedger(&serialtest.Ledger{}, 100)
	for _, network := range networks {
		b.Run(network, func(b *testing.B) {
			compareWays(b, newServer(b, network), []int{1, 8, 100}, openIncrNew, []way{
				{"opening", openNextNew("plain")},
				{"opening-ledger", openNextNew("ledger", ledger)},
			})
		})
	}
}

// BenchmarkCosts compares Next with protection (by a ledger, by a replica or by both) with an unprotected Next.
func BenchmarkCosts(b *testing.B) {
	ledger := func(block int64) serial.Option { return serial.WithLedger(&serialtest.Ledger{}, block) }
	replica := serial.WithReplicas(1, time.Second)
	b.Run(loopback, func(b *testing.B) {
		s := newServer(b, loopback)
		redistest.StartReplica(b, s.Server)
		compareWays(b, s, []int{1, 100}, openNext("unprotected"), []way{
			{"ledger-small", openNext("small", ledger(100))},
			{"ledger", openNext("large", ledger(10_000))},
			{"replica", openNext("replica", replica)},
			{"both", openNext("both", ledger(10_000), replica)},
		})
	})
}

// compareWays compares each way with base, for each number of callers.
func compareWays(b *testing.B, s *server, counts []int, base func(*testing.B, *server) call, ways []way) {
	reference, calls := base(b, s), make([]call, len(ways))
	for _, callers := range counts {
		for i, w := range ways {
			b.Run(fmt.Sprintf("callers=%d/%s", callers, w.id), func(b *testing.B) {
				if calls[i] == nil {
					calls[i] = w.open(b, s)
				}
				compare(b, s, callers, calls[i], reference)
			})
		}
	}
}
