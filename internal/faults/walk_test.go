//go:build unix

package faults

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/race"
	"github.com/dailyserial/serial/internal/redistest"
	"github.com/dailyserial/serial/serialtest"
)

// walkSettings are everything that determines periods and printed numbers.
type walkSettings struct {
	period    serial.Period
	zone      *time.Location
	dayStart  time.Duration
	yearStart time.Month
	yearDay   int
	date      string // layout
	print     int    // index of walkPrints
	start     int64
	ledger    bool
}

// walkPrints print sequences in ways of which some pairs agree on some sequences.
var walkPrints = []struct {
	template string
	hidden   []serial.Option
}{
	{"{seq:6}", nil}, {"{seq:6:base32}", nil}, {"{seq:5}{check:luhn}", nil}, {"{seq:5}{check:damm}", nil},
	{"{seq:6}", []serial.Option{serial.WithHiddenSequence([]byte("0123456789abcdef"))}},
	{"{seq:6}", []serial.Option{serial.WithHiddenSequence([]byte("fedcba9876543210"))}},
}

var walkDates = []string{"yyyyMMdd", "yyyyMM", "FFFFMM", "FFFFQ", "FFFF", "GGGGWW", "yyyy", "yyyyMMddHH",
	"yyyyMMddHHmm", "yyyyMMddHHmmss", "FFFFMMdd", "yyyyDDD", ""}

func (s walkSettings) options(ledger serial.Ledger) []serial.Option {
	// Each layout has a literal of its own: users must keep numbers of different layouts apart.
	template := "{type}" + string(rune('a'+slices.Index(walkDates, s.date)))
	if s.date != "" {
		template += "{date:" + s.date + "}"
	}
	opts := append(walkPrints[s.print].hidden, serial.WithPeriod(s.period), serial.WithLocation(s.zone),
		serial.WithDayStart(s.dayStart), serial.WithMaxSkew(-1), serial.WithYearStart(s.yearStart, s.yearDay),
		serial.WithStart(s.start), serial.WithTemplate(template+"-"+walkPrints[s.print].template))
	if s.ledger {
		opts = append(opts, serial.WithLedger(ledger, 3))
	}
	return opts
}

// A walk is a random sequence of operations, with settings, clocks and losses that change at random.
type walk struct {
	*rand.Rand
	t      *testing.T
	redis  *serialtest.Redis
	client redis.UniversalClient
	ledger serialtest.Ledger

	truth      time.Time     // never goes back
	skew       time.Duration // of Redis's clock, at most maxSkew: a record must outlive a jump back
	jumpIn     atomic.Int64  // commands until Redis's clock jumps in the middle of a call
	jumpTo     time.Time
	loses      bool // Redis may lose everything, since all processes have the ledger
	starts     bool // processes differ only in their starts
	processes  []*walkProcess
	settings   []walkSettings  // that a process has ever had
	calendars  map[string]bool // of these settings
	numbers    map[string]int  // step at which each was issued
	models     map[string]*model
	generation map[string]int // series of each type that are over
	trace      []string
	outcomes   map[string]int
}

// A model is what an honest operator knows of the numbers that count together.
type model struct {
	used     map[string]int64 // greatest sequence by label
	latest   string           // latest period that a call may have entered
	operated int64            // calls of operators since the last number was issued
}

// Periods of two zones and day starts lie up to three days apart, the clock may be four days behind an earlier one, and
// a record lives for seven days.
const maxSkew = 2 * 24 * time.Hour

type walkProcess struct {
	walkSettings
	gen *serial.Generator
}

func (w *walk) randomSettings() walkSettings {
	period := serial.Period(int(serial.PerSecond) + w.IntN(int(serial.Never-serial.PerSecond)+1))
	zone, err := time.LoadLocation(pick(w, "UTC", "Asia/Tokyo", "Europe/Berlin", "America/New_York", "Pacific/Kiritimati",
		"Pacific/Pago_Pago"))
	require.NoError(w.t, err)
	return walkSettings{period: pick(w, serial.PerHour, period, period), zone: zone,
		dayStart:  pick(w, 0, 0, 0, 4*time.Hour, 23*time.Hour),
		yearStart: pick(w, time.January, time.January, time.April, time.July), yearDay: 1 + 5*w.IntN(2),
		date: pick(w, walkDates...), print: w.IntN(len(walkPrints)),
		start:  pick[int64](w, 1, 1, 4, 9, 30_000), // numbers of another process reach these soon, or never
		ledger: w.loses || w.IntN(4) == 0}
}

