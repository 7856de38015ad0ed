package main

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A stray command in the zone of its host would stop the other processes for a day.
func TestZone(t *testing.T) {
	m := startMemory(t)
	url := "redis://" + m.Addr()
	zone, day := noon()
	const demand = "with a Redis URL, the time zone of all other processes is required"
	for _, row := range []struct {
		says string
		env  environment
		args []string
	}{
		{demand, environment{"SERIAL_REDIS_URL": url}, []string{"next", "IS"}},
		{demand, nil, []string{"next", "IS", "-redis", url}},
		{demand, environment{"SERIAL_REDIS_URL": url, "SERIAL_TZ": ""}, []string{"next", "-once", "a", "IS"}},
		{demand, environment{"SERIAL_REDIS_URL": url}, []string{"peek", "IS"}},
		{demand, environment{"SERIAL_REDIS_URL": url}, []string{"history", "IS"}},
		{demand, environment{"SERIAL_REDIS_URL": url}, []string{"prepare", "IS"}},
		{demand, environment{"SERIAL_REDIS_URL": url}, []string{"raise", "IS", "7"}},
		{demand, environment{"SERIAL_REDIS_URL": url}, []string{"parse", "-redis", url, "IS202110240001"}},
		{"-tz is empty", environment{"SERIAL_REDIS_URL": url, "SERIAL_TZ": zone}, []string{"next", "-tz", "", "IS"}},
		{`$SERIAL_TZ "Mars": want an IANA`, environment{"SERIAL_REDIS_URL": url, "SERIAL_TZ": "Mars"},
			[]string{"peek", "IS"}},
		{`$SERIAL_TZ "Asia": want an IANA`, environment{"SERIAL_TZ": "Asia"}, []string{"next", "IS"}},
		{`$SERIAL_TZ "Asia": want an IANA`, environment{"SERIAL_TZ": "Asia"}, []string{"parse", "IS202110240001"}},
		{`-tz "Asia": want an IANA`, environment{"SERIAL_TZ": zone}, []string{"parse", "-tz", "Asia", "IS202110240001"}},
	} {
		row.env.misused(t, row.says, row.args...)
		untouched(t, m, row.args)
	}
	for i, row := range []struct {
		env  environment
		args []string
	}{
		{environment{"SERIAL_TZ": zone}, []string{"-redis", url}},
		{environment{"SERIAL_TZ": zone, "SERIAL_REDIS_URL": url}, nil},
		{environment{"SERIAL_TZ": "Asia/Kathmandu", "SERIAL_REDIS_URL": url}, []string{"-tz", zone}},
		{environment{"SERIAL_TZ": "Mars/Olympus", "SERIAL_REDIS_URL": url}, []string{"-tz", zone}},
		{environment{"SERIAL_TZ": "", "SERIAL_REDIS_URL": url}, []string{"-tz=" + zone}},
	} {
		row.env.prints(t, lines("IS"+day+"%04d", i+1, i+1), append([]string{"next", "IS"}, row.args...)...)
	}

	// Parse needs no zone, even with a Redis URL. It then uses the machine's zone.
	for _, row := range []struct {
		zone *time.Location
		env  environment
		args []string
	}{
		{time.Local, environment{"SERIAL_REDIS_URL": url}, nil},
		{time.Local, nil, nil},
		{time.Local, nil, []string{"-tz", "Local", "-redis", url}},
		{time.UTC, environment{"SERIAL_TZ": "UTC"}, []string{"-redis", url}},
		{time.UTC, environment{"SERIAL_TZ": "Asia/Kathmandu"}, []string{"-tz", "UTC"}},
	} {
		stdout, _ := row.env.exits(t, 0, append([]string{"parse", "IS202110240001"}, row.args...)...)
		start := time.Date(2021, 10, 24, 0, 0, 0, 0, row.zone).Format(time.RFC3339)
		require.Equal(t, "type IS\nstart "+start+"\nseq 1\n", stdout, row.args)
	}
}

