//go:build unix

package faults

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/serialtest"
)

// A walkSetting is everything that determines periods and texts.
type walkSetting struct {
	period    serial.Period
	zone      *time.Location
	dayStart  time.Duration
	yearStart time.Month
	yearDay   int
	date      string // layout
	print     int    // index of walkPrints
	start     int64
	ledger    bool
	shared    bool // all types share a counter
}

// walkPrints print sequences in ways of which some pairs agree on some sequences. A date layout has its own literal:
// users must keep texts of different layouts apart.
var walkPrints = []struct {
	template string // around TAG, the type, the literal of the layout and the date
	hidden   string
}{
	{template: "TAG-{seq:6}"},
	{template: "TAG-{seq:6}", hidden: "0123456789abcdef"},
	{template: "TAG-{seq:6}", hidden: "fedcba9876543210"},
	{template: "TAG-{seq:6:base32}"},
	{template: "TAG-{seq:5}{check:luhn}"},
	{template: "TAG-{seq:5}{check:damm}"},
}

var walkDates = []string{"yyyyMMdd", "yyyyMM", "FFFFMM", "FFFFQ", "FFFF", "GGGGWW", "yyyy", "yyyyMMddHH",
	"yyyyMMddHHmm", "yyyyMMddHHmmss", "FFFFMMdd", "yyyyDDD", ""}

func (s walkSetting) options(ledger serial.Ledger) []serial.Option {
	tag := "{type}" + string(rune('a'+slices.Index(walkDates, s.date)))
	if s.date != "" {
		tag += "{date:" + s.date + "}"
	}
	print := walkPrints[s.print]
	opts := []serial.Option{serial.WithPeriod(s.period), serial.WithLocation(s.zone), serial.WithDayStart(s.dayStart),
		serial.WithMaxSkew(-1), serial.WithYearStart(s.yearStart, s.yearDay), serial.WithStart(s.start),
		serial.WithTemplate(strings.Replace(print.template, "TAG", tag, 1))}
	if print.hidden != "" {
		opts = append(opts, serial.WithHiddenSequence([]byte(print.hidden)))
	}
	if s.ledger {
		opts = append(opts, serial.WithLedger(ledger, 3))
	}
	if s.shared {
		opts = append(opts, serial.WithSharedCounter())
	}
	return opts
}

func (s walkSetting) String() string {
	return fmt.Sprintf("%v %v day start %v year start %v %d, %q print %d start %d ledger %v shared %v",
		s.period, s.zone, s.dayStart, s.yearStart, s.yearDay, s.date, s.print, s.start, s.ledger, s.shared)
}

// A walk is a random way through settings, times and losses.
type walk struct {
	*rand.Rand
	t      *testing.T
	redis  *serialtest.Redis
	client redis.UniversalClient
	ledger *serialtest.Ledger
	zones  []*time.Location

	truth     time.Time     // never goes back
	newest    time.Time     // Redis's time when it was set last
	skew      time.Duration // of Redis's clock, at most farthest: a record must outlive a jump back
	back      bool          // Redis's clock has gone back
	lose      bool          // Redis may lose everything, since all processes have the ledger
	starts    bool          // processes differ only in their starts
	shared    bool          // all types share a counter, and all processes a calendar and a date
	procs     []*walker
	settings  []walkSetting     // every setting that a process has ever had
	calendars map[string]bool   // calendars of these settings
	typ       string            // of the last number issued, "" before
	texts     map[string]int    // step at which each was issued
	answer    *walkAnswer       // the last one, nil once Redis may have forgotten it
	used      map[string]int64  // the greatest sequence by type and label, which an honest operator finds
	latest    map[string]string // the latest period of each counter that a call may have entered
	begun     map[string]int    // number of series of each type that are over
	seen      map[string]bool   // series that were used
	unknown   map[string]bool   // series that had no counter, or a ledger that failed, since a number was issued
	prepared  map[string]bool   // periods that were prepared without a counter, and have no number yet
	trace     []string
	said      map[string]int // how often each outcome occurred
}

