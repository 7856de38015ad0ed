package serial_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/serialtest"
)

// A move is what may happen next.
type move struct {
	what   string
	player int
	late   bool // midnight strikes after it
	nth    int  // which of the player's commands; it has more than one while its lock is given back behind its back
}

const (
	proceeds  = "proceeds" // with its next command
	dies      = "dies before it"
	diesAfter = "dies after it" // so that the answer is lost
	stops     = "stops"         // until all others are done
	midnight  = "midnight"
	loses     = "the counter is lost"

	jumps        = "the clock jumps ahead"
	overMidnight = "the clock that is ahead passes midnight"
	comesBack    = "the clock comes back"
	comesSoon    = "the clock comes back at once" // before Redis has dropped what had expired by it
	raises       = "an operator raises"
	raisesTo0    = "an operator raises to 0"

	// The context of the player's call ends, and the process goes on:
	leaves      = "leaves before it is sent"
	leavesWhile = "leaves while it is under way" // it runs once the process has nothing else to send
	leavesLong  = "leaves, and it hangs"         // it runs when all others are done
	leavesAfter = "leaves after it"              // the answer comes once the process has nothing else to send
	arrives     = "arrives"                      // the command, or the answer, that the caller has not waited for
)

// A play is one run of a scene.
type play struct {
	scene
	m    *simulation
	book *serialtest.Ledger
	quit chan struct{} // closed to end the calls of dead players

	quitOnce sync.Once
	story    []string // the moves, for a play that fails

	mu     sync.Mutex
	parked [][]*parkedCommand // commands held back, by player
	dead   []bool
	done   []bool
	got    []int          // count of numbers issued to each player
	said   []string       // the last answer to each player
	tokens map[string]int // owner of each token of a lock or a claim
	free   bool           // nothing is held back any longer
	issued []string
	failed []error

	upset  bool // a player died or stopped, or its caller left
	struck bool // midnight has struck
	quiet  int  // player who is stopped, or -1
	slow   int  // player who was stopped, or -1

	results   [][]string        // of all calls of each player
	lost      bool              // the counter was lost
	lostPlain bool              // it was lost while the record had no ledger
	byRequest map[string]string // the number of each request

	clock wildClock

	gens      []*serial.Generator // of each player
	explained []serial.Explanation

	cancel []context.CancelFunc // of each player's call
	gone   []bool               // the caller of each player has left
	left   int                  // player whose caller left, or -1
	leftAt time.Time
	long   bool           // that caller left by leavesLong
	hung   *parkedCommand // the command that the caller did not wait for
	turns  int            // count of commands parked so far
}

type parkedCommand struct {
	kind  string
	grant chan string
	turn  int
}

// blockOfPlay is the size of a ledger's blocks.
const blockOfPlay = 2

// patienceOfOthers is how long the others may wait for the lock or claim of a caller that left; its lease is 8 s.
const patienceOfOthers = 3 * time.Second

var errDead = errors.New("this process is dead")

// pass holds a player's command back until its turn comes, and returns what happens to it.
func (p *play) pass(player int, kind string) (what string) {
	p.mu.Lock()
	if p.dead[player] {
		p.mu.Unlock()
		return dies
	}
	if p.free {
		p.mu.Unlock()
		return proceeds
	}
	p.turns++
	c := &parkedCommand{kind, make(chan string, 1), p.turns}
	p.parked[player] = append(p.parked[player], c)
	p.mu.Unlock()
	return <-c.grant
}

func (p *play) end(player int) {
	p.mu.Lock()
	p.dead[player] = true
	p.mu.Unlock()
	<-p.quit
}

// leave ends the context of the player's call. If its command hangs, that waits for its turn.
func (p *play) leave(player int, hangs bool) {
	c := &parkedCommand{grant: make(chan string, 1)}
	p.mu.Lock()
	p.gone[player], p.left, p.leftAt = true, player, time.Now()
	p.cancel[player]()
	if hangs && !p.free {
		p.hung = c
	} else {
		c.grant <- arrives
	}
	p.mu.Unlock()
	<-c.grant
}