func pick[T any](w *walk, all ...T) T { return all[w.IntN(len(all))] }

// mutate changes some of the settings.
func (w *walk) mutate(s walkSettings) walkSettings {
	if w.starts {
		s.start = w.randomSettings().start
		return s
	}
	for range w.IntN(3) {
		other := w.randomSettings()
		pick(w,
			func() { s.period = other.period },
			func() { s.zone = other.zone },
			func() { s.dayStart = other.dayStart },
			func() { s.yearStart, s.yearDay = other.yearStart, other.yearDay },
			func() { s.print = other.print },
			func() { s.date, s.ledger = other.date, other.ledger },
			func() { s.start = other.start })()
	}
	return s
}

// restart starts a process again, unless its settings are refused.
func (w *walk) restart(p *walkProcess, s walkSettings) {
	if gen, err := serial.New(w.client, s.options(&w.ledger)...); err == nil {
		*p = walkProcess{s, gen}
		w.settings, w.calendars[gen.Scheme().Calendar()] = append(w.settings, s), true
		w.note("process %d: %+v in %v", slices.Index(w.processes, p), s, s.zone)
	}
}

func (w *walk) note(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf("%3d ", len(w.trace))+fmt.Sprintf(format, args...))
}

// require fails the test, with all steps so far, unless ok.
func (w *walk) require(ok bool, what ...any) {
	if !ok {
		require.Fail(w.t, fmt.Sprintln(what...), strings.Join(w.trace, "\n"))
	}
}

func (w *walk) now() time.Time { return w.truth.Add(w.skew) }

// setSkew sets Redis's clock.
func (w *walk) setSkew(skew time.Duration) {
	w.skew = skew
	w.redis.SetTime(w.now())
	w.note("it is %s (%v off)", w.now().Format(time.RFC3339), w.skew)
}

func (w *walk) randomSkew() time.Duration { return time.Duration(w.Int64N(int64(2*maxSkew))) - maxSkew }

// advance lets time pass.
func (w *walk) advance(d time.Duration) {
	w.truth = w.truth.Add(d)
	w.setSkew(w.skew)
}

// nextPeriod advances to about the beginning of a process's next period, unless it is far away.
func (w *walk) nextPeriod(p *walkProcess, far, off time.Duration) {
	if _, left := w.period(p); left < far && left+off > 0 {
		w.advance(left + off)
	}
}

// period returns the label of a process's period, and how long the period still lasts.
func (w *walk) period(p *walkProcess) (label string, left time.Duration) {
	label, _, end := p.gen.Scheme().Period(serial.At(w.now()))
	return label, end.Sub(w.now())
}

// series returns the name and the model of a type's series: a new one if its record has expired and not all processes
// use one calendar. Only a ledger can distinguish a series that was unused for so long from a new one.
func (w *walk) series(typ string) (name string, m *model) {
	for {
		name = fmt.Sprint(typ, "-", w.generation[typ])
		if m = w.models[name]; m == nil {
			m = &model{used: map[string]int64{}}
			w.models[name] = m
			return name, m
		}
		if w.loses || len(w.calendars) == 1 || w.client.Exists(w.t.Context(), "serial:{"+name+"}").Val() > 0 {
			return name, m
		}
		w.generation[typ]++
	}
}

