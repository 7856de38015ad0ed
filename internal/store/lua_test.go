package store_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/internal/budget"
	"github.com/dailyserial/serial/internal/race"
	"github.com/dailyserial/serial/internal/redisrun"
	"github.com/dailyserial/serial/internal/redistest"
	"github.com/dailyserial/serial/internal/store"
)

// takes returns the scripts of take, with and without its usual branch.
func takes(t *testing.T) (usual, full string) {
	t.Helper()
	usual = store.TakeSource
	const branch = "local usual = "
	require.Equal(t, 1, strings.Count(usual, branch))
	return usual, strings.Replace(usual, branch, branch+"false and ", 1)
}

// onServers runs f on a miniredis and on a real server. id is the server's replication ID.
func onServers(t *testing.T, f func(t *testing.T, s *lab)) {
	t.Run("miniredis", func(t *testing.T) {
		m := miniredis.RunT(t)
		m.SetTime(time.Now())
		id := setReplicationID(m)
		client := redis.NewClient(&redis.Options{Addr: m.Addr()})
		t.Cleanup(func() { _ = client.Close() })
		f(t, newLab(t, client, id, false))
	})
	t.Run("server", func(t *testing.T) {
		client := redistest.Start(t).Client(t)
		info, err := client.Info(t.Context(), "replication").Result()
		require.NoError(t, err)
		_, id, _ := strings.Cut(info, "master_replid:")
		f(t, newLab(t, client, id[:40], true))
	})
}

// setReplicationID gives a miniredis a replication ID, which it lacks.
func setReplicationID(m *miniredis.Miniredis) (id string) {
	id = strings.Repeat("a", 40)
	m.Server().SetPreHook(func(c *server.Peer, cmd string, args ...string) bool {
		if cmd == "INFO" {
			c.WriteBulk("# Replication\r\nrole:master\r\nmaster_replid:" + id + "\r\n")
		}
		return cmd == "INFO"
	})
	return id
}

