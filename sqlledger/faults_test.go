package sqlledger_test

import (
	"bufio"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/internal/race"
	"github.com/dailyserial/serial/sqlledger"
)

const workerEnv = "SQLLEDGER_TEST_WORKER"

func TestMain(m *testing.M) {
	if arguments := os.Getenv(workerEnv); arguments != "" {
		if err := work(strings.Split(arguments, "|")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// A worker is this test binary as a separate process. When told to proceed, it reserves rounds times and prints the
// results.
type worker struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

// startWorker starts a worker. With hang, it stops when about to commit, and says so.
func startWorker(t *testing.T, d *database, rounds int, hang bool) *worker {
	t.Helper()
	binary, err := os.Executable()
	require.NoError(t, err)
	w := &worker{cmd: exec.Command(binary)}
	w.cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d|%s|%s|%d|%v", workerEnv, d.dialect, d.dsn, d.name, rounds, hang))
	w.cmd.Stderr = os.Stderr
	w.in, err = w.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := w.cmd.StdoutPipe()
	require.NoError(t, err)
	w.out = bufio.NewScanner(out)
	require.NoError(t, w.cmd.Start())
	t.Cleanup(func() {
		_ = w.cmd.Process.Kill()
		_ = w.cmd.Wait()
	})
	return w
}

// line requires that the worker's next line is line.
func (w *worker) line(t *testing.T, line string) {
	t.Helper()
	require.True(t, w.out.Scan(), "the worker ended: %v", w.out.Err())
	require.Equal(t, line, w.out.Text())
}

func (w *worker) proceed(t *testing.T) {
	t.Helper()
	require.NoError(t, errOf(io.WriteString(w.in, "\n")))
}

func work(arguments []string) error {
	dialect, err := strconv.Atoi(arguments[0])
	if err != nil {
		return err
	}
	rounds, err := strconv.Atoi(arguments[3])
	if err != nil {
		return err
	}
	var h hook
	if arguments[4] == "true" {
		h = on("COMMIT", func(*statement) error {
			fmt.Println("committing")
			time.Sleep(time.Hour)
			return nil
		})
	}
	d := &database{dialect: sqlledger.Dialect(dialect), dsn: arguments[1], name: arguments[2]}
	c, err := d.connector(h)
	if err != nil {
		return err
	}
	db := sql.OpenDB(c)
	l, err := sqlledger.New(db, d.dialect)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	for i := range rounds {
		n := int64(1 + i)
		after, err := l.Reserve(context.Background(), days("IS", day, 0, n))
		if err != nil {
			return err
		}
		fmt.Println(after, n)
	}
	return db.Close()
}

func TestProcesses(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		const processes, rounds = 32, 4
		d.ledger(t, nil)
		var workers []*worker
		for range processes {
			workers = append(workers, startWorker(t, d, rounds, false))
		}
		for _, w := range workers {
			w.line(t, "ready")
		}
		for _, w := range workers {
			w.proceed(t)
		}
		var blocks []block
		for _, w := range workers {
			for w.out.Scan() {
				var b block
				require.NoError(t, errOf(fmt.Sscan(w.out.Text(), &b.after, &b.n)))
				blocks = append(blocks, b)
			}
			require.NoError(t, w.cmd.Wait())
		}
		require.Len(t, blocks, processes*rounds)
		requireTiled(t, blocks)
	})
}

// While a process hangs in a reservation, nobody gets the block; when the process is killed, the block is free again.
func TestKilled(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		l := d.ledger(t, nil)
		requireResult(t, int64(0))(l.Reserve(t.Context(), days("IS", day, 0, 10)))
		w := startWorker(t, d, 1, true)
		w.line(t, "ready")
		w.proceed(t)
		w.line(t, "committing")

		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, errOf(l.Reserve(ctx, days("IS", day, 0, 10))), context.DeadlineExceeded)

		require.NoError(t, w.cmd.Process.Kill())
		requireResult(t, int64(10))(l.Reserve(t.Context(), days("IS", day, 0, 10)))
	})
}