// command has a player send a command when its turn comes, or suffer what happens to it.
func (p *play) command(ctx context.Context, player int, kind string, send func(ctx context.Context) error) error {
	what := p.pass(player, kind)
	switch what {
	case dies:
		p.end(player)
		return errDead
	case leaves:
		p.leave(player, false)
		if err := ctx.Err(); err != nil {
			return err
		}
	case leavesWhile, leavesLong:
		p.leave(player, true)
		ctx = context.WithoutCancel(ctx) // it is in the network already
	}
	err := send(ctx)
	switch what {
	case leavesAfter:
		p.leave(player, true)
	case diesAfter:
		p.end(player)
		return errDead
	}
	return err
}

// hook returns the hook around a player's commands.
func (p *play) hook(player int) hook {
	return func(next redis.ProcessHook) redis.ProcessHook {
		return func(ctx context.Context, cmd redis.Cmder) error {
			args := cmd.Args()
			var kind string
			switch cmd.Name() {
			case "set":
				kind = "lock"
				p.mu.Lock()
				p.tokens[fmt.Sprint(args[2])] = player
				p.mu.Unlock()
			case "eval", "evalsha":
				kind = fmt.Sprintf("%.4s %v", args[1], args[3])
				for _, arg := range args[3:] {
					if s, ok := arg.(string); ok && len(s) == 26 { // a claim's
						p.mu.Lock()
						p.tokens[s] = player
						p.mu.Unlock()
					}
				}
			default: // setting up a connection
				return next(ctx, cmd)
			}
			err := p.command(ctx, player, kind, func(ctx context.Context) error { return next(ctx, cmd) })
			cmd.SetErr(err)
			if err == errDead {
				return err
			}
			answer, _ := cmd.(interface{ Val() any }) // the library's commands embed a *redis.Cmd
			p.mu.Lock()
			defer p.mu.Unlock()
			p.said[player] = kind + " " + fmt.Sprint(err)
			if answer != nil {
				said := answer.Val()
				if status, ok := said.([]any); ok && len(status) >= 3 {
					said = append(status[:1:1], status[3:]...) // without the time
				}
				p.said[player] += fmt.Sprint(said)
				if key, ok := args[3].(string); ok && p.wild {
					p.clock.saw(key, issued(answer.Val()))
				}
			}
			return err
		}
	}
}

// Reserve counts as a command of its player.
type gatedLedger struct {
	*serialtest.Ledger
	p      *play
	player int
}

func (l gatedLedger) Reserve(ctx context.Context, r serial.Reservation) (after int64, err error) {
	err = l.p.command(ctx, l.player, "reserve", func(ctx context.Context) error {
		after, err = l.Ledger.Reserve(context.WithoutCancel(ctx), r) // see spyLedger
		return err
	})
	if err == errDead {
		return 0, err
	}
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	l.p.said[l.player] = fmt.Sprint("reserved ", after, err)
	return after, err
}

// laterStart is the start of one player where starts differ: beyond whatever the others take.
const laterStart = 50

// start has every player ask for numbers.
func (s scene) start(t *testing.T) *play {
	m := simulate(t)
	p := &play{scene: s, m: m, book: new(serialtest.Ledger), quit: make(chan struct{}), quiet: -1, slow: -1, left: -1,
		tokens: map[string]int{},
		parked: make([][]*parkedCommand, s.players), dead: make([]bool, s.players), done: make([]bool, s.players),
		got: make([]int, s.players), said: make([]string, s.players), results: make([][]string, s.players),
		byRequest: map[string]string{}, cancel: make([]context.CancelFunc, s.players), gone: make([]bool, s.players)}
	// Midnight is near, and comes when it is meant to.
	time.Sleep(24*time.Hour - 20*time.Second)
	// The server knows the scripts.
	require.NoError(t, errOf(newGenerator(t, m.client(), s.options(p.book)...).Next(context.Background(), "OTHER")))
	if s.once {
		_, err := newGenerator(t, m.client(), s.options(p.book)...).NextOnce(context.Background(), "ANOTHER", "any")
		require.NoError(t, err)
	}
	if s.prepare != nil {
		before := s
		before.ledger = s.ledger && !s.mixed
		p.issued = s.prepare(t, m, before.options(p.book))
	}
	if s.wild {
		p.clock = wildClock{top: map[string]int64{}, operator: newGenerator(t, m.client(p.hook(s.players-1)),
			s.options(nil)...)}
		p.done[s.players-1] = true
		s.players--
	}
	for i := range s.players {
		settings := s
		settings.ledger = s.ledger && !(s.mixed && i == 0)
		opts := append(settings.options(gatedLedger{p.book, p, i}), p.told(i))
		if s.starts && i == s.players-1 {
			opts = append(opts, serial.WithStart(laterStart))
		}
		gen := newGenerator(t, m.client(p.hook(i)), opts...)
		p.gens = append(p.gens, gen)
		go func() {
			for nth := range s.each {
				p.ask(i, nth, gen)
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			p.done[i] = true
		}()
	}
	return p
}

// told is the option by which a player says why numbers are missing. The dead say nothing. A player of -1 never dies.
func (p *play) told(player int) serial.Option {
	return serial.WithHooks(serial.Hooks{Unused: func(_ context.Context, e serial.Explanation) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if player < 0 || !p.dead[player] {
			p.explained = append(p.explained, e)
		}
	}})
}

