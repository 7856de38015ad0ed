package gapless_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/gapless"
)

// numbers yields texts unchanged, each after a call of between.
func numbers(between func(i int), texts ...string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for i, text := range texts {
			between(i)
			if !yield(text, nil) {
				return
			}
		}
	}
}

// Numbers taken while the stored numbers are read are ignored; numbers above them were never taken. A closed period is
// read, too.
func TestAudit(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		db, g := d.start(t)
		take := func(n int) {
			commits(t, db, func(tx *sql.Tx) {
				for range n {
					require.NoError(t, errOf(g.NextOn(t.Context(), tx, "IS", serial.At(october(24)))))
				}
			})
		}
		take(3)
		audit := func(q gapless.Querier, between func(int)) serial.Report {
			t.Helper()
			r, err := g.Audit(t.Context(), q, "IS", serial.At(october(24)), numbers(between, "IS202110240001", "IS202110240003",
				"IS202110240004", "IS202110240004", "IS202110240006", "IS202110250001", "no number"))
			require.NoError(t, err)
			return r
		}
		check := func(r serial.Report) {
			t.Helper()
			require.EqualValues(t, 3, r.Last)
			require.EqualValues(t, 2, r.Count)
			require.Equal(t, []serial.Range{{First: 2, Last: 2}}, r.Missing)
			require.Zero(t, r.DuplicateCount)
			require.EqualValues(t, 1, r.BeyondCount)
			require.Equal(t, "IS202110240006", r.Beyond[0].String())
			require.EqualValues(t, 1, r.OtherCount)
			require.Equal(t, []string{"no number"}, r.Foreign)
		}
		check(audit(db, func(i int) {
			if i == 1 {
				take(2)
			}
		}))
		tx := beginAt(t, db, d.readCommitted()) // one connection suffices
		r := audit(tx, func(int) {})
		require.EqualValues(t, 5, r.Last)
		require.EqualValues(t, 1, r.DuplicateCount)
		require.NoError(t, tx.Commit())
		d.closes(t, db, g, october(25))
		require.Equal(t, r, audit(db, func(int) {}))

		// Options are passed on.
		_, err := g.Audit(t.Context(), db, "IS", serial.At(october(24)), numbers(nil), nil)
		require.ErrorContains(t, err, "gapless: serial: Audit: option 2 is nil")
		_, err = g.Audit(t.Context(), db, "IS", serial.At(october(24)), nil)
		require.ErrorContains(t, err, "the used numbers are nil")
		_, err = g.Audit(t.Context(), db, "I S", serial.At(october(24)), numbers(nil))
		require.ErrorIs(t, err, serial.ErrInvalidType)
		_, err = g.Audit(t.Context(), nil, "IS", serial.At(october(24)), numbers(nil))
		require.EqualError(t, err, "gapless: the Querier is nil")
		failure := errors.New("no connection")
		_, err = g.Audit(t.Context(), db, "IS", serial.At(october(24)),
			func(yield func(string, error) bool) { yield("", failure) })
		require.ErrorIs(t, err, failure)
		ctx, cancel := context.WithCancel(t.Context())
		_, err = g.Audit(ctx, db, "IS", serial.At(october(24)), numbers(func(i int) {
			require.Zero(t, i)
			cancel()
		}, "IS202110240001", "IS202110240002"))
		require.ErrorIs(t, err, context.Canceled)
	})
}

// All periods of the table are accounted for from one reading, without those taken meanwhile.
func TestAuditAll(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		db, g := d.start(t)
		take := func(day, n int) {
			commits(t, db, func(tx *sql.Tx) {
				for range n {
					require.NoError(t, errOf(g.NextOn(t.Context(), tx, "IS", serial.At(october(day)))))
				}
			})
		}
		take(24, 2)
		take(26, 3)
		got, err := g.AuditAll(t.Context(), db, "IS", numbers(func(i int) {
			if i == 0 {
				take(26, 1)
				take(27, 1)
			}
		}, "IS202110240001", "IS202110240002", "IS202110260003", "IS202110260004", "IS202110260005", "IS202110270001",
			"IS202110270002", "no number"))
		require.NoError(t, err)
		require.Len(t, got.Periods, 3)
		require.Equal(t, []serial.Range{{First: 1, Last: 2}}, got.Periods[0].Missing, "the newest first")
		require.EqualValues(t, []int64{3, 1}, []int64{got.Periods[0].Last, got.Periods[0].BeyondCount})
		require.True(t, got.Periods[1].Clean())
		require.Equal(t, "IS202110270002", got.Periods[2].Beyond[0].String())
		require.EqualValues(t, 1, got.Periods[2].BeyondCount)
		require.Equal(t, []time.Time{october(25).Truncate(24 * time.Hour)}, got.Without)
		require.Equal(t, []string{"no number"}, got.Foreign)
		require.EqualError(t, errOf(g.AuditAll(t.Context(), db, "IS", nil)),
			"gapless: serial: AuditAll: the used numbers are nil; if there are none, pass an iterator that yields nothing")
		require.ErrorIs(t, errOf(g.AuditAll(t.Context(), db, "I S", numbers(nil))), serial.ErrInvalidType)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, errOf(g.AuditAll(ctx, db, "IS", numbers(func(int) {}, "x"))), context.Canceled)
	})
}

