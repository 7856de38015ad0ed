package series

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/internal/race"
	"github.com/dailyserial/serial/internal/redistest"
	redismemory "github.com/dailyserial/serial/internal/redistest/memory"
)

// A caller is a process with its settings.
type caller struct {
	dayStart      int64 // seconds after midnight, UTC
	mark          string
	ledger, floor bool
	base          int64
	seen          map[string]int64 // high-water mark by label; nil for a process that remembers nothing
}

// A day is a period without the settings of its series.
type day struct {
	label       string
	first, past int64
}

// day returns the period of a caller at a time.
func (c *caller) day(now int64) day {
	at := time.Unix(now-c.dayStart, 0).UTC().Truncate(24 * time.Hour)
	return day{at.Format("20060102"), at.Unix() + c.dayStart, at.Unix() + c.dayStart + 86400}
}

func (d day) String() string { return bounds(d.label, d.first, d.past) }

func settings(mark string, ledger bool) string {
	return " days" + version + " #" + mark + map[bool]string{true: " ledger"}[ledger]
}

// A model has the state that a record should have. Its methods implement the rules of docs/design.md.
type model struct {
	entered, ahead    day
	mark              string
	ledger            bool
	start, startAhead int64     // sequence before the first one of the current period, and of the prepared ones
	jump, run         [2]string // last jump and doubtful run
	printed, reserved string    // labels from which on the print mark is the present one, and numbers are in a ledger
	ceiling           int64
	copied, id        string
	wrote, opened     bool  // the request writes, and it opens a period or raises its counter
	reply             Reply // expected reply
}

// greatest returns the largest label that was ever used.
func (m *model) greatest() string { return max(m.entered.label, m.run[1]) }

// known reports whether a label may have been used.
func (m *model) known(label string) bool {
	inRun := m.run[0] != "" && m.run[0] <= label && label <= m.run[1]
	jumpedOver := m.jump[0] < label && label < m.jump[1]
	return inRun || label <= m.entered.label && !jumpedOver
}

// judge returns the state of the period of a caller, or the status of the rejection.
func (m *model) judge(s *sent, now int64) (state string, refusal Status) {
	conflict := false
	switch purpose := s.options.Purpose; {
	case now < s.first || now >= s.past:
		return "", clocked
	case m.entered.label == "":
		return "open", ""
	case m.entered == s.day && m.mark == s.mark && (s.ledger || !m.ledger):
		return "same", ""
	case m.entered.first > now && purpose == "":
		return "", Future
	case m.entered.first > now:
		state = "future"
	case m.entered.past <= s.first && m.entered.label < s.label && m.ahead == s.day:
		state = "ahead"
	case m.entered.past <= s.first && m.entered.label < s.label:
		state, conflict = "open", m.ahead.past > s.first
	default:
		conflict = true
	}
	switch {
	case m.mark != s.mark && s.label <= m.greatest(), s.label < m.printed && m.known(s.label):
		return "", OtherPrint
	case conflict && s.options.Purpose != ForTakeover, s.options.Keep && m.ledger:
		return "", Conflict
	case conflict:
		state = "taken"
	}
	return state, ""
}

// enter makes the period of a caller the current one.
func (m *model) enter(s *sent, state string, start int64) {
	greatest, old := m.greatest(), m.entered
	switch {
	case old.label == "" || state == "same":
	case s.label < old.label:
		from := s.label
		if m.jump[0] <= s.label && s.label < m.jump[1] {
			from = m.jump[1]
		}
		if m.run[0] != "" {
			from = min(from, m.run[0])
		}
		m.run, m.jump = [2]string{from, greatest}, [2]string{}
	case s.label > old.label && old.past != s.first:
		m.jump = [2]string{old.label, s.label}
	}
	if state == "future" || state == "taken" || state != "same" && m.ahead.first < s.past {
		m.ahead, m.startAhead = day{}, 0
	}
	if old.label != "" && m.mark != s.mark {
		m.printed = s.label
	}
	switch {
	case !s.ledger:
		m.reserved = ""
	case m.reserved == "" && s.label < greatest:
		m.reserved = greatest + "+"
	case m.reserved == "":
		m.reserved = s.label
	}
	m.entered, m.mark, m.ledger, m.start = s.day, s.mark, s.ledger, start
}