// without returns a client for a user to whom an ACL denies a command.
func without(t *testing.T, rdb *redis.Client, command string) *redis.Client {
	require.NoError(t, rdb.Do(t.Context(), "ACL", "SETUSER", command, "on", "nopass", "~*", "+@all", "-"+command).Err())
	options := *rdb.Options()
	// Creating a client may change the options of rdb's.
	options.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	options.Username, options.Password = command, "any"
	client := redis.NewClient(&options)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// A lab makes random states of types and runs scripts on them.
type lab struct {
	*rand.Rand
	t      *testing.T
	client *redis.Client
	id     string // replication ID
	real   bool   // a real server, which rejects padded numbers
	now    int64
	seen   map[string]int // how often each class of outcome occurred
}

func newLab(t *testing.T, client *redis.Client, id string, real bool) *lab {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return &lab{Rand: rand.New(rand.NewPCG(seed, 0)), t: t, client: client, id: id, real: real, seen: map[string]int{}}
}

// unseen returns the outcomes that have not occurred yet.
func (l *lab) unseen(outcomes []string) []string {
	return slices.DeleteFunc(slices.Clone(outcomes), func(outcome string) bool { return l.seen[outcome] > 0 })
}

func pick[T any](l *lab, of ...T) T { return of[l.IntN(len(of))] }

// A call is what the types of one take have in common, and their period.
type call struct {
	first, past    int64
	period         string
	ledger         bool
	limit          int64
	purpose, clock string
	more           []any // after n and mark
	request        bool
}

const (
	token  = "own"
	manner = " days #0123456789ab" // of a period, after its bounds
	// Redis's error within a script when an ACL refuses a command: up to 7.0, and later.
	denied = "can't run this command|no permissions to run"
)

// cases returns how many random cases are tried: fewer with the race detector, which sees little of scripts.
func cases() int {
	if redistest.Long() && !race.Enabled {
		return 1500
	}
	return 150
}

// expiry returns when a key expires, in Unix seconds, or -1; compared keys expire at whole seconds. It is rounded,
// since in a script PTTL counts from the script's start, while TIME is read when it is reached, which may be much later
// on a busy machine. PEXPIRETIME needs Redis 7.0.
var expiry = redis.NewScript(`
	local left, now = redis.call('PTTL', KEYS[1]), redis.call('TIME')
	return left < 0 and -1 or math.floor((left + now[1] * 1000 + now[2] / 1000) / 1000 + 0.5)`)

// call reads the server's clock first: no instant that matters is less than ten seconds from it.
func (l *lab) call(types int) *call {
	now, err := l.client.Time(l.t.Context()).Result()
	require.NoError(l.t, err)
	l.now = now.Unix()
	c := &call{first: l.now - 1000, past: l.now + 5000, limit: pick[int64](l, 20, 30, 999_999_999_999_999),
		purpose: pick(l, "issue", "all")}
	c.clock = pick(l, "0", "0", "1")
	switch l.IntN(20) {
	case 0:
		c.past = l.now - 10 // it is over
	case 1:
		c.first = l.now + 10 // it has not begun
	}
	c.period = fmt.Sprintf("20211024 %d %d%s", c.first, c.past, manner)
	if c.ledger = l.IntN(2) == 0; c.ledger {
		if types == 1 && l.IntN(2) == 0 {
			c.purpose = pick(l, "ceiling", "open", "floor", "raise", "takeover")
			// Whole seconds from now, so no claim or lock ends between two runs of a script.
			c.more = []any{token, pick(l, 8000, 60_000), pick[any](l, 0, (l.now-100)*1000, (l.now+500)*1000),
				pick(l, 0, 4)}
		}
	}
	if c.request = types == 1 && l.IntN(5) == 0; c.request {
		c.more = append(c.more, `"20211024" "{seq}"`, pick(l, "", "plain"), 48*60*60*1000)
	}
	return c
}

// A series is the state of one type, as the commands that create it, and the request for it.
type series struct {
	name  string
	setup [][]any
	n     int
	mark  int64
}

func (s *series) keys() []string { return []string{s.name + ":c", s.name, s.name + ":once"} }

// others returns what a record may hold as the period entered besides the call's.
func (l *lab) others(c *call) []string {
	period := func(label string, first, past int64) string {
		return fmt.Sprintf("%s %d %d%s", label, first, past, manner)
	}
	before := period("20211023", c.first-6000, c.first)
	return []string{
		before,
		before + " ledger",
		period("20211021", c.first-26000, c.first-20000), // an earlier one
		strings.Replace(before, "ab", "cd", 1),           // with another print mark
		strings.Replace(before, "days", "days of years from April 1", 1),
		period("20211025", c.first-6000, c.first),   // with a later label
		period("20211024", c.first-6000, c.first),   // with the same label
		period("20211023", c.first-5000, c.first+1), // overlapping
		period("20211025", l.now+2000, l.now+8000),  // in the future
		"garbage",
	}
}

// aheads returns what a record may hold as the periods opened ahead.
func (c *call) aheads() []string {
	bounds, next := strings.TrimSuffix(c.period, manner), fmt.Sprintf("20211025 %d %d;", c.past, c.past+6000)
	return []string{";" + bounds + ";", ";" + bounds + ";" + next, ";" + next}
}

// useds are what a record may hold as the labels used.
var useds = []string{"20211020-20211023;", "20211020-20211025;", "20211024-20211024;",
	"20211001-20211002;20211004-20211004;20211006-20211030;"}

// series makes a state: half of them are close to the usual one, so each rule decides some cases.
func (l *lab) series(name string, c *call) *series {
	s := &series{name: name, n: l.IntN(5)}
	keys := s.keys()
	odd := func(int) bool { return false }
	if l.IntN(2) == 0 {
		odd = func(n int) bool { return l.IntN(n) == 0 }
	}
	counter := fmt.Sprint(pick(l, 0, 5, 8, 9, 10, 11, 18, 19, 20, 24, 28, 29, 30, 31))
	s.mark = pick[int64](l, 0, 0, 5, 10, 11)
	if odd(6) {
		counter = pick(l, "-5", "-1", "abc", "", " 5", "1e3", "0x10", "5.0", "999999999999998", "1000000000000000",
			"12345678901234567", "9223372036854775806", "9223372036854775807", "123456789012345678901234567890")
		if l.real {
			counter = pick(l, counter, "007", "+5", "-0", "00") // INCRBY of miniredis accepts these
		}
	}
	switch {
	case odd(8): // no counter
	case odd(12):
		s.setup = append(s.setup, []any{"RPUSH", keys[0], "x"})
	default:
		s.setup = append(s.setup, []any{"SET", keys[0], counter})
	}
	if !odd(8) {
		s.setup = append(s.setup, []any{"EXPIREAT", keys[0], c.past + pick[int64](l, 20, 0, 86400)})
	}
	if odd(15) {
		return s // no record
	}
	if odd(15) {
		s.setup = append(s.setup, []any{"SET", keys[1], "no hash"}, []any{"EXPIREAT", keys[1], l.now + 999})
		return s
	}
	entered := c.period
	if c.ledger != odd(8) {
		entered += " ledger"
	}
	if odd(3) {
		entered = pick(l, l.others(c)...)
	}
	fields := []any{"HSET", keys[1], "entered", entered}
	if l.IntN(3) == 0 {
		fields = append(fields, "ahead", pick(l, c.aheads()...))
	}
	if l.IntN(3) > 0 {
		fields = append(fields, "used", pick(l, useds...))
	}
	if l.IntN(3) > 0 {
		fields = append(fields, "print", pick(l, "20211020", "20211024", "20211025"))
	}
	if l.IntN(3) == 0 {
		fields = append(fields, "starts", pick(l, "20211020-20211024 5;", "20211024-20211024 11;20211024-20211024 2;"))
	}
	if odd(3) {
		fields = append(fields, "ledger", pick(l, "20211020", "20211024", "20211025"))
	}
	if strings.Contains(entered, "ledger") && !odd(10) {
		copied, id := counter, l.id
		if odd(6) {
			copied = "3"
		}
		if odd(3) {
			id = strings.Repeat("b", 40)
		}
		fields = append(fields, "ceiling", pick(l, 10, 20, 25, 40), "counterCopy", copied, "replID", id)
	}
	if l.IntN(3) == 0 {
		fields = append(fields, "claim", pick(l, fmt.Sprintf("%s %d", token, (l.now+30)*1000),
			fmt.Sprintf("other %d", (l.now+30)*1000), fmt.Sprintf("other %d", (l.now+4000)*1000),
			fmt.Sprintf("other %d", (l.now-30)*1000)))
	}
	s.setup = append(s.setup, fields)
	if !odd(8) {
		s.setup = append(s.setup, []any{"EXPIREAT", keys[1], c.past + pick[int64](l, 20, 86400*30)})
	}
	if c.request && l.IntN(3) == 0 {
		s.setup = append(s.setup, []any{"SET", keys[2], "an answer"}, []any{"EXPIREAT", keys[2], l.now + 999})
	}
	return s
}

// prepare stores the state of each series on the server.
func (l *lab) prepare(all ...*series) {
	l.t.Helper()
	p := l.client.Pipeline()
	for _, s := range all {
		p.Del(l.t.Context(), s.keys()...)
		for _, command := range s.setup {
			p.Do(l.t.Context(), command...)
		}
	}
	_, err := p.Exec(l.t.Context())
	require.NoError(l.t, err)
}

// take runs the script for some types, and returns a reply for each.
func (l *lab) take(source string, c *call, all ...*series) []any {
	args := []any{"EVAL", source, nil}
	for _, s := range all {
		keys := s.keys()
		args = append(args, keys[0], keys[1])
		if c.request {
			args = append(args, keys[2])
		}
	}
	args[2] = len(args) - 3
	period := c.period
	if c.ledger {
		period += " ledger"
	}
	args = append(args, period, c.first, c.past, c.limit, c.past+20)
	for _, s := range all {
		args = append(args, s.n, s.mark)
	}
	if c.ledger || c.request || c.purpose != "issue" || c.clock != "0" || l.IntN(4) == 0 {
		args = append(args, c.purpose, c.clock)
	}
	v, err := l.client.Do(l.t.Context(), append(args, c.more...)...).Result()
	if len(all) > 1 {
		require.NoError(l.t, err)
		require.Len(l.t, v, len(all))
	} else if v = []any{v}; err != nil {
		v = []any{err}
	}
	replies := v.([]any)
	for i, v := range replies {
		if reply, ok := v.([]any); ok { // without the time
			require.GreaterOrEqual(l.t, len(reply), 3)
			replies[i] = append([]any{reply[0]}, reply[3:]...)
		}
		if err, ok := v.(error); ok {
			require.Regexp(l.t, denied, err.Error())
			replies[i] = err.Error()
		}
	}
	return replies
}

// class names the outcome of a reply.
func class(reply any) string {
	switch reply := reply.(type) {
	case int64:
		return "issued"
	case string:
		return "error"
	default:
		fields := reply.([]any)
		if fields[0] == "part" {
			return fmt.Sprint("part-", fields[1])
		}
		return fields[0].(string)
	}
}

// dump returns the contents of each key, and when it expires. The end of the caller's own claim depends on the instant.
func (l *lab) dump(all ...*series) map[string]string {
	l.t.Helper()
	p := l.client.Pipeline()
	var types, expiries []redis.Cmder
	var keys []string
	for _, s := range all {
		for _, key := range s.keys() {
			keys = append(keys, key)
			types = append(types, p.Type(l.t.Context(), key))
			expiries = append(expiries, expiry.Eval(l.t.Context(), p, []string{key}))
		}
	}
	_, err := p.Exec(l.t.Context())
	require.NoError(l.t, err)
	held := map[string]string{}
	for i, key := range keys {
		var v any
		switch types[i].(*redis.StatusCmd).Val() {
		case "none":
			continue
		case "string":
			v = l.client.Get(l.t.Context(), key).Val()
		case "list":
			v = l.client.LRange(l.t.Context(), key, 0, -1).Val()
		case "hash":
			fields := l.client.HGetAll(l.t.Context(), key).Val()
			if strings.HasPrefix(fields["claim"], token) {
				fields["claim"] = token
			}
			v = fields
		}
		expires := expiries[i].(*redis.Cmd).Val().(int64)
		if strings.HasSuffix(key, ":once") && expires > l.now+1000 {
			require.InDelta(l.t, l.now+48*60*60, expires, 600) // counted from when it was written
			expires = 0
		}
		held[key] = fmt.Sprintf("%q until %d", fmt.Sprint(v), expires)
	}
	return held
}

// The usual branch of take and all its rules give the same replies and leave the same state. If nothing is issued, the
// counter stays as it was.
func TestTakeUsualAndFull(t *testing.T) {
	usual, full := takes(t)
	onServers(t, func(t *testing.T, l *lab) {
		outcomes := strings.Fields("issued part-exhausted part-ceiling clock calendar conflict print future lost missing " +
			"exhausted ceiling reserve claimed late once")
		for i := 0; i < cases() || len(l.unseen(outcomes)) > 0 && i < 20*cases(); i++ {
			c := l.call(1)
			s := l.series("IS", c)
			l.prepare(s)
			before := l.dump(s)
			replies := l.take(usual, c, s)
			after := l.dump(s)
			l.prepare(s)
			state := fmt.Sprintf("%+v\n%+v\n%v", c, s, before)
			require.Equal(t, l.take(full, c, s), replies, state)
			require.Equal(t, l.dump(s), after, state)

			outcome := class(replies[0])
			l.seen[outcome]++
			if outcome != "issued" && !strings.HasPrefix(outcome, "part-") {
				require.Equal(t, before[s.name+":c"], after[s.name+":c"], state)
			} else if s.n > 0 {
				require.NotContains(t, after[s.name+":c"], "until -1", state)
			}
			if !slices.Contains(strings.Fields("issued part-exhausted part-ceiling reserve once"), outcome) {
				require.Equal(t, before, after, state)
			}
		}
		t.Log(l.seen)
		require.Empty(t, l.unseen(outcomes))
	})
}

// For a period's first number, take does not apply all rules, but its result must agree with theirs.
func TestTakeFirst(t *testing.T) {
	usual, full := takes(t)
	onServers(t, func(t *testing.T, l *lab) {
		try := func(i, j int, used string) {
			c := l.call(1)
			entered, ahead := append(l.others(c), c.period, "")[i], append(c.aheads(), "")[j]
			c.purpose, c.clock, c.more, c.request, c.ledger = "issue", "0", nil, false, l.IntN(4) == 0
			if c.ledger && l.IntN(2) == 0 {
				c.purpose, c.more = "open", []any{token, 8000, 0, pick(l, 0, 4)}
			}
			s := &series{name: "IS", n: l.IntN(3), mark: pick[int64](l, 0, 0, 0, 5)}
			keys := s.keys()
			if entered != "" {
				s.setup = append(s.setup, []any{"HSET", keys[1], "entered", entered})
			}
			for name, field := range map[string]string{"ahead": ahead, "used": used, "print": pick(l, "", "20211024")} {
				if field != "" {
					s.setup = append(s.setup, []any{"HSET", keys[1], name, field})
				}
			}
			if l.IntN(8) == 0 {
				s.setup = append(s.setup, []any{"SET", keys[0], "8"})
			}
			l.prepare(s)
			state := fmt.Sprintf("%+v\n%+v", c, s)
			before, replies := l.dump(s), l.take(usual, c, s)
			after := l.dump(s)
			l.prepare(s)
			require.Equal(t, l.take(full, c, s), replies, state)
			require.Equal(t, l.dump(s), after, state)
			l.seen[class(replies[0])]++
			if class(replies[0]) == "missing" {
				require.Equal(t, before, after, state)
			}
		}
		outcomes := strings.Fields("missing calendar conflict print future lost clock reserve")
		for round := 0; round == 0 || len(l.unseen(outcomes)) > 0 && round < 20; round++ {
			for i := range 12 {
				for j := range 4 {
					for _, used := range append(useds, "") {
						try(i, j, used)
					}
				}
			}
		}
		t.Log(l.seen)
		require.Empty(t, l.unseen(outcomes))
	})
}

// Types in one call get the same replies as each alone, whatever the others' keys hold.
func TestTakeSeveral(t *testing.T) {
	usual, _ := takes(t)
	onServers(t, func(t *testing.T, l *lab) {
		mixed := 0
		for i := 0; i < cases()/5 || mixed == 0 && i < 20*cases(); i++ {
			types := 2 + l.IntN(5)
			c := l.call(types)
			var all []*series
			for i := range types {
				all = append(all, l.series(fmt.Sprint("T", i), c))
			}
			l.prepare(all...)
			replies := l.take(usual, c, all...)
			held := l.dump(all...)
			l.prepare(all...)
			outcomes := map[string]bool{}
			for i, s := range all {
				require.Equal(t, l.take(usual, c, s)[0], replies[i], "%+v\n%+v", c, s)
				outcomes[class(replies[i])] = true
			}
			require.Equal(t, l.dump(all...), held, "%+v", c)
			if outcomes["issued"] && outcomes["calendar"] {
				mixed++
			}
		}
		require.Positive(t, mixed)
	})
}

// If an ACL refuses a command, each type gets the error, and nothing is issued.
func TestTakeRefused(t *testing.T) {
	usual, _ := takes(t)
	rdb := redistest.Start(t).Client(t)
	l := newLab(t, rdb, "", true)
	for _, command := range []string{"pttl", "incrby", "get"} {
		c := l.call(1)
		c.limit, c.purpose, c.ledger, c.request, c.clock, c.more = 20, "issue", false, false, "0", nil
		c.first, c.past = l.now-1000, l.now+5000
		c.period = fmt.Sprintf("20211024 %d %d%s", c.first, c.past, manner)
		var all []*series
		for _, name := range []string{"A", "B"} {
			s := &series{name: name, n: 1}
			s.setup = [][]any{{"SET", s.keys()[0], 5, "EX", 9999}, {"HSET", name, "entered", c.period}, {"EXPIRE", name, 9999}}
			all = append(all, s)
		}
		l.client = rdb
		l.prepare(all...)
		l.client = without(t, rdb, command)
		for _, reply := range l.take(usual, c, all...) {
			require.Regexp(t, denied, reply)
		}
		require.Regexp(t, denied, l.take(usual, c, all[0])[0])
		l.client = rdb
		for _, s := range all {
			require.Contains(t, l.dump(s)[s.keys()[0]], `"5" until`)
		}
	}
}

// If an ACL refuses a command for a period's first number, that type gets the error, and the others get their numbers.
func TestTakeFirstRefused(t *testing.T) {
	usual, _ := takes(t)
	rdb := redistest.Start(t).Client(t)
	l := newLab(t, rdb, "", true)
	for range 10 {
		c := l.call(2)
		c.limit, c.purpose, c.ledger, c.request, c.clock, c.more = 20, "issue", false, false, "0", nil
		c.first, c.past = l.now-1000, l.now+5000
		c.period = fmt.Sprintf("20211024 %d %d%s", c.first, c.past, manner)
		open, first := &series{name: "A", n: 1, mark: 5}, &series{name: "B", n: 1}
		open.setup = [][]any{
			{"SET", open.keys()[0], 5, "EX", 9999}, {"HSET", "A", "entered", c.period}, {"EXPIRE", "A", 9999},
		}
		first.setup = [][]any{{"HSET", "B", "entered", l.others(c)[0]}, {"EXPIRE", "B", 9999}}
		l.client = rdb
		l.prepare(open, first)
		l.client = without(t, rdb, "hmget")
		replies := l.take(usual, c, open, first)
		require.EqualValues(t, 6, replies[0])
		require.Regexp(t, denied, replies[1])
	}
}

// noon is when the tests below make their calls: on 24 October 2021.
var noon = time.Date(2021, 10, 24, 12, 0, 0, 0, time.UTC)

// A fixture is a miniredis at noon with the series IS.
type fixture struct {
	*miniredis.Miniredis
	*sender
	t               *testing.T
	id              string // replication ID
	manner          string // of a period, after its bounds
	today           store.Period
	series          store.Series
	record, counter string // keys
}

// A sender sends requests for plain days to its only node.
type sender struct {
	*store.Store
	runner *redisrun.Runner
	node   *redisrun.Node
}

func newSender(client *redis.Client, limit int64, ledger bool) *sender {
	runner := redisrun.New(client, redisrun.Replicas{})
	node := redisrun.NewNodes(runner, func(n *redisrun.Node) *redisrun.Node { return n }).Of(context.Background(), "")
	return &sender{store.New("serial", limit, "days", "0123456789ab", ledger, false), runner, node}
}

// send sends a request for a series.
func (s *sender) send(ctx context.Context, series store.Series, request store.Request) (store.Reply, error) {
	request.Aim(store.Target{Series: series})
	b := budget.New(false)
	in, err := s.runner.Run(ctx, &b, s.node, s.Command(request), nil)
	return store.Read(in, err, request.Requested())
}

func newFixture(t *testing.T, limit int64, ledger bool) *fixture {
	m := miniredis.RunT(t)
	m.SetTime(noon)
	s := &fixture{Miniredis: m, t: t, manner: manner}
	if ledger {
		s.manner += " ledger"
		s.id = setReplicationID(m)
	}
	client := redis.NewClient(&redis.Options{Addr: m.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	s.sender = newSender(client, limit, ledger)
	s.today = s.day(24, 0)
	s.series = store.Series{Type: "IS", Period: &s.today, Keys: s.KeysOf("IS", &s.today)}
	s.record, s.counter = s.RecordKey("IS"), s.CounterKey("IS", "20211024")
	return s
}

// day is a day of October 2021 that begins at an hour, which may be negative.
func (s *fixture) day(day, hour int) store.Period {
	start := time.Date(2021, 10, day, hour, 0, 0, 0, time.UTC).Unix()
	end := start + 24*60*60
	return s.NewPeriod(fmt.Sprintf("202110%02d", day), start, end, start, end, end)
}

// enter makes p the period entered.
func (s *fixture) enter(p store.Period) {
	s.HSet(s.record, "entered", fmt.Sprintf("%s %d %d%s", p.Label, p.Start, p.End, s.manner))
}

// claim returns a claim as the record stores it.
func claim(owner string, until time.Time) string { return fmt.Sprint(owner, " ", until.UnixMilli()) }

// block sets today's counter to last, below the ceiling of a block, and sets a claim.
func (s *fixture) block(last, ceiling int, claim string) {
	s.enter(s.today)
	require.NoError(s.t, s.Set(s.counter, fmt.Sprint(last)))
	s.HSet(s.record, "ceiling", fmt.Sprint(ceiling), "counterCopy", fmt.Sprint(last), "replID", s.id, "claim", claim)
}

func (s *fixture) open(o store.Open) store.Reply {
	s.t.Helper()
	r, err := s.send(s.t.Context(), s.series, &o)
	require.NoError(s.t, err)
	return r
}

// A claim is given to one caller at a time, until its lease or the caller's lock ends.
func TestClaims(t *testing.T) {
	const lease = 8 * time.Second
	var none time.Time
	ours, others := claim(token, noon.Add(lease)), claim("other", noon.Add(lease))
	ended, sooner := claim("other", noon), noon.Add(3*time.Second)
	for name, test := range map[string]struct {
		claim, after string    // in the record
		lock         time.Time // when the caller's lock ends
		want         store.Status
	}{
		"it has expired":                 {ended, ours, none, store.Reserved},
		"the caller has it already":      {ours, ours, none, store.Reserved},
		"another has it":                 {others, others, none, store.Claimed},
		"the clock went back":            {claim("other", noon.Add(lease+time.Millisecond)), ours, none, store.Reserved},
		"the lock ends before the lease": {ended, claim(token, sooner), sooner, store.Reserved},
		"the lock has expired":           {ended, ended, noon, store.Late},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t, 9999, true)
			s.block(10, 10, test.claim)
			s.series.HighWater = 12
			r, err := s.send(t.Context(), s.series, &store.Take{N: 1, Purpose: store.ForOpening,
				Claim: &store.Claim{Token: token, Lease: lease, Until: test.lock}})
			require.NoError(t, err)
			require.Equal(t, test.want, r.Status)
			require.Equal(t, test.after, s.HGet(s.record, "claim"))
			if test.want == store.Reserved {
				require.EqualValues(t, 12, r.Granted.Above, "the caller has seen that number")
			}
		})
	}
}