// The newest periods with numbers, for any scheme.
func TestHistory(t *testing.T) {
	east := serial.WithLocation(time.FixedZone("", 14*3600))
	each(t, func(t *testing.T, d *database) {
		db := d.open(t)
		for i, r := range []struct {
			opts []serial.Option
			on   []string // from the newest period to the oldest
			want []string // the texts, with the period's start if that is unknown
		}{
			{
				nil,
				[]string{"9999-12-30T23:59:59Z", "2040-02-29T12:00:00Z", "2021-10-25T12:00:00Z", "2021-10-24T12:00:00Z",
					"2021-10-01T12:00:00Z", "1970-01-01T00:00:00Z"},
				[]string{"IS999912300001", "IS204002290002", "IS202110250003", "IS202110240004", "IS202110010005",
					"IS197001010006"},
			},
			{
				[]serial.Option{east, serial.WithPeriod(serial.PerSecond),
					serial.WithTemplate("{type}{date:yyyyMMddHHmmss}{seq:2}")},
				[]string{"9999-12-31T09:59:59Z", "2021-10-24T12:00:01Z", "2021-10-24T12:00:00Z", "1969-12-31T10:00:00Z"},
				[]string{"IS9999123123595901", "IS2021102502000102", "IS2021102502000003", "IS1970010100000004"},
			},
			{
				[]serial.Option{east, serial.WithPeriod(serial.PerWeek), serial.WithTemplate("{type}{date:GGGG-WW}-{seq:4}")},
				[]string{"2025-01-01T00:00:00Z", "2024-12-25T00:00:00Z", "1970-01-01T00:00:00Z"},
				[]string{"IS2025-01-0001", "IS2024-52-0002", "IS1970-01-0003"},
			},
			{
				[]serial.Option{serial.WithPeriod(serial.PerQuarter), serial.WithYearStart(time.April, 1),
					serial.WithTemplate("{type}{date:FFFF/Q}-{seq:4}")},
				[]string{"2025-01-01T00:00:00Z", "2024-12-25T00:00:00Z", "1970-01-01T00:00:00Z"},
				[]string{"IS2024/4-0001", "IS2024/3-0002", "IS1969/4-0003"},
			},
			{
				[]serial.Option{serial.WithPeriod(serial.PerHalfYear), serial.WithYearStart(time.April, 1),
					serial.WithTemplate("{type}{date:FFFF/'H'S}-{seq:4}")},
				[]string{"2025-01-01T00:00:00Z", "2024-09-25T00:00:00Z", "1970-01-01T00:00:00Z"},
				[]string{"IS2024/H2-0001", "IS2024/H1-0002", "IS1969/H2-0003"},
			},
			{
				[]serial.Option{serial.WithPeriod(serial.PerYear), serial.WithTemplate("{type}{date:yyyyMM}-{seq:4}")},
				[]string{"2025-05-01T00:00:00Z", "2024-12-25T00:00:00Z"},
				[]string{"2025-01-01 0001", "2024-01-01 0002"},
			},
			{
				[]serial.Option{serial.WithPeriod(serial.Never), serial.WithTemplate("{type}-{seq:4}")},
				[]string{"2025-05-01T00:00:00Z"},
				[]string{"IS-0001"},
			},
		} {
			g := d.generator(t, db, append(r.opts, serial.WithKeyPrefix(fmt.Sprint("p", i)))...)
			history := func(q gapless.Querier, n int) (texts []string) {
				t.Helper()
				numbers, err := g.History(t.Context(), q, "IS", n)
				require.NoError(t, err)
				for _, n := range numbers {
					text := n.String()
					if text == "" {
						text = fmt.Sprintf("%s %04d", n.Start.Format(time.DateOnly), n.Seq)
						require.True(t, n.Date.IsZero())
					}
					texts = append(texts, text)
				}
				return texts
			}
			require.Empty(t, history(db, 3))
			commits(t, db, func(tx *sql.Tx) {
				for n := len(r.on); n > 0; n-- {
					at, err := time.Parse(time.RFC3339, r.on[n-1])
					require.NoError(t, err)
					require.NoError(t, errOf(g.NextN(t.Context(), tx, "IT", n)))
					for range n {
						require.NoError(t, errOf(g.NextOn(t.Context(), tx, "IS", serial.At(at))))
					}
				}
				require.NoError(t, g.Raise(t.Context(), tx, "IS", serial.At(october(2)), 0)) // opened, but no number was taken
				require.Equal(t, r.want, history(tx, 10_000))
				require.Equal(t, r.want[:1], history(tx, 1))
			})
			if i == 0 {
				d.closes(t, db, g, october(25))
			}
			require.Equal(t, r.want, history(db, len(r.want)))
		}
	})
}