// The server closes the connection before it receives the COMMIT.
func TestConnectionLost(t *testing.T) {
	onServers(t, func(t *testing.T, d *database) {
		admin := d.open(t, nil)
		var lose atomic.Bool
		l := d.ledger(t, on("COMMIT", func(s *statement) error {
			if !lose.CompareAndSwap(true, false) {
				return s.run(s.text)
			}
			whoami, kill := "SELECT pg_backend_pid()", "SELECT pg_terminate_backend(%s, 5000)"
			if d.dialect == sqlledger.MySQL {
				whoami, kill = "SELECT connection_id()", "KILL %s"
			}
			id, err := s.ask(whoami)
			require.NoError(t, err)
			execSQL(t, admin, fmt.Sprintf(kill, id))
			err = s.run(s.text)
			require.Error(t, err)
			return err
		}))
		requireResult(t, int64(0))(l.Reserve(t.Context(), days("IS", day, 0, 10)))
		lose.Store(true)
		require.Error(t, errOf(l.Reserve(t.Context(), days("IS", day, 0, 10))))
		requireResult(t, int64(10))(l.Reserve(t.Context(), days("IS", day, 0, 10)))
	})
}

// If the answer to a COMMIT is lost, the block is a gap and the caller gets an error: the reservation is not repeated.
func TestAnswerLost(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		for _, lost := range []error{io.ErrUnexpectedEOF, driver.ErrBadConn} {
			var lose atomic.Bool
			l := d.ledger(t, on("COMMIT", func(s *statement) error {
				if err := s.run(s.text); err != nil || !lose.CompareAndSwap(true, false) {
					return err
				}
				return lost
			}))
			first, err := l.Reserve(t.Context(), days("IS", day, 0, 10))
			require.NoError(t, err)
			lose.Store(true)
			_, err = l.Reserve(t.Context(), days("IS", day, 0, 10))
			require.ErrorIs(t, err, lost)
			require.ErrorContains(t, err, "sqlledger: reserve: ")
			requireResult(t, first+20)(l.Reserve(t.Context(), days("IS", day, 0, 10)))
		}
	})
}

