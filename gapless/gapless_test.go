package gapless_test

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/gapless"
	"github.com/dailyserial/serial/internal/race"
)

func TestNew(t *testing.T) {
	s := scheme(t)
	for _, r := range []struct {
		dialect gapless.Dialect
		scheme  *serial.Scheme
		opts    []gapless.Option
		want    string
	}{
		{0, s, nil, "gapless: there is no dialect 0; want PostgreSQL, MySQL or SQLite"},
		{4, s, nil, "gapless: there is no dialect 4; want PostgreSQL, MySQL or SQLite"},
		{gapless.MySQL, nil, nil, "gapless: the scheme is nil"},
		{0, nil, nil, "gapless: the scheme is nil\ngapless: there is no dialect 0; want PostgreSQL, MySQL or SQLite"},
		{gapless.MySQL, new(serial.Scheme), nil,
			"gapless: the scheme is empty; want one from serial.NewScheme or Generator.Scheme"},
		{gapless.MySQL, s, []gapless.Option{gapless.WithTable("a"), nil}, "gapless: option 2 of 2 is nil"},
		{gapless.SQLite, s, []gapless.Option{gapless.WithTable("")},
			`gapless: table "": want 1 to 56 ASCII letters, digits and _, and no digit at the beginning`},
	} {
		g, err := gapless.New(r.dialect, r.scheme, r.opts...)
		require.EqualError(t, err, r.want)
		require.Nil(t, g)
	}
	for _, name := range []string{"a b", "1a", `a"b`, "a`b", "a;b", "a.b", "ä", "a\n", strings.Repeat("a", 57)} {
		err := onlyErr(gapless.New(gapless.PostgreSQL, s, gapless.WithTable(name)))
		require.ErrorContains(t, err, "gapless: table ", name)
	}
	for _, name := range []string{"a", "_1", "Order", "select", strings.Repeat("a", 56)} {
		g, err := gapless.New(gapless.PostgreSQL, s, gapless.WithTable(name))
		require.NoError(t, err, name)
		require.Len(t, g.Schema(), 2)
		require.Contains(t, g.Schema()[0], `CREATE TABLE IF NOT EXISTS "`+name+`" (`)
		require.Contains(t, g.Schema()[1], `CREATE TABLE IF NOT EXISTS "`+name+`_series" (`)
	}
}

// A transaction implements Tx, but a database and a connection do not, so passing them does not compile.
func TestOnlyTransactionsCompile(t *testing.T) {
	tx, querier := reflect.TypeFor[gapless.Tx](), reflect.TypeFor[gapless.Querier]()
	require.True(t, reflect.TypeFor[*sql.Tx]().Implements(tx))
	require.False(t, reflect.TypeFor[*sql.DB]().Implements(tx))
	require.False(t, reflect.TypeFor[*sql.Conn]().Implements(tx))
	for _, q := range []reflect.Type{reflect.TypeFor[*sql.Tx](), reflect.TypeFor[*sql.DB](), reflect.TypeFor[*sql.Conn](),
		tx} {
		require.True(t, q.Implements(querier), q)
	}
}

// Next and NextN take numbers of the current period. The numbers become free after a rollback, completely or to a
// savepoint. Types are compared byte by byte.
func TestNext(t *testing.T) {
	kinds(t, each, func(t *testing.T, d *database) {
		s := d.steps(t, schemes{
			"": {serial.WithPeriod(serial.PerYear), serial.WithTemplate("{type}-{date:yyyy}-{seq:4}")}})
		s.run(strings.ReplaceAll(`
			last=0
			begin next=1 take2=IS-YEAR-0003 last=3 commit
			begin take1=4 rollback
			begin take3=6 save take2 back
			save NEW/take2 back # a row that does not exist yet
			take1=7 NEW/take1=NEW-YEAR-0001 ÄÖ/数.1/take1=1 ÄÖ/数.1/last=1 is/take1=1 commit
		`, "YEAR", fmt.Sprint(d.clock(t, s.db).UTC().Year())))
	})
}

