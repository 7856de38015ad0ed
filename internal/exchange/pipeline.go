package exchange

import (
	"cmp"
	"context"
	"slices"

	"github.com/dailyserial/serial/internal/budget"
	"github.com/dailyserial/serial/internal/redisrun"
	"github.com/dailyserial/serial/internal/store"
)

// This file sends the requests of openings: requests for several types at the same moment share a pipeline.

// requestsTogether is the most requests in a pipeline. Four of the longest fit into 4 KiB: see inPipeline.
const requestsTogether = 4

// sendPipeline sends requests, each within its caller's time. Late requests go in a separate pipeline, which ends
// sooner.
func (s *server) sendPipeline(requests []*pipelined) {
	for _, b := range requests {
		b.Payload.budget.Spend(b.Waited(), budget.First)
	}
	// The sender of a Batcher may reorder its batches.
	slices.SortStableFunc(requests, func(a, b *pipelined) int {
		return cmp.Compare(b.Payload.budget.Answer(), a.Payload.budget.Answer())
	})
	if i := slices.IndexFunc(requests, func(b *pipelined) bool { return b.Payload.budget.IsLate() }); i > 0 {
		late := requests[i:]
		defer redisrun.Beside(func() { s.send(late) })()
		requests = requests[:i]
	}
	s.send(requests)
}

// send sends requests in one pipeline.
func (s *server) send(requests []*pipelined) {
	first := requests[0]
	ctx := context.WithoutCancel(first.Payload.ctx)
	var commands []redisrun.Command
	var budgets []*budget.Budget
	var notes []*redisrun.Note
	for _, b := range requests {
		command := s.store.Command(b.Key)
		command.Last = b.Payload.last
		commands, notes = append(commands, command), append(notes, &b.Note)
		budgets = append(budgets, b.Payload.budget)
	}
	if len(requests) == 1 {
		in, err := s.runner.Run(ctx, budgets[0], s.node, commands[0], nil)
		first.Finish(store.Read(in, err, first.Key.Requested()))
		return
	}
	s.runner.RunAll(ctx, budgets, s.node, commands, notes, func(i int, in redisrun.Reply, err error) {
		requests[i].Finish(store.Read(in, err, requests[i].Key.Requested()))
	})
}
