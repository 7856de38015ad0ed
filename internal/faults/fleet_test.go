//go:build unix

package faults

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A fleet is the processes that issue. One that dies is replaced by a new one, which remembers nothing.
type fleet struct {
	t       *testing.T
	setting setting
	journal *journal

	mu       sync.Mutex
	ships    []*ship // alive
	made     int
	deaths   int // of workers that were meant to die
	quitting bool
	ended    sync.WaitGroup
}

// A ship is a worker as seen from outside.
type ship struct {
	number int
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	pause  time.Duration // until a worker stopped by a trap is resumed
	doomed bool          // may die
	quit   bool          // announced that it quits
}

func launch(t *testing.T, s setting, j *journal, n int) *fleet {
	f := &fleet{t: t, setting: s, journal: j}
	t.Cleanup(f.end)
	for range n {
		f.add()
	}
	return f
}

func (f *fleet) add() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.quitting {
		return
	}
	f.made++
	s := &ship{number: f.made}
	f.setting.Seed++
	config, err := json.Marshal(f.setting)
	if err != nil {
		f.t.Error(err)
		return
	}
	s.cmd = exec.Command(os.Args[0])
	// A race ends the worker at once. In its own process group, it is not left stopped if this one dies.
	s.cmd.Env = append(os.Environ(), workerVariable+"="+string(config), "GORACE=halt_on_error=1")
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	s.cmd.Stderr = os.Stderr
	stdout, err := s.cmd.StdoutPipe()
	if err == nil {
		s.stdin, err = s.cmd.StdinPipe()
	}
	if err == nil {
		err = s.cmd.Start()
	}
	if err != nil {
		f.t.Errorf("worker: %v", err)
		return
	}
	f.ships = append(f.ships, s)
	f.ended.Go(func() { f.follow(s, stdout) })
}

// follow reads a worker's output until it ends.
func (f *fleet) follow(s *ship, stdout io.Reader) {
	lines := bufio.NewScanner(stdout)
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		f.hear(s, lines.Text())
	}
	err := s.cmd.Wait()
	f.journal.died(s.number)
	f.mu.Lock()
	for i, other := range f.ships {
		if other == s {
			f.ships = append(f.ships[:i:i], f.ships[i+1:]...)
		}
	}
	switch {
	case s.quit && err == nil:
	case s.doomed && s.cmd.ProcessState.ExitCode() == -1: // by a signal
		f.deaths++
		f.journal.killed(s.number)
	default:
		f.t.Errorf("worker %d: %v", s.number, err)
	}
	f.mu.Unlock()
	if s.doomed {
		f.add()
	}
}

func (f *fleet) hear(s *ship, line string) {
	verb, rest, _ := strings.Cut(line, " ")
	var id, typ, day, failure string
	var a, b, c int64
	var err error
	at := func() callID { return callID{s.number, id} }
	switch verb {
	case "begin":
		if _, err = fmt.Sscan(rest, &id, &typ, &a, &b); err == nil {
			f.journal.begin(at(), call{worker: s.number, typ: typ, n: a, start: b})
		}
	case "issued":
		if _, err = fmt.Sscan(rest, &id, &a, &day, &b, &c); err == nil {
			f.journal.finish(at(), func(call *call) { call.end, call.day, call.first, call.last = a, day, b, c })
		}
	case "failed":
		if _, err = fmt.Sscan(rest, &id, &a, &failure); err == nil {
			f.journal.finish(at(), func(call *call) { call.end, call.failure, call.text = a, failure, rest })
		}
	case "unanswered":
		if _, err = fmt.Sscan(rest, &typ, &a); err == nil {
			f.journal.unanswered(s.number, typ, a)
		}
	case "unused":
		var e explanation
		if _, err = fmt.Sscan(rest, &typ, &day, &e.first, &e.last, &e.unused, &e.possible, &e.lost); err == nil {
			f.journal.explain(typ, day, e)
		}
	case "trapped":
		f.mu.Lock()
		pause := s.pause
		f.mu.Unlock()
		f.journal.mishap(pause)
		if pause > 0 {
			for late := range 60 { // it may stop only after it was resumed
				time.AfterFunc(pause+time.Duration(late)*time.Second, func() { _ = s.cmd.Process.Signal(syscall.SIGCONT) })
			}
		}
	case "leak":
		text, _ := strconv.Unquote(rest)
		f.t.Errorf("worker %d leaked goroutines:\n%s", s.number, text)
	case "done":
		f.mu.Lock()
		s.quit = true
		f.mu.Unlock()
	default:
		err = fmt.Errorf("unknown message")
	}
	if err != nil {
		f.t.Errorf("worker %d said %q: %v", s.number, line, err)
	}
}