// record returns the fields that the record in Redis must have.
func (m *model) record() map[string]string {
	first := func(start int64) string {
		if start == 0 {
			return ""
		}
		return fmt.Sprint(start + 1)
	}
	if m.entered.label == "" {
		return nil
	}
	fields := map[string]string{"entered": m.entered.String() + settings(m.mark, m.ledger), "print": m.printed,
		"first": first(m.start), "ahead": strings.TrimSpace(m.ahead.String()), "firstAhead": first(m.startAhead),
		"jump": strings.TrimSpace(m.jump[0] + " " + m.jump[1]), "doubtful": strings.TrimSpace(m.run[0] + " " + m.run[1]),
		"ledger": m.reserved}
	if m.ahead.label == "" {
		delete(fields, "ahead")
	}
	if m.ledger {
		fields["ceiling"], fields["counterCopy"], fields["replID"] = fmt.Sprint(m.ceiling), m.copied, m.id
	}
	maps.DeleteFunc(fields, func(_, field string) bool { return field == "" })
	return fields
}

// A sent is a request for one run of serial.lua. It can be sent again.
type sent struct {
	*caller
	day
	n, limit, highWater int64
	options             options
	next                day // for Prepare
}

var sequence = regexp.MustCompile(`^(0|[1-9]\d*)$`)

// expect changes the model as a request must change the record, and returns the expected status of the reply. content
// is the content of the counter, and next that of the counter of the next period. Either is "" if the counter is
// missing.
func (m *model) expect(s *sent, now int64, id, content, next string) Status {
	o, g := s.options, s.options.Grant
	state, refusal := m.judge(s, now)
	if refusal != "" {
		return refusal
	}
	last, _ := strconv.ParseInt(sequence.FindString(content), 10, 64)
	opened, start := state == "ahead" || m.entered.label == s.label, m.start
	if state == "ahead" {
		start = m.startAhead
	}
	existed := state == "same" || state == "ahead" || s.highWater > 0 || content != "" || m.known(s.label)
	lost := existed && (!sequence.MatchString(content) || last < s.highWater)
	intact := s.ledger && m.ledger && state == "same" && m.copied == content && m.id == id && !lost
	repairable := s.ledger && m.ledger // the first block of a period is above its counter
	if state != "same" {
		repairable = s.ledger && (m.reserved != "" && s.label >= m.reserved || !m.known(s.label))
	}
	entered, ceiling := m.record()["entered"], int64(-1)
	if s.ledger && m.ledger && state == "same" {
		ceiling = m.ceiling
	}
	unused := content == "" && !lost
	r := &m.reply
	r.Lost, r.Starts, r.Closed, r.Intact = lost, (unused || lost) && !opened, state != "same", intact
	r.Exists, r.Mixed, r.Ceiling, r.Entered = content != "", m.entered.label != "" && !m.ledger, ceiling, entered
	if r.Last = last; !sequence.MatchString(content) {
		r.Last = -1
	}
	if !unused {
		r.Above = max(ceiling, last, s.highWater)
	}
	if lost && opened {
		r.Above = max(r.Above, start)
	}
	switch {
	case o.Next != nil:
		return m.prepare(s, state, next)
	case o.Purpose != "" && g == nil && last < o.Seq:
		return missing
	case o.Purpose == "" && lost && !repairable && (g == nil || g.Floor == nil):
		return Lost
	case g != nil && (now*1000 < g.Checked || now*1000 >= g.Checked+g.Lease || s.ledger && g.Block == nil):
		return stale
	case g != nil && g.Block != nil &&
		(g.Entered != entered || g.Ceiling != ceiling || g.ID != id || g.Exists != (content != "")):
		return stale
	case g != nil && (o.Purpose != "" || state != "same" || lost || g.Floor != nil || g.Block != nil):
		if !opened {
			start = g.Base
		}
		return m.open(s, state, last, start, content, opened, lost, intact)
	case lost || state != "same" && (state != "ahead" || o.Far):
		return missing
	case s.ledger && !intact && state == "same" && max(last, s.highWater)+s.n > s.limit:
		return Exhausted
	case s.ledger && !intact:
		return missing
	case s.n > 0 && (last >= s.limit || o.All && last+s.n > s.limit):
		return Exhausted
	case s.n > 0 && s.ledger && (last >= ceiling || o.All && last+s.n > ceiling):
		return missing
	}
	if m.wrote = true; state == "ahead" {
		m.enter(s, state, m.startAhead)
	}
	if s.ledger {
		m.copied = fmt.Sprint(max(last, min(last+s.n, s.limit, ceiling)))
	}
	return Issued
}

