package redisrun

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial/internal/budget"
	"github.com/dailyserial/serial/internal/coalesce"
)

// A Pipe sends commands to the servers of one client. Those that several callers send at the same moment go together, in a pipeline
// for each server. Its methods may be called concurrently.
type Pipe struct {
	runner *Runner
	nodes  *Nodes[*queue]
}

// A queue has the commands to one server. Each of them is a batch of its own.
type queue = coalesce.Batcher[*redis.Cmd, context.Context, struct{}]

type queued = coalesce.Batch[*redis.Cmd, context.Context, struct{}]

// inPipeline is how many commands go in a pipeline at most. A server that answers the first of them before it has read the last needs a
// connection that holds the rest meanwhile. A pipe in memory, as tests use them, holds the 4 KiB that miniredis reads at once.
const inPipeline = 8

// NewPipe returns a Pipe to the servers of client.
func NewPipe(client redis.UniversalClient) *Pipe {
	p := &Pipe{runner: New(client, Replicas{})}
	p.nodes = NewNodes(p.runner, func(n *Node) *queue {
		send := func(batches []*queued) { p.send(n, batches) }
		return coalesce.New(min(n.Together(), inPipeline), 2, send, func(*queued, int) {})
	})
	return p
}

// Do sends a command, whose first key is its second word or, for EVAL, its fourth, and returns its reply, or ctx's error as soon as
// that ends. tag is the key's hash tag. go-redis may send the command again after a failure.
//
// It goes straight to the server that has the key. Of a command whose keys' distance it is not told, go-redis first asks nodes of a
// Cluster, replicas too, and waits for each that hangs.
func (p *Pipe) Do(ctx context.Context, tag string, args ...any) (any, error) {
	cmd := redis.NewCmd(ctx, args...)
	cmd.SetStepCount(1)
	to := p.nodes.Of(ctx, tag)
	batch, _, begun := to.Join(cmd, ctx, true)
	if batch == nil {
		answered := false
		defer func() { to.Leave(begun, answered) }()
		p.process(ctx, cmd)
		answered = isAnswer(cmd.Err())
	} else if _, err := batch.Wait(ctx); err != nil {
		return nil, err // the command may still be under way
	}
	return cmd.Result()
}

// process sends one command, and follows redirections.
func (p *Pipe) process(ctx context.Context, cmd *redis.Cmd) {
	_ = p.runner.client.Process(ctx, cmd)
	if isAnswer(cmd.Err()) {
		p.runner.answered.Store(1)
	}
}

// isAnswer reports whether a command that ended with err was carried out.
func isAnswer(err error) bool { return err == nil || err == redis.Nil }

// send sends batches. A pipeline to one server does not follow redirections, so what was refused is sent again by itself.
func (p *Pipe) send(n *Node, batches []*queued) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(batches[0].Payload), budget.Answers)
	defer cancel()
	if len(batches) == 1 {
		p.process(ctx, batches[0].Key)
		batches[0].Finish(struct{}{}, nil)
		return
	}
	pipe := n.server.Pipeline()
	for _, b := range batches {
		_ = pipe.Process(ctx, b.Key)
	}
	_, failure := pipe.Exec(ctx)
	for _, b := range batches {
		cmd := b.Key
		if cmd.Val() == nil && cmd.Err() == nil {
			cmd.SetErr(failure) // a hook did not
		}
		if _, refused := cmd.Err().(redis.Error); !refused || !Unsent(cmd.Err()) {
			b.Finish(struct{}{}, nil)
			continue
		}
		again := Begin(func() (none any, _ error) {
			p.process(ctx, cmd)
			b.Finish(struct{}{}, nil)
			return none, nil
		})
		defer func() { _, _, _ = again.Wait(context.Background(), NoLimit) }()
	}
}
