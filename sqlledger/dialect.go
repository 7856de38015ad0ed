package sqlledger

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A Dialect says which database a [Ledger] is kept in.
type Dialect int

const (
	PostgreSQL Dialect = iota + 1 // 9.5 or later
	MySQL                         // MySQL 5.7 or later, MariaDB 10.2 or later
	SQLite                        // 3.35 or later
)

// The tables that [Ledger.CreateTable] makes, by the default name: for those who keep their schema themselves. A table
// may have more columns if they have defaults, but not other types: the names are bytes, because what compares text may
// take "IS" for "is" or for "IS ".
//
// To read them: SELECT convert_from(series, 'UTF8'), last FROM serial_ledger in PostgreSQL, and as they are elsewhere.
const (
	PostgreSQLSchema = `CREATE TABLE IF NOT EXISTS serial_ledger (
	series      bytea       NOT NULL,
	period      bytea       NOT NULL,
	last        bigint      NOT NULL,
	reserved_at timestamptz NOT NULL,
	PRIMARY KEY (series, period)
)`

	MySQLSchema = `CREATE TABLE IF NOT EXISTS serial_ledger (
	series      varbinary(255) NOT NULL,
	period      varbinary(64)  NOT NULL,
	last        bigint         NOT NULL,
	reserved_at datetime(6)    NOT NULL,
	PRIMARY KEY (series, period)
) ENGINE = InnoDB`

	SQLiteSchema = `CREATE TABLE IF NOT EXISTS serial_ledger (
	series      BLOB    NOT NULL,
	period      BLOB    NOT NULL,
	last        INTEGER NOT NULL,
	reserved_at TEXT    NOT NULL,
	PRIMARY KEY (series, period)
) WITHOUT ROWID`
)

// statements are a dialect's. {table} is the table, quoted, {name} and {in} its name and schema as they are compared.
type statements struct {
	schema string
	quote  string // around an identifier
	begin  string
	ago    string // the instant that lies an argument's seconds back

	// upsert takes series, period, above+n, above, n. Where it is empty, the database can do it within read.
	upsert string

	// read returns the sequence before the block, what about the database would let the block be lost in a crash, or "",
	// and the table's schema. It takes the arguments of upsert and n; or, after an upsert, n, series, period.
	read string

	// Where read cannot tell: kept returns the last sequence of series, period; show has the table's CREATE statement.
	kept, show string

	old, remove string // see below; forTable fills them in
}

// What Purge asks for, after a series and period, and with the same age and a row's series and period, what it deletes:
// old rows, and never the youngest of a series, whose period may be the current one.
const (
	page = 1000

	old = `SELECT series, period FROM {table} l WHERE reserved_at < {ago} AND (series, period) > (?, ?)
		AND EXISTS (SELECT 1 FROM {table} y WHERE y.series = l.series AND y.reserved_at > l.reserved_at)
		ORDER BY series, period LIMIT ?`
	remove = `DELETE FROM {table} WHERE reserved_at < {ago} AND series = ? AND period = ?`
)

// altered is what is wrong where the row isn't what the statement made of it.
const altered = "a trigger or a rule changes what is written"