// NextOn must number each period separately, in every kind of scheme. Its numbers must parse to the date and the
// sequence that were taken. History must return the last numbers of the latest periods.
func TestSchemes(t *testing.T) {
	const varies = true // the printed date varies within a period
	east, april := serial.WithLocation(time.FixedZone("", 14*3600)), serial.WithYearStart(time.April, 1)
	schemes := []struct {
		opts    []serial.Option
		prints  string // instants and their numbers (? for any number), in the order of the calls
		varies  bool
		history string // numbers, or year of the period and sequence if the printed date is unknown
	}{
		{nil, "2021-10-24T12 IS202110240001 2021-10-24T23 IS202110240002 2021-10-25T00 IS202110250001 1970-01-01T00 " +
			"IS197001010001 9999-12-30T23 IS999912300001 2021-10-24T00 IS202110240003", !varies,
			"IS999912300001 IS202110250001 IS202110240003 IS197001010001"},
		{[]serial.Option{serial.WithLocation(time.FixedZone("", 8*3600)), serial.WithDayStart(4 * time.Hour)},
			"2021-10-23T20 IS202110240001 2021-10-24T19 IS202110240002 2021-10-24T20 IS202110250001", !varies,
			"IS202110250001 IS202110240002"},
		{[]serial.Option{east, serial.WithPeriod(serial.PerWeek), serial.WithTemplate("{type}{date:GGGG-WW}-{seq:4}")},
			"2024-12-29T00 IS2024-52-0001 2024-12-30T00 IS2025-01-0001 2025-01-05T00 IS2025-01-0002 1970-01-01T00 " +
				"IS1970-01-0001", !varies, "IS2025-01-0002 IS2024-52-0001 IS1970-01-0001"},
		{[]serial.Option{serial.WithPeriod(serial.PerQuarter), april, serial.WithTemplate("{type}/{date:FFFF-EE/Q}/{seq:3}")},
			"2024-03-31T00 IS/2023-24/4/001 2024-04-01T00 IS/2024-25/1/001 2024-06-30T00 IS/2024-25/1/002 2024-07-01T00 " +
				"IS/2024-25/2/001", !varies,
			"IS/2024-25/2/001 IS/2024-25/1/002 IS/2023-24/4/001"},
		{[]serial.Option{serial.WithPeriod(serial.PerHalfYear), april,
			serial.WithTemplate("{seq:1+}/{date:FFFF-'H'S-d.R.}/{type}")},
			"2024-03-31T00 1/2023-H2-31.III./IS 2024-04-01T00 1/2024-H1-1.IV./IS 2024-09-30T00 2/2024-H1-30.IX./IS " +
				"2024-10-01T00 1/2024-H2-1.X./IS", varies, "2024:1 2024:2 2023:1"},
		{[]serial.Option{serial.WithPeriod(serial.PerQuarter), april, serial.WithTemplate("{type}{date:FFFF/Q}-{seq:4}")},
			"2024-12-25T00 IS2024/3-0001 1970-01-01T00 IS1969/4-0001", !varies, "IS2024/3-0001 IS1969/4-0001"},
		{[]serial.Option{serial.WithPeriod(serial.PerHalfYear), april,
			serial.WithTemplate("{type}{date:FFFF/'H'S}-{seq:4}")},
			"2025-01-01T00 IS2024/H2-0001 2024-09-25T00 IS2024/H1-0001 1970-01-01T00 IS1969/H2-0001", !varies,
			"IS2024/H2-0001 IS2024/H1-0001 IS1969/H2-0001"},
		{[]serial.Option{serial.WithPeriod(serial.PerYear), serial.WithTemplate("{type}{date:yyyyMM}-{seq:4}")},
			"2021-10-24T00 IS202110-0001 2021-11-01T00 IS202111-0002 2021-02-01T00 IS202102-0003 2022-01-01T00 " +
				"IS202201-0001", varies, "2022:1 2021:3"},
		{[]serial.Option{serial.WithPeriod(serial.Never), serial.WithTemplate("{type}-{seq:2+}"), serial.WithStart(99)},
			"2021-10-24T00 IS-99 2030-10-24T00 IS-100", !varies, "IS-100"},
		{[]serial.Option{east, serial.WithPeriod(serial.PerHour), serial.WithStart(32),
			serial.WithTemplate("{type}{date:yyyyMMddHH}{seq:4:base32}")},
			"2021-10-24T12 IS20211025020010 2021-10-24T12 IS20211025020011 1969-12-31T10 IS19700101000010 9999-12-31T09 " +
				"IS99991231230010", !varies, "IS99991231230010 IS20211025020011 IS19700101000010"},
		{[]serial.Option{serial.WithTemplate("{type}{date:yyyyMMdd}{seq:4}{check:damm}")},
			"2021-10-24T00 ? 2021-10-24T00 ?", !varies, "?"},
		{[]serial.Option{serial.WithTemplate("{type}{date:yyyyMMdd}{seq:6}"),
			serial.WithHiddenSequence([]byte("0123456789abcdef"))},
			"2021-10-24T00 ? 2021-10-24T00 ? 2021-10-25T00 ?", !varies, "?"},
	}
	each(t, func(t *testing.T, d *database) {
		db := d.open(t)
		for i, s := range schemes {
			g := d.generator(t, db, append([]serial.Option{serial.WithKeyPrefix(fmt.Sprint("p", i))}, s.opts...)...)
			requireHistory := func(q gapless.Querier, n int, want string) {
				t.Helper()
				numbers, err := g.History(t.Context(), q, "IS", n)
				require.NoError(t, err)
				var texts []string
				for _, n := range numbers {
					if n.Date.IsZero() {
						require.Empty(t, n.String())
						texts = append(texts, fmt.Sprintf("%d:%d", n.Start.Year(), n.Seq))
					} else {
						texts = append(texts, n.String())
					}
				}
				require.True(t, want == "?" || want == strings.Join(texts, " "), texts)
			}
			requireHistory(db, 3, "")
			commits(t, db, func(tx *sql.Tx) {
				for pair := range slices.Chunk(strings.Fields(s.prints), 2) {
					at, err := time.Parse("2006-01-02T15", pair[0])
					require.NoError(t, err)
					n, err := g.NextOn(t.Context(), tx, "IS", serial.At(at))
					require.NoError(t, err, pair)
					if pair[1] != "?" {
						require.Equal(t, pair[1], n.String())
					}
					_, start, _ := g.Scheme().Period(serial.At(at))
					require.True(t, n.Start.Equal(start), "%+v", n)
					back, err := g.Scheme().Parse(n.String())
					require.NoError(t, err)
					require.True(t, n.Seq == back.Seq && n.Date.Equal(back.Date), "%+v", n)
					last, err := g.Last(t.Context(), tx, "IS", serial.At(at))
					require.NoError(t, err)
					require.True(t, last.Seq == n.Seq && last.Start.Equal(start), "%+v", last)
					require.Equal(t, s.varies, last.Date.IsZero())
					require.Equal(t, !s.varies, last.String() == n.String(), last)
				}
				require.NoError(t, onlyErr(g.Next(t.Context(), tx, "IT")), "by the clock")
				require.NoError(t, g.Raise(t.Context(), tx, "IS", serial.At(october(2)), 0)) // a row without numbers
				requireHistory(tx, 10_000, s.history)
				requireHistory(tx, 1, strings.Fields(s.history)[0])
			})
			if i == 0 { // closed periods have a history, too
				commits(t, db, func(tx *sql.Tx) {
					require.NoError(t, g.ClosePeriods(t.Context(), tx, "IS", serial.At(october(25))))
				})
			}
			requireHistory(db, 9, s.history)
		}
	})
}

