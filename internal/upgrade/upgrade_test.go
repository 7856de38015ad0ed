// Package upgrade_test runs this version beside release 0.5.0, which it builds from the repository's history.
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
	"slices"
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

// release is the subject of the commit to build.
const release = "all: release 0.5.0"

// program is the source of a process of the release. It makes the calls that it reads from stdin, and prints the
// results.
const program = `package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial"
)

type ledger struct{ rdb *redis.Client }

func (l ledger) Reserve(ctx context.Context, r serial.Reservation) (int64, error) {
	return l.rdb.Eval(ctx, reserve, []string{"ledger:" + r.Series + r.Period}, r.Above, r.N).Int64()
}

const reserve = ` + "`" + reserve + "`" + `

func main() {
	var addr, start, kind string
	fmt.Sscan(os.Args[1], &addr)
	fmt.Sscan(os.Args[2], &start)
	fmt.Sscan(os.Args[3], &kind)
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	opts := []serial.Option{serial.WithLocation(time.UTC), serial.WithMaxSkew(-1), serial.WithRetention(9)}
	if start != "1" {
		var n int64
		fmt.Sscan(start, &n)
		opts = append(opts, serial.WithStart(n))
	}
	if kind == "ledger" {
		opts = append(opts, serial.WithLedger(ledger{rdb}, 5))
	}
	gen, err := serial.New(rdb, opts...)
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var call string
		var n int
		fmt.Sscan(lines.Text(), &call, &n)
		var text string
		var err error
		switch call {
		case "next":
			text, err = gen.Next(ctx, "IS")
		case "once":
			var number serial.Number
			number, err = gen.NextOnce(ctx, "IS", fmt.Sprint("id", n))
			text = number.String()
		case "prepare":
			err = gen.Prepare(ctx, "IS", n)
		case "raise":
			err = gen.Raise(ctx, "IS", int64(n))
		}
		if err != nil {
			text = "error: " + err.Error()
		}
		fmt.Println(text)
	}
}
`

// reserve is a ledger in Redis: a hash would do as well, but this test needs one that processes share.
const reserve = `
local last = math.max(tonumber(redis.call('GET', KEYS[1]) or '0'), tonumber(ARGV[1]))
redis.call('SET', KEYS[1], string.format('%.0f', last + ARGV[2]))
return last`

// built is the folder of the program, "" before it is built.
var built string

// build builds the program, once.
var build = sync.OnceValues(func() (binary string, err error) {
	run := func(dir, name string, args ...string) ([]byte, error) {
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		out, err := cmd.Output()
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			err = fmt.Errorf("%s %v: %w\n%s", name, args, err, exit.Stderr)
		}
		return out, err
	}
	commit, err := run("../..", "git", "log", "-1", "--format=%H", "--grep=^"+release+"$")
	if err != nil || len(commit) == 0 {
		return "", fmt.Errorf("the history has no commit %q: %w", release, err)
	}
	dir, err := os.MkdirTemp("", "serial-upgrade")
	if err != nil {
		return "", err
	}
	built = dir
	archive := filepath.Join(dir, "release.tar")
	if _, err = run("../..", "git", "archive", "-o", archive, strings.TrimSpace(string(commit))); err != nil {
		return "", err
	}
	if _, err = run(dir, "tar", "-xf", archive); err != nil {
		return "", err
	}
	if err = os.MkdirAll(filepath.Join(dir, "cmd/old"), 0o755); err != nil {
		return "", err
	}
	if err = os.WriteFile(filepath.Join(dir, "cmd/old/main.go"), []byte(program), 0o600); err != nil {
		return "", err
	}
	binary = filepath.Join(dir, "old.exe") // Windows runs nothing without this ending
	_, err = run(dir, "go", "build", "-o", binary, "./cmd/old")
	return binary, err
})

func TestMain(m *testing.M) {
	status := m.Run()
	_ = os.RemoveAll(built)
	os.Exit(status)
}

// An old process runs the release.
type old struct {
	t     *testing.T
	in    io.WriteCloser
	out   *bufio.Scanner
	calls sync.Mutex
}

// newOld starts a process of the release, whose periods begin at start. kind is "plain" or "ledger".
func newOld(t *testing.T, addr string, start int64, kind string) *old {
	if testing.Short() {
		t.Skip("the release is not built with -short")
	}
	binary, err := build()
	if err != nil && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	require.NoError(t, err)
	cmd := exec.Command(binary, addr, fmt.Sprint(start), kind)
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
	return &old{t: t, in: in, out: bufio.NewScanner(out)}
}