// ask has a player ask for a number.
func (p *play) ask(i, nth int, gen *serial.Generator) {
	ctx := context.Background()
	if p.leaving {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		p.mu.Lock()
		p.gone[i], p.cancel[i] = false, cancel
		p.mu.Unlock()
	}
	next, request := gen.Next, ""
	if p.once {
		request = "everybody's"
		if nth > 0 {
			request = fmt.Sprintf("%d of %d", nth, i)
		}
		next = func(ctx context.Context, typ string) (string, error) { return textOf(gen.NextOnce(ctx, typ, request)) }
	}
	p.mu.Lock()
	raised := p.clock.raised
	p.mu.Unlock()
	number, err := next(ctx, "IS")
	p.mu.Lock()
	defer p.mu.Unlock()
	p.results[i] = append(p.results[i], number)
	switch {
	case p.dead[i]:
	case p.gone[i] && errors.Is(err, context.Canceled):
	// Too long from question to answer: without a ledger only for who hung across midnight and was stopped, too.
	case (p.ledger && (p.slow == i || p.struck) || p.slow == i && p.struck) && errors.Is(err, os.ErrDeadlineExceeded):
	case p.permits(i, err):
	case p.wild && p.clock.back && !raised && p.clock.permits(err):
	case err != nil:
		p.failed = append(p.failed, err)
	case request != "" && p.byRequest[request] == number:
		p.got[i]++
	default:
		p.got[i]++
		p.issued = append(p.issued, number)
		if request != "" {
			if first := p.byRequest[request]; first != "" {
				p.failed = append(p.failed, fmt.Errorf("request %s got %s, and then %s", request, first, number))
			}
			p.byRequest[request] = number
		}
	}
}

// permits reports whether a player may get err at this point of the scene. mu must be held.
func (p *play) permits(i int, err error) bool {
	ledger := p.ledger && !(p.mixed && i == 0)
	switch {
	case errors.Is(err, serial.ErrCounterLost):
		return p.lost && (!ledger || p.mixed && p.lostPlain)
	case errors.Is(err, serial.ErrConflict):
		return p.mixed && !ledger && p.underLedger()
	}
	return false
}

// underLedger reports whether the record says that the day has a ledger.
func (p *play) underLedger() bool {
	return strings.HasSuffix(p.m.HGet("serial:{IS}", "entered"), " ledger")
}

// counter returns the key of the day's counter.
func (p *play) counter() string {
	layout := "20060102"
	if p.varies {
		layout = "2006"
	}
	return "serial:{IS}:" + time.Now().UTC().Format(layout)
}

func (s scene) options(l serial.Ledger) []serial.Option {
	all := []serial.Option{serial.WithLocation(time.UTC)}
	if s.ledger {
		all = append(all, serial.WithLedger(l, blockOfPlay))
	}
	if s.wild {
		all = append(all, serial.WithMaxSkew(-1))
	}
	if s.varies {
		all = append(all, serial.WithPeriod(serial.PerYear))
	}
	return all
}