// Release gives back the caller's claim, and no other.
func TestRelease(t *testing.T) {
	s := newFixture(t, 9999, true)
	s.block(10, 10, claim("other", noon))
	for _, test := range []struct{ token, left string }{{token, claim("other", noon)}, {"oth", claim("other", noon)},
		{"other", ""}} {
		b := budget.New(false)
		_, err := s.runner.Run(t.Context(), &b, s.node, s.Release("IS", test.token), nil)
		require.NoError(t, err)
		require.Equal(t, test.left, s.HGet(s.record, "claim"), test.token)
	}
}

// If an ACL refuses SET, it does so before the record is written: otherwise the record would name a counter that never
// existed.
func TestSetRefused(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	s := newSender(without(t, rdb, "set"), 9999, false)
	now := time.Now().Unix()
	today := s.NewPeriod("20211024", now-1000, now+1000, now-1000, now+1000, now+1000)
	tomorrow := s.NewPeriod("20211025", now+1000, now+2000, now+1000, now+2000, now+2000)
	series := store.Series{Type: "IS", Period: &today, Keys: s.KeysOf("IS", &today)}

	_, err := s.send(t.Context(), series, &store.Open{Checked: time.Unix(now, 0), Lease: time.Minute})
	require.Regexp(t, denied, err)
	require.Zero(t, rdb.Exists(t.Context(), s.RecordKey("IS")).Val())

	entered := fmt.Sprint("20211024 ", now-1000, " ", now+1000, manner)
	require.NoError(t, rdb.HSet(t.Context(), s.RecordKey("IS"), "entered", entered).Err())
	_, err = s.send(t.Context(), series, &store.Prepare{Next: &tomorrow, Checked: true})
	require.Regexp(t, denied, err)
	require.Equal(t, map[string]string{"entered": entered}, rdb.HGetAll(t.Context(), s.RecordKey("IS")).Val())
}

