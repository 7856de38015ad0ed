package sqlledger_test

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/race"
	"github.com/dailyserial/serial/internal/redistest"
	"github.com/dailyserial/serial/sqlledger"
)

var (
	midnight = time.Date(2021, time.October, 24, 0, 0, 0, 0, time.UTC)
	noon     = midnight.Add(12*time.Hour + 123456*time.Microsecond)
)

// void returns an explanation for one sequence of today's IS whose document was voided.
func void(seq int64) serial.Explanation {
	return serial.Explanation{
		Series: "serial:IS", Type: "IS", Start: midnight, First: seq, Last: seq, Reason: "voided", By: "Ada", At: noon,
	}
}

func newRegister(t *testing.T, d *database, db *sql.DB) *sqlledger.Register {
	t.Helper()
	r := d.registerOn(t, db)
	require.NoError(t, r.CreateTable(t.Context()))
	return r
}

// registerOn returns a register without creating its table.
func (d *database) registerOn(t *testing.T, db *sql.DB, opts ...sqlledger.RegisterOption) *sqlledger.Register {
	t.Helper()
	r, err := sqlledger.NewRegister(db, d.dialect, opts...)
	require.NoError(t, err)
	return r
}

// list returns all explanations of today's IS.
func list(t *testing.T, r *sqlledger.Register) []serial.Explanation {
	t.Helper()
	all, err := collect(r, "serial:IS", midnight)
	require.NoError(t, err)
	return all
}

// collect returns all explanations of a loop, and its error.
func collect(r *sqlledger.Register, series string, start time.Time) (all []serial.Explanation, err error) {
	for e, err := range r.Explanations(context.Background(), series, start) {
		if err != nil {
			return all, err
		}
		all = append(all, e)
	}
	return all, nil
}

// tick waits until the database's clock is later than the time of every row, so that the next row gets a later time.
func tick(t *testing.T, d *database, db *sql.DB) {
	t.Helper()
	clock := map[sqlledger.Dialect]string{
		sqlledger.PostgreSQL: "clock_timestamp()",
		sqlledger.MySQL:      "UTC_TIMESTAMP(6)",
		sqlledger.SQLite:     "strftime('%Y-%m-%d %H:%M:%f', 'now')",
	}[d.dialect]
	for end := time.Now().Add(10 * time.Second); ; {
		rows := value[int](t, db, "SELECT count(*) FROM serial_explanations WHERE recorded_at >= "+clock)
		if rows == 0 {
			return
		}
		require.True(t, time.Now().Before(end), "%d rows are recorded in the future", rows)
	}
}

func TestRegister(t *testing.T) {
	each(t, func(t *testing.T, d *database) { registers(t, d, newRegister(t, d, d.open(t, nil))) })
}

// Explanations must be returned in the order in which they were added by the database's clock, whatever their At, the
// time zone of the connection and the age of the transaction. An explanation that is added again keeps its position. A
// zero start means all periods.
func TestRegisterOrder(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		db := d.open(t, nil)
		here := newRegister(t, d, db)
		zone := map[sqlledger.Dialect]string{
			sqlledger.PostgreSQL: "SET TimeZone = 'Asia/Shanghai'",
			sqlledger.MySQL:      "SET time_zone = '+08:00'",
			sqlledger.SQLite:     "PRAGMA busy_timeout = 5000", // SQLite has no time zones
		}[d.dialect]
		there := d.registerOn(t, d.open(t, nil, zone))
		var want []serial.Explanation
		next := func(start time.Time) serial.Explanation { // each clock is behind the previous one
			tick(t, d, db)
			e := void(int64(9 - len(want)))
			e.Start, e.At = start, noon.Add(time.Duration(-len(want))*time.Hour)
			want = append(want, e)
			return e
		}
		require.NoError(t, here.Explain(t.Context(), next(midnight)))
		tx := begin(t, db)
		require.NoError(t, there.Explain(t.Context(), next(midnight)))
		require.NoError(t, here.ExplainIn(t.Context(), tx, next(midnight)))
		require.NoError(t, tx.Commit())
		require.NoError(t, there.Explain(t.Context(), next(midnight)))
		tick(t, d, db)
		require.NoError(t, there.Explain(t.Context(), want[0]))
		require.Equal(t, want, list(t, here))

		require.NoError(t, there.Explain(t.Context(), next(midnight.AddDate(0, 0, 400))))
		require.NoError(t, here.Explain(t.Context(), next(midnight)))
		other := void(1)
		other.Series = "serial:IS2"
		require.NoError(t, here.Explain(t.Context(), other))
		requireResult(t, want)(collect(here, "serial:IS", time.Time{}))
		require.ErrorContains(t, onlyErr(collect(here, "", time.Time{})), `sqlledger: explanations of "": Series has 0 bytes`)
	})
}