// call makes a call in the old process, and returns the number or "error: …".
func (o *old) call(call string, n int) string {
	o.calls.Lock()
	defer o.calls.Unlock()
	_, err := fmt.Fprintln(o.in, call, n)
	require.NoError(o.t, err)
	require.True(o.t, o.out.Scan())
	return o.out.Text()
}

// A ledger is the same one as the old process has.
type ledger struct{ rdb *redis.Client }

func (l ledger) Reserve(ctx context.Context, r serial.Reservation) (int64, error) {
	return l.rdb.Eval(ctx, reserve, []string{"ledger:" + r.Series + r.Period}, r.Above, r.N).Int64()
}

// A stage is a server with a clock, an old process and a generator of this version.
type stage struct {
	*miniredis.Miniredis
	t   *testing.T
	rdb *redis.Client
	old *old
	gen *serial.Generator
}

// newStage returns a stage at noon on 24 October 2021, in UTC.
func newStage(t *testing.T, start int64, kind string) *stage {
	m := miniredis.RunT(t)
	memory.AddReplicationID(m)
	s := &stage{Miniredis: m, t: t, rdb: redis.NewClient(&redis.Options{Addr: m.Addr()})}
	t.Cleanup(func() { _ = s.rdb.Close() })
	s.at(24, 12)
	s.old, s.gen = newOld(t, m.Addr(), start, kind), s.generator(start, kind)
	return s
}

func (s *stage) generator(start int64, kind string) *serial.Generator {
	opts := []serial.Option{serial.WithLocation(time.UTC), serial.WithMaxSkew(-1), serial.WithRetention(9),
		serial.WithStart(start)}
	if kind == "ledger" {
		opts = append(opts, serial.WithLedger(ledger{s.rdb}, 5))
	}
	gen, err := serial.New(s.rdb, opts...)
	require.NoError(s.t, err)
	return gen
}

// at sets the server's clock to an hour of a day in October 2021.
func (s *stage) at(day, hour int) {
	s.SetTime(time.Date(2021, 10, day, hour, 0, 0, 0, time.UTC))
}

// next requires the next number of this version.
func (s *stage) next(want string) {
	s.t.Helper()
	got, err := s.gen.Next(s.t.Context(), "IS")
	require.NoError(s.t, err)
	require.Equal(s.t, want, got)
}

// refuses requires that the old process is refused.
func (s *stage) refuses() {
	s.t.Helper()
	require.Contains(s.t, s.old.call("next", 0), "conflicting period")
}

// The first number of this version takes the record over. From then on, the old process is refused. Reading does not
// take it over.
func TestTakeOverARecord(t *testing.T) {
	s, ctx := newStage(t, 1, "plain"), t.Context()
	require.Equal(t, "IS202110240001", s.old.call("next", 0))
	require.Equal(t, "IS202110240002", s.old.call("once", 7))
	last, err := s.gen.Peek(ctx, "IS")
	require.NoError(t, err)
	require.Equal(t, "IS202110240002", last.String())
	_, err = s.gen.History(ctx, "IS", 3)
	require.NoError(t, err)
	require.Equal(t, "IS202110240003", s.old.call("next", 0))
	s.next("IS202110240004")
	s.refuses()
	require.Contains(t, s.old.call("raise", 50), "conflicting period")
	s.next("IS202110240005")
	n, err := s.gen.NextOnce(ctx, "IS", "id7")
	require.NoError(t, err)
	require.Equal(t, "IS202110240002", n.String(), "a stored answer stays")
	require.Empty(t, s.HGet("serial:{IS}", "used"))
}

// The way back: without the record, the old process adopts the counter, and repeats an answer of this version.
func TestGoBack(t *testing.T) {
	s, ctx := newStage(t, 1, "plain"), t.Context()
	s.next("IS202110240001")
	n, err := s.gen.NextOnce(ctx, "IS", "id7")
	require.NoError(t, err)
	require.Equal(t, "IS202110240002", n.String())
	s.refuses()
	require.True(t, s.Del("serial:{IS}"))
	require.Equal(t, "IS202110240003", s.old.call("next", 0))
	require.Equal(t, "IS202110240002", s.old.call("once", 7))
}