// After a call that fails, nothing was taken, and the transaction can continue.
func TestRefused(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		noon := d.noon(t, d.open(t))
		classic := func(opts ...serial.Option) []serial.Option {
			return append([]serial.Option{serial.WithLocation(noon), serial.WithTemplate("{type}{date:yyMMdd}{seq:1}")},
				opts...)
		}
		s := d.steps(t, schemes{"": classic(), "late": classic(serial.WithStart(5)),
			"other": classic(serial.WithTemplate("{type}{date:yyMMdd}{seq:4:base36}"))}) // prints sequences differently
		db, g := s.db, s.generators[""]
		at := serial.At(d.clock(t, db))
		commits(t, db, func(tx *sql.Tx) {
			for _, typ := range []string{"", "I S", strings.Repeat("x", 65), "Ａ"} {
				for _, verb := range []string{"next", "take", "on", "last", "raise"} {
					require.ErrorIs(t, call{g, typ, verb, "2", "1"}.do(t.Context(), tx).err, serial.ErrInvalidType, verb)
				}
			}
			for _, n := range []int{-1, 0, 100_001} {
				require.ErrorIs(t, onlyErr(g.NextN(t.Context(), tx, "IS", n)), serial.ErrInvalidRequest)
			}
			for _, year := range []string{"0001", "1969", "1999", "2100"} { // years that yy cannot print
				for _, verb := range []string{"on", "last", "raise"} {
					require.Error(t, call{g, "IS", verb, year + "0301", "1"}.do(t.Context(), tx).err)
				}
			}
			for _, seq := range []int64{-1, 10} {
				require.ErrorContains(t, g.Raise(t.Context(), tx, "IS", at, seq), "want 0 to 9")
			}
		})
		// No number of NO was taken by a raise to 0, so any scheme may take the first one. WithStart applies only to a
		// period without numbers.
		s.run(`
			begin take10!exhausted last=0 take7=7 take3!exhausted last=7
			other.on!conflict other.take2!conflict other.raise=9!conflict other.last!conflict
			last=7 on=8 raise=3 last=8 on=9 on!exhausted last=9
			other.NO/raise=0 NO/last=0 NO/on=1 other.NO/on!conflict NO/last=1
			UP/raise=3 UP/last=3 UP/on=4 late.UP/take2=6 UP/raise=9 UP/last=9 UP/on!exhausted
			late.ST/take6!exhausted late.ST/last=0 late.ST/on=5
			SZ/on=1 late.SZ/take100000!exhausted SZ/last=1 late.SZ/raise=3 late.SZ/on=4
			late.RL/raise=2 late.RL/last=2 late.RL/on=3
			commit
		`)
		for _, tx := range []gapless.Tx{nil, (*sql.Tx)(nil), (*sqlx.Tx)(nil)} {
			require.EqualError(t, onlyErr(g.Next(t.Context(), tx, "IS")), "gapless: the transaction is nil")
			require.EqualError(t, g.Raise(t.Context(), tx, "IS", at, 1), "gapless: the transaction is nil")
		}
	})
}

