package series

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A block must begin above every used sequence, and be as long as required.
func TestReserve(t *testing.T) {
	type block = [2]int64
	for name, test := range map[string]struct {
		found      Found
		floor, seq int64
		n          int
		ledger     int64 // last sequence that the ledger has
		want       block
		asked      block // above, n
		follow     bool
	}{
		"the next block":  {Found{Above: 20, Ceiling: 20, Intact: true}, 0, 0, 1, 20, block{20, 30}, block{20, 10}, true},
		"not intact":      {Found{Above: 20, Ceiling: 20}, 0, 0, 1, 20, block{20, 30}, block{20, 10}, false},
		"others reserved": {Found{Above: 20, Ceiling: 20, Intact: true}, 0, 0, 1, 33, block{33, 43}, block{20, 10}, false},
		"a floor":         {Found{Above: 20}, 25, 0, 1, 0, block{25, 35}, block{25, 10}, false},
		"a start":         {Found{Starts: true}, 0, 0, 1, 0, block{4, 14}, block{4, 10}, false},
		"no start":        {Found{}, 0, 0, 1, 0, block{0, 10}, block{0, 10}, false},
		"many numbers":    {Found{Above: 20}, 0, 0, 12, 0, block{20, 32}, block{20, 12}, false},
		"the last block":  {Found{Above: 95}, 0, 0, 1, 0, block{95, 99}, block{95, 4}, false},
		"an operator":     {Found{Above: 20}, 0, 40, 0, 0, block{20, 50}, block{20, 30}, false},
		"above the limit": {Found{Above: 120}, 0, 0, 1, 0, block{120, 121}, block{120, 1}, false},
		"mixed":           {Found{Above: 20, Mixed: true}, 0, 0, 1, 0, block{20, 30}, block{20, 10}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Series{Config: &Config{Block: 10, Limit: 99, Largest: 150}}
			after := max(test.ledger, test.asked[0])
			s.Reserve = func(_ context.Context, _, _ string, above, n int64) (int64, error) {
				require.Equal(t, test.asked, block{above, n})
				return after, nil
			}
			o := &opening{Call: new(Call), floor: test.floor, seq: test.seq}
			o.series, o.n, o.deadline = s, test.n, time.Now().Add(time.Minute)
			o.found = &request{reply: Reply{Found: test.found}, span: newSpans(s.Config).probe}
			g, l := &grant{Base: 4}, granted{}
			require.NoError(t, o.reserve(t.Context(), g, &l))
			require.Equal(t, test.want, *g.Block)
			require.Equal(t, granted{after: test.want[0], upto: test.want[1], follow: test.follow, mixed: test.found.Mixed}, l)
			for _, after = range []int64{test.asked[0] - 1, MaxSeq - test.asked[1] + 1} {
				require.ErrorIs(t, o.reserve(t.Context(), g, &l), ErrLedger)
			}
			o.found.reply.Above = MaxSeq
			require.Equal(t, Exhausted, o.reserve(t.Context(), g, &l).(*Refusal).Status, "no block can lie above")
		})
	}
}