func TestFlagsAnywhere(t *testing.T) {
	m := startMemory(t)
	url := "redis://" + m.Addr()
	zone, day := noon()
	for i, args := range [][]string{
		{"next", "-redis", url, "-tz", zone, "IS"},
		{"next", "IS", "-redis", url, "-tz", zone},
		{"next", "-redis", url, "IS", "-tz", zone},
		{"next", "--redis=" + url, "IS", "--tz=" + zone},
		{"next", "-redis", url, "-tz", zone, "--", "IS"},
		{"next", "-redis", url, "-tz", zone, "IS", "--"},
		{"next", "-redis", url, "-json", "-tz", zone, "IS", "-json=false"},
		{"next", "IS", "-redis", "redis://localhost:1", "-tz", "UTC", "-redis", url, "-tz", zone}, // the last value counts
		{"next", "IS", "-once=-json", "-redis", url, "-tz", zone},
		{"next", "IS", "-once", "-", "-redis", url, "-tz", zone},
		{"next", "IS", "-once", "-x", "-redis", url, "-tz", zone},
		{"next", "IS", "-once", "-1", "-redis", url, "-tz", zone},
	} {
		stdout, _ := environment{}.exits(t, 0, args...)
		require.Equal(t, lines("IS"+day+"%04d", i+1, i+1), stdout, args)
	}
	surroundings := environment{"SERIAL_REDIS_URL": url, "SERIAL_TZ": zone}
	for _, row := range []struct {
		stdout string
		args   []string
	}{
		{"next IS" + day + "0041\n", []string{"raise", "IS", "-template", "{type}{date:yyyyMMdd}{seq}", "40"}},
		{"next -x" + day + "0003\n", []string{"raise", "--", "-x", "2"}},
		{"-1" + day + "0001\n", []string{"next", "-1"}}, // a type that looks like a number
		{"-" + day + "0001\n", []string{"next", "-"}},
	} {
		stdout, _ := surroundings.exits(t, 0, row.args...)
		require.Equal(t, row.stdout, unskipped(stdout), row.args)
	}
}

func TestDayStart(t *testing.T) {
	for value, want := range map[string]string{
		"04:00": "04:00:00", "4h": "04:00:00", "4:30": "04:30:00", "23:59:59": "23:59:59", "00:00": "00:00:00",
		"0": "00:00:00", "90m": "01:30:00", "04:00:30": "04:00:30",
	} {
		stdout, _ := environment{}.exits(t, 0, "parse", "-tz", "Asia/Shanghai", "-day-start", value, "IS202110240001")
		require.Equal(t, "type IS\nstart 2021-10-24T"+want+"+08:00\nseq 1\n", stdout, value)
	}
	// A day start is a time by the clock: in Berlin, 04:00 may be three hours after midnight.
	_, stdout, _ := do("parse", "-tz", "Europe/Berlin", "-day-start", "04:00", "IS202103280001")
	require.Equal(t, "type IS\nstart 2021-03-28T04:00:00+02:00\nseq 1\n", stdout)
}

func TestVersion(t *testing.T) {
	code, stdout, stderr := environment{"SERIAL_REDIS_URL": "no URL", "SERIAL_TZ": "Mars/Olympus"}.do("version")
	require.Equal(t, 0, code, stderr)
	require.Regexp(t, `^serial \S+, go1\.\S+\n$`, stdout)
}

