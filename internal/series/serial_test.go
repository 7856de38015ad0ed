package series

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	redismemory "github.com/dailyserial/serial/internal/redistest/memory"
)

// Each rule of the scripts decides a reply or a field of the record. Some of the states are left by another version, a
// manual change, another time zone or a loss.
func TestSerialScript(t *testing.T) {
	m := miniredis.RunT(t)
	redismemory.AddReplicationID(m)
	id := strings.Repeat("0", 40)
	const settings, otherMark = " days" + version + " #aa", " days" + version + " #bb"
	const today, tomorrow = "20211024 1000 2000" + settings, "20211025 2000 3000" + settings
	const dayAfter = "20211026 3000 4000" + settings
	const opened, prepared = "entered=" + today, "entered=" + today + ", ahead=20211025 2000 3000"
	const next = `{"next":{"period":"20211025 2000 3000","expires":4000,"base":0,"compared":true}`
	const plain = `{"grant":{"checked":0,"lease":9000000,"base":0`
	const raise, takeover = `{"purpose":"raise","seq":9`, `{"purpose":"takeover","seq":9`
	const taken = takeover + `,"grant":{"checked":0,"lease":9000000,"base":0,"floor":9}}`
	block := func(copied string) string {
		return opened + " ledger, ceiling=20, counterCopy=" + copied + ", replID=" + id
	}
	grant := `{"checked":1500000,"lease":8000,"base":0,"exists":true,"ceiling":20,"id":"` + id + `","entered":"` + today +
		` ledger",`
	installed := `{"grant":` + grant + `"block":[20,30]}}`
	instead := func(old, new string) string { return strings.Replace(installed, old, new, 1) }
	for name, test := range map[string]struct {
		at              int64  // time, 1500 if it is 0
		record, counter string // fields of the record separated by commas; "list" for a key of another Redis type
		third           string // content of a third key
		period          string // of the request, today's if it is ""
		n, seen         int64
		options         string
		// pattern of the reply, the record, the counter's expiry, whether KEYS[3] exists, and the record's expiry
		want      string
		persisted bool // the counter has no expiry before
	}{
		"before the span":    {at: 999, record: opened, counter: "5", n: 1, want: `"clock"`},
		"after it":           {at: 2000, record: opened, counter: "5", n: 1, want: `"clock"`},
		"no expiry, changed": {record: opened, counter: "5", n: 1, seen: 4, persisted: true, want: "^6 .* 25m0s "},
		"no expiry, own":     {record: opened, counter: "0", n: 1, persisted: true, want: "^1 .* 25m0s "},

		"the copy differs": {record: block("4"), counter: "5", n: 1, want: `"above":"20".*"missing"`},
		"the copy is old":  {record: block("5"), counter: "5", n: 1, seen: 9, want: `"intact":false`},

		"the copy is written": {record: block("18"), counter: "18", n: 1, options: `{"all":true}`,
			want: "^19 .*counterCopy:19"},
		"another server":                 {record: block("5") + "1", counter: "5", n: 1, want: `"missing"`},
		"all of a block":                 {record: block("19"), counter: "19", n: 3, want: `"missing"`},
		"the counter is above the block": {record: block("25"), counter: "25", n: 1, want: `"above":"25"`},
		"the limit is below the ceiling": {record: strings.Replace(block("99"), "ceiling=20", "ceiling=120", 1),
			counter: "99", n: 1, want: `"exhausted"`},
		"the next block": {record: block("19"), counter: "19", n: 2, options: installed, want: "^21 "},
		"a block above the limit": {record: block("20"), counter: "20", n: 1, options: instead("20,30", "120,130"),
			want: `"text":"99"`},

		"the block is short": {record: block("20"), counter: "20", n: 3, options: instead("30", "22"), want: `"stale"`},
		"a block elsewhere":  {record: block("20"), counter: "20", n: 1, options: instead("20,30", "25,30"), want: `"26"`},

		"an early grant":  {at: 1499, record: block("20"), counter: "20", n: 1, options: installed, want: `"stale"`},
		"a late grant":    {at: 1508, record: block("20"), counter: "20", n: 1, options: installed, want: `"stale"`},
		"another period":  {record: block("20"), counter: "20", n: 1, options: instead("1024", "1023"), want: `"stale"`},
		"another ceiling": {record: block("20"), counter: "20", n: 1, options: instead(":20,", ":19,"), want: `"stale"`},
		"a new counter":   {record: block("20"), counter: "20", n: 1, options: instead("true", "false"), want: `"stale"`},
		"a restart":       {record: block("20"), counter: "20", n: 1, options: instead(id, "1"), want: `"stale"`},
		"no block":        {record: block("20"), counter: "20", n: 1, options: instead("block", "lock"), want: `"stale"`},

		"no floor": {record: opened, counter: "x", n: 1, options: plain + "}}", want: `"lost"`},
		"a floor above": {record: opened, counter: "5", n: 1, options: plain + `,"floor":9}}`,
			want: `"upto":"9".*1h0m0s`},
		"another caller":           {record: opened, counter: "5", n: 1, options: plain + "}}", want: `"there"`},
		"too few, and some":        {record: opened, counter: "98", n: 3, options: "f", want: `"part"`},
		"it is raised already":     {record: opened, counter: "9", options: raise + "}", want: "^9 "},
		"an opened period is lost": {record: opened + ", first=8", n: 1, want: `"above":"7".*"starts":false.*"lost"`},
		"a new period": {at: 2500, record: opened, period: tomorrow, n: 1, options: plain + "}}",
			want: `^1 map\[entered:` + tomorrow + `\] 8m20s`},
		"it was prepared before a takeover": {at: 2500, record: opened, counter: "6", period: tomorrow, n: 1,
			options: strings.Replace(plain, `base":0`, `base":6`, 1) + "}}", want: `^7 map\[entered:` + tomorrow + ` first:7\]`},
		"it had a lower start": {at: 2500, record: opened, counter: "5", period: tomorrow, n: 1,
			options: strings.Replace(plain, `base":0`, `base":6`, 1) + "}}", want: `^6 map\[entered:` + tomorrow + `\]`},
		"a later period": {at: 3500, record: opened, period: dayAfter, n: 1, options: plain + "}}",
			want: `^1 map.*jump:20211024 20211026\]`},
		"the block has some": {record: block("19"), counter: "19", n: 81,
			options: instead("20,30", "30,99"), want: `"text":"19"`},
		"another caller's lock": {third: "other", n: 1, options: plain + `,"lock":"own"}}`, want: "^1 .*true"},
		"its own lock":          {third: "own", n: 1, options: plain + `,"lock":"own"}}`, want: "^1 .*false"},

		"another calendar": {record: "entered=2021W43 1000 2000 weeks" + version + " #aa", counter: "5", n: 1,
			want: `"calendar"`},
		"the same label": {at: 2500, record: opened, counter: "5", period: "20211024 2000 3000" + settings, n: 1,
			want: `"conflict"`},
		"a raised overlap": {record: opened, period: "20211025 1500 2500" + settings, options: raise + "}",
			want: `"conflict"`},
		"a prepared overlap": {at: 2500, record: prepared, period: "20211025 2100 3100" + settings, n: 1,
			want: `"conflict"`},
		"no ledger": {record: block("5"), counter: "5", period: today, n: 1, want: `"conflict"`},
		"a ledger is kept": {record: block("5"), counter: "5", period: today, options: takeover + `,"keep":true}`,
			want: `"conflict"`},
		"a ledger is left": {record: block("5") + ", ledger=20211020", counter: "5", period: today, options: taken,
			want: `"upto":"9".*map\[entered:` + today + `\]`},
		"a ledger is introduced": {at: 2500, record: opened + ", doubtful=20211024 20211027", counter: "5", n: 1,
			period: tomorrow + " ledger", want: `"last":"21".*ledger:20211027\+`,
			options: plain + `,"exists":true,"ceiling":-1,"id":"` + id + `","entered":"` + today + `","block":[20,30]}}`},
		"another period's ceiling": {at: 2500, record: block("5"), counter: "5", period: tomorrow + " ledger", n: 1,
			want: `"ceiling":"-1"`},

		"another print mark": {record: opened, counter: "5", period: "20211024 1000 2000" + otherMark, n: 1, want: `"print"`},
		"another print mark for a doubtful label": {at: 2500, record: opened + ", doubtful=20211024 20211027", n: 1,
			period: "20211025 2000 3000" + otherMark, want: `"print"`},
		"another print mark for a new label": {at: 2500, record: opened, period: "20211025 2000 3000" + otherMark, n: 1,
			options: plain + "}}", want: `^1 .*print:20211025`},
		"before the print mark": {at: 2500, record: "entered=" + dayAfter + ", print=20211026", period: tomorrow,
			options: takeover + "}", want: `"print"`},
		"before the print mark, but jumped over": {at: 2500, period: tomorrow, options: takeover + "}", want: `"missing"`,
			record: "entered=" + dayAfter + ", print=20211026, jump=20211024 20211026"},

		"the label before a jump": {record: opened + ", jump=20211020 20211024", period: "20211020 1000 2000" + settings,
			options: takeover + "}", want: `"lost":true`},
		"the label after a jump": {record: opened + ", jump=20211020 20211024", period: "20211024 900 2000" + settings,
			options: takeover + "}", want: `"lost":true`},
		"back into a jump": {record: "entered=" + tomorrow + ", jump=20211023 20211025", options: taken,
			want: `map\[doubtful:20211025 20211025 entered:` + today + `\]`},
		"back again": {record: "entered=" + tomorrow + ", doubtful=20211022 20211023, ahead=20211026 3000 4000",
			options: taken, want: `map\[doubtful:20211022 20211025 entered:` + today + `\]`},

		"no hash":             {record: "list", counter: "5", n: 1, want: `"text":"another type of key"`},
		"a large counter":     {record: opened, counter: strings.Repeat("9", 30), want: "^1000000000000000 "},
		"leading zeros":       {record: opened, counter: "007", n: 1, want: `"status":"lost"`},
		"a process remembers": {n: 1, seen: 5, want: `"status":"lost"`},
		"prepared, far": {at: 2500, record: prepared, counter: "0", period: tomorrow, n: 1, options: "af",
			want: `"status":"missing"`},
		"prepared, near": {at: 2500, record: prepared + ", firstAhead=7", counter: "6", period: tomorrow, n: 1,
			want: `^7 map\[entered:` + tomorrow + ` first:7\]`},
		"prepared and lost": {at: 2500, record: prepared, period: tomorrow, n: 1, want: `"status":"lost"`},
		"it is new": {record: opened, counter: "5", options: next + "}",
			want: `^0 map\[ahead:20211025 2000 3000 entered.*168h25m0s$`},
		"the floor has some": {record: opened, counter: "5", options: next + `,"grant":{"floor":3}}`, want: "^3 "},
		"the floor is not asked": {record: opened, counter: "5", want: `"missing"`,
			options: strings.Replace(next, "true", `true,"hasFloor":true`, 1) + "}"},
		"clocks are not compared": {record: opened, counter: "5", options: strings.Replace(next, "true", "false", 1) + "}",
			want: `"missing"`},
		"it is no neighbour": {record: opened, counter: "5", options: strings.Replace(next, "2000", "2100", 1) + "}",
			want: `"conflict"`},
		"its neighbour has ended": {at: 2500, record: opened, period: tomorrow, options: next + "}", want: `"stale"`},
		"it is doubtful": {record: opened + ", doubtful=20211025 20211026", counter: "5", options: next + "}",
			want: `"status":"lost"`},
		"it is repaired": {record: prepared + ", firstAhead=7", counter: "5", options: next + `,"grant":{"floor":3}}`,
			want: "^6 "},
		"taken over": {at: 2500, record: prepared + ", firstAhead=7", period: "20211025 2100 3100" + settings, seen: 3,
			options: `{"purpose":"takeover","seq":9}`, want: `"above":"3"`},
		"taken over, so that nothing is prepared": {record: prepared, counter: "5", period: "20211024 900 2000" + settings,
			options: taken, want: `"upto":"9".*map\[entered:20211024 900 2000` + settings + "]"},
		"the ledger was not used for the label": {at: 2500, period: tomorrow + " ledger", n: 1, want: `"status":"lost"`,
			record: opened + " ledger, doubtful=20211024 20211027, ledger=20211027+"},
		"the ledger was used for the label": {at: 2500, period: tomorrow + " ledger", n: 1, want: `"status":"missing"`,
			record: opened + " ledger, doubtful=20211024 20211027, ledger=20211025"},
		"a record of 0.5.0": {record: "entered=20211024 1000 2000 days #aa, ahead=;20211025 2000 3000;, " +
			"used=20211020-20211024;20211026-20211027;, starts=20211024-20211024 5;20211025-20211025 7;",
			counter: "9", n: 1, want: `^10 map\[ahead:20211025 2000 3000 doubtful:20211024 20211027 entered:` + today +
				" first:5 firstAhead:7]"},
		"no record, so no other caller keeps the counter for longer": {counter: "5", n: 1, options: plain + "}}",
			want: "^6 .*25m0s .*168h8m20s$"},
	} {
		t.Run(name, func(t *testing.T) {
			rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
			defer rdb.Close()
			m.FlushAll()
			m.SetTime(time.Unix(cmp.Or(test.at, 1500), 0))
			if test.third != "" {
				require.NoError(t, m.Set("third", test.third))
			}
			if test.counter != "" {
				require.NoError(t, m.Set("c", test.counter))
				if !test.persisted {
					m.SetTTL("c", time.Hour)
				}
			}
			if test.record == "list" {
				_, _ = m.Push("r", "x")
			} else if test.record != "" {
				m.HSet("r", regexp.MustCompile(", |=").Split(test.record, -1)...)
			}
			period := today
			if strings.Contains(test.record, " ledger") {
				period += " ledger"
			}
			period = cmp.Or(test.period, period)
			parts := strings.Fields(period)
			reply, err := rdb.Eval(t.Context(), SerialScript.Source, []string{"c", "r", "third"}, period, parts[1], parts[2],
				99, 3000, test.n, test.seen, cmp.Or(test.options, "a")).Result()
			require.NoError(t, err)
			record := rdb.HGetAll(t.Context(), "r").Val()
			require.Regexp(t, test.want, fmt.Sprint(reply, record, m.TTL("c"), m.Exists("third"), m.TTL("r")))
		})
	}
}
