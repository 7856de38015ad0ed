package series

import (
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/internal/wire"
)

// For each reply to a grant, the right sequences must be reported as gaps, with the right cause.
func TestGapsOfGrant(t *testing.T) {
	raised := func(from, upto int64) Reply {
		return Reply{Status: Issued, Last: upto + 1, Count: 1, From: from, Upto: upto}
	}
	gap := func(cause Cause, first, last int64) Gap { return Gap{First: first, Last: last, Cause: cause} }
	block, burned := granted{after: 20, upto: 30}, gap(BlockBurned, 21, 30)
	for name, test := range map[string]struct {
		reply   Reply
		err     error
		granted granted
		want    []Gap
	}{
		"nothing was skipped": {Reply{Status: Issued, Last: 21, Count: 1}, nil, block, nil},
		"a block was skipped": {raised(15, 20), nil, block, []Gap{gap(BlockSkipped, 16, 20)}},
		"the floor knows them": {raised(15, 20), nil, granted{floor: 18, after: 20, upto: 30},
			[]Gap{gap(BlockSkipped, 19, 20)}},
		"the counter was lost":    {raised(-1, 20), nil, block, nil},
		"an operator raised it":   {raised(15, 25), nil, granted{seq: 25}, []Gap{gap(Raised, 16, 25)}},
		"the limit cut the raise": {raised(15, 23), nil, granted{seq: 25}, []Gap{gap(Raised, 16, 23)}},
		"the counter fell behind": {raised(15, 20), nil, granted{after: 20, upto: 30, follow: true},
			[]Gap{gap(BlockSkipped, 16, 20)}},
		"a floor above the raise": {raised(15, 28), nil, granted{seq: 25, floor: 28}, nil},
		"it was raised in a block": {raised(15, 25), nil, granted{seq: 25, after: 15, upto: 35, follow: true},
			[]Gap{gap(Raised, 16, 25)}},
		"it was raised above a block": {raised(15, 25), nil, granted{seq: 25, after: 18, upto: 35},
			[]Gap{gap(BlockSkipped, 16, 18), gap(Raised, 19, 25)}},
		"replicas did not confirm": {Reply{Status: Issued, Last: 22, Count: 2, Unconfirmed: io.EOF}, io.EOF, block,
			[]Gap{gap(NotReplicated, 21, 22)}},
		"stale":                    {Reply{Status: stale}, nil, block, []Gap{burned}},
		"stale and mixed":          {Reply{Status: stale, Found: Found{Mixed: true}}, nil, block, nil},
		"mixed when it was found":  {Reply{Status: stale}, nil, granted{after: 20, upto: 30, mixed: true}, nil},
		"another calendar":         {Reply{Status: Calendar}, nil, block, nil},
		"another time zone":        {Reply{Status: Conflict}, nil, block, nil},
		"outside the span":         {Reply{Status: clocked}, nil, block, nil},
		"exhausted, not installed": {Reply{Status: Exhausted}, nil, block, []Gap{burned}},
		"exhausted, installed":     {Reply{Status: Exhausted, From: 22, Upto: 24}, nil, block, nil},
		"it did not run":           {Reply{}, wire.ErrUnsent, block, []Gap{burned}},
		"it may have run":          {Reply{}, errors.New("EOF"), block, nil},
		"no block":                 {Reply{Status: stale}, nil, granted{}, nil},
	} {
		var got []Gap
		g := gaps{report: func(gap Gap) { got = append(got, gap) }}
		g.ended(&request{n: 1, options: &options{Grant: &grant{}}, reply: test.reply, err: test.err, granted: test.granted})
		require.Equal(t, test.want, got, name)
	}
}

// A caller leaves a shared request. Its own number must become a gap, or no number if earlier callers got the last one.
func TestLeft(t *testing.T) {
	for place, want := range [][]Gap{{{First: 5, Last: 5}}, {{First: 6, Last: 6}}, nil} { // with the cause CallerLeft, 0
		var got []Gap
		pending := 0
		report, add := func(g Gap) { got = append(got, g) }, func(n int) { pending += n }
		s := &server{Series: &Series{gaps: gaps{report: report, pending: add}}}
		r := &request{server: s, n: 3, reply: Reply{Status: Issued, Last: 6, Count: 2}}
		r.Merge = wire.Merge{Name: "IS"}
		r.Leave()
		require.Equal(t, 1, pending)
		r.Left(place)
		require.Equal(t, want, got)
		require.Zero(t, pending)
		r.reply, r.granted, got = Reply{Status: clocked}, granted{after: 7, upto: 9}, nil
		r.Left(place)
		require.Equal(t, []Gap{{First: 8, Last: 9, Cause: BlockBurned}}, got)
	}
}

// An attempt gets no readable reply. It may have taken any number above the high-water mark, unless its number is
// stored or it takes none. Numbers that were not confirmed by replicas must be gaps.
func TestLost(t *testing.T) {
	var got []Gap
	s := &server{Series: &Series{gaps: gaps{report: func(g Gap) { got = append(got, g) }, limit: 99, probe: &Target{}}}}
	for _, r := range []*request{{}, {n: 1, once: "id"}, {n: 1, span: s.gaps.probe}, {n: 2, highWater: 5}} {
		r.server = s
		r.Lost(io.EOF)
	}
	r := &request{server: s, n: 2, highWater: 6}
	r.Result.Value = "OK"
	r.Done()
	require.ErrorContains(t, r.err, "unexpected script reply")
	r = &request{server: s, n: 2}
	r.Result.Value, r.Result.Unconfirmed = int64(9), io.EOF
	r.Done()
	require.Equal(t, Unconfirmed, r.err.(*Refusal).Status)
	(&request{server: s, n: 1, once: "id", reply: Reply{Status: Issued, Last: 6, Count: 1}}).Left(0)
	require.Equal(t, []Gap{{First: 6, Last: 99, Cause: AnswerLost}, {First: 7, Last: 99, Cause: AnswerLost},
		{First: 8, Last: 9, Cause: NotReplicated}}, got)
}