// If open refuses, everything stays as it was; if it succeeds, the claim is used up.
func TestOpenRefuses(t *testing.T) {
	const lease = 8 * time.Second
	enter := func(day int) func(s *fixture) {
		return func(s *fixture) { s.enter(s.day(day, 0)) }
	}
	block := func(owner string, until time.Time) func(s *fixture) {
		return func(s *fixture) { s.block(10, 10, claim(owner, until)) }
	}
	noNumber := func(s *fixture) { require.NoError(s.t, s.Set(s.counter, "x")) }
	for name, test := range map[string]struct {
		ledger  bool
		state   func(s *fixture)
		checked time.Time
		want    store.Status
	}{
		"a new day":                    {false, enter(23), noon, store.Issued},
		"the lock has expired":         {false, enter(23), noon.Add(-lease), store.Late},
		"the server's clock went back": {false, enter(23), noon.Add(time.Millisecond), store.Late},
		"the period is in the future":  {false, enter(25), noon, store.Future},
		"the counter has been lost":    {false, enter(24), noon, store.Lost},
		"the counter holds no number":  {false, noNumber, noon, store.Lost},
		"a block":                      {true, block(token, noon.Add(lease)), noon, store.Issued},
		"another holds the claim":      {true, block("other", noon.Add(lease)), noon, store.Late},
		"the claim has expired":        {true, block(token, noon), noon, store.Late},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t, 9999, test.ledger)
			test.state(s)
			o := store.Open{N: 1, Checked: test.checked, Lease: lease}
			if test.ledger {
				o.Block = &store.Block{Token: token, ReplicationID: s.id, After: 10, Upto: 20}
			}
			before := s.Dump()
			require.Equal(t, test.want, s.open(o).Status)
			if test.want != store.Issued {
				require.Equal(t, before, s.Dump())
			} else {
				require.Empty(t, s.HGet(s.record, "claim"))
			}
		})
	}
}