// open is expect for a valid grant.
func (m *model) open(s *sent, state string, last, start int64, content string, opened, lost, intact bool) Status {
	g := s.options.Grant
	used, before := max(last, s.highWater), last
	if lost || content == "" {
		used, before = max(used, start), max(before, start)
	}
	if copied, _ := strconv.ParseInt(m.copied, 10, 64); lost || s.options.Purpose != "" && s.ledger && m.ledger &&
		m.entered.label == s.label && copied > last {
		before = -1
	}
	if g.Floor != nil {
		used = max(used, *g.Floor)
	}
	if b := g.Block; b != nil {
		if !intact || b[0] != m.ceiling {
			used = max(used, b[0])
		}
		switch full := used+s.n > s.limit; {
		case full && intact && last < m.ceiling && s.options.Purpose == "":
			return Exhausted
		case !full && used+s.n > b[1]:
			return stale
		}
		if m.ceiling, m.id = b[1], g.ID; used > s.limit {
			used = max(s.limit, last)
			m.ceiling = used
		}
	}
	if !opened && content != "" && !lost && last <= start {
		start = 0 // it had a lower start
	}
	m.wrote, m.opened = true, true
	m.enter(s, state, start)
	m.copied = fmt.Sprint(used)
	full := s.n > 0 && used+s.n > s.limit
	if used > before || full {
		m.reply.From, m.reply.Upto = before, used
	}
	if full {
		return Exhausted
	}
	m.copied = fmt.Sprint(used + s.n)
	return Issued
}

// prepare is expect for a request that Prepare sends.
func (m *model) prepare(s *sent, state, content string) Status {
	o, g := s.options.Next, s.options.Grant
	used, lost := m.ahead == s.next || content != "" || m.known(s.next.label), !sequence.MatchString(content)
	switch {
	case state != "same":
		return stale
	case m.ahead.label != "" && m.ahead != s.next, m.ahead.label == "" && m.entered.past != s.next.first:
		return Conflict
	case m.ahead != s.next && !o.Compared, lost && g == nil && o.HasFloor:
		return missing
	case lost && g == nil && used:
		return Lost
	}
	m.wrote, m.opened = true, true
	if m.ahead != s.next {
		if m.ahead = s.next; !used {
			m.startAhead = o.Base
		}
	}
	if m.reply.Last, _ = strconv.ParseInt(sequence.FindString(content), 10, 64); lost {
		m.reply.Last = m.startAhead
	}
	if g != nil {
		m.reply.Last = max(m.reply.Last, *g.Floor)
	}
	return Issued
}

// A history is a series on a server, with a model of its record and with the facts that the server cannot know.
type history struct {
	*rand.Rand
	t          *testing.T
	m          *miniredis.Miniredis
	rdb        *redis.Client
	restart    func()
	restarts   int
	now, right int64            // time by the server's clock, and by a right one
	used       map[string]bool  // numbers returned: label and sequence
	last       map[string]int64 // last sequence used, by label
	ledger     map[string]int64 // last sequence reserved, by label
	model      model
	home       *caller // its settings are the usual ones for now
	old        []*sent // requests with a grant
	log        []string
	seen       map[string]int
}

func counterOf(label string) string { return "serial:{IS}:" + label }

// content returns the content of a counter, or "" if it is missing.
func (h *history) content(label string) string {
	h.m.Exists(counterOf(label))
	return h.rdb.Get(h.t.Context(), counterOf(label)).Val()
}