// An instant whose date in the scheme's zone is not in 1970 to 9999 must fail at once, whatever was called before.
// Nothing is sent to the database, so the test uses only SQLite.
func TestDateOutOfRange(t *testing.T) {
	west := serial.WithLocation(time.FixedZone("", -8*3600))
	newYear, far := time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(9999, 12, 31, 12, 0, 0, 0, time.UTC)
	never := []serial.Option{serial.WithPeriod(serial.Never), serial.WithTemplate("{type}-{seq:4}")}
	d := inFile(t)
	db := d.open(t)
	for i, r := range []struct {
		opts        []serial.Option
		good, wrong time.Time
		want        string
	}{
		{[]serial.Option{west}, newYear.Add(8 * time.Hour), newYear.Add(8*time.Hour - 1), "want 1970 to 9999"},
		{[]serial.Option{west}, newYear.Add(8 * time.Hour), time.Unix(time.Now().UnixNano(), 0), "9999"},
		{perWeek(), newYear, newYear.Add(-time.Second), "want 1970 to 9999"},
		{append(perYear(time.April), west), october(1), newYear.Add(8*time.Hour - 1), "want 1970 to 9999"},
		{perYear(time.April), far.AddDate(0, -1, 0), far.Add(12 * time.Hour), "want 1970 to 9999"},
		{never, far.AddDate(0, 0, -1), far, "want 1970 to 9999, and with Never only before 9999-12-31T00:00:00Z"},
		{never, far.AddDate(0, 0, -1), newYear.Add(-1), "1970"},
	} {
		g := d.generator(t, db, append(r.opts, serial.WithKeyPrefix(fmt.Sprint("p", i)))...)
		commits(t, db, func(tx *sql.Tx) {
			require.NoError(t, onlyErr(g.NextOn(t.Context(), tx, "IS", serial.At(r.good))), i)
			at := serial.At(r.wrong)
			require.ErrorContains(t, onlyErr(g.NextOn(t.Context(), tx, "IS", at)), r.want, i)
			require.ErrorContains(t, onlyErr(g.Last(t.Context(), tx, "IS", at)), r.want, i)
			require.ErrorContains(t, g.Raise(t.Context(), tx, "IS", at, 1), r.want, i)
		})
	}
}

