package serial_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/redistest"
	"github.com/dailyserial/serial/serialtest"
)

// used yields texts unchanged.
func used(texts ...string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for _, text := range texts {
			if !yield(text, nil) {
				return
			}
		}
	}
}

// An account is compared with one made in the simplest way, with sets of everything.
func TestAudit(t *testing.T) {
	t.Parallel()
	rng := redistest.Random(t)
	at := time.Date(2021, 10, 24, 15, 0, 0, 0, time.UTC)
	for name, opts := range map[string][]serial.Option{
		"usual":     nil,
		"start":     {serial.WithStart(50)},
		"growing":   {serial.WithTemplate("{type}-{date:yyyyMMdd}-{seq:2+}")},
		"letters":   {serial.WithTemplate("{seq:4:base32}{date:yyyyMMdd}{type}{check:37-36}")},
		"hidden":    {serial.WithTemplate("{type}{date:yyyyMMdd}{seq:6}"), serial.WithHiddenSequence(make([]byte, 16))},
		"per year":  {serial.WithTemplate("{type}{date:yyyyMM}{seq:4}"), serial.WithPeriod(serial.PerYear)},
		"all times": {serial.WithTemplate("{type}{seq:4}"), serial.WithPeriod(serial.Never)},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScheme(t, opts...)
			first, _ := s.Limits()
			for range 50 {
				last := rng.Int64N(200)
				var texts []string
				for range rng.IntN(300) {
					typ, when := "IS", at
					switch rng.IntN(20) {
					case 0:
						typ = []string{"I", "IS2", "PO"}[rng.IntN(3)]
					case 1:
						when = at.AddDate([]int{-1, 1}[rng.IntN(2)], 0, 0)
					case 2: // in the same year, another month
						when = at.AddDate(0, []int{-3, 2}[rng.IntN(2)], 0)
					}
					n, err := s.Number(typ, serial.At(when), 1+rng.Int64N(250))
					require.NoError(t, err)
					text := n.String()
					if rng.IntN(20) == 0 {
						text = []string{"", "\xff", text + "0", text[1:], strings.Repeat("é", 300), "x" + text}[rng.IntN(6)]
					}
					texts = append(texts, text)
				}
				want := serial.Report{Series: "serial:IS", Type: "IS", First: first, Last: last}
				_, want.Start, _ = s.Period(serial.At(at))
				times := map[int64]int{}
				for _, text := range texts {
					n, err := s.Parse(text)
					switch {
					case err != nil:
						want.ForeignCount++
						want.Foreign = append(want.Foreign, text[:min(len(text), 256)])
						continue
					case n.Type != "IS" || n.Start != want.Start:
						want.OtherCount++
						continue
					}
					if times[n.Seq]++; times[n.Seq] == 2 {
						want.DuplicateCount++
						want.Duplicates = append(want.Duplicates, n)
					}
					switch {
					case n.Seq < first || n.Seq > last:
						want.BeyondCount++
						want.Beyond = append(want.Beyond, n)
					case times[n.Seq] == 1:
						want.Count++
					}
				}
				for seq := first; seq <= last; seq++ {
					if times[seq] > 0 {
						continue
					}
					want.MissingCount++
					if n := len(want.Missing) - 1; n >= 0 && want.Missing[n].Last == seq-1 {
						want.Missing[n].Last = seq
					} else {
						want.Missing = append(want.Missing, serial.Range{First: seq, Last: seq})
					}
				}
				want.Unexplained, want.UnexplainedCount = want.Missing, want.MissingCount
				got, err := s.Audit("IS", serial.At(at), last, used(texts...))
				require.NoError(t, err)
				require.EqualExportedValues(t, want, got)
				require.Equal(t, max(0, last-first+1), got.Count+got.MissingCount)
			}
		})
	}
}

// CHAR columns and spreadsheets pad numbers with blanks.
func TestAuditOfPaddedNumbers(t *testing.T) {
	at := time.Date(2021, 10, 24, 15, 0, 0, 0, time.UTC)
	s := newScheme(t)
	const number = "IS20211024000"
	got, err := s.Audit("IS", serial.At(at), 4, used(number+"1   ", "\t "+number+"2\u00a0", number+"3",
		"\u00a0"+number+"3 ",
		number+"5 ", number+" 4", " x ", number+"4\n", "PO202110240001 "))
	require.NoError(t, err)
	require.Equal(t, int64(3), got.Count)
	require.Equal(t, []serial.Range{{First: 4, Last: 4}}, got.Missing)
	require.Equal(t, []string{number + " 4", " x ", number + "4\n"}, got.Foreign, "unchanged")
	require.Equal(t, int64(1), got.OtherCount)
	require.Equal(t, number+"3", got.Duplicates[0].String())
	require.Equal(t, number+"5", got.Beyond[0].String())

	// The template's own blanks belong to the number.
	s = newScheme(t, serial.WithTemplate(" {type} {date:yyyyMMdd} {seq} "))
	got, err = s.Audit("IS", serial.At(at), 1, used(" IS 20211024 0001 ", "IS 20211024 0001"))
	require.NoError(t, err)
	require.Equal(t, int64(1), got.Count)
	require.Equal(t, []string{"IS 20211024 0001"}, got.Foreign)

	gen := newGenerator(t, inMemory(t).client(t), serial.WithLocation(noon()))
	issued, err := gen.Next(t.Context(), "IS")
	require.NoError(t, err)
	got, err = gen.Audit(t.Context(), "IS", serial.At(time.Now()), used(issued+"   "))
	require.NoError(t, err)
	require.True(t, got.Clean())

	audit := func(pad string) float64 {
		texts := strings.Fields(strings.Repeat(number+"1 ", 1000))
		for i := range texts {
			texts[i] += pad
		}
		return testing.AllocsPerRun(10, func() { require.NoError(t, errOf(s.Audit("IS", serial.At(at), 1, used(texts...)))) })
	}
	s = newScheme(t)
	require.InDelta(t, audit(""), audit("  "), 10)
}

// The lists hold the first thousand entries, and long texts are cut.
func TestAuditLists(t *testing.T) {
	t.Parallel()
	s := newScheme(t, serial.WithTemplate("{type}{date:yyyyMMdd}{seq:9}"))
	at := time.Date(2021, 10, 24, 15, 0, 0, 0, time.UTC)
	var texts []string
	for n := range 3000 { // the even ones to 6000 are missing
		number := fmt.Sprintf("IS20211024%09d", 2*n+1)
		texts = append(texts, number, number, number, fmt.Sprintf("IS20211024%09d", 10_000+n%1500), fmt.Sprint("foreign ", n))
	}
	got, err := s.Audit("IS", serial.At(at), 6000, used(texts...))
	require.NoError(t, err)
	counts := []int64{got.Count, got.MissingCount, got.DuplicateCount, got.BeyondCount, got.ForeignCount, got.OtherCount}
	require.Equal(t, []int64{3000, 3000, 3000 + 1500, 3000, 3000, 0}, counts)
	for _, list := range []int{len(got.Missing), len(got.Duplicates), len(got.Beyond), len(got.Foreign)} {
		require.Equal(t, 1000, list)
	}
	require.Equal(t, serial.Range{First: 2, Last: 2}, got.Missing[0])
	require.Equal(t, serial.Range{First: 2000, Last: 2000}, got.Missing[999])
	require.Equal(t, "IS20211024000001999", got.Duplicates[999].String())
	require.EqualValues(t, 10_999, got.Beyond[999].Seq)
	require.Equal(t, "foreign 999", got.Foreign[999])

	for text, want := range map[string]string{
		strings.Repeat("a", 256):          strings.Repeat("a", 256),
		strings.Repeat("a", 257):          strings.Repeat("a", 256),
		"a" + strings.Repeat("é", 200):    "a" + strings.Repeat("é", 127),
		"aa" + strings.Repeat("😀", 100):   "aa" + strings.Repeat("😀", 63),
		strings.Repeat("\x80", 300):       strings.Repeat("\x80", 252), // not valid text
		strings.Repeat("é", 128):          strings.Repeat("é", 128),
		strings.Repeat("é", 128) + "more": strings.Repeat("é", 128),
	} {
		got, err := s.Audit("IS", serial.At(at), 0, used(text))
		require.NoError(t, err)
		require.Equal(t, []string{want}, got.Foreign)
	}
}

