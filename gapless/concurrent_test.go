package gapless_test

import (
	"bufio"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/gapless"
)

// documents creates the table for the numbered documents.
func (d *database) documents(t *testing.T, db *sql.DB) {
	t.Helper()
	suffix := ""
	if d.dialect == gapless.MySQL {
		suffix = " ENGINE = InnoDB"
	}
	execSQL(t, db, "CREATE TABLE documents (number varchar(100) NOT NULL PRIMARY KEY)"+suffix)
}

// store stores a document.
func store(ctx context.Context, tx gapless.Tx, number serial.Number) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO documents VALUES ('"+number.String()+"')")
	return err
}

// stored stores the document of a number, unless the call that took it failed.
func stored(ctx context.Context, tx gapless.Tx, number serial.Number, err error) error {
	if err != nil {
		return err
	}
	return store(ctx, tx, number)
}

// requireGapless checks that the numbers of the documents are 1 to the last one of each type and period. That holds at
// every instant, so it is asked in one snapshot: a COMMIT whose caller has gone may still be under way.
func (d *database) requireGapless(t *testing.T, db *sql.DB, g *gapless.Generator, s *serial.Scheme) (count int) {
	t.Helper()
	level := sql.LevelRepeatableRead
	if d.dialect == gapless.SQLite {
		level = sql.LevelDefault
	}
	tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback()) }()
	rows, err := tx.QueryContext(t.Context(), "SELECT number FROM documents")
	require.NoError(t, err)
	type series struct{ typ, label string }
	seqs, at := map[series][]int64{}, map[series]time.Time{}
	for rows.Next() {
		var text string
		require.NoError(t, rows.Scan(&text))
		n, err := s.Parse(text)
		require.NoError(t, err)
		label, _, _ := s.Period(serial.At(n.Start))
		key := series{n.Type, label}
		seqs[key], at[key] = append(seqs[key], n.Seq), n.Start
		count++
	}
	require.NoError(t, rows.Err())
	require.NoError(t, rows.Close())
	first, _ := s.Limits()
	for key, found := range seqs {
		slices.Sort(found)
		for i, seq := range found {
			require.Equal(t, first+int64(i), seq, "%v has a gap or a duplicate: %v", key, found)
		}
		requireSeq(t, found[len(found)-1], "%v", key)(g.Last(t.Context(), tx, key.typ, serial.At(at[key])))
	}
	return count
}

// again reports whether a transaction failed only because of concurrent ones.
func again(err error) bool {
	var mysqlError *mysql.MySQLError
	return errors.As(err, &mysqlError) && mysqlError.Number == 1213
}

// connection returns the server's ID of a transaction's connection.
func (d *database) connection(ctx context.Context, tx *sql.Tx) (id int64, err error) {
	ask := "SELECT pg_backend_pid()"
	if d.dialect == gapless.MySQL {
		ask = "SELECT connection_id()"
	}
	err = tx.QueryRowContext(ctx, ask).Scan(&id)
	return id, err
}

// kill kills a connection.
func (d *database) kill(ctx context.Context, admin *sql.DB, connection int64) error {
	end := "SELECT pg_terminate_backend(%d, 30000)"
	if d.dialect == gapless.MySQL {
		end = "KILL %d"
	}
	return errOf(admin.ExecContext(ctx, fmt.Sprintf(end, connection)))
}

// untilAlone repeats a transaction for as long as it fails only because others are at work.
func untilAlone(transaction func() error) (err error) {
	for err = transaction(); again(err); {
		err = transaction()
	}
	return err
}