// Periods of two zones and day starts lie up to three days apart, the clock may be four days behind an earlier one, and
// a record lives for seven days.
const farthest = 2 * 24 * time.Hour

// A walkAnswer is the number that a request got.
type walkAnswer struct {
	typ, request, text string
	print              int       // of the process that asked
	given              time.Time // by Redis's clock
}

// A walker is a process: its settings and its generator.
type walker struct {
	walkSetting
	gen *serial.Generator
}

func (w *walk) setting() walkSetting {
	starts := []time.Month{time.January, time.January, time.April, time.July}
	period := serial.PerHour
	if w.IntN(3) > 0 {
		period = serial.Period(int(serial.PerSecond) + w.IntN(int(serial.Never-serial.PerSecond)+1))
	}
	return walkSetting{
		period: period, zone: w.zones[w.IntN(len(w.zones))],
		dayStart: []time.Duration{0, 0, 0, 4 * time.Hour, 23 * time.Hour}[w.IntN(5)], yearStart: starts[w.IntN(len(starts))],
		yearDay: 1 + 5*w.IntN(2), date: walkDates[w.IntN(len(walkDates))], print: w.IntN(len(walkPrints)),
		start: walkStarts[w.IntN(len(walkStarts))], ledger: w.lose || w.IntN(4) == 0,
		shared: w.shared,
	}
}

// walkStarts are starts that the numbers of another process reach soon, or never.
var walkStarts = []int64{1, 1, 4, 9, 30_000}

// mutate changes some of the settings.
func (w *walk) mutate(s walkSetting) walkSetting {
	if w.starts {
		s.start = w.setting().start
		return s
	}
	for range w.IntN(3) {
		other := w.setting()
		if w.shared { // another calendar or layout needs another key prefix or literal
			other.period, other.yearStart, other.yearDay, other.date = s.period, s.yearStart, s.yearDay, s.date
		}
		switch w.IntN(7) {
		case 0:
			s.period = other.period
		case 1:
			s.zone = other.zone
		case 2:
			s.dayStart = other.dayStart
		case 3:
			s.yearStart, s.yearDay = other.yearStart, other.yearDay
		case 4:
			s.print = other.print
		case 5:
			s.date, s.ledger = other.date, other.ledger
		case 6:
			s.start = other.start
		}
	}
	return s
}

// start makes processes whose settings are equal, except for a few.
func (w *walk) start() {
	w.procs = []*walker{{}, {}, {}, {}}
	for i, p := range w.procs {
		for p.gen == nil { // a layout may not distinguish the periods
			s := w.setting()
			if i > 0 {
				s = w.mutate(w.procs[i-1].walkSetting)
			}
			w.restart(p, s)
		}
	}
}

// restart starts a process again, unless its settings are refused.
func (w *walk) restart(p *walker, s walkSetting) {
	if gen, err := serial.New(w.client, s.options(w.ledger)...); err == nil {
		*p = walker{s, gen}
		w.settings, w.calendars[gen.Scheme().Calendar()] = append(w.settings, s), true
		w.note("process %d: %v", slices.Index(w.procs, p), s)
	}
}

func (w *walk) note(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf("%3d ", len(w.trace))+fmt.Sprintf(format, args...))
}

func (w *walk) now() time.Time { return w.truth.Add(w.skew) }

func (w *walk) setTime() {
	w.redis.SetTime(w.now())
	w.back, w.newest = w.back || w.now().Before(w.newest), w.now()
	if w.answer != nil && w.now().Sub(w.answer.given) >= 48*time.Hour {
		w.answer = nil
	}
	w.note("it is %s (%v off)", w.now().Format(time.RFC3339), w.skew)
}

// nextPeriod advances to about the beginning of a process's next period, unless it is far away.
func (w *walk) nextPeriod(p *walker, far, off time.Duration) {
	_, _, end := p.gen.Scheme().Period(serial.At(w.now()))
	if jump := end.Sub(w.now()); jump < far && jump+off > 0 {
		w.truth = w.truth.Add(jump + off)
		w.setTime()
	}
}