func TestAuditRefuses(t *testing.T) {
	t.Parallel()
	at := time.Date(2021, 10, 24, 15, 0, 0, 0, time.UTC)
	s := newScheme(t, serial.WithTemplate("{type}{date:yyMMdd}{seq:15}"))
	wide := func(yield func(string, error) bool) {
		for n := 0; yield(fmt.Sprintf("IS211024%015d", 1+n*1_000_000), nil); n++ {
			require.Less(t, n, 1_000_000)
		}
	}
	broken := func(yield func(string, error) bool) {
		_ = yield("IS211024000000000000001", nil) && yield("", errBoom) && yield("", errors.New("went on"))
	}
	gen := parser(t, serial.WithTemplate("{type}{date:yyMMdd}{seq:15}"))
	for _, row := range []struct {
		says string
		is   error
		typ  string
		at   time.Time
		last int64
		used iter.Seq2[string, error]
	}{
		{"it contains ':'", serial.ErrInvalidType, "I:S", at, 1, used()},
		{"empty", serial.ErrInvalidType, "", at, 1, used()},
		{"the used numbers are nil", nil, "IS", at, 1, nil},
		{"want 0 to 999999999999999", nil, "IS", at, -1, used()},
		{"want 0 to 999999999999999", nil, "IS", at, 1_000_000_000_000_000, used()},
		{"want 0 to 999999999999999", nil, "IS", at, math.MaxInt64, used()},
		{"want 1970 to 9999", nil, "IS", at.AddDate(-100, 0, 0), 1, used()},
		{"want 1970 to 9999", nil, "IS", at.AddDate(8000, 0, 0), 1, used()},
		{"2000 to 2099", nil, "IS", at.AddDate(100, 0, 0), 1, used()},
		{"1999", nil, "IS", at.AddDate(-22, 0, 0), 1, used()},
		{"Audit of IS in 2021-10-24: boom", errBoom, "IS", at, 1, broken},
		{"Audit of IS in 2021-10-24: the sequences are spread so widely", nil, "IS", at, 1, wide},
	} {
		got, err := s.Audit(row.typ, serial.At(row.at), row.last, row.used)
		require.ErrorContains(t, err, row.says)
		require.True(t, strings.HasPrefix(err.Error(), "serial: "), err)
		if row.is != nil {
			require.ErrorIs(t, err, row.is)
		}
		require.Zero(t, got)
		// A generator returns the same, without asking Redis.
		if row.last == 1 && row.is != errBoom && !strings.Contains(row.says, "spread") {
			_, err := gen.Audit(t.Context(), row.typ, serial.At(row.at), row.used)
			require.ErrorContains(t, err, row.says)
			require.NotContains(t, err.Error(), "Redis")
		}
	}
}

// given yields explanations unchanged.
func given(all ...serial.Explanation) serial.AuditOption {
	return serial.WithExplanations(func(yield func(serial.Explanation, error) bool) {
		for _, e := range all {
			if !yield(e, nil) {
				return
			}
		}
	})
}

// An audit takes the explanations of its series and period into account, and ignores others, even invalid ones.
func TestAuditExplains(t *testing.T) {
	t.Parallel()
	s := newScheme(t, serial.WithKeyPrefix("shop"), serial.WithLocation(location(t, "Asia/Shanghai")))
	at := time.Date(2021, 10, 24, 15, 0, 0, 0, time.UTC)
	_, start, end := s.Period(serial.At(at))
	e := func(first, last int64, reason, by string) serial.Explanation {
		return serial.Explanation{Series: "shop:IS", Type: "IS", Start: start, First: first, Last: last,
			Reason: reason, By: by, At: at}
	}
	left := e(2, 2, serial.CallerLeft, "")
	left.Unused = true
	burned := e(4, 5, serial.BlockBurned, "")
	burned.Type = "PO" // for information only
	lost := e(1, 9998, serial.AnswerLost+": 3 attempts", "")
	lost.Possible = true
	raised, skipped := e(3, 3, serial.Raised, ""), e(7, 8, serial.BlockSkipped, "")
	raised.Possible, raised.At = true, at.Add(-time.Second)
	skipped.Possible = true // but all of its numbers are explained
	void := e(7, 7, "void", "Ada")
	void.Start = start.UTC() // the same instant
	void.At = at.Add(time.Hour)
	later := e(7, 9, "printed twice", "Bob") // by a clock that is behind
	beyond := e(11, 999_999_999_999_999, "never issued", "job")
	beyond.Unused = true
	var others []serial.Explanation
	for _, change := range []func(*serial.Explanation){
		func(e *serial.Explanation) { e.Series = "serial:IS" },
		func(e *serial.Explanation) { e.Series, e.Type = "shop:PO", "PO" },
		func(e *serial.Explanation) { e.Start = end },
		func(e *serial.Explanation) { e.Start = start.Add(-1) },
	} {
		for _, other := range []serial.Explanation{e(1, 1000, "other", "Eve"), e(5, 1, "", "")} {
			change(&other)
			others = append(others, other)
		}
	}
	numbers := []string{"IS202110240001", "IS202110240002", "IS202110240002", "IS202110240012"}
	got, err := s.Audit("IS", serial.At(at), 10, used(numbers...), given(append(others, void, left)...), given(lost),
		given(beyond, skipped, raised, later, burned))
	require.NoError(t, err)
	burned.Type = "IS"
	require.Equal(t, []serial.Explained{{Range: serial.Range{First: 4, Last: 5}, Explanation: burned},
		{Range: serial.Range{First: 7, Last: 9}, Explanation: later}}, got.Explained)
	require.Equal(t, []serial.Range{{First: 3, Last: 10}}, got.Missing, "it stays unchanged")
	require.Equal(t, []serial.Range{{First: 3, Last: 3}, {First: 6, Last: 6}, {First: 10, Last: 10}}, got.Unexplained)
	require.Equal(t, []serial.Explanation{raised, lost}, got.Possible, "by At")
	require.Equal(t, []string{"IS202110240002", "IS202110240012"}, texts(got.Contradicted))
	require.Equal(t, []int64{8, 5, 3, 2, 2}, []int64{got.MissingCount, got.ExplainedCount, got.UnexplainedCount,
		got.PossibleCount, got.ContradictedCount})

	// A report is clean if every missing number is explained, and nothing is contradicted.
	for _, row := range []struct {
		clean   bool
		numbers []string
		opts    []serial.AuditOption
	}{
		{false, nil, nil},
		{false, nil, []serial.AuditOption{given(e(2, 3, "void", "Ada"))}},
		{true, nil, []serial.AuditOption{given(e(2, 2, "void", "Ada")), given(e(1, 1, "void", "Ada"), e(3, 3, "a", ""))}},
		{false, []string{"IS202110240001", "IS202110240002"}, []serial.AuditOption{given(left, e(3, 3, "void", "Ada"))}},
		{true, []string{"IS202110240001", "IS202110240003"}, []serial.AuditOption{given(left)}},
		{false, []string{"IS202110240001", "IS202110240002"}, []serial.AuditOption{given(lost, raised)}},
	} {
		got, err := s.Audit("IS", serial.At(at), 3, used(row.numbers...), row.opts...)
		require.NoError(t, err)
		require.Equal(t, row.clean, got.Clean(), "%+v", got)
	}

	// The date of a number is unknown if it is not the period's.
	s = newScheme(t, serial.WithTemplate("{type}{date:yyyyMMdd}{seq:4}"), serial.WithPeriod(serial.PerMonth))
	_, left.Start, _ = s.Period(serial.At(at))
	left.Series = "serial:IS"
	got, err = s.Audit("IS", serial.At(at), 2, used("IS202110240001", "IS202110250002"), given(left))
	require.NoError(t, err)
	require.Len(t, got.Contradicted, 1)
	require.EqualValues(t, 2, got.Contradicted[0].Seq)
	require.Empty(t, got.Contradicted[0].String())
}

