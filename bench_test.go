package serial_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/redistest"
)

// BenchmarkNext measures Next beside a plain INCR through the same client, on the same server.
func BenchmarkNext(b *testing.B) {
	server := redistest.Start(b)
	rdb := server.Client(b)
	gen, err := serial.New(rdb, serial.WithLocation(noon()), serial.WithTemplate("{type}{date:yyyyMMdd}{seq:9}"))
	if err != nil {
		b.Fatal(err)
	}
	ctx := context.Background()
	for _, callers := range []int{1, 10, 100} {
		for _, op := range []struct {
			name string
			do   func() error
		}{
			{"INCR", func() error { return rdb.Incr(ctx, "plain").Err() }},
			{"Next", func() error { _, err := gen.Next(ctx, "IS"); return err }},
			{"NextWithDeadline", func() error {
				ctx, cancel := context.WithTimeout(ctx, time.Minute)
				defer cancel()
				_, err := gen.Next(ctx, "IS")
				return err
			}},
		} {
			b.Run(fmt.Sprintf("%s/callers=%d", op.name, callers), func(b *testing.B) {
				b.ReportAllocs()
				shared(b, callers, op.do)
			})
		}
	}
}

// BenchmarkString measures how a number is printed, which every Next does.
func BenchmarkString(b *testing.B) {
	n, err := parser(b).Parse("IS202110240001")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		_ = n.String()
	}
}

// shared has so many goroutines share b.N calls of do.
func shared(b *testing.B, callers int, do func() error) {
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if err := do(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}
