//go:build unix

package faults

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/race"
	"github.com/dailyserial/serial/internal/redistest"
)

// timely is how long a call without a deadline may take if nobody else holds the lock, with half a second to spare.
const timely = 10*time.Second + 500*time.Millisecond

// Every step of a call may be slow, each within its own limit, but the call must still end in time. The suite had
// missed that the steps' times added up: its networks were slow by a fifth of a second, or dead.
// Guarantees: slow-replies.
func TestSlowReplies(t *testing.T) {
	t.Parallel()
	calls := map[string]func(ctx context.Context, gen *serial.Generator, typ string) error{
		"Next": nextOf, "NextOnce": onceOf, "Raise": raiseOf, "Peek": peekOf,
	}
	for _, p := range []protection{{}, {Floor: true}, {Ledger: true}} {
		for _, read := range []time.Duration{0, 4900 * time.Millisecond, -1} { // 0 is go-redis's own, 5 s
			if read < 0 != p.Ledger && !redistest.Long() { // one of each with a ledger, the others without
				continue
			}
			t.Run(fmt.Sprintf("%+v, read timeout %v", p, read), func(t *testing.T) {
				var worst time.Duration
				var late, all int
				var which string
				for name, call := range calls {
					for _, delay := range []time.Duration{1900 * time.Millisecond, 2900 * time.Millisecond, 9 * time.Second} {
						for _, hangs := range []bool{false, true} { // after 9 s of slowness
							for spared := range 7 { // replies before it is slow
								race.Bubble(t, func(t *testing.T) {
									took, err := slowly(t, p, read, delay, hangs, spared, call)
									if all++; took > timely {
										late++
									}
									if took > worst {
										worst = took
										which = fmt.Sprintf("%s, replies %v late after the first %d, finally none %v: %v",
											name, delay, spared, hangs, err)
									}
								})
							}
						}
					}
				}
				require.Zero(t, late, "of %d calls; the longest took %v: %s", all, worst, which)
			})
		}
	}
}

// slowly makes a call of a new type, during which Redis, the floor and the ledger become slow.
func slowly(t *testing.T, p protection, read, delay time.Duration, hangs bool, spared int,
	call func(ctx context.Context, gen *serial.Generator, typ string) error) (time.Duration, error) {
	m, network := newMemoryRedis(t), newProxy()
	client := m.client(network, read)
	storage := newStorage(newJournal())
	asked := time.Duration(0)
	gen, err := (setting{Protection: p}).generator(client, storage, func(context.Context, string,
		time.Time) (int64, error) {
		time.Sleep(asked)
		return 0, nil
	})
	require.NoError(t, err)
	require.NoError(t, nextOf(t.Context(), gen, alwaysUsed[0])) // connects
	asked = delay
	storage.disturb(false, delay)
	network.spared = spared
	network.turn(late, delay)
	hang := time.AfterFunc(9*time.Second, func() { network.turn(blackHole, 0) })
	if !hangs {
		hang.Stop()
	}
	began := time.Now()
	err = call(context.Background(), gen, alwaysUsed[1])
	took := time.Since(began)
	hang.Stop()
	network.turn(fine, 0)
	network.reset()
	time.Sleep(time.Minute) // for abandoned commands
	return took, err
}