// registers checks what every register in d must do for a single caller. The register must be empty.
func registers(t *testing.T, d *database, r *sqlledger.Register) {
	t.Helper()
	db := d.open(t, nil)
	require.Empty(t, list(t, r))
	// Each explanation differs from the first one in one field, or contains text that a database might change.
	const largest = 999_999_999_999_999
	change := func(change func(*serial.Explanation)) serial.Explanation {
		e := void(100)
		e.Last = 200
		change(&e)
		return e
	}
	var all []serial.Explanation
	for i, f := range []func(*serial.Explanation){
		func(e *serial.Explanation) { e.First, e.Last = 1, largest }, func(e *serial.Explanation) { e.First = 99 },
		func(*serial.Explanation) {}, func(e *serial.Explanation) { e.Possible = true },
		func(e *serial.Explanation) { e.Unused = true }, func(e *serial.Explanation) { e.By = "" },
		func(e *serial.Explanation) { e.Type = "is" }, func(e *serial.Explanation) { e.Type = strings.Repeat("é", 32) },
		func(e *serial.Explanation) { e.Type = "" },
	} {
		all = append(all, change(func(e *serial.Explanation) { e.At = noon.Add(time.Duration(i) * time.Microsecond); f(e) }))
	}
	for i, reason := range []string{
		"Voided", "voided ", " voided", `it's "void" \' \\ ` + "`", "%s %d ?1 $1 :a {by} {series}", "--; DROP TABLE x;",
		"😀 𝔸 e\u0301 ß ﬀ İ", strings.Repeat("😀", 125), strings.Repeat("x", 500), "0", "NULL", `\x00`, "\\N", "�",
		"12\u00a0500\u202fEUR", "voided\u00a0", "voided\u3000", "نمی\u200cخواهم क्\u200dष 👩🏽\u200d🚀",
	} {
		at := noon.Add(time.Duration(10+i) * time.Microsecond)
		by := string([]rune(reason)[:min(25, len([]rune(reason)))])
		all = append(all, change(func(e *serial.Explanation) { e.Reason, e.By, e.At = reason, by, at }))
	}
	all = append(all,
		change(func(e *serial.Explanation) { e.At = time.Date(9999, 12, 31, 23, 59, 59, 999999000, time.UTC) }),
		change(func(e *serial.Explanation) { e.First = 200 }),
	)
	var recorded []serial.Explanation
	for _, i := range rand.Perm(len(all)) {
		require.NoError(t, r.Explain(t.Context(), all[i]), "%+v", all[i])
		recorded = append(recorded, all[i])
		tick(t, d, db)
	}
	require.Equal(t, recorded, list(t, r))

	// These are the same explanations, although their instants have another zone and At has nanoseconds.
	zone := time.FixedZone("", 8*3600)
	for _, e := range all {
		e.Start, e.At = e.Start.In(zone), e.At.In(zone).Add(999*time.Nanosecond)
		require.NoError(t, r.Explain(t.Context(), e), "%+v", e)
	}
	require.Equal(t, recorded, list(t, r))

	// Explanations that were recorded at the same instant are sorted by At, First and Last.
	const atOnce = "UPDATE serial_explanations SET recorded_at = '2021-10-24 12:00:00'"
	execSQL(t, db, atOnce)
	slices.SortFunc(all, func(a, b serial.Explanation) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.First, b.First), cmp.Compare(a.Last, b.Last))
	})
	require.Equal(t, all, list(t, r))

	// Series and periods are separate.
	for _, other := range []struct {
		series string
		start  time.Time
	}{
		{"serial:is", midnight}, {"serial:IS1", midnight}, {"serial:", midnight}, {"serial:ÍS", midnight},
		{strings.Repeat("x", 255), midnight}, {strings.Repeat("x", 254), midnight},
		{"serial:IS", midnight.Add(time.Second)}, {"serial:IS", midnight.Add(-8 * time.Hour)},
		{"serial:IS", time.Date(1000, time.January, 1, 0, 0, 0, 0, time.UTC)},
		{"serial:IS", time.Date(9999, time.December, 31, 23, 59, 59, 0, time.UTC)},
	} {
		none := []serial.Explanation(nil)
		requireResult(t, none, "%q %v", other.series, other.start)(collect(r, other.series, other.start))
		e := void(7)
		e.Series, e.Start = other.series, other.start.In(zone)
		require.NoError(t, r.Explain(t.Context(), e))
		e.Start = other.start
		requireResult(t, []serial.Explanation{e})(collect(r, other.series, other.start.In(zone)))
	}
	require.Len(t, list(t, r), len(all))

	// The digest must be the same in all versions: SHA-256 of the fields as netstrings.
	execSQL(t, db, "DELETE FROM serial_explanations")
	e := void(7)
	e.Reason, e.By, e.Unused = "it's 😀", "", true
	require.NoError(t, r.Explain(t.Context(), e))
	require.Equal(t, "b61b71cf4ef84f4d5cbe6b8c7d2db0673ce8979ea8b9fc66fa7ff9be04c2655e",
		value[string](t, db, "SELECT digest FROM serial_explanations"))
}

