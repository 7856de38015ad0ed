package migrating

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/examples/guides/floor"
	"github.com/dailyserial/serial/examples/guides/internal/guidetest"
	"github.com/dailyserial/serial/internal/redistest"
)

// The guide's code comes from this package.
func TestGuide(t *testing.T) { guidetest.RequireCode(t, "migrating.md", "migrate.go") }

// errOf returns the error of a call.
func errOf[T any](_ T, err error) error { return err }

func today(zone *time.Location) string { return time.Now().In(zone).Format("20060102") }

// Old and new processes increment one counter, whichever opens the day.
func TestShared(t *testing.T) {
	for _, first := range []string{"old", "new"} {
		t.Run(first, func(t *testing.T) {
			rdb, zone := redistest.Start(t).Client(t), guidetest.Noon()
			gen, err := newShared(rdb, zone)
			require.NoError(t, err)
			old := &published{rdb: rdb, zone: zone, key: "serial:{IS}:"}
			j := new(journal)
			if first == "old" {
				j.run(t, times(1), 0, old)
			} else {
				j.run(t, times(1), 0, generator{gen})
			}
			j.run(t, times(40), 0, old, &changed{rdb, zone}, generator{gen})
			j.requireAll(t, today(zone), 1, 3+3*3*40)
		})
	}
}

// The same across two midnights, in a zone that is not the host's.
func TestSharedAtMidnight(t *testing.T) {
	zone, err := time.LoadLocation("Asia/Shanghai")
	require.NoError(t, err)
	synctest.Test(t, func(t *testing.T) {
		_, rdb := simulate(t)
		gen, err := newShared(rdb, zone)
		require.NoError(t, err)
		now := time.Now().In(zone)
		midnight := time.Date(now.Year(), now.Month(), now.Day()+1, 0, 0, 0, 0, zone)
		j := new(journal)
		for range 2 {
			time.Sleep(time.Until(midnight) - time.Second)
			j.run(t, func(int) bool { return time.Now().After(midnight.Add(time.Second)) }, 7*time.Millisecond,
				&changed{rdb, zone}, generator{gen})
			midnight = midnight.AddDate(0, 0, 1)
		}
		days := map[string]int{}
		for _, number := range j.all {
			days[number[2:10]]++
		}
		require.Len(t, days, 3)
		for day, n := range days {
			j.requireAll(t, day, 1, n)
		}
	})
}

// Forbidden changes of the shared counter by the old system, and their consequences.
func TestSharedMisused(t *testing.T) {
	zone := guidetest.Noon()
	for name, misuse := range map[string][]any{
		"DEL": {"DEL"}, "SET to less": {"SET", 2, "KEEPTTL"}, "earlier expiry": {"PEXPIRE", 0},
		"another content": {"SET", `"7"`, "KEEPTTL"},
	} {
		t.Run(name, func(t *testing.T) {
			rdb := redistest.Start(t).Client(t)
			gen, err := newShared(rdb, zone)
			require.NoError(t, err)
			j := new(journal)
			j.run(t, times(3), 0, generator{gen})
			command := slices.Insert(slices.Clone(misuse), 1, any("serial:{IS}:"+today(zone)))
			require.NoError(t, rdb.Do(t.Context(), command...).Err())
			require.ErrorIs(t, errOf(gen.Next(t.Context(), "IS")), serial.ErrCounterLost)

			require.NoError(t, gen.Raise(t.Context(), "IS", 9))
			j.run(t, times(1), 0, generator{gen})
			require.Equal(t, fmt.Sprintf("IS%s%04d", today(zone), 12), slices.Max(j.all))
		})
	}
}

// Two counters have no number in common.
func TestSplit(t *testing.T) {
	rdb, zone := redistest.Start(t).Client(t), guidetest.Noon()
	gen, err := newUpperHalf(rdb, zone)
	require.NoError(t, err)
	old := &published{rdb: rdb, zone: zone, key: "IS", most: 5000}
	j := new(journal)
	j.run(t, times(20), 0, old, generator{gen})
	halves := map[byte]int{}
	for _, number := range j.all {
		halves[number[10]]++
	}
	require.Equal(t, map[byte]int{'0': 60, '5': 60}, halves)
	require.Len(t, slices.Compact(slices.Sorted(slices.Values(j.all))), len(j.all), "no number twice")
	require.NoError(t, rdb.Set(t.Context(), "IS"+today(zone), 5000, redis.KeepTTL).Err())
	require.ErrorIs(t, errOf(old.next(t.Context(), "IS")), errExhausted)
}

