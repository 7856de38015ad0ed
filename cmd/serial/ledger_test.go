package main

import (
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/serialtest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// The numbers of a series with a ledger can be read by the command, and only the service that has the ledger can go on.
func TestLedger(t *testing.T) {
	m := miniredis.RunT(t)
	m.Server().SetPreHook(func(c *server.Peer, cmd string, args ...string) bool {
		if !strings.EqualFold(cmd, "INFO") {
			return false
		}
		c.WriteBulk("role:master\r\nmaster_replid:" + strings.Repeat("0", 40) + "\r\n") // which a miniredis lacks
		return true
	})
	zone, day := noon()
	loc, err := time.LoadLocation(zone)
	require.NoError(t, err)
	client := redis.NewClient(&redis.Options{Addr: m.Addr()})
	t.Cleanup(func() { client.Close() })
	gen, err := serial.New(client, serial.WithLocation(loc), serial.WithLedger(new(serialtest.Ledger), 10))
	require.NoError(t, err)
	_, err = gen.NextN(t.Context(), "IS", 3)
	require.NoError(t, err)

	surroundings := environment{"SERIAL_REDIS_URL": "redis://" + m.Addr(), "SERIAL_TZ": zone}
	code, stdout, stderr := surroundings.do("peek", "IS")
	require.Equal(t, 0, code, stderr)
	require.Equal(t, "IS"+day+"0003\n", stdout)
	code, stdout, stderr = surroundings.do("history", "IS")
	require.Equal(t, 0, code, stderr)
	require.Regexp(t, ` 3 +0\.0%\n$`, stdout)

	refusals := func() {
		for _, args := range [][]string{{"raise", "IS", "7"}, {"next", "IS"}, {"prepare", "IS"}} {
			code, stdout, stderr := surroundings.do(args...)
			require.Equal(t, 1, code, args)
			require.Empty(t, stdout, args)
			require.Regexp(t, `^serial: conflicting period: the numbers of IS in .* are set aside in a ledger, .*; `+
				`let a process do this that has it, .*\n$`, stderr)
		}
	}
	refusals()
	m.Del("serial:{IS}:" + day) // what is lost can be told, too
	refusals()

	code, stdout, stderr = surroundings.do("takeover", "IS", "7")
	require.Equal(t, 0, code, stderr)
	require.Equal(t, "next IS"+day+"0008\n", unskipped(stdout))
	_, err = gen.Next(t.Context(), "IS")
	require.NoError(t, err, "a ledger may be turned on at any time")
}