// The first instant of Never has no date that a number prints: in 1969 west of Greenwich, and in 1970 with two-digit
// years. History, and the calls that get this instant from it, need none.
func TestFirstInstantOfNever(t *testing.T) {
	hidden := serial.WithHiddenSequence([]byte("0123456789abcdef"))
	april, none := serial.WithYearStart(time.April, 1), serial.WithStart(1)
	each(t, func(t *testing.T, d *database) {
		db := d.open(t)
		prefix := 0
		for _, zone := range []string{"UTC", "America/New_York", "America/Sao_Paulo", "Pacific/Apia", "Pacific/Kiritimati"} {
			location, err := time.LoadLocation(zone)
			require.NoError(t, err)
			for template, more := range map[string]serial.Option{
				"{type}-{seq:6}": none, "{type}{seq:6}-": hidden, "{type}{date:yyyy}-{seq:6}": none,
				"{type}{date:yyMM}-{seq:6}": hidden, "{type}{date:BB}-{seq:6}": none, "{type}{date:FF}-{seq:6}": april,
				"{type}{date:MM}-{seq:6}": none,
			} {
				prefix++
				g := d.generator(t, db, serial.WithPeriod(serial.Never), serial.WithLocation(location), more,
					serial.WithTemplate(template), serial.WithKeyPrefix(fmt.Sprint("n", prefix)))
				var taken []serial.Number
				commits(t, db, func(tx *sql.Tx) {
					taken, err = g.NextN(t.Context(), tx, "IS", 3)
					require.NoError(t, err)
				})
				all, err := g.History(t.Context(), db, "IS", 10)
				require.NoError(t, err, "%s %s", zone, template)
				require.Len(t, all, 1)
				require.EqualValues(t, 3, all[0].Seq)
				want := taken[2].String()
				if strings.Contains(template, "date") {
					want = ""
				}
				require.Equal(t, want, all[0].String(), "%s %s", zone, template)
				first := serial.At(all[0].Start)
				last, err := g.Last(t.Context(), db, "IS", first)
				require.NoError(t, err, "%s %s", zone, template)
				require.Equal(t, all[0], last)
				report, err := g.Audit(t.Context(), db, "IS", first,
					numbers(func(int) {}, taken[0].String(), taken[2].String()))
				require.NoError(t, err, "%s %s", zone, template)
				require.Equal(t, []serial.Range{{First: 2, Last: 2}}, report.Missing)
				commits(t, db, func(tx *sql.Tx) {
					require.NoError(t, g.Raise(t.Context(), tx, "IS", first, 5), "%s %s", zone, template)
				})
			}
		}
	})
}

// A period of an earlier template is listed even if the present template cannot print its dates.
func TestHistoryOfUnprintablePeriod(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		db, before := d.start(t)
		after := d.generator(t, db, serial.WithTemplate("{type}{date:yyMMdd}{seq:4}"))
		commits(t, db, func(tx *sql.Tx) {
			require.NoError(t, errOf(before.NextOn(t.Context(), tx, "IS", serial.On(1999, time.October, 24))))
		})
		all, err := after.History(t.Context(), db, "IS", 10)
		require.NoError(t, err)
		require.Len(t, all, 1)
		require.EqualValues(t, 1, all[0].Seq)
		require.Equal(t, time.Date(1999, 10, 24, 0, 0, 0, 0, time.UTC), all[0].Start)
		require.Empty(t, all[0].String())
	})
}