// Transactions of all kinds of fates leave no gap and no duplicate among the documents.
func TestFates(t *testing.T) {
	const goroutines, rounds = 200, 4
	s := scheme(t, serial.WithTemplate("{type}{date:yyyyMMdd}-{seq:4}"))
	each(t, func(t *testing.T, d *database) {
		db, admin := d.open(t), d.open(t)
		connections := 40
		if d.dialect == gapless.SQLite {
			connections = 8 // they wait by polling, so more are only slower
		}
		db.SetMaxOpenConns(connections)
		db.SetMaxIdleConns(connections)
		d.documents(t, db)
		g := d.generator(t, db, serial.WithTemplate("{type}{date:yyyyMMdd}-{seq:4}"))
		types := []string{"A", "B", "C"}
		back := date(t, "2021-10-24")
		run := func(seed uint64) error {
			r := rand.New(rand.NewPCG(seed, 0))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer func() { _ = tx.Rollback() }()
			document := func(typ string, on bool) error {
				var n serial.Number
				var err error
				if on {
					n, err = g.NextOn(ctx, tx, typ, serial.At(back))
				} else {
					n, err = g.Next(ctx, tx, typ)
				}
				return stored(ctx, tx, n, err)
			}
			typ, on := types[r.IntN(len(types))], r.IntN(4) == 0
			fate := seed % 7
			if fate == 1 { // to a savepoint, then continues
				if _, err := tx.ExecContext(ctx, "SAVEPOINT s"); err != nil {
					return err
				}
				if err := document(typ, on); err != nil {
					return err
				}
				if _, err := tx.ExecContext(ctx, "ROLLBACK TO SAVEPOINT s"); err != nil {
					return err
				}
			}
			if fate == 2 { // the context ends during the wait, or soon after
				time.AfterFunc(time.Duration(r.IntN(20))*time.Millisecond, cancel)
			}
			if err := document(typ, on); err != nil {
				return err
			}
			switch fate {
			case 3:
				return tx.Rollback()
			case 4: // the connection is killed, and nobody else gets it
				if d.dialect == gapless.SQLite {
					return tx.Rollback()
				}
				id, err := d.connection(ctx, tx)
				if err != nil {
					return err
				}
				err = d.kill(t.Context(), admin, id)
				for alive := d.dialect == gapless.MySQL; alive && err == nil; {
					query := fmt.Sprintf("SELECT count(*) > 0 FROM information_schema.processlist WHERE id = %d", id)
					err = admin.QueryRowContext(t.Context(), query).Scan(&alive)
				}
				if err != nil {
					t.Error(err)
				}
			case 5: // several at once
				numbers, err := g.NextN(ctx, tx, typ, 3)
				if err != nil {
					return err
				}
				for _, n := range numbers {
					if err := store(ctx, tx, n); err != nil {
						return err
					}
				}
			}
			return tx.Commit()
		}
		var committed, failed int
		var mu sync.Mutex
		var workers sync.WaitGroup
		for i := range goroutines {
			workers.Go(func() {
				for j := range rounds {
					err := untilAlone(func() error { return run(uint64(i*rounds + j)) })
					// Others may be given a connection that broke; their transactions fail as a whole, too.
					if fate := (i*rounds + j) % 7; err != nil && fate != 2 && fate != 4 && !errors.Is(err, driver.ErrBadConn) {
						t.Errorf("fate %d: %v", fate, err)
					}
					mu.Lock()
					if err == nil {
						committed++
					} else {
						failed++
					}
					mu.Unlock()
				}
			})
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			workers.Wait()
		}()
		checks := 0
		for running := true; running; checks++ {
			d.requireGapless(t, admin, g, s)
			select {
			case <-ended:
				running = false
			case <-time.After(20 * time.Millisecond):
			}
		}
		count := d.requireGapless(t, admin, g, s)
		t.Logf("%d transactions ended well and %d did not; %d documents, looked at %d times", committed, failed,
			count, checks)
		require.Greater(t, count, goroutines*rounds/3)
	})
}

