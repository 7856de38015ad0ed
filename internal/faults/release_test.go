//go:build unix

package faults

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

// Processes of 0.1.0 and of today serve the same series at the same time. Those of 0.1.0 run what is built from its commit.
func TestReleases(t *testing.T) {
	t.Parallel()
	noon := 12 - time.Now().UTC().Hour() // hours from UTC to a zone where midnight is far away
	w := build(t, serverTopology, protection{}, false, noon*3600)
	old := buildRelease(t)
	today := filepath.Join(t.TempDir(), "serial")
	goTool(t, "../..", "build", "-o", today, "./cmd/serial")
	flags := []string{"-redis", "redis://" + w.master.Addr(), "-tz", fmt.Sprintf("Etc/GMT%+d", -noon)}
	commands := []command{{old.command, flags}, {today, flags}}

	for _, p := range []protection{{}, {Ledger: true}} {
		t.Run(fmt.Sprintf("workers, ledger %v", p.Ledger), func(t *testing.T) {
			t.Parallel()
			runReleases(t, old.worker, p)
		})
	}
	t.Run("requests", func(t *testing.T) { requestsOfReleases(t, w, commands) })
	t.Run("what 0.1.0 lacks", func(t *testing.T) { lackedByReleases(t, w, commands[0]) })
	t.Run("prepared", func(t *testing.T) { preparedByReleases(t, w, commands) })
	w.expiries("any fault")
}

// releasedCommit is that of 0.1.0.
const releasedCommit = "c4aff60bf140c472ce2ce16b741e546a9e30ca3d"

// A release has the paths of programs.
type release struct {
	worker  string // test binary of this package, with today's worker protocol
	command string // cmd/serial
}

// buildRelease builds 0.1.0 from the repository's history. Where that is missing, the test is skipped, or fails in CI.
func buildRelease(t *testing.T) release {
	t.Helper()
	dir := t.TempDir()
	tree := filepath.Join(dir, "tree")
	for _, args := range [][]string{
		{"cat-file", "-e", releasedCommit + "^{commit}"},
		{"read-tree", releasedCommit},
		{"checkout-index", "--all", "--prefix=" + tree + "/"},
	} {
		git := exec.Command("git", append([]string{"-C", "../.."}, args...)...)
		git.Env = append(os.Environ(), "GIT_INDEX_FILE="+filepath.Join(dir, "index"))
		if out, err := git.CombinedOutput(); err != nil {
			reason := fmt.Sprintf("no source of 0.1.0: git %s: %v: %s", args[0], err, out)
			if os.Getenv("SERIAL_REQUIRE_REDIS") == "1" {
				t.Fatal(reason)
			}
			t.Skip(reason)
		}
	}
	r := release{worker: filepath.Join(dir, "worker"), command: filepath.Join(dir, "serial")}
	// With -trimpath the result does not depend on the temporary directory, so Go's build cache has it the next time.
	goTool(t, tree, "test", "-c", "-trimpath", "-ldflags=-s -w", "-o", r.worker, "./internal/faults")
	goTool(t, tree, "build", "-trimpath", "-ldflags=-s -w", "-o", r.command, "./cmd/serial")
	return r
}

func goTool(t *testing.T, dir, verb string, args ...string) {
	t.Helper()
	cmd := exec.Command("go", append([]string{verb, "-buildvcs=false"}, args...)...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "go %s %v: %s", verb, args, out)
}

