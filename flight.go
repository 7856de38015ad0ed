package serial

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial/internal/budget"
)

// Callers that want one number of the same type at the same moment share one take: a flight. It increments the counter
// by their number, and each gets its own part of the range, in the order in which they came. Flights of different types
// that depart at the same moment share a script call; on Cluster, where a script may touch one slot only, a pipeline.
//
// A caller that meets nobody takes off at once, in its own goroutine if its context can never end. While as many
// flights are in the air as make sense, those who come gather in the next one, which departs when one of them lands: so
// flights grow with the load by themselves, and a caller waits for a part of a round trip at most.

// How many departures may be under way at a time depends on how long a round trip takes when nothing is in its way. On
// loopback most of it is work, and the next flight had better gather everybody until the last one has landed; over a
// network most of it is waiting, and a caller should not wait for another one's trip before its own.
const (
	tripOfOne  = 250 * time.Microsecond // for every one of these in a round trip another departure
	mostFlying = 8
	mostApart  = 4  // departures of types that cannot share: Redis has work while the answers are read
	enough     = 32 // callers are worth a departure of their own, whatever the round trip

	// Who has waited for longer than overdue and ten round trips has got behind a command that hangs, on a connection
	// that broke, say: then a new era begins, in which those under way do not count. There is at most one era in every
	// eraLength, so that a server that hangs is not stormed.
	overdue   = 5 * time.Millisecond
	eraLength = 50 * time.Millisecond
)

// mostTogether is how many flights of different types depart in one pipeline at most.
const mostTogether = 256

// A tower makes the flights to one server.
type tower struct {
	caller *caller
	server *redis.Client // nil where go-redis finds it
	shares bool          // callers meet here
	slots  bool          // the server refuses scripts whose keys are in different ones
	group  int           // flights of different types that depart together, mostTogether at most
	clock  serverClock

	mu      sync.Mutex
	era     int           // departures know theirs; one of an earlier era is no more to be reckoned with
	eraFrom time.Time     // when it began
	flying  int           // departures of this era that are under way
	trip    time.Duration // the shortest round trip of late
	waiting []*flight     // to depart, in order
	callers int           // in those
	watch   *time.Timer   // runs while flights wait, see hurry; nil before any did
	watched bool          // that it runs
	gates   map[gate]*flight
	air     map[gate]int // takes that are under way
}

// towers finds the tower for a type: there is one, but on Cluster one for each master, so that none waits for another.
type towers struct {
	only    *tower
	cluster *redis.ClusterClient
	warm    atomic.Bool // the cluster's slots are known: to find them out takes as long as its nodes make it
	known   sync.Map    // of the masters, by address: *tower
	caller  *caller
}

func newTowers(c *caller) *towers {
	t := &towers{caller: c}
	if cluster, ok := c.client.(*redis.ClusterClient); ok {
		t.cluster = cluster
	} else {
		t.only = newTower(c, nil)
		t.only.shares = true
		if t.only.server, ok = c.client.(*redis.Client); !ok {
			t.only.group = 1 // it may be a Cluster, whose types do not share scripts
		}
	}
	return t
}

// of returns the tower for a key. Where it is not known yet which server that is, it is for go-redis to find out: what is
// returned then does not share.
func (t *towers) of(ctx context.Context, key string) *tower {
	if t.only != nil {
		return t.only
	}
	if !t.warm.Load() {
		return newTower(t.caller, nil)
	}
	master, err := t.cluster.MasterForKey(ctx, key)
	if err != nil {
		return newTower(t.caller, nil)
	}
	addr := master.Options().Addr
	known, ok := t.known.Load(addr)
	if !ok || known.(*tower).server != master { // go-redis may have made a new client of it
		tower := newTower(t.caller, master)
		tower.shares, tower.slots = true, true
		t.known.Store(addr, tower)
		return tower
	}
	return known.(*tower)
}

// gate is where the callers meet who can share a flight.
type gate struct {
	typ   string
	start int64 // of the period
}

// A flight is one take for all its members. Who came first names the type, the period and the values of the context.
type flight struct {
	gate   gate
	call   call
	ctx    context.Context // never ends: members leave, the others go on
	opened time.Time       // the time that it waits to depart counts from here
	until  time.Time       // when it has landed, whatever happens
	size   int             // members; guarded by the tower's mu until it departs

	failure  atomic.Pointer[error] // of the last attempt, for members who leave
	done     chan struct{}
	reply    reply // this and the rest are written before done is closed, and only read after
	err      error
	granted  int    // members who get a number
	rest     string // the status that the others get
	panicked any
}

