package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// workerFlag makes the program a worker. The help does not list it, since only the program itself uses it.
const workerFlag = "-worker"

// A job is the first line that a worker reads.
type job struct {
	Addr   string
	Prefix string    // of the generators' key prefixes
	Noon   time.Time // in the generators' zone, which the processes of one series share
	Meet   *meeting  // how to meet midnight; nil to carry out orders
}

// An order is one measurement. The worker reports that it is ready, waits for the start, and then reports its tally.
type order struct {
	ID      string // of the contestant
	Callers int
	Length  time.Duration
}

// A fleet is several processes that measure at the same time. Each has its own client and generators.
type fleet []*worker

// A worker is a process of a fleet.
type worker struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stderr bytes.Buffer
	send   *json.Encoder
	answer *json.Decoder
}

// startFleet starts that many workers of program.
func startFleet(program string, processes int, j job) (f fleet, err error) {
	defer func() {
		if err != nil {
			f.stop()
		}
	}()
	for range processes {
		w := &worker{cmd: exec.Command(program, workerFlag)}
		w.cmd.Stderr = &w.stderr
		stdout, err := w.cmd.StdoutPipe()
		if err != nil {
			return f, err
		}
		if w.stdin, err = w.cmd.StdinPipe(); err != nil {
			return f, err
		}
		if err := w.cmd.Start(); err != nil {
			return f, err
		}
		f = append(f, w)
		w.send, w.answer = json.NewEncoder(w.stdin), json.NewDecoder(stdout)
		if err := w.send.Encode(j); err != nil {
			return f, err
		}
	}
	return f, nil
}

func (f fleet) stop() {
	for _, w := range f {
		_ = w.stdin.Close()
		_ = w.cmd.Wait()
	}
}

// call runs meter.call in all workers at once. Its percentiles are medians of the workers' percentiles.
func (f fleet) call(_ context.Context, e *entrant, callers int, length time.Duration,
	begin func() error) (*tally, error) {
	// One worker at a time gets ready: it opens periods, and so does not wait for the locks of the others.
	for _, w := range f {
		if err := w.send.Encode(order{e.id, callers, length}); err != nil {
			return nil, w.ended(err)
		}
		if err := w.answer.Decode(&struct{}{}); err != nil {
			return nil, w.ended(err)
		}
	}
	if err := begin(); err != nil {
		return nil, err
	}
	for _, w := range f {
		if err := w.send.Encode(struct{}{}); err != nil {
			return nil, w.ended(err)
		}
	}
	var sum tally
	var p50, p99 []time.Duration
	for i, w := range f {
		var t tally
		if err := w.answer.Decode(&t); err != nil {
			return nil, w.ended(err)
		}
		if i == 0 || t.Start.Before(sum.Start) {
			sum.Start = t.Start
		}
		if t.End.After(sum.End) {
			sum.End = t.End
		}
		sum.Calls += t.Calls
		sum.Allocs += t.Allocs
		p50, p99 = append(p50, t.P50), append(p99, t.P99)
	}
	slices.Sort(p50)
	slices.Sort(p99)
	sum.P50, sum.P99 = p50[len(p50)/2], p99[len(p99)/2]
	return &sum, nil
}

// ended adds what the worker wrote to stderr before it ended.
func (w *worker) ended(err error) error {
	_ = w.stdin.Close()
	_ = w.cmd.Wait()
	return fmt.Errorf("worker: %w: %s", err, bytes.TrimSpace(w.stderr.Bytes()))
}

// work carries out the orders from in until in ends or an order fails.
func work(in io.Reader, out io.Writer) error {
	orders, answers := json.NewDecoder(in), json.NewEncoder(out)
	var j job
	if err := orders.Decode(&j); err != nil {
		return err
	}
	ctx := context.Background()
	if j.Meet != nil {
		return meetMidnight(ctx, &j, orders, answers)
	}
	t := &target{rdb: redis.NewClient(&redis.Options{Addr: j.Addr}), addr: j.Addr, prefix: j.Prefix, noon: j.Noon}
	ready := map[string]*entrant{}
	m := newMeter(nil)
	for {
		var o order
		if err := orders.Decode(&o); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if ready[o.ID] == nil {
			c := byID(o.ID)
			do, err := c.open(ctx, t)
			if err != nil {
				return err
			}
			ready[o.ID] = &entrant{contestant: c, do: do}
		}
		done, err := m.call(ctx, ready[o.ID], o.Callers, o.Length, func() error {
			if err := answers.Encode(struct{}{}); err != nil {
				return err
			}
			return orders.Decode(&struct{}{})
		})
		if err != nil {
			return err
		}
		if err := answers.Encode(done); err != nil {
			return err
		}
	}
}