// In mid-day: new processes continue where the old ones stopped, a forgotten old one gets errors, then the old system
// is used again, and then the new one.
func TestCutOver(t *testing.T) {
	rdb, zone := redistest.Start(t).Client(t), guidetest.Noon()
	ctx, day := t.Context(), today(zone)
	newGenerator := func() *serial.Generator {
		gen, err := newSuccessor(rdb, zone)
		require.NoError(t, err)
		return gen
	}
	old := &published{rdb: rdb, zone: zone, key: "IS"}
	j := new(journal)
	j.run(t, times(10), 0, old)

	// The old system is stopped, except for one process that nobody knew of.
	var forgotten sync.WaitGroup
	started, over := make(chan struct{}), make(chan struct{})
	forgotten.Go(func() {
		for i := 0; ; i++ {
			var isOver bool
			select {
			case <-over:
				isOver = true
			default:
			}
			number, err := old.next(ctx, "IS")
			if err != nil || isOver {
				assert.Error(t, err, "nothing stopped it")
				return
			}
			j.mu.Lock()
			j.all = append(j.all, number)
			j.mu.Unlock()
			if i == 5 {
				close(started)
			}
		}
	})
	<-started
	first, other := newGenerator(), newGenerator()
	j.run(t, times(10), 0, generator{first}, generator{other})
	close(over)
	forgotten.Wait()
	require.ErrorContains(t, errOf(old.next(ctx, "IS")), "not an integer")
	count := len(j.all)
	j.requireAll(t, day, 1, count)

	require.NoError(t, rollBack(ctx, rdb, first, "IS"))
	j.run(t, times(10), 0, old)
	j.requireAll(t, day, 1, count+30)

	again := newGenerator()
	require.NoError(t, cutOverAgain(ctx, rdb, again, "IS"))
	j.run(t, times(10), 0, generator{again}, generator{newGenerator()})
	j.requireAll(t, day, 1, count+30+60)
	require.Error(t, errOf(old.next(ctx, "IS")))
	require.NoError(t, rdb.Del(ctx, "serial:{IS}:"+day).Err(), "lost")
	// The floor answers for the old system, and the process for its own numbers.
	require.NoError(t, errOf(again.Next(ctx, "IS")))
}

// At midnight, the date decides which system is asked. Nothing needs to be read, and a lagging old process gets errors.
func TestCutOverAtMidnight(t *testing.T) {
	zone, err := time.LoadLocation("Asia/Shanghai")
	require.NoError(t, err)
	synctest.Test(t, func(t *testing.T) {
		m, rdb := simulate(t)
		gen, err := newSuccessor(rdb, zone)
		require.NoError(t, err)
		old := &published{rdb: rdb, zone: zone, key: "IS"}
		now := time.Now().In(zone)
		midnight := time.Date(now.Year(), now.Month(), now.Day()+1, 0, 0, 0, 0, zone)
		time.Sleep(time.Until(midnight) - time.Second)
		j := new(journal)
		j.run(t, func(int) bool { return !time.Now().Before(midnight) }, 10*time.Millisecond, byDate{midnight, old, gen})
		n := len(j.all)
		j.requireAll(t, now.Format("20060102"), 1, n)

		require.NoError(t, errOf(old.next(t.Context(), "IS"))) // by a process with the old configuration
		j.run(t, times(10), 10*time.Millisecond, byDate{midnight, old, gen})
		j.requireAll(t, midnight.Format("20060102"), 2, 31)
		require.Error(t, errOf(old.next(t.Context(), "IS")))

		time.Sleep(72 * time.Hour)
		require.NotContains(t, m.Dump(), "closed at", "it expires")
	})
}

type byDate struct {
	from time.Time
	old  source
	gen  *serial.Generator
}

func (s byDate) next(ctx context.Context, typ string) (string, error) {
	if time.Now().Before(s.from) {
		return s.old.next(ctx, typ)
	}
	return s.gen.Next(ctx, typ)
}

// Numbers are compared byte by byte. In MySQL, the column needs COLLATE utf8mb4_bin for that.
const orders = `CREATE TABLE orders (
	number text NOT NULL UNIQUE, type text NOT NULL, day text NOT NULL, seq bigint NOT NULL, customer text NOT NULL)`

// A maxPlusOne is the old system: SELECT max()+1, repeated if the number is taken.
type maxPlusOne struct {
	db   *sql.DB
	zone *time.Location
}

