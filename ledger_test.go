package serial_test

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/redistest"
	"github.com/dailyserial/serial/internal/redistest/memory"
	"github.com/dailyserial/serial/serialtest"
)

// Guarantees: ledger-down, counter-lost, record-lost, both-lost-remembered, ledger-lost.
func TestLedger(t *testing.T) {
	t.Parallel()
	testLedger(t, inMemory(t))
}

func TestLedgerOnServer(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	testLedger(t, backend{client: func(t *testing.T) redis.UniversalClient { return s.Client(t) }})
}

func TestLedgerOnCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	testLedger(t, backend{client: func(t *testing.T) redis.UniversalClient { return cluster.Client(t) }})
}

// testLedger is the behaviour suite with a ledger, and for Takeover, which may enter a ledger or leave it.
func testLedger(t *testing.T, b backend) {
	type row struct {
		block    int64
		kind            // zero for days
		script   string // steps
		reserved string // reservations, each as ABOVE+N
	}
	seq := func(width string) kind {
		return kind{opts: options(serial.WithTemplate("{type}{date:yyyyMMdd}{seq:" + width + "}"))}
	}
	rows := map[string]row{
		"the ledger is asked once per block": {3, seq("4"), "gen next = 1, gen next = 2, gen next = 3, gen next = 4, " +
			"wide next = 5, gen peek = 5, gen next 25 = 30", "0+3, 3+3, 6+25"},
		"up to the largest sequence of all": {10, seq("15"), "gen raise 999999999999998, gen next = 999999999999999, " +
			"gen next = exhausted, redis DEL counter, gen raise 999999999999999, gen takeover 999999999999999, " +
			"gen peek = 999999999999999", ""},
		"a counter beyond the template": {10, seq("4"), "gen raise 5000, redis HDEL record replID, " +
			"narrow next = exhausted, narrow raise 5, narrow prepare", "0+5010"},
		"the ledger lost its blocks": {3, seq("4"), "gen next = 1, fresh next = 2, fresh next = 3, fresh next = 4, " +
			"fresh next = 5", "0+3"},
		"raise, and a floor": {10, seq("4"), "gen raise 40, gen next = 41, gen raise 30, gen next = 42, " +
			"redis DEL counter record, floored next = 76", "0+50, 75+10"},
		"calls are refused without the ledger, not with it": {10, seq("4"), "plain next 2 = 2, gen next = 3, " +
			"plain next = conflict, plain raise 50 = conflict, floor next = conflict, floor raise 50 = conflict, " +
			"floor peek = 3, floor takeover-keeping 5 = reserved, gen takeover-keeping 5, " +
			"plain takeover 12, plain next = 13, plain takeover-keeping 0", "2+10, 12+10"},
		"takeover from another zone, in which it is the same day": {10, seq("4"), "east next = 1, east next = 2, " +
			"east prepare, plain next = conflict, plain takeover 0, plain next = 3, east next = conflict, " +
			"east raise 9 = conflict, plain takeover 2, plain next = 4, plain takeover 9, plain next = 10", ""},
		"takeover above seq, the floor and its own numbers": {10, seq("4"), "east next = 1, plain takeover 57, " +
			"plain next = 58, east takeover 0, floor takeover 60, floor next = 76, plain takeover 0, redis DEL counter, " +
			"plain takeover 3, plain next = 59", ""},
	}
	for _, k := range calendars {
		rows[k.name] = row{5, k, "floored next 3 = 78, floored next 4 = 82", "75+5, 80+5"}
	}
	// Whichever keys are lost, the next number must be above everything that was reserved, and only one new block must
	// be needed.
	for harm, reserved := range map[string]string{
		"DEL record counter": "0+10, 5+10, 0+10", "DEL record": "0+10, 5+10, 11+10", "DEL counter": "",
		"HDEL record replID": "", "HSET record replID eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee": "",
		"SET counter 2": "", "SET counter 6": "", "SET counter x": "",
	} {
		rows["lost: "+harm] = row{10, seq("4"), "gen next 5 = 5, redis " + harm + ", gen next = 11, redis " + harm +
			", new next = 21, gen next = 22", cmp.Or(reserved, "0+10, 10+10, 20+10")}
	}
	for name, row := range rows {
		l := new(spyLedger)
		ledger, floor := serial.WithLedger(l, row.block), fixedFloor(75)
		b.run(t, name, func(t *testing.T, s *series) {
			_, offset := time.Now().In(s.loc).Zone()
			east, gens := serial.WithLocation(time.FixedZone("east", offset+3600)), map[string]*serial.Generator{"gen": s.gen}
			for name, more := range map[string][]serial.Option{
				"new": {ledger}, "wide": {serial.WithLedger(l, 100)}, "plain": nil, "floor": {floor}, "east": {east},
				"fresh": {serial.WithLedger(new(serialtest.Ledger), row.block)}, "floored": {ledger, floor},
				"narrow": {ledger, serial.WithTemplate("{type}{date:yyyyMMdd}{seq:3}")},
			} {
				if row.name == "" || name == "floored" {
					gens[name] = s.generator(append(row.opts, more...)...)
				}
			}
			scheme := s.gen.Scheme()
			label, _, _ := scheme.Period(serial.At(time.Now()))
			s.steps(gens, row.script)
			var reserved []string
			for _, r := range l.reservations() {
				require.Equal(t, serial.Reservation{Series: s.prefix + ":IS", Period: label, Calendar: scheme.Calendar(),
					Print: scheme.PrintMark(), Above: r.Above, N: r.N}, r)
				reserved = append(reserved, fmt.Sprintf("%d+%d", r.Above, r.N))
			}
			if row.reserved != "" {
				require.Equal(t, row.reserved, strings.Join(reserved, ", "))
			}
			for _, key := range s.keys() {
				require.NotEqual(t, time.Duration(-1), s.rdb.PTTL(t.Context(), key).Val(), "%s has no expiry", key)
			}
		}, append(row.opts, ledger)...)
	}

	var answer func() (int64, error)
	b.run(t, "the ledger is down, or returns what it must not", func(t *testing.T, s *series) {
		answer = func() (int64, error) { return 0, nil }
		s.next(s.gen, 1)
		answer = func() (int64, error) { return 0, errBoom }
		s.steps(map[string]*serial.Generator{"gen": s.gen},
			"gen next = 2, gen next = 3, gen next = boom, gen next 5 = boom, gen raise 50 = boom")
		require.ErrorIs(t, errOf(s.gen.Next(t.Context(), "NEW")), errBoom)
		answer = func() (int64, error) { panic("ledger") }
		require.PanicsWithValue(t, "ledger", func() { _, _ = s.gen.Next(t.Context(), "IS") })
		require.NotContains(t, s.keys(), s.counter+":lock")
		for _, wrong := range []int64{-1, 2, 1e15 - 3} {
			answer = func() (int64, error) { return wrong, nil }
			require.ErrorContains(t, errOf(s.gen.Next(t.Context(), "IS")),
				fmt.Sprintf("returned %d: want 3 to 999999999999996", wrong))
		}
		answer = func() (int64, error) { return 3, nil }
		s.next(s.gen, 4)
	}, serial.WithLedger(ledgerFunc(func(context.Context) (int64, error) { return answer() }), 3))
}