// History reads any number of periods with one statement: with one for each, the page of a series far from its database
// never opened. A Querier that returns only single rows still works.
func TestHistoryStatements(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		db, g := d.start(t)
		commits(t, db, func(tx *sql.Tx) {
			for day := range 100 {
				require.NoError(t, errOf(g.NextOn(t.Context(), tx, "IS", serial.At(october(1).AddDate(0, 0, day)))))
			}
		})
		tx := beginAt(t, db, d.readCommitted())
		q := &asked{Tx: tx}
		all, err := g.History(t.Context(), q, "IS", 90)
		require.NoError(t, err)
		require.Len(t, all, 90)
		require.Equal(t, 1, q.statements)
		requireResult(t, all)(g.History(t.Context(), struct{ gapless.Querier }{tx}, "IS", 90))
		require.NoError(t, tx.Commit())
	})
}

// asked counts the queries of a transaction.
type asked struct {
	*sql.Tx
	statements int
}

func (q *asked) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	q.statements++
	return q.Tx.QueryRowContext(ctx, query, args...)
}

func (q *asked) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	q.statements++
	return q.Tx.QueryContext(ctx, query, args...)
}

func TestHistoryRefused(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		db := d.open(t)
		g, letters := d.generator(t, db), d.generator(t, db, serial.WithTemplate("{type}{date:yyyyMMdd}{seq:4:base36}"))
		weeks := d.generator(t, db, perWeek()...)
		commits(t, db, func(tx *sql.Tx) {
			require.NoError(t, errOf(g.NextOn(t.Context(), tx, "IS", serial.At(october(24)))))
			require.NoError(t, errOf(letters.NextOn(t.Context(), tx, "IS", serial.At(october(25)))))
		})
		numbers, err := letters.History(t.Context(), db, "IS", 2)
		require.NoError(t, err)
		require.Equal(t, "IS202110250001", numbers[0].String())
		require.Empty(t, numbers[1].String(), "another scheme printed it differently")
		require.EqualValues(t, 1, numbers[1].Seq)
		require.True(t, numbers[1].Start.Equal(october(24)))
		require.ErrorIs(t, errOf(weeks.History(t.Context(), db, "IS", 2)), serial.ErrConflict)
		for _, n := range []int{-1, 0, 10_001} {
			require.EqualError(t, errOf(g.History(t.Context(), db, "IS", n)),
				fmt.Sprintf("gapless: History of %d periods: want 1 to 10000", n))
		}
		require.ErrorIs(t, errOf(g.History(t.Context(), db, "I S", 1)), serial.ErrInvalidType)
		require.EqualError(t, errOf(g.History(t.Context(), nil, "IS", 1)), "gapless: the Querier is nil")
	})
}

// Numbers that were taken before the template was changed are accounted for, with their explanations, while numbers are
// taken.
func TestAuditWithEarlier(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		db, before := d.start(t, serial.WithTemplate("{type}{date:yyyyMMdd}-{seq:1}"))
		after := d.generator(t, db, serial.WithTemplate("{type}{date:yyyyMMdd}-{seq:6}"))
		take := func(g *gapless.Generator) {
			commits(t, db, func(tx *sql.Tx) {
				for range 3 {
					require.NoError(t, errOf(g.NextOn(t.Context(), tx, "IS", serial.On(2021, time.October, 24))))
				}
			})
		}
		take(before)
		take(after)
		stored := func(between func(int)) iter.Seq2[string, error] {
			return numbers(between, "IS20211024-1", "IS20211024-3", "IS20211024-000004", "IS20211024-000007",
				"IS20211024-000006")
		}
		first, err := before.Scheme().Number("IS", serial.On(2021, time.October, 24), 2)
		require.NoError(t, err)
		void, err := before.Scheme().Explanation(first, first, "void", "Ada")
		require.NoError(t, err)
		r, err := after.Audit(t.Context(), db, "IS", serial.On(2021, time.October, 24), stored(func(i int) {
			if i == 0 {
				take(after)
			}
		}), serial.WithEarlier(before.Scheme()), serial.WithExplanations(func(yield func(serial.Explanation, error) bool) {
			yield(void, nil)
		}))
		require.NoError(t, err)
		require.Equal(t, []int64{6, 4, 2, 1, 0, 0},
			[]int64{r.Last, r.Count, r.MissingCount, r.ExplainedCount, r.BeyondCount, r.ForeignCount})
		require.Equal(t, []serial.Range{{First: 5, Last: 5}}, r.Unexplained)

		other := scheme(t, serial.WithKeyPrefix("other"))
		unread := stored(func(int) { t.Error("the numbers are read") })
		_, err = after.Audit(t.Context(), db, "IS", serial.On(2021, time.October, 24), unread, serial.WithEarlier(other))
		require.ErrorContains(t, err, `gapless: serial: WithEarlier: scheme 1 has the key prefix "other"`)
	})
}
