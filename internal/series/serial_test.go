package series

import (
	"cmp"
	"fmt"
	"slices"
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
		options, want   string
		after           string // the record afterwards, if it is not ""
		lives           int64  // seconds until the counter expires, if they are not 0
		persisted       bool   // the counter has no expiry before
	}{
		"before the span":    {at: 999, record: opened, counter: "5", n: 1, want: `"clock"`},
		"its first instant":  {at: 1000, record: opened, counter: "5", n: 1, want: "6"},
		"its last instant":   {at: 1999, record: opened, counter: "5", n: 1, want: "6"},
		"after it":           {at: 2000, record: opened, counter: "5", n: 1, want: `"clock"`},
		"no expiry, changed": {record: opened, counter: "5", n: 1, seen: 4, persisted: true, want: "6", lives: 1500},
		"no expiry, own":     {record: opened, counter: "0", n: 1, persisted: true, want: "1", lives: 1500},

		"the copy is right":   {record: block("5"), counter: "5", n: 1, want: "6"},
		"the copy differs":    {record: block("4"), counter: "5", n: 1, want: `"missing"`},
		"the copy is old":     {record: block("5"), counter: "5", n: 1, seen: 9, want: `"intact":false`},
		"the block is short":  {record: block("20"), counter: "20", n: 3, options: instead("30", "22"), want: `"stale"`},
		"the block is enough": {record: block("20"), counter: "20", n: 3, options: instead("30", "23"), want: "23"},
		"an early grant":      {at: 1499, record: block("20"), counter: "20", n: 1, options: installed, want: `"stale"`},
		"a grant in time":     {at: 1507, record: block("20"), counter: "20", n: 1, options: installed, want: "21"},
		"a late grant":        {at: 1508, record: block("20"), counter: "20", n: 1, options: installed, want: `"stale"`},
		"another period":      {record: block("20"), counter: "20", n: 1, options: instead("1024", "1023"), want: `"stale"`},
		"another ceiling":     {record: block("20"), counter: "20", n: 1, options: instead(":20,", ":19,"), want: `"stale"`},
		"another server":      {record: block("20"), counter: "20", n: 1, options: instead(`:"0`, `:"1`), want: `"stale"`},
		"a new counter":       {record: block("20"), counter: "20", n: 1, options: instead("true", "false"), want: `"stale"`},
		"no block":            {record: block("20"), counter: "20", n: 1, options: instead("block", "lock"), want: `"stale"`},
		"no floor":            {record: opened, counter: "x", n: 1, options: plain + "}}", want: `"lost"`},
		"a floor above":       {record: opened, counter: "5", n: 1, options: plain + `,"floor":9}}`, want: `"upto":"9"`},
		"the period has less": {record: block("20"), counter: "20", n: 80, options: instead("30", "99"), want: `"from":"20"`},
		"the block has some": {record: block("19"), counter: "19", n: 81,
			options: instead("20,30", "30,99"), want: `"text":"19"`},
		"the counter went back": {record: block("9"), counter: "5",
			options: `{"purpose":"raise","seq":12,"grant":` + grant + `"block":[20,22]}}`, want: `"from":"-1"`},
		"another caller's lock": {third: "other", n: 1, options: plain + `,"lock":"own"}}`, want: "1"},
		"its own lock":          {third: "own", n: 1, options: plain + `,"lock":"own"}}`, want: "1"},

		"another calendar": {record: "entered=2021W43 1000 2000 weeks" + version + " #aa", counter: "5", n: 1,
			want: `"calendar"`},
		"the same label": {at: 2500, record: opened, counter: "5", period: "20211024 2000 3000" + settings, n: 1,
			want: `"conflict"`},
		"no hash":             {record: "list", counter: "5", n: 1, want: `"text":"another type of key"`},
		"no string":           {record: opened, counter: "list", n: 1, want: `"text":"another type of key"`},
		"a large counter":     {record: opened, counter: strings.Repeat("9", 30), want: "1000000000000000"},
		"leading zeros":       {record: opened, counter: "007", n: 1, want: `"status":"lost"`},
		"a process remembers": {n: 1, seen: 5, want: `"status":"lost"`},
		"no master":           {period: today + " ledger", n: 1, want: `"unknown"`},
		"prepared":            {at: 2500, record: prepared, counter: "0", period: tomorrow, n: 1, want: "1"},
		"prepared, far": {at: 2500, record: prepared, counter: "0", period: tomorrow, n: 1, options: "af",
			want: `"status":"missing"`},
		"prepared, far, n = 0": {at: 2500, record: prepared, counter: "0", period: tomorrow,
			options: `{"all":true,"far":true}`, want: `"status":"missing"`},
		"prepared and lost":   {at: 2500, record: prepared, period: tomorrow, n: 1, want: `"status":"lost"`},
		"its counter is lost": {record: prepared, counter: "5", options: next + "}", want: `"status":"lost"`},
		"it is doubtful": {record: opened + ", doubtful=20211025 20211026", counter: "5", options: next + "}",
			want: `"status":"lost"`},
		"it is repaired": {record: prepared + ", firstAhead=7", counter: "5", options: next + `,"grant":{"floor":3}}`,
			want: "6"},
		"taken over": {at: 2500, record: prepared + ", firstAhead=7", period: "20211025 2100 3100" + settings, seen: 3,
			options: `{"purpose":"takeover","seq":9}`, want: `"above":"3"`},
		"taken over, so that nothing is prepared": {record: prepared, counter: "5", period: "20211024 900 2000" + settings,
			options: `{"purpose":"takeover","seq":9,` + plain[1:] + `,"floor":9}}`, want: `"upto":"9"`,
			after: "entered=20211024 900 2000" + settings},
		"the ledger was not used for the label": {at: 2500, period: tomorrow + " ledger", n: 1, want: `"status":"lost"`,
			record: opened + " ledger, doubtful=20211024 20211027, ledger=20211027+"},
		"the ledger was used for the label": {at: 2500, period: tomorrow + " ledger", n: 1, want: `"status":"missing"`,
			record: opened + " ledger, doubtful=20211024 20211027, ledger=20211025"},
		"a record of 0.5.0": {record: "entered=20211024 1000 2000 days #aa, ahead=;20211025 2000 3000;, " +
			"used=20211020-20211024;20211026-20211027;, starts=20211024-20211024 5;20211025-20211025 7;",
			counter: "9", n: 1, want: "10",
			after: "ahead=20211025 2000 3000, doubtful=20211024 20211027, " + opened + ", first=5, firstAhead=7"},
		"no record, so no other caller keeps the counter for longer": {counter: "5", n: 1, options: plain + "}}", want: "6",
			lives: 1500},
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
				for field := range strings.SplitSeq(test.record, ", ") {
					name, value, _ := strings.Cut(field, "=")
					m.HSet("r", name, value)
				}
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
			require.Contains(t, fmt.Sprint(reply), test.want)
			if test.third != "" {
				require.Equal(t, test.third == "other", m.Exists("third"))
			}
			if test.after != "" {
				var record []string
				for name, value := range rdb.HGetAll(t.Context(), "r").Val() {
					record = append(record, name+"="+value)
				}
				slices.Sort(record)
				require.Equal(t, test.after, strings.Join(record, ", "))
			}
			if test.lives != 0 {
				require.Equal(t, time.Duration(test.lives)*time.Second, m.TTL("c"))
			}
		})
	}
}

// A clock was ahead twice. The record must have one doubtful run, which begins after a jump and ends with the largest
// label ever used.
func TestDoubtfulRun(t *testing.T) {
	m := miniredis.RunT(t)
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	defer rdb.Close()
	for _, step := range []struct {
		day            int64
		doubtful, jump string
	}{{24, "", ""}, {27, "", "24 27"}, {25, "27 27", ""}, {26, "27 27", ""}, {25, "25 27", ""}, {28, "25 27", "25 28"}} {
		from, to, label := step.day*100, step.day*100+100, fmt.Sprint(step.day)
		m.SetTime(time.Unix(from, 0))
		options := fmt.Sprintf(`{"purpose":"raise","seq":0,"grant":{"checked":%d,"lease":8000,"base":0,"floor":0}}`,
			from*1000)
		reply, err := rdb.Eval(t.Context(), SerialScript.Source, []string{label, "r"},
			bounds(label, from, to)+settings("aa", false), from, to, 99, to, 0, 0, options).Result()
		require.NoError(t, err)
		require.EqualValues(t, 0, reply)
		require.Equal(t, []string{step.doubtful, step.jump}, []string{m.HGet("r", "doubtful"), m.HGet("r", "jump")})
	}
}
