// Package upgrade_test runs this version together with release 0.5.0, which it builds from the repository's history.
package upgrade_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/internal/redistest/memory"
)

// TestUpgrade builds a process of both versions once for all tests.
func TestUpgrade(t *testing.T) {
	if testing.Short() {
		t.Skip("the release is not built with -short")
	}
	dir := t.TempDir()
	// Windows requires the extension.
	binaries := map[string]string{"old": filepath.Join(dir, "old.exe"), "new": filepath.Join(dir, "new.exe")}
	require.NoError(t, build("../..", binaries["new"]))
	if err := buildRelease(dir, binaries["old"]); err != nil && os.Getenv("CI") == "" {
		t.Skip(err)
	} else {
		require.NoError(t, err)
	}
	t.Run("in turn", func(t *testing.T) { testInTurn(t, binaries) })
	t.Run("at once", func(t *testing.T) { testAtOnce(t, binaries) })
}

// build builds testdata/process.go with the code in a folder. With -trimpath, Go's build cache has the packages even if
// they were compiled in another folder.
func build(code, binary string) error {
	source, err := filepath.Abs("testdata/process.go")
	_, e := run(code, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", binary, source)
	return errors.Join(err, e)
}

// buildRelease builds testdata/process.go with the code of the release, which it stores in a folder.
func buildRelease(dir, binary string) error {
	archive := filepath.Join(dir, "release.tar")
	commit, err1 := run("../..", "git", "log", "-1", "--format=%H", "--grep=^all: release 0.5.0$")
	_, err2 := run("../..", "git", "archive", "-o", archive, commit)
	_, err3 := run(dir, "tar", "-xf", archive)
	return errors.Join(err1, err2, err3, build(dir, binary))
}

// run runs a program in a folder, and returns what it prints.
func run(dir, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s %v: %w\n%s", name, args, err, out)
	}
	return strings.TrimSpace(string(out)), err
}

// startProcess starts a process whose periods begin at start. The returned function makes a call in it, and returns the
// number or "error: …".
func startProcess(t *testing.T, binary, addr string, start int64, withLedger bool) func(call string) string {
	cmd := exec.Command(binary, addr, fmt.Sprint(start), fmt.Sprint(withLedger))
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	cmd.Stderr = os.Stderr
	require.NoError(t, errors.Join(err1, err2, cmd.Start()))
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	results := bufio.NewScanner(out)
	return func(call string) string {
		_, _ = fmt.Fprintln(in, call)
		results.Scan()
		return results.Text()
	}
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
func testInTurn(t *testing.T, binaries map[string]string) {
	for name, c := range map[string]struct {
		start      int64 // of the old process
		withLedger bool
		steps      string
	}{
		"only numbers take a record over": {1, false, "old next = IS202110240001, old once 7 = IS202110240002, " +
			"new peek = IS202110240002, new history, old next = IS202110240003, new next = IS202110240004, " +
			"old next = conflicting period, old raise 50 = conflicting period, new next = IS202110240005, " +
			"new once 7 = IS202110240002"},
		"without the record, the release adopts the counter": {1, false, "new next = IS202110240001, " +
			"new once 7 = IS202110240002, old next = conflicting period, delete serial:{IS}, old next = IS202110240003, " +
			"old once 7 = IS202110240002"},
		"prepared periods are entered": {1, false, "old prepare 4, old next = IS202110240001, new next = IS202110240002, " +
			"day 25, new next = IS202110250001, day 26, new next = IS202110260001, day 27, new next = IS202110270001, " +
			"day 28, new next = IS202110280001"},
		"a start belongs to its period": {1000, false, "old prepare 2, new peek = IS202110240000, " +
			"old next = IS202110241000, new next = IS202110241001, new audit, day 25, new next = IS202110251000, day 26, " +
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
			calls := map[string]func(string) string{
				"old":   startProcess(t, binaries["old"], m.Addr(), c.start, c.withLedger),
				"new":   startProcess(t, binaries["new"], m.Addr(), 1, c.withLedger),
				"plain": startProcess(t, binaries["new"], m.Addr(), 1, false),
			}
			for step := range strings.SplitSeq(c.steps, ", ") {
				what, want, _ := strings.Cut(step, " = ")
				who, what, _ := strings.Cut(what, " ")
				got := ""
				switch who {
				case "delete":
					require.True(t, m.Del(what))
				case "day":
					day, err := time.Parse("20060102 15", "202110"+what+" 12")
					require.NoError(t, err)
					m.SetTime(day)
				default:
					got = calls[who](what)
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
func testAtOnce(t *testing.T, binaries map[string]string) {
	for _, withLedger := range []bool{false, true} {
		m := startServer(t)
		var processes []func(string) string
		for _, version := range []string{"old", "old", "new", "new"} {
			processes = append(processes, startProcess(t, binaries[version], m.Addr(), 1, withLedger))
		}
		old, got := processes[0], map[string]int{}
		got[old("next")]++
		var mu sync.Mutex
		var all sync.WaitGroup
		for i, next := range processes {
			all.Go(func() {
				time.Sleep(time.Duration(i) * 5 * time.Millisecond)
				for range 200 {
					if number := next("next"); i >= 2 || !strings.HasPrefix(number, "error: ") {
						mu.Lock()
						got[number]++
						mu.Unlock()
					}
				}
			})
		}
		all.Wait()
		for number, n := range got {
			require.Equal(t, 1, n, number)
			require.Regexp(t, "^IS20211024", number)
		}
		require.Contains(t, old("next"), "conflicting period")
	}
}