// Wrong options and explanations are errors, before or after the numbers are read.
func TestAuditRefusesExplanations(t *testing.T) {
	t.Parallel()
	s := newScheme(t)
	at := time.Date(2021, 10, 24, 15, 0, 0, 0, time.UTC)
	_, start, _ := s.Period(serial.At(at))
	fine := serial.Explanation{Series: "serial:IS", Type: "IS", Start: start, First: 3, Last: 5, Reason: "void", At: at}
	broken := fine
	broken.Unused, broken.Possible = true, true
	within := fine
	within.Start = start.Add(time.Hour)
	unread := func(yield func(string, error) bool) { t.Error("the numbers are read") }
	for says, opt := range map[string]serial.AuditOption{
		"serial: WithExplanations: nil":  serial.WithExplanations(nil),
		"serial: Audit: option 2 is nil": nil,
	} {
		got, err := s.Audit("IS", serial.At(at), 1, unread, given(), opt)
		require.ErrorContains(t, err, says)
		require.Zero(t, got)
		_, err = parser(t).Audit(t.Context(), "IS", serial.At(at), unread, given(), opt)
		require.ErrorContains(t, err, says)
	}
	ends := func(e serial.Explanation, err error) serial.AuditOption {
		return serial.WithExplanations(func(yield func(serial.Explanation, error) bool) {
			require.False(t, yield(e, err), "went on")
		})
	}
	got, err := s.Audit("IS", serial.At(at), 9, used(), given(fine), ends(broken, nil))
	require.EqualError(t, err, "serial: explanation of IS 3 to 5: Unused and Possible are both set: "+
		"either nobody got them, or some of them may be missing for this reason")
	require.Zero(t, got)
	got, err = s.Audit("IS", serial.At(at), 9, used(), ends(within, nil))
	require.EqualError(t, err, "serial: explanation of IS 3 to 5: Start 2021-10-24T01:00:00Z lies in the period "+
		"2021-10-24, "+
		"which begins at 2021-10-24T00:00:00Z")
	require.Zero(t, got)
	got, err = s.Audit("IS", serial.At(at), 9, used(), ends(serial.Explanation{}, errBoom))
	require.ErrorIs(t, err, errBoom)
	require.ErrorContains(t, err, "serial: Audit of IS in 2021-10-24: boom")
	require.Zero(t, got)
	_, err = s.Audit("IS", serial.At(at), 9, func(yield func(string, error) bool) { yield("", errBoom) },
		serial.WithExplanations(func(func(serial.Explanation, error) bool) { t.Error("the explanations are read") }))
	require.ErrorIs(t, err, errBoom)
}

// A generator's audit reads the explanations last, when nothing else is open. Explanations, too, ignore numbers issued
// while the used numbers were read.
func TestAuditExplainsMeanwhile(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		gen := newGenerator(t, m.Client(), serial.WithLocation(time.UTC))
		require.NoError(t, errOf(gen.NextN(t.Context(), "IS", 3)))
		var readings atomic.Int64
		m.Server().SetPreHook(func(_ *server.Peer, cmd string, _ ...string) bool {
			if strings.EqualFold(cmd, "EVALSHA") {
				readings.Add(1)
			}
			return false
		})
		e := serial.Explanation{Series: "serial:IS", Type: "IS", Start: time.Now(), First: 2, Last: 9, Reason: "void",
			At: time.Now(), Unused: true}
		open := false
		explanations := serial.WithExplanations(func(yield func(serial.Explanation, error) bool) {
			require.False(t, open)
			open = true
			readings.Add(100)
			yield(e, nil)
			open = false
		})
		got, err := gen.Audit(t.Context(), "IS", serial.At(time.Now()), func(yield func(string, error) bool) {
			require.EqualValues(t, 1, readings.Swap(0))
			open = true
			require.NoError(t, errOf(gen.NextN(t.Context(), "IS", 2))) // 4 and 5
			readings.Store(0)
			_ = yield("IS200001010001", nil) && yield("IS200001010004", nil) && yield("IS200001010006", nil)
			open = false
		}, explanations, explanations)
		require.NoError(t, err)
		require.EqualValues(t, 201, readings.Load(), "one reading, and no query after the explanations")
		require.Equal(t, []int64{3, 2, 0, 1, 1},
			[]int64{got.Last, got.ExplainedCount, got.UnexplainedCount, got.ContradictedCount, got.BeyondCount})
		require.Equal(t, []string{"IS200001010006"}, texts(got.Contradicted))
		require.Equal(t, serial.Range{First: 2, Last: 3}, got.Explained[0].Range)

		ctx, cancel := context.WithCancel(t.Context())
		canceling := func(yield func(serial.Explanation, error) bool) {
			cancel()
			require.False(t, yield(e, nil), "went on")
		}
		got, err = gen.Audit(ctx, "IS", serial.At(time.Now()), used(), serial.WithExplanations(canceling))
		require.ErrorIs(t, err, context.Canceled)
		require.Zero(t, got)
		e.Reason = ""
		_, err = gen.Audit(t.Context(), "IS", serial.At(time.Now()), used(), given(e))
		require.ErrorContains(t, err, "explanation of IS 2 to 9: Reason")
	})
}

// Ten million numbers take two bits each, whatever their order, and nothing is allocated for a number.
func TestAuditOfMany(t *testing.T) {
	n := int64(1_000_000)
	if redistest.Long() {
		n *= 10
	}
	s := newScheme(t, serial.WithTemplate("{type}{date:yyyyMMdd}{seq:8}"))
	// The texts are made without an allocation too: each is a part of one string, over which the sequence is written.
	// So the order is random only by thousands.
	chunk := strings.Repeat("IS2021102400000000", 1000)
	order := rand.Perm(int(n / 1000))
	texts := func(yield func(string, error) bool) {
		buf := []byte(chunk)
		for _, thousand := range order {
			for i := range 1000 {
				for k, v := len(buf)/1000*(i+1)-1, int64(thousand*1000+i+1); v > 0; k, v = k-1, v/10 {
					buf[k] = '0' + byte(v%10)
				}
			}
			all := string(buf)
			for i := range 1000 {
				if !yield(all[i*18:(i+1)*18], nil) {
					return
				}
			}
			copy(buf, chunk)
		}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range texts {
	}
	runtime.ReadMemStats(&after)
	own := after.TotalAlloc - before.TotalAlloc
	got, err := s.Audit("IS", serial.At(time.Date(2021, 10, 24, 15, 0, 0, 0, time.UTC)), n, texts)
	runtime.ReadMemStats(&before)
	require.NoError(t, err)
	require.Equal(t, n, got.Count)
	require.Zero(t, got.MissingCount+got.DuplicateCount+got.BeyondCount+got.ForeignCount+got.OtherCount)
	require.Less(t, before.TotalAlloc-after.TotalAlloc-own, uint64(4<<20), "bytes, including those freed")
}

// Numbers issued while the used numbers are read are not reported as beyond, missing or duplicate.
func TestAuditMeanwhile(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		gen := newGenerator(t, m.Client(), serial.WithLocation(time.UTC), serial.WithStart(3))
		numbers, err := textsOf(gen.NextN(t.Context(), "IS", 10)) // 3 to 12
		require.NoError(t, err)
		got, err := gen.Audit(t.Context(), "IS", serial.At(time.Now()), func(yield func(string, error) bool) {
			for _, n := range numbers[1:] {
				yield(n, nil)
			}
			more, err := textsOf(gen.NextN(t.Context(), "IS", 1500)) // 13 to 1512
			require.NoError(t, err)
			for _, n := range slices.Concat(more[1499:], more[1499:], more[:1200], more[:1200], more[:1]) {
				yield(n, nil)
			}
			for _, seq := range []int{1513, 1, 2000, 1513, 1513, 12, 2, 2} {
				yield(fmt.Sprintf("IS20000101%04d", seq), nil)
			}
		})
		require.NoError(t, err)
		require.Equal(t, []int64{3, 12, 9, 1, 3, 7, 0, 0}, []int64{got.First, got.Last, got.Count, got.MissingCount,
			got.DuplicateCount, got.BeyondCount, got.ForeignCount, got.OtherCount})
		require.Equal(t, []serial.Range{{First: 3, Last: 3}}, got.Missing)
		require.ElementsMatch(t, []string{"IS200001010001", "IS200001010002", "IS200001010002", "IS200001011513",
			"IS200001011513", "IS200001011513", "IS200001012000"}, texts(got.Beyond))
		require.ElementsMatch(t, []string{"IS200001010002", "IS200001010012", "IS200001011513"}, texts(got.Duplicates))
		require.Equal(t, time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC), got.Start)

		late := newGenerator(t, m.Client(), serial.WithLocation(time.UTC), serial.WithStart(50))
		got, err = late.Audit(t.Context(), "LA", serial.At(time.Now()), func(yield func(string, error) bool) {
			_, err := late.NextN(t.Context(), "LA", 6)
			require.NoError(t, err)
			yield("LA200001010010", nil)
		})
		require.NoError(t, err)
		require.EqualValues(t, 1, got.BeyondCount, "below the first, despite numbers issued meanwhile")

		require.NoError(t, gen.Prepare(t.Context(), "PO"))
		got, err = gen.Audit(t.Context(), "PO", serial.At(time.Now()), used())
		require.NoError(t, err)
		require.Zero(t, got.Last, "opened, and not used")
	})
}

