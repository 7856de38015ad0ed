package exchange

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial/internal/budget"
	"github.com/dailyserial/serial/internal/coalesce"
	"github.com/dailyserial/serial/internal/redisrun"
)

// This file sends redsync's commands to a lock server.

// A Pipe sends commands to the servers of one client. Commands that callers send at the same moment share a pipeline,
// one per server. A Pipe is safe for concurrent use.
type Pipe struct {
	runner *redisrun.Runner
	nodes  *redisrun.Nodes[*queue]
}

// A queue holds the commands to one server. Each command is its own batch.
type queue struct {
	*coalesce.Batcher[*Sending, struct{}, struct{}]
	made     time.Time
	answered atomic.Int64 // time of the server's last answer, in nanoseconds since made
}

type queued = coalesce.Batch[*Sending, struct{}, struct{}]

// A Sending is a command that is queued, in flight or answered.
type Sending struct {
	ctx   context.Context // for its values
	limit time.Duration   // time for which the client tries
	cmd   *redis.Cmd
	queue *queue
	batch *queued
	begun time.Duration // time when it was queued, since queue.made
	sent  atomic.Int64  // time when it was sent, in nanoseconds since queue.made; 0 while it is queued
}

// inPipeline is the most commands in a pipeline. If a server answers the first command before it has read the last, the
// connection must hold the rest meanwhile. An in-memory pipe, as in tests, holds the 4 KiB that miniredis reads at
// once.
const inPipeline = 8

// pipelinesInFlight is the most short pipelines in flight to a distant server.
const pipelinesInFlight = 16

// NewPipe returns a Pipe to the servers of client.
func NewPipe(client redis.UniversalClient) *Pipe {
	p := &Pipe{runner: redisrun.New(client, redisrun.Replicas{})}
	p.nodes = redisrun.NewNodes(p.runner, func(n *redisrun.Node) *queue {
		q := &queue{made: time.Now()}
		send := func(batches []*queued) { p.send(n, q, batches) }
		inFlight := n.InFlight(pipelinesInFlight)
		q.Batcher = coalesce.New(min(n.Together(), inPipeline), 2, inFlight, send, func(*queued, int) {})
		return q
	})
	return p
}

// Send sends a command, or queues it behind others. The first key is the second word or, for EVAL, the fourth. tag is
// that key's hash tag. After a failure, go-redis may send the command again, within limit.
//
// The command goes straight to the server that has the key. If its key step were not set, go-redis would first ask a
// Cluster's nodes about the command, replicas too, and wait for each node that hangs.
func (p *Pipe) Send(ctx context.Context, limit time.Duration, tag string, args ...any) *Sending {
	q := p.nodes.Of(ctx, tag)
	s := &Sending{ctx: ctx, limit: limit, cmd: redis.NewCmd(ctx, args...), queue: q, begun: time.Since(q.made)}
	s.cmd.SetStepCount(1)
	s.batch, _, _ = q.Join(s, struct{}{}, budget.Answers, false)
	return s
}

// Wait returns the command's reply, ctx's error as soon as ctx ends, or [redisrun.ErrNoAnswer] once the server has been
// silent for patience. While the command is queued, any answer from the server breaks the silence; afterwards, only its
// own answer does. If the command is still queued when Wait gives up, it is not sent. If it was sent, it continues by
// itself. Call Wait only once.
func (s *Sending) Wait(ctx context.Context, patience time.Duration) (any, error) {
	for !s.batch.Finished() {
		left := patience - s.silence()
		switch {
		case left <= 0 && s.batch.Leave(0):
			return nil, redisrun.ErrNoAnswer
		case ctx.Err() != nil && s.batch.Leave(0):
			return nil, ctx.Err()
		}
		within, cancel := context.WithTimeout(ctx, left)
		_, _ = s.batch.Wait(within)
		cancel()
	}
	switch _, err := s.batch.Wait(context.Background()); err {
	case nil:
		return s.cmd.Result()
	case coalesce.ErrUnsent:
		return nil, redisrun.ErrNoAnswer
	default:
		return nil, err
	}
}

// silence returns how long the server has been silent, as Wait counts it.
func (s *Sending) silence() time.Duration {
	since := time.Duration(s.sent.Load())
	if since == 0 {
		since = max(s.begun, time.Duration(s.queue.answered.Load()))
	}
	return time.Since(s.queue.made) - since
}

// Over waits until the client is done with the command, and reports whether it was sent.
func (s *Sending) Over() bool {
	_, err := s.batch.Wait(context.Background())
	return err != coalesce.ErrUnsent
}

// send sends batches. A pipeline to one server does not follow redirections, so a refused command is sent again alone.
func (p *Pipe) send(n *redisrun.Node, q *queue, batches []*queued) {
	var limit time.Duration
	for _, b := range batches {
		b.Key.sent.Store(max(1, int64(time.Since(q.made))))
		limit = max(limit, b.Key.limit)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(batches[0].Key.ctx), limit)
	defer cancel()
	if len(batches) == 1 {
		p.runner.Process(ctx, batches[0].Key.cmd)
		q.finish(batches[0])
		return
	}
	pipe := n.Pipeline()
	for _, b := range batches {
		_ = pipe.Process(ctx, b.Key.cmd)
	}
	_, failure := pipe.Exec(ctx)
	for _, b := range batches {
		cmd := b.Key.cmd
		if cmd.Val() == nil && cmd.Err() == nil {
			cmd.SetErr(failure) // a hook did not set it
		}
		if _, refused := cmd.Err().(redis.Error); !refused || !redisrun.Unsent(cmd.Err()) {
			q.finish(b)
			continue
		}
		defer redisrun.Beside(func() {
			p.runner.Process(ctx, cmd)
			q.finish(b)
		})()
	}
}

// finish ends the wait for a command that is over.
func (q *queue) finish(b *queued) {
	if err := b.Key.cmd.Err(); err == nil || errors.As(err, new(redis.Error)) { // a refusal is an answer too
		q.answered.Store(int64(time.Since(q.made)))
	}
	b.Finish(struct{}{}, nil)
}
