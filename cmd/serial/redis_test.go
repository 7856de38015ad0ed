package main

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/serialcmd"
)

// A server, a Cluster of one node, and a server with a Unix socket must issue numbers.
func TestServers(t *testing.T) {
	m, e, day := issued(t, 0)
	socket := t.TempDir() + "/redis@1.sock" // this @ must not be taken for the end of a password
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			to, err := m.Dial()
			if err != nil {
				return
			}
			go func() { defer to.Close(); io.Copy(to, from) }()
			go func() { defer from.Close(); io.Copy(from, to) }()
		}
	}()
	for i, url := range []string{"redis://" + m.Addr(), "redis://" + m.Addr() + "?addr=" + m.Addr(), "unix://" + socket} {
		stdout, _ := e.exits(t, 0, "next", "IS", "-redis", url)
		require.Equal(t, fmt.Sprintf("IS%s%04d\n", day, i+1), stdout)
	}
}

// If no server can be reached, the error must contain the cause, and must come before the time of a call is over.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits until the program has tried to connect several times")
	}
	for _, url := range []string{
		"rediss://" + unreachable, "unix://" + t.TempDir() + "/redis@1.sock",
		"redis://" + unreachable + "?addr=" + unreachable, "redis://" + unreachable + "?master_name=m",
		"redis://u:%2F%3F%23%40%25hunter2@" + unreachable,
	} {
		t.Run(url, func(t *testing.T) {
			t.Parallel()
			_, stderr := environment{}.exits(t, 1, "next", "IS", "-tz", "UTC", "-redis", url)
			require.Regexp(t, `^serial: Redis failed: .*(refused|no such file).*\n$`, stderr)
			require.NotContains(t, stderr, "hunter2")
		})
	}
}

// A command in an error must contain the URL, unless the URL may contain a password.
func TestGivenFlags(t *testing.T) {
	for url, want := range map[string][]string{
		"redis://h:1/2":                                 {"-redis", "'redis://h:1/2'"},
		"unix:///tmp/a@b.sock?db=1":                     {"-redis", "'unix:///tmp/a@b.sock?db=1'"},
		"redis://h:1?master_name=m&addr=i:2":            {"-redis", "'redis://h:1?master_name=m&addr=i:2'"},
		"redis://hunter2@h:1":                           {"-redis", "URL"},
		"redis://h?master_name=m&sentinel_password=x":   {"-redis", "URL"},
		"redis://h?master_name=m&p%61ssword=hunter2":    {"-redis", "URL"},
		"redis://h?master_name=m&addr=i:2&password=%26": {"-redis", "URL"},
		"redis://h": {}, // the URL in the environment
		"":          {},
	} {
		s := &settings{Setup: &serialcmd.Setup{Getenv: environment{"SERIAL_REDIS_URL": "redis://h"}.get}, url: url}
		require.Equal(t, want, s.GivenFlags())
	}
}

// An error of the server must not contain the password, not even if the password is wrong, or if AUTH was renamed so
// that the server quotes the arguments.
func TestPasswordOfServer(t *testing.T) {
	m := miniredis.RunT(t)
	m.RequireAuth("p@ss")
	next := func(code int, user, password string) (stderr string) {
		url := "redis://" + user + ":" + password + "@" + m.Addr()
		_, stderr = environment{}.exits(t, code, "next", "-tz", "UTC", "-redis", url, "IS")
		require.NotContains(t, stderr, "hunter2")
		return stderr
	}
	require.Contains(t, next(1, "", "hunter2"), "WRONGPASS")
	next(0, "", "p%40ss")
	m.Server().SetPreHook(func(c *server.Peer, name string, args ...string) bool {
		c.WriteError(fmt.Sprintf("ERR unknown command '%s', with args beginning with: '%s' ", name,
			strings.Join(args, "' '")))
		return true
	})
	for _, user := range []string{"", "u"} {
		require.Regexp(t, `(?i)unknown command 'auth'\n$`, next(1, user, "hunter2"))
	}
}

// onScripts calls f before each script that the server receives. If f returns true, the script fails.
func onScripts(m *miniredis.Miniredis, f func(args string) bool) {
	m.Server().SetPreHook(func(c *server.Peer, command string, args ...string) bool {
		fails := command == "EVALSHA" && f(strings.Join(args, " "))
		if fails {
			c.WriteError("ERR boom")
		}
		return fails
	})
}

// Redis fails after a raise, so the next number cannot be read. The skipped numbers must still be printed, because they
// cannot be determined later.
func TestRaiseThenRedisFails(t *testing.T) {
	m, e, day := issued(t, 3)
	key, raised := "serial:{IS}:"+day, "7"
	isRaised := func(string) bool { value, _ := m.Get(key); return value == raised }
	onScripts(m, isRaised)
	const fails = `^serial: raise succeeded, but the next number could not be read: `
	stdout, stderr := e.exits(t, 1, "raise", "IS", raised)
	require.Regexp(t, `^first,last,reason,by,at,possible\n4,7,raised,,[^\n]*,true\n$`, stdout)
	require.Regexp(t, fails+`.*boom.*\n$`, stderr)
	raised = "9"
	stdout, _ = e.exits(t, 1, "raise", "-json", "IS", raised, "-reason", "moved", "-by", "Ada")
	require.Regexp(t, `^\{"skipped":\{"first":8,"last":9,"reason":"moved","by":"Ada",.*,"possible":false\}\}\n$`, stdout)
	raised = "11"
	onScripts(m, func(string) bool {
		if isRaised("") {
			m.Del(key)
		}
		return false
	})
	stdout, stderr = e.exits(t, 1, "raise", "IS", raised)
	require.Contains(t, stdout, "\n10,11,raised,")
	require.Regexp(t, fails+`serial: counter lost: `, stderr)
}

// If a type cannot be raised, the following types must not be raised either.
func TestImportFails(t *testing.T) {
	m, e, day := issued(t, 0)
	scripts := 0
	onScripts(m, func(args string) bool {
		if strings.Contains(args, "serial:{AA}") {
			scripts++
		}
		return scripts == 2 // the first one reads the counter
	})
	e["stdin"] = "AA" + day + "0002\nIS" + day + "0007"
	stdout, stderr := e.exits(t, 1, "import")
	require.Regexp(t, `^serial: the counters of 0 types were raised before AA, and none after it\n.*boom`, stderr)
	require.Regexp(t, `^failed AA .*\nnot raised IS .*\n$`, stdout)
	require.False(t, m.Exists("serial:{IS}:"+day))
}

// The period ends during an import, before the counter is raised. Raise acts on the current period, so import must
// report this.
func TestImportAtTheEnd(t *testing.T) {
	m, e, _ := issued(t, 0)
	e["SERIAL_TZ"] = "UTC"
	now := time.Now().UTC().Truncate(time.Minute).Add(30 * time.Second)
	m.SetTime(now)
	scripts := 0
	onScripts(m, func(string) bool {
		if scripts++; scripts == 2 {
			m.SetTime(now.Add(time.Minute))
		}
		return false
	})
	e["stdin"] = "IS" + now.Format("200601021504") + "0007"
	stdout, stderr := e.exits(t, 1, "import", "-period", "minute")
	require.Contains(t, stdout, "failed IS")
	require.Regexp(t, `IS: .* ended in the meantime, so the counter of .* may have been raised\n$`, stderr)
}
