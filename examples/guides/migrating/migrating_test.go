package migrating

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/examples/internal/exampletest"
	"github.com/dailyserial/serial/serialtest"
)

func TestGuide(t *testing.T) {
	exampletest.RequireCode(t, exampletest.ReadFile(t, "../../../docs/migrating.md"), "migrate.go")
}

// newRedis returns a Redis whose clock does not run, and the day that the clock shows.
func newRedis(t *testing.T) (rdb redis.UniversalClient, day string) {
	now := time.Now().UTC()
	return serialtest.NewRedis(t, now).Client(), now.Format("20060102")
}

// from returns a function that takes a number of IS, like the functions of the old systems below.
func from(t *testing.T, gen *serial.Generator) func() (string, error) {
	return func() (string, error) { return gen.Next(t.Context(), "IS") }
}

// issue makes every source issue ten numbers, all sources at the same time.
func issue(t *testing.T, sources ...func() (string, error)) []string {
	all := make([]string, 10*len(sources))
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() {
			var err error
			all[i], err = sources[i%len(sources)]()
			assert.NoError(t, err)
		})
	}
	wg.Wait()
	return all
}

// untilRefused starts a source that issues numbers until it fails, like a forgotten process. result waits for its end.
func untilRefused(next func() (string, error)) (result func() ([]string, error)) {
	var all []string
	var number string
	var err error
	var process sync.WaitGroup
	process.Go(func() {
		for number, err = next(); err == nil; number, err = next() {
			all = append(all, number)
		}
	})
	return func() ([]string, error) { process.Wait(); return all, err }
}

// requireAll requires that the numbers of a day begin with 1, have no gap, and occur once each.
func requireAll(t *testing.T, day string, got []string) {
	t.Helper()
	slices.Sort(got)
	for i, number := range got {
		require.Equal(t, fmt.Sprintf("IS%s%04d", day, i+1), number)
	}
}

// The new system closes the old counter while a forgotten process is still using it. No number may be issued twice.
func TestCutOver(t *testing.T) {
	rdb, day := newRedis(t)
	old := func() (string, error) {
		seq, err := rdb.Incr(t.Context(), "IS"+day).Result()
		return fmt.Sprintf("IS%s%04d", day, seq), err
	}
	all := issue(t, old)
	forgotten := untilRefused(old)
	gen := exampletest.Must(newSuccessor(rdb, time.UTC))
	all = append(all, issue(t, from(t, gen), from(t, gen))...)
	more, err := forgotten()
	require.ErrorContains(t, err, "not an integer")
	all = append(all, more...)

	// Return to the old system, as in the guide, and then to the new one again.
	last := exampletest.Must(gen.Peek(t.Context(), "IS"))
	require.NoError(t, rdb.Set(t.Context(), "IS"+day, last.Seq, redis.KeepTTL).Err())
	all = append(all, issue(t, old)...)
	closed := exampletest.Must(closeOld(t.Context(), rdb, "IS", last.Start))
	require.NoError(t, gen.Raise(t.Context(), "IS", closed))
	requireAll(t, day, append(all, issue(t, from(t, gen))...))
}

// The guide's statements must close the sequence while a forgotten process is using it, and reopen it.
func TestSequence(t *testing.T) {
	db, _ := exampletest.PostgreSQL(t, "CREATE SEQUENCE order_numbers")
	guide := strings.Join(strings.Fields(exampletest.ReadFile(t, "../../../docs/migrating.md")), " ")
	run := func(statement string) error {
		require.Contains(t, guide, statement)
		_, err := db.ExecContext(t.Context(), statement)
		return err
	}
	rdb, day := newRedis(t)
	old := func() (string, error) {
		var seq int
		err := db.QueryRowContext(t.Context(), "SELECT nextval('order_numbers')").Scan(&seq)
		return fmt.Sprintf("IS%s%04d", day, seq), err
	}
	gen := exampletest.Must(serial.New(rdb, serial.WithLocation(time.UTC)))
	all := issue(t, old)
	forgotten := untilRefused(old)
	const closing = "DO $$ BEGIN EXECUTE format('ALTER SEQUENCE order_numbers MAXVALUE %s NO CYCLE', " +
		"(SELECT last_value FROM order_numbers)); END $$"
	for run(closing) != nil { // the forgotten process has taken a number at that moment
	}
	var last int64
	require.NoError(t, db.QueryRow("SELECT last_value FROM order_numbers").Scan(&last))
	require.NoError(t, gen.Raise(t.Context(), "IS", last))
	more, err := forgotten()
	require.ErrorContains(t, err, "reached maximum value")
	all = slices.Concat(all, more, issue(t, from(t, gen)))
	require.NoError(t, run("ALTER SEQUENCE order_numbers NO MAXVALUE"))
	exampletest.Must(db.Exec("SELECT setval('order_numbers', $1)", len(all)))
	requireAll(t, day, slices.Concat(all, issue(t, old)))
}