// Fifty transactions begin a period at once. If the first rolls back, MySQL ends some of the others as deadlocks.
func TestFirstUse(t *testing.T) {
	s := scheme(t, serial.WithPeriod(serial.Never), serial.WithTemplate("{type}-{seq:4}"))
	each(t, func(t *testing.T, d *database) {
		const callers = 50
		db := d.open(t)
		admin := d.open(t)
		d.documents(t, db)
		g := d.generator(t, admin, serial.WithPeriod(serial.Never), serial.WithTemplate("{type}-{seq:4}"))
		for _, typ := range []string{"commits", "rolls-back"} {
			first := begin(t, db)
			n, err := g.Next(t.Context(), first, typ)
			require.NoError(t, err)
			require.EqualValues(t, 1, n.Seq)
			require.NoError(t, store(t.Context(), first, n))
			var workers sync.WaitGroup
			for range callers {
				workers.Go(func() {
					if err := untilAlone(func() error {
						return inTx(t.Context(), db, sql.LevelDefault, func(tx *sql.Tx) error {
							n, err := g.Next(t.Context(), tx, typ)
							return stored(t.Context(), tx, n, err)
						})
					}); err != nil {
						t.Error(err)
					}
				})
			}
			d.waiting(t, admin, callers)
			if typ == "commits" {
				require.NoError(t, first.Commit())
			} else {
				require.NoError(t, first.Rollback())
			}
			workers.Wait()
		}
		require.Equal(t, 2*callers+1, d.requireGapless(t, db, g, s))
	})
}

// Callers that wait while a period ends get numbers of the next one: of a day, and of seconds that are shorter than the
// wait.
func TestPeriodEnds(t *testing.T) {
	kinds(t, each, func(t *testing.T, d *database) {
		db, admin := d.open(t), d.open(t)
		d.documents(t, db)
		for _, day := range []bool{true, false} {
			const waiting = 20
			execSQL(t, db, "DELETE FROM documents")
			var s *serial.Scheme
			var g *gapless.Generator
			var first *sql.Tx
			var before serial.Number
			var end time.Time
			for attempt := 0; ; attempt++ {
				opts := []serial.Option{serial.WithPeriod(serial.PerSecond),
					serial.WithTemplate("S{type}{date:yyyyMMddHHmmss}-{seq:4}")}
				if day {
					// A zone in which the day ends in two or three seconds.
					left := 24*3600 - int(d.clock(t, admin).Unix()%(24*3600)) - 3
					opts = []serial.Option{serial.WithLocation(time.FixedZone("", left)),
						serial.WithTemplate("{type}{date:yyyyMMdd}-{seq:4}")}
				}
				opts = append(opts, serial.WithKeyPrefix(fmt.Sprintf("%v-%d", day, attempt)))
				s, g = scheme(t, opts...), d.generator(t, admin, opts...)
				first = begin(t, db)
				var err error
				before, err = g.Next(t.Context(), first, "IS")
				require.NoError(t, err)
				_, _, end = s.Period(serial.At(before.Start))
				if end.Before(d.clock(t, admin).Add(time.Minute)) {
					break
				}
				require.NoError(t, first.Rollback()) // the day ended before the number was taken
			}
			require.EqualValues(t, 1, before.Seq)
			require.NoError(t, store(t.Context(), first, before))
			numbers := make(chan serial.Number, waiting)
			var workers sync.WaitGroup
			for range waiting {
				workers.Go(func() {
					var n serial.Number
					if err := untilAlone(func() error {
						return inTx(t.Context(), db, sql.LevelDefault, func(tx *sql.Tx) (err error) {
							n, err = g.Next(t.Context(), tx, "IS")
							return stored(t.Context(), tx, n, err)
						})
					}); err != nil {
						t.Error(err)
					}
					numbers <- n
				})
			}
			most := 0 // callers seen waiting
			require.Eventually(t, func() bool {
				most = max(most, d.waiters(t, admin))
				return d.clock(t, admin).After(end)
			}, 30*time.Second, d.tick())
			require.NoError(t, first.Commit())
			workers.Wait()
			t.Logf("%d of %d were seen to wait", most, waiting)
			close(numbers)
			for n := range numbers {
				if day {
					require.False(t, n.Start.Before(end), "%v of %v, which ended at %v", n, n.Start, end)
				}
			}
			require.Equal(t, waiting+1, d.requireGapless(t, db, g, s))
			last, err := g.Last(t.Context(), db, "IS", serial.At(before.Start))
			require.NoError(t, err)
			if day {
				require.EqualValues(t, 1, last.Seq, "no number of the past day was taken")
			}
		}
	})
}

