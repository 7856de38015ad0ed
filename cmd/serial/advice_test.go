package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/serialcmd"
	"github.com/dailyserial/serial/serialtest"
)

var advice = regexp.MustCompile(`run: serial (.*) SEQ, where SEQ is`)

// The command that an error of the library names ends that error.
func TestAdvice(t *testing.T) {
	zone, day := noon()
	loc, err := time.LoadLocation(zone)
	require.NoError(t, err)
	fiscal := time.Now().In(loc).AddDate(0, -3, -5).Format("2006") // the business year from 6 April
	for _, row := range []struct {
		name string
		opts []serial.Option
		do   func(t *testing.T, m *miniredis.Miniredis, other func(...serial.Option) *serial.Generator)
		want error
		next string
	}{
		{"lost", nil, func(t *testing.T, m *miniredis.Miniredis, _ func(...serial.Option) *serial.Generator) {
			m.Del("serial:{IS}:" + day)
		}, serial.ErrCounterLost, "IS" + day + "0008"},
		{"another zone", nil, func(t *testing.T, m *miniredis.Miniredis, other func(...serial.Option) *serial.Generator) {
			m.FlushAll()
			_, err := other(serial.WithLocation(time.FixedZone("", 3600*(13-time.Now().UTC().Hour())))).Next(t.Context(), "IS")
			require.NoError(t, err)
		}, serial.ErrConflict, "IS" + day + "0008"},
		{"a ledger", nil, func(t *testing.T, m *miniredis.Miniredis, other func(...serial.Option) *serial.Generator) {
			identify(m)
			_, err := other(serial.WithLedger(new(serialtest.Ledger), 5)).Next(t.Context(), "IS")
			require.NoError(t, err)
		}, serial.ErrConflict, "IS" + day + "0008"},
		{"a record in the future", nil, func(t *testing.T, m *miniredis.Miniredis,
			other func(...serial.Option) *serial.Generator) {
			m.SetTime(time.Now().Add(48 * time.Hour))
			_, err := other(serial.WithMaxSkew(-1)).Next(t.Context(), "IS")
			require.NoError(t, err)
			m.SetTime(time.Now())
		}, serial.ErrClockSkew, "IS" + day + "0008"},
		{"a business year", []serial.Option{serial.WithPeriod(serial.PerYear), serial.WithYearStart(time.April, 6),
			serial.WithTemplate("{type}{date:FFFF}{seq:4}")}, func(t *testing.T, m *miniredis.Miniredis,
			_ func(...serial.Option) *serial.Generator) {
			m.Del("serial:{IS}:" + fiscal)
		}, serial.ErrCounterLost, "IS" + fiscal + "0008"},
		{"another day start, and every flag", []serial.Option{serial.WithPeriod(serial.PerMonth),
			serial.WithDayStart(4 * time.Hour), serial.WithKeyPrefix("shop"),
			serial.WithTemplate("{type}'{date:yyyyMM}-{seq:6}")},
			func(t *testing.T, m *miniredis.Miniredis, other func(...serial.Option) *serial.Generator) {
				m.FlushAll()
				_, err := other(serial.WithKeyPrefix("shop"), serial.WithPeriod(serial.PerMonth),
					serial.WithTemplate("{type}{date:yyyyMM}{seq:4}")).Next(t.Context(), "IS")
				require.NoError(t, err)
			}, serial.ErrConflict, "IS'" + day[:6] + "-000008"},
	} {
		t.Run(row.name, func(t *testing.T) {
			m := startMemory(t)
			client := redis.NewClient(&redis.Options{Addr: m.Addr()})
			t.Cleanup(func() { client.Close() })
			generator := func(opts ...serial.Option) *serial.Generator {
				gen, err := serial.New(client, append([]serial.Option{serial.WithLocation(loc)}, opts...)...)
				require.NoError(t, err)
				return gen
			}
			_, err := generator(row.opts...).Next(t.Context(), "IS")
			require.NoError(t, err)
			row.do(t, m, generator)
			gen := generator(row.opts...)
			_, err = gen.Next(t.Context(), "IS")
			require.ErrorIs(t, err, row.want)
			found := advice.FindStringSubmatch(err.Error())
			require.NotNil(t, found, err)

			stdout, _ := onRedis("redis://"+m.Addr()).exits(t, 0, append(words(t, found[1]), "7")...)
			require.Equal(t, "next "+row.next+"\n", unskipped(stdout))
			got, err := gen.Next(t.Context(), "IS")
			require.NoError(t, err)
			require.Equal(t, row.next, got)
		})
	}
}