// settle lets time pass until every player who lives and is not done has a command parked. Once a caller has left, one
// command is enough: the time that passes is then what the others wait.
func (p *play) settle(t *testing.T) {
	p.await(t, func(i int) bool {
		return p.done[i] || p.dead[i] || len(p.parked[i]) > 0 || p.left >= 0 && len(p.afterLeaving()) > 0
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, parked := range p.parked { // those of one instant come in any order
		slices.SortFunc(parked, func(a, b *parkedCommand) int { return strings.Compare(a.kind, b.kind) })
	}
}

// await lets time pass until ready holds for every player. It calls ready with mu held.
func (p *play) await(t *testing.T, ready func(i int) bool) {
	for patience := 0; ; patience++ {
		synctest.Wait()
		p.mu.Lock()
		all := true
		for i := range p.players {
			all = all && ready(i)
		}
		p.mu.Unlock()
		if all {
			return
		}
		require.Less(t, patience, 100_000, "somebody is stuck")
		time.Sleep(2 * time.Millisecond)
	}
}

// moves returns the moves that are possible now, none if the play is over.
func (p *play) moves() (all []move) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left >= 0 {
		return p.afterLeaving()
	}
	alone := 0
	for i := range p.players {
		if !p.dead[i] && !p.done[i] {
			alone++
		}
	}
	for i, parked := range p.parked {
		for nth := range parked {
			late := nth > 0 && p.midnight // a lock that is given back late is in scenes without midnight
			if !p.dead[i] && i != p.quiet && !late {
				all = append(all, move{what: proceeds, player: i, nth: nth})
			}
		}
	}
	if i := p.quiet; len(all) == 0 && i >= 0 && len(p.parked[i]) > 0 { // all others are done
		p.quiet = -1
		return []move{{what: proceeds, player: i}}
	}
	if len(all) == 0 || p.upset {
		return all
	}
	if p.midnight && !p.struck {
		all = append(all, move{what: midnight})
	}
	if p.loses && !p.lost && p.m.Exists(p.counter()) {
		all = append(all, move{what: loses})
	}
	if p.wild {
		all = append(all, p.clockMoves()...)
	}
	for i, parked := range p.parked {
		if alone < 2 || len(parked) == 0 || p.done[i] {
			continue
		}
		if p.leaving {
			for _, what := range []string{leaves, leavesWhile, leavesLong, leavesAfter} {
				all = append(all, move{what: what, player: i})
			}
			continue
		}
		for _, what := range []string{dies, diesAfter, stops} {
			if p.calm {
				break
			}
			if p.midnight && p.ledger && what != dies { // the others are in scenes with one of both
				continue
			}
			all = append(all, move{what: what, player: i})
			if p.midnight && !p.struck && !p.ledger {
				all = append(all, move{what: what, player: i, late: true})
			}
		}
	}
	return all
}

// afterLeaving returns the one move that can follow: commands proceed in the order in which they came. mu must be held.
func (p *play) afterLeaving() []move {
	next, others := -1, true
	for i, parked := range p.parked {
		if len(parked) > 0 && (next < 0 || parked[0].turn < p.parked[next][0].turn) {
			next = i
		}
		others = others && (i == p.left || p.done[i])
	}
	first := p.hung != nil && !p.long && len(p.parked[p.left]) > 0
	switch {
	case first:
		return []move{{what: proceeds, player: p.left}}
	case p.hung != nil && (!p.long || next < 0 && others):
		return []move{{what: arrives, player: p.left}}
	case next >= 0:
		return []move{{what: proceeds, player: next}}
	}
	return nil
}

// issued returns the last sequence that a script issued, 0 if none.
func issued(answer any) int64 {
	if status, ok := answer.([]any); ok && (status[0] == "there" || status[0] == "lifted") {
		answer = status[len(status)-1]
	}
	seq, _ := answer.(int64)
	return seq
}

func (p *play) carryOut(mv move) {
	p.mu.Lock()
	switch mv.what {
	case dies, diesAfter, stops, leaves, leavesWhile, leavesLong, leavesAfter:
		p.upset = true
	}
	p.long = p.long || mv.what == leavesLong
	command := ""
	if len(p.parked[mv.player]) > 0 {
		command = p.parked[mv.player][mv.nth].kind
	}
	p.story = append(p.story, fmt.Sprintf("%d %s (%s; before that %s)", mv.player, mv.what, command, p.said[mv.player]))
	p.struck = p.struck || mv.what == midnight || mv.late
	if p.wild {
		p.carryOutClock(mv)
	}
	switch mv.what {
	case midnight, jumps, overMidnight, comesBack, comesSoon, raises, raisesTo0:
	case loses:
		p.lost, p.lostPlain = true, !p.underLedger()
		p.m.Del(p.counter())
	case stops:
		p.quiet, p.slow = mv.player, mv.player
	case arrives:
		p.hung.grant <- arrives
		p.hung = nil
	default:
		p.parked[mv.player][mv.nth].grant <- mv.what
		p.parked[mv.player] = slices.Delete(p.parked[mv.player], mv.nth, mv.nth+1)
	}
	p.mu.Unlock()
	if mv.what == midnight || mv.late {
		synctest.Wait()
		time.Sleep(time.Until(time.Now().Truncate(24 * time.Hour).Add(24*time.Hour + time.Second)))
	}
}

var instants = regexp.MustCompile(`\b\d{12,13}\b`)

// state returns everything that the rest of the play depends on. Of the time it has the day only: a play takes less
// than the lock's expiry unless a player stops or dies, which the state shows. Which player is which makes no
// difference.
func (p *play) state() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	dump := instants.ReplaceAllString(p.m.Dump(), "T")
	text := func(order []int) string {
		var b strings.Builder
		c := &p.clock
		fmt.Fprintln(&b, p.struck, p.lost, p.lostPlain, c.ahead, c.jumped, c.back, c.raising, c.raised)
		for _, e := range p.explained {
			fmt.Fprintln(&b, e.Start, e.First, e.Last, e.Reason)
		}
		for _, i := range order {
			kinds := ""
			for _, c := range p.parked[i] {
				kinds += c.kind + ","
			}
			if p.loses || p.wild { // what a generator remembers makes a difference then
				fmt.Fprintln(&b, p.results[i])
			}
			fmt.Fprintln(&b, p.done[i], p.got[i], kinds, instants.ReplaceAllString(p.said[i], "T"))
		}
		keys := dump
		for token, owner := range p.tokens {
			keys = strings.ReplaceAll(keys, token, fmt.Sprintf("<%d>", slices.Index(order, owner)))
		}
		return b.String() + keys
	}
	if p.mixed || p.wild || p.starts {
		all := make([]int, p.players)
		for i := range all {
			all[i] = i
		}
		return text(all)
	}
	return min(text([]int{0, 1}), text([]int{1, 0}))
}