// A transaction that the database rolled back is repeated. One that may have been committed, or would always be
// refused, is not.
func TestTriedAgain(t *testing.T) {
	const begin, change, commit = "BEGIN", "INSERT", "COMMIT"
	const with = "WITH" // begins PostgreSQL's statement that changes something
	type fault struct {
		at    string
		err   error
		tries int32
	}
	faults := map[sqlledger.Dialect][]fault{
		sqlledger.PostgreSQL: {
			{begin, driver.ErrBadConn, 2},
			{with, driver.ErrBadConn, 2},
			{with, &pgconn.PgError{Code: "40001"}, 2},
			{with, &pgconn.PgError{Code: "40P01"}, 2},
			{with, &pgconn.PgError{Code: "55P03"}, 2},
			{commit, &pgconn.PgError{Code: "40001"}, 2},
			{commit, &pgconn.PgError{Code: "40003"}, 1},
			{with, &pgconn.PgError{Code: "25006"}, 1},
		},
		sqlledger.MySQL: {
			{"START", driver.ErrBadConn, 2},
			{change, &mysql.MySQLError{Number: 1213}, 2},
			{change, &mysql.MySQLError{Number: 1205}, 2},
			{change, &mysql.MySQLError{Number: 1020}, 2},
			{"SELECT", &mysql.MySQLError{Number: 1213, SQLState: [5]byte([]byte("40001"))}, 2},
			{commit, &mysql.MySQLError{Number: 1213}, 2},
			{commit, &mysql.MySQLError{Number: 3101}, 2},
			{commit, &mysql.MySQLError{Number: 1205}, 1},
			{change, &mysql.MySQLError{Number: 12130}, 1},
			{change, &mysql.MySQLError{Number: 1290}, 1},
		},
		sqlledger.SQLite: {
			{begin, errors.New("database is locked (5) (SQLITE_BUSY)"), 2},
			{change, errors.New("database table is locked"), 2},
			{commit, errors.New("database is locked"), 2},
			{change, errors.New("disk I/O error"), 1},
		},
	}
	each(t, func(t *testing.T, d *database) {
		for i, f := range faults[d.dialect] {
			var inject atomic.Bool
			var tries atomic.Int32
			l := d.ledger(t, func(s *statement) error {
				if strings.HasPrefix(s.text, begin) || strings.HasPrefix(s.text, "START") {
					tries.Add(1)
				}
				if strings.HasPrefix(s.text, f.at) && inject.CompareAndSwap(true, false) {
					if f.at == commit {
						_ = s.run("ROLLBACK")
					}
					return f.err
				}
				return s.run(s.text)
			})
			series := fmt.Sprint(i)
			requireResult(t, int64(0))(l.Reserve(t.Context(), days(series, day, 0, 3)))
			inject.Store(true)
			tries.Store(0)
			after, err := l.Reserve(t.Context(), days(series, day, 0, 3))
			require.Equal(t, f.tries, tries.Load(), "%s: %v", f.at, f.err)
			if f.tries > 1 {
				require.NoError(t, err)
				require.EqualValues(t, 3, after)
			} else {
				require.ErrorIs(t, err, f.err)
			}
			requireResult(t, int64(3*f.tries), "%s: %v", f.at, f.err)(l.Reserve(t.Context(), days(series, day, 0, 3)))
		}
	})
}

// This is a real deadlock in the servers, not just the error.
func TestDeadlock(t *testing.T) {
	onServers(t, func(t *testing.T, d *database) {
		const last = "UPDATE serial_ledger SET last = last + 1 WHERE series = "
		// PostgreSQL fails the transaction that first looks for deadlocks, MySQL the one that has changed less.
		patient := map[sqlledger.Dialect]string{
			sqlledger.PostgreSQL: "SET deadlock_timeout = '1min'",
			sqlledger.MySQL:      "SET @nothing = 1",
		}[d.dialect]
		other, err := d.open(t, nil, patient).Conn(t.Context())
		require.NoError(t, err)
		defer func() { require.NoError(t, other.Close()) }()
		var cross atomic.Bool
		crossed := make(chan error, 1)
		l := d.ledger(t, on("COMMIT", func(s *statement) error {
			if !cross.CompareAndSwap(true, false) {
				return s.run(s.text)
			}
			go func() {
				_, err := other.ExecContext(t.Context(), last+literal(d, "IS")) // waits for the reservation
				_, failed := other.ExecContext(t.Context(), "ROLLBACK")
				crossed <- errors.Join(err, failed)
			}()
			err := s.run(last + literal(d, "PO"))
			require.Error(t, err, "the other transaction has the lock, and waits")
			return err
		}))
		for _, series := range []string{"PO", "A", "B", "C", "D", "E", "F", "IS"} {
			require.NoError(t, errOf(l.Reserve(t.Context(), days(series, day, 0, 3))))
		}
		execSQL(t, other, "BEGIN")
		for _, series := range []string{"PO", "A", "B", "C", "D", "E", "F"} {
			execSQL(t, other, last+literal(d, series))
		}
		cross.Store(true)
		requireResult(t, int64(3))(l.Reserve(t.Context(), days("IS", day, 0, 3)))
		require.NoError(t, <-crossed)
	})
}

