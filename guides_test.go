package serial_test

import (
	"context"
	"crypto/sha1"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/race"
	"github.com/dailyserial/serial/internal/redistest"
)

// guide returns the text of a guide in docs/. The code of transactions.md and migrating.md is tested in
// examples/guides.
func guide(t *testing.T, name string) string {
	t.Helper()
	return unix(t, filepath.Join("docs", name))
}

// Every error that operators may meet has an entry in the runbook, with the same four rows.
func TestRunbookHasEveryError(t *testing.T) {
	source := unix(t, "errors.go")
	text := guide(t, "errors.md")
	for _, sentinel := range regexp.MustCompile(`(?m)^\t(Err\w+) += errors\.New`).FindAllStringSubmatch(source, -1) {
		require.Contains(t, text, "\n## "+sentinel[1]+"\n")
	}
	for _, entry := range strings.Split(text, "\n## ")[1:] {
		name, _, _ := strings.Cut(entry, "\n")
		for _, row := range []string{"means", "look at", "ends it", "never"} {
			require.Contains(t, entry, "\n| "+row+" | ", name)
		}
	}
}

// The runbook's command ends the errors that it is said to end.
func TestRunbookCommand(t *testing.T) {
	zone := noon()
	command := regexp.MustCompile(`(?m)^    serial (raise .* IS 340)$`).FindStringSubmatch(guide(t, "errors.md"))
	require.NotNil(t, command)
	binary := buildCommand(t)
	run := func(t *testing.T, addr string) {
		t.Helper()
		_, offset := time.Now().In(zone).Zone()
		name := fmt.Sprintf("Etc/GMT%+d", -offset/3600) // the sign of these zones is reversed
		args := strings.NewReplacer("localhost:6379", addr, "Asia/Shanghai", name).Replace(command[1])
		out, err := exec.Command(binary, strings.Fields(args)...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}

	t.Run("ErrCounterLost", func(t *testing.T) {
		server := redistest.Start(t)
		rdb := server.Client(t)
		gen := newGenerator(t, rdb, serial.WithLocation(zone))
		require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
		require.NoError(t, rdb.Del(t.Context(), "serial:{IS}:"+today(zone)).Err())
		require.ErrorIs(t, errOf(gen.Next(t.Context(), "IS")), serial.ErrCounterLost)
		run(t, server.Addr())
		requireResult(t, "IS"+today(zone)+"0341")(gen.Next(t.Context(), "IS"))
	})
	t.Run("ErrClockSkew", func(t *testing.T) {
		m, rdb := startMini(t)
		m.SetTime(time.Now().Add(48 * time.Hour))
		ahead := newGenerator(t, rdb, serial.WithLocation(zone), serial.WithMaxSkew(-1))
		require.NoError(t, errOf(ahead.Next(t.Context(), "IS")))
		m.SetTime(time.Time{})
		gen := newGenerator(t, rdb, serial.WithLocation(zone))
		require.ErrorIs(t, errOf(gen.Next(t.Context(), "IS")), serial.ErrClockSkew)
		run(t, m.Addr())
		requireResult(t, "IS"+today(zone)+"0341")(gen.Next(t.Context(), "IS"))
	})
}

// The code in hidden-volume.md runs as it stands there, and numbers of both keys are read.
func TestHiddenVolumeGuide(t *testing.T) {
	t.Parallel()
	text := guide(t, "hidden-volume.md")
	block := func(first string) string {
		_, rest, found := strings.Cut(text, "\n    "+first)
		require.True(t, found, first)
		code, _, _ := strings.Cut(first+rest, "\n\n")
		return strings.ReplaceAll(code, "\n    ", "\n")
	}
	issue, decode, read := block("gen, err := serial.New(rdb,"), block("key, err := hex.DecodeString"),
		block("n, err := old.Parse(number)")
	requireRuns(t, fmt.Sprintf(hiddenVolumeProgram, decode, issue, read),
		"SERIAL_HIDDEN_KEY="+strings.Repeat("0123456789abcdef", 4))
}

const hiddenVolumeProgram = `package main

import (
	"context"
	"encoding/hex"
	"log"
	"os"
	"regexp"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial"
)

func main() {
	m := miniredis.NewMiniRedis()
	if err := m.Start(); err != nil {
		log.Fatal(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	ctx := context.Background()
	%s
	check(err)
	%s
	check(err)
	if !regexp.MustCompile("^ORD[0-9]{14}$").MatchString(no) {
		log.Fatal(no)
	}
	if n, err := gen.Parse(no); err != nil || n.Seq != 1 {
		log.Fatal(n, err)
	}

	scheme := func(key string) *serial.Scheme {
		s, err := serial.NewScheme(serial.WithLocation(time.UTC), serial.WithTemplate("{type}{date:yyyyMMdd}{seq:6}"),
			serial.WithHiddenSequence([]byte(key)))
		check(err)
		return s
	}
	old, current := scheme("the key of 2024."), scheme("the key of 2025.")
	rotated := time.Date(2025, time.January, 1, 0, 0, 0, 0, time.UTC)
	for s, day := range map[*serial.Scheme]time.Time{old: rotated.Add(-time.Second), current: rotated} {
		for seq := range int64(2000) {
			printed, err := s.Number("ORD", day, seq+1)
			check(err)
			if n, err := parse(printed.String(), old, current, rotated); err != nil || n.Seq != seq+1 {
				log.Fatal(printed, n.Seq, err)
			}
		}
	}
}

func parse(number string, old, current *serial.Scheme, rotated time.Time) (serial.Number, error) {
	%s
	return n, err
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
`

// What operations.md says of Redis's memory holds on a real server.
func TestCapacity(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	gen := newGenerator(t, rdb, serial.WithLocation(noon()))
	const id = "3f2504e0-4f89-41d3-9a0c-0305e82c3301"
	require.NoError(t, errOf(gen.NextOnce(t.Context(), "IS", id)))
	used := func(key string) int64 {
		n, err := rdb.MemoryUsage(t.Context(), key).Result()
		require.NoError(t, err)
		return n
	}
	require.Less(t, used("serial:{IS}:once:"+id), int64(300))
	require.Less(t, used("serial:{IS}")+used("serial:{IS}:"+today(noon())), int64(400))
}

// What operations.md says of this process's memory holds for 100,000 types: the heap after a collection, less what it
// was before.
func TestCapacityOfProcess(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector needs memory of its own, and cannot tell so many goroutines apart")
	}
	heap := func() int64 {
		runtime.GC()
		runtime.GC() // pools need two
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	rdb := closing(t, redis.NewClient(&redis.Options{}))
	rdb.AddHook(around(func(cmd redis.Cmder, _ func() error) error { // nothing is sent
		cmd.(interface{ SetVal(any) }).SetVal(int64(1))
		return nil
	}))
	for _, row := range []struct {
		name  string
		bytes float64 // per type
	}{{"T%05d", 200}, {"tenant-%06d/invoices", 260}, {"%064d", 400}} {
		gen := newGenerator(t, rdb, serial.WithLocation(time.UTC))
		names := make([]string, 100_000)
		for i := range names {
			names[i] = fmt.Sprintf(row.name, i)
		}
		before := heap()
		for _, name := range names {
			require.NoError(t, errOf(gen.Next(t.Context(), name)))
		}
		require.InEpsilon(t, row.bytes, float64(heap()-before)/float64(len(names)), 0.1, row.name)
		require.Equal(t, len(names), gen.Remembered())
		runtime.KeepAlive(names)
	}
}

// anchors returns the fragments that the headings of a file have on GitHub.
func anchors(t *testing.T, file string) (all []string) {
	t.Helper()
	for _, heading := range regexp.MustCompile(`(?m)^##+ (.*)$`).FindAllStringSubmatch(unix(t, file), -1) {
		kept := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(heading[1]), "")
		all = append(all, strings.ReplaceAll(kept, " ", "-"))
	}
	return all
}