// letGo holds nothing back any longer. mu must be held.
func (p *play) letGo() {
	p.free = true
	if p.hung != nil {
		p.hung.grant <- arrives
		p.hung = nil
	}
	for i := range p.parked {
		for _, c := range p.parked[i] {
			c.grant <- proceeds
		}
		p.parked[i] = nil
	}
}

// close ends whatever still runs, so that a play that failed can say why.
func (p *play) close(t *testing.T) {
	p.mu.Lock()
	if t.Failed() {
		t.Log(strings.Join(p.story[:min(len(p.story), 60)], "\n"))
	}
	p.letGo()
	p.mu.Unlock()
	p.quitOnce.Do(func() { close(p.quit) })
	time.Sleep(time.Minute)
}

// finish lets go of everything, and checks what was issued.
func (p *play) finish(t *testing.T) {
	if p.left >= 0 && !p.long { // a process that hangs may hold up the others, one that was left may not
		require.Less(t, time.Since(p.leftAt), patienceOfOthers, "player %d left", p.left)
	}
	p.mu.Lock()
	if p.clock.ahead != 0 {
		p.clock.setBack(p.m, false)
	}
	p.letGo()
	p.mu.Unlock()
	p.await(t, func(i int) bool { return p.done[i] || p.dead[i] })
	require.Empty(t, p.failed)
	p.quitOnce.Do(func() { close(p.quit) })
	p.await(t, func(i int) bool { return p.done[i] })
	if p.wild {
		p.finishDays(t)
		return
	}
	// Whoever comes then gets a number too, and a later one.
	began, n := time.Now(), 1
	if p.leaving {
		n = 3 // more than a block, so that a claim or a lock that was left behind shows
	}
	gen := newGenerator(t, p.m.client(), append(p.options(p.book), p.told(-1))...)
	all, err := textsOf(gen.NextN(context.Background(), "IS", n))
	if p.permits(p.players-1, err) { // until an operator tells what was used
		used, err := gen.Parse(slices.Max(p.issued))
		require.NoError(t, err)
		require.NoError(t, gen.Raise(context.Background(), "IS", used.Seq))
		all, err = textsOf(gen.NextN(context.Background(), "IS", n))
		require.NoError(t, err)
	} else {
		require.NoError(t, err)
	}
	if p.leaving {
		require.Less(t, time.Since(began), patienceOfOthers, "something was left behind")
	}
	if first := p.byRequest["everybody's"]; first != "" {
		requireResult(t, first)(textOf(gen.NextOnce(context.Background(), "IS", "everybody's")))
	}
	last := all[0]
	slices.Sort(p.issued)
	var seq int64
	for i, number := range append(p.issued, last) {
		require.True(t, i == 0 || number > p.issued[i-1], "%v and then %s", p.issued, last)
		if p.varies { // midnight begins another print and no other counter
			n, err := gen.Parse(number)
			require.NoError(t, err)
			require.Greater(t, n.Seq, seq, "%v and then %s", p.issued, last)
			seq = n.Seq
		}
	}
	p.account(t, gen, append(p.issued, all...))
}