// call makes a call, and reports whether it succeeded. An honest operator raises and takes over. Now and then, Redis's
// clock jumps in the middle of a call that issues.
func (w *walk) call(p *walkProcess, typ, method string) bool {
	series, m := w.series(typ)
	from, _ := w.period(p)
	ctx, used, skew := w.t.Context(), m.used[from], w.skew
	issues := strings.HasPrefix(method, "Next")
	if issues && w.IntN(12) == 0 {
		// If the record expired in the middle of the call, the model would not know that the series begins anew.
		to, left := w.randomSkew(), w.client.PTTL(ctx, "serial:{"+series+"}").Val()
		if left <= 0 || left > to-w.skew {
			skew = to
			w.jumpTo = w.truth.Add(skew)
			w.jumpIn.Store(1 + w.Int64N(6))
		}
	}
	numbers, err := make([]serial.Number, 1), error(nil)
	switch method {
	case "NextNumber":
		numbers[0], err = p.gen.NextNumber(ctx, series)
	case "NextN":
		numbers, err = p.gen.NextN(ctx, series, 1+w.IntN(20)) // enough for collisions with other prints
	case "NextOnce":
		request := fmt.Sprint("request ", len(w.trace))
		numbers[0], err = p.gen.NextOnce(ctx, series, request)
		if err == nil && skew == w.skew { // otherwise, Redis may have forgotten it
			again, err := p.gen.NextOnce(ctx, series, request)
			w.require(again.String() == numbers[0].String(), numbers, "and then", again, err)
		}
	case "Raise":
		err = p.gen.Raise(ctx, series, used)
	case "Takeover":
		err = p.gen.Takeover(ctx, series, used)
	case "Prepare":
		if p.period == serial.Never {
			return true
		}
		err = p.gen.Prepare(ctx, series)
	}
	if skew != w.skew && w.jumpIn.Swap(0) <= 0 {
		w.setSkew(skew)
	}
	to, _ := w.period(p)
	m.latest = max(m.latest, from, to)
	w.note("%s %s by %d: %v %v", method, series, slices.Index(w.processes, p), numbers, err)
	for _, known := range []error{serial.ErrConflict, serial.ErrClockSkew, serial.ErrCounterLost, serial.ErrExhausted} {
		if errors.Is(err, known) {
			w.outcomes[known.Error()]++
			return false
		}
	}
	w.require(err == nil, method, err)
	w.outcomes[method]++
	if issues {
		label, _, _ := p.gen.Scheme().Period(serial.At(numbers[0].Start))
		w.require(label == from || label == to, "the numbers are of", label)
		w.follows(m, label, numbers[0].Seq)
		for _, n := range numbers {
			before, twice := w.numbers[n.String()]
			w.require(!twice, n, "issued twice, first in step", before)
			w.numbers[n.String()] = len(w.trace) - 1
			m.used[label] = max(m.used[label], n.Seq)
		}
		m.operated = 0
	} else {
		m.operated++
	}
	return true
}

func (w *walk) issue(p *walkProcess, typ string) bool {
	return w.call(p, typ, pick(w, "NextNumber", "NextNumber", "NextN", "NextOnce"))
}

// follows requires that first, issued to a process, is above the numbers used in its period. It is the next one, or the
// start of some process. Only such a start may be the first number of a period. With a ledger, losses skip some numbers,
// and each call of an operator skips as many as are used.
func (w *walk) follows(m *model, label string, first int64) {
	last, skipped, begins := m.used[label], int64(0), false
	if slices.ContainsFunc(w.settings, func(s walkSettings) bool { return s.ledger }) {
		skipped = (100 + last) * (1 + m.operated)
	}
	follows := last < first && first <= last+1+skipped
	for _, s := range w.settings {
		follows = follows || last < s.start && s.start <= first && first <= s.start+skipped
		begins = begins || s.start <= first
	}
	// Between periods that were entered, a record may take others for used, and then their start does not count.
	w.require(follows && (last > 0 || m.latest != label || begins), first, "does not follow", last)
}

func (w *walk) loseCounter(typ, label string) {
	series, _ := w.series(typ)
	require.NoError(w.t, w.client.Del(w.t.Context(), "serial:{"+series+"}:"+label).Err())
	w.note("the counter of %s in %s is lost", series, label)
}

// runAhead has a clock that is ahead use periods, and sets it back. The last counter is lost, and the next period is
// prepared.
func (w *walk) runAhead(p *walkProcess, typ string) {
	if p.period == serial.PerSecond || p.period == serial.Never {
		return
	}
	back, ahead := w.skew, 1+w.IntN(3)
	w.issue(p, typ)
	for range ahead {
		_, left := w.period(p)
		w.setSkew(min(w.skew+left, maxSkew))
		w.issue(p, typ)
	}
	last, _ := w.period(p)
	w.setSkew(back)
	w.restart(p, p.walkSettings) // it remembers nothing
	w.call(p, typ, "Raise")
	w.loseCounter(typ, last)
	w.call(p, typ, "Prepare")
	for range ahead + 1 {
		if !w.issue(p, typ) {
			w.call(p, typ, pick(w, "Raise", "Takeover"))
		}
		w.nextPeriod(p, 40*24*time.Hour, 0)
	}
}

