package main

import (
	"runtime/debug"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"
)

// A stray command in the zone of the host that it happens to run on would stop the others for a day.
func TestZone(t *testing.T) {
	m := miniredis.RunT(t)
	url := "redis://" + m.Addr()
	zone, day := noon()
	const demand = "with a Redis URL the time zone is required"
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
		{"-tz: it is empty", environment{"SERIAL_REDIS_URL": url, "SERIAL_TZ": zone}, []string{"next", "-tz", "", "IS"}},
		{`$SERIAL_TZ "Mars": not an IANA`, environment{"SERIAL_REDIS_URL": url, "SERIAL_TZ": "Mars"}, []string{"peek", "IS"}},
		{`$SERIAL_TZ "Asia": not an IANA`, environment{"SERIAL_TZ": "Asia"}, []string{"next", "IS"}},
		{`$SERIAL_TZ "Asia": not an IANA`, environment{"SERIAL_TZ": "Asia"}, []string{"parse", "IS202110240001"}},
		{`-tz "Asia": not an IANA`, environment{"SERIAL_TZ": zone}, []string{"parse", "-tz", "Asia", "IS202110240001"}},
	} {
		code, stdout, stderr := row.env.do(row.args...)
		require.Equal(t, 2, code, row.args)
		require.Empty(t, stdout, row.args)
		isReason(t, stderr, row.says)
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
		code, stdout, stderr := row.env.do(append([]string{"next", "IS"}, row.args...)...)
		require.Equal(t, 0, code, stderr)
		require.Equal(t, lines("IS"+day+"%04d", i+1, i+1), stdout)
		require.Empty(t, stderr)
	}

	// Parse needs none, though Redis may be known. It takes the machine's then, so as to say when the period began.
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
		code, stdout, stderr := row.env.do(append([]string{"parse", "IS202110240001"}, row.args...)...)
		require.Equal(t, 0, code, stderr)
		start := time.Date(2021, 10, 24, 0, 0, 0, 0, row.zone).Format(time.RFC3339)
		require.Equal(t, "type IS\nstart "+start+"\nseq 1\n", stdout, row.args)
	}
}

func TestFlagsAnywhere(t *testing.T) {
	m := miniredis.RunT(t)
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
		{"next", "IS", "-redis", "redis://localhost:1", "-tz", "UTC", "-redis", url, "-tz", zone}, // the last one counts
		{"next", "IS", "-once=-json", "-redis", url, "-tz", zone},
		{"next", "IS", "-once", "-", "-redis", url, "-tz", zone},
		{"next", "IS", "-once", "-x", "-redis", url, "-tz", zone},
		{"next", "IS", "-once", "-1", "-redis", url, "-tz", zone},
	} {
		code, stdout, stderr := do(args...)
		require.Equal(t, 0, code, "%s: %s", args, stderr)
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
		code, stdout, stderr := surroundings.do(row.args...)
		require.Equal(t, 0, code, "%s: %s", row.args, stderr)
		require.Equal(t, row.stdout, unskipped(stdout), row.args)
	}
}

func TestDayStart(t *testing.T) {
	for value, want := range map[string]string{
		"04:00": "04:00:00", "4h": "04:00:00", "4:30": "04:30:00", "23:59:59": "23:59:59", "00:00": "00:00:00",
		"0": "00:00:00", "90m": "01:30:00", "04:00:30": "04:00:30",
	} {
		code, stdout, stderr := do("parse", "-tz", "Asia/Shanghai", "-day-start", value, "IS202110240001")
		require.Equal(t, 0, code, stderr)
		require.Equal(t, "type IS\nstart 2021-10-24T"+want+"+08:00\nseq 1\n", stdout, value)
	}
	// By the clock, also where the night has another hour: in Berlin, 04:00 comes three hours after midnight.
	_, stdout, _ := do("parse", "-tz", "Europe/Berlin", "-day-start", "04:00", "IS202103280001")
	require.Equal(t, "type IS\nstart 2021-03-28T04:00:00+02:00\nseq 1\n", stdout)
}

func TestVersion(t *testing.T) {
	code, stdout, stderr := environment{"SERIAL_REDIS_URL": "no URL", "SERIAL_TZ": "Mars/Olympus"}.do("version")
	require.Equal(t, 0, code, stderr)
	require.Regexp(t, `^serial \S+, (revision [0-9a-f]+, (modified, )?)?go1\.\S+\n$`, stdout)

	setting := func(key, value string) debug.BuildSetting { return debug.BuildSetting{Key: key, Value: value} }
	for _, row := range []struct {
		want, version string
		settings      []debug.BuildSetting
	}{
		{"serial v0.2.0, go1.26.0", "v0.2.0", nil},
		{"serial (devel), go1.26.0", "(devel)", nil},
		{"serial (devel), go1.26.0", "", []debug.BuildSetting{setting("GOOS", "linux")}},
		{"serial (devel), revision 9508a9e, go1.26.0", "(devel)",
			[]debug.BuildSetting{setting("vcs", "git"), setting("vcs.revision", "9508a9e"), setting("vcs.modified", "false")}},
		{"serial v0.2.1-0.2026+dirty, revision 9508a9e, modified, go1.26.0", "v0.2.1-0.2026+dirty",
			[]debug.BuildSetting{setting("vcs.revision", "9508a9e"), setting("vcs.modified", "true")}},
	} {
		info := &debug.BuildInfo{GoVersion: "go1.26.0", Main: debug.Module{Version: row.version}, Settings: row.settings}
		require.Equal(t, row.want, describe(info))
	}
}