// If Last is called with a pool, it sees everything that was committed, even if autocommit is off and a connection has
// an old snapshot.
func TestAutocommitOff(t *testing.T) {
	d := mariaDB(t)
	s := d.steps(t, nil)
	g, pool := s.generators[""], d.with("autocommit=0").open(t)
	pool.SetMaxOpenConns(1)
	for i, q := range []gapless.Querier{pool, sqlx.NewDb(pool, "mysql"), pool} {
		var seen int64
		require.NoError(t, pool.QueryRowContext(t.Context(), "SELECT count(*) FROM serial_gapless").Scan(&seen))
		s.run("on24")
		requireSeq(t, int64(i+1))(g.Last(t.Context(), q, "IS", serial.At(october(24))))
	}
	requireSeq(t, 4)(g.NextOn(t.Context(), begin(t, pool), "IS", serial.At(october(24))))
}

// With autocommit off, no call may leave a transaction open on a connection of the pool, because the next BeginTx would
// fail with error 1568.
func TestAutocommitOffLeavesNothingOpen(t *testing.T) {
	d := mariaDB(t).with("autocommit=0")
	pool := d.open(t)
	pool.SetMaxOpenConns(1)
	at := serial.On(2021, time.October, 24)
	plain := d.generator(t, d.open(t))
	dated, err := gapless.New(d.dialect, scheme(t), gapless.WithChronology())
	require.NoError(t, err)
	for i, call := range []func() error{
		func() error { return onlyErr(plain.ClosedUntil(t.Context(), pool, "IS")) },
		func() error { return onlyErr(plain.Last(t.Context(), pool, "IS", at)) },
		func() error { return onlyErr(plain.History(t.Context(), pool, "IS", 2)) },
		func() error {
			return onlyErr(plain.Audit(t.Context(), pool, "IS", at, func(func(string, error) bool) {}))
		},
		func() error { return plain.CreateTable(t.Context(), pool) },
		func() error { return dated.CreateTable(t.Context(), pool) },
		func() error { return dated.CreateTable(t.Context(), pool) }, // finds both tables and all columns
	} {
		require.NoError(t, call(), i)
		require.NoError(t, beginAt(t, pool, sql.LevelReadCommitted).Rollback(), i)
	}
	execSQL(t, pool, "DROP TABLE serial_gapless_series")
	execSQL(t, pool, "CREATE TABLE serial_gapless_series (series int)")
	require.ErrorContains(t, plain.CreateTable(t.Context(), pool), "an existing table lacks a column")
	require.NoError(t, beginAt(t, pool, sql.LevelReadCommitted).Rollback())
}

// The column type that the documentation recommends must distinguish types that are equal in MariaDB's default
// collation.
func TestCollation(t *testing.T) {
	const column = "varchar(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL UNIQUE"
	for _, path := range []string{"table.go", "../docs/gapless.md"} {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.True(t, strings.Contains(string(text), "number "+column), path)
	}
	d := mariaDB(t).with("charset=utf8mb4")
	db, g := d.start(t, serial.WithPeriod(serial.Never), serial.WithTemplate("{type}-{seq:4}"))
	execSQL(t, db, "CREATE TABLE binary_invoices (number "+column+")")
	execSQL(t, db, "CREATE TABLE usual_invoices (number varchar(100) NOT NULL UNIQUE) CHARACTER SET utf8mb4 COLLATE "+
		"utf8mb4_general_ci")
	store := func(table, typ string) error {
		return inTx(t.Context(), db, sql.LevelDefault, func(tx *sql.Tx) error {
			n, err := g.Next(t.Context(), tx, typ)
			require.NoError(t, err)
			return onlyErr(tx.ExecContext(t.Context(), "INSERT INTO "+table+" VALUES (?)", n.String()))
		})
	}
	for _, alike := range [][2]string{{"IS", "is"}, {"É", "E"}, {"ß", "s"}} {
		require.NoError(t, store("usual_invoices", alike[0]))
		for range 2 { // the same error occurs again
			var duplicate *mysql.MySQLError
			require.ErrorAs(t, store("usual_invoices", alike[1]), &duplicate)
			require.EqualValues(t, 1062, duplicate.Number)
		}
		for _, typ := range alike {
			require.NoError(t, store("binary_invoices", typ))
			require.NoError(t, store("binary_invoices", typ))
		}
	}
}