// An explanation that cannot be stored must be rejected without access to the database.
func TestRegisterRefused(t *testing.T) {
	r, err := sqlledger.NewRegister(new(sql.DB), sqlledger.PostgreSQL)
	require.NoError(t, err)
	const spaces, years = ": want printable UTF-8 without spaces", "in UTC: want 1000 to 9999"
	early, late := midnight.AddDate(-1022, 0, 0), time.Date(9999, 12, 31, 23, 0, 0, 0, time.FixedZone("", -3600))
	long := strings.Repeat("x", 256)
	for why, change := range map[string]func(*serial.Explanation){
		"serial: explanation of IS 0 to 1: sequences must be": func(e *serial.Explanation) { e.First = 0 },
		"serial: explanation of IS 1 to 1: Reason: ":          func(e *serial.Explanation) { e.Reason = "a\x00b" },
		"serial: explanation of IS 1 to 1: At":                func(e *serial.Explanation) { e.At = time.Time{} },
		"Series has 0 bytes: want 1 to 255":                   func(e *serial.Explanation) { e.Series = "" },
		"Series has 256 bytes: want 1 to 255":                 func(e *serial.Explanation) { e.Series = long },
		`Series is "IS "` + spaces:                            func(e *serial.Explanation) { e.Series = "IS " },
		`Series is "I\xffS"` + spaces:                         func(e *serial.Explanation) { e.Series = "I\xffS" },
		"Type has 65 bytes: want 0 to 64":                     func(e *serial.Explanation) { e.Type = long[:65] },
		`Type is "I\tS"` + spaces:                             func(e *serial.Explanation) { e.Type = "I\tS" },
		"Start is in the year 1 " + years:                     func(e *serial.Explanation) { e.Start = time.Time{} },
		"Start is 2021-10-24T00:00:00.000000001Z: want whole": func(e *serial.Explanation) { e.Start = midnight.Add(1) },
		"At is in the year 10000 " + years:                    func(e *serial.Explanation) { e.At = late },
		"At is in the year 999 " + years:                      func(e *serial.Explanation) { e.At = early },
	} {
		e := void(1)
		change(&e)
		require.ErrorContains(t, r.Explain(t.Context(), e), "sqlledger: explain: "+why)
		require.ErrorContains(t, r.ExplainIn(t.Context(), new(sql.Tx), e), "sqlledger: explain: "+why)
		var failed []error
		r.Hooks(func(got serial.Explanation, err error) {
			require.Equal(t, e, got)
			failed = append(failed, err)
		}).Unused(t.Context(), e)
		require.Len(t, failed, 1)
		require.ErrorContains(t, failed[0], why)
	}
	for _, tx := range []sqlledger.Execer{nil, (*sql.Tx)(nil)} {
		require.EqualError(t, r.ExplainIn(t.Context(), tx, void(1)), "sqlledger: explain: the transaction is nil")
	}
	require.EqualError(t, onlyErr(collect(r, "", midnight)),
		`sqlledger: explanations of "" from 2021-10-24T00:00:00Z: Series has 0 bytes: want 1 to 255`)
	require.ErrorContains(t, onlyErr(collect(r, "serial:IS", midnight.Add(1))), ": want whole seconds")
}