// isOver reports whether the record has expired, which happens after a week.
func (h *history) isOver() bool { return h.model.entered.label != "" && !h.m.Exists("serial:{IS}") }

// run runs a request, compares the result with the model, and returns the reply. If the history is over, it does
// nothing.
func (h *history) run(s *sent) Reply {
	if h.isOver() {
		return Reply{}
	}
	o, g, record := s.options, s.options.Grant, "serial:{IS}"
	text, err := json.Marshal(o)
	require.NoError(h.t, err)
	options := string(text)
	if g == nil && o.Purpose == "" && o.Next == nil && h.IntN(2) == 0 { // the usual form, which has a path of its own
		options = map[bool]string{true: "a"}[o.All] + map[bool]string{true: "f"}[o.Far]
	}
	before, content, next := h.m.Dump(), h.content(s.label), h.content(s.next.label)
	h.model.wrote, h.model.opened, h.model.reply = false, false, Reply{}
	key := counterOf(cmp.Or(s.next.label, s.label)) // of the counter that may be written
	end := time.Duration(max(s.past, s.next.past)+5*86400-h.now) * time.Second
	recordLives, lives := h.m.TTL(record), h.m.TTL(key)
	want := h.model.expect(s, h.now, fmt.Sprintf("%040x", h.restarts), content, next)
	value, err := h.rdb.Eval(h.t.Context(), SerialScript.Source, []string{counterOf(s.label), record,
		counterOf(s.next.label)}, s.day.String()+settings(s.mark, s.ledger), s.first, s.past, s.limit, s.past+5*86400, s.n,
		s.highWater, options).Result()
	h.log = append(h.log, fmt.Sprintf("%v: %v %+v n=%d limit=%d high=%d %s on %q: %v %v, want %s",
		time.Unix(h.now, 0).UTC(), s.day, *s.caller, s.n, s.limit, s.highWater, options, content, value, err, want))
	trace := strings.Join(h.log[max(0, len(h.log)-30):], "\n")
	require.NoError(h.t, err, trace)
	r, err := digest(value, int(s.n))
	require.NoError(h.t, err, trace)
	expected, got := h.model.reply, Reply{Status: r.Status, Found: r.Found, Last: r.Last, From: r.From, Upto: r.Upto}
	expected.Status, expected.ID = want, r.ID
	if s.next.label != "" || want != missing && want != Lost { // such a reply does not have the other fields
		expected.Found, expected.Last, got.Found, got.Last = Found{}, 0, Found{}, 0
	}
	require.Equal(h.t, expected, got, trace)
	h.seen[strings.TrimSpace(string(want)+" "+o.Purpose)]++
	if !h.model.wrote {
		require.Equal(h.t, before, h.m.Dump(), trace)
		return r
	}
	require.Equal(h.t, h.model.record(), h.rdb.HGetAll(h.t.Context(), record).Val(), trace)
	if lives <= 0 || h.model.opened && (lives < end || recordLives == 0) { // no key may expire earlier than before
		lives = end
	}
	require.Equal(h.t, lives, h.m.TTL(key), trace)
	if h.model.opened {
		week := time.Duration(max(h.model.entered.past, h.model.ahead.past)+7*86400-h.now) * time.Second
		require.Equal(h.t, max(recordLives, week), h.m.TTL(record), trace)
	}
	if s.next.label != "" {
		require.Equal(h.t, h.model.reply.Last, r.Last, trace)
		return r
	}
	h.check(s, r, content, trace)
	return r
}

// check checks the counter after a request has written, and the sequences that it returned.
func (h *history) check(s *sent, r Reply, content, trace string) {
	was, _ := strconv.ParseInt(sequence.FindString(content), 10, 64)
	after, err := strconv.ParseInt(h.content(s.label), 10, 64)
	require.NoError(h.t, err, trace)
	require.LessOrEqual(h.t, was, after, trace)
	if r.Status != Issued {
		return
	}
	require.True(h.t, r.Count == int(s.n) || r.Count > 0 && !s.options.All, trace)
	for seq := r.Last - int64(r.Count) + 1; seq <= r.Last; seq++ {
		name := fmt.Sprint(s.label, " ", seq)
		require.False(h.t, h.used[name], "%s is a duplicate:\n%s", name, trace)
		require.LessOrEqual(h.t, seq, s.limit, trace)
		require.True(h.t, !s.ledger || seq <= h.ledger[s.label], trace)
		h.used[name] = true
		h.last[s.label] = max(h.last[s.label], seq)
		if s.seen != nil {
			s.seen[s.label] = seq
		}
	}
}