func TestCreateTable(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		if d.dialect == gapless.SQLite {
			d.dsn, _, _ = strings.Cut(d.dsn, "?") // without a busy timeout, blocked statements fail at once
		}
		onTable := func(name string) *gapless.Generator {
			g, err := gapless.New(d.dialect, scheme(t), gapless.WithTable(name))
			require.NoError(t, err)
			return g
		}
		var creators sync.WaitGroup
		for range 16 {
			db, g := d.open(t), onTable("Order") // a keyword of SQL
			creators.Go(func() {
				if err := g.CreateTable(t.Context(), db); err != nil {
					t.Error(err)
				}
			})
		}
		creators.Wait()
		db := d.open(t)
		commits(t, db, func(tx *sql.Tx) { requireSeq(t, 1)(onTable("Order").Next(t.Context(), tx, "IS")) })
		for _, table := range []string{"misshapen", "wrong_series"} {
			execSQL(t, db, "CREATE TABLE "+table+" (series int)")
			g := onTable(strings.TrimSuffix(table, "_series"))
			require.ErrorContains(t, g.CreateTable(t.Context(), db), "gapless: create the table: an existing table lacks a "+
				"column of Schema; if it contains the numbers of release 0.4.0, use another table and see docs/migrating.md")
		}
		unfit := map[gapless.Dialect][2]string{
			gapless.PostgreSQL: {"CREATE TABLE", "CREATE UNLOGGED TABLE"},
			gapless.MySQL:      {"InnoDB", "MyISAM"},
		}[d.dialect]
		if unfit[0] == "" {
			return
		}
		for i, table := range []string{"unfit", "unfit_too"} {
			g := onTable(table)
			execSQL(t, db, strings.Replace(g.Schema()[i], unfit[0], unfit[1], 1))
			require.ErrorContains(t, g.CreateTable(t.Context(), db), ", so numbers would not be stored as safely as documents")
		}
	})
}

// If a table is missing, the error of every call names CreateTable. A nil Querier is a different error. With the Dialect
// of another database, the error mentions the Dialect.
func TestMissingTable(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		db, at := d.open(t), serial.On(2021, time.October, 24)
		g, err := gapless.New(d.dialect, scheme(t))
		require.NoError(t, err)
		require.EqualError(t, g.CreateTable(t.Context(), nil), "gapless: create the table: the database is nil")
		for _, q := range []gapless.Querier{nil, (*sql.Tx)(nil), (*sql.DB)(nil), (*sql.Conn)(nil), (*sqlx.DB)(nil)} {
			require.EqualError(t, onlyErr(g.Last(t.Context(), q, "IS", at)), "gapless: the Querier is nil")
		}
		const missing = "a table of Schema does not exist: call CreateTable"
		for _, step := range []string{"next", "on24", "raise24=3", "close24", "reopen24", "until", "last24"} {
			tx := beginAt(t, db, d.readCommitted())
			require.ErrorContains(t, newCall(g, step).do(t.Context(), tx).err, missing, step)
			require.NoError(t, tx.Rollback())
		}
		require.ErrorContains(t, onlyErr(g.History(t.Context(), db, "IS", 3)), missing)
		require.ErrorContains(t, onlyErr(g.Audit(t.Context(), db, "IS", at, func(func(string, error) bool) {})), missing)
		for other := gapless.PostgreSQL; other <= gapless.SQLite; other++ {
			if g, err := gapless.New(other, scheme(t)); other != d.dialect {
				require.NoError(t, err)
				require.ErrorContains(t, g.CreateTable(t.Context(), db), "check that the Dialect is right")
				tx := beginAt(t, db, d.readCommitted())
				require.ErrorContains(t, onlyErr(g.Next(t.Context(), tx, "IS")), "check that the Dialect is right")
				require.NoError(t, tx.Rollback())
			}
		}
	})
}