func (w *walk) step() {
	p, typ := pick(w, w.processes...), pick(w, "B", "B", "B", "B1")
	issue := func() {
		for range 1 + w.IntN(3) {
			w.issue(p, typ)
			if w.IntN(4) == 0 {
				w.nextPeriod(p, 25*time.Hour, 0)
			}
		}
	}
	next := func() { w.nextPeriod(p, 400*24*time.Hour, pick(w, 0, 0, 0, 0, -time.Minute, time.Minute)) }
	wait := func() { w.advance(time.Duration(w.Int64N(int64(pick(w, 36*time.Hour, 40*24*time.Hour))))) }
	skew := func() { w.setSkew(pick(w, 0, w.randomSkew())) }
	operate := func() { w.call(p, typ, pick(w, "Raise", "Takeover", "Prepare")) }
	pick(w,
		next, next,
		wait, wait, skew, skew,
		func() { w.restart(p, w.mutate(pick(w, w.processes...).walkSettings)) }, // with settings close to another's
		func() {
			label, _ := w.period(p)
			w.loseCounter(typ, label)
		},
		func() {
			if w.loses {
				w.redis.Lose()
				w.note("everything is lost")
			}
		},
		func() { w.runAhead(p, typ) },
		issue, issue, issue, issue, operate, operate, operate,
	)()
}

// run makes a walk from processes whose settings are equal, except for a few. At its end, some process can issue again
// once the clocks agree, if necessary after an operator has helped.
func (w *walk) run() {
	w.loses, w.starts = w.IntN(3) == 0, w.IntN(3) == 0
	w.truth = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(w.Int64N(int64(800 * 24 * time.Hour))))
	w.processes = []*walkProcess{{}, {}, {}, {}}
	for i, p := range w.processes {
		for p.gen == nil { // a layout may not distinguish the periods
			s := w.randomSettings()
			if i > 0 {
				s = w.mutate(w.processes[i-1].walkSettings)
			}
			w.restart(p, s)
		}
	}
	w.setSkew(0)
	for range 60 {
		w.step()
	}
	// At a whole second: a printed period must not end before a script has reached a clock that stands still.
	w.truth = w.truth.Add(4 * 24 * time.Hour).Truncate(time.Second)
	w.setSkew(0)
	goesOn := slices.ContainsFunc(w.settings, func(s walkSettings) bool {
		p := &walkProcess{}
		w.restart(p, s)
		if w.issue(p, "B") {
			return true
		}
		w.call(p, "B", "Takeover")
		return w.issue(p, "B")
	})
	// Blocks and high starts may use up a period that never ends.
	full := strings.Contains(w.trace[len(w.trace)-1], "numbers exhausted") && w.processes[0].period == serial.Never
	w.require(goesOn || full, "stuck")
}

// Settings, clocks and losses change at random, and operators are honest: no number is issued twice, and no series gets
// stuck. The reader knows only the printed numbers.
// Guarantees: clock-back, future-day, day-between, day-entered-ahead, counter-expired, all-at-random.
func TestWalk(t *testing.T) {
	t.Parallel()
	length, least := lengthOf(t, time.Second, time.Minute, 1), uint64(20)
	if testing.Short() {
		length, least = 0, 5
	}
	outcomes := map[string]int{"NextNumber": 0, "NextN": 0, "NextOnce": 0, "Raise": 0, "Takeover": 0, "Prepare": 0,
		serial.ErrConflict.Error(): 0, serial.ErrClockSkew.Error(): 0, serial.ErrCounterLost.Error(): 0}
	missing := func() bool { return slices.Contains(slices.Collect(maps.Values(outcomes)), 0) }
	seed, walks := redistest.Random(t).Uint64(), uint64(0)
	for began := time.Now(); time.Since(began) < length || walks < least || missing() && walks < 2000; walks++ {
		race.Bubble(t, func(t *testing.T) {
			r := serialtest.NewRedis(t, time.Now())
			w := &walk{Rand: rand.New(rand.NewPCG(seed, walks)), t: t, redis: r, client: r.Client(),
				calendars: map[string]bool{}, numbers: map[string]int{}, models: map[string]*model{},
				generation: map[string]int{}, outcomes: outcomes}
			w.note("walk %d of seed %d", walks, seed)
			w.client.AddHook(redistest.Hook(func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
				if w.jumpIn.Add(-1) == 0 {
					w.redis.SetTime(w.jumpTo)
				}
				return next(ctx, cmds)
			}))
			w.run()
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("%d walks: %v", walks, outcomes)
	require.False(t, missing())
}
