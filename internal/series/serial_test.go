package series

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	redismemory "github.com/dailyserial/serial/internal/redistest/memory"
)

// These replies depend on states that rarely occur in histories.
func TestSerialScript(t *testing.T) {
	m := miniredis.RunT(t)
	redismemory.AddReplicationID(m)
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	defer rdb.Close()
	id, entered := strings.Repeat("0", 40), "20211024 1000 2000 days"+version+" #aa"
	record := func(ledger string, fields ...string) []string { return append(fields, "entered", entered+ledger) }
	block := func(copied string) []string {
		return record(" ledger", "ceiling", "20", "counterCopy", copied, "replID", id)
	}
	grant := `{"checked":1500000,"lease":8000,"base":0,"exists":true,"ceiling":20,"id":"` + id + `","entered":"` +
		entered + ` ledger",`
	installed := `{"grant":` + grant + `"block":[20,30]}}`
	for name, test := range map[string]struct {
		at, n         int64
		counter       string
		record        []string
		options, want string
	}{
		"before the span":     {999, 1, "5", record(""), "a", `"clock"`},
		"its first instant":   {1000, 1, "5", record(""), "a", `6`},
		"its last instant":    {1999, 1, "5", record(""), "a", `6`},
		"after it":            {2000, 1, "5", record(""), "a", `"clock"`},
		"the copy is right":   {1500, 1, "5", block("5"), "a", `6`},
		"the copy differs":    {1500, 1, "5", block("4"), "a", `"missing"`},
		"the block is short":  {1500, 3, "20", block("20"), `{"grant":` + grant + `"block":[20,22]}}`, `"stale"`},
		"the block is enough": {1500, 3, "20", block("20"), `{"grant":` + grant + `"block":[20,23]}}`, `23`},
		"an early grant":      {1499, 1, "20", block("20"), installed, `"stale"`},
		"a grant in time":     {1507, 1, "20", block("20"), installed, `21`},
		"a late grant":        {1508, 1, "20", block("20"), installed, `"stale"`},
		"another period":      {1500, 1, "20", block("20"), strings.Replace(installed, "20211024", "20211023", 1), `"stale"`},
		"another ceiling":     {1500, 1, "20", block("20"), strings.Replace(installed, ":20,", ":19,", 1), `"stale"`},
		"another server":      {1500, 1, "20", block("20"), strings.Replace(installed, "000", "001", 1), `"stale"`},
		"a new counter":       {1500, 1, "20", block("20"), strings.Replace(installed, "true", "false", 1), `"stale"`},
		"no block":            {1500, 1, "20", block("20"), strings.Replace(installed, "block", "lock", 1), `"stale"`},
		"no floor":            {1500, 1, "x", record(""), `{"grant":{"checked":1500000,"lease":8000,"base":0}}`, `"lost"`},
		"the period has less": {1500, 80, "20", block("20"), `{"grant":` + grant + `"block":[20,99]}}`, `"from":"20"`},
		"the block has some":  {1500, 81, "19", block("19"), `{"grant":` + grant + `"block":[30,99]}}`, `"text":"19"`},
		"the counter went back": {1500, 0, "5", block("9"),
			`{"purpose":"raise","seq":12,"grant":` + grant + `"block":[20,22]}}`, `"from":"-1"`},
		"another's lock": {1500, 1, "", nil, `{"grant":{"checked":1500000,"lease":8000,"base":0,"lock":"own"}}`, `1`},
		"its own lock":   {1500, 1, "", nil, `{"grant":{"checked":1500000,"lease":8000,"base":0,"lock":"other"}}`, `1`},
	} {
		t.Run(name, func(t *testing.T) {
			m.FlushAll()
			m.SetTime(time.Unix(test.at, 0))
			require.NoError(t, m.Set("lock", "other"))
			if test.record != nil {
				require.NoError(t, m.Set("c", test.counter))
				m.HSet("r", test.record...)
				m.SetTTL("c", time.Hour)
			}
			period := entered
			if strings.Contains(fmt.Sprint(test.record), "ledger") {
				period += " ledger"
			}
			reply, err := rdb.Eval(t.Context(), SerialScript.Source, []string{"c", "r", "lock"}, period, 1000, 2000, 99, 3000,
				test.n, 0, test.options).Result()
			require.NoError(t, err)
			require.Contains(t, fmt.Sprint(reply), test.want)
			require.Equal(t, name == "its own lock", !m.Exists("lock"))
		})
	}
}