// grant returns the grant that a process would make after a reply.
func (h *history) grant(s *sent, r Reply) *grant {
	g := &grant{Checked: h.now * 1000, Lease: 8000, Base: s.base}
	g.Entered, g.Ceiling, g.ID, g.Exists = r.Entered, r.Ceiling, r.ID, r.Exists
	floor := s.options.Seq
	if s.floor {
		known := h.last[s.label]
		if known == s.highWater { // the last number is not stored yet, but its caller remembers it
			known -= h.Int64N(min(known, 1) + 1)
		}
		if floor = max(floor, known); 0 < floor && floor <= g.Base {
			g.Base = 0
		}
	}
	if s.floor || s.options.Purpose != "" {
		g.Floor = &floor
	}
	if s.ledger {
		above := max(r.Above, floor)
		if r.Starts {
			above = max(above, g.Base)
		}
		after := max(above, h.ledger[s.label])
		h.ledger[s.label] = after + s.n + h.Int64N(10)
		g.Block = &[2]int64{after, h.ledger[s.label]}
	}
	return g
}

// ask sends the request of a caller. If the request needs a grant, ask sends it again with one. Other events can happen
// between the two.
func (h *history) ask(c *caller, purpose string) {
	today := c.day(h.now + h.Int64N(3) - 1) // the caller's clock may be a second off
	s := &sent{caller: c, day: today, n: h.Int64N(4), limit: MaxSeq, highWater: c.seen[today.label]}
	s.options = options{All: h.IntN(4) > 0, Far: h.IntN(8) == 0}
	if h.IntN(3) == 0 {
		s.limit = 9
	}
	if purpose != "" {
		s.n, s.limit = 0, MaxSeq
		s.options = options{All: true, Purpose: purpose, Seq: h.last[s.label], Keep: purpose == ForRaise && !c.ledger}
		if purpose == ForTakeover && !c.ledger {
			s.options.Seq = max(s.options.Seq, h.ledger[s.label])
		}
	}
	if r := h.run(s); r.Status == missing || r.Status == Lost && c.floor {
		granted := *s
		granted.options.All, granted.options.Far, granted.options.Grant = true, false, h.grant(s, r)
		for h.IntN(3) == 0 {
			h.step()
		}
		h.run(&granted)
		h.old = append(h.old, &granted)
	}
}

// prepare sends the requests of Prepare for a caller.
func (h *history) prepare(c *caller) {
	today := c.day(h.now)
	s := &sent{caller: c, day: today, limit: MaxSeq, next: c.day(today.past + h.Int64N(8)/7*86400)}
	s.options.Next = &next{Period: s.next.String(), Expires: s.next.past + 5*86400, Base: c.base, HasFloor: c.floor,
		Compared: h.IntN(3) > 0}
	if r := h.run(s); r.Status == missing && s.options.Next.Compared {
		floor := h.last[s.next.label] + h.Int64N(3)
		if 0 < floor && floor <= c.base {
			s.options.Next.Base = 0
		}
		s.options.Grant = &grant{Floor: &floor}
		h.run(s)
	}
}

var callers = []*caller{
	{mark: "aa", base: 2, seen: map[string]int64{}}, {mark: "aa", dayStart: 6 * 3600, floor: true},
	{mark: "bb", base: 4}, {mark: "aa", ledger: true, seen: map[string]int64{}},
	{mark: "aa", ledger: true, base: 4, dayStart: 6 * 3600, seen: map[string]int64{}},
	{mark: "aa", floor: true, base: 2, seen: map[string]int64{}}, {mark: "bb", ledger: true, floor: true},
}

var all = options{All: true}

