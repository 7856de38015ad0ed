package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/stretchr/testify/require"
)

// Prepare and raise announce the number that next then issues.
func TestAnnounce(t *testing.T) {
	_, e, day := issued(t, 0)
	for _, row := range []struct {
		next string
		args []string
		with []string
	}{
		{"A" + day + "0001", []string{"prepare", "A"}, nil},
		{"B" + day + "0100", []string{"prepare", "B"}, []string{"-start", "100"}},
		{"C" + day + "0100", []string{"raise", "C", "0"}, []string{"-start", "100"}},
		{"C" + day + "0101", []string{"raise", "C", "7"}, []string{"-start", "100"}}, // 0100 is already issued
		{"D" + day + "0043", []string{"raise", "D", "42"}, nil},
		{"E-" + day + "-10000", []string{"raise", "E", "9999"}, []string{"-template", "{type}-{date:yyyyMMdd}-{seq:4+}"}},
		{"F" + day + "9999", []string{"raise", "F", "9998"}, nil},
	} {
		stdout, stderr := e.exits(t, 0, append(row.args, row.with...)...)
		require.Equal(t, "next "+row.next+"\n", unskipped(stdout))
		require.Empty(t, stderr)
		e.prints(t, row.next+"\n", append([]string{"next", row.args[1]}, row.with...)...)
	}

	const grows = "{type}-{date:yyyyMMdd}-{seq:4+}"
	start := day[:4] + "-" + day[4:6] + "-" + day[6:] + "T00:00:00"
	for _, args := range [][]string{
		{"raise", "G", "9999"}, {"prepare", "G"},
		{"raise", "-template", grows, "H", "999999999999999"}, {"prepare", "-template", grows, "H"},
	} {
		stdout, stderr := e.exits(t, 0, args...)
		require.NotContains(t, stdout, "next", args)
		require.Contains(t, stderr, "is left in the period that began at "+start, args)
		require.Equal(t, 1, strings.Count(stderr, "\n"))
	}
	_, stdout, stderr := e.do("raise", "-json", "G", "0")
	require.Regexp(t, `^\{"number":"G`+day+`9999","type":"G","start":"`+start+`[^"]*","seq":9999\}\n$`, stdout)
	require.Contains(t, stderr, "no number of G is left")
	e.exits(t, 1, "next", "G")
}

// If a template prints a more exact date than the period, Redis does not know the printed texts. So these commands
// print the sequence, and the number with today's date.
func TestTodaysNumber(t *testing.T) {
	_, day := noon()
	for _, row := range []struct{ period, template, number string }{
		{"month", "{type}-{date:yyyyMMdd}-{seq:5}", "IS-" + day + "-%05d"},
		{"never", "{type}-{date:yyyyMMdd}-{seq:5}", "IS-" + day + "-%05d"},
		{"year", "{seq:5}/{date:yyMMdd}/{type}", "%05d/" + day[2:] + "/IS"},
	} {
		_, e, _ := issued(t, 0)
		number := func(seq int) string { return fmt.Sprintf(row.number, seq) }
		ok := func(want string, args ...string) {
			t.Helper()
			stdout, stderr := e.exits(t, 0, append(args, "-period", row.period, "-template", row.template)...)
			require.Empty(t, stderr)
			require.Regexp(t, "^"+want+"$", unskipped(stdout))
		}
		next := func(seq int) string { return fmt.Sprintf("next %s\nseq %d\n", number(seq), seq) }
		ok(next(1), "prepare", "IS")
		ok(`\{"type":"IS","start":"[^"]*","seq":0,"next":"`+number(1)+`"\}`+"\n", "prepare", "-json", "IS")
		ok(next(8), "raise", "IS", "7")
		ok(next(10), "takeover", "IS", "9")
		ok(number(10)+"\n", "next", "IS")
		ok("seq 10\ntoday "+number(10)+"\n", "peek", "IS")
		ok(`\{"type":"IS","start":"[^"]*","seq":10,"today":"`+number(10)+`"\}`+"\n", "peek", "-json", "IS")
		ok(`\{"type":"IS","start":"[^"]*","seq":11,"today":"`+number(11)+`","next":"`+number(12)+`"\}`+"\n",
			"raise", "-json", "IS", "11")

		stdout, stderr := e.exits(t, 0, "raise", "IS", "99999", "-period", row.period, "-template", row.template)
		require.NotContains(t, stdout, "next")
		require.Contains(t, stderr, "no number of IS is left")
	}
}

// If the counter cannot be read after it was raised, the skipped numbers are still printed, since they cannot be found
// out later.
func TestAnnounceFails(t *testing.T) {
	m, e, day := issued(t, 0)
	scripts := 0
	m.Server().SetPreHook(func(p *server.Peer, command string, args ...string) bool {
		if strings.HasPrefix(strings.ToUpper(command), "EVAL") && m.Exists("serial:{IS}:"+day) {
			p.WriteError("ERR no more")
			scripts++
		}
		return scripts > 0
	})
	stdout, stderr := e.exits(t, 1, "raise", "IS", "7")
	require.Regexp(t, `^first,last,reason,by,at,possible\n1,7,raised,,[^\n]*,true\n$`, stdout)
	require.Regexp(t, `^serial: raise succeeded, but the next number could not be read: .*no more.*\n$`, stderr)
	m.FlushAll()
	scripts = 0
	stdout, _ = e.exits(t, 1, "raise", "-json", "IS", "7", "-reason", "moved", "-by", "Ada")
	require.Regexp(t, `^\{"skipped":\{"first":1,"last":7,"reason":"moved","by":"Ada","at":"[^"]*","possible":false\}\}\n$`,
		stdout)
}

// The counter is lost after being raised.
func TestAnnounceOfALostCounter(t *testing.T) {
	m, e, day := issued(t, 3)
	key := "serial:{IS}:" + day
	m.Server().SetPreHook(func(_ *server.Peer, command string, args ...string) bool {
		if strings.HasPrefix(strings.ToUpper(command), "EVAL") {
			if held, _ := m.Get(key); held == "7" {
				m.Del(key)
			}
		}
		return false
	})
	stdout, stderr := e.exits(t, 1, "raise", "IS", "7")
	require.Regexp(t, `^first,last,reason,by,at,possible\n4,7,raised,[^\n]*\n$`, stdout)
	require.Regexp(t, `^serial: raise succeeded, but the next number could not be read: serial: counter lost: `, stderr)
}

// The error for a series with other periods differs from the error for one with a ledger.
func TestConflict(t *testing.T) {
	_, e, _ := issued(t, 1)
	for _, args := range [][]string{{"raise", "IS", "7"}, {"next", "IS"}, {"prepare", "IS"}} {
		e.fails(t, 1, "conflicting period", append(args, "-tz", "Asia/Kathmandu")...)
	}
}