// pick returns a living worker.
func (f *fleet) pick(i int) *ship {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.ships) == 0 {
		return nil
	}
	return f.ships[i%len(f.ships)]
}

// trap has a worker kill itself or, if pause is not 0, stop for that long, at a boundary between its commands.
func (f *fleet) trap(s *ship, pause time.Duration, where string, boundary int) {
	how := "stop"
	f.mu.Lock()
	if s.pause = pause; pause == 0 {
		how, s.doomed = "kill", true
	}
	f.mu.Unlock()
	_, _ = fmt.Fprintln(s.stdin, how, where, boundary)
}

// hurry gives all workers' callers short deadlines for d.
func (f *fleet) hurry(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.ships {
		_, _ = fmt.Fprintln(s.stdin, "hurry", "all", d.Milliseconds())
	}
}

func (f *fleet) kill(s *ship) {
	f.mu.Lock()
	s.doomed = true
	f.mu.Unlock()
	_ = s.cmd.Process.Kill()
	f.journal.mishap(0)
}

// replace kills all workers, and returns when their replacements have issued.
func (f *fleet) replace() {
	f.mu.Lock()
	old, before := f.ships, f.made
	f.mu.Unlock()
	for _, s := range old {
		f.kill(s)
	}
	renewed := func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.made == before+len(old)
	}
	for since := stamp(); len(f.waiting(since)) > 0 || !renewed(); time.Sleep(10 * time.Millisecond) {
		if time.Duration(stamp()-since) > 30*time.Second {
			f.t.Fatalf("new workers got no number: %v", f.waiting(since))
		}
	}
}

func (f *fleet) pause(s *ship, d time.Duration) {
	if s.cmd.Process.Signal(syscall.SIGSTOP) == nil {
		f.journal.mishap(d)
		time.AfterFunc(d, func() { _ = s.cmd.Process.Signal(syscall.SIGCONT) })
	}
}

// waiting lists the workers and types for which no call begun since then has succeeded.
func (f *fleet) waiting(since int64) (missing []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.ships) == 0 {
		return []string{"no worker is alive"}
	}
	for _, s := range f.ships {
		for _, typ := range alwaysUsed {
			if !f.journal.succeededSince(s.number, typ, since) {
				missing = append(missing, fmt.Sprintf("worker %d %s", s.number, typ))
			}
		}
	}
	return missing
}

// end kills the workers that are left if the test failed at once.
func (f *fleet) end() {
	f.mu.Lock()
	f.quitting = true
	for _, s := range f.ships {
		s.doomed = true
		_ = s.cmd.Process.Kill()
	}
	f.mu.Unlock()
	f.ended.Wait()
}

// stop has all workers quit, and returns when all their output has been read.
func (f *fleet) stop() {
	f.mu.Lock()
	f.quitting = true
	for _, s := range f.ships {
		_, _ = fmt.Fprintln(s.stdin, "quit")
	}
	f.mu.Unlock()
	overdue := time.AfterFunc(45*time.Second, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, s := range f.ships {
			f.t.Errorf("worker %d did not exit", s.number)
			_ = s.cmd.Process.Signal(syscall.SIGQUIT)
			_ = s.cmd.Process.Signal(syscall.SIGCONT) // a stopped process does not notice
		}
	})
	f.ended.Wait()
	overdue.Stop()
}