// An explanation that is added in the caller's transaction must be stored if the transaction is committed. Adding it
// again must not end the transaction.
func TestExplainIn(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		db := d.open(t, nil)
		db.SetMaxOpenConns(1)
		r := newRegister(t, d, db)
		execSQL(t, db, "CREATE TABLE orders (number varchar(20))")
		require.NoError(t, r.Explain(t.Context(), void(1)))
		tx := begin(t, db)
		require.NoError(t, r.ExplainIn(t.Context(), tx, void(2)))
		require.NoError(t, tx.Rollback())
		require.Equal(t, []serial.Explanation{void(1)}, list(t, r))
		tx = begin(t, db)
		for range 2 {
			require.NoError(t, r.ExplainIn(t.Context(), tx, void(1)))
			require.NoError(t, r.ExplainIn(t.Context(), tx, void(2)))
			execSQL(t, tx, "INSERT INTO orders VALUES ('IS202110240002')")
		}
		require.NoError(t, tx.Commit())
		require.Equal(t, 2, value[int](t, db, "SELECT count(*) FROM orders"))

		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		require.NoError(t, r.ExplainIn(t.Context(), conn, void(3)))
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, r.ExplainIn(cancelled, conn, void(4)), context.Canceled)
		_ = conn.Close() // some drivers have already closed the connection
		require.Equal(t, []serial.Explanation{void(1), void(2), void(3)}, list(t, r))

		// Explain waits for the transaction until its context ends. The error must contain the remedy.
		tx = begin(t, db)
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		err = r.Explain(ctx, void(5))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "it waits for itself: use ExplainIn, or give the register a separate pool")
		require.NoError(t, tx.Rollback())
	})
}

// A loop must use its connection until the loop ends, however it ends, and every loop must run the query again.
func TestExplanationsReleaseConnection(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		if d.dialect == sqlledger.MySQL {
			d = d.with("autocommit=0")
		}
		db := d.open(t, nil)
		db.SetMaxOpenConns(1)
		r := newRegister(t, d, db)
		tx := begin(t, db)
		var want []serial.Explanation
		for seq := range int64(100) {
			want = append(want, void(seq+1))
			require.NoError(t, r.ExplainIn(t.Context(), tx, want[seq]))
		}
		require.NoError(t, tx.Commit())
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		all := r.Explanations(ctx, "serial:IS", midnight)
		for e, err := range all {
			require.NoError(t, err)
			require.Equal(t, want[0], e)
			require.Equal(t, 1, db.Stats().InUse)
			break
		}
		require.Zero(t, db.Stats().InUse)
		require.Equal(t, want, list(t, r))

		want = append(want, void(101))
		require.NoError(t, newRegister(t, d, d.open(t, nil)).Explain(t.Context(), void(101)))
		var got []serial.Explanation
		for e, err := range all {
			require.NoError(t, err)
			got = append(got, e)
		}
		require.Equal(t, want, got)

		var failed []error
		read := 0
		for _, err := range all {
			if err != nil {
				require.Zero(t, db.Stats().InUse)
				failed = append(failed, err)
			} else if read++; read == 10 {
				cancel()
			}
		}
		require.Equal(t, 10, read)
		require.Len(t, failed, 1)
		require.ErrorIs(t, failed[0], context.Canceled)
		require.ErrorContains(t, failed[0], `sqlledger: explanations of "serial:IS" from 2021-10-24T00:00:00Z: `)
	})
}