// step performs one random event.
func (h *history) step() {
	c := callers[h.IntN(len(callers))]
	if h.home == nil || h.IntN(16) == 0 {
		h.home = c
	}
	if h.IntN(4) > 0 { // mostly, settings stay
		c = h.home
	}
	label := c.day(h.now).label
	switch event := h.IntN(32); {
	case event < 11:
		h.ask(c, "")
	case event < 13:
		h.ask(c, ForRaise)
	case event < 15:
		h.ask(c, ForTakeover)
	case event < 17:
		h.prepare(c)
	case event == 17 && len(h.old) > 0: // late, or repeated
		h.run(h.old[h.IntN(len(h.old))])
	case event == 18: // A counter is lost. Earlier answers of a floor or an operator must not be used afterwards.
		h.m.Del(counterOf(label))
		if h.IntN(2) == 0 {
			other := []string{"abc", " 5", "1e3", "0x10", "007", "-5"}[h.IntN(6)]
			h.rdb.Set(h.t.Context(), counterOf(label), other, 9*24*time.Hour)
		}
		h.pass(9)
	case event == 19 && c.seen[label] > 0 && h.content(label) != "": // a counter goes back for a moment
		content := h.content(label)
		h.rdb.Set(h.t.Context(), counterOf(label), c.seen[label]-1, 9*24*time.Hour)
		h.run(&sent{caller: c, day: c.day(h.now), n: 1, limit: MaxSeq, highWater: c.seen[label], options: all})
		h.rdb.Set(h.t.Context(), counterOf(label), content, 9*24*time.Hour)
	case event == 20 && sequence.MatchString(h.content(label)): // a person raises it and removes the expiry
		h.rdb.Incr(h.t.Context(), counterOf(label))
		h.rdb.Persist(h.t.Context(), counterOf(label))
	case event == 21:
		h.restarts++
		h.restart()
	case event < 25 && event > 21 && h.now == h.right: // the server's clock jumps ahead
		h.set(h.now + 86400*(1+h.Int64N(3)))
	case event < 28 && event > 24: // the clock is corrected
		h.set(h.right)
	case event == 28: // midnight, or the last second before it
		h.pass(86400 - h.now%86400 - h.Int64N(2))
	default:
		h.pass(3600 * (1 + h.Int64N(14)))
	}
}

// pass lets seconds pass.
func (h *history) pass(seconds int64) {
	h.right += seconds
	h.set(h.now + seconds)
}

func (h *history) set(now int64) {
	h.now = now
	h.m.SetTime(time.Unix(now, 0))
}

// Random events happen to a series. Its record and each reply must follow the rules, and no sequence of a label must be
// returned twice, provided that the answers of the floor, the ledger and the operator are correct. A rejected request
// must change nothing, and a late or repeated grant must not lower a counter. The usual path of serial.lua must have
// the same result as all its rules.
func TestHistories(t *testing.T) {
	random, seen := redistest.Random(t), map[string]int{}
	m := miniredis.RunT(t)
	m.ClockTTL(true)
	restart := redismemory.AddReplicationID(m)
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	defer rdb.Close()
	histories := 50
	switch {
	case testing.Short():
		histories = 5
	case redistest.Long() && !race.Enabled:
		histories = 1000
	}
	h := &history{}
	for range histories {
		h = &history{Rand: random, t: t, m: m, rdb: rdb, restart: restart, restarts: h.restarts, seen: seen,
			used: map[string]bool{}, last: map[string]int64{}, ledger: map[string]int64{}}
		for _, c := range callers {
			clear(c.seen)
		}
		m.FlushAll()
		h.right = time.Date(2021, 10, 24, 12, 0, 0, 0, time.UTC).Unix()
		h.set(h.right)
		for range 60 {
			if h.step(); h.isOver() {
				break
			}
		}
	}
	t.Log(seen)
	for _, outcome := range []string{"issued", "issued raise", "issued takeover", "missing", "lost", "future", "conflict",
		"conflict raise", "print", "print takeover", "exhausted", "stale", "clock"} {
		require.True(t, seen[outcome] > 0 || testing.Short(), outcome)
	}
}