// The clock of the program's host must make no difference. Next must create a row only in the right period: if a
// transaction took a number in another one and reverted this, it would keep the lock of that row.
func TestClock(t *testing.T) {
	const day = 24 * time.Hour
	each(t, func(t *testing.T, d *database) {
		db := d.open(t)
		count := 0
		for i, opts := range [][]serial.Option{
			{serial.WithTemplate("{type}{date:yyMMdd}{seq:4}"), serial.WithStart(100)},
			{serial.WithPeriod(serial.PerYear), serial.WithTemplate("{type}{date:yyyyMMdd}-{seq:4}"), serial.WithStart(100)},
		} {
			opts := append(opts, serial.WithKeyPrefix(fmt.Sprint("p", i)), serial.WithLocation(d.noon(t, db)))
			g := d.generator(t, db, opts...)
			next := func(g *gapless.Generator, want int64) {
				t.Helper()
				commits(t, db, func(tx *sql.Tx) {
					n, err := g.Next(t.Context(), tx, "IS")
					require.NoError(t, err)
					require.Equal(t, want, n.Seq)
					require.WithinDuration(t, d.clock(t, db).Add(-12*time.Hour), n.Date, 2*time.Hour)
				})
			}
			race.Bubble(t, func(t *testing.T) { // the host's clock shows the year 2000
				db, g := d.start(t, opts...)
				tx := begin(t, db)
				require.NoError(t, onlyErr(g.Next(t.Context(), tx, "IS")))
				require.NoError(t, tx.Commit())
				require.NoError(t, db.Close())
			})
			next(g, 101)
			require.Equal(t, count+2, rows(t, db), "the row of the period and that of the series")
			for j, ahead := range []time.Duration{0, -2 * day, 400 * day, -50 * 365 * day, -80 * 365 * day} {
				g.Misjudge(ahead)
				next(g, 102+int64(j))
				if ahead > 0 {
					requireSeq(t, 0)(g.Last(t.Context(), db, "IS", serial.At(d.clock(t, db).Add(ahead))))
				}
			}
			// The time that a transaction has read is stored even if the transaction is rolled back.
			g.Misjudge(500 * day)
			tx := begin(t, db)
			require.NoError(t, onlyErr(g.Next(t.Context(), tx, "OT")))
			require.NoError(t, tx.Rollback())
			count = rows(t, db)
			commits(t, db, func(tx *sql.Tx) { require.NoError(t, onlyErr(g.Next(t.Context(), tx, "OT"))) })
			count += 2
			require.Equal(t, count, rows(t, db))
		}
	})
}

// A time that was read long ago must not replace a later one that is consistent with it, but any other time must.
func TestSlowReply(t *testing.T) {
	g, err := gapless.New(gapless.SQLite, scheme(t))
	require.NoError(t, err)
	g.Misjudge(0)
	known := g.Now()
	g.Remember(known.Add(-time.Second), time.Minute)
	require.False(t, g.Now().Before(known))
	g.Remember(known.Add(-time.Hour), time.Minute)
	require.True(t, g.Now().Before(known))
}

// If a number cannot be reverted, the error must not be one after which the transaction can continue.
func TestUndoFails(t *testing.T) {
	failure := errors.New("no undo")
	each(t, func(t *testing.T, d *database) {
		db, g := d.start(t, serial.WithTemplate("{type}{date:yyyyMMdd}{seq:1}"))
		tx := &hooked{begin(t, db), func(query string, returnsRows bool) (string, error) {
			if !returnsRows && strings.HasPrefix(query, "UPDATE") {
				return "", failure
			}
			return query, nil
		}}
		err := onlyErr(g.NextN(t.Context(), tx, "IS", 10))
		require.ErrorIs(t, err, failure)
		require.NotErrorIs(t, err, serial.ErrExhausted)
	})
}

// On PostgreSQL, CreateTable finds a table anywhere in search_path, and creates no other table that would hide it.
func TestSearchPath(t *testing.T) {
	d, other := postgreSQL(t), postgreSQL(t)
	s := d.steps(t, nil)
	both := *d
	both.name = other.name + "," + d.name
	later := both.steps(t, nil)
	s.run("on24=1")
	require.NoError(t, s.generators[""].CreateTable(t.Context(), later.db))
	later.run("on24=2")
	s.run("last24=2")
}

// On PostgreSQL at SERIALIZABLE, transactions that take numbers of different types must not conflict.
func TestSerializable(t *testing.T) {
	s := postgreSQL(t).steps(t, nil)
	for _, call := range []string{"on24", "next"} {
		for range 2 { // first with new rows, then with existing ones
			s.run(strings.ReplaceAll(`
				sql VACUUM ANALYZE serial_gapless, serial_gapless_series # the planner then knows that they are small
				first: begin=serializable A/call
				second: begin=serializable Z/call
				first: commit
				second: commit
			`, "call", call))
		}
	}
}