// A useless block leaves the counter where it was; one beyond the limit leaves it at the limit.
func TestOpenWithAnotherBlock(t *testing.T) {
	for name, test := range map[string]struct {
		last, ceiling int
		n             int
		after         int64
		want          store.Status
		held, counter string
	}{
		"used up already":                     {14, 30, 1, 4, store.Late, "", "14"},
		"not enough, and some left before it": {12, 15, 9, 16, store.Exhausted, "12", "12"},
		"beyond the limit":                    {20, 20, 1, 30, store.Exhausted, "20", "20"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t, 20, true)
			s.block(test.last, test.ceiling, claim(token, noon.Add(time.Second)))
			r := s.open(store.Open{N: test.n, Checked: noon, Lease: time.Second,
				Block: &store.Block{Token: token, ReplicationID: s.id, After: test.after, Upto: test.after + 10}})
			require.Equal(t, test.want, r.Status)
			require.Equal(t, test.held, r.Detail)
			s.CheckGet(t, s.counter, test.counter)
		})
	}
}

// A counter of 16 digits or more, too large for a double, stays as it is.
func TestOpenKeepsAGiant(t *testing.T) {
	const giant = "12345678901234567"
	for _, ledger := range []bool{false, true} {
		s := newFixture(t, 20, ledger)
		o := store.Open{N: 1, Checked: noon, Lease: time.Second}
		if s.enter(s.today); ledger {
			s.block(20, 20, claim(token, noon.Add(time.Second)))
			o.Block = &store.Block{Token: token, ReplicationID: s.id, After: 20, Upto: 30}
		}
		require.NoError(t, s.Set(s.counter, giant))
		r := s.open(o)
		require.Equal(t, store.Exhausted, r.Status)
		require.Equal(t, giant, r.Detail)
		s.CheckGet(t, s.counter, giant)
		if ledger {
			require.Equal(t, giant, s.HGet(s.record, "counterCopy"))
		}
	}
}

// Open looks again: if the period is open by now, it leaves the counter and issues from there. It releases its caller's
// lock, and no other.
func TestOpenLooksAgain(t *testing.T) {
	for name, test := range map[string]struct {
		n            int
		floor        store.Floor
		entered      int    // day of the record, 0 if there is none
		lock         string // its content
		want         store.Status
		there        bool
		last         int64
		held, locked string // contents of the counter and the lock in the end
	}{
		"the rest follows":       {2, store.Floor{}, 24, "mine", store.Issued, true, 9, "9", ""},
		"another holds the lock": {2, store.Floor{}, 24, "other", store.Issued, true, 9, "9", "other"},
		"there is no lock":       {2, store.Floor{}, 24, "", store.Issued, true, 9, "9", ""},
		"no number is wanted":    {0, store.Floor{}, 24, "mine", store.Issued, true, 7, "7", ""},
		"there is too little":    {20, store.Floor{}, 24, "mine", store.Exhausted, false, 0, "7", ""},
		"a floor has been asked": {2, store.FloorAt(3), 24, "mine", store.Issued, false, 9, "9", ""},
		"a higher floor":         {2, store.FloorAt(16), 24, "mine", store.Issued, false, 18, "18", ""},
		"an unrecorded counter":  {2, store.Floor{}, 0, "mine", store.Issued, false, 9, "9", ""},
		"a counter of a new day": {2, store.Floor{}, 23, "mine", store.Issued, false, 9, "9", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t, 20, false)
			if test.entered > 0 {
				s.enter(s.day(test.entered, 0))
			}
			require.NoError(t, s.Set(s.counter, "7"))
			if test.lock != "" {
				require.NoError(t, s.Set(s.counter+":lock", test.lock))
			}
			r := s.open(store.Open{N: test.n, Base: 15, Checked: noon, Lease: time.Second, Lock: "mine", Floor: test.floor})
			require.Equal(t, test.want, r.Status)
			require.Equal(t, test.there, r.Status == store.Issued && !r.Skipped.Opened)
			require.Equal(t, test.last, r.Last)
			if test.last == 18 {
				require.Equal(t, store.Skipped{Opened: true, From: 7, Upto: 16}, r.Skipped)
			}
			s.CheckGet(t, s.counter, test.held)
			require.Equal(t, test.locked != "", s.Exists(s.counter+":lock"))
		})
	}
}

