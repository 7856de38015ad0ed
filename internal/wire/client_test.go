package wire_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/internal/wire"
)

func TestDo(t *testing.T) {
	inBubble(t, func(t *testing.T, x *fixture) {
		x.play(t, "restart; alone k → 1; alone k → 2; call k → 3; call k → 4; "+
			"sent → k / eval:k / k / k / k; call k plain → 5")
		r := x.calls["k"].Result
		require.False(t, r.Sent.IsZero() || r.Received.Before(r.Sent))
		require.Equal(t, "local", x.node.Local)
		c := x.newCall("none", "plain")
		c.args = func(*wire.Item) []any { return []any{"get", "none"} }
		_, err := x.do(t.Context(), c)
		require.NoError(t, err, "a null is a reply")
		require.Nil(t, c.Result.Value)
	})
}