// Another program has added a row that Explain would reject. The loop must yield the rows before it, and then an error
// that identifies the row.
func TestExplanationsFromOtherPrograms(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		db := d.open(t, nil)
		r := newRegister(t, d, db)
		require.NoError(t, r.Explain(t.Context(), void(1)))
		require.NoError(t, r.Explain(t.Context(), void(3)))
		insert := "INSERT INTO serial_explanations (series, type, start, first, last, reason, explained_by, " +
			"explained_at, unused, possible, recorded_at, digest) VALUES ('serial:IS', '%s', '2021-10-24 00:00:00Z', " +
			"2, 2, '%s', 'Bob', '2021-10-24 12:00:00Z', false, %t, '2021-10-24 12:00:00Z', 'row of Bob')"
		first := "UPDATE serial_explanations SET recorded_at = '2021-10-24 11:00:00Z' WHERE first = 1"
		if d.dialect != sqlledger.PostgreSQL {
			insert, first = strings.ReplaceAll(insert, "Z'", "'"), strings.ReplaceAll(first, "Z'", "'")
		}
		execSQL(t, db, first)
		for _, s := range []struct {
			typ, reason string
			possible    bool
			why         string
		}{
			{"IS", "void", false, ""},
			{"IS", "", false, "serial: explanation of IS 2 to 2: Reason: 0 bytes; want 1 to 500"},
			{"IS", "vo\tid", false, `serial: explanation of IS 2 to 2: Reason: it contains '\t'; want printable UTF-8`},
			{"I S", "void", true, `Type is "I S": want printable UTF-8 without spaces`},
		} {
			execSQL(t, db, fmt.Sprintf(insert, s.typ, s.reason, s.possible))
			all, err := collect(r, "serial:IS", midnight)
			if s.why == "" {
				require.NoError(t, err)
				theirs := void(2)
				theirs.Reason, theirs.By, theirs.At = s.reason, "Bob", midnight.Add(12*time.Hour)
				require.Equal(t, []serial.Explanation{void(1), theirs, void(3)}, all)
			} else {
				require.EqualError(t, err, `sqlledger: explanations of "serial:IS" from 2021-10-24T00:00:00Z: `+
					"the row with digest row of Bob: "+s.why)
				require.Equal(t, []serial.Explanation{void(1)}, all)
			}
			execSQL(t, db, "DELETE FROM serial_explanations WHERE digest = 'row of Bob'")
		}
	})
}

// A user has only the rights to read and to insert. All methods must work, and rows cannot be changed or deleted.
func TestRegisterRights(t *testing.T) {
	onServers(t, func(t *testing.T, d *database) {
		admin := d.open(t, nil)
		newRegister(t, d, admin)
		user := "u" + d.name[max(0, len(d.name)-15):] // old versions of MySQL allow at most 16 characters
		execSQL(t, admin, "CREATE USER "+user, "GRANT SELECT, INSERT ON serial_explanations TO "+user)
		t.Cleanup(func() { require.NoError(t, onlyErr(admin.Exec("DROP USER "+user))) })
		var db *sql.DB
		if d.dialect == sqlledger.PostgreSQL { // where a user cannot be dropped while it has rights
			t.Cleanup(func() { require.NoError(t, onlyErr(admin.Exec("DROP OWNED BY "+user))) })
			execSQL(t, admin, "GRANT USAGE ON SCHEMA "+d.name+" TO "+user)
			db = d.open(t, nil, "SET ROLE "+user)
		} else {
			config, err := mysql.ParseDSN(d.dsn)
			require.NoError(t, err)
			config.User = user
			theirs := *d
			theirs.dsn = config.FormatDSN()
			db = theirs.open(t, nil)
		}
		r := d.registerOn(t, db)
		for range 2 {
			require.NoError(t, r.Explain(t.Context(), void(1)))
		}
		require.Equal(t, []serial.Explanation{void(1)}, list(t, r))
		for _, change := range []string{"UPDATE serial_explanations SET reason = 'x'", "DELETE FROM serial_explanations"} {
			require.Error(t, onlyErr(db.ExecContext(t.Context(), change)))
		}
	})
}