// A period is opened even if an ACL forbids releasing the lock, which then expires.
func TestLockThatOpenMayNotGiveBack(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	s := newSender(without(t, rdb, "del"), 9999, false)
	now := time.Now().Unix()
	today := s.NewPeriod("20211024", now-1000, now+1000, now-1000, now+1000, now+1000)
	lock := s.LockKey("IS", today.Label)
	require.NoError(t, rdb.Set(t.Context(), lock, "mine", time.Minute).Err())
	series := store.Series{Type: "IS", Period: &today, Keys: s.KeysOf("IS", &today)}
	r, err := s.send(t.Context(), series, &store.Open{N: 1, Checked: time.Unix(now, 0), Lease: time.Minute, Lock: "mine"})
	require.NoError(t, err)
	require.EqualValues(t, 1, r.Last)
	require.EqualValues(t, 1, rdb.Exists(t.Context(), lock).Val())
}

// A record lives for seven days after its period. A later expiry stays: a clock that was ahead may have used a later
// label, or a later period may have been prepared.
func TestRecordLife(t *testing.T) {
	for expiry, want := range map[time.Time]time.Time{
		noon.AddDate(0, 0, 1): noon.AddDate(0, 0, 8).Add(-12 * time.Hour),
		noon.AddDate(0, 1, 8): noon.AddDate(0, 1, 8),
	} {
		s := newFixture(t, 9999, false)
		s.enter(s.day(23, 0))
		s.HSet(s.record, "used", "20211020-20211023;")
		s.SetTTL(s.record, expiry.Sub(noon))
		r := s.open(store.Open{N: 1, Checked: noon, Lease: time.Second})
		require.Equal(t, store.Issued, r.Status)
		require.Equal(t, want.Sub(noon), s.TTL(s.record), expiry)
	}
}

// A script and the files that it includes share their locals, so no name may be declared in two of them.
func TestNamesAreNotUsedTwice(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile("lua/" + name + ".lua")
		require.NoError(t, err)
		return string(text)
	}
	locals := func(text, before string) (names []string) {
		declaration := regexp.MustCompile(`(?m)^` + before + `local (?:function (?:takeByRules\()?)?([\w, ]+)`)
		for _, m := range declaration.FindAllStringSubmatch(text, -1) {
			names = append(names, strings.Split(strings.TrimSpace(m[1]), ", ")...)
		}
		return names
	}
	for _, script := range []string{"take", "open", "prepare", "peek", "history"} {
		text := read(script)
		if script == "take" { // which includes them in a function, with its arguments
			text, _, _ = strings.Cut(text, "\nend\n")
		}
		all := locals(text, " *")
		slices.Sort(all)
		all = slices.Compact(all) // in adjacent blocks
		for _, m := range regexp.MustCompile(`--include (\w+)`).FindAllStringSubmatch(text, -1) {
			before := ""
			if m[1] == "enter" { // which has no function of its own
				before = " *"
			}
			all = append(all, locals(read(m[1]), before)...)
		}
		require.Greater(t, len(all), 30)
		slices.Sort(all)
		require.Equal(t, slices.Compact(slices.Clone(all)), all, script)
	}
}

// asIn724 makes commands of a script see numbers as Redis 7.2.0 to 7.2.4 and Valkey 7.2.5 do.
const asIn724 = `
	local server = redis
	local function convert(args)
		for i, arg in ipairs(args) do
			local digits, zeros = string.match(type(arg) == 'number' and string.format('%.0f', arg) or '', '^([1-9]%d-)(0*)$')
			if zeros and #zeros >= 8 then
				local rest = #digits > 1 and '.' .. string.sub(digits, 2) or ''
				args[i] = string.sub(digits, 1, 1) .. rest .. 'e+' .. #digits + #zeros - 1
			end
		end
		return unpack(args)
	end
	local redis = {
		call = function(...) return server.call(convert({...})) end,
		pcall = function(...) return server.pcall(convert({...})) end,
	}
`

// Scripts write the same text in every Redis, however it converts numbers to strings.
func TestNumbersThatEndInZeros(t *testing.T) {
	expires := time.Unix(1_800_000_000, 0).UTC() // when a record expires, a week after its day
	past := expires.AddDate(0, 0, -7).Unix()
	first := past - 86400
	now := first + 60
	yesterday := fmt.Sprintf("20270106 %d %d%s", first-86400, first, manner)
	today := fmt.Sprintf("20270107 %d %d%s", first, past, manner)
	tomorrow := fmt.Sprintf("20270108 %d %d", past, past+86400)
	for name, test := range map[string]struct {
		script  string
		ledger  bool
		counter string // its content before
		args    []any  // after those of every script
		want    string // the counter's content afterwards
	}{
		"raise": {"open", false, "7", []any{0, 0, 0, 200_000_000, "raise", 8000, ""}, "200000000"},
		"open":  {"open", false, "", []any{1, 0, 0, 99_999_999, now * 1000, 8000, ""}, "100000000"},
		"open with a block": {"open", true, "",
			[]any{1, 0, 0, "", now * 1000, 8000, "", token, "ID", 99_999_999, 200_000_000}, "100000000"},
		"take":              {"take", true, "99999999", []any{1, 0, "issue", "0"}, "100000000"},
		"take by the rules": {"take", true, "99999999", []any{1, 0, "all", "1"}, "100000000"},
		"prepare":           {"prepare", false, "", []any{0, tomorrow, past, past + 86400, 300_000_000, "", 1}, "300000000"},
	} {
		t.Run(name, func(t *testing.T) {
			m := miniredis.RunT(t)
			id := setReplicationID(m)
			m.SetTime(time.Unix(now, 0))
			client := redis.NewClient(&redis.Options{Addr: m.Addr()})
			t.Cleanup(func() { _ = client.Close() })
			entered, period := yesterday, today
			args := []any{"EVAL", asIn724 + store.Sources[test.script], 2, "counter", "record"}
			if test.ledger {
				period += " ledger"
			}
			switch test.script {
			case "take":
				entered = period
				m.HSet("record", "ceiling", "200000000", "counterCopy", test.counter, "replID", id)
			case "prepare":
				entered, args = today, []any{args[0], args[1], 3, "other", "record", "counter"}
				require.NoError(t, m.Set("other", "7"))
			}
			m.HSet("record", "entered", entered, "used", entered[:8]+"-"+entered[:8]+";", "claim", token+" 9999999999999")
			if test.counter != "" {
				require.NoError(t, m.Set("counter", test.counter))
				if name != "take by the rules" { // the others set an expiry
					m.SetTTL("counter", expires.Sub(time.Unix(now, 0)))
				}
			}
			args = append(args, period, first, past, int64(store.MaxSeq), past)
			for _, arg := range test.args {
				if arg == "ID" {
					arg = id
				}
				args = append(args, arg)
			}
			require.NoError(t, client.Do(t.Context(), args...).Err())
			m.CheckGet(t, "counter", test.want)
			if test.ledger {
				require.Equal(t, test.want, m.HGet("record", "counterCopy"))
				require.Equal(t, "200000000", m.HGet("record", "ceiling"))
			}
			if test.script == "open" {
				require.Equal(t, expires, time.Unix(now, 0).Add(m.TTL("record")).UTC())
			}
		})
	}
}

