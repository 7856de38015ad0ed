// These tests run code of the documentation. TestCodeInDocs of package serial_test compiles them with the program of
// the README, and with a file that has the other code.
package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/serialtest"
)

// Variables of the recipes.
var (
	ctx               = context.Background()
	tenant, user, key = "acme", "Ada", "once"
	ledger            = new(serialtest.Ledger)
)

// use requires that a statement succeeded. The values are its variables, which would be unused otherwise.
func use(t *testing.T, err error, _ ...any) {
	t.Helper()
	require.NoError(t, err)
}

// startRedis returns a client of a new Redis in memory, and a generator.
func startRedis(t *testing.T) (redis.UniversalClient, *serial.Generator) {
	rdb := serialtest.NewRedis(t, time.Now()).Client()
	gen, err := serial.New(rdb)
	require.NoError(t, err)
	return rdb, gen
}

// issued requires that numbers are issued on their dates, and that Parse finds their types.
func issued(t *testing.T, numbers, types []string, opts ...serial.Option) {
	t.Helper()
	gen, server := serialtest.New(t, time.Now(), opts...)
	for i, number := range numbers {
		n, err := gen.Parse(number)
		require.NoError(t, err)
		if types != nil {
			require.Equal(t, types[i], n.Type, number)
		}
		if server.SetTime(n.Date.Add(12 * time.Hour)); n.Date.Unix() == 0 { // of Never
			server.SetTime(n.Date.AddDate(50, 0, 0))
		}
		if first, _ := gen.Scheme().Limits(); n.Seq > first {
			require.NoError(t, gen.Raise(ctx, n.Type, n.Seq-1), number)
		}
		again, err := gen.NextNumber(ctx, n.Type)
		require.NoError(t, err, number)
		require.Equal(t, number, again.String())
		require.Equal(t, n.Seq, again.Seq)
	}
}

// refused requires that New returns an error for options.
func refused(t *testing.T, says string, opts ...serial.Option) {
	t.Helper()
	_, err := serial.New(newClient("", ""), opts...)
	require.ErrorContains(t, err, says)
}

func TestReadme(t *testing.T) { main() }

func TestClients(t *testing.T) {
	for _, kind := range []string{"", "sentinel", "cluster"} {
		client := newClient(kind, "secret")
		_, err := serial.New(client)
		require.NoError(t, err)
		require.NoError(t, client.Close())
	}
}

// In a template with a hyphen at its beginning, numbers are a character too long.
func TestFits(t *testing.T) {
	for template, typ := range map[string]string{"{type}/{date:FFFF-EE}/{seq:4}": "INV",
		"{type}/{date:d-R-yyyy}/{seq:1}": "I"} { // the longest month is VIII
		for prefix, want := range map[string]bool{"": true, "-": false} {
			s, err := serial.NewScheme(serial.WithPeriod(serial.PerYear), serial.WithTemplate(prefix+template))
			require.NoError(t, err)
			got, err := fits(s, typ, 16)
			require.NoError(t, err)
			require.Equal(t, want, got, prefix+template)
		}
	}
}

// parseRotated must parse numbers of the old key and of the current one.
func TestRotatedKey(t *testing.T) {
	schemes := map[string]*serial.Scheme{}
	for _, key := range []string{"the key of 2024.", "the key of 2025."} {
		s, err := serial.NewScheme(serial.WithLocation(time.UTC), serial.WithHiddenSequence([]byte(key)),
			serial.WithTemplate("{type}{date:yyyyMMdd}{seq:6}"))
		require.NoError(t, err)
		schemes[key[11:15]] = s
	}
	rotated := time.Date(2025, time.January, 1, 0, 0, 0, 0, time.UTC)
	for year, day := range map[string]time.Time{"2024": rotated.Add(-time.Second), "2025": rotated} {
		for seq := int64(1); seq <= 100; seq++ {
			number, err := schemes[year].Number("IS", serial.At(day), seq)
			require.NoError(t, err)
			n, err := parseRotated(schemes["2024"], schemes["2025"], number.String(), rotated)
			require.NoError(t, err)
			require.Equal(t, seq, n.Seq)
		}
	}
}

func requireHidden(t *testing.T, gen *serial.Generator, number string) {
	require.Regexp(t, "^ORD[0-9]{14}$", number)
	require.False(t, strings.HasSuffix(number, "000001"))
	n, err := gen.Parse(number)
	require.NoError(t, err)
	require.EqualValues(t, 1, n.Seq)
}
