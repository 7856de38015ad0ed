package series

import (
	"strings"
	"testing"
)

// A call needs a grant. It must get the lock, check the counter again before it queries a ledger or a floor, send the
// grant, and release the lock, and each of these can fail or take long.
func TestGrants(t *testing.T) {
	const lock = "; get serial:{IS}:20000101:lock →"
	const repeated = `20000101 \d+ \d+ days #aa ledger "20000101" "" 1 plain` // as 0.5.0 reads it
	playAll(t, map[string]scenario{
		"nothing is queried":             {"", "next → 1 opened; checks → 0; released → 0; attempts → 1; runs → 2" + lock},
		"a floor is queried":             {"floor 7", "next → 8 opened; checks → 1; asked → 1; released → 0; runs → 3"},
		"a ledger is queried":            {"ledger", "next → 1 opened; checks → 1; asked → 1; released → 0; runs → 3"},
		"nothing, the lock is elsewhere": {"elsewhere", "next → 1 opened; checks → 0; released → 1"},
		"a floor, the lock is elsewhere": {"elsewhere, floor 7", "next → 8 opened; checks → 1; asked → 1; released → 1"},
		// Another process opens the period before this one has the lock, so the floor is not queried again.
		"the period is open":              {"", "lock other, success; next → 2; checks → 0; released → 1"},
		"the period is open, and a floor": {"floor 7", "lock other, success; next → 9; checks → 1; asked → 0; released → 1"},
		"the lock is taken":               {"", "lock taken, taken, taken, success; next → 1 opened soon; attempts → 4"},
		"the lock is taken for long":      {"", "lock taken; next → other callers held the lock after about 30s"},
		"the lock server fails":           {"", "lock EOF; next → EOF after about 10s"},
		"the lock server refuses":         {"", "lock refused; next → refused; attempts → 1"},
		"the lock server is silent":       {"", "lock 10s silence; next → no answer in time.* after 10s; attempts → 1"},
		"no WAIT is sent with the lock, so the check is sent later": {"ledger, replica", "next → unconfirmed; " +
			"checks → 0"},
		"the lock is for a period that has ended": {"ledger, elsewhere",
			"at 23:59:59; lock 2s, success; next → 1 of 20000102 opened after about 2s; attempts → 2"},
		"SET is denied, so nothing is written": {"", "deny SET; next → NOPERM.*; deny; next → 1 opened"},
		"SET is denied for a request":          {"", "issue 1; request id; deny SET; next → NOPERM.*; deny; next → 2"},
		"HDEL is denied, so nothing is written": {"",
			"issue 1; sleep 24h; deny HDEL; next → NOPERM.*; deny; next → 1 of 20000102 opened"},
		"a second and a slow network": {"seconds", "run 600ms; grant 600ms; issue 1; at 00:00:10; " +
			"sleep 500ms; next → 1 of 20000101000011 opened after 1.2s; clock 5s; at 00:00:20; sleep 100ms; " +
			"next → 1 of 20000101000026 opened after 1.8s"},
		"a period of a second needs no lock": {"seconds", "next → 1 of 20000101000000 opened; attempts → 0"},

		"the lease begins with the request for the lock": {"base 4",
			`lock 3s; next → 5 opened after 3s; granted → "checked":946684800000,"lease":8000,"base":4,"lock".*`},
		"the lease after a second check": {"base 4, floor 0", "lock 3s; floor 1s; next → 5 opened after 4s; " +
			`granted → "checked":946684803000,"lease":5000,"base":4,"floor":0.*`},
		"the floor is below the start": {"base 4, floor 4",
			`lock 3s; next → 5 opened after 3s; granted → "lease":5000,"base":0,"floor":4.*`},
		"the floor is above the start": {"base 4, floor 5",
			`lock 3s; next → 6 opened after 3s; granted → "lease":5000,"base":4,"floor":5.*`},
		"the next block is no opening": {"ledger, floor 0",
			`issue 10; next → 11; asked → 3; granted → "base":0,"lock":"token","block":\[10,20\].*`},
		"the grant is stale": {"", "grant +8s, success; next → 1 opened soon; released → 1; attempts → 2"},
		"an operator raises a counter": {"floor 7", "grant ran EOF, success; raise 5 → 7; raise 9 → 9; raise 8 → 9; " +
			"delete; raise 8 → 8 lost"},
		"a floor repairs a lost counter": {"floor 7", "next → 8 opened; delete; next → 9 lost opened; asked → 2"},
		"nothing repairs a lost counter": {"", "issue 9; delete; next → lost; counter 8; next → lost; counter 9; next → 10"},

		"a caller leaves when it has waited for long": {"ledger 2500ms", "lock 4s EOF, 4s; " +
			"next → gave up waiting for the period of IS to be opened.* no answer in time.* after 10s; " +
			"sleep 5s; gaps → left 1-1"},
		"a caller leaves while another waits": {"ledger 2s",
			"meanwhile next 1s → context deadline exceeded after 1s; meanwhile next → 2 after 2s; sleep 1s; pending → 1; " +
				"sleep 2s; gaps → left 1-1; asked → 1"},
		"a caller whose number is stored leaves": {"ledger 2s", "request id; next 1s → context deadline exceeded after 1s; " +
			"sleep 2s; gaps →; get serial:{IS}:once:id → " + repeated + "; next → 1 repeated"},
		"a query of a floor ends with its caller": {"floor 0",
			"floor hangs canceled; next 1s → context deadline exceeded after 1s; released → 1"},

		"the hour ends during a query": {"ledger 2s, hours", "at 11:59:59; next → 1 of 12 opened after 2s; gaps →; " +
			"asked → 1; runs → 3"},
		"the hour ends during the request": {"ledger, hours", "at 11:59:59; grant 2s, success; " +
			"next → 1 of 12 opened after (about )?2s; gaps →; asked → 1"},
		"the day ends during a query": {"ledger 2s, hours", "at 23:59:59; next → 1 of 00 opened after about 4s; " +
			"gaps → burned 1-10; asked → 2"},
		"the day ends during the request": {"ledger, hours", "at 23:59:59; grant 2s, success; " +
			"next → 1 of 00 opened after about 2s; gaps → burned 1-10; asked → 2"},
		"the clock jumps again and again": {"ledger, hours", "run +0h; grant " +
			strings.Repeat("+1h, +0h, ", clockTries/2) + "+1h, +0h; next → 11 of 00 opened soon; " +
			"gaps → burned 1-10, skipped 1-10"},

		"the reply is lost": {"ledger", "grant ran EOF, success; next → EOF; released → 0; gaps → lost 1-9999; " +
			"next → 2"},
		"the grant is lost": {"ledger", "grant EOF, success; next → EOF; released → 0; gaps → lost 1-9999; " +
			"next → 11 opened"},
		"the script fails": {"ledger", "grant ERR failed, success; next → ERR failed; released → 1; " +
			"gaps → lost 1-9999; next → 11 opened"},
		"the grant is refused": {"ledger", "grant OOM command, success; next → OOM command.*; released → 1; " +
			"gaps → burned 1-10; next → 11 opened"},
		"Redis is loading": {"ledger", "grant LOADING Redis, success; next → LOADING Redis; released → 1; " +
			"gaps → burned 1-10; next → 11 opened"},
		"the reply is lost after a refusal": {"ledger", "grant TRYAGAIN Multiple, ran timeout, success; " +
			"next → i/o timeout.* soon; released → 0; gaps → lost 1-9999"},
		"Redis is loading, without a ledger":  {"", "grant LOADING Redis, success; next → 1 opened soon"},
		"the reply is lost, without a ledger": {"", "grant ran EOF, success; next → EOF; next → 2"},
		"the ledger is late": {"ledger 9s", "next → the ledger of IS 20000101: no answer in time.* after 7s; " +
			"sleep 3s; gaps → burned 1-10"},
		"the lock and the ledger are late": {"ledger 6s", "lock 3s; " +
			"next → the ledger of IS 20000101: no answer in time.* after 7s"},
		"the ledger is late for an operator": {"ledger 9s",
			"raise 5 → the ledger of IS 20000101: no answer in time.* after 7s"},
		"a floor ends in time with its own error": {"floor 0", "floor hangs broken; next → broken after 6.5s"},
	})
	// If callers without a ledger issue numbers of the period, too, the state of a late block is not known.
	inBubble(t, "ledger 9s", func(x *fixture) {
		x.process(x.t, "").play("next → 1 opened")
		x.play("next → the ledger of IS 20000101: no answer in time.* after 7s; sleep 3s; gaps →")
	})
}
