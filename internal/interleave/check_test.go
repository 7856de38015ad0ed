package interleave

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

const (
	expiry   = 8 * time.Second // of the lock
	margin   = 10              // what the floor adds after a loss
	patience = 3 * time.Second // how long others may wait for the lock of a canceled call
)

// close ends what still runs, so that a run that failed can say why.
func (r *run) close(t *testing.T) {
	if t.Failed() {
		t.Logf("%s\n%v", strings.Join(r.trace[:min(len(r.trace), 60)], "\n"), r.issued)
	}
	r.release()
	r.over()
	time.Sleep(time.Minute)
}

// finish holds nothing back any more, and checks what was issued.
func (r *run) finish(t *testing.T) {
	r.release()
	r.await(t, func(p *process) bool { return p.done || p.crashed })
	require.Empty(t, r.failed)
	r.over()
	r.await(t, func(p *process) bool { return p.done })
	r.redis.Deny("")
	for i, p := range r.processes {
		limit := map[bool]time.Duration{false: expiry + 2*time.Second, true: patience}[r.fault == cancel]
		if r.faulty >= 0 && i != r.faulty && !r.arrivesAll && !r.nextDay {
			require.Less(t, p.doneAt.Sub(r.faultAt), limit, "how long process %d was delayed", i)
		}
	}
	for _, key := range r.redis.Keys() {
		require.NotZero(t, r.redis.TTL(key), "%s has no expiry", key)
	}
	gen := newGenerator(t, r.redis.Client(), r.options(afterAll)...)
	later := r.nextNumbers(t, gen)
	slices.Sort(r.issued)
	all := append(slices.Clone(r.issued), later[0])
	for i, number := range all[1:] {
		require.Greater(t, number, all[i], all)
		// With a year, midnight begins another print and no other counter.
		require.True(t, !r.has["year"] || sequence(number) > sequence(all[i]), all)
	}
	r.audit(t, gen, append(r.issued, later...))
	if r.has["Prepare"] {
		sleepToMidnight()
		n, err := gen.NextNumber(t.Context(), "IS")
		require.NoError(t, err)
		require.EqualValues(t, lateStart, n.Seq, "the next day's first")
	}
}

// sequence returns the sequence in a number.
func sequence(number string) int64 {
	seq, _ := strconv.ParseInt(number[len("IS20000101"):], 10, 64)
	return seq
}

// nextNumbers returns the numbers that the next caller gets.
func (r *run) nextNumbers(t *testing.T, gen *serial.Generator) []string {
	ctx, n := t.Context(), 1
	if r.has["Takeover"] {
		require.NoError(t, gen.Takeover(ctx, "IS", 0))
	}
	began := time.Now()
	if r.fault == cancel {
		n = block + 1 // so that a lock that was left behind shows
	}
	numbers, err := gen.NextN(ctx, "IS", n)
	if errors.Is(err, serial.ErrCounterLost) && r.staysLost(r.has["ledger"]) {
		require.NoError(t, gen.Raise(ctx, "IS", sequence(slices.Max(r.issued)))) // an operator says what was used
		numbers, err = gen.NextN(ctx, "IS", n)
	}
	require.NoError(t, err)
	if r.fault == cancel {
		require.Less(t, time.Since(began), patience, "something was left behind")
	}
	if number := r.byRequest[requestOf(0, 0)]; number != "" {
		again, err := gen.NextOnce(ctx, "IS", requestOf(0, 0))
		require.NoError(t, err)
		require.Equal(t, number, again.String())
	}
	return texts(numbers)
}

// audit requires that everything counted was issued once or is explained, except for as many as possible reasons may be
// about, and what crashed processes did not report. Nothing that was issued is explained.
func (r *run) audit(t *testing.T, gen *serial.Generator, issued []string) {
	unknown := int64(0) // at most so many are unexplained
	require.NoError(t, gen.Flush(context.Background()))
	for i, p := range r.processes {
		if p.crashed {
			unknown++
			continue
		}
		require.NoError(t, p.gen.Flush(context.Background()))
		for nth := 1; nth < r.each && r.has["NextOnce"]; nth++ { // a request without a reply has its number all the same
			if request := requestOf(i, nth); r.byRequest[request] == "" {
				number, err := gen.NextOnce(t.Context(), "IS", request)
				require.NoError(t, err)
				issued = append(issued, number.String())
			}
		}
	}
	operator := r.processes[len(r.processes)-1]
	if r.isLost || r.fault == deny && r.has["ledger"] {
		unknown += block // it is unknown how far the counter had come, or whether a grant was installed
	}
	switch {
	case r.isLost && r.has["floor"]:
		unknown += margin
	case r.has["Raise"] && (r.isLost || operator.crashed || r.fault == deny),
		r.fault == loseAll && r.isLost && r.has["two starts"]:
		unknown += lateStart // it is unknown whether the counter had come that far, or an empty record has the later start
	case r.has["Takeover"] && operator.crashed:
		unknown += block // a block that was reserved for the other process
	}
	for _, e := range r.explained {
		var attempts int64
		if _, err := fmt.Sscanf(e.Reason, serial.AnswerLost+": %d", &attempts); err == nil {
			unknown += attempts // each for one number
		} else if e.Possible {
			unknown += e.Last - e.First + 1
		}
	}
	days := map[time.Time]int64{}             // their greatest sequences
	schemes := map[time.Time]*serial.Scheme{} // of the start with which each was opened
	for _, number := range issued {
		n, err := gen.Parse(number)
		require.NoError(t, err)
		days[n.Start] = max(days[n.Start], n.Seq)
		if n.Seq < lateStart || r.has["prepared"] {
			schemes[n.Start] = gen.Scheme()
		} else if schemes[n.Start] == nil {
			schemes[n.Start] = operator.gen.Scheme()
		}
	}
	for day, last := range days {
		opts := []serial.AuditOption{serial.WithExplanations(each(r.explained))}
		if r.has["Takeover"] {
			opts = append(opts, serial.WithEarlier(operator.gen.Scheme()))
		}
		report, err := schemes[day].Audit("IS", serial.At(day), last, each(issued), opts...)
		require.NoError(t, err)
		require.Zero(t, report.DuplicateCount+report.BeyondCount+report.ForeignCount+report.ContradictedCount, "%+v", report)
		unknown -= report.UnexplainedCount
	}
	require.GreaterOrEqual(t, unknown, int64(0), "too many of %v are unexplained, with %v", issued, r.explained)
}

func texts(numbers []serial.Number) (all []string) {
	for _, n := range numbers {
		all = append(all, n.String())
	}
	return all
}

// each yields the elements of a slice.
func each[T any](all []T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for i := 0; i < len(all) && yield(all[i], nil); i++ {
		}
	}
}
