//go:build unix

package faults

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/redistest"
)

// A server refuses what a client sends.

// crowd has many callers of every type request one number after another, all at once, and returns the sequences issued
// and the errors, by type.
func crowd(gen *serial.Generator, types []string, callers, calls int) (map[string][]int64, map[string][]error) {
	issued, failed := map[string][]int64{}, map[string][]error{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, typ := range types {
		for range callers {
			wg.Go(func() {
				for range calls {
					n, err := gen.NextNumber(context.Background(), typ)
					mu.Lock()
					if err != nil {
						failed[typ] = append(failed[typ], err)
					} else {
						issued[typ] = append(issued[typ], n.Seq)
					}
					mu.Unlock()
				}
			})
		}
	}
	wg.Wait()
	return issued, failed
}

// errOf returns the error of a call.
func errOf[T any](_ T, err error) error { return err }

func requireNone(t *testing.T, failed []error) {
	t.Helper()
	if len(failed) > 0 {
		t.Fatalf("%d calls failed, for example: %v", len(failed), failed[0])
	}
}

// typesNamed returns n types.
func typesNamed(n int) (types []string) {
	for i := range n {
		types = append(types, fmt.Sprintf("T-%08d", i+1))
	}
	return types
}

func upTo(n int) (all []int64) {
	for i := range n {
		all = append(all, int64(i+1))
	}
	return all
}

// A client for a single server may lead to one in cluster mode, such as a managed Redis with one shard. The suite had
// missed that types share scripts there, which such a server refuses: each of its servers had a matching client.
// Guarantees: cluster-mode.
func TestClusterModeBehindPlainClient(t *testing.T) {
	t.Parallel()
	server := redistest.StartSolo(t)
	for _, p := range []protection{{}, {Ledger: true}} {
		gen, err := (setting{Protection: p}).generator(server.Client(t), newStorage(newJournal()), nil,
			serial.WithKeyPrefix(fmt.Sprint(p.Ledger)))
		require.NoError(t, err)
		const callers, calls = 8, 5
		types := typesNamed(40)
		issued, failed := crowd(gen, types, callers, calls)
		for _, typ := range types {
			requireNone(t, failed[typ])
			require.Equal(t, upTo(callers*calls), slices.Sorted(slices.Values(issued[typ])), "ledger %v, %s", p.Ledger, typ)
		}
	}
}

const password = "secret"

// user gives a server a user with these rules, and returns a client for this user.
func user(t *testing.T, s *redistest.Server, name string, rules ...any) *redis.Client {
	allow(t, s, name, append([]any{"on", ">" + password}, rules...)...)
	options := s.Options()
	options.Username, options.Password = name, password
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// allow changes the rules of a user.
func allow(t *testing.T, s *redistest.Server, name string, rules ...any) {
	require.NoError(t, s.Do(append([]any{"ACL", "SETUSER", name}, rules...)...).Err())
}

// An ACL may restrict a service to its own types. The suite had missed that one type's refusal affected the others: its
// users had all permissions.
// Guarantees: keys-denied.
func TestUserOfOneType(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	allowed, other := alwaysUsed[0], alwaysUsed[1]
	client := user(t, server, "own", "~"+recordKey(allowed)+"*", "+@all")
	for _, p := range []protection{{}, {Ledger: true}} {
		server.Do("FLUSHALL")
		gen, err := (setting{Protection: p}).generator(client, newStorage(newJournal()), nil)
		require.NoError(t, err)
		const callers, calls = 20, 25
		issued, failed := crowd(gen, []string{allowed, other}, callers, calls)
		requireNone(t, failed[allowed])
		require.Equal(t, upTo(callers*calls), slices.Sorted(slices.Values(issued[allowed])))
		require.Len(t, failed[other], callers*calls)
		for _, err := range failed[other] {
			require.ErrorContains(t, err, "NOPERM")
		}
	}
}

// steps is a hook that has around run every command and every pipeline of a client; made counts them.
type steps struct {
	made   *atomic.Int64
	around func(i int, run func() error) error
}

func (steps) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s steps) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if firstKey(cmds[0]) == "" { // setting up a connection
			return next(ctx, cmds)
		}
		return s.around(int(s.made.Add(1)-1), func() error { return next(ctx, cmds) })
	}
}

func (s steps) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return s.around(int(s.made.Add(1)-1), func() error { return next(ctx, cmd) })
	}
}

// needed lists the commands that an ACL must allow, according to docs/operations.md.
var needed = strings.Fields("EVAL EVALSHA TIME GET SET HGET HMGET HSET HDEL INCRBY PTTL EXPIREAT DEL")

