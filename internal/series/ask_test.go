package series

import (
	"strings"
	"testing"
)

// Calls share a request, the server's clock was set back, differs from the host's or leaves the span during a call, or a
// call cannot get a number for another reason.
func TestCalls(t *testing.T) {
	// One call is in flight while three others wait, for which something changes.
	share := func(number, change string) string {
		return "run 2ms; meanwhile next → [29] after 2ms" + strings.Repeat("; meanwhile next → "+number, 3) +
			"; sleep 3ms; " + change
	}
	playAll(t, map[string]scenario{
		"only calls for the same type share a request": {"", "next → 1 opened; type AB; next → 1 opened; type IS; " +
			"run 2ms; meanwhile next → 2 after 2ms; meanwhile next → 3 after 4ms; request id; meanwhile next → 5 after 4ms; " +
			"request; type AB; meanwhile next → 2 after 4ms; type IS; meanwhile next → 4 after 4ms; sleep 9ms; run 0s; " +
			"request id; next → 5 repeated; runs → 7"},
		"calls share a request, and the clock leaves the span": {"anySkew",
			"issue 1; " + share("[123] of 20000102.*", "clock 24h") + "; sleep 1s; get serial:{IS}:20000102 → 3"},
		"calls share a request, and the clock is set back": {"",
			"at 00:00:03; issue 1; " + share("[345] after 2.002s", "clock -5s")},
		"calls share a request, and the block ends": {"ledger", "issue 8; " + share("1[012].*", "sleep 1s")},

		"the clock was set back a little":           {"", "at 00:00:03; issue 1; clock -6s; next → 2 after 3s"},
		"the clock was set back too far":            {"", "at 00:00:03; issue 1; clock -9s; next → future"},
		"the clock was set back beyond the context": {"", "at 00:00:03; issue 1; clock -6s; next 2s → future"},
		"the clock was set back and does not advance": {"",
			"at 00:00:03; issue 1; freeze -4s; next → future after (4|4.5|5)s"},
		"the clock jumps again and again": {"", "issue 1; run " + strings.Repeat("+48h, +0h, ", (clockTries+5)/2) + "EOF; " +
			"next → unsteady"},

		"a clock is too far behind":        {"", "clock -2h; next → skewed; released → 1"},
		"a clock is behind":                {"", "clock -1h; next → 1 of 19991231 opened"},
		"a clock is ahead":                 {"", "clock 1h; next → 1 opened"},
		"a clock is too far ahead":         {"", "clock 2h; next → skewed; released → 1"},
		"it is too far ahead and prepared": {"", "issue 1; prepare → <nil>; clock 24h; next → skewed"},
		"it is too far ahead and prepared, for a request": {"",
			"request a; next → 1 opened; prepare → <nil>; clock 24h; request b; next → skewed"},
		"it is too far behind and prepared": {"",
			"issue 1; prepare → <nil>; sleep 25h; clock -2h; next → 2; sleep 2h; next → skewed"},
		"it is too far behind and prepared, for a request": {"", "request a; next → 1 opened; prepare → <nil>; sleep 25h; " +
			"clock -2h; request b; next → 2; sleep 2h; request c; next → skewed"},

		"GET is denied":              {"", "issue 1; deny GET; next → NOPERM.*"},
		"INFO is denied":             {"ledger", "deny INFO; next → unknown"},
		"the last day has ended":     {"over", "next → over"},
		"the date cannot be printed": {"", "print unprintable; next → unprintable"},
		"a floor below 0":            {"floor -1", "next → answered -1: want 0 to 10001"},
		"a floor above the limit":    {"floor 10001", "next → exhausted"}, // it may be that of another generator
		"a floor above any limit":    {"floor 10002", "next → answered 10002: want 0 to 10001"},
		"several numbers, and too few": {"",
			"issue 1; counter 9997; take 3 → exhausted; get serial:{IS}:20000101 → 9997"},
		// A stored number must be confirmed in each repetition, but reading needs no confirmation.
		"replicas do not confirm a number": {"replica",
			"request a; next → unconfirmed; next → unconfirmed; read 20000101 19991231 → \\[1 1 -1]"},
		"only the run with the grant detects a loss": {"ledger",
			"next → 1 opened; issue 2; counter 1; other raise 5 → 10 lost"},
		// A stored number must be remembered like an issued one, unless it belongs to another period.
		"a request is repeated": {"shared", "request a; other next → 1 opened; next → 1 repeated; " +
			`get serial:{*}:once:a → "20000101" "" "IS" 1 plain; counter 0; request b; next → lost`},
		"a request is repeated after two days": {"",
			"request a; next → 1 opened; next → 1 repeated; sleep 49h; next → 1 of 20000103 opened"},
		"a request is repeated on the next day": {"shared", "request a; other next → 1 opened; sleep 24h; " +
			"next → 1 of 20000102 repeated; request b; next → 1 of 20000102 opened"},
	})
}
