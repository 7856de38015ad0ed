package main

import (
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// The passwords contain hunter2.
func TestPasswordIsNotShown(t *testing.T) {
	for _, row := range []struct {
		code int
		url  string
	}{
		{2, "redis://u:hunter2/@localhost"},
		{2, "redis://u:hunter2?@localhost"},
		{2, "redis://u:hunter2#@localhost"},
		{2, "redis://u:hunter2%@localhost"},
		{2, "redis://u:%zhunter2@localhost"},
		{2, "redis://u:x hunter2@localhost"},
		{2, "redis://u:1/hunter2@localhost"},
		{2, "redis://u:1?hunter2@localhost"},
		{2, "redis://u:1#hunter2@localhost"},
		{2, "redis://u:@/hunter2@localhost"},
		{2, "redis:/hunter2@localhost"},
		{2, "unix://u:1/hunter2@/tmp/redis.sock"},
		{2, "u:hunter2@localhost"},
		{2, ":hunter2@localhost"},
		{2, "hunter2@localhost"},
		{2, "http://u:hunter2@localhost"},
		{2, "redis://u:hunter2@localhost/x"},
		{2, "redis://u:hunter2@localhost?x=1"},
		{2, "redis://localhost?master_name=m&password=x&hunter2"},
		{2, "redis://localhost?master_name=m&password=x;hunter2"},
		{2, "redis://localhost?master_name=m&password=x@hunter2"},
		{2, "redis://localhost?master_name=m&password=hunter2&db=x"},
		{2, "redis://localhost?password=hunter2"},
		{2, "redis://localhost?master_name=m&sentinel_password=to&hunter2"},
		{2, "redis://localhost?master_name=m&sentinel_password=to&hunter2=x"},
		{2, "redis://localhost?master_name=m&sentinel%5Fpassword=to&hunter2"},
		{2, "redis://localhost?master_name=m&sentinel_pasword=to&hunter2"},
		{2, "redis://localhost?pwd=to&hunter2"},
		{2, "redis://localhost?addr=localhost&password=to&hunter2"},
		{2, "redis://localhost?addr=localhost%26password=hunter2"},
		{2, "redis://localhost?db=0%26password=hunter2"},
		{2, "redis://localhost?pool_size=1,password=hunter2"},
		{2, "redis://localhost/0&password=hunter2"},
		{1, "redis://u:hunter2@" + refused(t) + "?max_retries=-1"},
		{1, "redis://u:%2F%3F%23%40%25hunter2@" + refused(t) + "?max_retries=-1"},
	} {
		stdout, stderr := environment{}.exits(t, row.code, "next", "-tz", "UTC", "-redis", row.url, "IS")
		require.Empty(t, stdout)
		require.NotContains(t, stderr, "hunter2", row.url)
	}

	m := startMemory(t)
	m.RequireAuth("p@ss")
	_, stderr := environment{}.exits(t, 1, "next", "-tz", "UTC", "-redis", "redis://:hunter2@"+m.Addr(), "IS")
	require.Contains(t, stderr, "WRONGPASS")
	require.NotContains(t, stderr, "hunter2")
	environment{}.exits(t, 0, "next", "-tz", "UTC", "-redis", "redis://:p%40ss@"+m.Addr(), "IS")

	renamed := startMemory(t) // a server where HELLO and AUTH have other names quotes their arguments
	renamed.Server().SetPreHook(func(c *server.Peer, name string, args ...string) bool {
		c.WriteError(fmt.Sprintf("ERR unknown command '%s', with args beginning with: '%s' ", name,
			strings.Join(args, "' '")))
		return true
	})
	for _, user := range []string{"", "u"} {
		_, stderr = environment{}.exits(t, 1, "next", "-tz", "UTC", "-redis",
			"redis://"+user+":hunter2@"+renamed.Addr(), "IS")
		require.Regexp(t, `(?i)unknown command 'auth'\n$`, stderr)
	}

	const url = "redis://:hunter2@localhost"
	for _, args := range [][]string{ // without -redis, misspelt, or in the place of something else
		{"next", url, "IS"}, {"next", "-url=" + url, "IS"}, {"next", "-once", "-redis=" + url, "IS"},
		{"next", "IS", url, "PO"}, {url, "next", "IS"}, {"next", "-n", url, "IS"}, {"next", "-tz=" + url, "IS"},
		{"next", "-template", url, "IS"}, {"next", "-prefix", url, "IS"}, {"next", "-hidden-key", url, "IS"},
		{"raise", "IS", url}, {"audit", "-date", url, "IS"}, {"audit", "-earlier", url, "IS"}, {"audit", "IS", url},
		{"audit", "IS", "-explained", url}, {"audit", "IS", "-column", url}, {"import", url}, {"import", "IS", "--", url},
		{"parse", url}, {"template", url}, {"completion", url}, {"help", url},
	} {
		_, stderr = environment{"SERIAL_TZ": "UTC", "SERIAL_REDIS_URL": "redis://" + m.Addr()}.exits(t, 2, args...)
		require.NotContains(t, stderr, "hunter2", args)
	}
	for _, name := range []string{"SERIAL_TZ", "SERIAL_HIDDEN_KEY"} {
		_, stderr = environment{name: url}.exits(t, 2, "next", "IS")
		require.Contains(t, stderr, "$"+name)
		require.NotContains(t, stderr, "hunter2")
	}
}

// refused returns an address where nothing listens.
func refused(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

func TestUnreachable(t *testing.T) {
	for _, row := range []struct {
		url  string
		args []string
	}{
		{"redis://" + refused(t), []string{"raise", "IS", "1"}},
		{"rediss://" + refused(t), []string{"peek", "IS"}},
		// This @ does not belong to a password.
		{"unix://" + filepath.Join(t.TempDir(), "redis@1.sock"), []string{"next", "IS"}},
		{"redis://" + refused(t) + "?addr=" + refused(t), []string{"next", "IS"}},
		{"redis://" + refused(t) + "?master_name=m", []string{"next", "IS"}},
	} {
		t.Run(row.url, func(t *testing.T) {
			t.Parallel()
			start := time.Now()
			code, stdout, stderr := doEnv(row.url, append(row.args, "-tz", "UTC")...)
			require.Less(t, time.Since(start), 8*time.Second)
			require.Equal(t, 1, code)
			require.Empty(t, stdout)
			require.Regexp(t, `^serial: Redis failed: .*(refused|no such file).*\n$`, stderr)
		})
	}
}

func TestURL(t *testing.T) {
	client, err := dial("rediss://h:1/2")
	require.NoError(t, err)
	o := client.(*redis.Client).Options()
	require.Equal(t, "h:1", o.Addr)
	require.Equal(t, 2, o.DB)
	require.NotNil(t, o.TLSConfig)

	client, err = dial("redis://h:1?master_name=m&addr=i:2")
	require.NoError(t, err)
	require.Equal(t, "FailoverClient", client.(*redis.Client).Options().Addr)

	client, err = dial("redis://u:p@h:1?addr=i:2&addr=j:3")
	require.NoError(t, err)
	require.Equal(t, []string{"h:1", "i:2", "j:3"}, client.(*redis.ClusterClient).Options().Addrs)
}

// A miniredis can also be a Cluster of one node, and be behind a socket.
func TestOtherServers(t *testing.T) {
	m := startMemory(t)
	socket := filepath.Join(t.TempDir(), "s")
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
	zone, day := noon()
	for i, url := range []string{"redis://" + m.Addr(), "redis://" + m.Addr() + "?addr=" + m.Addr(), "unix://" + socket} {
		stdout, _ := onRedis(url).exits(t, 0, "next", "-tz", zone, "IS")
		require.Equal(t, lines("IS"+day+"%04d", i+1, i+1), stdout)
	}
}