func TestMisuse(t *testing.T) {
	m := startMemory(t)
	surroundings := environment{"SERIAL_REDIS_URL": "redis://" + m.Addr(), "SERIAL_TZ": "UTC"}
	for _, row := range []struct {
		says string
		args []string
	}{
		{"no command", nil},
		{`unknown command "issue"`, []string{"issue", "IS"}},
		{"next has no flag -x", []string{"-x", "next", "IS"}},
		{"no command has a flag -x", []string{"-x"}},
		{"peek has no flag -n", []string{"-n", "2", "peek", "IS"}},
		{"next takes TYPE, but TYPE is missing", []string{"next"}},
		{"too many arguments: got 2, but next takes TYPE", []string{"next", "IS", "PO"}},
		{"got 2, but next takes TYPE", []string{"next", "IS", "-n", "2", "PO"}},
		{"TYPE is missing", []string{"peek"}},
		{"raise takes TYPE SEQ, but SEQ is missing", []string{"raise", "IS"}},
		{"got 3, but raise takes TYPE SEQ", []string{"raise", "IS", "1", "2"}},
		{"NUMBER is missing", []string{"parse"}},
		{"TYPE is missing", []string{"history"}},
		{"TYPE is missing", []string{"history", "-json"}},
		{"TYPE is missing", []string{"history", "--"}},
		{"got 2, but prepare takes TYPE", []string{"prepare", "IS", "3"}},
		{"got 3, but next", []string{"next", "IS", "--", "-n", "2"}},
		{"got 1, but version takes none", []string{"version", "IS"}},
		{"version has no flag -json", []string{"version", "-json"}},
		{`unknown command "issue"`, []string{"help", "issue"}},
		{"want at least 1", []string{"history", "-n", "0", "IS"}},
		{"want at least 1", []string{"history", "-n", "-1", "IS"}},
		{"-once issues one number, but -n asks for 2", []string{"next", "-once", "a", "-n", "2", "IS"}},
		{"-once", []string{"peek", "-once", "a", "IS"}},
		{"want second, minute, hour, day, week, month, quarter, half-year, year or never",
			[]string{"next", "-period", "decade", "IS"}},
		{`"soon"`, []string{"next", "-day-start", "soon", "IS"}},
		{"serial: WithDayStart", []string{"next", "-day-start", "24h", "IS"}},
		{"PerHour has no days", []string{"next", "-day-start", "4h", "-period", "hour", "IS"}},
		{"serial: WithStart(0)", []string{"next", "-start", "0", "IS"}},
		{"serial: WithLast(10000): want 1 to 9999", []string{"next", "-last", "10000", "IS"}},
		{`-until "31.12.2026": want a date such as 2026-12-31`, []string{"next", "-until", "31.12.2026", "IS"}},
		{`-until "2026-02-30": want a date`, []string{"next", "-until", "2026-02-30", "IS"}},
		{"serial: WithRetention", []string{"next", "-retention", "-1", "IS"}},
		{"of different months would read the same",
			[]string{"next", "-period", "month", "-template", "{type}{date:yyyy}{seq}", "IS"}},
		{`"25:00"`, []string{"next", "-day-start", "25:00", "IS"}},
		{`"04:60": want a time of day such as 04:00, or a duration such as 4h`,
			[]string{"next", "-day-start", "04:60", "IS"}},
		{"whole seconds", []string{"next", "-day-start", "04:00:00.5", "IS"}},
		{"next has no flag -x", []string{"next", "-x", "IS"}},
		{"next has no flag -x", []string{"next", "IS", "--x=1"}},
		{"peek has no flag -n", []string{"peek", "-n", "2", "IS"}},
		{"-n needs a value", []string{"next", "-n"}},
		{"-n needs a value", []string{"next", "IS", "-n"}},
		{"-once needs a value, but a flag follows; if that is the value, write -once=VALUE",
			[]string{"next", "-once", "-json", "IS"}},
		{"-once needs a value, but a flag follows", []string{"next", "IS", "-once", "--tz=UTC"}},
		{"-once needs a value, but a flag follows", []string{"next", "-once", "--", "IS"}},
		{`-json "maybe"`, []string{"next", "-json=maybe", "IS"}},
		{`"many"`, []string{"next", "-n", "many", "IS"}},
		{`-n "0x10": want a whole number such as 1000`, []string{"next", "-n", "0x10", "IS"}},
		{`-n "1_000": want a whole number such as 1000`, []string{"history", "-n", "1_000", "IS"}},
		{`-n "0b1": want a whole number`, []string{"history", "-n", "0b1", "IS"}},
		{`-start "0o7": want a whole number`, []string{"next", "-start", "0o7", "IS"}},
		{`-start "10_000": want a whole number`, []string{"raise", "-start", "10_000", "IS", "1"}},
		{`-retention "0x1F": want a whole number`, []string{"peek", "-retention", "0x1F", "IS"}},
		{"-reason needs -by NAME", []string{"raise", "-reason", "moved", "IS", "7"}},
		{"-by needs -reason TEXT", []string{"takeover", "-by", "Ada", "IS", "7"}},
		{`-reason "  ": blank`, []string{"raise", "-reason", "  ", "-by", "Ada", "IS", "7"}},
		{`-by "\u00a0": blank`, []string{"raise", "-reason", "moved", "-by", "\u00a0", "IS", "7"}},
		{"-reason: 501 bytes; want 1 to 500",
			[]string{"raise", "-reason", strings.Repeat("x", 501), "-by", "Ada", "IS", "7"}},
		{"-by: 101 bytes; want 0 to 100", []string{"takeover", "-reason", "x", "-by", strings.Repeat("x", 101), "IS", "7"}},
		{`-reason: it has '\n'; want`, []string{"raise", "-reason", "a\nb", "-by", "Ada", "IS", "7"}},
		{"-by: not valid UTF-8", []string{"raise", "-reason", "a", "-by", "\xff", "IS", "7"}},
		{"import has no flag -reason", []string{"import", "-reason", "moved", "-by", "Ada"}},
		{"prepare has no flag -n", []string{"prepare", "-n", "2", "IS"}},
		{"prepare has no flag -by", []string{"prepare", "-by", "Ada", "IS"}},
		{`SEQ "0x10": want a whole number such as 1000`, []string{"raise", "IS", "0x10"}},
		{`SEQ "1_000": want a whole number`, []string{"takeover", "IS", "1_000"}},
		{"out of range", []string{"next", "-n", "99999999999999999999", "IS"}},
		{"want at least 1", []string{"next", "-n", "0", "IS"}},
		{`-n "-1": want at least 1`, []string{"next", "-n", "-1", "IS"}},
		{`SEQ "few"`, []string{"raise", "IS", "few"}},
		{`SEQ "1.5"`, []string{"raise", "IS", "1.5"}},
		{`SEQ "-1"`, []string{"raise", "IS", "-1"}},
		{`SEQ "-1"`, []string{"raise", "-json", "IS", "-1", "-start", "2"}},
		{`SEQ "-1"`, []string{"raise", "--", "IS", "-1"}},
		{`SEQ "99999999999999999999"`, []string{"raise", "IS", "99999999999999999999"}},
		{`"Mars/Olympus"`, []string{"next", "-tz", "Mars/Olympus", "IS"}},
		{"IANA", []string{"peek", "-tz", "Asia", "IS"}},
		{"{seq} is missing", []string{"next", "-template", "{type}{date:yyyyMMdd}", "IS"}},
		{"{type} is missing", []string{"parse", "-template", "{seq}", "IS202110240001"}},
		{"serial: WithKeyPrefix", []string{"raise", "-prefix", "a:b", "IS", "1"}},
		{"serial: WithKeyPrefix", []string{"raise", "-template", "{seq}", "-prefix", "a:b", "IS", "1"}},
		{"scheme: http", []string{"next", "-redis", "http://localhost", "IS"}},
		{"want redis://USER:PASSWORD@HOST:PORT/DB", []string{"next", "-redis", "localhost:6379", "IS"}},
		{"want redis://USER:PASSWORD@HOST:PORT/DB", []string{"next", "-redis", "redis:localhost:6379", "IS"}},
		{"want redis://USER:PASSWORD@HOST:PORT/DB", []string{"next", "-redis", "redis://local host", "IS"}},
		{`"x"`, []string{"peek", "-redis", "redis://localhost/x", "IS"}},
		{"pool_sise", []string{"peek", "-redis", "redis://localhost?pool_sise=3", "IS"}},
		{"addr", []string{"peek", "-redis", "redis://localhost?addr=other", "IS"}},
		{"master_name", []string{"peek", "-redis", "redis://localhost?master_name=", "IS"}},
		{"randomly", []string{"peek", "-redis", "redis://localhost?master_name=m&route_randomly=1", "IS"}},
		{"database number", []string{"peek", "-redis", "redis://localhost?master_name=m&db=x", "IS"}},
		{"PoolSize", []string{"peek", "-redis", "redis://localhost?pool_size=9999999999", "IS"}},
	} {
		t.Run(strings.Join(row.args, " "), func(t *testing.T) {
			surroundings.misused(t, row.says, row.args...)
			untouched(t, m, row.args)
		})
	}
}

