package sqlledger_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/sqlledger"
)

const day = "20211024"

func TestReserve(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		db := d.open(t, nil)
		l := newLedger(t, d, db)
		reserves(t, l)
		// If the last sequence of a block would not fit into the column, Reserve must fail, and reserve nothing.
		execSQL(t, db, fmt.Sprintf("UPDATE serial_ledger SET last = %d", int64(math.MaxInt64-10)))
		require.Error(t, onlyErr(l.Reserve(t.Context(), days("IS", day, 0, 11))))
		requireResult(t, int64(math.MaxInt64-10))(l.Reserve(t.Context(), days("IS", day, 0, 10)))
	})
}

// reserves checks what every ledger must do for a single caller. The ledger must be empty.
func reserves(t *testing.T, l *sqlledger.Ledger) {
	t.Helper()
	for i, s := range []struct{ above, n, after int64 }{
		{0, 10, 0},    // the first block
		{0, 5, 10},    // follows the first block
		{12, 1, 15},   // above is in the reserved block
		{16, 1, 16},   // above is the last reserved sequence
		{100, 7, 100}, // above is larger than all reserved sequences
		{0, 1, 107},
		{maxSeq, maxSeq, maxSeq}, // largest values
		{0, maxSeq, 2 * maxSeq},
	} {
		requireResult(t, s.after, "reservation %d", i)(l.Reserve(t.Context(), days("serial:IS", day, s.above, s.n)))
	}
	requireResult(t, int64(41), "a period's first block also begins above")(
		l.Reserve(t.Context(), days("serial:PO", day, 41, 1)))

	// Series and periods are compared byte by byte, up to the maximum length. Each pair has a separate sequence.
	for _, name := range []struct{ series, period string }{
		{"IS", day}, {"is", day}, {"Is", day}, {"İS", day}, {"IŞ", day}, {"ıs", day}, {"IS ", day}, {" IS", day},
		{"I\x00S", day}, {"I\x00s", day}, {"\xff", day}, {"\xfe", day}, {"é", day}, {"e\u0301", day}, {"ß", day}, {"ss", day},
		{`I\S`, day}, {`I'S`, day}, {`I"S`, day}, {"I?S", day}, {"I%s", day}, {`\x4953`, day}, {"7", day}, {"07", day},
		{"IS", "20211025"}, {"IS", day + " "}, {"IS", "a"}, {"IS", "A"}, {"IS2", "0211024"},
		{strings.Repeat("x", 255), day}, {strings.Repeat("x", 254), day}, {"IS", strings.Repeat("é", 32)},
		{"IS", strings.Repeat("é", 31)},
	} {
		requireResult(t, int64(0), "%q %q", name.series, name.period)(
			l.Reserve(t.Context(), days(name.series, name.period, 0, 3)))
	}
}

const maxSeq = 999_999_999_999_999

// The settings of a connection must make no difference to a ledger or a register. A connection with default settings
// must read what a connection with other settings has written.
func TestSettings(t *testing.T) {
	run := func(name string, open func(*testing.T) *database, dsn string, init ...string) {
		t.Run(name+"/"+dsn+strings.Join(init, ""), func(t *testing.T) {
			t.Parallel()
			d := open(t)
			if name == "SQLite" {
				d = d.with(dsn)
			}
			d.ledger(t, nil)
			plain := newRegister(t, d, d.open(t, nil))
			db := d.with(dsn).open(t, nil, init...)
			l, r := d.ledgerOn(t, db), d.registerOn(t, db)
			purgesOne(t, d, l)
			reserves(t, l)
			registers(t, d, r)
			require.Equal(t, list(t, r), list(t, plain))
		})
	}
	for _, dsn := range []string{
		"default_query_exec_mode=simple_protocol", "default_query_exec_mode=exec", "default_query_exec_mode=describe_exec",
		"default_transaction_isolation=serializable", "default_transaction_read_only=on", "DateStyle=SQL,DMY",
		"standard_conforming_strings=off", "client_encoding=LATIN1", "TimeZone=Asia/Shanghai",
		"default_query_exec_mode=simple_protocol&bytea_output=escape",
	} {
		run("PostgreSQL", postgres, dsn)
	}
	for _, dsn := range []string{
		"clientFoundRows=true", "interpolateParams=true", "parseTime=true&loc=Asia%2FShanghai", "autocommit=0",
		"sql_mode=%27%27", "sql_mode=%27ANSI%27",
		"sql_mode=%27TRADITIONAL%2CPAD_CHAR_TO_FULL_LENGTH%2CNO_BACKSLASH_ESCAPES%27", "charset=latin1",
		"collation=utf8mb4_general_ci", "time_zone=%27%2B08%3A00%27", "sql_safe_updates=1", "sql_mode=%27ORACLE%27",
	} {
		run("MySQL", mariadb, dsn)
	}
	run("MySQL", mariadb, "", "SET SESSION TRANSACTION READ ONLY")
	run("MySQL", mariadb, "", "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE")
	for _, dsn := range []string{"", "&interpolateParams=true"} { // in this mode, which MySQL does not have, '' is NULL
		run("MariaDB", onlyMariaDB, "sql_mode=%27TRADITIONAL%2CEMPTY_STRING_IS_NULL%27"+dsn)
	}
	for _, dsn := range []string{
		"_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)", "_pragma=journal_mode(TRUNCATE)&_pragma=busy_timeout(1000)",
		"_pragma=encoding('UTF-16')", "_txlock=exclusive",
	} {
		run("SQLite", sqlite3, dsn)
	}
}