// The keys are in a state that another version, a manual change, another time zone or a loss has left. "list" stands
// for a key of another Redis type.
func TestOtherRecords(t *testing.T) {
	m := miniredis.RunT(t)
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	defer rdb.Close()
	const settings = " days" + version + " #aa"
	const today, tomorrow = "20211024 1000 2000" + settings, "20211025 2000 3000" + settings
	record := func(fields ...string) []string { return append(fields, "entered", today) }
	prepared := record("ahead", "20211025 2000 3000")
	const next = `{"next":{"period":"20211025 2000 3000","expires":4000,"base":0,"compared":true}`
	for name, test := range map[string]struct {
		record        []string
		counter       string
		period        string
		at, n, seen   int64
		options, want string
	}{
		"another calendar": {[]string{"entered", "2021W43 1000 2000 weeks" + version + " #aa"}, "5", today, 1500, 1, 0,
			"a", `"calendar"`},
		"the same label":       {record(), "5", "20211024 2000 3000" + settings, 2500, 1, 0, "a", `"conflict"`},
		"no hash":              {[]string{"list"}, "5", today, 1500, 1, 0, "a", `"text":"another type of key"`},
		"no string":            {record(), "list", today, 1500, 1, 0, "a", `"text":"another type of key"`},
		"a large counter":      {record(), strings.Repeat("9", 30), today, 1500, 0, 0, "a", "1000000000000000"},
		"a process remembers":  {nil, "", today, 1500, 1, 5, "a", `"status":"lost"`},
		"prepared":             {prepared, "0", tomorrow, 2500, 1, 0, "a", `1`},
		"prepared, far":        {prepared, "0", tomorrow, 2500, 1, 0, "af", `"status":"missing"`},
		"prepared, far, n = 0": {prepared, "0", tomorrow, 2500, 0, 0, `{"all":true,"far":true}`, `"status":"missing"`},
		"prepared and lost":    {prepared, "", tomorrow, 2500, 1, 0, "a", `"status":"lost"`},
		"its counter is lost":  {prepared, "5", today, 1500, 0, 0, next + "}", `"status":"lost"`},
		"it is doubtful": {record("doubtful", "20211025 20211026"), "5", today, 1500, 0, 0, next + "}",
			`"status":"lost"`},
		"it is repaired": {append(prepared, "firstAhead", "7"), "5", today, 1500, 0, 0,
			next + `,"grant":{"floor":3}}`, "6"},
		"taken over": {append(prepared, "firstAhead", "7"), "", "20211025 2100 3100" + settings, 2500, 0, 3,
			`{"purpose":"takeover","seq":9}`, `"above":"3"`},
		"no master": {nil, "", today + " ledger", 1500, 1, 0, "a", `"unknown"`},
	} {
		t.Run(name, func(t *testing.T) {
			m.FlushAll()
			m.SetTime(time.Unix(test.at, 0))
			switch {
			case len(test.record) == 1:
				_, _ = m.Push("r", "x")
			case test.record != nil:
				m.HSet("r", test.record...)
			}
			switch test.counter {
			case "":
			case "list":
				_, _ = m.Push("c", "x")
			default:
				require.NoError(t, m.Set("c", test.counter))
			}
			reply, err := rdb.Eval(t.Context(), SerialScript.Source, []string{"c", "r", "next"}, test.period, 0, 1e9, 99, 3000,
				test.n, test.seen, test.options).Result()
			require.NoError(t, err)
			require.Contains(t, fmt.Sprint(reply), test.want)
		})
	}
	m.FlushAll()
	m.SetTime(time.Unix(1500, 0))
	require.NoError(t, m.Set("c", "9"))
	m.HSet("r", "entered", "20211024 1000 2000 days #aa", "ahead", ";20211025 2000 3000;",
		"used", "20211020-20211024;20211026-20211027;", "starts", "20211024-20211024 5;20211025-20211025 7;")
	run := func(period string, seen int64) any {
		reply, err := rdb.Eval(t.Context(), SerialScript.Source, []string{"c", "r"}, period, 0, 1e9, 99, 3000, 1, seen,
			"a").Result()
		require.NoError(t, err)
		return reply
	}
	require.EqualValues(t, 10, run(today, 0))
	require.Equal(t, map[string]string{"entered": today, "ahead": "20211025 2000 3000", "first": "5", "firstAhead": "7",
		"doubtful": "20211024 20211027"}, rdb.HGetAll(t.Context(), "r").Val(), "a record of 0.5.0 is taken over")

	m.FlushAll()
	require.NoError(t, m.Set("c", "5"))
	m.SetTTL("c", 10*time.Hour)
	require.NoError(t, rdb.Eval(t.Context(), SerialScript.Source, []string{"c", "r"}, today, 0, 1e9, 99, 3000, 1, 0,
		`{"grant":{"checked":1500000,"lease":8000,"base":0}}`).Err())
	require.Equal(t, 1500*time.Second, m.TTL("c"), "no other caller keeps it for longer")

	redismemory.AddReplicationID(m)
	m.FlushAll()
	require.NoError(t, m.Set("c", "5"))
	id := strings.Repeat("0", 40)
	m.HSet("r", "entered", today+" ledger", "ceiling", "20", "counterCopy", "5", "replID", id)
	require.Contains(t, run(today+" ledger", 9), `"intact":false`, "the counter went back, and so did its copy")
	m.FlushAll()
	m.SetTime(time.Unix(2500, 0))
	m.HSet("r", "entered", today+" ledger", "doubtful", "20211024 20211027", "ledger", "20211027+")
	require.Contains(t, run(tomorrow+" ledger", 0), `"status":"lost"`, "the ledger was not used for that label")
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
		m.SetTime(time.Unix(step.day*100, 0))
		period := bounds(fmt.Sprint(step.day), step.day*100, step.day*100+100) + settings("aa", false)
		options := fmt.Sprintf(`{"purpose":"raise","seq":0,"grant":{"checked":%d,"lease":8000,"base":0,"floor":0}}`,
			step.day*100_000)
		reply, err := rdb.Eval(t.Context(), SerialScript.Source, []string{fmt.Sprint(step.day), "r"}, period, step.day*100,
			step.day*100+100, 99, step.day*100+100, 0, 0, options).Result()
		require.NoError(t, err)
		require.EqualValues(t, 0, reply)
		require.Equal(t, []string{step.doubtful, step.jump}, []string{m.HGet("r", "doubtful"), m.HGet("r", "jump")})
	}
}