// Openings sent together get the same replies as each alone.
func TestOpeningsTogether(t *testing.T) {
	s := newFixture(t, 9999, false)
	tomorrow := s.day(25, 0)
	var opens []store.Request
	var notes []*redisrun.Note
	for _, typ := range []string{"FRESH", "LIST", "ENTERED", "FRESH"} {
		series := store.Series{Type: typ, Period: &s.today, Keys: s.KeysOf(typ, &s.today)}
		open := &store.Open{N: 1, Checked: noon, Lease: time.Second}
		open.Aim(store.Target{Series: series})
		opens, notes = append(opens, open), append(notes, new(redisrun.Note))
	}
	_, err := s.Lpush(s.CounterKey("LIST", s.today.Label), "v")
	require.NoError(t, err)
	entered := fmt.Sprintf("%s %d %d%s", tomorrow.Label, tomorrow.Start, tomorrow.End, manner)
	s.HSet(s.RecordKey("ENTERED"), "entered", entered)
	for round := range 2 { // at first, the server does not know the script
		var mu sync.Mutex
		replies := make([]string, len(opens))
		var budgets []*budget.Budget
		var commands []redisrun.Command
		for _, open := range opens {
			b := budget.New(false)
			budgets, commands = append(budgets, &b), append(commands, s.Command(open))
		}
		s.runner.RunAll(t.Context(), budgets, s.node, commands, notes, func(i int, in redisrun.Reply, err error) {
			mu.Lock()
			defer mu.Unlock()
			r, err := store.Read(in, err, opens[i].Requested())
			require.NoError(t, err)
			replies[i] = fmt.Sprint(r.Status, " ", r.Status == store.Issued && !r.Skipped.Opened)
		})
		fresh := []string{replies[0], replies[3]}
		slices.Sort(fresh)
		want := []string{"issued false", "issued true"}
		if round > 0 {
			want[0] = "issued true"
		}
		require.Equal(t, want, fresh)
		require.Equal(t, []string{"lost false", "future false"}, replies[1:3])
		s.CheckGet(t, s.CounterKey("FRESH", s.today.Label), fmt.Sprint(2+2*round))
	}
}

// A span has its first instant, and not the first instant after it.
func TestBoundsOfASpan(t *testing.T) {
	for at, want := range map[time.Time]store.Status{
		noon.Add(-12*time.Hour - time.Second): store.Clock, noon.Add(-12 * time.Hour): store.Issued,
		noon.Add(12*time.Hour - time.Second): store.Issued, noon.Add(12 * time.Hour): store.Clock,
	} {
		for _, highWater := range []int64{0, 5} {
			for _, purpose := range []store.Purpose{store.Issue, store.All} {
				s := newFixture(t, 9999, false)
				s.enter(s.today)
				require.NoError(t, s.Set(s.counter, "5"))
				s.SetTTL(s.counter, 48*time.Hour)
				s.SetTime(at)
				s.series.HighWater = highWater
				r, err := s.send(t.Context(), s.series, &store.Take{N: 1, Purpose: purpose})
				require.NoError(t, err)
				require.Equal(t, want, r.Status, "%v %d %s", at, highWater, purpose)
			}
		}
	}
}

// Prepare opens no period that does not directly follow the last one.
func TestPrepareRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		entered int // day
		next    func(s *fixture) store.Period
		want    store.Status
	}{
		"tomorrow":                      {24, func(s *fixture) store.Period { return s.day(25, 0) }, store.Issued},
		"the day after tomorrow":        {24, func(s *fixture) store.Period { return s.day(26, 0) }, store.Gap},
		"a tomorrow that begins today":  {24, func(s *fixture) store.Period { return s.day(25, -1) }, store.Conflict},
		"today has not been opened yet": {23, func(s *fixture) store.Period { return s.day(25, 0) }, store.Missing},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t, 9999, false)
			s.enter(s.day(test.entered, 0))
			require.NoError(t, s.Set(s.counter, "5"))
			next, before := test.next(s), s.Dump()
			r, err := s.send(t.Context(), s.series, &store.Prepare{Next: &next, Checked: true})
			require.NoError(t, err)
			require.Equal(t, test.want, r.Status)
			if test.want != store.Issued {
				require.Equal(t, before, s.Dump())
			}
		})
	}
}

// openings are periods of one series, with labels from 24 on, whose bounds suit the server's clock.
type openings struct {
	*sender
	t      *testing.T
	client *redis.Client
	series store.Series
	begins int64 // start of the first period
	length int64
}

// newOpenings returns a series whose first period is the current one by the server's clock.
func newOpenings(l *lab, begins, length int64) *openings {
	o := &openings{t: l.t, client: l.client, begins: begins, length: length}
	o.sender = newSender(l.client, 999_999_999_999_999, false)
	require.NoError(o.t, l.client.FlushAll(o.t.Context()).Err())
	p := o.period(24)
	o.series = store.Series{Type: "IS", Period: &p, Keys: o.KeysOf("IS", &p)}
	return o
}

func (o *openings) period(label int) store.Period {
	start := o.begins + int64(label-24)*o.length
	return o.NewPeriod(fmt.Sprint(label), start, start+o.length, start, start+o.length, start+o.length)
}

// reply requires that a script replied with that status.
func (o *openings) reply(want store.Status) func(r store.Reply, err error) store.Reply {
	o.t.Helper()
	return func(r store.Reply, err error) store.Reply {
		o.t.Helper()
		require.NoError(o.t, err)
		require.Equal(o.t, want, r.Status)
		return r
	}
}

// open opens the first period, or raises its counter, as an operator's Raise does.
func (o *openings) open(base int64, floor store.Floor) store.Reply {
	o.t.Helper()
	return o.reply(store.Issued)(o.send(o.t.Context(), o.series,
		&store.Open{Base: base, Floor: floor, Purpose: store.ForRaise}))
}

func (o *openings) prepare(label int, base int64, floor store.Floor) {
	o.t.Helper()
	next := o.period(label)
	o.reply(store.Issued)(o.send(o.t.Context(), o.series,
		&store.Prepare{Next: &next, Base: base, Floor: floor, Checked: true}))
}

// counters returns the contents of the counters, and the numbers issued according to History.
func (o *openings) counters(labels ...string) (held []string, issued []int64) {
	o.t.Helper()
	for _, label := range labels {
		held = append(held, o.client.Get(o.t.Context(), o.CounterKey("IS", label)).Val())
	}
	r := o.reply(store.Issued)(o.send(o.t.Context(), o.series, &store.History{Labels: labels}))
	peeked := o.reply(store.Issued)(o.send(o.t.Context(), o.series, &store.Peek{}))
	require.Equal(o.t, r.Each[:1], peeked.Each)
	for _, k := range r.Each[1:] {
		if k.Last == k.Base && k.Last > 0 {
			k.Last = 0 // opened, and not used
		}
		issued = append(issued, k.Last)
	}
	return held, issued
}

func (o *openings) starts() string {
	return o.client.HGet(o.t.Context(), o.RecordKey("IS"), "starts").Val()
}

