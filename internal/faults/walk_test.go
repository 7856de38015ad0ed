//go:build unix

package faults

import (
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

// A walkSetting is all that decides about periods and texts.
type walkSetting struct {
	period    serial.Period
	zone      *time.Location
	dayStart  time.Duration
	yearStart time.Month
	yearDay   int
	date      string // layout
	print     int    // index of walkPrints
	ledger    bool
}

// walkPrints print a sequence in ways of which no two print every sequence differently. A date layout has a literal of its own: texts
// of different layouts are for users to keep apart.
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

var walkDates = []string{"yyyyMMdd", "yyyyMM", "FFFFMM", "FFFFQ", "FFFF", "GGGGWW", "yyyy", "yyyyMMddHH", "yyyyMMddHHmm", "FFFFMMdd", "yyyyDDD", ""}

func (s walkSetting) options(ledger serial.Ledger) []serial.Option {
	tag := "{type}" + string(rune('a'+slices.Index(walkDates, s.date)))
	if s.date != "" {
		tag += "{date:" + s.date + "}"
	}
	print := walkPrints[s.print]
	opts := []serial.Option{serial.WithPeriod(s.period), serial.WithLocation(s.zone), serial.WithDayStart(s.dayStart), serial.WithMaxSkew(-1),
		serial.WithYearStart(s.yearStart, s.yearDay), serial.WithTemplate(strings.Replace(print.template, "TAG", tag, 1))}
	if print.hidden != "" {
		opts = append(opts, serial.WithHiddenSequence([]byte(print.hidden)))
	}
	if s.ledger {
		opts = append(opts, serial.WithLedger(ledger, 3))
	}
	return opts
}

// A walk is a random way through settings, times and losses.
type walk struct {
	*rand.Rand
	t      *testing.T
	redis  *serialtest.Redis
	client redis.UniversalClient
	ledger *serialtest.Ledger
	zones  []*time.Location

	truth    time.Time     // never goes back
	skew     time.Duration // of Redis's clock, at most three days: its record outlives the way back
	lose     bool          // Redis may lose everything, since all have the ledger
	procs    []*walker
	settings []walkSetting    // all that a process ever had
	typ      string           // of the last number issued, "" before
	texts    map[string]int   // step at which each was issued
	used     map[string]int64 // the greatest sequence by type and label, which an honest operator finds
	begun    map[string]int   // how many series of each type are over
	seen     map[string]bool  // series that were used
	trace    []string
	said     map[string]int // how often each outcome came
}

// A walker is a process: settings, and what they make.
type walker struct {
	walkSetting
	gen *serial.Generator
}

func (w *walk) setting() walkSetting {
	starts := []time.Month{time.January, time.January, time.April, time.July}
	period := serial.PerHour
	if w.IntN(3) > 0 {
		period = serial.Period(int(serial.PerMinute) + w.IntN(int(serial.Never-serial.PerMinute)+1))
	}
	return walkSetting{
		period: period, zone: w.zones[w.IntN(len(w.zones))],
		dayStart: []time.Duration{0, 0, 0, 4 * time.Hour, 23 * time.Hour}[w.IntN(5)], yearStart: starts[w.IntN(len(starts))], yearDay: 1 + 5*w.IntN(2),
		date: walkDates[w.IntN(len(walkDates))], print: w.IntN(len(walkPrints)), ledger: w.lose || w.IntN(4) == 0,
	}
}

// mutate changes some of the settings.
func (w *walk) mutate(s walkSetting) walkSetting {
	for range w.IntN(3) {
		other := w.setting()
		switch w.IntN(6) {
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
		}
	}
	return s
}

// start makes processes whose settings are alike, but for a few.
func (w *walk) start() {
	var base *walkSetting
	for len(w.procs) < 4 {
		s := w.setting()
		if base != nil {
			s = w.mutate(*base)
		}
		gen, err := serial.New(w.client, s.options(w.ledger)...)
		if err != nil { // a layout that does not tell the periods apart
			continue
		}
		base = &s
		w.procs, w.settings = append(w.procs, &walker{s, gen}), append(w.settings, s)
	}
	for i, p := range w.procs {
		w.note("process %d: %v %v day start %v year start %v %d, %q print %d ledger %v", i, p.period, p.zone, p.dayStart, p.yearStart, p.yearDay,
			p.date, p.print, p.ledger)
	}
}

func (w *walk) note(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf("%3d ", len(w.trace))+fmt.Sprintf(format, args...))
}