// tell records the outcome of a call.
func (w *walk) tell(what string, p *walker, typ string, issued []serial.Number, err error) bool {
	w.note("%s %s by %d: %v %v", what, typ, slices.Index(w.procs, p), issued, err)
	if what != "Peek" {
		w.latest[w.counted(typ)] = max(w.latest[w.counted(typ)], w.periodOf(p, typ))
	}
	if err != nil {
		w.unknown[w.counted(typ)] = w.unknown[w.counted(typ)] || strings.Contains(err.Error(), "the ledger of")
		for _, known := range []error{serial.ErrConflict, serial.ErrClockSkew, serial.ErrCounterLost, serial.ErrExhausted} {
			if errors.Is(err, known) {
				w.said[known.Error()]++
				return false
			}
		}
		require.NoError(w.t, err, "%s\n%s", what, strings.Join(w.trace, "\n"))
	}
	return true
}

// issue takes numbers, and checks their texts.
func (w *walk) issue(p *walker, typ string) bool {
	series, request, issued := w.series(typ), fmt.Sprint("request ", len(w.trace)), make([]serial.Number, 1)
	w.look(p, series)
	var err error
	what := []string{"NextNumber", "NextNumber", "NextN", "NextOnce"}[w.IntN(4)]
	switch what {
	case "NextNumber":
		issued[0], err = p.gen.NextNumber(w.t.Context(), series)
	case "NextN":
		issued, err = p.gen.NextN(w.t.Context(), series, 1+w.IntN(20)) // enough for collisions with other prints
	case "NextOnce":
		issued[0], err = p.gen.NextOnce(w.t.Context(), series, request)
	}
	if !w.tell(what, p, series, issued, err) {
		return false
	}
	w.follows(p, series, issued[0].Seq)
	for _, n := range issued {
		text := n.String()
		if w.shared { // two types must not have the same number either
			text = strings.TrimPrefix(text, series)
		}
		if before, twice := w.texts[text]; twice {
			require.Fail(w.t, "issued twice", "%s, first in step %d\n%s", n, before, strings.Join(w.trace, "\n"))
		}
		w.texts[text] = len(w.trace) - 1
		period := w.periodOf(p, series)
		w.used[period] = max(w.used[period], n.Seq)
		w.said["issued"]++
	}
	if what == "NextOnce" {
		w.answer = &walkAnswer{series, request, issued[0].String(), p.print, w.now()}
	}
	w.typ = typ
	return true
}

// follows requires that first, issued to a process, continues the numbers used in its period. Only the first number of
// a period may be the start of some process. With a ledger, losses skip some, and an operator skips as many as are used.
// After a loss, the start of whoever creates the counter counts again, if no larger sequence is known.
func (w *walk) follows(p *walker, series string, first int64) {
	befores := []int64{w.used[w.periodOf(p, series)]}
	// Between periods that were entered, a record may take others for used, and then their start does not count.
	if befores[0] == 0 && w.latest[w.counted(series)] == w.periodOf(p, series) {
		least := slices.MinFunc(w.settings, func(a, b walkSetting) int { return cmp.Compare(a.start, b.start) }).start
		require.GreaterOrEqual(w.t, first, least, "%s %s\n%s", series, w.now(), strings.Join(w.trace, "\n"))
	}
	if befores[0] == 0 || w.unknown[w.counted(series)] || w.prepared[w.periodOf(p, series)] {
		for _, s := range w.settings {
			befores = append(befores, s.start-1)
		}
	}
	skipped := int64(0)
	if w.hasLedger() {
		skipped = 100 + befores[0]
	}
	require.True(w.t, slices.ContainsFunc(befores, func(before int64) bool {
		return before < first && first <= before+1+skipped
	}), "%d after %v of %s %s\n%s", first, befores, series, w.now(), strings.Join(w.trace, "\n"))
	w.unknown[w.counted(series)] = false
	delete(w.prepared, w.periodOf(p, series))
}