// runReleases has workers of both releases issue numbers across a midnight. First, a worker of each release dies while it
// holds a period's lock, and with a ledger the claim. Then others are stopped with the lock, stopped anywhere, and killed.
// With a ledger, Redis also loses everything.
func runReleases(t *testing.T, released string, p protection) {
	const day = 11 * time.Second // until midnight, longer than the 8 s that a dead worker's lock is left
	w := build(t, serverTopology, p, !p.Ledger, zoneOfMidnightIn(day))
	began, s := stamp(), &summary{struck: map[string]int{}}
	midnight := began + int64(day)
	f := &fleet{t: t, setting: w.setting, journal: w.journal, quitting: true} // no replacements yet
	w.fleet = f
	defer f.stop()
	old := map[int]bool{} // by worker: of 0.1.0
	add := func(program string) *ship {
		s := f.addFrom(program)
		old[s.number] = program == released
		return s
	}
	locks := func() int {
		keys, err := w.admin.Keys(t.Context(), "serial:*:lock").Result()
		require.NoError(t, err)
		return len(keys)
	}
	where, boundary := "open", 1 // after the lock's SET
	if p.Ledger {
		where, boundary = "reserve", 0 // with the claim, before the ledger is asked
	}
	for _, program := range []string{released, os.Args[0]} {
		for before := locks(); locks() == before; { // again if a dead worker had the lock already
			f.trap(add(program), 0, where, boundary)
			require.Eventually(t, func() bool { return f.pick(0) == nil }, recovery, time.Millisecond, "it does not die")
		}
	}
	f.mu.Lock()
	f.quitting = false
	f.mu.Unlock()

	stopped := []*ship{add(released), add(os.Args[0])}
	killed := []*ship{add(released), add(os.Args[0])}
	for _, s := range stopped {
		f.trap(s, 300*time.Millisecond, "open", 1)
	}
	w.awaitService(stamp(), "the first died with the lock", s)
	for _, s := range killed {
		f.kill(s) // a worker of today replaces it
	}
	add(released)
	if p.Ledger {
		w.everyMaster("FLUSHALL")
	}
	w.awaitService(stamp(), "others were killed", s)
	client := w.setting.client(nil)
	defer func() { _ = client.Close() }()
	gen, err := w.setting.generator(client, w.storage, nil)
	require.NoError(t, err)
	require.NoError(t, gen.Prepare(t.Context(), alwaysUsed[0], 2))

	days := []string{w.setting.dayOf(midnight)}
	if now := stamp(); now < midnight { // unless the machine is so busy that the day is over
		days = append(days, w.setting.dayOf(now))
		time.Sleep(time.Duration(midnight-now) - 100*time.Millisecond)
	}
	for _, s := range stopped {
		f.pause(s, 200*time.Millisecond)
	}
	w.journal.mayLose(loss{began, stamp(), 3})
	w.awaitService(max(midnight, stamp()), "midnight", s)
	f.stop()

	w.judge(w.journal.check(w.setting, w.allowance()), true)
	w.expiries("any fault")
	issued := map[series]map[bool]int{} // calls, by whether the worker is of 0.1.0
	for _, c := range w.journal.calls {
		at := series{c.typ, c.day}
		if issued[at] == nil {
			issued[at] = map[bool]int{}
		}
		if c.failure == "" {
			issued[at][old[c.worker]]++
		}
	}
	for _, day := range days {
		for _, typ := range alwaysUsed {
			calls := issued[series{typ, day}]
			t.Logf("%s of %s: %d calls of 0.1.0, %d of today", typ, day, calls[true], calls[false])
			require.NotZero(t, calls[true])
			require.NotZero(t, calls[false])
		}
	}
}

// addFrom adds a worker that runs another program with the same protocol.
func (f *fleet) addFrom(program string) *ship {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.made++
	f.setting.Seed++
	config, err := json.Marshal(f.setting)
	require.NoError(f.t, err)
	s := &ship{number: f.made, cmd: exec.Command(program)}
	s.cmd.Env = append(os.Environ(), workerVariable+"="+string(config), "GORACE=halt_on_error=1")
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	s.cmd.Stderr = os.Stderr
	stdout, err := s.cmd.StdoutPipe()
	require.NoError(f.t, err)
	s.stdin, err = s.cmd.StdinPipe()
	require.NoError(f.t, err)
	require.NoError(f.t, s.cmd.Start())
	f.ships = append(f.ships, s)
	f.ended.Go(func() { f.follow(s, stdout) })
	return s
}

// A command is cmd/serial of a release.
type command struct {
	path  string
	flags []string
}

// run returns what the command prints, or its error output if it fails.
func (c command) run(verb string, args ...string) (string, error) {
	cmd := exec.Command(c.path, slices.Concat([]string{verb}, c.flags, args)...)
	var failure strings.Builder
	cmd.Stderr = &failure
	out, err := cmd.Output()
	if err != nil {
		return failure.String(), err
	}
	return strings.TrimSpace(string(out)), nil
}

// What one release answers to a request, the other repeats. Either sees the other's numbers and lost counters, and what the
// other raised.
func requestsOfReleases(t *testing.T, w *world, commands []command) {
	typ := alwaysUsed[0]
	must := func(c command, verb string, args ...string) string {
		out, err := c.run(verb, args...)
		require.NoError(t, err, "%s %s %v: %s", c.path, verb, args, out)
		return out
	}
	number := func(seq int) string { return fmt.Sprintf("%s%s%04d", typ, w.setting.dayOf(stamp()), seq) }
	last := 0
	for i, one := range commands {
		other := commands[1-i]
		once := fmt.Sprint("request", i)
		last++
		require.Equal(t, number(last), must(one, "next", "-once", once, typ))
		require.Equal(t, number(last), must(other, "next", "-once", once, typ))
		last++
		require.Equal(t, number(last), must(other, "next", typ))

		last += 100
		must(one, "raise", typ, fmt.Sprint(last))
		require.Equal(t, number(last), must(other, "peek", typ))
		last++
		require.Equal(t, number(last), must(other, "next", typ))

		require.NoError(t, w.admin.Del(t.Context(), w.counterKey()).Err())
		for _, c := range commands {
			out, err := c.run("next", typ)
			require.Error(t, err, out)
			require.Contains(t, out, "lost: ")
		}
		must(one, "raise", typ, fmt.Sprint(last))
		last++
		require.Equal(t, number(last), must(other, "next", typ))
	}
	// Both at once.
	answers := make(chan string)
	for _, c := range commands {
		go func() {
			out, _ := c.run("next", "-once", "both", typ)
			answers <- out
		}()
	}
	require.Equal(t, []string{number(last + 1), number(last + 1)}, []string{<-answers, <-answers})
}