// account requires that everything counted was issued once or is explained, except for as much as possible reasons can
// be about, and what the dead took along. Nothing that was issued is explained.
func (p *play) account(t *testing.T, gen *serial.Generator, issued []string) {
	ctx := context.Background()
	unexplained, silent := int64(0), int64(0)
	require.NoError(t, gen.Flush(ctx))
	for i := range p.players {
		if p.dead[i] {
			silent++
			continue
		}
		require.NoError(t, p.gens[i].Flush(ctx))
		for nth := range p.each { // a request that was not answered has its number all the same
			if request := fmt.Sprintf("%d of %d", nth, i); p.once && nth > 0 && p.byRequest[request] == "" {
				number, err := gen.NextOnce(ctx, "IS", request)
				require.NoError(t, err)
				issued = append(issued, number.String())
			}
		}
	}
	days := map[time.Time]int64{}             // their greatest sequences
	schemes := map[time.Time]*serial.Scheme{} // of the start with which each was opened
	for _, number := range issued {
		n, err := gen.Parse(number)
		require.NoError(t, err)
		days[n.Start] = max(days[n.Start], n.Seq)
		if n.Seq < laterStart || p.prepare != nil {
			schemes[n.Start] = gen.Scheme()
		} else if schemes[n.Start] == nil {
			schemes[n.Start] = p.gens[p.players-1].Scheme()
		}
	}
	if p.lost {
		silent += blockOfPlay // nobody knows how far the counter had come
	}
	for _, e := range p.explained {
		var attempts int64
		switch _, err := fmt.Sscanf(e.Reason, serial.AnswerLost+": %d", &attempts); {
		case err == nil:
			silent += attempts // each for one number
		case e.Possible:
			silent += e.Last - e.First + 1
		}
	}
	for day, last := range days {
		r, err := schemes[day].Audit("IS", day, last, used(issued...), given(p.explained...))
		require.NoError(t, err)
		require.Zero(t, r.DuplicateCount+r.BeyondCount+r.ForeignCount+r.ContradictedCount, "%+v", r)
		unexplained += r.UnexplainedCount
	}
	require.LessOrEqual(t, unexplained, silent, "of %v unexplained, with %v", issued, p.explained)
}

// wildClock is what a play knows of a server's clock that may be wrong.
type wildClock struct {
	ahead    time.Duration
	jumped   bool
	passed   bool // midnight came while it was ahead
	back     bool
	raising  bool // an operator
	raised   bool
	operator *serial.Generator
	top      map[string]int64  // the greatest sequence of each counter
	expired  map[string]string // counters that expired early by this clock
}

// jump is how far the clock jumps: over two days that nobody enters.
const jump = 3 * 24 * time.Hour

// saw records a counter's sequence from a script's answer.
func (c *wildClock) saw(key string, seq int64) { c.top[key] = max(c.top[key], seq) }

// permits reports whether a player may get err between the clock's return and an operator's Raise: the period entered
// is in the future, or, if nobody entered one meanwhile, today's counter has expired.
func (c *wildClock) permits(err error) bool {
	return errors.Is(err, serial.ErrClockSkew) || len(c.expired) > 0 && errors.Is(err, serial.ErrCounterLost)
}