// hasLedger reports whether any process has had the ledger.
func (w *walk) hasLedger() bool {
	return slices.ContainsFunc(w.settings, func(s walkSetting) bool { return s.ledger })
}

// peek has a process read the last number, which is the last one issued, whatever the start of that process. The start
// of a period that was prepared before the series went back is forgotten. If an operator raised a missing counter to less
// than that process's start, the period was opened at that start, and no number has been taken since.
func (w *walk) peek(p *walker, typ string) {
	series := w.series(typ)
	n, err := p.gen.Peek(w.t.Context(), series)
	if w.tell("Peek", p, series, []serial.Number{n}, err) && !w.hasLedger() { // a ledger may have skipped some
		last := []int64{w.used[w.periodOf(p, series)]}
		if last[0] == 0 && w.back {
			for _, s := range w.settings {
				last = append(last, s.start-1)
			}
		}
		if w.unknown[w.counted(series)] && slices.ContainsFunc(w.settings, func(s walkSetting) bool {
			return s.start-1 > last[0]
		}) {
			last = append(last, 0)
		}
		require.Contains(w.t, last, n.Seq, "%s %s\n%s", series, w.now(), strings.Join(w.trace, "\n"))
	}
}

// repeat has a process, perhaps with other settings, repeat the last request.
func (w *walk) repeat(p *walker) {
	a := w.answer
	if a == nil || walkPrints[a.print].hidden != "" && a.print != p.print { // without its key, there is no answer
		return
	}
	n, err := p.gen.NextOnce(w.t.Context(), a.typ, a.request)
	w.note("%s of %s again by %d: %v %v", a.request, a.typ, slices.Index(w.procs, p), n, err)
	require.Equal(w.t, a.text, n.String(), "%v\n%s", err, strings.Join(w.trace, "\n"))
	w.said["repeated"]++
}

// issueOn issues in several periods in a row, some with a new print, and has an operator help where that fails.
func (w *walk) issueOn(p *walker, typ string, periods int) {
	for range periods {
		if w.IntN(8) == 0 {
			s := p.walkSetting
			s.print = w.IntN(len(walkPrints))
			w.restart(p, s)
		}
		if !w.issue(p, typ) {
			w.operate(p, typ, w.IntN(2) == 0)
		}
		w.nextPeriod(p, 40*24*time.Hour, 0)
	}
}

// goWest has a process take over after a series of periods, in a time zone so far west that some of them recur.
func (w *walk) goWest(p *walker, typ string) {
	run := 2 + w.IntN(4)
	w.issueOn(p, typ, run)
	_, start, end := p.gen.Scheme().Period(serial.At(w.now()))
	_, east := start.Zone()
	offset := east - int(min(time.Duration(1+w.IntN(run))*end.Sub(start), 48*time.Hour).Seconds())
	if offset < -35*60*60 { // with day starts, no two zones are farther apart
		return
	}
	s := p.walkSetting
	s.zone = time.FixedZone(fmt.Sprint("west", offset), offset)
	p = w.procs[w.IntN(len(w.procs))]
	w.restart(p, s)
	w.operate(p, typ, true)
	w.issueOn(p, typ, run)
}

// runAhead has a clock that is ahead use periods, and sets it back. The last counter is lost, and the next period
// is prepared.
func (w *walk) runAhead(p *walker, typ string) {
	if p.period == serial.PerSecond || p.period == serial.Never { // calls wait for a clock seconds behind
		return
	}
	back, ahead := w.skew, 1+w.IntN(3)
	w.issue(p, typ)
	for range ahead {
		_, _, end := p.gen.Scheme().Period(serial.At(w.now()))
		w.skew = min(w.skew+end.Sub(w.now()), farthest)
		w.setTime()
		w.issue(p, typ)
	}
	last, _, _ := p.gen.Scheme().Period(serial.At(w.now()))
	w.skew = back
	w.setTime()
	w.restart(p, p.walkSetting) // it remembers nothing
	w.operate(p, typ, false)
	w.loseCounter(typ, last)
	w.prepare(p, typ)
	w.issueOn(p, typ, ahead+1)
}