func newTower(c *caller, server *redis.Client) *tower {
	return &tower{caller: c, server: server, group: mostTogether, gates: map[gate]*flight{}, air: map[gate]int{}}
}

// take has one number of p issued by a flight.
func (t *tower) take(ctx context.Context, c *call, p *period) (reply, error) {
	at := gate{c.typ, p.start}
	t.mu.Lock()
	apart := len(t.waiting) == 0 && t.flying < mostApart && t.air[at] == 0
	if apart && ctx.Done() == nil && t.caller.read > 0 { // nobody to share with, and it may wait for Redis itself
		t.flying++
		t.air[at]++
		era := t.era
		t.mu.Unlock()
		start := time.Now()
		var answered bool
		defer func() { t.landed(era, at, start, answered) }()
		r, err := c.send(ctx, takeScript, true, p, 1, nil, c.g.alone...)
		answered = err == nil
		if answered && r.status == statusIssued {
			c.issued(r.seq)
		}
		return r, err
	}
	f := t.gates[at]
	if f == nil {
		f = &flight{gate: at, call: *c, ctx: ctx, opened: time.Now(), done: make(chan struct{})}
		f.until = f.opened.Add(c.budget.Answer())
		f.call.period, f.call.trace = p, nil
		f.call.failure = &f.failure
		if ctx.Done() != nil {
			f.ctx = context.WithoutCancel(ctx)
		}
		t.gates[at] = f
		t.waiting = append(t.waiting, f)
	}
	seat := t.seat(f)
	t.mu.Unlock()
	seq, r, err := f.ride(ctx, seat, &c.budget)
	if r != nil {
		return *r, err
	}
	return reply{status: statusIssued, seq: seq}, err
}

// board takes a seat on a flight that waits to depart, if one does for the type and the period computed last: whoever
// made it has just looked at the clock. That is the call's period then. It returns nil if there is none.
func (t *tower) board(c *call) (f *flight, seat int) {
	p := c.g.current.Load()
	if p == nil {
		return nil, 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.gates) == 0 {
		return nil, 0
	}
	if f = t.gates[gate{c.typ, p.start}]; f != nil {
		c.period = p
		seat = t.seat(f)
	}
	return f, seat
}

// seat makes the caller a member of f, and has a departure begin if it is time. The caller holds mu.
func (t *tower) seat(f *flight) int {
	f.size++
	t.callers++
	switch {
	case t.flying < t.most(), f.size == 1 && t.flying < mostApart && t.air[f.gate] == 0:
		t.flying++
		// It starts once the goroutines that are ready to run now have run: whoever they belong to comes along.
		go t.depart(t.era)
	case !t.watched:
		t.watched = true
		if t.watch == nil {
			t.watch = time.AfterFunc(t.patience(), t.hurry)
		} else {
			t.watch.Reset(t.patience())
		}
	}
	return f.size - 1
}

// ride waits for the flight to land, or for ctx, or until nothing is left of b. It returns the member's number, or the reply
// that a take of the member's own would have got instead of one.
func (f *flight) ride(ctx context.Context, seat int, b *budget.Budget) (int64, *reply, error) {
	left, _ := b.Attempt()
	var timeout <-chan time.Time
	if b.Answer() < budget.Answers && time.Now().Add(b.Answer()).Before(f.until) {
		timer := time.NewTimer(b.Answer())
		defer timer.Stop()
		timeout = timer.C
	}
	if ctx.Done() == nil && timeout == nil {
		<-f.done
	} else {
		select {
		case <-f.done:
		case <-timeout:
			return 0, nil, sharedError{fmt.Errorf("serial: Redis failed: %w", errNoAnswer)}
		case <-ctx.Done():
			if failure := f.failure.Load(); failure != nil {
				return 0, nil, gaveUp(ctx.Err(), *failure)
			}
			return 0, nil, gaveUp(ctx.Err(), nil)
		}
	}
	if f.reply.status != statusIssued {
		b.Spend(f.reply.received.Sub(f.opened), left)
	}
	switch {
	case f.panicked != nil:
		panic(f.panicked)
	case f.err != nil:
		return 0, nil, f.err
	case f.reply.status != statusIssued:
		return 0, &f.reply, nil
	case seat < f.granted:
		return f.reply.seq - int64(f.granted-1-seat), nil, nil
	case f.reply.failure != nil && f.rest == statusExhausted:
		return 0, nil, fewLeft(f.reply.failure)
	}
	return 0, &reply{status: f.rest, detail: strconv.FormatInt(f.reply.seq, 10)}, nil
}