// A lock that is released within 30 s is waited for, whatever the database's own limit.
func TestWaits(t *testing.T) {
	short := map[sqlledger.Dialect]string{
		sqlledger.PostgreSQL: "SET lock_timeout = 100",
		sqlledger.MySQL:      "SET SESSION innodb_lock_wait_timeout = 1",
		sqlledger.SQLite:     "PRAGMA busy_timeout = 0",
	}
	each(t, func(t *testing.T, d *database) {
		if d.dialect == sqlledger.MySQL {
			d = d.with("interpolateParams=true") // prepared statements would bypass the hook
		}
		l := d.ledger(t, nil, short[d.dialect])
		require.NoError(t, errOf(l.Reserve(t.Context(), days("IS", day, 0, 3))))
		release := lock(t, d)
		var failed atomic.Int32
		waiting := d.ledgerOn(t, d.open(t, func(s *statement) error {
			err := s.run(s.text)
			if err != nil && !errors.Is(err, driver.ErrSkip) {
				failed.Add(1)
			}
			return err
		}, short[d.dialect]))
		go func() {
			for range 1000 {
				if time.Sleep(10 * time.Millisecond); failed.Load() > 0 {
					break
				}
			}
			release()
		}()
		requireResult(t, int64(3))(waiting.Reserve(t.Context(), days("IS", day, 0, 3)))
	})
	t.Run("30s", func(t *testing.T) {
		d := sqlite3(t)
		d.ledger(t, nil)
		locked := errors.New("database is locked")
		race.Bubble(t, func(t *testing.T) {
			l := d.ledgerOn(t, d.open(t, on("BEGIN", func(*statement) error { return locked })))
			start := time.Now()
			require.ErrorIs(t, errOf(l.Reserve(t.Context(), days("IS", day, 0, 3))), locked)
			require.InDelta(t, 30, time.Since(start).Seconds(), 1)
		})
	})
}

// lock locks the row of "IS" until it is released.
func lock(t *testing.T, d *database) (release func()) {
	t.Helper()
	c, err := d.open(t, nil).Conn(t.Context())
	require.NoError(t, err)
	if d.dialect == sqlledger.SQLite {
		execSQL(t, c, "BEGIN EXCLUSIVE")
	} else {
		execSQL(t, c, "BEGIN")
		execSQL(t, c, "UPDATE serial_ledger SET last = last + 1 WHERE series = "+literal(d, "IS"))
	}
	return func() {
		_, err := c.ExecContext(context.Background(), "ROLLBACK")
		if err := errors.Join(err, c.Close()); err != nil {
			t.Error(err)
		}
	}
}

func TestContext(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		var committed atomic.Int32
		db := d.open(t, on("COMMIT", func(s *statement) error {
			committed.Add(1)
			return s.run(s.text)
		}))
		l := newLedger(t, d, db)
		require.NoError(t, errOf(l.Reserve(t.Context(), days("IS", day, 0, 3))))
		committed.Store(0)
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, errOf(l.Reserve(cancelled, days("IS", day, 0, 3))), context.Canceled)

		release := lock(t, d)
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, errOf(l.Reserve(ctx, days("IS", day, 0, 3))), context.DeadlineExceeded)
		require.Less(t, time.Since(start), 5*time.Second)
		require.Zero(t, committed.Load())
		release()

		require.Zero(t, db.Stats().InUse)
		requireResult(t, int64(3))(l.Reserve(t.Context(), days("IS", day, 0, 3)))
	})
}

// The end of the context is part of the error, even if the driver does not report it.
func TestContextEndsAtCommit(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		ctx, cancel := context.WithCancel(t.Context())
		broken := errors.New("broken")
		var end atomic.Bool
		l := d.ledger(t, on("COMMIT", func(s *statement) error {
			if !end.CompareAndSwap(true, false) {
				return s.run(s.text)
			}
			cancel()
			return broken
		}))
		end.Store(true)
		_, err := l.Reserve(ctx, days("IS", day, 0, 3))
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, broken)
		requireResult(t, int64(0), "the connection was returned with an open transaction")(
			l.Reserve(t.Context(), days("IS", day, 0, 3)))
	})
}