// Numbers are in the order of commits: a transaction with a greater one sees the documents of all smaller ones.
func TestOrder(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		db := d.open(t)
		db.SetMaxOpenConns(8)
		d.documents(t, db)
		g := d.generator(t, db)
		day := date(t, "2021-10-24")
		var workers sync.WaitGroup
		for range 8 {
			workers.Go(func() {
				for range 10 {
					if err := untilAlone(func() error {
						return inTx(t.Context(), db, d.readCommitted(), func(tx *sql.Tx) error {
							n, err := g.NextOn(t.Context(), tx, "IS", serial.At(day))
							if err != nil {
								return err
							}
							var seen int64
							err = tx.QueryRowContext(t.Context(), "SELECT count(*) FROM documents").Scan(&seen)
							if err == nil && seen != n.Seq-1 {
								t.Errorf("number %d sees %d documents", n.Seq, seen)
							}
							return stored(t.Context(), tx, n, err)
						})
					}); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		workers.Wait()
		require.Equal(t, 80, d.requireGapless(t, db, g, scheme(t)))
	})
}

func (d *database) readCommitted() sql.IsolationLevel {
	if d.dialect == gapless.SQLite {
		return sql.LevelDefault
	}
	return sql.LevelReadCommitted
}

// Types and periods do not wait for each other, except on SQLite.
func TestIndependent(t *testing.T) {
	servers(t, func(t *testing.T, d *database) {
		db, g := d.start(t)
		other := d.generator(t, db, serial.WithKeyPrefix("other"))
		commits(t, db, func(tx *sql.Tx) { // transactions that begin a series do wait
			require.NoError(t, errOf(g.NextOn(t.Context(), tx, "IS", serial.At(date(t, "2021-10-23")))))
		})
		for range 2 { // first with new rows, then with existing ones
			held := begin(t, db)
			require.NoError(t, errOf(g.NextOn(t.Context(), held, "IS", serial.At(date(t, "2021-10-24")))))
			commits(t, db, func(tx *sql.Tx) {
				require.NoError(t, errOf(g.NextOn(t.Context(), tx, "IT", serial.At(date(t, "2021-10-24")))))
				require.NoError(t, errOf(g.NextOn(t.Context(), tx, "IS", serial.At(date(t, "2021-10-25")))))
				require.NoError(t, errOf(other.NextOn(t.Context(), tx, "IS", serial.At(date(t, "2021-10-24")))))
			})
			last, err := g.Last(t.Context(), db, "IS", serial.At(date(t, "2021-10-24"))) // waits for nobody
			require.NoError(t, err)
			require.Less(t, last.Seq, int64(2))
			require.NoError(t, held.Commit())
		}
	})
}

// A caller waits as long as its context lives, and the error says so.
func TestContextEnds(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		if d.dialect == gapless.SQLite {
			t.Skip("SQLite waits for the busy timeout")
		}
		db, g := d.start(t)
		held := begin(t, db)
		require.NoError(t, errOf(g.NextOn(t.Context(), held, "IS", serial.At(date(t, "2021-10-24")))))
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		tx := begin(t, db)
		require.ErrorIs(t, errOf(g.NextOn(ctx, tx, "IS", serial.At(date(t, "2021-10-24")))), context.DeadlineExceeded)
		_ = tx.Rollback()
		require.NoError(t, held.Rollback())
		commits(t, db, func(tx *sql.Tx) {
			requireSeq(t, 1)(g.NextOn(t.Context(), tx, "IS", serial.At(date(t, "2021-10-24"))))
		})
	})
}