// Each call sends what the table of call paths in docs/design.md says, in that many round trips.
func TestCallPaths(t *testing.T) {
	page := guide(t, "design.md")
	ctx := context.Background()
	next := func(gen *serial.Generator, typ string) error { return errOf(gen.Next(ctx, typ)) }
	nextN := func(gen *serial.Generator, typ string) error { return errOf(gen.NextN(ctx, typ, 2)) }
	once := func(gen *serial.Generator, typ string) error { return errOf(gen.NextOnce(ctx, typ, "request")) }
	prepare := func(gen *serial.Generator, typ string) error { return gen.Prepare(ctx, typ, 2) }
	raise := func(gen *serial.Generator, typ string) error { return gen.Raise(ctx, typ, 7) }
	takeover := func(gen *serial.Generator, typ string) error { return gen.Takeover(ctx, typ, 7) }
	peek := func(gen *serial.Generator, typ string) error { return errOf(gen.Peek(ctx, typ)) }
	history := func(gen *serial.Generator, typ string) error { return errOf(gen.History(ctx, typ, 2)) }
	audit := func(gen *serial.Generator, typ string) error {
		return errOf(gen.Audit(ctx, typ, time.Now(), func(func(string, error) bool) {}))
	}
	midnight := func(*serial.Generator, string) error { time.Sleep(24 * time.Hour); return nil }
	type calls []func(gen *serial.Generator, typ string) error
	seconds := options(serial.WithPeriod(serial.PerSecond), serial.WithTemplate("{type}{date:yyyyMMddHHmmss}{seq:4}"))
	rows := map[string]bool{}
	var wrong []string
	for _, test := range []struct {
		name  string
		opts  []serial.Option
		calls calls // of which the last one is measured
	}{
		{"a number of an open period", nil, calls{next, next}},
		{"a number of an open period", nil, calls{next, nextN}},
		{"a number of an open period", nil, calls{next, once}},
		{"a number of an open period", ledgerIf(true, 10), calls{next, next}},
		{"the first number of a prepared period", nil, calls{prepare, midnight, next}},
		{"the first number of a period", nil, calls{next}},
		{"the first number of a period", nil, calls{nextN}},
		{"the first number of a period", nil, calls{once}},
		{"the same with a floor or a ledger", options(fixedFloor(0)), calls{next}},
		{"the same with a floor or a ledger", ledgerIf(true, 10), calls{next}},
		{"the same with `PerSecond`", seconds, calls{next}},
		{"a number beyond a ledger's block", ledgerIf(true, 1), calls{next, next}},
		{"`Raise` and `Takeover`", nil, calls{next, raise}},
		{"`Raise` and `Takeover`", nil, calls{raise}},
		{"`Raise` and `Takeover`", nil, calls{takeover}},
		{"`Raise` and `Takeover` with a ledger", ledgerIf(true, 10), calls{next, raise}},
		{"`Prepare` of the next period", nil, calls{next, prepare}},
		{"`Prepare` with a floor", options(fixedFloor(0)), calls{next, prepare}},
		{"`Peek`", nil, calls{next, peek}},
		{"`History`", nil, calls{next, history}},
		{"`Audit`", nil, calls{next, audit}},
	} {
		rows[test.name] = true
		inBubble(t, func(t *testing.T, m *simulation) {
			var sent []string
			gen := newGenerator(t, m.client(sentTo(&sent)), append(test.opts, serial.WithLocation(time.UTC))...)
			var trips time.Duration
			for _, typ := range []string{"OTHER", "IS"} { // for the second one, the server has the scripts
				for _, call := range test.calls {
					sent = nil
					began := time.Now()
					require.NoError(t, call(gen, typ))
					trips = time.Since(began) / time.Millisecond
				}
			}
			row := fmt.Sprintf("| %s | %s | %d |", test.name, strings.Join(sent, ", "), trips)
			if !strings.Contains(page, "\n"+row+"\n") {
				wrong = append(wrong, row)
			}
		})
	}
	require.Empty(t, wrong, "what was measured, and is not in the table")
	_, table, _ := strings.Cut(page, "\n| call | ")
	table, _, _ = strings.Cut(table, "\n\n")
	require.Len(t, rows, strings.Count(table, "\n| ")-1, "every row is tested")
}

// sentTo adds the names of commands to sent: of scripts, those in the first line of their source. Each takes a
// millisecond.
func sentTo(sent *[]string) hook {
	scripts := map[any]string{} // by digest
	return around(func(cmd redis.Cmder, send func() error) error {
		if cmd.Name() == "hello" { // on a new connection
			return send()
		}
		name := map[string]string{"set": "lock", "eval": "unlock"}[cmd.Name()]
		if args := cmd.Args(); cmd.Name() == "evalsha" {
			name = scripts[args[1]]
		} else if source, isOurs := strings.CutPrefix(fmt.Sprint(args[1]), "-- "); isOurs {
			name, _, _ = strings.Cut(source, ":")
			scripts[fmt.Sprintf("%x", sha1.Sum([]byte("-- "+source)))] = name
		}
		*sent = append(*sent, name)
		time.Sleep(time.Millisecond)
		return send()
	})
}