// Completion for fish describes each flag as the help does: with a text that stands without the placeholder.
func TestDescriptionsOfFlags(t *testing.T) {
	_, script, _ := do("completion", "fish")
	line := regexp.MustCompile(`(?m)^complete -c 'serial' -n '__fish_seen_subcommand_from (\S+)' ` +
		`-o (\S+)(?: -r)? -d '(.*)'$`)
	described := line.FindAllStringSubmatch(script, -1)
	require.Greater(t, len(described), 100)
	for _, flag := range described {
		_, help, _ := do("help", flag[1])
		text := strings.ReplaceAll(flag[3], `'\''`, "'")
		said := regexp.MustCompile(" -" + flag[2] + "( [A-Z-]+)? " + regexp.QuoteMeta(text) + "( -|$)")
		match := said.FindStringSubmatch(strings.Join(strings.Fields(help), " "))
		require.NotNil(t, match, "-%s: %s", flag[2], text)
		require.False(t, match[1] != "" && strings.HasPrefix(" "+text, match[1]+" "), text)
		require.NotRegexp(t, `^(and|as|at|by|in|of|that|to|which|who|why|with) `, text, "-"+flag[2])
		require.NotContains(t, text, "`")
	}
}

// misused requires that a command line prints only a line about its usage, followed by reasons that include why.
func (e environment) misused(t *testing.T, why string, args ...string) {
	t.Helper()
	stdout, stderr := e.exits(t, 2, args...)
	require.Empty(t, stdout, args)
	require.Regexp(t, `^usage: serial \S.* \("serial help.*\n(serial: .*\n)+$`, stderr)
	require.NotContains(t, stderr, "serial: serial: ")
	_, reasons, _ := strings.Cut(stderr, "\n")
	require.Contains(t, reasons, why)
}