// SQLite's clock must be read to the exact millisecond. Otherwise a number could get a day other than the one on which
// it was taken.
func TestJulianDay(t *testing.T) {
	db := inFile(t).open(t)
	for ms := int64(0); ms < 253_402_300_800_000; ms = (ms+1)*3/2 + 86_399_999 {
		at := time.UnixMilli(ms).UTC()
		var julian float64
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT julianday(?)", at.Format("2006-01-02 15:04:05.000")).
			Scan(&julian))
		now, err := gapless.Read(julian)
		require.NoError(t, err)
		require.True(t, at.Equal(now), "%v is %.9f, read as %v", at, julian, now)
	}
}

// Settings of a connection must make no difference.
func TestSettings(t *testing.T) {
	check := func(t *testing.T, d *database) {
		s := d.steps(t, nil)
		s.run(`
			begin É/on24=1 next commit begin É/on24=2 next commit begin É/on24=3 next commit
			close2 close3
			begin on3 on4 on2!closed commit
			close5 # closes several rows at once
			begin=committed reopen3 on3=2 commit
			until=20211003 last3=2
		`)
		latest, err := s.generators[""].History(t.Context(), s.db, "IS", 9)
		require.NoError(t, err)
		require.Len(t, latest, 3)
		require.Less(t, time.Since(latest[0].Start), 25*time.Hour)
		s.run("begin é/on24=1")
	}
	for _, dsn := range []string{
		"default_query_exec_mode=simple_protocol", "default_query_exec_mode=exec", "default_query_exec_mode=describe_exec",
		"default_query_exec_mode=cache_describe", "default_query_exec_mode=simple_protocol&bytea_output=escape",
		"default_transaction_isolation=serializable", "standard_conforming_strings=off", "client_encoding=LATIN1",
		"TimeZone=Asia/Shanghai",
	} {
		t.Run("PostgreSQL/"+dsn, func(t *testing.T) { check(t, postgreSQL(t).with(dsn)) })
	}
	for _, dsn := range []string{
		"clientFoundRows=true", "interpolateParams=true", "parseTime=true&loc=Asia%2FShanghai", "sql_mode=%27%27",
		"sql_mode=%27ANSI%27", "sql_mode=%27TRADITIONAL%2CPAD_CHAR_TO_FULL_LENGTH%2CNO_BACKSLASH_ESCAPES%27",
		"charset=latin1", "time_zone=%27%2B08%3A00%27", "sql_mode=%27EMPTY_STRING_IS_NULL%27", "sql_mode=%27ORACLE%27",
		"sql_safe_updates=1", "autocommit=0",
	} {
		t.Run("MySQL/"+dsn, func(t *testing.T) { check(t, mariaDB(t).with(dsn)) })
	}
	for _, dsn := range []string{"_pragma=journal_mode(WAL)", "_pragma=encoding('UTF-16')"} {
		t.Run("SQLite/"+dsn, func(t *testing.T) { check(t, inFile(t).with(dsn)) })
	}
}

// If other transactions have changed a row since the transaction's first query, Raise must see the current row, even if
// there is nothing to raise.
func TestSnapshot(t *testing.T) {
	onMariaDB := func(t *testing.T, test func(*testing.T, *database)) { test(t, mariaDB(t)) }
	kinds(t, onMariaDB, func(t *testing.T, d *database) {
		d.steps(t, nil).run(`
			begin last24=0
			other: begin raise24=5 commit begin raise24=5 commit # the second time, the row does not change
			raise24=5 on24=6
		`)
	})
}

// Next must not change the caller's LAST_INSERT_ID.
func TestLastInsertID(t *testing.T) {
	d := mariaDB(t)
	db, g := d.start(t)
	execSQL(t, db, "CREATE TABLE documents (id bigint AUTO_INCREMENT PRIMARY KEY) AUTO_INCREMENT = 4711")
	for range 2 {
		commits(t, db, func(tx *sql.Tx) {
			var before, after int64
			require.NoError(t, onlyErr(tx.ExecContext(t.Context(), "INSERT INTO documents VALUES ()")))
			require.NoError(t, tx.QueryRowContext(t.Context(), "SELECT LAST_INSERT_ID()").Scan(&before))
			require.GreaterOrEqual(t, before, int64(4711))
			require.NoError(t, onlyErr(g.Next(t.Context(), tx, "IS")))
			require.NoError(t, g.Raise(t.Context(), tx, "IS", serial.At(october(24)), 7))
			require.NoError(t, tx.QueryRowContext(t.Context(), "SELECT LAST_INSERT_ID()").Scan(&after))
			require.Equal(t, before, after)
		})
	}
}