// The command's own errors name the command that ends them, with the file of the key if that was given, and with -- if
// the type looks like a flag.
func TestAdviceOfCommand(t *testing.T) {
	m, e, day := issued(t, 0)
	key := filepath.Join(t.TempDir(), "the key's file")
	require.NoError(t, os.WriteFile(key, []byte(strings.Repeat("0f", 16)), 0o600))
	command := func(args ...string) []string {
		return append([]string{"-hidden-key", key, "-template", "{type}{date:yyyyMMdd}{seq:6}", "-start", "7"}, args...)
	}
	e.exits(t, 0, command("next", "--", "-x")...)
	m.Del("serial:{-x}:" + day)
	_, stderr := e.exits(t, 1, command("peek", "--", "-x")...)
	found := advice.FindStringSubmatch(stderr)
	require.NotNil(t, found, stderr)
	stdout, _ := e.exits(t, 0, append(words(t, found[1]), "41")...)
	next := strings.TrimSuffix(strings.TrimPrefix(stdout, "next "), "\n")
	e.prints(t, next+"\n", command("next", "--", "-x")...)
	parsed, _ := e.exits(t, 0, command("parse", "--", next)...)
	require.Contains(t, parsed, "seq 42\n")
}

// The printed command is for the Redis of -redis. A URL with a password is not printed.
func TestAdviceWithRedis(t *testing.T) {
	m, e, day := issued(t, 3)
	other := startMemory(t)
	given := e["SERIAL_REDIS_URL"] + "?client_name=it's"
	e = environment{"SERIAL_REDIS_URL": "redis://" + other.Addr(), "SERIAL_TZ": e["SERIAL_TZ"]}
	m.Del("serial:{IS}:" + day)
	_, stderr := e.exits(t, 1, "next", "IS", "-redis", given)
	found := advice.FindStringSubmatch(stderr)
	require.NotNil(t, found, stderr)
	stdout, _ := e.exits(t, 0, append(words(t, found[1]), "41")...)
	require.Equal(t, "next IS"+day+"0042\n", stdout)
	untouched(t, other, nil)

	m.RequireUserAuth("ada", "hunter2")
	m.Del("serial:{IS}:" + day)
	_, stderr = e.exits(t, 1, "next", "IS", "-redis", "redis://ada:hunter2@"+m.Addr())
	require.Contains(t, stderr, "run: serial raise -tz '"+e["SERIAL_TZ"]+"' -redis URL IS SEQ, where SEQ is")
}

// A URL is printed unless it may have a password.
func TestGivenFlags(t *testing.T) {
	for given, want := range map[string]string{
		"redis://h:1/2":                                 "'redis://h:1/2'",
		"unix:///tmp/a@b.sock?db=1":                     "'unix:///tmp/a@b.sock?db=1'",
		"redis://h:1?master_name=m&addr=i:2":            "'redis://h:1?master_name=m&addr=i:2'",
		"redis://hunter2@h:1":                           "URL",
		"redis://:hunter2@h:1":                          "URL",
		"redis://h?master_name=m&sentinel_password=x":   "URL",
		"redis://h?master_name=m&p%61ssword=hunter2":    "URL",
		"redis://h?master_name=m&addr=i:2&password=%26": "URL",
	} {
		s := &settings{Setup: &serialcmd.Setup{Getenv: env("redis://h")}, url: given}
		require.Equal(t, []string{"-redis", want}, s.GivenFlags())
	}
	for _, url := range []string{"", "redis://h"} {
		s := &settings{Setup: &serialcmd.Setup{Getenv: env("redis://h")}, url: url}
		require.Equal(t, []string{}, s.GivenFlags())
	}
}

// words splits a command line with single quotes as a shell does.
func words(t *testing.T, line string) []string {
	t.Helper()
	var all []string
	word, quoted := "", false
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case c == '\'':
			quoted = !quoted
		case c == '\\' && !quoted:
			i++
			word += line[i : i+1]
		case c == ' ' && !quoted:
			all, word = append(all, word), ""
		default:
			word += string(c)
		}
	}
	require.False(t, quoted, line)
	require.NotContains(t, strings.Join(append(all, word), ""), "ZONE")
	return append(all, word)
}
