package serial_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

// A varying is a template that prints more than its period. Its numbers are printed as time.Format has the layout goes.
type varying struct {
	kind
	goes   string
	border string // UTC, at which the text changes and the period does not
	second string // another one
}

var varyings = []varying{
	{kindOf("a year that prints the month", serial.PerYear, "yyyyMM"), "200601", "2024-03-01 00:00:00", "2024-04-01 00:00:00"},
	{kindOf("a year that prints the day", serial.PerYear, "yyyyMMdd"), "20060102", "2024-02-29 00:00:00", "2024-03-01 00:00:00"},
	{kindOf("a year that prints the time", serial.PerYear, "yyMMddHHmm"), "0601021504", "2024-02-29 17:31:00", "2024-12-31 23:59:00"},
	{kindOf("a business year that prints the month", serial.PerYear, "yyyyMM", serial.WithYearStart(time.July, 1)), "200601",
		"2024-01-01 00:00:00", "2024-06-01 00:00:00"},
	{kindOf("a quarter that prints the day", serial.PerQuarter, "yyyyMMdd"), "20060102", "2024-02-29 00:00:00", "2024-03-31 00:00:00"},
	{kindOf("a month that prints the day", serial.PerMonth, "dd.MM.yyyy"), "02.01.2006", "2024-02-29 00:00:00", "2024-02-29 00:00:00"},
	{kindOf("a week that prints the day", serial.PerWeek, "yyyyMMdd"), "20060102", "2025-01-01 00:00:00", "2025-01-05 00:00:00"},
	{kindOf("a day that prints the time", serial.PerDay, "yyyyMMddHHmmss"), "20060102150405", "2024-12-31 12:00:00", "2024-12-31 23:59:59"},
	{kindOf("never, printing the day", serial.Never, "yyMMdd"), "060102", "2025-01-01 00:00:00", "2099-12-31 00:00:00"},
	{kindOf("never, printing the time", serial.Never, "HHmm"), "1504", "2025-01-01 00:00:00", "2025-06-01 12:34:00"},
}

func utc(t *testing.T, s string) time.Time {
	t.Helper()
	at, err := time.Parse(time.DateTime, s)
	require.NoError(t, err)
	return at
}

// Whatever is printed is of the instant of issue by Redis's clock, to the second, and the counter goes on. That is so however
// far this host's clock is from Redis's, also where that clock is set back within the period.
func TestMoreThanThePeriod(t *testing.T) {
	for _, v := range varyings {
		for name, opts := range map[string][]serial.Option{
			"alone":          nil,
			"with a floor":   {fixedFloor(1)},
			"with a ledger":  {serial.WithLedger(&notebook{}, 2)},
			"with its hooks": {serial.WithHooks(serial.Hooks{})},
		} {
			t.Run(v.name+" "+name, func(t *testing.T) {
				m := miniredis.RunT(t)
				reigning(m)
				rdb := closing(t, redis.NewClient(&redis.Options{Addr: m.Addr()}))
				var gens [2]*serial.Generator
				for i := range gens {
					gens[i] = newGenerator(t, rdb, slices.Concat(v.opts, opts, []serial.Option{serial.WithLocation(time.UTC), serial.WithMaxSkew(-1)})...)
				}
				last, turn := int64(0), 0
				next := func(at time.Time, n int) {
					t.Helper()
					m.SetTime(at)
					turn++
					got, err := gens[turn%2].NextN(t.Context(), "IS", n)
					require.NoError(t, err)
					for i, n := range got {
						if last > 0 || i > 0 {
							require.Equal(t, last+1, n.Seq)
						}
						last = n.Seq
						require.Equal(t, fmt.Sprintf("IS-%s-%04d", at.Format(v.goes), last), n.String())
						require.False(t, n.Date.After(at))
						require.Equal(t, at.Format(v.goes), n.Date.Format(v.goes), "its first instant")
						if n.Date.After(n.Start) {
							require.NotEqual(t, at.Format(v.goes), n.Date.Add(-time.Second).Format(v.goes), "its first instant")
						}
						if v.name != "never, printing the time" { // whose day nobody can tell
							parsed, err := gens[0].Parse(n.String())
							require.NoError(t, err)
							require.Equal(t, n.Start, parsed.Start)
							require.Equal(t, n.Date, parsed.Date)
						}
					}
				}
				border, second := utc(t, v.border), utc(t, v.second)
				next(border.Add(-time.Second), 3)
				next(border, 1)
				once, err := gens[0].NextOnce(t.Context(), "IS", "request")
				require.NoError(t, err)
				last++
				require.Equal(t, fmt.Sprintf("IS-%s-%04d", border.Format(v.goes), last), once.String())
				next(second.Add(-time.Second), 1)
				next(second, 5)
				next(border.Add(-time.Second), 1) // the clock was set back
				next(second, 1)
				again, err := gens[1].NextOnce(t.Context(), "IS", "request")
				require.NoError(t, err)
				require.Equal(t, once.String(), again.String())
				if v.name != "never, printing the time" {
					require.Equal(t, once.Date, again.Date)
				}

				read, err := gens[0].Peek(t.Context(), "IS")
				require.NoError(t, err)
				require.Equal(t, last, read.Seq)
				require.Zero(t, read.Date, "nobody knows when it was issued")
				require.Empty(t, read.String())
				all, err := gens[1].History(t.Context(), "IS", 3)
				require.NoError(t, err)
				require.NotEmpty(t, all)
				require.Equal(t, last, all[0].Seq)
				require.Zero(t, all[0].Date)
			})
		}
	}
}