// Redis restarts empty after the settings of a series were changed. The ledger still has the settings, so no printed
// number must be printed again. See docs/guarantees.md, "How a ledger keeps its word".
// Guarantees: settings-kept.
func TestLedgerKeepsSettings(t *testing.T) {
	dated := serial.WithTemplate("{type}{date:yyyyMMdd}{seq:6}")
	hidden := func(key string) []serial.Option { return options(dated, serial.WithHiddenSequence([]byte(key))) }
	for says, row := range map[string]struct{ old, changed []serial.Option }{
		`"months" in the ledger and "days" here`: {options(dated, serial.WithPeriod(serial.PerMonth)), options(dated)},
		"check digit or key":                     {hidden("an example's key"), hidden("another's secret")},
	} {
		m, rdb := startMini(t)
		common := append(ledgerIf(true, 10), serial.WithLocation(noon()))
		old := newGenerator(t, rdb, append(row.old, common...)...)
		changed := newGenerator(t, rdb, append(row.changed, common...)...)
		requireSeq(t, 1)(old.NextNumber(t.Context(), "IS"))
		m.FlushAll()
		for _, err := range []error{
			errOf(changed.Next(t.Context(), "IS")),
			errOf(changed.NextOnce(t.Context(), "IS", "order 1")),
			changed.Raise(t.Context(), "IS", 0),
			changed.Takeover(t.Context(), "IS", 0),
		} {
			require.ErrorIs(t, err, serial.ErrConflict)
			require.ErrorContains(t, err, says)
		}
		m.FlushAll()
		requireSeq(t, 11)(old.NextNumber(t.Context(), "IS"))
	}
}