// The period may be the current one, or an earlier one that is kept.
func TestAuditLastAfter(t *testing.T) {
	s := newScheme(t, serial.WithLocation(time.UTC))
	day := time.Date(2021, 10, 24, 12, 0, 0, 0, time.UTC)
	read := false
	numbers := func(yield func(string, error) bool) {
		for text, err := range used("IS202110240001", "IS202110240005", "IS202110240005", "IS202110240006") {
			require.False(t, read, "the last sequence is read again while the numbers are")
			if !yield(text, err) {
				return
			}
		}
	}
	r, err := s.Audit("IS", serial.At(day), 2, numbers, serial.WithLastAfter(func() (int64, error) {
		read = true
		return 5, nil
	}))
	require.NoError(t, err)
	require.Equal(t, []serial.Range{{First: 2, Last: 2}}, r.Missing)
	require.EqualValues(t, 2, r.Last)
	require.Zero(t, r.DuplicateCount, "0005 was issued meanwhile")
	require.EqualValues(t, 1, r.BeyondCount)
	require.EqualValues(t, 6, r.Beyond[0].Seq)

	failure := errors.New("no connection")
	_, err = s.Audit("IS", serial.At(day), 2, used(), serial.WithLastAfter(func() (int64, error) { return 0, failure }))
	require.ErrorIs(t, err, failure)
	_, err = s.Audit("IS", serial.At(day), 2, used(), serial.WithLastAfter(func() (int64, error) { return 1, nil }))
	require.EqualError(t, err,
		"serial: Audit of IS in 2021-10-24: the last sequence went back from 2 to 1 while the used numbers were read")
	_, err = s.Audit("IS", serial.At(day), 2, used(), serial.WithLastAfter(nil))
	require.EqualError(t, err, "serial: WithLastAfter: the function is nil")
	_, err = s.Audit("IS", serial.At(day), 2, used(), nil)
	require.EqualError(t, err, "serial: Audit: option 1 is nil")
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer func() { require.NoError(t, client.Close()) }()
	g, err := serial.New(client)
	require.NoError(t, err)
	_, err = g.Audit(t.Context(), "IS", serial.At(day), used(),
		serial.WithLastAfter(func() (int64, error) { return 0, nil }))
	require.EqualError(t, err, "serial: Audit: WithLastAfter is for Scheme.Audit; a Generator reads its counter itself")
}

func TestAuditPeriods(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		client := m.Client()
		loc := location(t, "Asia/Shanghai") // it is 08:00 there
		keeping := newGenerator(t, client, serial.WithLocation(loc), serial.WithRetention(2))
		forgetting := newGenerator(t, client, serial.WithLocation(loc))
		audit := func(gen *serial.Generator, typ string, at time.Time, numbers ...string) (serial.Report, error) {
			return gen.Audit(t.Context(), typ, serial.At(at), used(numbers...))
		}
		day1 := time.Now()
		got, err := audit(keeping, "IS", day1)
		require.NoError(t, err, "never used")
		require.EqualExportedValues(t, serial.Report{
			Series: "serial:IS", Type: "IS", Start: time.Date(2000, 1, 1, 0, 0, 0, 0, loc), First: 1,
		}, got)
		got, err = audit(keeping, "IS", day1, "IS200001010001")
		require.NoError(t, err)
		require.EqualValues(t, 1, got.BeyondCount)
		require.Empty(t, m.Keys(), "it writes nothing")

		for _, typ := range []string{"IS", "PO"} {
			gen := map[string]*serial.Generator{"IS": keeping, "PO": forgetting}[typ]
			require.NoError(t, errOf(gen.NextN(t.Context(), typ, 3)))
		}
		_, err = audit(keeping, "IS", day1.AddDate(0, 0, 1))
		require.ErrorContains(t, err, "2000-01-02: the period has not begun by Redis's clock, which is in 2000-01-01")
		_, err = audit(keeping, "IS", day1.AddDate(0, 0, -1))
		require.ErrorContains(t, err, "1999-12-31: Redis has no counter of it: none was issued, or it is no longer kept")
		got, err = audit(keeping, "IS", day1, "IS200001010001")
		require.NoError(t, err)
		require.EqualValues(t, []any{int64(3), int64(2)}, []any{got.Last, got.MissingCount})

		time.Sleep(24 * time.Hour)
		for _, typ := range []string{"IS", "IS", "PO"} {
			require.NoError(t, errOf(keeping.Next(t.Context(), typ)))
		}
		for _, gen := range []*serial.Generator{keeping, forgetting} {
			got, err = audit(gen, "IS", day1, "IS200001010002", "IS200001020001")
			require.NoError(t, err)
			require.EqualValues(t, []any{int64(3), int64(2), int64(1)}, []any{got.Last, got.MissingCount, got.OtherCount})
			require.Equal(t, time.Date(2000, 1, 1, 0, 0, 0, 0, loc), got.Start)
			got, err = audit(gen, "IS", time.Now(), "IS200001010002", "IS200001020001")
			require.NoError(t, err)
			require.EqualValues(t, []any{int64(2), int64(1), int64(1)}, []any{got.Last, got.MissingCount, got.OtherCount})
		}
		require.ErrorContains(t, errOf(audit(keeping, "PO", day1)), "no longer kept")

		// The day ends during the reading of the numbers.
		slow := func(yield func(string, error) bool) {
			time.Sleep(24 * time.Hour)
			yield("IS200001020002", nil)
		}
		day2 := time.Now()
		got, err = keeping.Audit(t.Context(), "IS", serial.At(day2), slow)
		require.NoError(t, err)
		require.EqualValues(t, []any{int64(2), int64(1)}, []any{got.Last, got.MissingCount})
		require.NoError(t, errOf(forgetting.Next(t.Context(), "QQ")))
		got, err = forgetting.Audit(t.Context(), "QQ", serial.At(time.Now()), slow)
		require.ErrorContains(t, err, "no longer kept")
		require.Zero(t, got)
	})
}

// The audit of the period entered, or of a prepared one, begins at the start with which that period was opened, whatever
// start the generator has now. An earlier period begins at the generator's own start.
func TestAuditWithAnotherStart(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		opts := options(serial.WithLocation(time.UTC), serial.WithRetention(9))
		low := newGenerator(t, m.Client(), opts...)
		high := newGenerator(t, m.Client(), append(opts, serial.WithStart(1000))...)
		day1 := time.Now()
		issue := func(gen *serial.Generator, n int) []string {
			t.Helper()
			all, err := textsOf(gen.NextN(t.Context(), "IS", n))
			require.NoError(t, err)
			return all
		}
		// audit requires the first and the last sequence of an audit, and how many used numbers lie outside.
		audit := func(gen *serial.Generator, day time.Time, all []string, first, last, beyond int64) {
			t.Helper()
			got, err := gen.Audit(t.Context(), "IS", serial.At(day), used(all...))
			require.NoError(t, err)
			require.Equal(t, []int64{first, last, beyond, 0}, []int64{got.First, got.Last, got.BeyondCount,
				got.MissingCount})
		}

		first := append(issue(low, 6), issue(high, 1)...)
		audit(high, day1, first, 1, 7, 0)
		requireSeq(t, 7)(high.Peek(t.Context(), "IS"))
		require.NoError(t, low.Prepare(t.Context(), "IS"))
		time.Sleep(24 * time.Hour)
		day2 := time.Now()
		audit(high, day2, nil, 1, 0, 0)
		audit(high, day1, first, 1, 7, 0) // the second day has not been entered
		second := issue(high, 3)
		audit(high, day2, second, 1, 3, 0)
		audit(high, day1, first, 1000, 7, 7)
		audit(low, day1, first, 1, 7, 0)

		time.Sleep(24 * time.Hour)
		third := issue(high, 2)
		require.Equal(t, "IS200001031000", third[0])
		audit(low, time.Now(), third, 1000, 1001, 0)
		require.NoError(t, high.Prepare(t.Context(), "IS"))
		time.Sleep(24 * time.Hour)
		audit(low, time.Now(), nil, 1000, 0, 0)
		requireSeq(t, 0)(low.Peek(t.Context(), "IS"))
		days, err := low.History(t.Context(), "IS", 2)
		require.NoError(t, err)
		require.Equal(t, []int64{0, 1001}, []int64{days[0].Seq, days[1].Seq})
	})
}