// If autocommit is off, no call may leave a transaction open on a connection of the pool, because the next BeginTx
// would fail with error 1568.
func TestAutocommitOffLeavesNothingOpen(t *testing.T) {
	d := mariadb(t)
	pool := d.with("autocommit=0").open(t, nil)
	pool.SetMaxOpenConns(1)
	l, r := d.ledgerOn(t, pool), d.registerOn(t, pool)
	for i, call := range []func() error{
		func() error { return onlyErr(l.Reserve(t.Context(), days("IS", day, 0, 10))) }, // the table does not exist yet
		func() error { return l.CreateTable(t.Context()) },
		func() error { return onlyErr(l.Reserve(t.Context(), days("IS", day, 0, 10))) },
		func() error { return onlyErr(l.Purge(t.Context(), 72*time.Hour)) },
		func() error { return r.CreateTable(t.Context()) },
		func() error { return r.Explain(t.Context(), void(1)) },
		func() error { return r.Explain(t.Context(), void(1)) },
		func() error {
			for _, err := range r.Explanations(t.Context(), "serial:IS", midnight) {
				return err
			}
			return errors.New("none")
		},
	} {
		require.Equal(t, i == 0, call() != nil, i)
		tx, err := pool.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
		require.NoError(t, err, i)
		require.NoError(t, tx.Rollback())
	}
}

// onlyMariaDB does what mariadb does, for SQL modes that MySQL does not have.
func onlyMariaDB(t *testing.T) *database {
	t.Helper()
	d := mariadb(t)
	if !strings.Contains(value[string](t, d.open(t, nil), "SELECT version()"), "MariaDB") {
		t.Skip("MySQL does not have this mode")
	}
	return d
}