// patience is how long a flight waits for others to land. The caller holds mu.
func (t *tower) patience() time.Duration { return overdue + 10*t.trip }

// hurry begins a new era if the first of those who wait has lost its patience.
func (t *tower) hurry() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.waiting) == 0 {
		t.watched = false
		return
	}
	if wait := max(t.patience()-time.Since(t.waiting[0].opened), eraLength-time.Since(t.eraFrom)); wait > 0 {
		t.watch.Reset(wait)
		return
	}
	t.watch.Reset(eraLength)
	t.era++
	t.eraFrom = time.Now()
	t.flying = 1
	go t.depart(t.era)
}

// most is how many departures may be under way. The caller holds mu.
func (t *tower) most() int {
	n := 1 + min(int(t.trip/tripOfOne), mostFlying-2)
	if t.callers >= enough {
		n++
	}
	return n
}

// landed follows a departure that a caller made itself, at start.
func (t *tower) landed(era int, at gate, start time.Time, answered bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.land(at)
	if answered {
		t.measure(time.Since(start))
	}
	switch {
	case era != t.era:
	case len(t.waiting) == 0:
		t.flying--
	default:
		go t.depart(era)
	}
}

// land takes at out of the air. The caller holds mu.
func (t *tower) land(at gate) {
	if t.air[at]--; t.air[at] == 0 {
		delete(t.air, at)
	}
}

// measure keeps the shortest trip in mind, and forgets it in the course of some hundred flights. The caller holds mu.
func (t *tower) measure(trip time.Duration) {
	t.trip += t.trip / 256
	if t.trip == 0 || trip < t.trip {
		t.trip = trip
	}
}

// depart sends what is waiting, until nothing is or another era has begun.
func (t *tower) depart(era int) {
	over := false
	defer func() {
		if !over { // a hook of the client ended this goroutine
			go t.depart(era)
		}
	}()
	for {
		t.mu.Lock()
		n := min(len(t.waiting), t.group)
		if n == 0 && era == t.era {
			t.flying--
			t.waiting = nil // what grew in a rush is given back
		}
		if n == 0 || era != t.era {
			over = true
			t.mu.Unlock()
			return
		}
		flights := t.waiting[:n:n]
		t.waiting = t.waiting[n:]
		for _, f := range flights {
			delete(t.gates, f.gate) // nobody boards any more
			t.air[f.gate]++
			t.callers -= f.size
		}
		t.mu.Unlock()

		t.fly(flights)
		if n > 1 || flights[0].size > 1 {
			runtime.Gosched() // those who landed may want to go again, and together
		}
	}
}

// fly makes one departure.
func (t *tower) fly(flights []*flight) {
	start := time.Now()
	defer func() {
		trip := time.Since(start)
		t.mu.Lock()
		defer t.mu.Unlock()
		for _, f := range flights {
			t.land(f.gate)
		}
		if flights[0].err == nil {
			t.measure(trip)
		}
	}()
	for _, f := range flights {
		f.waited()
	}
	if len(flights) == 1 {
		flights[0].fly()
	} else {
		t.flyTogether(flights)
	}
}

// fly makes one flight by itself.
func (f *flight) fly() {
	f.err = errEnded
	defer close(f.done)
	defer func() { f.panicked = recover() }()
	f.land(f.call.send(f.ctx, takeScript, true, f.call.period, f.size, nil, f.call.g.shared...))
}

// waited spends what the flight has waited to depart. No other one takes longer than its budget to land: if it does, this
// process stood still, and a quick attempt remains.
func (f *flight) waited() {
	b := &f.call.budget
	took, left := time.Since(f.opened), b.Answer()
	if took > budget.Answers+budget.Last {
		left, _ = b.Attempt()
	}
	b.Spend(took, left)
}

// land notes what the flight was answered.
func (f *flight) land(r reply, err error) {
	f.reply, f.err, f.granted = r, err, f.size
	if err == nil && (r.status == statusPart || r.status == statusBlock) {
		f.reply.status, f.rest = statusIssued, statusExhausted
		if r.status == statusBlock {
			f.rest = statusCeiling
		}
		_, f.err = fmt.Sscanf(r.detail, "%d %d", &f.granted, &f.reply.seq)
	}
	if f.err == nil && f.reply.status == statusIssued {
		f.call.issued(f.reply.seq)
	}
}