func (o *maxPlusOne) next(ctx context.Context, typ string) (string, error) {
	day := time.Now().In(o.zone)
	for {
		var seq int
		row := o.db.QueryRowContext(ctx, "SELECT coalesce(max(seq), 0) + 1 FROM orders WHERE type = $1 AND day = $2",
			typ, day.Format(time.DateOnly))
		if err := row.Scan(&seq); err != nil {
			return "", err
		}
		number := fmt.Sprintf("%s%s%04d", typ, day.Format("20060102"), seq)
		result, err := o.db.ExecContext(ctx,
			`INSERT INTO orders (number, type, day, seq, customer) VALUES ($1, $2, $3, $4, 'old')
			ON CONFLICT (number) DO NOTHING`, number, typ, day.Format(time.DateOnly), seq)
		if err != nil {
			return "", err
		}
		if n, err := result.RowsAffected(); err != nil || n == 1 {
			return number, err
		}
	}
}

type placing struct {
	gen *serial.Generator
	db  *sql.DB
}

func (p placing) next(ctx context.Context, typ string) (string, error) {
	return placeBesideMax(ctx, p.gen, p.db, typ, "new")
}

// Both systems run at once, then the new one alone, then the old one again.
func TestMax(t *testing.T) {
	db, _ := guidetest.PostgreSQL(t)
	db.SetMaxOpenConns(8)
	guidetest.Exec(t, db, orders)
	rdb, zone := redistest.Start(t).Client(t), guidetest.Noon()
	gen, err := serial.New(rdb, serial.WithLocation(zone), floor.LastStored(db))
	require.NoError(t, err)
	old := &maxPlusOne{db, zone}
	j := new(journal)
	j.run(t, times(5), 0, old)
	j.run(t, times(1), 0, placing{gen, db})
	j.requireAll(t, today(zone), 1, 18)
	j.run(t, times(15), 0, old, placing{gen, db})
	j.run(t, times(5), 0, placing{gen, db})
	j.run(t, times(5), 0, old)
	requireStored(t, j, db)

	require.NoError(t, rdb.FlushAll(t.Context()).Err()) // Redis loses everything: the floor has it
	j.run(t, times(5), 0, placing{gen, db})
	requireStored(t, j, db)
}

// requireStored requires that every number is in the table, and was issued once.
func requireStored(t *testing.T, j *journal, db *sql.DB) {
	t.Helper()
	require.ElementsMatch(t, j.all, guidetest.Strings(t, db, "SELECT number FROM orders"))
}

// A sequence is the old system: nextval.
type sequence struct {
	db   *sql.DB
	zone *time.Location
}

func (o *sequence) next(ctx context.Context, typ string) (string, error) {
	var seq int64
	err := o.db.QueryRowContext(ctx, "SELECT nextval('order_numbers')").Scan(&seq)
	return fmt.Sprintf("%s%s%04d", typ, today(o.zone), seq), err
}

// The sequence is closed while in use, and reopened.
func TestSequence(t *testing.T) {
	db, _ := guidetest.PostgreSQL(t)
	db.SetMaxOpenConns(8)
	guidetest.Exec(t, db, "CREATE SEQUENCE order_numbers")
	rdb, zone := redistest.Start(t).Client(t), guidetest.Noon()
	gen, err := serial.New(rdb, serial.WithLocation(zone))
	require.NoError(t, err)
	old := &sequence{db, zone}
	j := new(journal)
	j.run(t, times(5), 0, old)

	closed := make(chan error, 1)
	go func() { closed <- closeSequence(t.Context(), db, gen, "IS") }()
	var refused error
	for refused == nil { // the old system continues until it is refused
		number, err := old.next(t.Context(), "IS")
		if refused = err; err == nil {
			j.all = append(j.all, number)
		}
		select {
		case err := <-closed:
			require.NoError(t, err)
			closed <- nil
		default:
		}
	}
	require.ErrorContains(t, refused, "reached maximum value")
	require.NoError(t, <-closed)
	n := len(j.all)
	j.run(t, times(5), 0, generator{gen})
	j.requireAll(t, today(zone), 1, n+15)

	require.NoError(t, reopenSequence(t.Context(), db, gen, "IS"))
	j.run(t, times(5), 0, old)
	require.NoError(t, closeSequence(t.Context(), db, gen, "IS"))
	j.run(t, times(5), 0, generator{gen})
	j.requireAll(t, today(zone), 1, n+45)
}

// An unused sequence can be closed too; its first number is skipped.
func TestUnusedSequence(t *testing.T) {
	db, _ := guidetest.PostgreSQL(t)
	guidetest.Exec(t, db, "CREATE SEQUENCE order_numbers")
	gen, err := serial.New(redistest.Start(t).Client(t), serial.WithLocation(guidetest.Noon()))
	require.NoError(t, err)
	require.NoError(t, closeSequence(t.Context(), db, gen, "IS"))
	require.NoError(t, closeSequence(t.Context(), db, gen, "IS"), "again")
	number, err := gen.NextNumber(t.Context(), "IS")
	require.NoError(t, err)
	require.EqualValues(t, 2, number.Seq)
}