func (w *walk) loseCounter(typ, label string) {
	typ = w.series(typ)
	require.NoError(w.t, w.client.Del(w.t.Context(), "serial:{"+w.counted(typ)+"}:"+label).Err())
	w.note("the counter of %s in %s is lost", typ, label)
}

func (w *walk) prepare(p *walker, typ string) {
	typ = w.series(typ)
	w.look(p, typ)
	_, _, end := p.gen.Scheme().Period(serial.At(w.now()))
	if next, _, _ := p.gen.Scheme().Period(serial.At(end)); next != "" && !w.hasCounter(typ, next) {
		w.prepared[w.counted(typ)+" "+next] = true
	}
	w.tell("Prepare", p, typ, nil, p.gen.Prepare(w.t.Context(), typ))
}

// operate has an honest operator raise or take over.
func (w *walk) operate(p *walker, typ string, takeover bool) {
	typ = w.series(typ)
	w.look(p, typ)
	what, do := "Raise", p.gen.Raise
	if takeover {
		what, do = "Takeover", p.gen.Takeover
	}
	err := do(w.t.Context(), typ, w.used[w.periodOf(p, typ)])
	if w.tell(what, p, typ, nil, err) {
		w.said[what]++
	}
}

// look notes whether the counter of a type's current period is missing.
func (w *walk) look(p *walker, typ string) {
	label, _, _ := p.gen.Scheme().Period(serial.At(w.now()))
	w.unknown[w.counted(typ)] = w.unknown[w.counted(typ)] || !w.hasCounter(typ, label)
}

func (w *walk) hasCounter(typ, label string) bool {
	return w.client.Exists(w.t.Context(), "serial:{"+w.counted(typ)+"}:"+label).Val() == 1
}

// counted returns the type that a type counts as.
func (w *walk) counted(typ string) string {
	if w.shared {
		return "*"
	}
	return typ
}

// periodOf names the current period of a type by the settings of a process.
func (w *walk) periodOf(p *walker, typ string) string {
	label, _, _ := p.gen.Scheme().Period(serial.At(w.now()))
	return w.counted(typ) + " " + label
}

// series returns the name of a type's current series: a new one where its record has expired and not all processes use
// one calendar. Only a ledger can distinguish a series that was unused for so long from a new one.
func (w *walk) series(typ string) string {
	name := fmt.Sprint(typ, "-", w.begun[typ])
	record := "serial:{" + w.counted(name) + "}"
	if !w.lose && len(w.calendars) > 1 && w.seen[name] && w.client.Exists(w.t.Context(), record).Val() == 0 {
		w.begun[typ]++
	}
	name = fmt.Sprint(typ, "-", w.begun[typ])
	w.seen[name] = true
	return name
}

func (w *walk) step() {
	p := w.procs[w.IntN(len(w.procs))]
	typ := []string{"B", "B", "B", "B1"}[w.IntN(4)]
	switch w.IntN(18) {
	case 0, 1: // to a boundary
		w.nextPeriod(p, 400*24*time.Hour, time.Duration(w.IntN(3)-1)*time.Minute)
	case 2:
		w.truth = w.truth.Add(time.Duration(w.Int64N(int64(36 * time.Hour))))
		w.setTime()
	case 3:
		w.truth = w.truth.Add(time.Duration(w.Int64N(int64(40 * 24 * time.Hour))))
		w.setTime()
	case 4:
		w.skew = time.Duration(w.Int64N(int64(2*farthest))) - farthest
		w.setTime()
	case 5:
		w.skew = 0
		w.setTime()
	case 6:
		w.operate(p, typ, false)
	case 7:
		w.operate(p, typ, true)
	case 8:
		if p.period != serial.Never {
			w.prepare(p, typ)
		}
	case 9: // restarts with settings close to another's
		w.restart(p, w.mutate(w.procs[w.IntN(len(w.procs))].walkSetting))
	case 10:
		label, _, _ := p.gen.Scheme().Period(serial.At(w.now()))
		w.loseCounter(typ, label)
	case 11:
		if w.lose {
			w.redis.Lose()
			w.answer = nil
			w.note("everything is lost")
		}
	case 12:
		w.repeat(p)
		w.peek(p, typ)
	case 13:
		if w.IntN(2) == 0 {
			w.goWest(p, typ)
		} else {
			w.runAhead(p, typ)
		}
	default:
		for range 1 + w.IntN(3) {
			w.issue(p, typ)
			if w.IntN(4) == 0 {
				w.nextPeriod(p, 25*time.Hour, 0)
			}
		}
	}
}

