package gapless_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/gapless"
)

// bind must replace named arguments by the placeholders of each dialect or, for MySQL, by literals.
func TestBind(t *testing.T) {
	const statement = "SELECT {series}, {n}, {series} FROM t WHERE closed = {end}"
	a := map[string]any{"series": []byte("a'{n}"), "n": int64(-7), "end": nil, "unused": int64(1)}
	values := []any{a["series"], a["n"], a["series"], nil}
	for d, want := range map[gapless.Dialect]string{
		gapless.PostgreSQL: "SELECT $1, $2, $3 FROM t WHERE closed = $4",
		gapless.MySQL:      "SELECT x'61277b6e7d', -7, x'61277b6e7d' FROM t WHERE closed = NULL",
		gapless.SQLite:     "SELECT ?, ?, ? FROM t WHERE closed = ?",
	} {
		text, bound := gapless.Bind(d, statement, a)
		require.Equal(t, want, text)
		if d == gapless.MySQL {
			require.Empty(t, bound)
		} else {
			require.Equal(t, values, bound)
		}
	}
	require.PanicsWithValue(t, "gapless: no argument n for SELECT {n}", func() {
		gapless.Bind(gapless.SQLite, "SELECT {n}", nil)
	})
}