// unavailable returns a pool for the file of d. While fault returns an error, no connection can be opened.
func (d *database) unavailable(t *testing.T, fault func(context.Context) error) *sql.DB {
	db := sql.OpenDB(&connector{connect: func(ctx context.Context) (driver.Conn, error) {
		if err := fault(ctx); err != nil {
			return nil, err
		}
		return sqliteDriver.Open(d.dsn)
	}})
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

var errRefused = errors.New("connection refused")

// The database is unavailable. The hook must try again for a minute. If the database does not return in that time, the
// hook must report the failure once.
func TestRegisterHooks(t *testing.T) {
	refuse := func(context.Context) error { return errRefused }
	hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	for _, s := range []struct {
		name  string
		away  time.Duration
		fault func(context.Context) error
		want  error
	}{
		{"half a minute", 30 * time.Second, refuse, nil},
		{"hanging for half a minute", 30 * time.Second, hang, nil},
		{"longer", time.Hour, refuse, errRefused},
		{"hanging for longer", time.Hour, hang, context.DeadlineExceeded},
	} {
		t.Run(s.name, func(t *testing.T) {
			d := sqlite3(t)
			plain := newRegister(t, d, d.open(t, nil))
			race.Bubble(t, func(t *testing.T) {
				start := time.Now()
				r := d.registerOn(t, d.unavailable(t, func(ctx context.Context) error {
					if time.Since(start) < s.away {
						return s.fault(ctx)
					}
					return nil
				}))
				var failed []error
				r.Hooks(func(e serial.Explanation, err error) {
					require.Equal(t, void(1), e)
					failed = append(failed, err)
				}).Unused(context.Background(), void(1))
				took := time.Since(start)
				require.ErrorIs(t, errors.Join(failed...), s.want)
				require.Equal(t, s.want != nil, len(failed) == 1, failed)
				require.Equal(t, s.want != nil, took == time.Minute, took)
				require.LessOrEqual(t, took, time.Minute)
				r.Hooks(nil).Unused(context.Background(), void(2)) // without a function for failures
			})
			want := []serial.Explanation{void(1), void(2)}
			if s.want != nil {
				want = nil
			}
			require.Equal(t, want, list(t, plain))
		})
	}
}

// The database is unavailable when a process wants to end. The error of Flush lists the explanations that were not
// stored, with the database's error. After the database has returned, Flush stores all of them.
func TestFlushWithoutDatabase(t *testing.T) {
	d := sqlite3(t)
	plain := newRegister(t, d, d.open(t, nil))
	var away atomic.Bool
	away.Store(true)
	db := d.unavailable(t, func(context.Context) error {
		if away.Load() {
			return errRefused
		}
		return nil
	})
	gen, err := serial.New(redistest.Start(t).Client(t), serial.WithLocation(time.UTC), serial.WithPeriod(serial.Never),
		serial.WithTemplate("{type}{seq}"), serial.WithHooks(d.registerOn(t, db).Hooks(nil)))
	require.NoError(t, err)
	require.NoError(t, gen.Raise(t.Context(), "IS", 5))
	require.NoError(t, gen.Raise(t.Context(), "PO", 7))
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	err = gen.Flush(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, errRefused)
	require.ErrorContains(t, err, "not reported: IS from 1970-01-01T00:00:00Z (raised): 1 to 5; PO from "+
		"1970-01-01T00:00:00Z (raised): 1 to 7; latest error: sqlledger: explain: connection refused")
	away.Store(false)
	require.NoError(t, gen.Flush(t.Context()))
	kept, err := collect(plain, "serial:PO", time.Time{})
	require.NoError(t, err)
	require.Len(t, kept, 1)
}