// An unset shell variable gives an empty value. If that meant the default, the command would issue numbers that are not
// kept, or two for one request.
func TestEmpty(t *testing.T) {
	m := startMemory(t)
	for _, row := range []struct {
		says string
		args []string
	}{
		{"-redis is empty", []string{"next", "-redis", "", "IS"}},
		{"-redis is empty", []string{"next", "-redis=", "IS"}},
		{"-redis is empty", []string{"next", "-redis", "redis://" + m.Addr(), "-redis", "", "IS"}},
		{"-redis is empty", []string{"parse", "-redis", "", "IS202110240001"}},
		{"-once is empty", []string{"next", "-once", "", "IS"}},
		{"-once is empty", []string{"next", "-once=", "IS"}},
		{"-once is empty", []string{"next", "-once", "", "-n", "2", "IS"}},
		{"-tz is empty", []string{"peek", "-tz", "", "IS"}},
		{"-period is empty", []string{"history", "-period", "", "IS"}},
		{"-template is empty", []string{"prepare", "-template", "", "IS"}},
		{"-prefix is empty", []string{"raise", "-prefix", "", "IS", "1"}},
		{"-day-start", []string{"next", "-day-start", "", "IS"}},
		{"-start", []string{"next", "-start", "", "IS"}},
		{"-retention", []string{"next", "-retention", "", "IS"}},
		{"-n", []string{"next", "-n", "", "IS"}},
		{"-json", []string{"next", "-json=", "IS"}},
		{"-year-start", []string{"peek", "-year-start", "", "IS"}},
		{"-column", []string{"audit", "-column", "", "IS"}},
		{"-dry-run", []string{"import", "-dry-run="}},
		{"-force", []string{"import", "-force="}},
		{"-explained", []string{"audit", "-explained", "", "IS"}},
		{"-reason is empty", []string{"raise", "-reason", "", "-by", "Ada", "IS", "7"}},
		{"-by is empty", []string{"takeover", "-reason", "moved", "-by=", "IS", "7"}},
		{"-leave-ledger is empty", []string{"takeover", "-leave-ledger=", "IS", "7"}},
		{"FILE is empty", []string{"audit", "IS", ""}},
		{"TYPE is empty", []string{"import", ""}},
		{"TEMPLATE is empty", []string{"template", ""}},
		{"TYPE is empty", []string{"next", ""}},
		{"TYPE is empty", []string{"raise", "", "1"}},
		{"NUMBER is empty", []string{"parse", ""}},
		{"SEQ is empty", []string{"raise", "IS", ""}},
	} {
		onRedis("redis://"+m.Addr()).misused(t, row.says, row.args...)
		untouched(t, m, row.args)
	}
}