// If Redis has lost the record, or the whole day, the audit begins at the generator's start again, unless the numbers
// that are known to be used lie below it.
func TestAuditStartAfterALoss(t *testing.T) {
	for name, row := range map[string]struct {
		counter           string // set without a record
		opts              []serial.Option
		want, first, last int64
	}{
		"floor above the start":  {"", options(fixedFloor(1005)), 1006, 1000, 1006},
		"floor below the start":  {"", options(fixedFloor(5)), 6, 1, 6},
		"no record":              {"1005", nil, 1006, 1000, 1006},
		"no record, below":       {"5", nil, 6, 1, 6},
		"no record, and a floor": {"1005", options(fixedFloor(1007)), 1008, 1000, 1008},
	} {
		runInBubble(t, name, func(t *testing.T, m *simulation) {
			gen := newGenerator(t, m.Client(), append(row.opts, serial.WithLocation(time.UTC), serial.WithStart(1000))...)
			if row.counter != "" {
				require.NoError(t, m.Set("serial:{IS}:20000101", row.counter))
			}
			requireSeq(t, row.want)(gen.NextNumber(t.Context(), "IS"))
			got, err := gen.Audit(t.Context(), "IS", serial.At(time.Now()), used())
			require.NoError(t, err)
			require.Equal(t, []int64{row.first, row.last}, []int64{got.First, got.Last})
		})
	}
	runBoth(t, "ledger, prepared", func(t *testing.T, m *simulation, prepared bool) {
		gen := newGenerator(t, m.Client(), serial.WithLocation(time.UTC), serial.WithStart(1000),
			serial.WithLedger(new(serialtest.Ledger), 10), serial.WithMaxSkew(-1))
		if prepared {
			time.Sleep(24 * time.Hour)
		}
		require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
		m.FlushAll()
		if prepared {
			m.SetTime(time.Now().Add(-24 * time.Hour))
			require.NoError(t, gen.Prepare(t.Context(), "IS"))
			m.SetTime(time.Now())
		}
		n, err := gen.NextNumber(t.Context(), "IS")
		require.NoError(t, err)
		require.Greater(t, n.Seq, int64(1009))
		got, err := gen.Audit(t.Context(), "IS", serial.At(n.Start), used())
		require.NoError(t, err)
		require.EqualValues(t, 1000, got.First)
	})
}

// An impossible counter is refused, before the numbers are read or after.
func TestAuditOfALostCounter(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		gen := newGenerator(t, m.Client(), serial.WithLocation(time.UTC), fixedFloor(0))
		require.NoError(t, errOf(gen.NextN(t.Context(), "IS", 3)))
		fresh := newGenerator(t, m.Client(), serial.WithLocation(time.UTC))
		meanwhile := func(what func()) iter.Seq2[string, error] {
			return func(yield func(string, error) bool) {
				what()
				yield("IS200001010001", nil)
			}
		}
		got, err := fresh.Audit(t.Context(), "IS", serial.At(time.Now()), meanwhile(func() {
			require.NoError(t, m.Set("serial:{IS}:20000101", "2"))
		}))
		require.ErrorIs(t, err, serial.ErrCounterLost)
		require.ErrorContains(t, err, "went back from 3 to 2")
		require.Zero(t, got)
		require.NoError(t, m.Set("serial:{IS}:20000101", "3"))
		got, err = fresh.Audit(t.Context(), "IS", serial.At(time.Now()), meanwhile(func() { m.Del("serial:{IS}:20000101") }))
		require.ErrorIs(t, err, serial.ErrCounterLost)
		require.Zero(t, got)
		for _, gen := range []*serial.Generator{gen, fresh} {
			_, err = gen.Audit(t.Context(), "IS", serial.At(time.Now()),
				func(func(string, error) bool) { t.Error("the numbers are read") })
			require.ErrorIs(t, err, serial.ErrCounterLost)
		}
		elsewhere := newGenerator(t, m.Client(), serial.WithLocation(location(t, "Asia/Shanghai")))
		require.ErrorIs(t, errOf(elsewhere.Audit(t.Context(), "IS", serial.At(time.Now()), used())), serial.ErrConflict)
	})
}

// This host's clock is behind and shows the audited period as the current one. Redis's clock is in the next period,
// whose counter is lost: that does not affect the previous one.
func TestAuditBeforeALostCounter(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		opts := []serial.Option{serial.WithLocation(time.UTC), serial.WithRetention(1)}
		gen := newGenerator(t, m.Client(), opts...)
		require.NoError(t, errOf(gen.NextN(t.Context(), "IS", 3)))
		day1 := time.Now()
		time.Sleep(24*time.Hour - 2*time.Second)
		m.SetTime(time.Now().Add(4 * time.Second))
		require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
		m.Del("serial:{IS}:20000102")
		got, err := newGenerator(t, m.Client(), opts...).Audit(t.Context(), "IS", serial.At(day1), used("IS200001010001"))
		require.NoError(t, err)
		require.EqualValues(t, 3, got.Last)
	})
}

// An audit ends with the caller's context, a failure of the used numbers or one of Redis, each with its own error.
func TestAuditEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		client := closing(t, redis.NewClient(&redis.Options{
			Addr: "127.0.0.1:6379", Dialer: func(context.Context, string, string) (net.Conn, error) { return m.Dial() },
			ReadTimeout: time.Minute,
		}))
		gen := newGenerator(t, client, serial.WithLocation(time.UTC))
		require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
		endless := func(from int, what func()) iter.Seq2[string, error] {
			return func(yield func(string, error) bool) {
				for n := 0; yield("IS200001010001", nil); n++ {
					require.Less(t, n, from+10, "went on")
					if n == from {
						what()
					}
				}
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		got, err := gen.Audit(ctx, "IS", serial.At(time.Now()), endless(5, cancel))
		require.ErrorIs(t, err, context.Canceled)
		require.Zero(t, got)
		_, err = gen.Audit(ctx, "IS", serial.At(time.Now()),
			func(func(string, error) bool) { t.Error("the numbers are read") })
		require.ErrorIs(t, err, context.Canceled)
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = gen.Audit(ctx, "IS", serial.At(time.Now()), endless(5, func() { time.Sleep(2 * time.Second) }))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, err = gen.Audit(t.Context(), "IS", serial.At(time.Now()),
			func(yield func(string, error) bool) { yield("", errBoom) })
		require.ErrorIs(t, err, errBoom)
		require.NotErrorIs(t, err, context.Canceled)

		// Each reading may take ten seconds.
		var delay atomic.Int64
		m.Server().SetPreHook(func(_ *server.Peer, cmd string, _ ...string) bool {
			if strings.EqualFold(cmd, "EVALSHA") {
				time.Sleep(time.Duration(delay.Load()))
			}
			return false
		})
		delay.Store(int64(8 * time.Second))
		began := time.Now()
		got, err = gen.Audit(t.Context(), "IS", serial.At(time.Now()), used("IS200001010001"))
		require.NoError(t, err)
		require.EqualValues(t, 1, got.Count)
		require.Equal(t, 16*time.Second, time.Since(began))
		delay.Store(int64(20 * time.Second))
		began = time.Now()
		_, err = gen.Audit(t.Context(), "IS", serial.At(time.Now()), used("IS200001010001"))
		require.Error(t, err)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		require.LessOrEqual(t, time.Since(began), 10*time.Second)
		time.Sleep(time.Hour) // for abandoned commands
	})
}

// Every kind of period can be audited.
func TestAuditOfEveryPeriod(t *testing.T) {
	for per, template := range map[serial.Period]string{
		serial.PerSecond: "{type}{date:yyyyMMddHHmmss}{seq}", serial.PerHour: "{type}{date:yyyyMMddHH}{seq}",
		serial.PerWeek: "{type}{date:GGGGWW}{seq}", serial.PerMonth: "{type}{date:yyyyMMdd}{seq}",
		serial.PerHalfYear: "{type}{date:FFFFS}{seq}",
		serial.PerQuarter:  "{type}{date:FFFFQ}{seq}", serial.PerYear: "{type}{date:FFFF}{seq}", serial.Never: "{type}{seq}",
	} {
		t.Run(per.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, m *simulation) {
				opts := []serial.Option{serial.WithLocation(time.UTC), serial.WithPeriod(per), serial.WithTemplate(template)}
				if per != serial.Never {
					opts = append(opts, serial.WithRetention(1))
				}
				gen := newGenerator(t, m.Client(), opts...)
				numbers, err := textsOf(gen.NextN(t.Context(), "IS", 5))
				require.NoError(t, err)
				at := time.Now()
				_, _, end := gen.Scheme().Period(serial.At(at))
				for range 2 {
					got, err := gen.Audit(t.Context(), "IS", serial.At(at), used(numbers[0], numbers[2], numbers[2]))
					require.NoError(t, err)
					require.EqualValues(t, []int64{5, 2, 3, 1}, []int64{got.Last, got.Count, got.MissingCount, got.DuplicateCount})
					require.Equal(t, []string{numbers[2]}, texts(got.Duplicates))
					if per != serial.Never {
						time.Sleep(time.Until(end)) // the previous period is still kept
						require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
					}
				}
			})
		})
	}
}