// PostgreSQL fails transactions that have waited at REPEATABLE READ; when repeated, they get the next number.
func TestRepeatableRead(t *testing.T) {
	d := postgreSQL(t)
	db, g := d.start(t)
	day := date(t, "2021-10-24")
	commits(t, db, func(tx *sql.Tx) {
		require.NoError(t, errOf(g.NextOn(t.Context(), tx, "IS", serial.At(day))))
	})
	tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	require.NoError(t, err)
	var one int
	require.NoError(t, tx.QueryRowContext(t.Context(), "SELECT 1").Scan(&one)) // its snapshot
	commits(t, db, func(tx *sql.Tx) {
		require.NoError(t, errOf(g.NextOn(t.Context(), tx, "IS", serial.At(day))))
	})
	_, err = g.NextOn(t.Context(), tx, "IS", serial.At(day))
	var state interface{ SQLState() string }
	require.ErrorAs(t, err, &state)
	require.Equal(t, "40001", state.SQLState())
	require.NoError(t, tx.Rollback())
}

const workerEnv = "GAPLESS_TEST_WORKER"

func TestMain(m *testing.M) {
	if arguments := os.Getenv(workerEnv); arguments != "" {
		if err := hang(strings.Split(arguments, "|")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// hang, run in a separate process, takes a number, prints it and does not commit.
func hang(arguments []string) error {
	dialect, err := strconv.Atoi(arguments[0])
	if err != nil {
		return err
	}
	d := &database{dialect: gapless.Dialect(dialect), dsn: arguments[1], name: arguments[2]}
	db, err := d.connect()
	if err != nil {
		return err
	}
	s, err := serial.NewScheme(serial.WithLocation(time.UTC))
	if err != nil {
		return err
	}
	g, err := gapless.New(d.dialect, s)
	if err != nil {
		return err
	}
	ctx := context.Background()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	n, err := g.NextOn(ctx, tx, "IS", serial.At(time.Date(2021, 10, 24, 0, 0, 0, 0, time.UTC)))
	if err := stored(ctx, tx, n, err); err != nil {
		return err
	}
	fmt.Println(n)
	_, err = bufio.NewReader(os.Stdin).ReadString('\n') // never comes
	return err
}

// While a process hangs with a number, the others wait; when it is killed, the number is free again.
func TestKilled(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		db, admin := d.open(t), d.open(t)
		d.documents(t, db)
		g := d.generator(t, db)
		day := date(t, "2021-10-24")
		for range 2 {
			binary, err := os.Executable()
			require.NoError(t, err)
			cmd := exec.Command(binary)
			cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d|%s|%s", workerEnv, d.dialect, d.dsn, d.name))
			cmd.Stderr = os.Stderr
			in, err := cmd.StdinPipe()
			require.NoError(t, err)
			defer func() { _ = in.Close() }()
			out, err := cmd.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			t.Cleanup(func() {
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
			})
			line, err := bufio.NewReader(out).ReadString('\n')
			require.NoError(t, err)
			done := make(chan serial.Number)
			go func() {
				defer close(done)
				var n serial.Number
				if err := inTx(t.Context(), db, sql.LevelDefault, func(tx *sql.Tx) (err error) {
					n, err = g.NextOn(t.Context(), tx, "IS", serial.At(day))
					return stored(t.Context(), tx, n, err)
				}); err != nil {
					t.Error(err)
				}
				done <- n
			}()
			d.waiting(t, admin, 1)
			require.NoError(t, cmd.Process.Kill())
			require.Equal(t, strings.TrimSpace(line), (<-done).String())
			<-done
		}
		require.Equal(t, 2, d.requireGapless(t, db, g, scheme(t)))
	})
}
