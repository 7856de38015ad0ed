package series

import "testing"

// A call waits while another caller opens the period. Without a deadline, it must wait for half a minute, and this time
// must not count as its own. An outage must end all calls. After another failure, they must make their own attempt. A
// call for another type must not wait.
func TestWait(t *testing.T) {
	playAll(t, map[string]scenario{
		"another process has the lock for 25 s": {"",
			"lock taken; meanwhile next → no answer in time.* after 30s; sleep 25s; grant 20s; lock success"},
		"another process has the lock for 25 s, and there is a deadline": {"",
			// The opening ends after 7 s, unless it sends its request itself and the hook hangs.
			"lock taken; meanwhile next 1h → no answer in time.* after about 3[25]s; sleep 25s; grant 20s; lock success"},
		"another call waits for longer": {"",
			"lock taken; meanwhile next 40s → other callers held the lock.* after 40s; " +
				"next → other callers held the lock after 30s"},
		"the next attempt hangs": {"ledger 6s", "meanwhile next → 1 opened after 6s; " +
			"meanwhile next → no answer in time.* after 16s; sleep 5s; run 1m"},
		"the ledger of another type is slow": {"ledger",
			"ledger 6s, success; meanwhile next → 1 opened after 6s; type AB; next → 1 opened; next → 2; asked → 2"},
		"the ledger of another type hangs": {"ledger", "ledger hangs broken, success; " +
			"meanwhile next → broken after 6.5s; type AB; next → 1 opened; next → 2; asked → 2"},
		"the ledger fails": {"ledger 1s",
			"ledger broken; meanwhile next → broken after 1s; next → broken after 1s; asked → 1"},
		"the floor fails": {"floor 0", "floor 1s broken, 1s; meanwhile next → broken after 1s; next → 1 opened after 2s"},
		"the context ends": {"ledger, elsewhere", "lock 1ms; meanwhile next → LOADING.* soon; " +
			"meanwhile next 3ms → for the period of IS .* context deadline exceeded. before that: LOADING Redis after 3ms; " +
			"run LOADING Redis"},
		"midnight comes": {"", "at 23:59:59; lock taken; meanwhile next → [12] of 20000102( opened)? after about 1s; " +
			"meanwhile next → [12] of 20000102( opened)? after about 1s; sleep 1s; lock success"},
	})
}