// The process is suspended, or Redis loses its data, between the reservation of a block and its installation. Only this
// block must be lost. After a suspension, the call must fail.
// Guarantees: late-block.
func TestLateBlock(t *testing.T) {
	for name, happen := range map[string]func(m *simulation){
		"a pause":            func(*simulation) { time.Sleep(lockExpiry + time.Second) },
		"a restart":          func(m *simulation) { memory.AddReplicationID(m.Miniredis)() },
		"everything is lost": func(m *simulation) { m.FlushAll() },
	} {
		runInBubble(t, name, func(t *testing.T, m *simulation) {
			armed := false
			gen := newGenerator(t, m.Client(around(func(cmd redis.Cmder, send func() error) error {
				if armed && stepOf(cmd) == "open" {
					armed = false
					happen(m)
				}
				return send()
			})), serial.WithLocation(time.UTC), serial.WithLedger(new(serialtest.Ledger), 5))
			require.NoError(t, errOf(gen.NextN(t.Context(), "IS", 5)))
			armed = true
			if name == "a pause" {
				require.Error(t, errOf(gen.Next(t.Context(), "IS")))
				time.Sleep(lockExpiry)
			}
			for seq := range int64(8) {
				requireSeq(t, 11+seq, "6 to 10 are dropped")(gen.NextNumber(t.Context(), "IS"))
			}
		})
	}
}

// A Redis does not report its replication ID, and the generator has a ledger. The first call must fail, and its error
// must contain the cause.
func TestReplicationIDRefused(t *testing.T) {
	const says = "WithLedger needs INFO replication in scripts"
	m := miniredis.RunT(t) // has no such section
	rdb := closing(t, redis.NewClient(&redis.Options{Addr: m.Addr()}))
	gen := newGenerator(t, rdb, serial.WithLocation(noon()), serial.WithLedger(new(serialtest.Ledger), 10))
	require.ErrorContains(t, errOf(gen.Next(t.Context(), "IS")), says)
	require.ErrorContains(t, gen.Raise(t.Context(), "IS", 3), says)
	require.Empty(t, m.Keys())
}

// A client is connected to a writable replica, which has the same replication ID as its master. Calls must fail,
// because with a ledger, both servers would issue the same numbers.
// Guarantees: writable-replica.
func TestWritableReplicaRefused(t *testing.T) {
	t.Parallel()
	master := redistest.Start(t)
	replica := redistest.StartReplica(t, master, "--replica-read-only", "no")
	l := new(serialtest.Ledger)
	on := func(s *redistest.Server) *serial.Generator {
		return newGenerator(t, s.Client(t), serial.WithLocation(noon()), serial.WithLedger(l, 10))
	}
	require.NoError(t, errOf(on(master).Next(t.Context(), "IS")))
	require.EqualValues(t, 1, master.Do("WAIT", 1, 5000).Val()) // the replica has everything
	_, err := on(replica).Next(t.Context(), "IS")
	require.ErrorContains(t, err, "WithLedger needs a master, and this server is a replica of "+master.Addr())
	require.ErrorContains(t, on(replica).Raise(t.Context(), "IS", 5), "WithLedger needs a master")
	requireResult(t, "IS"+today(noon())+"0002")(on(master).Next(t.Context(), "IS"))
	require.NoError(t, replica.ReplicaOf(nil))
	requireResult(t, "IS"+today(noon())+"0011", "a new master reserves its own")(on(replica).Next(t.Context(), "IS"))
}