// Every instant of a period names it for an audit, even if no number prints the date of that instant.
func TestAuditAtEveryInstant(t *testing.T) {
	t.Parallel()
	hidden := serial.WithHiddenSequence([]byte("0123456789abcdef"))
	none, april := serial.WithStart(1), serial.WithYearStart(time.April, 1)
	noon := time.Date(2021, 10, 24, 12, 0, 0, 0, time.UTC)
	for _, row := range []struct {
		per      serial.Period
		template string
		more     serial.Option
		at       time.Time
	}{
		{serial.Never, "{type}{seq:6}", none, noon},
		{serial.Never, "{type}{seq:6}", hidden, noon},
		{serial.Never, "{type}{date:yyyy}{seq:6}", none, noon},
		{serial.Never, "{type}{date:yyMMdd}{seq:6}", none, noon},
		{serial.Never, "{type}{date:yyMMdd}{seq:6}", hidden, noon},
		{serial.Never, "{type}{date:BBMM}{seq:6}", none, noon},
		{serial.Never, "{type}{date:BBBB}{seq:6}", hidden, noon},
		{serial.Never, "{type}{date:FF}{seq:6}", april, noon},
		{serial.Never, "{type}{date:MM}{seq:6}", none, noon},
		{serial.PerYear, "{type}{date:yyMM}{seq:6}", none, noon},
		// Some of these business years are in 1999, which yy does not print, and in 2000.
		{serial.PerYear, "{type}{date:FFFFyyMM}{seq:6}", april, noon.AddDate(-21, -9, 0)},
		{serial.PerYear, "{type}{date:EEyyMM}{seq:6}", april, noon.AddDate(-21, -9, 0)},
		{serial.PerYear, "{type}{date:FFyyMM}{seq:6}", april, noon.AddDate(78, 0, 0)},
		{serial.PerDay, "{type}{date:yyMMddHH}{seq:6}", none, noon},
	} {
		for _, zone := range []string{"UTC", "America/New_York", "America/Sao_Paulo", "Atlantic/Azores", "Pacific/Honolulu",
			"Pacific/Apia", "Pacific/Kiritimati", "Asia/Kolkata"} {
			name := fmt.Sprint(row.per, " ", row.template, " ", zone)
			s := newScheme(t, serial.WithPeriod(row.per), serial.WithTemplate(row.template), row.more,
				serial.WithLocation(location(t, zone)))
			n, err := s.Number("IS", serial.At(row.at), 2)
			require.NoError(t, err, name)
			_, start, end := s.Period(serial.At(row.at))
			for _, at := range []time.Time{start, start.Add(time.Second), row.at, end.Add(-time.Second)} {
				got, err := s.Audit("IS", serial.At(at), 3, used(n.String()))
				require.NoError(t, err, "%s at %v", name, at)
				require.Equal(t, []serial.Range{{First: 1, Last: 1}, {First: 3, Last: 3}}, got.Missing, name)
				require.True(t, start.Equal(got.Start), name)
				require.NotEmpty(t, s.PeriodName(serial.At(at)), name)
			}
		}
	}
	// If no date of the period can be printed, no number of it exists, and the error says why.
	s := newScheme(t, serial.WithPeriod(serial.PerYear), serial.WithTemplate("{type}{date:yyMM}{seq:6}"))
	for _, year := range []int{1999, 2100} {
		require.ErrorContains(t, errOf(s.Audit("IS", serial.On(year, time.June, 1), 0, used())),
			fmt.Sprintf("the year %d cannot be printed as yy", year))
	}
}

// AuditAll says the same of each period as an audit of that period does, whatever was used and explained.
func TestAuditAll(t *testing.T) {
	t.Parallel()
	rng := redistest.Random(t)
	day := time.Date(2021, 10, 24, 15, 0, 0, 0, time.UTC)
	for name, opts := range map[string][]serial.Option{
		"usual":   nil,
		"start":   {serial.WithStart(5)},
		"hidden":  {serial.WithTemplate("{type}{date:yyyyMMdd}{seq:6}"), serial.WithHiddenSequence(make([]byte, 16))},
		"months":  {serial.WithTemplate("{type}{date:yyyyMMdd}{seq:4}"), serial.WithPeriod(serial.PerMonth)},
		"shared":  {serial.WithSharedCounter()},
		"all":     {serial.WithTemplate("{type}{seq:4}"), serial.WithPeriod(serial.Never)},
		"earlier": {serial.WithLocation(location(t, "Asia/Shanghai"))},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScheme(t, opts...)
			var earlier []*serial.Scheme
			if name == "earlier" {
				earlier = append(earlier, newScheme(t, serial.WithTemplate("{type}-{date:yyyyMMdd}-{seq:3}")))
			}
			first, _ := s.Limits()
			for range 50 {
				var last []serial.Number
				for _, i := range rng.Perm(6)[:1+rng.IntN(4)] {
					n, err := s.Number("IS", serial.At(day.AddDate(0, 0, i*i)), first+rng.Int64N(20))
					require.NoError(t, err)
					if !slices.ContainsFunc(last, func(l serial.Number) bool { return l.Start.Equal(n.Start) }) {
						last = append(last, n)
					}
				}
				var numbers []string
				for range rng.IntN(100) {
					from := append(earlier, s)[rng.IntN(1+len(earlier))]
					typ := []string{"IS", "IS", "IS", "PO"}[rng.IntN(4)]
					n, err := from.Number(typ, serial.At(day.AddDate(0, 0, rng.IntN(40)-5)), 1+rng.Int64N(25))
					require.NoError(t, err)
					numbers = append(numbers, n.String()+strings.Repeat(" ", rng.IntN(2)))
				}
				numbers = append(numbers, "foreign")
				var reasons []serial.Explanation
				for i := range rng.IntN(20) {
					_, start, _ := append(earlier, s)[rng.IntN(1+len(earlier))].Period(serial.At(day.AddDate(0, 0, rng.IntN(40)-5)))
					e := serial.Explanation{Start: start, First: 1 + rng.Int64N(20), Reason: fmt.Sprint(i), At: day}
					e.Series, _ = s.Series("IS")
					e.Last, e.Unused, e.By = e.First+rng.Int64N(9), rng.IntN(2) == 0, []string{"", "Ada"}[rng.IntN(2)]
					e.Possible = !e.Unused && rng.IntN(2) == 0
					reasons = append(reasons, e)
				}
				options := []serial.AuditOption{given(reasons...), serial.WithEarlier(earlier...), serial.WithLookup(1, 3, 7)}
				got, err := s.AuditAll("IS", last, used(numbers...), options...)
				require.NoError(t, err)
				require.EqualValues(t, 1, got.ForeignCount)
				require.Equal(t, []string{"foreign"}, got.Foreign)
				found := map[string]bool{}
				for i, r := range got.Periods {
					n := serial.Number{Start: r.Start}
					if i < len(last) {
						n = last[i]
						require.True(t, n.Start.Equal(r.Start), "in the order given")
					} else if i > len(last) {
						require.True(t, got.Periods[i-1].Start.Before(r.Start), "in order")
					}
					want, err := s.Audit("IS", serial.At(n.Start), n.Seq, used(numbers...), options...)
					require.NoError(t, err)
					want.Foreign, want.ForeignCount, want.OtherCount = nil, 0, 0
					require.EqualExportedValues(t, want, r)
					for seq := range int64(30) {
						require.Equal(t, want.Lookup(seq), r.Lookup(seq))
					}
					if i >= len(last) {
						require.Positive(t, r.BeyondCount)
					}
					label, _, _ := s.Period(serial.At(r.Start))
					require.False(t, found[label])
					found[label] = true
				}
				oldest := slices.MinFunc(last, func(a, b serial.Number) int { return a.Start.Compare(b.Start) }).Start
				newest := slices.MaxFunc(got.Periods, func(a, b serial.Report) int { return a.Start.Compare(b.Start) }).Start
				var without []time.Time
				for _, start, end := s.Period(serial.At(oldest)); start.Before(newest); _, start, end = s.Period(serial.At(end)) {
					if label, _, _ := s.Period(serial.At(start)); !found[label] {
						without = append(without, start)
					}
				}
				require.Equal(t, without, got.Without)
				require.EqualValues(t, len(without), got.WithoutCount)
			}
		})
	}
}

