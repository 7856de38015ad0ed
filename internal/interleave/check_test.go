package interleave

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

// close ends what still runs, so that a run that failed can say why.
func (r *run) close(t *testing.T) {
	if t.Failed() {
		t.Logf("%v\n%v", r.events[:min(len(r.events), 60)], r.issued)
	}
	r.release()
	time.Sleep(time.Minute)
}

// finish holds nothing back any more, and checks what was issued.
func (r *run) finish(t *testing.T) {
	r.release()
	r.await(t, func(_ int, p *process) bool { return p.done })
	r.redis.Deny("")
	limit := expiry + 2*time.Second
	if r.fault == cancel {
		limit = patience
	}
	for i, p := range r.processes {
		if r.met != nil && i != r.met.process && !r.nextDay() {
			require.Less(t, p.doneAt.Sub(r.faultAt), limit, "how long process %d was delayed", i)
		}
	}
	for _, key := range r.redis.Keys() {
		require.NotZero(t, r.redis.TTL(key), "%s has no expiry", key)
	}
	gen := r.newGenerator(t, afterAll)
	r.nextNumbers(t, gen)
	r.audit(t, gen)
}

// nextNumbers issues more numbers, which must be greater than all others. Then it repeats all requests of NextOnce.
// Those without a reply may have a number all the same.
func (r *run) nextNumbers(t *testing.T, gen *serial.Generator) {
	ctx, began := t.Context(), time.Now()
	if r.has("Takeover") {
		require.NoError(t, gen.Takeover(ctx, "IS", 0))
	}
	numbers, err := gen.NextN(ctx, "IS", block+1) // so many that a lock that was left behind shows
	if r.staysLost(afterAll) && errors.Is(err, serial.ErrCounterLost) {
		require.NoError(t, gen.Raise(ctx, "IS", r.highest(r.midnight.Add(-24*time.Hour)))) // an operator says what was used
		numbers, err = gen.NextN(ctx, "IS", block+1)
	}
	require.NoError(t, err)
	if r.fault == cancel {
		require.Less(t, time.Since(began), patience, "something was left behind")
	}
	for _, n := range r.issued {
		require.Less(t, n.String(), numbers[0].String(), "%v", r.issued)
	}
	for i, n := range numbers {
		r.issued[fmt.Sprint("after ", i)] = n
	}
	for nth := 0; nth < r.each && r.has("NextOnce"); nth++ {
		request := fmt.Sprint(nth)
		n, err := gen.NextOnce(ctx, "IS", request)
		require.NoError(t, err)
		if before, issued := r.issued[request]; issued {
			require.Equal(t, before.String(), n.String())
		}
		r.issued[request] = n
	}
}

// highest returns the highest sequence issued in the period that begins at start.
func (r *run) highest(start time.Time) (last int64) {
	for _, n := range r.issued {
		if n.Start.Equal(start) {
			last = max(last, n.Seq)
		}
	}
	return last
}

// audit requires that no number was issued twice, and that the library's audit finds nothing but what a fault can leave
// behind. At most a few numbers may be unexplained, and no issued number may be reported as unused.
func (r *run) audit(t *testing.T, gen *serial.Generator) {
	require.NoError(t, gen.Flush(t.Context()))
	operator := r.processes[len(r.processes)-1]
	allowed := int64(0) // count of numbers that may be missing without an explanation
	for _, p := range r.processes {
		if p.crashed {
			allowed++ // only the process knew the number
		} else {
			require.NoError(t, p.gen.Flush(t.Context()))
		}
	}
	// After a loss, the counter continues above all values that it may have had. A call that is denied leaves nothing
	// unexplained.
	switch {
	case r.has("Raise") && (r.isLost || operator.crashed), r.has("two starts") && r.isLost && r.fault == loseAll:
		allowed += block + lateStart
	case r.isLost && r.has("floor"):
		allowed += block + margin
	case r.isLost:
		allowed += block
	case operator.crashed && r.has("Takeover"):
		allowed += block // which was reserved for the other process
	}
	explained := map[serial.Explanation]error{} // to values that are nil, as maps.All makes an iterator of this map
	for _, e := range r.explained {
		explained[e] = nil
		var attempts int64 // to get one number each
		_, err := fmt.Sscanf(e.Reason, serial.AnswerLost+": %d", &attempts)
		switch {
		case err == nil && r.fault != deny:
			allowed += attempts
		case err != nil && e.Possible:
			allowed += e.Last - e.First + 1
		}
	}
	texts := map[string]error{}
	periods := map[time.Time][]int64{}
	for _, n := range r.issued {
		require.NotContains(t, texts, n.String(), "issued twice")
		texts[n.String()] = nil
		n, err := gen.Parse(n.String()) // the operator of a takeover has other periods
		require.NoError(t, err)
		periods[n.Start] = append(periods[n.Start], n.Seq)
	}
	for start, seqs := range periods {
		scheme := gen.Scheme()
		if slices.Min(seqs) >= lateStart { // it was opened with this start
			scheme = operator.gen.Scheme()
		}
		report, err := scheme.Audit("IS", serial.At(start), slices.Max(seqs), maps.All(texts),
			serial.WithExplanations(maps.All(explained)), serial.WithEarlier(operator.gen.Scheme()))
		require.NoError(t, err)
		require.Zero(t, report.DuplicateCount+report.BeyondCount+report.ForeignCount+report.ContradictedCount, "%+v", report)
		allowed -= report.UnexplainedCount
	}
	require.GreaterOrEqual(t, allowed, int64(0), "too much is missing from %v, with %v", texts, r.explained)
}