// Many connections reserve at the same time for new series, with settings that make transactions fail. For the last
// series, half of them use another calendar, and only one of the two calendars can succeed there. They also add the
// same explanations. None of these calls may fail, and each explanation must be stored once.
func TestConnections(t *testing.T) {
	const callers, series, rounds = 8, 3, 3
	type block struct {
		series string
		after  int64
	}
	settings := map[sqlledger.Dialect][]string{
		sqlledger.PostgreSQL: {"SET default_transaction_isolation = 'serializable'"},
		sqlledger.MySQL: {"SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE",
			"SET @a = 1 /*M!101108 , SESSION innodb_snapshot_isolation = ON */"}, // only MariaDB has this
		sqlledger.SQLite: {"PRAGMA journal_mode = WAL"},
	}
	each(t, func(t *testing.T, d *database) {
		for v, init := range append([]string{"SELECT 1"}, settings[d.dialect]...) {
			d.ledger(t, nil)
			register := newRegister(t, d, d.open(t, nil))
			var mu sync.Mutex
			sizes, calendars := map[block]int64{}, map[string]int{}
			var wg sync.WaitGroup
			for i := range callers {
				db := d.open(t, nil, init)
				l, r := d.ledgerOn(t, db), d.registerOn(t, db)
				wg.Go(func() {
					for round := range rounds * series {
						s := days(fmt.Sprint(v, " ", (round+i)%series), day, 0, int64(1+i+round))
						if (round+i)%series == series-1 {
							s.Calendar, s.Period = []string{"days", "weeks"}[i%2], fmt.Sprint(i)
						}
						if err := r.Explain(context.Background(), void(int64(1+10*v+(round+i)%4))); err != nil {
							t.Error(err)
						}
						after, err := l.Reserve(context.Background(), s)
						mu.Lock()
						switch {
						case s.Period != day && err == nil:
							calendars[s.Calendar]++
						case s.Period != day && errors.Is(err, serial.ErrConflict):
						case err != nil:
							t.Error(err)
						default:
							sizes[block{s.Series, after}] = s.N
						}
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			require.Len(t, sizes, (series-1)*callers*rounds)
			for i := range series - 1 { // the blocks follow each other
				b := block{fmt.Sprint(v, " ", i), 0}
				for range callers * rounds {
					require.Contains(t, sizes, b)
					b.after += sizes[b]
				}
			}
			require.Len(t, calendars, 1)
			for _, n := range calendars {
				require.Equal(t, callers/2*rounds, n)
			}
			require.Len(t, list(t, register), 4*(v+1))
		}
	})
}

// These calls must fail before they use the database, so none is needed.
func TestRefused(t *testing.T) {
	l, err := sqlledger.New(new(sql.DB), sqlledger.MySQL)
	require.NoError(t, err)
	const seqs = ": want 0 to 999999999999999"
	long, accented := strings.Repeat("x", 256), strings.Repeat("é", 32)
	for why, change := range map[string]func(*serial.Reservation){
		"the length of Series is 0: want 1 to 255":            func(r *serial.Reservation) { r.Series = "" },
		"the length of Series is 256: want 1 to 255":          func(r *serial.Reservation) { r.Series = long },
		"the length of Period is 0: want 1 to 64":             func(r *serial.Reservation) { r.Period = "" },
		"the length of Period is 65: want 1 to 64":            func(r *serial.Reservation) { r.Period = accented + "1" },
		"the length of Calendar is 0: want 1 to 64":           func(r *serial.Reservation) { r.Calendar = "" },
		"the length of Calendar is 65: want 1 to 64":          func(r *serial.Reservation) { r.Calendar = long[:65] },
		"the length of Print is 0: want 1 to 64":              func(r *serial.Reservation) { r.Print = "" },
		"the length of Print is 65: want 1 to 64":             func(r *serial.Reservation) { r.Print = long[:65] },
		"Above is -1" + seqs:                                  func(r *serial.Reservation) { r.Above = -1 },
		"Above is 1000000000000000" + seqs:                    func(r *serial.Reservation) { r.Above = maxSeq + 1 },
		"N is 0: want 1 to 999999999999999":                   func(r *serial.Reservation) { r.N = 0 },
		"N is 9223372036854775807: want 1 to 999999999999999": func(r *serial.Reservation) { r.N = math.MaxInt64 },
	} {
		r := days("IS", day, 0, 1)
		change(&r)
		require.EqualError(t, onlyErr(l.Reserve(t.Context(), r)), "sqlledger: "+why)
	}
	_, err = l.Purge(t.Context(), 72*time.Hour-1)
	require.EqualError(t, err, "sqlledger: purge: an age of 71h59m59.999999999s: want 72h0m0s or more")
}

func TestNew(t *testing.T) {
	require.EqualError(t, onlyErr(sqlledger.New(nil, sqlledger.SQLite)), "sqlledger: the database is nil")
	require.EqualError(t, onlyErr(sqlledger.NewRegister(nil, sqlledger.SQLite)), "sqlledger: the database is nil")
	for _, d := range []sqlledger.Dialect{0, 4, -1} {
		unknown := fmt.Sprintf("sqlledger: there is no dialect %d; want PostgreSQL, MySQL or SQLite", d)
		require.EqualError(t, onlyErr(sqlledger.New(new(sql.DB), d)), unknown)
		require.EqualError(t, onlyErr(sqlledger.NewRegister(new(sql.DB), d)), unknown)
	}
	table := func(d sqlledger.Dialect, name string) error {
		return onlyErr(sqlledger.New(new(sql.DB), d, sqlledger.WithTable(name)))
	}
	for _, name := range []string{"Ledger_2", "shop.ledger", "_", strings.Repeat("x", 63)} {
		require.NoError(t, table(sqlledger.MySQL, name))
	}
	for _, name := range []string{"a.b.c", "", ".ledger", "ledger.", "2ledger", "led`ger", `led"ger`, "led ger",
		"ledger\n", "lédger", strings.Repeat("x", 64)} {
		require.ErrorContains(t, table(sqlledger.PostgreSQL, name), "want 1 to 63 ASCII letters", name)
	}
	require.Error(t, table(sqlledger.SQLite, "shop.ledger"))
}

// Tables can have other names and schemas, and any number of processes can create a table at the same time.
func TestTables(t *testing.T) {
	schemas := map[sqlledger.Dialect][]string{
		sqlledger.PostgreSQL: {sqlledger.PostgreSQLSchema, sqlledger.PostgreSQLRegisterSchema},
		sqlledger.MySQL:      {sqlledger.MySQLSchema, sqlledger.MySQLRegisterSchema},
		sqlledger.SQLite:     {sqlledger.SQLiteSchema, sqlledger.SQLiteRegisterSchema},
	}
	each(t, func(t *testing.T, d *database) {
		db := d.open(t, nil)
		execSQL(t, db, schemas[d.dialect]...)
		l, r := newLedger(t, d, db), newRegister(t, d, db) // the tables exist, so this creates nothing
		requireResult(t, int64(0))(l.Reserve(t.Context(), days("IS", day, 0, 5)))
		require.NoError(t, r.Explain(t.Context(), void(1)))
		require.Equal(t, 0, value[int](t, db, "SELECT count(*) FROM serial_explanations WHERE series = 'serial:is'"))

		names := map[string]*sql.DB{"Order": d.open(t, nil), "select": d.open(t, nil)} // keywords of SQL
		if d.dialect != sqlledger.SQLite {
			elsewhere := *d
			elsewhere.name = "" // only the schema in the name determines where the table is
			names[d.name+".Elsewhere"] = elsewhere.open(t, nil)
		}
		for name, db := range names {
			l := d.ledgerOn(t, db, sqlledger.WithTable(name))
			r := d.registerOn(t, db, sqlledger.WithRegisterTable(name+"_reasons"))
			require.Error(t, onlyErr(l.Reserve(t.Context(), days("IS", day, 0, 5))), "there is no table yet")
			require.Error(t, r.Explain(t.Context(), void(2)))
			var creators sync.WaitGroup
			for range 8 {
				creators.Go(func() {
					if err := errors.Join(l.CreateTable(t.Context()), r.CreateTable(t.Context())); err != nil {
						t.Error(err)
					}
				})
			}
			creators.Wait()
			requireResult(t, int64(0), "its own table")(l.Reserve(t.Context(), days("IS", day, 0, 5)))
			requireResult(t, int64(0))(l.Purge(t.Context(), 72*time.Hour))
			require.NoError(t, r.Explain(t.Context(), void(2)))
			require.Equal(t, []serial.Explanation{void(2)}, list(t, r))
		}
	})
}

// purgesOne checks that Purge deletes an old period of a series whose name contains every byte value except 0.
func purgesOne(t *testing.T, d *database, l *sqlledger.Ledger) {
	t.Helper()
	series := make([]byte, 255)
	for i := range series {
		series[i] = byte(255 - i)
	}
	oldRows(t, d, l, string(series), 1)
	requireResult(t, int64(1))(l.Purge(t.Context(), 72*time.Hour))
}

func execSQL(t *testing.T, db interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
}, queries ...string) {
	t.Helper()
	for _, query := range queries {
		require.NoError(t, onlyErr(db.ExecContext(t.Context(), query)), query)
	}
}

// literal returns text as an SQL literal for the columns with names.
func literal(d *database, text string) string {
	if d.dialect == sqlledger.PostgreSQL {
		return fmt.Sprintf(`'\x%x'::bytea`, text)
	}
	return fmt.Sprintf("x'%x'", text)
}
