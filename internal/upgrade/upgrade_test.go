// Package upgrade_test runs this version together with release 0.5.0, which it builds from the repository's history.
package upgrade_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/redistest/memory"
)

// build builds a process of the release in a folder. Its source is testdata/old.go.
func build(dir string) (binary string, err error) {
	run := func(dir, name string, args ...string) string {
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		out, e := cmd.CombinedOutput()
		if e != nil {
			err = errors.Join(err, fmt.Errorf("%s %v: %w\n%s", name, args, e, out))
		}
		return strings.TrimSpace(string(out))
	}
	commit := run("../..", "git", "log", "-1", "--format=%H", "--grep=^all: release 0.5.0$")
	archive, binary := filepath.Join(dir, "release.tar"), filepath.Join(dir, "old.exe") // Windows needs this ending
	run("../..", "git", "archive", "-o", archive, commit)
	run(dir, "tar", "-xf", archive)
	source, e := os.ReadFile("testdata/old.go")
	folder := filepath.Join(dir, "cmd", "old")
	if err = errors.Join(err, e, os.MkdirAll(folder, 0o755), os.WriteFile(filepath.Join(folder, "main.go"), source,
		0o600)); err == nil {
		run(dir, "go", "build", "-o", binary, "./cmd/old")
	}
	return binary, err
}

var built struct {
	once   sync.Once
	dir    string
	binary string
	err    error
}

func TestMain(m *testing.M) {
	status := m.Run()
	_ = os.RemoveAll(built.dir)
	os.Exit(status)
}

// An old process runs the release.
type old struct {
	in  io.Writer
	out *bufio.Scanner
}

// startOld starts a process of the release whose periods begin at start.
func startOld(t *testing.T, addr string, start int64, withLedger bool) *old {
	if testing.Short() {
		t.Skip("the release is not built with -short")
	}
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "serial-upgrade"); built.err == nil {
			built.binary, built.err = build(built.dir)
		}
	})
	if built.err != nil && os.Getenv("CI") == "" {
		t.Skip(built.err)
	}
	require.NoError(t, built.err)
	cmd := exec.Command(built.binary, addr, fmt.Sprint(start), fmt.Sprint(withLedger))
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	return &old{in, bufio.NewScanner(out)}
}

// call makes a call in the old process, and returns the number or "error: …".
func (o *old) call(call string) string {
	_, _ = fmt.Fprintln(o.in, call)
	o.out.Scan()
	return o.out.Text()
}

// A ledger is the one of the old process.
type ledger struct{ rdb *redis.Client }

func (l ledger) Reserve(ctx context.Context, r serial.Reservation) (int64, error) {
	return l.rdb.Eval(ctx, `local last = math.max(tonumber(redis.call('GET', KEYS[1]) or '0'), tonumber(ARGV[1]))
redis.call('SET', KEYS[1], string.format('%.0f', last + ARGV[2]))
return last`, []string{"ledger:" + r.Series + r.Period}, r.Above, r.N).Int64()
}

// newGenerator returns a generator of this version, like that of an old process.
func newGenerator(t *testing.T, addr string, start int64, withLedger bool) *serial.Generator {
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = rdb.Close() })
	opts := []serial.Option{serial.WithLocation(time.UTC), serial.WithMaxSkew(-1), serial.WithRetention(9),
		serial.WithStart(start)}
	if withLedger {
		opts = append(opts, serial.WithLedger(ledger{rdb}, 5))
	}
	gen, err := serial.New(rdb, opts...)
	require.NoError(t, err)
	return gen
}

// call makes a call in this version, and returns the number or "error: …".
func call(ctx context.Context, gen *serial.Generator, line string) (result string) {
	var what string
	var number serial.Number
	var n int64
	_, _ = fmt.Sscan(line, &what, &n)
	var err error
	switch what {
	case "next":
		number, err = gen.NextNumber(ctx, "IS")
	case "once":
		number, err = gen.NextOnce(ctx, "IS", fmt.Sprint("id", n))
	case "peek":
		number, err = gen.Peek(ctx, "IS")
	case "history":
		_, err = gen.History(ctx, "IS", int(n))
	}
	if err != nil {
		return "error: " + err.Error()
	}
	return number.String()
}

// startServer starts a Redis in memory at noon on 24 October 2021, in UTC.
func startServer(t *testing.T) *miniredis.Miniredis {
	m := miniredis.RunT(t)
	memory.AddReplicationID(m)
	m.SetTime(time.Date(2021, 10, 24, 12, 0, 0, 0, time.UTC))
	return m
}