func (w *walk) now() time.Time { return w.truth.Add(w.skew) }

func (w *walk) setTime() {
	w.redis.SetTime(w.now())
	w.note("it is %s (%v off)", w.now().Format(time.RFC3339), w.skew)
}

// tell records the outcome of a call.
func (w *walk) tell(what string, p *walker, typ string, n serial.Number, err error) bool {
	w.note("%s %s by %d: %v %v", what, typ, slices.Index(w.procs, p), n, err)
	if err != nil {
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

// issue takes a number, and reads it.
func (w *walk) issue(p *walker, typ string) bool {
	n, err := p.gen.NextNumber(w.t.Context(), typ)
	if !w.tell("Next", p, typ, n, err) {
		return false
	}
	text := n.String()
	if before, twice := w.texts[text]; twice {
		require.Fail(w.t, "issued twice", "%s, first in step %d\n%s", text, before, strings.Join(w.trace, "\n"))
	}
	w.texts[text] = len(w.trace) - 1
	label, _, _ := p.gen.Scheme().Period(w.now())
	w.used[typ+" "+label] = max(w.used[typ+" "+label], n.Seq)
	w.typ, _, _ = strings.Cut(typ, "-")
	w.said["issued"]++
	return true
}

// operate has an honest operator raise or take over.
func (w *walk) operate(p *walker, typ string, takeover bool) {
	label, _, _ := p.gen.Scheme().Period(w.now())
	what, do := "Raise", p.gen.Raise
	if takeover {
		what, do = "Takeover", p.gen.Takeover
	}
	err := do(w.t.Context(), typ, w.used[typ+" "+label])
	if w.tell(what, p, typ, serial.Number{}, err) {
		w.said[what]++
	}
}

// series is the name of a series of a type: another one where its record has expired and not all count by one calendar. Nothing but a
// ledger tells a series that was unused for so long from a new one.
func (w *walk) series(typ string) string {
	calendar := w.procs[0].gen.Scheme().Calendar()
	same := !slices.ContainsFunc(w.procs, func(p *walker) bool { return p.gen.Scheme().Calendar() != calendar })
	if name := fmt.Sprint(typ, "-", w.begun[typ]); !w.lose && !same && w.seen[name] && w.client.Exists(w.t.Context(), "serial:{"+name+"}").Val() == 0 {
		w.begun[typ]++
	}
	name := fmt.Sprint(typ, "-", w.begun[typ])
	w.seen[name] = true
	return name
}

func (w *walk) step() {
	p := w.procs[w.IntN(len(w.procs))]
	typ := w.series([]string{"B", "B", "B", "B1"}[w.IntN(4)])
	switch w.IntN(16) {
	case 0, 1: // to a border
		_, _, end := p.gen.Scheme().Period(w.now())
		if jump := end.Sub(w.now()); jump > 0 && jump < 400*24*time.Hour {
			w.truth = w.truth.Add(jump + time.Duration(w.IntN(3)-1)*time.Minute)
		}
		w.setTime()
	case 2:
		w.truth = w.truth.Add(time.Duration(w.Int64N(int64(36 * time.Hour))))
		w.setTime()
	case 3:
		w.truth = w.truth.Add(time.Duration(w.Int64N(int64(40 * 24 * time.Hour))))
		w.setTime()
	case 4:
		w.skew = time.Duration(w.Int64N(int64(6*24*time.Hour))) - 3*24*time.Hour
		w.setTime()
	case 5:
		w.skew = 0
		w.setTime()
	case 6:
		w.operate(p, typ, false)
	case 7:
		w.operate(p, typ, true)
	case 8:
		if p.period == serial.Never {
			return
		}
		w.tell("Prepare", p, typ, serial.Number{}, p.gen.Prepare(w.t.Context(), typ, 1+w.IntN(3)))
	case 9: // the process starts again, perhaps with another zone, day start, print or ledger
		s, other := p.walkSetting, w.setting()
		switch w.IntN(6) {
		case 0:
			s.zone = other.zone
		case 1:
			s.dayStart = other.dayStart
		case 2:
			s.print = other.print
		case 3:
			s.ledger = other.ledger
		}
		if gen, err := serial.New(w.client, s.options(w.ledger)...); err == nil {
			*p = walker{s, gen}
			w.settings = append(w.settings, s)
			w.note("process %d: %+v", slices.Index(w.procs, p), s)
		}
	case 10:
		label, _, _ := p.gen.Scheme().Period(w.now())
		require.NoError(w.t, w.client.Del(w.t.Context(), "serial:{"+typ+"}:"+label).Err())
		w.note("the counter of %s in %s is lost", typ, label)
	case 11:
		if w.lose {
			w.redis.Lose()
			w.note("everything is lost")
		}
	default:
		for range 1 + w.IntN(3) {
			w.issue(p, typ)
			if w.IntN(4) == 0 { // the next period
				_, _, end := p.gen.Scheme().Period(w.now())
				if jump := end.Sub(w.now()); jump > 0 && jump < 25*time.Hour {
					w.truth = w.truth.Add(jump)
					w.setTime()
				}
			}
		}
	}
}

// Settings, clocks and losses change at random, and operators are honest: no text comes twice, and nothing is stuck. The reader knows
// texts only.
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
	for _, name := range []string{"UTC", "Asia/Tokyo", "Europe/Berlin", "America/New_York", "Pacific/Kiritimati", "Pacific/Pago_Pago"} {
		zone, err := time.LoadLocation(name)
		require.NoError(t, err)
		zones = append(zones, zone)
	}
	first := seed(t)
	said := map[string]int{}
	walks := uint64(0)
	const least = 50 // walks in which every outcome comes
	for began := time.Now(); walks < least || time.Since(began) < long; walks++ {
		r.Lose()
		w := &walk{Rand: rand.New(rand.NewPCG(first, walks)), t: t, redis: r, client: client, ledger: new(serialtest.Ledger), zones: zones,
			texts: map[string]int{}, used: map[string]int64{}, begun: map[string]int{}, seen: map[string]bool{}, said: said}
		w.lose = w.IntN(3) == 0
		w.truth = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(w.Int64N(int64(800 * 24 * time.Hour))))
		w.note("walk %d of seed %d", walks, first)
		w.start()
		w.setTime()
		for range 60 {
			w.step()
		}
		if w.typ != "" { // somebody issues on as soon as clocks agree, if need be after a word of an operator
			w.skew = 0
			w.truth = w.truth.Add(4 * 24 * time.Hour)
			w.setTime()
			require.True(t, slices.ContainsFunc(w.settings, w.goesOn), "stuck\n%s", strings.Join(w.trace, "\n"))
		}
	}
	t.Logf("%d walks: %v", walks, said)
	for _, outcome := range []string{"issued", "Raise", "Takeover", serial.ErrConflict.Error(), serial.ErrClockSkew.Error(), serial.ErrCounterLost.Error()} {
		require.Positive(t, said[outcome], outcome)
	}
}

// goesOn reports whether a process with these settings can issue on.
func (w *walk) goesOn(s walkSetting) bool {
	gen, err := serial.New(w.client, s.options(w.ledger)...)
	require.NoError(w.t, err)
	p, typ := &walker{s, gen}, w.series(w.typ)
	if w.issue(p, typ) {
		return true
	}
	w.operate(p, typ, true)
	return w.issue(p, typ)
}