// Both versions run at once: no number comes twice, and this version has no errors.
func TestBothAtOnce(t *testing.T) {
	for _, kind := range []string{"plain", "ledger"} {
		t.Run(kind, func(t *testing.T) {
			s := newStage(t, 1, kind)
			olds := []*old{s.old, newOld(t, s.Addr(), 1, kind)}
			gens := []*serial.Generator{s.gen, s.generator(1, kind)}
			require.Equal(t, "IS202110240001", s.old.call("next", 0))
			var mu sync.Mutex
			got := map[string]int{"IS202110240001": 1}
			note := func(number string) {
				mu.Lock()
				defer mu.Unlock()
				got[number]++
			}
			var wg sync.WaitGroup
			for _, o := range olds {
				wg.Go(func() {
					for range 200 {
						if number := o.call("next", 0); !strings.HasPrefix(number, "error: ") {
							note(number)
						}
					}
				})
			}
			for i, gen := range gens {
				wg.Go(func() {
					time.Sleep(time.Duration(i+1) * 5 * time.Millisecond)
					for range 200 {
						number, err := gen.Next(t.Context(), "IS")
						require.NoError(t, err)
						note(number)
					}
				})
			}
			wg.Wait()
			for number, n := range got {
				require.Equal(t, 1, n, number)
			}
			s.refuses()
		})
	}
}

// Periods that the old process prepared are entered. After the next one, they are new and continue at their counters.
func TestPreparedByTheRelease(t *testing.T) {
	s := newStage(t, 1, "plain")
	require.Empty(t, s.old.call("prepare", 4))
	require.Equal(t, "IS202110240001", s.old.call("next", 0))
	s.next("IS202110240002")
	for day := 25; day <= 28; day++ {
		s.at(day, 1)
		s.next(fmt.Sprintf("IS202110%d0001", day))
	}
}

// A start that the old process used belongs to its period.
func TestStartOfTheRelease(t *testing.T) {
	s := newStage(t, 1000, "plain")
	s.gen = s.generator(1, "plain")
	require.Empty(t, s.old.call("prepare", 2))
	last, err := s.gen.Peek(t.Context(), "IS")
	require.NoError(t, err)
	require.Zero(t, last.Seq)
	require.Equal(t, "IS202110241000", s.old.call("next", 0))
	s.next("IS202110241001")
	used := slices.Values([]string{"IS202110241000", "IS202110241001"})
	report, err := s.gen.Audit(t.Context(), "IS", serial.On(2021, time.October, 24), func(yield func(string, error) bool) {
		used(func(text string) bool { return yield(text, nil) })
	})
	require.NoError(t, err)
	require.True(t, report.Clean(), report)
	s.at(25, 1)
	s.next("IS202110251000")
	s.at(26, 1)
	s.next("IS202110260001")
}

// Labels that the old process used while the clock was ahead may have been used.
func TestClockThatWasAhead(t *testing.T) {
	s := newStage(t, 1, "plain")
	for _, day := range []int{24, 26, 27} {
		s.at(day, 12)
		require.Equal(t, fmt.Sprintf("IS202110%d0001", day), s.old.call("next", 0))
	}
	s.at(25, 12) // the clock is right again
	require.Contains(t, s.old.call("next", 0), "clock skew")
	_, err := s.gen.Next(t.Context(), "IS")
	require.ErrorIs(t, err, serial.ErrClockSkew)
	require.Empty(t, s.old.call("raise", 0))
	require.Equal(t, "IS202110250001", s.old.call("next", 0))
	s.next("IS202110250002")
	s.at(26, 12)
	s.next("IS202110260002")
	s.Del("serial:{IS}:20211027")
	s.at(27, 12)
	_, err = s.gen.Next(t.Context(), "IS")
	require.ErrorIs(t, err, serial.ErrCounterLost)
	s.at(28, 12)
	s.next("IS202110280001")
}

// A block of the old process's ledger stays in use.
func TestLedgerOfTheRelease(t *testing.T) {
	s := newStage(t, 1, "ledger")
	for want := 1; want <= 3; want++ {
		require.Equal(t, fmt.Sprintf("IS20211024%04d", want), s.old.call("next", 0))
	}
	for want := 4; want <= 12; want++ {
		s.next(fmt.Sprintf("IS20211024%04d", want))
	}
	require.Equal(t, "15", s.HGet("serial:{IS}", "ceiling"))
	without := s.generator(1, "plain")
	_, err := without.Next(t.Context(), "IS")
	require.ErrorIs(t, err, serial.ErrConflict)
}
