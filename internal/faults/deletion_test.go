//go:build unix

package faults

import (
	"cmp"
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/redistest"
)

// Two processes issue numbers through random outages, while an operator raises counters. Then documents are deleted at
// random: no audit explains any of them, except those that a person explains.
// Guarantees: deletion-unexplained.
func TestDeletions(t *testing.T) {
	const restart, lagging = "old RDB restored", "promotion of a lagging replica"
	runs := []struct {
		name       string
		topology   topology
		protection protection
		losses     []string
	}{
		{"nothing", serverTopology, protection{}, []string{backupRestored.name}},
		{"ledger", serverTopology, protection{Ledger: true}, []string{backupRestored.name}},
		{"replicas", pairTopology, protection{Replicas: 1}, []string{lagging}},
		{"ledger and replicas", pairTopology, protection{Ledger: true, Replicas: 1}, []string{restart, lagging}},
	}
	seed, soak := seed(t), soak(t)
	if soak == 0 && !redistest.Long() { // one of them
		runs = runs[seed%uint64(len(runs)):][:1]
	}
	for i, r := range runs {
		t.Run(r.name, func(t *testing.T) {
			length := soak / time.Duration(len(runs))
			if soak == 0 {
				t.Parallel()
				length = brief()
			}
			names := append(r.losses, "SIGSTOP, SIGCONT of the server", "SIGKILL, restart with all data", "CLIENT PAUSE",
				"network: replies dropped", "network: reset", hurry)
			faults := slices.DeleteFunc(append([]fault{backupRestored}, allFaults...), func(f fault) bool {
				return !slices.Contains(names, f.name)
			})
			require.Len(t, faults, len(names))
			w := build(t, r.topology, r.protection, !r.protection.Ledger, zoneOfMidnightIn(length))
			w.setting.Seed = seed + uint64(i)<<32
			random := rand.New(rand.NewPCG(seed, uint64(i)))
			w.fleet = launch(t, w.setting, w.journal, 2)
			stop := w.operate(rand.New(rand.NewPCG(random.Uint64(), 0)))
			w.rage(newDeck(seed, r.name, faults, r.protection.Ledger, soak > 0), len(faults), time.Now().Add(length),
				&summary{struck: map[string]int{}})
			stop()
			w.fleet.stop()
			a := w.allowance()
			if a.silent == nil { // the operator raises counters above everything that was issued
				a.silent = func(string) int64 { return 0 }
			}
			v := w.journal.check(w.setting, a)
			require.Empty(t, v.contradicted)
			w.judge(v, true)
			w.deleteDocuments(random)
		})
	}
}

// operator returns a generator for an operator, which reports to the journal.
func (w *world) operator(client redis.UniversalClient) *serial.Generator {
	gen, err := w.setting.generator(client, w.storage, nil, serial.WithHooks(serial.Hooks{
		Unused: func(_ context.Context, e serial.Explanation) {
			w.journal.explain(e.Type, w.setting.label(e.Start), explanation{first: e.First, last: e.Last,
				unused: e.Unused, possible: e.Possible, lost: strings.HasPrefix(e.Reason, serial.AnswerLost)})
		},
	}))
	require.NoError(w.t, err)
	return gen
}

// raiseTo has an operator raise today's counter, and makes the journal allow for the numbers it skips, which nobody
// reports if the answer is lost.
func (w *world) raiseTo(ctx context.Context, raise func(context.Context, string, int64) error, typ, today string,
	seq int64) error {
	skipped := max(0, seq-w.journal.highest(typ, today)) // before others get numbers above seq
	err := raise(ctx, typ, seq)
	if w.setting.dayOf(stamp()) != today {
		skipped = seq // the day has just begun
	}
	if w.protection.Ledger {
		skipped += block
	}
	w.journal.unanswered(0, typ, skipped)
	return err
}

// operate has an operator raise and take over counters through the same network as the workers, until stopped.
func (w *world) operate(random *rand.Rand) (stop func()) {
	client := w.setting.client(nil)
	gen := w.operator(client)
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() {
		for ctx.Err() == nil {
			raise := []func(context.Context, string, int64) error{gen.Raise, gen.Takeover}[random.IntN(2)]
			within, cancel := context.WithTimeout(ctx, []time.Duration{20 * time.Millisecond, time.Minute}[random.IntN(2)])
			typ, today := aType(random), w.setting.dayOf(stamp())
			_ = w.raiseTo(within, raise, typ, today, w.journal.highest(typ, today)+random.Int64N(20)) // it may fail
			cancel()
			time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
		}
	})
	return func() {
		cancel()
		ended.Wait()
		within, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		require.NoError(w.t, gen.Flush(within))
		require.NoError(w.t, client.Close())
	}
}

