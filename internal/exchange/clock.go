package exchange

import (
	"cmp"
	"sync/atomic"
	"time"

	"github.com/dailyserial/serial/internal/store"
)

// A clock estimates how far a server's clock is ahead of this host's, so a wrong clock costs a round trip only once,
// not in every call.
type clock struct {
	offset atomic.Int64 // microseconds: nanoseconds would overflow after 292 years
	trip   atomic.Int64 // usual time of a round trip, nanoseconds
}

// now returns the time by the server's clock.
func (k *clock) now() time.Time { return time.UnixMicro(time.Now().UnixMicro() + k.offset.Load()) }

// arrival returns the time, by the server's clock, at which a command sent now arrives.
func (k *clock) arrival() time.Time { return k.now().Add(time.Duration(k.trip.Load() / 2)) }

// duration converts an offset, limited to 292 years.
func duration(offset int64) time.Duration { return time.UnixMicro(offset).Sub(time.UnixMicro(0)) }

// measure stores the round trip of a reply. An unusually long one counts for a quarter.
func (k *clock) measure(r *store.Reply) {
	if trip := int64(r.Received.Sub(r.Sent)); trip > 0 { // false if no reply came
		k.trip.Store((3*cmp.Or(k.trip.Load(), trip) + trip) / 4)
	}
}

// learn stores the clock offset from a reply, accurate to half a round trip. It returns that offset and the previous
// one. Both are 0 if the reply has no time.
func (k *clock) learn(r *store.Reply) (offset, before time.Duration) {
	if r.Now.IsZero() {
		return 0, 0
	}
	now := r.Now.UnixMicro() - r.Sent.Add(r.Received.Sub(r.Sent)/2).UnixMicro()
	return duration(now), duration(k.offset.Swap(now))
}