// Settings, clocks and losses change at random, and operators are honest: no text is issued twice, and nothing gets
// stuck. The reader knows only the texts.
// Guarantees: all-at-random.
func TestWalk(t *testing.T) {
	t.Parallel()
	long := 3 * time.Second
	if os.Getenv("SERIAL_TEST_LONG") == "1" {
		long = time.Minute
	}
	if given := soak(t); given > 0 {
		long = given
	}
	r := serialtest.NewRedis(t, time.Now())
	client := r.Client()
	var zones []*time.Location
	for _, name := range []string{"UTC", "Asia/Tokyo", "Europe/Berlin", "America/New_York", "Pacific/Kiritimati",
		"Pacific/Pago_Pago"} {
		zone, err := time.LoadLocation(name)
		require.NoError(t, err)
		zones = append(zones, zone)
	}
	first := seed(t)
	said := map[string]int{}
	walks := uint64(0)
	const least = 20 // walks until every outcome must have occurred
	for began := time.Now(); walks < least || time.Since(began) < long; walks++ {
		r.Lose()
		w := &walk{Rand: rand.New(rand.NewPCG(first, walks)), t: t, redis: r, client: client, ledger: new(serialtest.Ledger),
			zones: zones, texts: map[string]int{}, used: map[string]int64{}, latest: map[string]string{},
			begun: map[string]int{}, seen: map[string]bool{}, unknown: map[string]bool{}, prepared: map[string]bool{},
			calendars: map[string]bool{}, said: said}
		w.lose, w.starts, w.shared = w.IntN(3) == 0, w.IntN(3) == 0, w.IntN(3) == 0
		w.truth = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(w.Int64N(int64(800 * 24 * time.Hour))))
		w.note("walk %d of seed %d", walks, first)
		w.start()
		w.setTime()
		for range 60 {
			w.step()
		}
		if w.typ != "" { // somebody can issue again once the clocks agree, if necessary after an operator has helped
			w.skew = 0
			// At a whole second: a printed period must not end before a script has reached a clock that stands still.
			w.truth = w.truth.Add(4 * 24 * time.Hour).Truncate(time.Second)
			w.setTime()
			goesOn := slices.ContainsFunc(w.settings, w.goesOn)
			// Blocks and high starts may use up a period that never ends.
			full := strings.Contains(w.trace[len(w.trace)-1], "numbers exhausted: "+w.typ) && w.procs[0].period == serial.Never
			require.True(t, goesOn || full, "stuck\n%s", strings.Join(w.trace, "\n"))
		}
	}
	t.Logf("%d walks: %v", walks, said)
	for _, outcome := range []string{"issued", "repeated", "Raise", "Takeover", serial.ErrConflict.Error(),
		serial.ErrClockSkew.Error(), serial.ErrCounterLost.Error()} {
		require.Positive(t, said[outcome], outcome)
	}
}

// goesOn reports whether a process with these settings can continue to issue.
func (w *walk) goesOn(s walkSetting) bool {
	gen, err := serial.New(w.client, s.options(w.ledger)...)
	require.NoError(w.t, err)
	p := &walker{s, gen}
	if w.issue(p, w.typ) {
		return true
	}
	w.operate(p, w.typ, true)
	return w.issue(p, w.typ)
}