// A process of the release and one of this version make calls in turn. The release writes the record, and this version
// takes it over with the first number that it issues. The result of a step is a number, a part of an error, or nothing.
func TestUpgrade(t *testing.T) {
	for name, c := range map[string]struct {
		start      int64 // of the old process
		withLedger bool
		steps      string
	}{
		"only numbers take a record over": {1, false, "old next = IS202110240001, old once 7 = IS202110240002, " +
			"new peek = IS202110240002, new history 3, old next = IS202110240003, new next = IS202110240004, " +
			"old next = conflicting period, old raise 50 = conflicting period, new next = IS202110240005, " +
			"new once 7 = IS202110240002"},
		"without the record, the release adopts the counter": {1, false, "new next = IS202110240001, " +
			"new once 7 = IS202110240002, old next = conflicting period, delete serial:{IS}, old next = IS202110240003, " +
			"old once 7 = IS202110240002"},
		"prepared periods are entered": {1, false, "old prepare 4, old next = IS202110240001, new next = IS202110240002, " +
			"day 25, new next = IS202110250001, day 26, new next = IS202110260001, day 27, new next = IS202110270001, " +
			"day 28, new next = IS202110280001"},
		"a start belongs to its period": {1000, false, "old prepare 2, new peek = IS202110240000, " +
			"old next = IS202110241000, new next = IS202110241001, audit, day 25, new next = IS202110251000, day 26, " +
			"new next = IS202110260001"},
		"labels of a clock that was ahead are doubtful": {1, false, "old next = IS202110240001, day 26, " +
			"old next = IS202110260001, day 27, old next = IS202110270001, day 25, old next = clock skew, " +
			"new next = clock skew, old raise 0, old next = IS202110250001, new next = IS202110250002, day 26, " +
			"new next = IS202110260002, delete serial:{IS}:20211027, day 27, new next = counter lost, day 28, " +
			"new next = IS202110280001"},
		"a block stays in use": {1, true, "old next = IS202110240001, old next = IS202110240002, " +
			"old next = IS202110240003, new next = IS202110240004, new next = IS202110240005, new next = IS202110240006, " +
			"plain next = conflicting period"},
	} {
		t.Run(name, func(t *testing.T) {
			m := startServer(t)
			o := startOld(t, m.Addr(), c.start, c.withLedger)
			gens := map[string]*serial.Generator{"new": newGenerator(t, m.Addr(), 1, c.withLedger),
				"plain": newGenerator(t, m.Addr(), 1, false)}
			for step := range strings.SplitSeq(c.steps, ", ") {
				what, want, _ := strings.Cut(step, " = ")
				who, what, _ := strings.Cut(what, " ")
				got := ""
				switch who {
				case "old":
					got = o.call(what)
				case "delete":
					require.True(t, m.Del(what))
				case "day":
					day, err := time.Parse("20060102 15", "202110"+what+" 12")
					require.NoError(t, err)
					m.SetTime(day)
				case "audit":
					report, err := gens["new"].Audit(t.Context(), "IS", serial.On(2021, time.October, 24),
						func(yield func(string, error) bool) {
							_ = yield("IS202110241000", nil) && yield("IS202110241001", nil)
						})
					require.NoError(t, err)
					require.True(t, report.Clean(), report)
				default:
					got = call(t.Context(), gens[who], what)
				}
				if strings.HasPrefix(want, "IS") || want == "" {
					require.Equal(t, want, got, step)
				} else {
					require.Contains(t, got, want, step)
				}
			}
		})
	}
}

// Processes of both versions run at once: no number comes twice, and this version has no errors.
func TestBothAtOnce(t *testing.T) {
	for _, withLedger := range []bool{false, true} {
		t.Run(fmt.Sprintf("ledger %v", withLedger), func(t *testing.T) {
			m := startServer(t)
			first := startOld(t, m.Addr(), 1, withLedger)
			var mu sync.Mutex
			got := map[string]int{first.call("next"): 1}
			note := func(number string) {
				mu.Lock()
				defer mu.Unlock()
				got[number]++
			}
			var wg sync.WaitGroup
			for _, o := range []*old{first, startOld(t, m.Addr(), 1, withLedger)} {
				wg.Go(func() {
					for range 200 {
						if number := o.call("next"); !strings.HasPrefix(number, "error: ") {
							note(number)
						}
					}
				})
			}
			for i := range 2 {
				gen := newGenerator(t, m.Addr(), 1, withLedger)
				wg.Go(func() {
					time.Sleep(time.Duration(i+1) * 5 * time.Millisecond)
					for range 200 {
						note(call(t.Context(), gen, "next"))
					}
				})
			}
			wg.Wait()
			for number, n := range got {
				require.Equal(t, 1, n, number)
				require.Regexp(t, "^IS20211024", number)
			}
			require.Contains(t, first.call("next"), "conflicting period")
		})
	}
}