// Leading zeros do not make a number octal: a sequence may be copied as printed.
func TestDecimal(t *testing.T) {
	m, e, day := issued(t, 0)
	for _, row := range []struct {
		stdout string
		args   []string
	}{
		{"A" + day + "5001\n", []string{"next", "-start", "05001", "A"}},
		{lines("B"+day+"%04d", 1, 10), []string{"next", "-n", "010", "B"}},
		{"E" + day + "0001\n", []string{"next", "-last", "01", "-until", "2999-12-31", "E"}},
		{"next C" + day + "0341\n", []string{"raise", "C", "0340"}},
		{"next C" + day + "0342\n", []string{"takeover", "C", "0341"}},
		{"next D" + day + "0001\n", []string{"prepare", "-retention", "010", "D"}},
	} {
		stdout, _ := e.exits(t, 0, row.args...)
		require.Equal(t, row.stdout, unskipped(stdout))
	}
	loc := zoneOf(t, e)
	y, mo, d := time.Now().In(loc).Date()
	after := func(days int) time.Time { return time.Date(y, mo, d+days, 0, 0, 0, 0, loc) }
	expires := time.Now().Add(m.TTL("serial:{D}:" + day))
	require.WithinDuration(t, after(11), expires, time.Minute, "retention")
}

// The key of a hidden sequence comes from a file or the environment, and is never shown.
func TestHiddenKey(t *testing.T) {
	const key = "000102030405060708090a0b0c0d0e0f"
	const template = "{type}{date:yyyyMMdd}{seq:6}"
	zone, day := noon()
	m, e, _ := issued(t, 0)
	e["SERIAL_HIDDEN_KEY"] = key
	hidden, _ := e.exits(t, 0, "next", "-template", template, "IS")
	require.NotEqual(t, "IS"+day+"000001\n", hidden)
	path := written(t, key+"\n")
	for _, env := range []environment{{}, {"SERIAL_HIDDEN_KEY": strings.Repeat("ff", 32)},
		{"SERIAL_HIDDEN_KEY": "no key"}} {
		stdout, _ := env.exits(t, 0, "parse", "-tz", zone, "-template", template, "-hidden-key", path,
			strings.TrimSpace(hidden))
		require.Contains(t, stdout, "\nseq 1\n", "the command line takes precedence")
	}
	connections := m.TotalConnectionCount()
	for _, row := range []struct {
		says string
		env  environment
		args []string
	}{
		{"$SERIAL_HIDDEN_KEY: want a key of 32, 48 or 64 hexadecimal digits", environment{"SERIAL_HIDDEN_KEY": "hunter2"},
			nil},
		{"a key of 4 bytes; want 16, 24 or 32", environment{"SERIAL_HIDDEN_KEY": "deadbeef"}, nil},
		{"-hidden-key: the file cannot be read: no such file", nil, []string{"-hidden-key", "hunter2"}},
		{"-hidden-key: want a key of 32, 48 or 64 hexadecimal digits", nil, []string{"-hidden-key", written(t, "hunter2")}},
		{"-hidden-key: want a key of 32, 48 or 64 hexadecimal digits", nil, []string{"-hidden-key", written(t, "\n")}},
		{"-hidden-key is empty", nil, []string{"-hidden-key", ""}},
		{"want a million or more", environment{"SERIAL_HIDDEN_KEY": key},
			[]string{"-template", "{type}{date:yyyyMMdd}{seq:4}"}},
	} {
		args := append([]string{"next", "-redis", e["SERIAL_REDIS_URL"], "-tz", zone, "-template", template, "IS"},
			row.args...)
		stderr := row.env.fails(t, 2, row.says, args...)
		require.NotContains(t, stderr, "hunter2")
	}
	require.Equal(t, connections, m.TotalConnectionCount())
}
