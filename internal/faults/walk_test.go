//go:build unix

package faults

import (
	"context"
	"errors"
	"fmt"
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
	period         serial.Period
	zone           *time.Location
	dayStart       time.Duration
	yearStart      time.Month
	yearDay        int
	date           string // layout
	print          int    // index of walkPrints
	start          int64
	ledger, shared bool // shared: all types share a counter
}

// walkPrints print sequences in ways of which some pairs agree on some sequences.
var walkPrints = []struct{ template, key string }{
	{"{seq:6}", ""}, {"{seq:6}", "0123456789abcdef"}, {"{seq:6}", "fedcba9876543210"}, {"{seq:6:base32}", ""},
	{"{seq:5}{check:luhn}", ""}, {"{seq:5}{check:damm}", ""},
}

var walkDates = []string{"yyyyMMdd", "yyyyMM", "FFFFMM", "FFFFQ", "FFFF", "GGGGWW", "yyyy", "yyyyMMddHH",
	"yyyyMMddHHmm", "yyyyMMddHHmmss", "FFFFMMdd", "yyyyDDD", ""}

func (s walkSettings) options(ledger serial.Ledger) []serial.Option {
	// Each layout has a literal of its own: users must keep numbers of different layouts apart.
	template := "{type}" + string(rune('a'+slices.Index(walkDates, s.date)))
	if s.date != "" {
		template += "{date:" + s.date + "}"
	}
	opts := []serial.Option{serial.WithPeriod(s.period), serial.WithLocation(s.zone), serial.WithDayStart(s.dayStart),
		serial.WithMaxSkew(-1), serial.WithYearStart(s.yearStart, s.yearDay), serial.WithStart(s.start),
		serial.WithTemplate(template + "-" + walkPrints[s.print].template)}
	if key := walkPrints[s.print].key; key != "" {
		opts = append(opts, serial.WithHiddenSequence([]byte(key)))
	}
	if s.ledger {
		opts = append(opts, serial.WithLedger(ledger, 3))
	}
	if s.shared {
		opts = append(opts, serial.WithSharedCounter())
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
	shared     bool // all types share a counter, and all processes a calendar and a date
	processes  []*walkProcess
	settings   []walkSettings  // that a process has ever had
	calendars  map[string]bool // of these settings
	numbers    map[string]int  // step at which each was issued
	models     map[string]*model
	generation map[string]int // series of each type that are over
	lastType   string         // of the last number issued, "" before
	trace      []string
	outcomes   map[string]int
}

// A model is what an honest operator knows of the numbers that count together.
type model struct {
	used   map[string]int64 // greatest sequence by label
	latest string           // latest period that a call may have entered
}

// Periods of two zones and day starts lie up to three days apart, the clock may be four days behind an earlier one, and
// a record lives for seven days.
const maxSkew = 2 * 24 * time.Hour

type walkProcess struct {
	walkSettings
	gen *serial.Generator
}

func (w *walk) randomSettings() walkSettings {
	period := serial.PerHour
	if w.IntN(3) > 0 {
		period = serial.Period(int(serial.PerSecond) + w.IntN(int(serial.Never-serial.PerSecond)+1))
	}
	zone, err := time.LoadLocation(pick(w, "UTC", "Asia/Tokyo", "Europe/Berlin", "America/New_York", "Pacific/Kiritimati",
		"Pacific/Pago_Pago"))
	require.NoError(w.t, err)
	return walkSettings{period: period, zone: zone, dayStart: pick(w, 0, 0, 0, 4*time.Hour, 23*time.Hour),
		yearStart: pick(w, time.January, time.January, time.April, time.July), yearDay: 1 + 5*w.IntN(2),
		date: pick(w, walkDates...), print: w.IntN(len(walkPrints)),
		start:  pick[int64](w, 1, 1, 4, 9, 30_000), // numbers of another process reach these soon, or never
		ledger: w.loses || w.IntN(4) == 0, shared: w.shared}
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
		if w.shared { // another calendar or layout needs another key prefix or literal
			other.period, other.yearStart, other.yearDay, other.date = s.period, s.yearStart, s.yearDay, s.date
		}
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

// counted returns the type under which a type counts.
func (w *walk) counted(typ string) string {
	if w.shared {
		return "*"
	}
	return typ
}

// series returns the name and the model of a type's series: a new one if its record has expired and not all processes
// use one calendar. Only a ledger can distinguish a series that was unused for so long from a new one.
func (w *walk) series(typ string) (string, *model) {
	name := fmt.Sprint(typ, "-", w.generation[typ])
	if !w.loses && len(w.calendars) > 1 && w.models[w.counted(name)] != nil &&
		w.client.Exists(w.t.Context(), "serial:{"+w.counted(name)+"}").Val() == 0 {
		w.generation[typ]++
		name = fmt.Sprint(typ, "-", w.generation[typ])
	}
	if w.models[w.counted(name)] == nil {
		w.models[w.counted(name)] = &model{used: map[string]int64{}}
	}
	return name, w.models[w.counted(name)]
}

// tell records the outcome of a call, and reports whether it succeeded.
func (w *walk) tell(what string, p *walkProcess, series string, m *model, issued []serial.Number, err error) bool {
	w.note("%s %s by %d: %v %v", what, series, slices.Index(w.processes, p), issued, err)
	label, _ := w.period(p)
	m.latest = max(m.latest, label)
	if err == nil {
		w.outcomes[what]++
		return true
	}
	for _, known := range []error{serial.ErrConflict, serial.ErrClockSkew, serial.ErrCounterLost, serial.ErrExhausted} {
		if errors.Is(err, known) {
			w.outcomes[known.Error()]++
			return false
		}
	}
	w.require(false, what, err)
	return false
}

// issue takes numbers, and checks them. Now and then, Redis's clock jumps in the middle of the call.
func (w *walk) issue(p *walkProcess, typ string) bool {
	series, m := w.series(typ)
	numbers, skew := make([]serial.Number, 1), w.skew
	if w.IntN(12) == 0 {
		skew = w.randomSkew()
		w.jumpTo = w.truth.Add(skew)
		w.jumpIn.Store(1 + w.Int64N(6))
	}
	var err error
	what := pick(w, "NextNumber", "NextNumber", "NextN", "NextOnce")
	switch what {
	case "NextNumber":
		numbers[0], err = p.gen.NextNumber(w.t.Context(), series)
	case "NextN":
		numbers, err = p.gen.NextN(w.t.Context(), series, 1+w.IntN(20)) // enough for collisions with other prints
	case "NextOnce":
		request := fmt.Sprint("request ", len(w.trace))
		numbers[0], err = p.gen.NextOnce(w.t.Context(), series, request)
		if err == nil && skew == w.skew { // otherwise, Redis may have forgotten it
			again, err := p.gen.NextOnce(w.t.Context(), series, request)
			w.require(again.String() == numbers[0].String(), numbers, "and then", again, err)
		}
	}
	from, _ := w.period(p)
	if jumped := skew != w.skew && w.jumpIn.Swap(0) <= 0; jumped {
		m.latest = max(m.latest, from)
		w.setSkew(skew)
	}
	if !w.tell(what, p, series, m, numbers, err) {
		return false
	}
	label, _, _ := p.gen.Scheme().Period(serial.At(numbers[0].Start))
	to, _ := w.period(p)
	w.require(label == from || label == to, "the numbers are of", label)
	w.follows(m, label, numbers[0].Seq)
	for _, n := range numbers {
		text := n.String()
		if w.shared { // two types must not have the same number either
			text = strings.TrimPrefix(text, series)
		}
		before, twice := w.numbers[text]
		w.require(!twice, n, "issued twice, first in step", before)
		w.numbers[text] = len(w.trace) - 1
		m.used[label] = max(m.used[label], n.Seq)
	}
	w.lastType = typ
	return true
}

// follows requires that first, issued to a process, is above the numbers used in its period. It is the next one, or the
// start of some process. Only such a start may be the first number of a period. With a ledger, losses skip some numbers,
// and an operator skips as many as are used.
func (w *walk) follows(m *model, label string, first int64) {
	last, skipped, begins := m.used[label], int64(0), false
	if slices.ContainsFunc(w.settings, func(s walkSettings) bool { return s.ledger }) {
		skipped = 100 + last
	}
	follows := last < first && first <= last+1+skipped
	for _, s := range w.settings {
		follows = follows || last < s.start && s.start <= first && first <= s.start+skipped
		begins = begins || s.start <= first
	}
	// Between periods that were entered, a record may take others for used, and then their start does not count.
	w.require(follows && (last > 0 || m.latest != label || begins), first, "does not follow", last)
}

// operate has an honest operator raise or take over, or prepares.
func (w *walk) operate(p *walkProcess, typ, what string) {
	if p.period == serial.Never && what == "Prepare" {
		return
	}
	series, m := w.series(typ)
	label, _ := w.period(p)
	w.tell(what, p, series, m, nil, map[string]func() error{
		"Raise":    func() error { return p.gen.Raise(w.t.Context(), series, m.used[label]) },
		"Takeover": func() error { return p.gen.Takeover(w.t.Context(), series, m.used[label]) },
		"Prepare":  func() error { return p.gen.Prepare(w.t.Context(), series) },
	}[what]())
}

func (w *walk) loseCounter(typ, label string) {
	series, _ := w.series(typ)
	require.NoError(w.t, w.client.Del(w.t.Context(), "serial:{"+w.counted(series)+"}:"+label).Err())
	w.note("the counter of %s in %s is lost", series, label)
}

// issueOn issues in several periods in a row, some with a new print, and has an operator help where that fails.
func (w *walk) issueOn(p *walkProcess, typ string, periods int) {
	for range periods {
		if w.IntN(8) == 0 {
			s := p.walkSettings
			s.print = w.IntN(len(walkPrints))
			w.restart(p, s)
		}
		if !w.issue(p, typ) {
			w.operate(p, typ, pick(w, "Raise", "Takeover"))
		}
		w.nextPeriod(p, 40*24*time.Hour, 0)
	}
}

// goWest has a process take over after several periods, in a time zone so far west that some of them recur.
func (w *walk) goWest(p *walkProcess, typ string) {
	periods := 2 + w.IntN(4)
	w.issueOn(p, typ, periods)
	_, start, end := p.gen.Scheme().Period(serial.At(w.now()))
	_, east := start.Zone()
	offset := east - int(min(time.Duration(1+w.IntN(periods))*end.Sub(start), 48*time.Hour).Seconds())
	if offset < -35*60*60 { // with day starts, no two zones are farther apart
		return
	}
	s := p.walkSettings
	s.zone = time.FixedZone(fmt.Sprint("west", offset), offset)
	p = pick(w, w.processes...)
	w.restart(p, s)
	w.operate(p, typ, "Takeover")
	w.issueOn(p, typ, periods)
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
	w.operate(p, typ, "Raise")
	w.loseCounter(typ, last)
	w.operate(p, typ, "Prepare")
	w.issueOn(p, typ, ahead+1)
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
	pick(w,
		func() { w.nextPeriod(p, 400*24*time.Hour, time.Duration(w.IntN(3)-1)*time.Minute) },
		func() { w.nextPeriod(p, 400*24*time.Hour, 0) },
		func() { w.advance(time.Duration(w.Int64N(int64(36 * time.Hour)))) },
		func() { w.advance(time.Duration(w.Int64N(int64(40 * 24 * time.Hour)))) },
		func() { w.setSkew(w.randomSkew()) },
		func() { w.setSkew(0) },
		func() { w.operate(p, typ, "Raise") },
		func() { w.operate(p, typ, "Takeover") },
		func() { w.operate(p, typ, "Prepare") },
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
		func() { w.goWest(p, typ) },
		func() { w.runAhead(p, typ) },
		issue, issue, issue, issue,
	)()
}

// run makes a walk from processes whose settings are equal, except for a few. At its end, some process can issue again
// once the clocks agree, if necessary after an operator has helped.
func (w *walk) run() {
	w.loses, w.starts, w.shared = w.IntN(3) == 0, w.IntN(3) == 0, w.IntN(3) == 0
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
	if w.lastType == "" {
		return
	}
	// At a whole second: a printed period must not end before a script has reached a clock that stands still.
	w.truth = w.truth.Add(4 * 24 * time.Hour).Truncate(time.Second)
	w.setSkew(0)
	goesOn := slices.ContainsFunc(w.settings, func(s walkSettings) bool {
		p := &walkProcess{}
		w.restart(p, s)
		if w.issue(p, w.lastType) {
			return true
		}
		w.operate(p, w.lastType, "Takeover")
		return w.issue(p, w.lastType)
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
	seed, outcomes, walks := redistest.Random(t).Uint64(), map[string]int{}, uint64(0)
	missing := func() bool {
		return slices.ContainsFunc([]string{"NextNumber", "NextN", "NextOnce", "Raise", "Takeover", "Prepare",
			serial.ErrConflict.Error(), serial.ErrClockSkew.Error(), serial.ErrCounterLost.Error()},
			func(outcome string) bool { return outcomes[outcome] == 0 })
	}
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
