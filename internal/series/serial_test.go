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

// These replies depend on states that rarely occur in histories. Some of the states are left by another version, a
// manual change, another time zone or a loss.
func TestSerialScript(t *testing.T) {
	with, without := miniredis.RunT(t), miniredis.RunT(t) // a replication ID
	redismemory.AddReplicationID(with)
	id := strings.Repeat("0", 40)
	const settings = " days" + version + " #aa"
	const today, tomorrow = "20211024 1000 2000" + settings, "20211025 2000 3000" + settings
	const opened, prepared = "entered=" + today, "entered=" + today + ", ahead=20211025 2000 3000"
	const next = `{"next":{"period":"20211025 2000 3000","expires":4000,"base":0,"compared":true}`
	const plain = `{"grant":{"checked":1500000,"lease":8000,"base":0`
	block := func(copied string) string {
		return opened + " ledger, ceiling=20, counterCopy=" + copied + ", replID=" + id
	}
	grant := `{"checked":1500000,"lease":8000,"base":0,"exists":true,"ceiling":20,"id":"` + id + `","entered":"` + today +
		` ledger",`
	installed := `{"grant":` + grant + `"block":[20,30]}}`
	instead := func(old, new string) string { return strings.Replace(installed, old, new, 1) }
	for name, test := range map[string]struct {
		at              int64  // time, 1500 if it is 0
		record, counter string // fields separated by commas; "list" for a key of another Redis type
		third           string // content of a third key
		period          string // of the request, today's if it is ""
		n, seen         int64
		options         string
		want            string // pattern of the reply, the record, the counter's expiry, and whether KEYS[3] exists
		persisted       bool   // the counter has no expiry before
	}{
		"before the span":    {at: 999, record: opened, counter: "5", n: 1, want: `"clock"`},
		"after it":           {at: 2000, record: opened, counter: "5", n: 1, want: `"clock"`},
		"no expiry, changed": {record: opened, counter: "5", n: 1, seen: 4, persisted: true, want: "^6 .*25m0s"},
		"no expiry, own":     {record: opened, counter: "0", n: 1, persisted: true, want: "^1 .*25m0s"},

		"the copy differs":   {record: block("4"), counter: "5", n: 1, want: `"missing"`},
		"the copy is old":    {record: block("5"), counter: "5", n: 1, seen: 9, want: `"intact":false`},
		"the block is short": {record: block("20"), counter: "20", n: 3, options: instead("30", "22"), want: `"stale"`},
		"a block elsewhere":  {record: block("20"), counter: "20", n: 1, options: instead("20,30", "25,30"), want: `"26"`},
		"an early grant":     {at: 1499, record: block("20"), counter: "20", n: 1, options: installed, want: `"stale"`},
		"a late grant":       {at: 1508, record: block("20"), counter: "20", n: 1, options: installed, want: `"stale"`},
		"another period":     {record: block("20"), counter: "20", n: 1, options: instead("1024", "1023"), want: `"stale"`},
		"another ceiling":    {record: block("20"), counter: "20", n: 1, options: instead(":20,", ":19,"), want: `"stale"`},
		"a new counter":      {record: block("20"), counter: "20", n: 1, options: instead("true", "false"), want: `"stale"`},
		"no block":           {record: block("20"), counter: "20", n: 1, options: instead("block", "lock"), want: `"stale"`},
		"no floor":           {record: opened, counter: "x", n: 1, options: plain + "}}", want: `"lost"`},
		"a floor above":      {record: opened, counter: "5", n: 1, options: plain + `,"floor":9}}`, want: `"upto":"9"`},
		"the block has some": {record: block("19"), counter: "19", n: 81,
			options: instead("20,30", "30,99"), want: `"text":"19"`},
		"the counter went back": {record: block("9"), counter: "5",
			options: `{"purpose":"raise","seq":12,"grant":` + grant + `"block":[20,22]}}`, want: `"from":"-1"`},
		"another caller's lock": {third: "other", n: 1, options: plain + `,"lock":"own"}}`, want: "^1 .*true"},
		"its own lock":          {third: "own", n: 1, options: plain + `,"lock":"own"}}`, want: "^1 .*false"},

		"another calendar": {record: "entered=2021W43 1000 2000 weeks" + version + " #aa", counter: "5", n: 1,
			want: `"calendar"`},
		"the same label": {at: 2500, record: opened, counter: "5", period: "20211024 2000 3000" + settings, n: 1,
			want: `"conflict"`},
		"no hash":             {record: "list", counter: "5", n: 1, want: `"text":"another type of key"`},
		"a large counter":     {record: opened, counter: strings.Repeat("9", 30), want: "^1000000000000000 "},
		"leading zeros":       {record: opened, counter: "007", n: 1, want: `"status":"lost"`},
		"a process remembers": {n: 1, seen: 5, want: `"status":"lost"`},
		"no master":           {period: today + " ledger", n: 1, want: `"unknown"`},
		"prepared, far": {at: 2500, record: prepared, counter: "0", period: tomorrow, n: 1, options: "af",
			want: `"status":"missing"`},
		"prepared, far, n = 0": {at: 2500, record: prepared, counter: "0", period: tomorrow,
			options: `{"all":true,"far":true}`, want: `"status":"missing"`},
		"prepared and lost": {at: 2500, record: prepared, period: tomorrow, n: 1, want: `"status":"lost"`},
		"it is doubtful": {record: opened + ", doubtful=20211025 20211026", counter: "5", options: next + "}",
			want: `"status":"lost"`},
		"it is repaired": {record: prepared + ", firstAhead=7", counter: "5", options: next + `,"grant":{"floor":3}}`,
			want: "^6 "},
		"taken over": {at: 2500, record: prepared + ", firstAhead=7", period: "20211025 2100 3100" + settings, seen: 3,
			options: `{"purpose":"takeover","seq":9}`, want: `"above":"3"`},
		"taken over, so that nothing is prepared": {record: prepared, counter: "5", period: "20211024 900 2000" + settings,
			options: `{"purpose":"takeover","seq":9,` + plain[1:] + `,"floor":9}}`,
			want:    `"upto":"9".*map\[entered:20211024 900 2000` + settings + "]"},
		"the ledger was not used for the label": {at: 2500, period: tomorrow + " ledger", n: 1, want: `"status":"lost"`,
			record: opened + " ledger, doubtful=20211024 20211027, ledger=20211027+"},
		"the ledger was used for the label": {at: 2500, period: tomorrow + " ledger", n: 1, want: `"status":"missing"`,
			record: opened + " ledger, doubtful=20211024 20211027, ledger=20211025"},
		"a record of 0.5.0": {record: "entered=20211024 1000 2000 days #aa, ahead=;20211025 2000 3000;, " +
			"used=20211020-20211024;20211026-20211027;, starts=20211024-20211024 5;20211025-20211025 7;",
			counter: "9", n: 1, want: `^10 map\[ahead:20211025 2000 3000 doubtful:20211024 20211027 entered:` + today +
				" first:5 firstAhead:7]"},
		"no record, so no other caller keeps the counter for longer": {counter: "5", n: 1, options: plain + "}}",
			want: "^6 .*25m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			m := with
			if name == "no master" {
				m = without
			}
			rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
			defer rdb.Close()
			m.FlushAll()
			m.SetTime(time.Unix(cmp.Or(test.at, 1500), 0))
			if test.third != "" {
				require.NoError(t, m.Set("third", test.third))
			}
			if test.counter == "list" {
				_, _ = m.Push("c", "x")
			} else if test.counter != "" {
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
			require.Regexp(t, test.want, fmt.Sprint(reply, record, m.TTL("c"), m.Exists("third")))
		})
	}
}
