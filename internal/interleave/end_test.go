package interleave

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

// close ends whatever still runs, so a run that failed can say why.
func (r *run) close(t *testing.T) {
	r.mu.Lock()
	if t.Failed() {
		t.Log(strings.Join(r.events[:min(len(r.events), 60)], "\n"))
	}
	r.release()
	r.mu.Unlock()
	r.over()
	time.Sleep(time.Minute)
}

// finish holds nothing back any longer, and checks what was issued.
func (r *run) finish(t *testing.T) {
	if r.left >= 0 && !r.hangs { // a process that hangs may hold up the others, one that was left may not
		require.Less(t, time.Since(r.leftAt), patience, "the caller of process %d left", r.left)
	}
	r.mu.Lock()
	if r.clock.ahead != 0 {
		r.setBack(false)
	}
	r.release()
	r.mu.Unlock()
	r.await(t, func(p *process) bool { return p.done || p.dead })
	require.Empty(t, r.failed)
	r.over()
	r.await(t, func(p *process) bool { return p.done })
	if r.fastClock {
		r.requireDays(t)
		return
	}
	gen := newGenerator(t, r.redis.Client(), append(r.options(r.ledger), r.explain(&process{}))...)
	later := r.nextNumbers(t, gen)
	slices.Sort(r.issued)
	var seq int64
	for i, number := range append(r.issued, later[0]) {
		require.True(t, i == 0 || number > r.issued[i-1], "%v and then %s", r.issued, later[0])
		if r.printsDay { // midnight begins another print and no other counter
			n, err := gen.Parse(number)
			require.NoError(t, err)
			require.Greater(t, n.Seq, seq, "%v and then %s", r.issued, later[0])
			seq = n.Seq
		}
	}
	r.audit(t, gen, append(r.issued, later...))
	if r.prepares {
		sleepToMidnight()
		n, err := gen.NextNumber(t.Context(), "IS")
		require.NoError(t, err)
		require.EqualValues(t, laterStart, n.Seq, "the next day's first")
	}
}

// nextNumbers returns the numbers that whoever comes then gets.
func (r *run) nextNumbers(t *testing.T, gen *serial.Generator) []string {
	ctx, n := context.Background(), 1
	if r.takesOver {
		require.NoError(t, gen.Takeover(ctx, "IS", 0))
	}
	began := time.Now()
	if r.leaving {
		n = 3 // more than a block, so that a lock that was left behind shows
	}
	numbers, err := gen.NextN(ctx, "IS", n)
	if r.mayGet(r.setting.processes-1, err) { // until an operator says what was used
		used, err := gen.Parse(slices.Max(r.issued))
		require.NoError(t, err)
		require.NoError(t, gen.Raise(ctx, "IS", used.Seq))
		numbers, err = gen.NextN(ctx, "IS", n)
		require.NoError(t, err)
	} else {
		require.NoError(t, err)
	}
	if r.leaving {
		require.Less(t, time.Since(began), patience, "something was left behind")
	}
	if first := r.byRequest["everybody's"]; first != "" {
		again, err := gen.NextOnce(ctx, "IS", "everybody's")
		require.NoError(t, err)
		require.Equal(t, first, again.String())
	}
	return texts(numbers)
}

// audit requires that everything counted was issued once or is explained, except for as many as possible reasons may be
// about, and what the dead took along. Nothing that was issued is explained.
func (r *run) audit(t *testing.T, gen *serial.Generator, issued []string) {
	ctx := context.Background()
	unknown := int64(0) // at most so many are unexplained
	require.NoError(t, gen.Flush(ctx))
	for i, p := range r.processes {
		if p.dead {
			unknown++
			continue
		}
		require.NoError(t, p.gen.Flush(ctx))
		for nth := range r.each { // a request that was not answered has its number all the same
			if request := fmt.Sprintf("%d of %d", nth, i); r.sameRequest && nth > 0 && r.byRequest[request] == "" {
				number, err := gen.NextOnce(ctx, "IS", request)
				require.NoError(t, err)
				issued = append(issued, number.String())
			}
		}
	}
	days := map[time.Time]int64{}             // their greatest sequences
	schemes := map[time.Time]*serial.Scheme{} // of the start with which each was opened
	for _, number := range issued {
		n, err := gen.Parse(number)
		require.NoError(t, err)
		days[n.Start] = max(days[n.Start], n.Seq)
		if n.Seq < laterStart || r.prepare != nil {
			schemes[n.Start] = gen.Scheme()
		} else if schemes[n.Start] == nil {
			schemes[n.Start] = r.processes[len(r.processes)-1].gen.Scheme()
		}
	}
	if r.lost {
		unknown += block // nobody knows how far the counter had come
	}
	operator := r.processes[len(r.processes)-1]
	switch {
	case r.setting.raises && (r.lost || operator.dead):
		unknown += laterStart // nobody knows whether the counter had come that far, or the dead took the reason along
	case r.losingAll && r.lost && r.twoStarts:
		unknown += laterStart // with an empty record, the later start counts
	case r.takesOver && operator.dead:
		unknown += block // a block that was reserved for the other one, skipped by the dead
	}
	for _, e := range r.explained {
		var attempts int64
		switch _, err := fmt.Sscanf(e.Reason, serial.AnswerLost+": %d", &attempts); {
		case err == nil:
			unknown += attempts // each for one number
		case e.Possible:
			unknown += e.Last - e.First + 1
		}
	}
	unexplained := int64(0)
	for day, last := range days {
		opts := []serial.AuditOption{serial.WithExplanations(each(r.explained))}
		if r.takesOver {
			opts = append(opts, serial.WithEarlier(operator.gen.Scheme()))
		}
		report, err := schemes[day].Audit("IS", serial.At(day), last, each(issued), opts...)
		require.NoError(t, err)
		require.Zero(t, report.DuplicateCount+report.BeyondCount+report.ForeignCount+report.ContradictedCount, "%+v", report)
		unexplained += report.UnexplainedCount
	}
	require.LessOrEqual(t, unexplained, unknown, "of %v unexplained, with %v", issued, r.explained)
}

func texts(numbers []serial.Number) (all []string) {
	for _, n := range numbers {
		all = append(all, n.String())
	}
	return all
}

// each yields the elements of a slice.
func each[T any](all []T) func(yield func(T, error) bool) {
	return func(yield func(T, error) bool) {
		for _, e := range all {
			if !yield(e, nil) {
				return
			}
		}
	}
}