// What one release prepares, the other enters, or finds lost if its counter is gone. Either goes on where the other stopped.
// What one answers in a period, the other repeats in a later one.
func preparedByReleases(t *testing.T, w *world, commands []command) {
	const ahead, enough = 60, 2 // seconds prepared, and to be entered by each
	run := func(by int, verb string, args ...string) string {
		out, err := commands[by].run(verb, append([]string{"-period", "second"}, args...)...)
		require.NoError(t, err, "%s %v: %s", verb, args, out)
		return out
	}
	var answers, seconds [2]string // by who answered, and by who prepared
	var seqs [2]int
	var entered [2][2]int // by who prepared, and who entered
	for who := range commands {
		lost := fmt.Sprint("lost-", who)
		run(who, "prepare", "-n", fmt.Sprint(ahead), fmt.Sprint("prepared-", who))
		run(who, "prepare", "-n", fmt.Sprint(ahead), lost)
		counters, err := w.admin.Keys(t.Context(), recordKey(lost)+":*").Result()
		require.NoError(t, err)
		require.NoError(t, w.admin.Del(t.Context(), counters...).Err())
		answers[who] = run(who, "next", "-once", "request", fmt.Sprint("answered-", who))
	}
	for deadline := time.Now().Add(ahead / 2 * time.Second); slices.Min(slices.Concat(entered[0][:], entered[1][:])) < enough; {
		require.True(t, time.Now().Before(deadline), "seconds entered: %v", entered)
		for preparer := range commands {
			who := int(time.Now().Unix() % 2) // alternately the first in a second
			typ := fmt.Sprint("prepared-", preparer)
			number := run(who, "next", typ)
			if second := strings.TrimPrefix(number, typ)[:14]; second != seconds[preparer] {
				require.Greater(t, second, seconds[preparer])
				seconds[preparer], seqs[preparer] = second, 0
				entered[preparer][who]++
			}
			seqs[preparer]++
			require.Equal(t, fmt.Sprintf("%s%s%04d", typ, seconds[preparer], seqs[preparer]), number)
		}
	}
	for who := range commands {
		for i, answer := range answers {
			require.Equal(t, answer, run(who, "next", "-once", "request", fmt.Sprint("answered-", i)))
			out, err := commands[who].run("next", "-period", "second", fmt.Sprint("lost-", i))
			require.Error(t, err, out)
			require.Contains(t, out, "lost: ")
		}
	}
}

// Beside periods and prints that 0.1.0 lacks it is refused, and changes nothing; what NextOnce answered there it does not repeat.
func lackedByReleases(t *testing.T, w *world, old command) {
	for name, opts := range map[string][]serial.Option{
		"weeks":    {serial.WithPeriod(serial.PerWeek), serial.WithTemplate("{type}{date:GGGG-WW}{seq}")},
		"quarters": {serial.WithPeriod(serial.PerQuarter), serial.WithTemplate("{type}{date:FFFF-Q}{seq}")},
		"never":    {serial.WithPeriod(serial.Never), serial.WithTemplate("{type}{seq}")},
		"checked":  {serial.WithTemplate("{type}{date:yyyyMMdd}{seq}{check:damm}")},
		"base32":   {serial.WithTemplate("{type}{date:yyyyMMdd}{seq:4:base32}")},
		"years":    {serial.WithPeriod(serial.PerYear), serial.WithTemplate("{type}{date:yyyyMM}{seq}")},
	} {
		gen, err := serial.New(w.admin, append(opts, serial.WithLocation(w.setting.location()))...)
		require.NoError(t, err)
		typ := "lacked-" + name
		first, err := gen.NextOnce(t.Context(), typ, "request")
		require.NoError(t, err)
		record := w.admin.HGetAll(t.Context(), recordKey(typ)).Val()
		for _, per := range []string{"minute", "hour", "day", "month", "year"} {
			for _, args := range [][]string{{"next", typ}, {"peek", typ}, {"raise", typ, "5"}, {"prepare", typ}} {
				out, err := old.run(args[0], append([]string{"-period", per}, args[1:]...)...)
				require.Error(t, err, "%s %s %v: %s", name, per, args, out)
				require.Contains(t, out, "conflict", "%s %s %v", name, per, args)
			}
			out, err := old.run("next", "-period", per, "-once", "request", typ)
			require.Error(t, err, "%s %s: %s", name, per, out)
		}
		require.Equal(t, record, w.admin.HGetAll(t.Context(), recordKey(typ)).Val())
		again, err := gen.NextOnce(t.Context(), typ, "request")
		require.NoError(t, err)
		require.Equal(t, first, again)
		n, err := gen.NextNumber(t.Context(), typ)
		require.NoError(t, err)
		require.EqualValues(t, 2, n.Seq)
	}
}