// backupRestored has Redis go back to older data while nobody can connect, and an operator raise all counters. With a
// ledger, the operator need not know how far they had come.
var backupRestored = fault{"backup restored, counters raised", loses, 1, single, func(w *world, _ *rand.Rand,
	_ time.Duration) func() {
	restore := w.backup()
	return func() {
		w.proxy.redirect("127.0.0.1:1")    // where nobody listens
		time.Sleep(300 * time.Millisecond) // until the journal has every number issued, or all but fewer than margin
		restore()
		ctx, gen, today := context.Background(), w.operator(w.admin), w.setting.dayOf(stamp())
		for _, typ := range w.journal.typesSince(stamp() - int64(time.Minute)) {
			seq := w.journal.highest(typ, today) + margin
			if w.protection.Ledger {
				held, _ := w.command("GET", recordKey(typ)+":"+today).Int64()
				seq = held + 1
			}
			require.NoError(w.t, w.raiseTo(ctx, gen.Raise, typ, today, seq))
		}
		require.NoError(w.t, gen.Flush(ctx))
		w.proxy.redirect(w.master.Addr())
	}
}}

// backup saves all counters and records; restore makes Redis go back to them.
func (w *world) backup() (restore func()) {
	if w.protection.Ledger { // no append-only file; and without a restart, the replication ID stays
		snapshot, err := w.master.Save()
		require.NoError(w.t, err)
		return func() {
			w.master.Kill()
			require.NoError(w.t, w.master.Restore(snapshot))
			w.master.Restart(w.t)
		}
	}
	ctx := context.Background()
	keys, err := w.admin.Keys(ctx, "serial:*").Result()
	require.NoError(w.t, err)
	var commands [][]any
	for _, key := range keys {
		value, err := w.admin.Dump(ctx, key).Result()
		if left := w.admin.PTTL(ctx, key).Val(); err == nil && !strings.HasSuffix(key, ":lock") {
			commands = append(commands, []any{"RESTORE", key, time.Now().Add(left).UnixMilli(), value, "ABSTTL"})
		}
	}
	return func() {
		w.command("FLUSHALL")
		for _, args := range commands {
			w.command(args...)
		}
	}
}

// typesSince returns the types of calls that have begun since t, or have not ended.
func (j *journal) typesSince(t int64) []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	types := map[string]bool{}
	for _, c := range slices.Concat(j.calls, slices.Collect(maps.Values(j.open))) {
		if c.start >= t || c.end == 0 {
			types[c.typ] = true
		}
	}
	return slices.Sorted(maps.Keys(types))
}

// deleteDocuments deletes documents of each series at random, and fails the test unless audits find them missing. A
// person explains one of them.
func (w *world) deleteDocuments(random *rand.Rand) {
	documents := map[series][]int64{}
	instants := map[series]time.Time{}
	for _, c := range w.journal.calls {
		if c.failure != "" {
			continue
		}
		s := series{c.typ, c.day}
		instants[s] = w.setting.instantOf(c.day, []call{c})
		for seq := c.first; seq <= c.last; seq++ {
			documents[s] = append(documents[s], seq)
		}
	}
	client := w.setting.client(nil)
	defer func() { _ = client.Close() }()
	gen, scheme := w.operator(client), w.setting.scheme()
	for _, s := range slices.SortedFunc(maps.Keys(documents), func(a, b series) int {
		return cmp.Or(cmp.Compare(a.typ, b.typ), cmp.Compare(a.day, b.day))
	}) {
		at, all := instants[s], documents[s]
		explained := w.journal.explained[s]
		last := slices.Max(all)
		audit := func(stored []int64, more ...explanation) (serial.Report, error) {
			return scheme.Audit(s.typ, serial.At(at), last, w.setting.documents(s.typ, at, stored),
				w.setting.explanations(s.typ, at, explained, more...))
		}
		if s.day == w.setting.dayOf(stamp()) && slices.Contains(alwaysUsed, s.typ) {
			audit = func(stored []int64, more ...explanation) (serial.Report, error) {
				return gen.Audit(context.Background(), s.typ, serial.At(at), w.setting.documents(s.typ, at, stored),
					w.setting.explanations(s.typ, at, explained, more...))
			}
		}
		before, err := audit(all)
		require.NoError(w.t, err)
		part := random.Float64()
		var stored, deleted []int64
		for _, seq := range all {
			if random.Float64() < part {
				deleted = append(deleted, seq)
			} else {
				stored = append(stored, seq)
			}
		}
		if len(deleted) == 0 {
			continue
		}
		void := deleted[random.IntN(len(deleted))]
		after, err := audit(stored, explanation{first: void, last: void, by: "Ada"})
		require.NoError(w.t, err)
		for _, e := range after.Explained {
			for _, seq := range deleted {
				if e.First <= seq && seq <= e.Last && (seq != void || e.Explanation.By == "") {
					w.t.Errorf("%v: %d was deleted, but is explained by %+v", s, seq, e.Explanation)
				}
			}
		}
		require.Zero(w.t, before.ContradictedCount+after.ContradictedCount, "%v", s)
		require.Equal(w.t, before.UnexplainedCount+int64(len(deleted))-1, after.UnexplainedCount, "%v", s)
		require.Equal(w.t, before.ExplainedCount+1, after.ExplainedCount, "%v", s)
	}
}