// The record keeps the starts of periods that do not begin at 1, in runs. A counter just before its start is unused.
func TestStarts(t *testing.T) {
	onServers(t, func(t *testing.T, l *lab) {
		now, err := l.client.Time(t.Context()).Result()
		require.NoError(t, err)
		o := newOpenings(l, now.Unix()-100, 5000)
		o.open(4, store.Floor{})
		o.prepare(25, 4, store.Floor{})
		o.prepare(26, 4, store.FloorAt(0))
		require.Equal(t, "24-26 5;", o.starts())
		o.prepare(27, 0, store.FloorAt(4)) // a floor reports that 4 was used
		require.Equal(t, "24-26 5;", o.starts())
		o.prepare(28, 4, store.Floor{})
		o.prepare(29, 299_999_999, store.Floor{})
		require.Equal(t, "24-26 5;28-28 5;29-29 300000000;", o.starts())
		for range 2 {
			o.prepare(29, 7, store.Floor{}) // already open
		}
		o.prepare(30, 1, store.Floor{})
		require.Equal(t, "24-26 5;28-28 5;29-29 300000000;30-30 2;", o.starts(), "none of an ended period")
		held, issued := o.counters("24", "25", "26", "27", "28", "29", "30", "31")
		require.Equal(t, []string{"4", "4", "4", "4", "4", "299999999", "1", ""}, held)
		require.Equal(t, []int64{0, 0, 0, 4, 0, 0, 0, -1}, issued)

		// An existing counter stays; a lost one begins at its old start.
		require.EqualValues(t, 4, o.open(7, store.Floor{}).Last)
		require.EqualValues(t, 5, o.open(7, store.FloorAt(5)).Last)
		for _, floor := range []int64{0, 3} {
			require.NoError(t, l.client.Del(t.Context(), o.CounterKey("IS", "24"), o.CounterKey("IS", "28")).Err())
			require.EqualValues(t, 4, o.open(7, store.FloorAt(floor)).Last)
			o.prepare(28, 0, store.FloorAt(floor))
			held, issued = o.counters("24", "28")
			require.Equal(t, []string{"4", "4"}, held)
			require.Equal(t, []int64{0, 0}, issued)
		}
		require.Equal(t, "24-26 5;28-28 5;29-29 300000000;30-30 2;", o.starts())

		// Records of 0.4.0 have no starts.
		require.NoError(t, l.client.HDel(t.Context(), o.RecordKey("IS"), "starts").Err())
		_, issued = o.counters("24", "25")
		require.Equal(t, []int64{4, 4}, issued)
		require.EqualValues(t, 4, o.open(7, store.Floor{}).Last)
		o.prepare(31, 4, store.Floor{})
		require.Equal(t, "31-31 5;", o.starts())
	})
}

// Beyond three runs, starts of periods before the one entered are dropped.
func TestStartsOfThePast(t *testing.T) {
	s := newFixture(t, 9999, false)
	for i, want := range []string{"20211024-20211024 5;", "20211024-20211024 5;20211025-20211025 6;",
		"20211024-20211024 5;20211025-20211025 6;20211026-20211026 7;", "20211026-20211026 7;20211027-20211027 8;",
		"20211026-20211026 7;20211027-20211028 8;"} {
		s.SetTime(noon.AddDate(0, 0, i))
		day := s.day(24+i, 0)
		s.series = store.Series{Type: "IS", Period: &day, Keys: s.KeysOf("IS", &day)}
		r := s.open(store.Open{Base: []int64{4, 5, 6, 7, 7}[i], Purpose: store.ForRaise})
		require.Equal(t, store.Issued, r.Status)
		require.Equal(t, want, s.HGet(s.record, "starts"))
	}
}

// After the clock went back, the last period opened may be followed by others that were used. A run of starts must not
// continue across them. Among them, it does, or there would be too many runs.
func TestStartsAfterTheClockWentBack(t *testing.T) {
	type step struct {
		day   int
		base  int64
		wants string
	}
	for _, steps := range [][]step{{
		{24, 4, "20211024-20211024 5;"},
		{25, 0, "20211024-20211024 5;"},
		{24, 4, "20211024-20211024 5;"}, // Raise, while the clock is behind
		{26, 4, "20211024-20211024 5;20211026-20211026 5;"},
		{27, 4, "20211024-20211024 5;20211026-20211027 5;"},
	}, {
		{20, 8, "20211020-20211020 9;"},
		{29, 8, "20211020-20211029 9;"},
		{23, 0, "20211020-20211029 9;20211023-20211023 1;"},
		{24, 0, "20211020-20211029 9;20211023-20211024 1;"},
		{26, 0, "20211020-20211029 9;20211023-20211026 1;"},
	}, {
		{20, 4, "20211020-20211020 5;"},
		{23, 0, "20211020-20211020 5;"}, // by a fast clock
		{26, 0, "20211020-20211020 5;"},
		{20, 4, "20211020-20211020 5;"},
		{21, 4, "20211020-20211021 5;"},
		{24, 4, "20211020-20211021 5;20211024-20211024 5;"},
		{25, 4, "20211020-20211021 5;20211024-20211025 5;"},
	}} {
		s := newFixture(t, 9999, false)
		for _, step := range steps {
			s.SetTime(noon.AddDate(0, 0, step.day-24))
			day := s.day(step.day, 0)
			s.series = store.Series{Type: "IS", Period: &day, Keys: s.KeysOf("IS", &day)}
			require.Equal(t, store.Issued, s.open(store.Open{Base: step.base, Purpose: store.ForRaise}).Status)
			require.Equal(t, step.wants, s.HGet(s.record, "starts"))
		}
	}
}

// A period may begin before the epoch: the first days and years, east of Greenwich.
func TestPeriodsBeforeTheEpoch(t *testing.T) {
	onServers(t, func(t *testing.T, l *lab) {
		now, err := l.client.Time(t.Context()).Result()
		require.NoError(t, err)
		o := newOpenings(l, -32_400, now.Unix()+32_400+5000)
		take := func(want store.Status) store.Reply {
			t.Helper()
			return o.reply(want)(o.send(t.Context(), o.series, &store.Take{N: 1, Purpose: store.All}))
		}
		take(store.Missing)
		o.open(0, store.Floor{})
		o.prepare(25, 0, store.Floor{})
		o.prepare(26, 0, store.Floor{})
		require.EqualValues(t, 1, take(store.Issued).Last)
		_, issued := o.counters("24", "25", "26")
		require.Equal(t, []int64{1, 0, 0}, issued)
		text := l.client.HGet(t.Context(), o.RecordKey("IS"), "entered").Val()
		require.EqualValues(t, -32_400, store.ParsePeriod(text).Start)

		// An overlapping period of another zone is a conflict, and the reply names it.
		other := newOpenings(l, -3600, now.Unix()+3600+5000)
		o = newOpenings(l, -32_400, now.Unix()+32_400+5000)
		o.open(0, store.Floor{})
		other.t = t
		r := other.reply(store.Conflict)(other.send(t.Context(), other.series, &store.Take{N: 1, Purpose: store.All}))
		require.EqualValues(t, -32_400, store.ParsePeriod(r.Entered).Start)
	})
}