// clockMoves returns the moves of the clock and the operator that are possible now. mu must be held.
func (p *play) clockMoves() (all []move) {
	c := &p.clock
	switch {
	case !c.jumped:
		return []move{{what: jumps}}
	case !c.back:
		all = []move{{what: comesBack}, {what: comesSoon}}
		if !c.passed {
			all = append(all, move{what: overMidnight})
		}
	case !c.raising:
		all = []move{{what: raises}}
		if p.m.Exists(p.counter()) {
			all = append(all, move{what: raisesTo0})
		}
	}
	return all
}

// carryOutClock runs before every move, with mu held: while the clock is ahead, it moves only here.
func (p *play) carryOutClock(mv move) {
	c := &p.clock
	switch mv.what {
	case jumps:
		c.jumped, c.ahead = true, jump
		c.expired = map[string]string{}
		if last, err := p.m.Get(p.counter()); err == nil {
			c.expired[p.counter()] = last
		}
	case overMidnight:
		c.passed = true
		c.ahead += 24 * time.Hour
	case comesBack, comesSoon:
		c.setBack(p.m, mv.what == comesSoon)
	case raises, raisesTo0:
		c.raising = true
		used := c.top[p.counter()]
		if mv.what == raisesTo0 {
			used = 0
		}
		operator := p.players - 1
		p.done[operator] = false
		go func() {
			err := c.operator.Raise(context.Background(), "IS", used)
			p.mu.Lock()
			defer p.mu.Unlock()
			if err != nil {
				p.failed = append(p.failed, err)
			}
			c.raised, p.done[operator] = true, true
		}()
	}
	if c.ahead != 0 {
		p.m.SetTime(time.Now().Add(c.ahead))
	}
}

// setBack makes the clock right again. miniredis stores how long a key lives, a server when it expires.
func (c *wildClock) setBack(m *simulation, soon bool) {
	lives := map[string]time.Duration{}
	for _, key := range m.Keys() {
		lives[key] = m.TTL(key) + c.ahead
	}
	c.back, c.ahead = true, 0
	m.SetTime(time.Time{})
	m.ClockTTL(true) // from now on
	for key, left := range lives {
		m.SetTTL(key, left)
	}
	for key, last := range c.expired {
		if soon && !m.Exists(key) {
			_ = m.Set(key, last)
			m.SetTTL(key, time.Until(time.Now().Truncate(24*time.Hour).Add(24*time.Hour)))
		}
	}
}

// finishDays lets the days pass that the clock was ahead by, and one more. Everybody gets a number on each, after an
// operator's Raise where it is not known what was used.
func (p *play) finishDays(t *testing.T) {
	ctx := context.Background()
	gen := newGenerator(t, p.m.client(), p.options(nil)...)
	seen := map[string]bool{}
	for _, number := range p.issued {
		require.False(t, seen[number], "%s twice: %v", number, p.issued)
		seen[number] = true
	}
	entered := map[string]bool{} // by a clock that was ahead
	today := p.counter()
	for key := range p.clock.top {
		entered[key] = key > today
	}
	for day := range 6 {
		if day > 0 {
			time.Sleep(time.Until(time.Now().Truncate(24 * time.Hour).Add(24*time.Hour + time.Second)))
		}
		key := p.counter()
		there := p.m.Exists(key)
		for range 2 {
			number, err := gen.Next(ctx, "IS")
			switch {
			case errors.Is(err, serial.ErrClockSkew) && !p.clock.raised:
				p.clock.raised = true
				require.NoError(t, gen.Raise(ctx, "IS", p.clock.top[key]))
				number, err = gen.Next(ctx, "IS")
			case errors.Is(err, serial.ErrCounterLost) && !there && (entered[key] || day == 0 && !p.clock.raised):
				require.NoError(t, gen.Raise(ctx, "IS", p.clock.top[key]))
				there = true
				number, err = gen.Next(ctx, "IS")
			}
			require.NoError(t, err, "on %s", key)
			require.False(t, seen[number], "%s was issued again", number)
			seen[number] = true
			n, err := gen.Parse(number)
			require.NoError(t, err)
			if p.clock.top[key] == 0 {
				require.EqualValues(t, 1, n.Seq, "nobody had entered %s", key)
			}
			p.clock.saw(key, n.Seq)
		}
	}
}
