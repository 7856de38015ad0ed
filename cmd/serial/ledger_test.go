package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/serialtest"
)

// identify gives a miniredis a replication ID, which it lacks and ledgers need.
func identify(m *miniredis.Miniredis) {
	m.Server().SetPreHook(func(c *server.Peer, cmd string, args ...string) bool {
		if !strings.EqualFold(cmd, "INFO") {
			return false
		}
		c.WriteBulk("role:master\r\nmaster_replid:" + strings.Repeat("0", 40) + "\r\n")
		return true
	})
}

// serviceWithLedger returns a service that sets aside 10 numbers at a time in a ledger, and the command's environment.
func serviceWithLedger(t *testing.T, opts ...serial.Option) (
	m *miniredis.Miniredis, gen *serial.Generator, e environment, day string) {
	t.Helper()
	m, e, day = issued(t, 0)
	identify(m)
	client := redis.NewClient(&redis.Options{Addr: m.Addr()})
	t.Cleanup(func() { client.Close() })
	opts = append(opts, serial.WithLocation(zoneOf(t, e)), serial.WithLedger(new(serialtest.Ledger), 10))
	gen, err := serial.New(client, opts...)
	require.NoError(t, err)
	return m, gen, e, day
}

// The command can read the numbers of a series with a ledger. Only the service with the ledger can issue and raise
// them.
func TestLedger(t *testing.T) {
	m, gen, surroundings, day := serviceWithLedger(t)
	_, err := gen.NextN(t.Context(), "IS", 3)
	require.NoError(t, err)
	surroundings.prints(t, "IS"+day+"0003\n", "peek", "IS")
	stdout, _ := surroundings.exits(t, 0, "history", "IS")
	require.Regexp(t, ` 3 +0\.0%\n$`, stdout)

	refusals := func() {
		for _, args := range [][]string{{"raise", "IS", "7"}, {"next", "IS"}, {"prepare", "IS"}} {
			stdout, stderr := surroundings.exits(t, 1, args...)
			require.Empty(t, stdout, args)
			require.Regexp(t, `^serial: conflicting period: the numbers of IS in .* are reserved in a ledger, which this `+
				`generator does not have; use the service's own command, which has the ledger \(see package serialcmd\); `+
				`to leave the ledger, stop the service and run: serial takeover -leave-ledger .* IS SEQ, where SEQ is the last `+
				`sequence set aside \(reserved\) in the ledger for \d{4}-\d{2}-\d{2}, or 0\n$`, stderr)
		}
	}
	refusals()
	m.Del("serial:{IS}:" + day) // a lost counter changes nothing
	refusals()

}

// Only -leave-ledger leaves a ledger.
func TestLeaveLedger(t *testing.T) {
	m, gen, e, day := serviceWithLedger(t)
	next := func(seq string) {
		t.Helper()
		number, err := gen.Next(t.Context(), "IS")
		require.NoError(t, err)
		require.Equal(t, "IS"+day+seq, number)
	}
	next("0001")
	before := m.Dump()
	stdout, stderr := e.exits(t, 1, "takeover", "IS", "7")
	require.Empty(t, stdout)
	require.Regexp(t, `^serial: takeover would leave the ledger of IS: [^\n]*may be issued twice[^\n]*, so SEQ must be `+
		`the last sequence set aside \(reserved\) in the ledger\n`+
		`serial: conflicting period: the numbers of IS in .* are reserved in a ledger, [^\n]*\n$`, stderr)
	require.Equal(t, before, m.Dump())
	_, help, _ := e.do("help", "takeover")
	settings, err := os.ReadFile("../../docs/settings.md")
	require.NoError(t, err)
	for _, text := range []string{help, string(settings)} { // they ask for the same number
		require.Contains(t, strings.Join(strings.Fields(text), " "), "last sequence set aside (reserved) in the ledger")
	}
	next("0002")

	before = m.Dump()
	e.misused(t, "-reason with -leave-ledger: only the ledger knows which numbers may have been issued; audit the period "+
		"afterwards, and explain what is missing", "takeover", "-leave-ledger", "-reason", "moved", "-by", "Ann", "IS", "7")
	require.Equal(t, before, m.Dump())
	stdout, stderr = e.exits(t, 0, "takeover", "-leave-ledger", "IS", "7")
	require.Equal(t, "next IS"+day+"0008\n", unskipped(stdout))
	require.Regexp(t, `^serial: takeover leaves the ledger of IS: [^\n]*may be issued twice[^\n]*\n$`, stderr)
	e.exits(t, 0, "next", "IS")
	next("0011") // a ledger may be turned on again at any time

	// Without a ledger, the flag has no effect, and there is no warning.
	_, _, stderr = e.do("next", "PO")
	require.Empty(t, stderr)
	stdout, stderr = e.exits(t, 0, "takeover", "PO", "7", "-leave-ledger")
	require.Equal(t, "next PO"+day+"0008\n", unskipped(stdout))
	require.Empty(t, stderr)
	e.misused(t, "raise has no flag -leave-ledger", "raise", "-leave-ledger", "IS", "20")
}

// This also holds if the series is in another time zone, and before the first number of a period.
func TestLeaveLedgerOfAnotherPeriod(t *testing.T) {
	m, gen, e, _ := serviceWithLedger(t, serial.WithPeriod(serial.PerMinute),
		serial.WithTemplate("{type}{date:yyyyMMddHHmm}{seq:4}"))
	m.SetTime(time.Now())
	_, err := gen.Next(t.Context(), "IS")
	require.NoError(t, err)
	refuses := func(args ...string) {
		t.Helper()
		before := m.Dump()
		e.fails(t, 1, "are reserved in a ledger, which this generator does not have", append(args, "-period", "minute")...)
		require.Equal(t, before, m.Dump())
	}
	refuses("takeover", "IS", "7", "-tz", "Asia/Kathmandu")
	m.SetTime(time.Now().Add(time.Minute))
	refuses("takeover", "IS", "7")
	refuses("raise", "IS", "7")
	_, stderr := e.exits(t, 0, "takeover", "IS", "7", "-period", "minute", "-leave-ledger")
	require.Contains(t, stderr, "leaves the ledger of IS")
	e.exits(t, 0, "raise", "IS", "9", "-period", "minute")
}