var dialects = map[Dialect]statements{
	PostgreSQL: {
		schema: PostgreSQLSchema,
		quote:  `"`,
		// Under a stricter isolation, which may be the database's default, those who wait for a row would fail.
		begin: "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE",
		ago:   "now() - ?::bigint * interval '1 second'",
		// The setting holds until the end of this transaction, and so for its COMMIT. The subquery for max(o.last) sees what
		// was committed when the statement began: the row's last sequence before it was at least that. pg_catalog is named
		// because a temporary pg_class would hide its table.
		read: `INSERT INTO {table} AS l (series, period, last, reserved_at)
			VALUES (?::bytea, ?::bytea, ?::bigint, clock_timestamp())
			ON CONFLICT (series, period) DO UPDATE
			SET last = GREATEST(l.last, ?::bigint) + ?::bigint, reserved_at = excluded.reserved_at
			RETURNING l.last - ?::bigint, CASE
				WHEN set_config('synchronous_commit', CASE current_setting('synchronous_commit')
					WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true) NOT IN ('on', 'remote_apply')
					THEN 'synchronous_commit cannot be set'
				WHEN current_setting('fsync') <> 'on' THEN 'fsync is off'
				WHEN (SELECT relpersistence FROM pg_catalog.pg_class WHERE oid = l.tableoid) <> 'p'
					THEN 'the table is unlogged or temporary'
				WHEN l.last - $6::bigint < (SELECT max(o.last) FROM {table} o WHERE o.series = l.series AND o.period = l.period)
					THEN '` + altered + `'
				ELSE '' END,
				(SELECT relnamespace::regnamespace::text FROM pg_catalog.pg_class WHERE oid = '{table}'::regclass)`,
	},
	MySQL: {
		schema: MySQLSchema,
		quote:  "`",
		// Not READ COMMITTED: servers that replicate statements refuse to write under it.
		begin: "START TRANSACTION READ WRITE",
		ago:   "UTC_TIMESTAMP(6) - INTERVAL ? SECOND",
		// LAST_INSERT_ID(x) returns x, and LAST_INSERT_ID() in read returns it again: the sequence before the block, or 0 for
		// a new row. It is unsigned; a sum too large for the column is always an error only if it is signed.
		upsert: `INSERT INTO {table} (series, period, last, reserved_at)
			VALUES (?, ?, ? + LAST_INSERT_ID(0), UTC_TIMESTAMP(6))
			ON DUPLICATE KEY UPDATE last = CAST(LAST_INSERT_ID(GREATEST(last, ?)) AS SIGNED) + ?, reserved_at = UTC_TIMESTAMP(6)`,
		// With a binary log, recovery rolls back what InnoDB has and the log has not. In a table with AUTO_INCREMENT,
		// LAST_INSERT_ID() may be of that.
		read: `SELECT r.below, CASE
				WHEN NOT EXISTS (SELECT 1 FROM information_schema.tables
					WHERE table_schema = {in} AND table_name = '{name}' AND engine = 'InnoDB')
					THEN 'the table is temporary or not of InnoDB'
				WHEN @@GLOBAL.innodb_flush_log_at_trx_commit <> 1 THEN 'innodb_flush_log_at_trx_commit is not 1'
				WHEN @@GLOBAL.log_bin AND @@GLOBAL.sync_binlog <> 1 THEN 'log_bin is on and sync_binlog is not 1'
				WHEN r.found > 1 THEN 'series and period are not unique in the table'
				WHEN LAST_INSERT_ID() > r.below AND NOT EXISTS (SELECT 1 FROM information_schema.columns
					WHERE table_schema = {in} AND table_name = '{name}' AND extra = 'auto_increment')
					THEN '` + altered + `'
				ELSE '' END, {in}
			FROM (SELECT max(last) - ? AS below, count(*) AS found FROM {table}
				WHERE series = ? AND period = ? HAVING count(*) > 0) r`,
		// Only this tells, in all versions, that a temporary table hides the one that information_schema lists. It takes a
		// right to the whole table: one to columns is not enough.
		show: "SHOW CREATE TABLE {table}",
	},
	SQLite: {
		schema: SQLiteSchema,
		quote:  `"`,
		begin:  "BEGIN IMMEDIATE",
		ago:    "strftime('%Y-%m-%d %H:%M:%f', 'now', -? || ' seconds')",
		read: `INSERT INTO {table} (series, period, last, reserved_at)
			VALUES (?, ?, ?, strftime('%Y-%m-%d %H:%M:%f', 'now'))
			ON CONFLICT (series, period) DO UPDATE SET last = max(last, ?) + ?, reserved_at = excluded.reserved_at
			RETURNING last - ?, '', 'main'`,
		// RETURNING does not see what AFTER triggers do.
		kept: "SELECT last FROM {table} WHERE series = ? AND period = ?",
	},
}

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,62}$`)

// forTable returns the statements of d for a table. Its name may have a schema before it, save in SQLite, where that
// would be another file.
func (d Dialect) forTable(name string) (s statements, err error) {
	s, ok := dialects[d]
	if !ok {
		return s, fmt.Errorf("sqlledger: there is no dialect %d", int(d))
	}
	path := strings.Split(name, ".")
	for _, part := range path {
		if !identifier.MatchString(part) || len(path) > 2 || len(path) == 2 && d == SQLite {
			return s, fmt.Errorf("sqlledger: table %q: allowed are 1 to 63 ASCII letters, digits and _, no digit first, "+
				"and in PostgreSQL and MySQL a schema of the same kind before it and a dot", name)
		}
	}
	in := "DATABASE()"
	if len(path) == 2 {
		in, name = "'"+path[0]+"'", path[1]
	}
	if d == SQLite {
		path = []string{"main", name} // not a temporary table of the same name
	}
	table := s.quote + strings.Join(path, s.quote+"."+s.quote) + s.quote
	s.schema = strings.Replace(s.schema, defaultTable, table, 1)
	s.old, s.remove = old, remove
	for _, query := range []*string{&s.upsert, &s.read, &s.kept, &s.show, &s.old, &s.remove} {
		*query = strings.NewReplacer("{table}", table, "{name}", name, "{in}", in, "{ago}", s.ago).Replace(*query)
		for i := 1; d == PostgreSQL && strings.Contains(*query, "?"); i++ {
			*query = strings.Replace(*query, "?", "$"+strconv.Itoa(i), 1)
		}
	}
	return s, nil
}

// PostgreSQL's serialization failure, deadlock and lock_timeout; and what some of those that create the same table at once
// get, in spite of IF NOT EXISTS.
var postgresAgain = []string{"40001", "40P01", "55P03", "23505", "42P07", "42710"}

// Of MySQL's errors, these say that it has rolled the transaction back: a deadlock, also one with another node of a Galera
// cluster (1213), a conflict in group replication (3101). After the others it can be: a row that changed since it was
// read (1020), a wait for a lock that took too long (1205). Drivers share no type for errors, but all print the number.
var (
	mysqlRolledBack = regexp.MustCompile(`(?i)\berror (1213|3101)\b`)
	mysqlAgain      = regexp.MustCompile(`(?i)\berror (1213|3101|1020|1205)\b`)
)

// again reports whether trying once more may help. If committing, err is that of COMMIT, and then the answer is yes only
// if nothing was committed: where that is unknown, the block is a gap.
func (d Dialect) again(err error, committing bool) bool {
	if errors.Is(err, driver.ErrBadConn) {
		return !committing
	}
	switch d {
	case PostgreSQL:
		var state interface{ SQLState() string } // pgx's errors and lib/pq's have it
		return errors.As(err, &state) && slices.Contains(postgresAgain, state.SQLState())
	case MySQL:
		if committing {
			return mysqlRolledBack.MatchString(err.Error())
		}
		return mysqlAgain.MatchString(err.Error())
	default:
		// SQLite's own words, in every driver: "database is locked", "database table is locked".
		return strings.Contains(err.Error(), "is locked")
	}
}

// keepSQLite has SQLite keep what it commits on this connection, until restore is called, and fails where it could not.
// No transaction may have begun.
func keepSQLite(ctx context.Context, c *sql.Conn) (restore func(), err error) {
	var file, journal string
	var synchronous int
	for _, q := range []struct {
		query string
		to    any
	}{
		{"SELECT coalesce(max(file), '') FROM pragma_database_list WHERE name = 'main'", &file},
		{"PRAGMA main.journal_mode", &journal},
		{"PRAGMA main.synchronous", &synchronous},
	} {
		if err := c.QueryRowContext(ctx, q.query).Scan(q.to); err != nil {
			return nil, err
		}
	}
	// Every connection to :memory: has a database of its own, and would set the same block aside.
	if file == "" {
		return nil, lossy("it is in memory or temporary")
	}
	if slices.Contains([]string{"off", "memory"}, journal) {
		return nil, lossy("journal_mode is " + journal)
	}
	// Below FULL, a power cut loses what was committed last; with FULL it can too, unless there is a WAL.
	const extra = 3
	if synchronous == extra {
		return func() {}, nil
	}
	if _, err := c.ExecContext(ctx, "PRAGMA main.synchronous = EXTRA"); err != nil {
		return nil, err
	}
	return func() {
		// Left as it is, it would be slower and no less right.
		_, _ = c.ExecContext(context.WithoutCancel(ctx), fmt.Sprintf("PRAGMA main.synchronous = %d", synchronous))
	}, nil
}

func lossy(why string) error {
	return errors.New("the database can lose what it commits: " + why)
}
