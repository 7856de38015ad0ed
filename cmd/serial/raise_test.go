package main

import (
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/stretchr/testify/require"
)

// Prepare and raise announce the number that next then issues.
func TestAnnounce(t *testing.T) {
	m := miniredis.RunT(t)
	zone, day := noon()
	surroundings := environment{"SERIAL_REDIS_URL": "redis://" + m.Addr(), "SERIAL_TZ": zone}
	for _, row := range []struct {
		next string
		args []string
		with []string
	}{
		{"A" + day + "0001", []string{"prepare", "A"}, nil},
		{"B" + day + "0100", []string{"prepare", "B"}, []string{"-start", "100"}},
		{"C" + day + "0100", []string{"raise", "C", "0"}, []string{"-start", "100"}},
		{"C" + day + "0101", []string{"raise", "C", "7"}, []string{"-start", "100"}}, // 0100 is issued by now
		{"D" + day + "0043", []string{"raise", "D", "42"}, nil},
		{"E-" + day + "-10000", []string{"raise", "E", "9999"}, []string{"-template", "{type}-{date:yyyyMMdd}-{seq:4+}"}},
		{"F" + day + "9999", []string{"raise", "F", "9998"}, nil},
	} {
		code, stdout, stderr := surroundings.do(append(row.args, row.with...)...)
		require.Equal(t, 0, code, stderr)
		require.Equal(t, "next "+row.next+"\n", stdout)
		require.Empty(t, stderr)
		_, stdout, _ = surroundings.do(append([]string{"next", row.args[1]}, row.with...)...)
		require.Equal(t, row.next+"\n", stdout)
	}

	const grows = "{type}-{date:yyyyMMdd}-{seq:4+}"
	start := day[:4] + "-" + day[4:6] + "-" + day[6:] + "T00:00:00"
	for _, args := range [][]string{
		{"raise", "G", "9999"}, {"prepare", "G"},
		{"raise", "-template", grows, "H", "999999999999999"}, {"prepare", "-template", grows, "H"},
	} {
		code, stdout, stderr := surroundings.do(args...)
		require.Equal(t, 0, code, stderr)
		require.Empty(t, stdout, args)
		require.Contains(t, stderr, "is left in the period that began at "+start, args)
		require.Equal(t, 1, strings.Count(stderr, "\n"))
	}
	_, stdout, stderr := surroundings.do("raise", "-json", "G", "0")
	require.Regexp(t, `^\{"number":"G`+day+`9999","type":"G","start":"`+start+`[^"]*","seq":9999\}\n$`, stdout)
	require.Contains(t, stderr, "no G is left")
	code, _, _ := surroundings.do("next", "G")
	require.Equal(t, 1, code)
}

// The counter is raised, and then Redis does not tell where it stands.
func TestAnnounceFails(t *testing.T) {
	m := miniredis.RunT(t)
	zone, day := noon()
	scripts := 0
	m.Server().SetPreHook(func(p *server.Peer, command string, args ...string) bool {
		if strings.HasPrefix(strings.ToUpper(command), "EVAL") && m.Exists("serial:{IS}:"+day) {
			p.WriteError("ERR no more")
			scripts++
		}
		return scripts > 0
	})
	code, stdout, stderr := doEnv("redis://"+m.Addr(), "raise", "-tz", zone, "IS", "7")
	require.Equal(t, 1, code)
	require.Empty(t, stdout)
	require.Regexp(t, `^serial: raise succeeded, but the next number could not be read: .*no more.*\n$`, stderr)
}

// A series that is in use with other periods is told from one with a ledger.
func TestConflict(t *testing.T) {
	m := miniredis.RunT(t)
	zone, _ := noon()
	url := "redis://" + m.Addr()
	_, _, stderr := doEnv(url, "next", "-tz", zone, "IS")
	require.Empty(t, stderr)
	for _, args := range [][]string{{"raise", "IS", "7"}, {"next", "IS"}, {"prepare", "IS"}} {
		code, stdout, stderr := doEnv(url, append(args, "-tz", "Asia/Kathmandu")...)
		require.Equal(t, 1, code, args)
		require.Empty(t, stdout)
		require.Contains(t, stderr, "conflicting period", args)
	}
}
