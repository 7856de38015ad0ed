//go:build unix

package faults

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Workers are the processes that issue. One that is killed is replaced by a new one, which remembers nothing.
type workers struct {
	t       *testing.T
	setting setting
	journal *journal

	mu       sync.Mutex
	alive    []*process
	started  int
	killed   int
	stopping bool
	all      sync.WaitGroup
}

// A process is a worker as seen from outside.
type process struct {
	number int
	cmd    *exec.Cmd
	stdin  io.Closer
	doomed bool // was killed
}

func startWorkers(t *testing.T, s setting, j *journal, n int) *workers {
	w := &workers{t: t, setting: s, journal: j}
	t.Cleanup(func() { // if the test failed at once
		w.mu.Lock()
		w.stopping = true
		w.mu.Unlock()
		w.replace()
		w.all.Wait()
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	for range n {
		w.start()
	}
	return w
}

// start starts a worker. The caller holds mu.
func (w *workers) start() {
	if w.stopping {
		return
	}
	w.started++
	own := w.setting // a copy, because other goroutines read w.setting
	own.Seed += uint64(w.started)
	config, _ := json.Marshal(own)
	p := &process{number: w.started, cmd: exec.Command(os.Args[0])}
	// A race ends the worker at once. In its own process group, it does not stay suspended if this one dies.
	p.cmd.Env = append(os.Environ(), workerVariable+"="+string(config), "GORACE=halt_on_error=1")
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.cmd.Stderr = os.Stderr
	stdout, err1 := p.cmd.StdoutPipe()
	stdin, err2 := p.cmd.StdinPipe()
	p.stdin = stdin
	if err := errors.Join(err1, err2, p.cmd.Start()); err != nil {
		w.t.Errorf("worker: %v", err)
		return
	}
	w.alive = append(w.alive, p)
	w.all.Go(func() { w.follow(p, stdout) })
}

// follow reads a worker's messages until it ends.
func (w *workers) follow(p *process, stdout io.Reader) {
	messages := json.NewDecoder(stdout)
	for m := (message{}); messages.Decode(&m) == nil; m = (message{}) {
		switch {
		case m.Call != nil:
			m.Call.Worker = p.number
			w.journal.note(*m.Call)
		case m.Unused != nil:
			w.journal.explain(w.setting, *m.Unused)
		default:
			w.journal.mayLose(m.Type, m.N)
		}
	}
	err := p.cmd.Wait()
	w.mu.Lock()
	w.remove(p)
	killed := p.doomed && p.cmd.ProcessState.ExitCode() == -1 // by a signal
	if killed {
		w.killed++
	} else if err != nil || !w.stopping {
		w.t.Errorf("worker %d: %v", p.number, err)
	}
	w.mu.Unlock()
	w.journal.ended(p.number, killed)
}

func (p *process) resume() { _ = p.cmd.Process.Signal(syscall.SIGCONT) }

// strike lets something happen to a worker.
func (w *workers) strike(s step) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.alive) == 0 {
		return
	}
	switch p := w.alive[s.which%len(w.alive)]; s.worker {
	case killed:
		w.kill(p)
	case suspended:
		if p.cmd.Process.Signal(syscall.SIGSTOP) == nil {
			w.journal.disturb(s.pause)
			time.AfterFunc(s.pause, p.resume)
		}
	}
}

// kill kills a worker, and starts another one. The caller holds mu.
func (w *workers) kill(p *process) {
	p.doomed = true
	_ = p.cmd.Process.Kill()
	w.remove(p)
	w.journal.disturb(0)
	w.start()
}

func (w *workers) remove(p *process) {
	w.alive = slices.DeleteFunc(w.alive, func(other *process) bool { return other == p })
}

// replace replaces all workers.
func (w *workers) replace() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range slices.Clone(w.alive) {
		w.kill(p)
	}
}

// waiting returns the workers and types without a successful call that began after since.
func (w *workers) waiting(since int64) (missing []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.alive) == 0 {
		return []string{"no worker is alive"}
	}
	for _, p := range w.alive {
		for _, typ := range usedTypes {
			if !w.journal.servedSince(since, p.number, typ) {
				missing = append(missing, fmt.Sprintf("worker %d %s", p.number, typ))
			}
		}
	}
	return missing
}

// stop has all workers end, and returns when all their messages have been read.
func (w *workers) stop() {
	w.mu.Lock()
	w.stopping = true
	for _, p := range w.alive {
		_ = p.stdin.Close()
	}
	w.mu.Unlock()
	overdue := time.AfterFunc(45*time.Second, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, p := range w.alive {
			w.t.Errorf("worker %d did not end", p.number)
			_ = p.cmd.Process.Signal(syscall.SIGQUIT)
			p.resume() // a suspended process does not notice
		}
	})
	w.all.Wait()
	overdue.Stop()
}