// flyTogether makes flights of different types in one script call. One that is out of the ordinary flies again by itself, and
// so does each where the server refuses the call as a whole: what is wrong may be another type's keys.
func (t *tower) flyTogether(flights []*flight) {
	t.mu.Lock()
	slots := t.slots
	t.mu.Unlock()
	if slots {
		t.flyInPipeline(flights)
		return
	}
	first := flights[0]
	var r reply
	err := errEnded
	defer func() {
		panicked := recover()
		for _, f := range flights {
			select {
			case <-f.done:
			default: // a hook panicked, or ended this goroutine
				f.err, f.panicked = err, panicked
				close(f.done)
			}
		}
	}()
	args := make([]any, 5+8*len(flights), 6+8*len(flights))
	args[2] = 2 * len(flights)
	keys, rest := args[3:3+2*len(flights)], args[3+2*len(flights):3+8*len(flights)]
	args = args[:3+8*len(flights)]
	for i, f := range flights {
		itsKeys, own := f.call.given(f.call.period, f.size)
		copy(keys[2*i:], itsKeys[:])
		copy(rest[6*i:], own[:])
	}
	if first.call.g.ledger != nil {
		args = append(args, "ledger")
	}
	var note atomic.Pointer[error]
	sent := time.Now()
	r, err = t.caller.run(first.ctx, &first.call.budget, t.server, takesScript, true, args, &note)
	for _, f := range flights[1:] {
		left, _ := f.call.budget.Attempt()
		f.call.budget.Spend(time.Since(sent), left)
	}
	crossed := redis.HasErrorPrefix(err, "CROSSSLOT") // a Cluster's server, though the client is a single one's
	refused := crossed || redis.HasErrorPrefix(err, "NOPERM")
	if crossed && t.server != nil {
		t.mu.Lock()
		t.slots = true
		t.mu.Unlock()
	}
	if err == nil && len(r.each) != len(flights) {
		err = fmt.Errorf("serial: a script answered for %d types, and was asked for %d", len(r.each), len(flights))
	}
	var alone sync.WaitGroup
	defer alone.Wait()
	for i, f := range flights {
		if refused || err == nil && r.each[i] == 0 {
			if r.failure != nil {
				f.failure.Store(&r.failure)
			}
			alone.Go(f.fly)
			continue
		}
		one := r
		if err == nil {
			one.seq = r.each[i]
		}
		f.land(one, err)
		close(f.done)
	}
}

// flyInPipeline does it on Cluster, where a script may touch one slot only. One that did not get through, because the
// server does not know the script or has the slot no more, or for a failure that may pass, flies again by itself.
func (t *tower) flyInPipeline(flights []*flight) {
	var alone sync.WaitGroup
	defer alone.Wait()
	commands := make([]onceCmd, len(flights))
	landed := 0
	defer func() {
		panicked := recover()
		for _, f := range flights[landed:] { // a hook panicked, or ended this goroutine
			if panicked == nil {
				alone.Go(f.fly)
				continue
			}
			f.panicked = panicked
			close(f.done)
		}
	}()
	sent := time.Now()
	ctx := flights[0].ctx
	limit, _ := flights[0].call.budget.Attempt()
	pipe := t.server.Pipeline()
	for i, f := range flights {
		args := f.call.arguments(f.call.period, f.size)
		if f.call.wary() {
			args[11] = 0
		}
		args = append(args, f.call.g.shared...)
		commands[i] = newCommand(ctx, "evalsha", takeScript.digest, args)
		_ = pipe.Process(ctx, commands[i])
	}
	confirm := t.caller.confirm
	var wait *redis.Cmd
	if confirm.replicas > 0 {
		wait = confirm.wait(ctx, pipe)
	}
	all, stood, failed := awaitAnswer(ctx, t.caller.pools(t.server, true), limit, pipe.Exec)
	received := time.Now()
	for _, f := range flights {
		if left, _ := f.call.budget.Attempt(); !stood {
			f.call.budget.Spend(received.Sub(sent), left)
		}
	}
	for i, f := range flights {
		landed++
		var v any
		err := failed
		if all != nil { // otherwise go-redis may still be at them
			if v, err = commands[i].Result(); v == nil && err == nil {
				err = failed // a hook did not set it
			}
		}
		if err != nil || v == nil {
			if err != nil && !unsent(err) {
				f.failure.Store(&err)
			}
			alone.Go(f.fly)
			continue
		}
		if wait != nil {
			v = confirm.check(v, wait)
		}
		r, err := parseReply(v)
		r.sent, r.received = sent, received
		f.land(r, err)
		close(f.done)
	}
}
