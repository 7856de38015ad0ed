package series

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/internal/wire"
)

// For each reply to a grant, the right sequences must be reported as gaps, with the right cause.
func TestGapsOfGrant(t *testing.T) {
	raised := func(from, upto int64) Reply {
		return Reply{Status: Issued, Last: upto + 1, Count: 1, From: from, Upto: upto}
	}
	block := granted{after: 20, upto: 30}
	for name, test := range map[string]struct {
		reply   Reply
		err     error
		granted granted
		want    string
	}{
		"nothing was skipped":     {Reply{Status: Issued, Last: 21, Count: 1}, nil, block, ""},
		"a block was skipped":     {raised(15, 20), nil, block, "skipped 16-20"},
		"the floor knows them":    {raised(15, 20), nil, granted{floor: 18, after: 20, upto: 30}, "skipped 19-20"},
		"the counter was lost":    {raised(-1, 20), nil, block, ""},
		"an operator raised it":   {raised(15, 25), nil, granted{seq: 25}, "raised 16-25"},
		"the limit cut the raise": {raised(15, 23), nil, granted{seq: 25}, "raised 16-23"},
		"the counter fell behind": {raised(15, 20), nil, granted{after: 20, upto: 30, follow: true}, "skipped 16-20"},
		"a floor above the raise": {raised(15, 28), nil, granted{seq: 25, floor: 28}, ""},
		"it was raised in a block": {raised(15, 25), nil, granted{seq: 25, after: 15, upto: 35, follow: true},
			"raised 16-25"},
		"it was raised above a block": {raised(15, 25), nil, granted{seq: 25, after: 18, upto: 35},
			"skipped 16-18, raised 19-25"},
		"replicas did not confirm": {Reply{Status: Issued, Last: 22, Count: 2, Unconfirmed: io.EOF}, io.EOF, block,
			"unconfirmed 21-22"},
		"stale":                    {Reply{Status: stale}, nil, block, "burned 21-30"},
		"stale and mixed":          {Reply{Status: stale, Found: Found{Mixed: true}}, nil, block, ""},
		"mixed when it was found":  {Reply{Status: stale}, nil, granted{after: 20, upto: 30, mixed: true}, ""},
		"another calendar":         {Reply{Status: Calendar}, nil, block, ""},
		"another time zone":        {Reply{Status: Conflict}, nil, block, ""},
		"outside the span":         {Reply{Status: clocked}, nil, block, ""},
		"exhausted, not installed": {Reply{Status: Exhausted}, nil, block, "burned 21-30"},
		"exhausted, installed":     {Reply{Status: Exhausted, From: 22, Upto: 24}, nil, block, ""},
		"it did not run":           {Reply{}, wire.ErrUnsent, block, "burned 21-30"},
		"it may have run":          {Reply{}, errors.New("EOF"), block, ""},
		"no block":                 {Reply{Status: stale}, nil, granted{}, ""},
	} {
		x := &fixture{environment: &environment{}}
		g := gaps{report: x.report}
		g.ended(&request{n: 1, options: &options{Grant: &grant{}}, reply: test.reply, err: test.err, granted: test.granted})
		require.Equal(t, test.want, strings.Join(x.gaps, ", "), name)
	}
}

// A caller leaves a shared request. Its own number must become a gap, or no number if earlier callers got the last one.
func TestLeft(t *testing.T) {
	for position, want := range [][]string{{"left 5-5", "burned 8-9"}, {"left 6-6", "burned 8-9"}, {"burned 8-9"}} {
		x := &fixture{environment: &environment{}, counts: map[string]int{}}
		s := &server{Series: &Series{gaps: gaps{report: x.report, pending: x.pend}}}
		r := &request{server: s, n: 3, reply: Reply{Status: Issued, Last: 6, Count: 2}}
		r.Merge = wire.Merge{Name: "IS"}
		r.Leave()
		require.Equal(t, 1, x.counts["pending"])
		r.Left(position)
		require.Zero(t, x.counts["pending"])
		r.reply, r.granted = Reply{Status: clocked}, granted{after: 7, upto: 9}
		r.Left(position)
		require.Equal(t, want, x.gaps)
	}
}

// An attempt gets no readable reply. It may have taken any number above the high-water mark, unless its number is
// stored or it takes none. Numbers that were not confirmed by replicas must be gaps.
func TestLost(t *testing.T) {
	x := &fixture{environment: &environment{}}
	s := &server{Series: &Series{gaps: gaps{report: x.report, limit: 99, probe: &Target{}}}}
	for _, r := range []*request{{}, {n: 1, requestID: "id"}, {n: 1, span: s.gaps.probe}, {n: 2, highWater: 5}} {
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
	(&request{server: s, n: 1, requestID: "id", reply: Reply{Status: Issued, Last: 6, Count: 1}}).Left(0)
	require.Equal(t, []string{"lost 6-99", "lost 7-99", "unconfirmed 8-9"}, x.gaps)
}