// Callers share numbers across a border within their period: each text is of an instant at which its call ran, none comes twice,
// and the sequence has no gap. The network is slow, so that calls are under way when the text changes.
func TestManyAcrossABorder(t *testing.T) {
	for _, v := range varyings {
		for _, ledger := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, ledger %v", v.name, ledger), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					const callers, each = 100, 6
					m := simulate(t)
					reigning(m.Miniredis)
					time.Sleep(time.Until(utc(t, v.border)) - 300*time.Millisecond) // opening it takes a while
					far := network(20 * time.Millisecond)
					opts := append(slices.Clone(v.opts), serial.WithLocation(time.UTC))
					if ledger {
						opts = append(opts, serial.WithLedger(&notebook{}, 37))
					}
					gens := []*serial.Generator{newGenerator(t, m.client(far), opts...), newGenerator(t, m.client(far), opts...)}
					var mu sync.Mutex
					var seqs []int
					texts := map[string]bool{}
					var wg sync.WaitGroup
					for i := range callers {
						wg.Go(func() {
							ctx, cancel := context.WithCancel(t.Context())
							defer cancel()
							for k := range each {
								before := time.Now().UTC()
								var got []serial.Number
								var err error
								switch {
								case i == 0:
									got, err = gens[i%2].NextN(ctx, "IS", 7)
								case i == 1:
									got = make([]serial.Number, 1)
									got[0], err = gens[i%2].NextOnce(ctx, "IS", fmt.Sprint(k))
								default:
									got = make([]serial.Number, 1)
									got[0], err = gens[i%2].NextNumber(ctx, "IS")
								}
								require.NoError(t, err)
								after := time.Now().UTC()
								text := strings.Split(got[0].String(), "-")[1]
								allowed := []string{after.Format(v.goes)}
								for at := before; at.Before(after); at = at.Add(100 * time.Millisecond) {
									allowed = append(allowed, at.Format(v.goes))
								}
								require.Contains(t, allowed, text)
								for _, n := range got {
									require.Equal(t, text, strings.Split(n.String(), "-")[1], "one text in a call")
									mu.Lock()
									texts[text] = true
									seqs = append(seqs, int(n.Seq))
									mu.Unlock()
								}
								time.Sleep(time.Duration(i) * time.Millisecond / 2)
							}
						})
					}
					wg.Wait()
					require.GreaterOrEqual(t, len(texts), 2, "%v", texts)
					slices.Sort(seqs)
					for i, seq := range seqs {
						require.Equal(t, i+1, seq)
					}
					m.requireExpiries()
				})
			})
		}
	}
}

// network delays scripts and locks on their way there, and answers on their way back; but not the set-up of a connection, which
// the client does under a mutex.
func network(delay time.Duration) hook {
	return func(next redis.ProcessHook) redis.ProcessHook {
		return func(ctx context.Context, cmd redis.Cmder) error {
			if cmd.Name() != "set" && !strings.HasPrefix(cmd.Name(), "eval") {
				return next(ctx, cmd)
			}
			time.Sleep(delay)
			err := next(ctx, cmd)
			time.Sleep(delay)
			return err
		}
	}
}

// A day that prints seconds works over a network of 400 ms: opened once, under the lock, above the floor.
func TestSecondsOfADayOverANetwork(t *testing.T) {
	for _, protect := range []string{"floor", "ledger"} {
		t.Run(protect, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := simulate(t)
				reigning(m.Miniredis)
				far := network(200 * time.Millisecond)
				asked := 0
				option := serial.WithFloor(func(context.Context, string, time.Time) (int64, error) {
					asked++
					time.Sleep(300 * time.Millisecond)
					return 0, nil
				})
				if protect == "ledger" {
					option = serial.WithLedger(&notebook{hold: func(context.Context, serial.Reservation) error {
						asked++
						time.Sleep(300 * time.Millisecond)
						return nil
					}}, 1000)
				}
				var gens [3]*serial.Generator
				for i := range gens {
					gens[i] = newGenerator(t, m.client(far), serial.WithLocation(time.UTC), option,
						serial.WithTemplate("{type}{date:yyyyMMddHHmmss}{seq:5}"))
				}
				var mu sync.Mutex
				var seqs []int
				var wg sync.WaitGroup
				for i := range 12 {
					wg.Go(func() {
						for k := range 20 {
							before := time.Now().UTC()
							n, err := gens[i%3].NextNumber(t.Context(), "IS")
							require.NoError(t, err)
							after := time.Now().UTC()
							most := 4 * time.Second
							if k == 0 {
								most = 10 * time.Second
							}
							require.LessOrEqual(t, after.Sub(before), most)
							text := n.String()[2:16]
							require.LessOrEqual(t, before.Format("20060102150405"), text)
							require.GreaterOrEqual(t, after.Format("20060102150405"), text)
							mu.Lock()
							seqs = append(seqs, int(n.Seq))
							mu.Unlock()
							time.Sleep(time.Duration(i) * 37 * time.Millisecond)
						}
					})
				}
				wg.Wait()
				require.Equal(t, 1, asked)
				slices.Sort(seqs)
				for i, seq := range seqs {
					require.Equal(t, i+1, seq)
				}
			})
		})
	}
}