// A denial is a type whose numbers are issued by its own user, who is denied one of the commands needed.
type denial struct {
	t       *testing.T
	server  *redis.Client // for an operator
	user    string
	command string
	at      int // the one command of the call that is denied, -1 for all
	p       protection
	storage *storage
	floor   int64
	typ     string
	zone    int
	made    atomic.Int64 // commands of the process that is denied one

	mu   sync.Mutex // held while a command is denied
	over bool       // the call has ended; commands that it left behind are not denied
}

// process returns the generator of a new process, one of whose commands is denied; none if at is -1.
func (d *denial) process(at int) *serial.Generator {
	options := *d.server.Options()
	options.Username, options.Password = d.user, password
	// Creating a client may change the options of the server's.
	options.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	client := redis.NewClient(&options)
	d.t.Cleanup(func() { _ = client.Close() })
	client.AddHook(steps{&d.made, func(i int, run func() error) error {
		if i != at {
			return run()
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		if !d.over {
			d.allow("-" + d.command)
			defer d.allow("+" + d.command)
		}
		return run()
	}})
	gen, err := (setting{Protection: d.p, Zone: d.zone}).generator(client, d.storage,
		func(context.Context, string, time.Time) (int64, error) { return d.floor, nil })
	require.NoError(d.t, err)
	return gen
}

func (d *denial) allow(rule string) { d.do("ACL", "SETUSER", d.user, rule) }

func (d *denial) do(args ...any) *redis.Cmd { return d.server.Do(context.Background(), args...) }

func (d *denial) counter(days int) string {
	return recordKey(d.typ) + ":" + time.Now().In(setting{Zone: d.zone}.location()).AddDate(0, 0, days).Format(dayLayout)
}

const request = "request"

// A stage is a state of a type in which the denial occurs.
type stage struct {
	name  string
	where string // protections, all if empty
	ready func(d *denial, gen *serial.Generator)
	call  func(d *denial, gen *serial.Generator) (int64, error) // the number issued, 0 for a call that issues none
}

var stages = []stage{
	{"new type", "", nil, (*denial).next},
	{"open day", "", func(d *denial, gen *serial.Generator) { d.open(gen) }, (*denial).next},
	{"next day", "", func(d *denial, gen *serial.Generator) {
		d.open(gen)
		var today string
		var first, past int64
		entered, err := d.do("HGET", recordKey(d.typ), "entered").Text()
		require.NoError(d.t, err)
		require.NoError(d.t, errOf(fmt.Sscan(entered, &today, &first, &past)))
		const day = 24 * 60 * 60
		_, yesterday, _ := strings.Cut(d.counter(-1), "}:")
		d.do("HSET", recordKey(d.typ), "entered", strings.NewReplacer(today, yesterday, fmt.Sprint(first),
			fmt.Sprint(first-day), fmt.Sprint(past), fmt.Sprint(past-day)).Replace(entered))
		d.do("DEL", d.counter(0))
	}, (*denial).next},
	{"Raise", "", func(d *denial, gen *serial.Generator) { d.open(gen) }, (*denial).raise},
	{"Raise of a new type", "", nil, (*denial).raise},
	{"Prepare", "", func(d *denial, gen *serial.Generator) { d.open(gen) }, (*denial).prepare},
	{"Prepare of a new type", "", nil, (*denial).prepare},
	{"NextOnce", "", func(d *denial, gen *serial.Generator) { d.open(gen) }, (*denial).once},
	{"NextOnce of a new type", "", nil, (*denial).once},
	{"the same NextOnce", "", func(d *denial, gen *serial.Generator) {
		d.open(gen)
		require.NoError(d.t, errOf(gen.NextOnce(context.Background(), d.typ, request)))
	}, func(d *denial, gen *serial.Generator) (int64, error) {
		seq, err := d.once(gen)
		if err == nil {
			require.EqualValues(d.t, 3, seq, "the request's")
		}
		return 0, err
	}},
	{"lost counter", "floor ledger", func(d *denial, gen *serial.Generator) {
		d.open(gen)
		d.floor = 2
		d.do("DEL", d.counter(0))
	}, (*denial).next},
	{"ceiling", "ledger", func(d *denial, gen *serial.Generator) {
		d.open(gen)
		require.NoError(d.t, errOf(gen.NextN(context.Background(), d.typ, block-2)))
	}, (*denial).next},
}

func (d *denial) open(gen *serial.Generator) {
	require.NoError(d.t, errOf(gen.NextN(context.Background(), d.typ, 2)))
}

func (d *denial) next(gen *serial.Generator) (int64, error) {
	n, err := gen.NextNumber(context.Background(), d.typ)
	return n.Seq, err
}

func (d *denial) once(gen *serial.Generator) (int64, error) {
	n, err := gen.NextOnce(context.Background(), d.typ, request)
	return n.Seq, err
}

func (d *denial) raise(gen *serial.Generator) (int64, error) {
	return 0, gen.Raise(context.Background(), d.typ, 40)
}

func (d *denial) prepare(gen *serial.Generator) (int64, error) {
	return 0, gen.Prepare(context.Background(), d.typ)
}

var denied = regexp.MustCompile(`NOPERM|can't run this command|ACL failure`)

// play makes a call with the denial, and returns what is wrong after it, "" if nothing. enough reports that the call
// had too few commands to reach the denied one.
func (d *denial) play(stage stage) (wrong string, enough bool) {
	d.do("ACL", "SETUSER", d.user, "on", ">"+password, "~*", "&*", "+@all")
	if stage.ready != nil {
		stage.ready(d, d.process(-1))
	}
	before, _ := d.do("GET", d.counter(0)).Int64()
	d.made.Store(0)
	gen := d.process(d.at)
	if d.at < 0 {
		if d.command == "EVAL" {
			d.do("SCRIPT", "FLUSH")
		}
		d.allow("-" + d.command)
	}
	seq, err := stage.call(d, gen)
	d.mu.Lock()
	d.over = true
	d.mu.Unlock()
	enough = int(d.made.Load()) <= d.at
	if err != nil && !denied.MatchString(err.Error()) {
		return fmt.Sprintf("failed otherwise: %v", err), enough
	}
	if seq > 0 && seq <= before {
		return fmt.Sprintf("issued %d after %d", seq, before), enough
	}
	after, _ := d.do("GET", d.counter(0)).Int64()
	if after < max(before, seq) {
		return fmt.Sprintf("its counter is %d after %d", after, max(before, seq)), enough
	}
	if err != nil && after > before {
		return fmt.Sprintf("failed, and its counter is %d after %d: %v", after, before, err), enough
	}
	for _, key := range []string{recordKey(d.typ), d.counter(0), d.counter(1), d.counter(2), d.counter(0) + ":lock",
		recordKey(d.typ) + ":once:" + request} {
		if left := d.do("PTTL", key).Val(); left == int64(-1) {
			return key + " has no expiry", enough
		}
	}
	d.allow("+" + d.command)
	began := time.Now()
	again, err := d.next(d.process(-1))
	switch {
	case err != nil:
		return fmt.Sprintf("after the denial ended: %v", err), enough
	case again <= max(before, seq):
		return fmt.Sprintf("after the denial ended: issued %d after %d", again, max(before, seq)), enough
	case time.Since(began) > 15*time.Second:
		return fmt.Sprintf("after the denial ended, it took %v", time.Since(began)), enough
	}
	return "", enough
}

// A command that an ACL refuses causes an error and nothing else, whether for good or briefly, in the middle of any
// call. The suite had missed that a script mistook such an error for a missing counter: its users were never refused
// anything.
// Guarantees: command-denied.
func TestDeniedCommand(t *testing.T) {
	t.Parallel()
	server, zone := redistest.Start(t).Client(t), zoneOfMidnightIn(12*time.Hour)
	var mu sync.Mutex
	wrong := map[string][]string{}
	cases := 0
	var wg sync.WaitGroup
	protections := []protection{{}, {Floor: true}, {Ledger: true}}
	if !redistest.Long() {
		protections = protections[1:]
	}
	for _, p := range protections {
		commands, kind := needed, "nothing"
		switch {
		case p.Floor:
			kind = "floor"
		case p.Ledger:
			commands, kind = append(slices.Clone(needed), "INFO"), "ledger"
		}
		for _, stage := range stages {
			if stage.where != "" && !strings.Contains(stage.where, kind) {
				continue
			}
			for _, command := range commands {
				wg.Go(func() {
					for at, enough := -1, false; !enough; at++ {
						mu.Lock()
						cases++
						name := fmt.Sprintf("T-%08d", cases)
						mu.Unlock()
						d := &denial{t: t, server: server, user: name, command: command, at: at, p: p,
							storage: newStorage(newJournal()), typ: name, zone: zone}
						when := "for good"
						if at >= 0 {
							when = fmt.Sprintf("in command %d", at)
						}
						var text string
						if text, enough = d.play(stage); text != "" {
							mu.Lock()
							at := fmt.Sprintf("%s, %s without %s", kind, stage.name, command)
							wrong[at] = append(wrong[at], fmt.Sprintf("%s: %s", when, text))
							mu.Unlock()
						}
					}
				})
			}
		}
	}
	wg.Wait()
	t.Logf("%d cases", cases)
	for _, at := range slices.Sorted(maps.Keys(wrong)) {
		t.Errorf("%s: %d times, for example %s", at, len(wrong[at]), wrong[at][0])
	}
}