// What one scheme reads as a number of one period, and another as one of another period, counts in both.
func TestAuditAllOfAmbiguousText(t *testing.T) {
	days := newScheme(t, serial.WithTemplate("{type}{date:yyMMdd}{seq:4}"))
	other := newScheme(t, serial.WithTemplate("{type}{date:ddMMyy}{seq:4}"))
	var last []serial.Number
	for _, day := range []int{21, 12} {
		n, err := days.Number("IS", serial.On(2000+33-day, time.November, day), 1)
		require.NoError(t, err)
		last = append(last, n)
	}
	got, err := days.AuditAll("IS", last, used("IS1211210001"), serial.WithEarlier(other))
	require.NoError(t, err)
	require.Len(t, got.Periods, 2)
	for _, r := range got.Periods {
		require.True(t, r.Clean(), r)
		require.EqualValues(t, 1, r.Count)
	}
	// In one period, it counts once.
	got, err = days.AuditAll("IS", last, used("IS1211210001"), serial.WithEarlier(days))
	require.NoError(t, err)
	require.Zero(t, got.Periods[1].DuplicateCount+got.Periods[0].DuplicateCount)
}

// Numbers of periods before the oldest one are others, and so are all if there is no period.
func TestAuditAllOthers(t *testing.T) {
	s := newScheme(t)
	last, err := s.Number("IS", serial.On(2021, time.October, 24), 1)
	require.NoError(t, err)
	texts := []string{"IS202110230001", "IS202110240001", "PO202110240001", "IS202110260002"}
	got, err := s.AuditAll("IS", []serial.Number{last}, used(texts...))
	require.NoError(t, err)
	require.EqualValues(t, 2, got.OtherCount)
	require.Len(t, got.Periods, 2)
	require.Equal(t, []time.Time{time.Date(2021, 10, 25, 0, 0, 0, 0, time.UTC)}, got.Without)
	require.EqualValues(t, []int64{0, 1}, []int64{got.Periods[1].Last, got.Periods[1].BeyondCount})
	require.False(t, got.Clean())
	got, err = s.AuditAll("IS", []serial.Number{last}, used(texts[:3]...))
	require.NoError(t, err)
	require.True(t, got.Clean())
	got, err = s.AuditAll("IS", nil, used(append(texts, "x")...))
	require.NoError(t, err)
	require.Equal(t, serial.Reports{OtherCount: 4, Foreign: []string{"x"}, ForeignCount: 1}, got)
	require.False(t, got.Clean(), "foreign")
}

func TestAuditAllRefuses(t *testing.T) {
	t.Parallel()
	s := newScheme(t, serial.WithTemplate("{type}{date:yyMMdd}{seq:15}"))
	number := func(typ string, day, seq int) serial.Number {
		n, err := s.Number(typ, serial.On(2021, time.October, day), int64(seq))
		require.NoError(t, err)
		return n
	}
	unread := func(func(string, error) bool) { t.Error("the numbers are read") }
	old := serial.Number{Type: "IS", Start: time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC), Seq: 1}
	high := number("IS", 24, 1)
	high.Seq = 1e15
	for says, last := range map[string][]serial.Number{
		"AuditAll of IS: the period 2021-10-24 is given twice":            {number("IS", 24, 1), number("IS", 24, 2)},
		"AuditAll of IS: the last number of PO from 2021-10-24T00:00:00Z": {number("IS", 24, 1), number("PO", 24, 2)},
		"AuditAll of IS: the last number of IS from ":                     {{Type: "IS", Seq: 1}},
		"1999": {old},
		"last sequence 1000000000000000: want 0 to 999999999999999": {high},
	} {
		got, err := s.AuditAll("IS", last, unread)
		require.ErrorContains(t, err, says)
		require.Zero(t, got)
	}
	last := serial.WithLastAfter(func() (int64, error) { return 0, nil })
	for says, opt := range map[string]serial.AuditOption{
		"serial: AuditAll: option 1 is nil":                         nil,
		"serial: WithLastAfter is for Audit; want WithHistoryAfter": last,
		"serial: WithHistoryAfter: the function is nil":             serial.WithHistoryAfter(nil),
		"serial: WithLookup: 1001 sequences; want at most 1000":     serial.WithLookup(slices.Collect(seqs(1001))...),
	} {
		require.EqualError(t, errOf(s.AuditAll("IS", nil, unread, opt)), says)
	}
	require.NoError(t, errOf(s.AuditAll("IS", nil, used(), serial.WithLookup(slices.Collect(seqs(1000))...),
		serial.WithLookup(7))))
	require.EqualError(t, errOf(s.Audit("IS", serial.On(2021, 10, 24), 0, unread,
		serial.WithHistoryAfter(func() ([]serial.Number, error) { return nil, nil }))),
		"serial: WithHistoryAfter is for AuditAll; want WithLastAfter")
	require.ErrorIs(t, errOf(s.AuditAll("I:S", nil, unread)), serial.ErrInvalidType)
	require.ErrorContains(t, errOf(s.AuditAll("IS", nil, nil)), "serial: AuditAll: the used numbers are nil")

	// The periods share the bound on memory.
	wide := func(yield func(string, error) bool) {
		for n := 0; yield(fmt.Sprintf("IS2110%02d%015d", 24+n%2, 1+n*1_000_000), nil); n++ {
			require.Less(t, n, 300_000)
		}
	}
	require.ErrorContains(t, errOf(s.AuditAll("IS", []serial.Number{number("IS", 24, 1)}, wide)),
		"AuditAll of IS: the sequences are spread so widely")
}

// seqs yields the sequences 1 to n.
func seqs(n int64) func(yield func(int64) bool) {
	return func(yield func(int64) bool) {
		for i := int64(1); i <= n && yield(i); i++ {
		}
	}
}

// All lists of a kind together hold ten thousand entries. The counts are exact, and a look-up knows the rest.
func TestAuditAllLists(t *testing.T) {
	t.Parallel()
	s := newScheme(t)
	const days = 15
	var last []serial.Number
	var texts []string
	for day := range days {
		at := serial.On(2021, time.October, 1+day)
		n, err := s.Number("IS", at, 3000)
		require.NoError(t, err)
		last = append(last, n)
		for seq := int64(1); seq <= 3000; seq += 2 { // every second one is missing, and the others are there twice
			n, err := s.Number("IS", at, seq)
			require.NoError(t, err)
			texts = append(texts, n.String(), n.String())
		}
	}
	got, err := s.AuditAll("IS", last, used(texts...))
	require.NoError(t, err)
	missing, duplicates := 0, 0
	for _, r := range got.Periods {
		require.EqualValues(t, []int64{1500, 1500, 1500}, []int64{r.MissingCount, r.UnexplainedCount, r.DuplicateCount})
		require.LessOrEqual(t, len(r.Missing), 1000)
		missing, duplicates = missing+len(r.Missing), duplicates+len(r.Duplicates)
		require.Equal(t, serial.Entry{Issued: true}, r.Lookup(2998))
		require.Equal(t, 2, r.Lookup(2999).Stored)
	}
	require.Equal(t, []int{10_000, 10_000}, []int{missing, duplicates})
}

// Without has the first ten thousand periods, and WithoutCount their number, at once.
func TestAuditAllWithout(t *testing.T) {
	t.Parallel()
	s := newScheme(t, serial.WithPeriod(serial.PerSecond), serial.WithTemplate("{type}{date:yyyyMMddHHmmss}{seq:4}"))
	var last []serial.Number
	for _, year := range []int{1971, 9998} {
		n, err := s.Number("IS", serial.At(time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)), 1)
		require.NoError(t, err)
		last = append(last, n)
	}
	got, err := s.AuditAll("IS", last, used())
	require.NoError(t, err)
	require.Len(t, got.Without, 10_000)
	require.Equal(t, last[0].Start.Add(time.Second), got.Without[0])
	require.EqualValues(t, last[1].Start.Unix()-last[0].Start.Unix()-1, got.WithoutCount)
}

// Numbers issued while the used numbers are read are ignored, also those of a period that has begun since.
func TestAuditAllMeanwhile(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		gen := newGenerator(t, m.Client(), serial.WithLocation(time.UTC), serial.WithRetention(5), serial.WithStart(3))
		issue := func() []string {
			numbers, err := textsOf(gen.NextN(t.Context(), "IS", 3))
			require.NoError(t, err)
			return numbers
		}
		numbers := issue()
		time.Sleep(48 * time.Hour)
		numbers = append(numbers, issue()...)
		got, err := gen.AuditAll(t.Context(), "IS", func(yield func(string, error) bool) {
			later := issue()
			time.Sleep(24 * time.Hour)
			for _, text := range slices.Concat(numbers, later, later[:1], issue(),
				[]string{"IS200001040006", "IS200001040007"}) {
				yield(text, nil)
			}
		})
		require.NoError(t, err)
		require.Len(t, got.Periods, 3)
		for i, want := range []int64{5, 5, 0} {
			require.Equal(t, []int64{3, want}, []int64{got.Periods[i].First, got.Periods[i].Last})
			require.Equal(t, i < 2, got.Periods[i].Clean(), "%+v", got.Periods[i])
		}
		require.EqualValues(t, 2, got.Periods[2].BeyondCount)
		require.Len(t, got.Without, 1)

		// The counter of a deleted day is gone: what is stored of it was never issued, as far as anybody knows.
		m.Del("serial:{IS}:20000103")
		got, err = gen.AuditAll(t.Context(), "IS", used(numbers...))
		require.NoError(t, err)
		require.Len(t, got.Periods, 3)
		require.EqualValues(t, 3, got.Periods[2].BeyondCount)

		_, err = gen.AuditAll(t.Context(), "IS", func(func(string, error) bool) {
			require.NoError(t, m.Set("serial:{IS}:20000101", "1"))
		})
		require.ErrorIs(t, err, serial.ErrCounterLost)
		require.ErrorContains(t, err, "2000-01-01 went back from 5 to 1")

		forgetting := newGenerator(t, m.Client(), serial.WithLocation(time.UTC))
		require.NoError(t, errOf(forgetting.Next(t.Context(), "PO")))
		_, err = forgetting.AuditAll(t.Context(), "PO", func(func(string, error) bool) { time.Sleep(24 * time.Hour) })
		require.ErrorContains(t, err, "the period 2000-01-04 ended while the used numbers were read")
		got, err = forgetting.AuditAll(t.Context(), "PO", used("PO200001040001"))
		require.NoError(t, err)
		require.Equal(t, serial.Reports{OtherCount: 1}, got, "nothing is kept")
	})
}

// A start that Redis knows counts, as in an audit of one period.
func TestAuditAllWithAnotherStart(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		high := newGenerator(t, m.Client(), serial.WithLocation(time.UTC), serial.WithStart(100))
		numbers, err := textsOf(high.NextN(t.Context(), "IS", 2))
		require.NoError(t, err)
		low := newGenerator(t, m.Client(), serial.WithLocation(time.UTC))
		got, err := low.AuditAll(t.Context(), "IS", used(numbers...))
		require.NoError(t, err)
		require.True(t, got.Clean())
		require.EqualValues(t, 100, got.Periods[0].First)
	})
}

// WithHistoryAfter reads the last numbers again.
func TestHistoryAfter(t *testing.T) {
	s := newScheme(t)
	at := func(day int, seq int64) serial.Number {
		n, err := s.Number("IS", serial.On(2021, time.October, day), seq)
		require.NoError(t, err)
		return n
	}
	numbers := used("IS202110240001", "IS202110240002", "IS202110250001", "IS202110250002")
	after := func(all ...serial.Number) serial.AuditOption {
		return serial.WithHistoryAfter(func() ([]serial.Number, error) { return all, nil })
	}
	got, err := s.AuditAll("IS", []serial.Number{at(24, 1)}, numbers, after(at(25, 1), at(24, 2)))
	require.NoError(t, err)
	require.True(t, got.Periods[0].Clean())
	require.Equal(t, []string{"IS202110250002"}, texts(got.Periods[1].Beyond))
	require.EqualError(t, errOf(s.AuditAll("IS", []serial.Number{at(24, 5)}, numbers, after(at(24, 2)))),
		"serial: AuditAll of IS: the last sequence went back from 5 to 2 while the used numbers were read")
	require.ErrorIs(t, errOf(s.AuditAll("IS", nil, used(), serial.WithHistoryAfter(func() ([]serial.Number, error) {
		return nil, errBoom
	}))), errBoom)
	require.ErrorContains(t, errOf(parser(t).AuditAll(t.Context(), "IS", used(), after())),
		"WithHistoryAfter is for Scheme.AuditAll")
}

// A look-up has the texts of the sequences that the audit was asked for; others only if their sequence determines them.
func TestLookupTexts(t *testing.T) {
	numbers := []string{"IS202110240001", "IS202110240002  ", "IS202110240002", " IS202110240003", "IS202110240004",
		"IS-20211024-0005"}
	s := newScheme(t)
	earlier, err := s.WithTemplate("{type}-{date:yyyyMMdd}-{seq:4}")
	require.NoError(t, err)
	shared := newScheme(t, serial.WithSharedCounter())
	months := newScheme(t, serial.WithPeriod(serial.PerMonth), serial.WithTemplate("{type}{date:yyyyMMdd}{seq:4}"))
	for _, row := range []struct {
		scheme *serial.Scheme
		want   [6][]string
		opts   []serial.AuditOption
	}{
		{s, [6][]string{nil, {"IS202110240001"}, nil, {"IS202110240003"}, {"IS202110240004"}}, nil},
		{s, [6][]string{nil, {"IS202110240001"}, numbers[1:3], {" IS202110240003"}, {"IS202110240004"}},
			[]serial.AuditOption{serial.WithLookup(2, 3), serial.WithLookup(9)}},
		{s, [6][]string{5: {"IS-20211024-0005"}}, []serial.AuditOption{serial.WithEarlier(earlier), serial.WithLookup(5)}},
		{shared, [6][]string{4: {"IS202110240004"}}, []serial.AuditOption{serial.WithLookup(4)}},
		{months, [6][]string{4: {"IS202110240004"}}, []serial.AuditOption{serial.WithLookup(4)}},
	} {
		r, err := row.scheme.Audit("IS", serial.On(2021, time.October, 24), 5, used(numbers...), row.opts...)
		require.NoError(t, err)
		for seq, want := range row.want {
			require.Equal(t, want, r.Lookup(int64(seq)).Texts, seq)
		}
	}
	require.Zero(t, (&serial.Report{}).Lookup(1))
}

// Explanations that fit a number and do not count for it are replaced.
func TestLookupExplanations(t *testing.T) {
	s := newScheme(t)
	_, start, _ := s.Period(serial.On(2021, time.October, 24))
	e := func(first, last int64, reason, by string) serial.Explanation {
		return serial.Explanation{Series: "serial:IS", Type: "IS", Start: start, First: first, Last: last, Reason: reason,
			By: by, At: start}
	}
	left, void, corrected, lost := e(1, 3, serial.CallerLeft, ""), e(2, 2, "void", "Ada"), e(2, 5, "no, lost", "Bob"),
		e(1, 9, serial.AnswerLost, "")
	left.Unused, lost.Possible = true, true
	r, err := s.Audit("IS", serial.At(start), 4, used("IS202110240001"), given(void, corrected), given(lost, left))
	require.NoError(t, err)
	require.Equal(t, serial.Entry{Issued: true, Stored: 1, Texts: []string{"IS202110240001"}, Contradicted: true,
		Replaced: []serial.Explanation{left}, Possible: []serial.Explanation{lost}}, r.Lookup(1))
	require.Equal(t, serial.Entry{Issued: true, Explanation: &corrected, Replaced: []serial.Explanation{void, left},
		Possible: []serial.Explanation{lost}}, r.Lookup(2))
	require.Equal(t, serial.Entry{Replaced: []serial.Explanation{corrected}, Possible: []serial.Explanation{lost}},
		r.Lookup(5))
	require.Zero(t, r.Lookup(0))
	require.Zero(t, r.Lookup(-1<<63))
}

// A period is clean whatever is foreign, since a foreign text belongs to no period.
func TestCleanWithForeign(t *testing.T) {
	s := newScheme(t)
	r, err := s.Audit("IS", serial.On(2021, time.October, 24), 1, used("IS202110240001", "ORD2O26"))
	require.NoError(t, err)
	require.True(t, r.Clean())
	require.EqualValues(t, 1, r.ForeignCount)
}
