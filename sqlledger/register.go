package sqlledger

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"reflect"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dailyserial/serial"
)

const (
	defaultRegisterTable = "serial_explanations"
	hookPatience         = time.Minute      // limit for repeating a hook's write
	hookAttempt          = 10 * time.Second // limit of one attempt: the next may reach another server
)

// atLayout is the layout of At in statements, in UTC. Start uses time.DateTime.
const atLayout = time.DateTime + ".000000"

// A Register keeps explanations of missing numbers in a database table. [Register.Explain] adds one, and
// [Register.Hooks] has a [serial.Generator] add its own. It is safe for use by any number of goroutines, and any number
// of processes may use the same table at once.
//
// A Register adds rows, and never changes or deletes any. Once the table exists, the database's user needs only the
// rights to SELECT and to INSERT.
//
// Unlike a [Ledger], a Register does not check whether the database keeps what it commits. A lost explanation leaves a
// gap unexplained, but no number is issued twice.
type Register struct {
	runner
	sql registerStatements
}

// A RegisterOption configures the Register that [NewRegister] returns.
type RegisterOption interface{ applyRegister(*registerConfig) }

type registerConfig struct{ table string }

type registerOptionFunc func(*registerConfig)

func (f registerOptionFunc) applyRegister(c *registerConfig) { f(c) }

// WithRegisterTable names the table of a [Register], by the rules of [WithTable]. It must not be a Ledger's table.
//
// Default serial_explanations.
func WithRegisterTable(name string) RegisterOption {
	return registerOptionFunc(func(c *registerConfig) { c.table = name })
}

// NewRegister returns a Register in db, which the caller opens and closes. It refuses a nil db, an unknown Dialect and
// a table name that [WithTable] does not allow. It does not use the database yet.
func NewRegister(db *sql.DB, dialect Dialect, opts ...RegisterOption) (*Register, error) {
	if db == nil {
		return nil, errors.New("sqlledger: the database is nil")
	}
	c := registerConfig{table: defaultRegisterTable}
	for _, o := range opts {
		o.applyRegister(&c)
	}
	s, err := dialect.forRegister(c.table)
	if err != nil {
		return nil, err
	}
	return &Register{sql: s, runner: runner{
		db: db, dialect: dialect,
		table: c.table, name: "register", advice: "use ExplainIn",
		outdated: "the table was not created for explanations by this version; name another one with WithRegisterTable, " +
			"and have CreateTable create it",
	}}, nil
}

// CreateTable creates the table unless it exists. Any number of processes may do so at once. The database's user needs
// the right to create it, in PostgreSQL even if the table exists, and to read it. A table that lacks a column, such as
// a Ledger's, is an error, and stays as it is. If a table lacks the key, that is an error here or when an explanation
// is added.
func (r *Register) CreateTable(ctx context.Context) error {
	return r.do(ctx, "create the table", func(c *sql.Conn) error {
		if _, err := c.ExecContext(ctx, r.sql.schema); err != nil {
			return err
		}
		_, err := c.ExecContext(ctx, r.sql.check.text)
		return err
	})
}

// Explain adds an explanation, in one short transaction. If the same one exists already, nothing changes, and it keeps
// its place in the order of [Register.Explanations]. Explanations are the same if all fields are equal, Start as an
// instant and At cut to microseconds. So after an error or a cancelled call, which may have added the explanation or
// not, the call can simply be repeated.
//
// Explain refuses an explanation that [serial.Explanation.Validate] refuses, a Series that is not 1 to 255 bytes of
// printable UTF-8 without spaces, a Type of more than 64 such bytes, a Start that is not a whole second, and a
// Start or an At outside the years 1000 to 9999 in UTC. Nothing is sent to the database then.
//
// After a deadlock, or if a lock is in the way, Explain tries again, for 30 s at most, while the context lives. Other
// errors are the driver's, wrapped; once the context has ended, they match its error too. Inside a transaction, use
// [Register.ExplainIn] instead: Explain waits in vain if the transaction has the only connection of the pool or, with
// SQLite, has written to the same file.
func (r *Register) Explain(ctx context.Context, e serial.Explanation) error {
	args, err := r.arguments(e)
	if err != nil {
		return err
	}
	return r.insert(ctx, args)
}

// insert adds an explanation whose arguments have been checked.
func (r *Register) insert(ctx context.Context, args []any) error {
	return r.do(ctx, "explain", func(c *sql.Conn) error { return r.insertIn(ctx, c, args) })
}

// insertIn is insert in the caller's transaction.
func (r *Register) insertIn(ctx context.Context, tx Execer, args []any) error {
	_, err := tx.ExecContext(ctx, r.sql.insert.text, args...)
	if err != nil && r.dialect == MySQL && mysqlDuplicate.MatchString(err.Error()) {
		return nil
	}
	return err
}

// An Execer executes statements in a transaction, such as a [*sql.Tx], or a [*sql.Conn] on which a transaction was
// begun. Statements have the dialect's placeholders.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// ExplainIn is [Register.Explain] in the caller's transaction, for example the one that voids a document: if that is
// rolled back, so is the explanation. An explanation that already exists is not an error, and the transaction
// continues.
//
// It refuses a nil tx and everything that Explain refuses; nothing is sent then. It executes one statement, once. Other
// errors are the driver's, wrapped. After such an error, or if a context ended, the state of the transaction depends on
// the database and the driver: roll it back.
//
// If another transaction is adding the same explanation, ExplainIn waits until it ends. PostgreSQL then fails with
// 40001 if the isolation is REPEATABLE READ or above and the other one has committed; MySQL and MariaDB may fail with a
// deadlock if it was rolled back. Repeat the transaction.
func (r *Register) ExplainIn(ctx context.Context, tx Execer, e serial.Explanation) error {
	if v := reflect.ValueOf(tx); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return errors.New("sqlledger: explain: the transaction is nil")
	}
	args, err := r.arguments(e)
	if err != nil {
		return err
	}
	if err := r.insertIn(ctx, tx, args); err != nil {
		return r.failed(ctx, "explain", err)
	}
	return nil
}

// Explanations returns the explanations of a series, such as "serial:IS", in the period that begins at start, or in all
// periods if start is zero. They are in the order in which they were recorded: by the database's clock when each row was
// written, to a microsecond, in SQLite to a millisecond. So an audit uses the later one, whatever its At. Explanations of the same instant are ordered by At,
// then First, then Last, then in a fixed way. If the database's clock was set back, the order is wrong.
//
// Start and At are in UTC. The rows are read as the loop requests them, so any number of them takes little memory. The
// loop may end early, and every loop reads anew.
//
// A loop has one connection of the pool until it ends. If it is the only one, nothing in the loop may need another;
// with SQLite, nothing in it may write to the same file.
//
// An error is yielded once, after the connection has been returned, and ends the loop: a series or a start that
// [Register.Explain] refuses, except for a zero start; a row that it would have refused, written by another program; ctx's; or the driver's,
// wrapped.
func (r *Register) Explanations(ctx context.Context, series string,
	start time.Time) iter.Seq2[serial.Explanation, error] {
	return func(yield func(serial.Explanation, error) bool) {
		if err := r.list(ctx, series, start.UTC(), yield); err != nil {
			what := fmt.Sprintf("explanations of %q", series)
			if !start.IsZero() {
				what += " from " + start.UTC().Format(time.RFC3339Nano)
			}
			yield(serial.Explanation{}, r.failed(ctx, what, err))
		}
	}
}

// list yields the explanations, without errors. If yield returns false, list returns nil.
func (r *Register) list(ctx context.Context, series string, start time.Time,
	yield func(serial.Explanation, error) bool) error {
	err, q := checkName("Series", series, 1, maxSeries), &r.sql.all
	if !start.IsZero() {
		err, q = cmp.Or(err, checkStart(start)), &r.sql.list
	}
	if err != nil {
		return err
	}
	c, err := r.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	query := c.QueryContext
	if r.dialect == MySQL { // with autocommit off, the connection may have an old snapshot
		tx, err := c.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		query = tx.QueryContext
	}
	args := arguments{"series": r.text(series), "start": start.Format(time.DateTime)}
	rows, err := query(ctx, q.text, q.bind(args)...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for ctx.Err() == nil && rows.Next() {
		e := serial.Explanation{Series: series}
		var digest, begin, at string
		err := rows.Scan(&digest, &begin, r.column(&e.Type), &e.First, &e.Last, r.column(&e.Reason), r.column(&e.By), &at,
			&e.Unused, &e.Possible)
		if err == nil {
			e.At, err = time.Parse(time.DateTime, at) // accepts fractions
		}
		if err == nil {
			e.Start, err = time.Parse(time.DateTime, begin)
		}
		if err = cmp.Or(err, checkFields(e)); err != nil {
			return fmt.Errorf("the row with digest %s: %w", digest, err)
		}
		if !yield(e, nil) {
			return nil
		}
	}
	return cmp.Or(ctx.Err(), rows.Err())
}

// Hooks returns hooks for [serial.WithHooks] that store a [serial.Generator]'s explanations. Only Unused is set. An
// explanation that cannot be added is tried again for a minute, so a restart of the database or a failover loses none.
// Then failed is called with it and with the last error, for example to log both, in the goroutine that calls Unused;
// it may be nil. At the end of a process, the error of [serial.Generator.Flush] lists everything that has not been
// added by then, with the last error.
func (r *Register) Hooks(failed func(serial.Explanation, error)) serial.Hooks {
	return serial.Hooks{Unused: func(ctx context.Context, e serial.Explanation) {
		if err := r.keepExplaining(ctx, e); err != nil && failed != nil {
			failed(e, err)
		}
	}}
}

// keepExplaining repeats Explain for a minute, until it succeeds.
func (r *Register) keepExplaining(ctx context.Context, e serial.Explanation) error {
	args, err := r.arguments(e)
	if err != nil {
		serial.UnusedFailed(ctx, err)
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, hookPatience)
	defer cancel()
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		attempt, end := context.WithTimeout(ctx, hookAttempt)
		err := r.insert(attempt, args)
		end()
		if serial.UnusedFailed(ctx, err); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(wait/2 + rand.N(wait/2)):
		}
	}
}

// arguments checks an explanation, and returns the arguments of insert.
func (r *Register) arguments(e serial.Explanation) ([]any, error) {
	if err := checkFields(e); err != nil {
		return nil, fmt.Errorf("sqlledger: explain: %w", err)
	}
	start := e.Start.UTC().Format(time.DateTime)
	at := e.At.UTC().Format(atLayout) // truncates it
	return r.sql.insert.bind(arguments{
		"series": r.text(e.Series), "type": r.text(e.Type), "start": start,
		"first": e.First, "last": e.Last,
		"reason": r.text(e.Reason), "by": r.text(e.By), "at": at, "unused": e.Unused, "possible": e.Possible,
		"digest": digest(e.Series, e.Type, start, e.First, e.Last, e.Reason, e.By, at, e.Unused, e.Possible),
	}), nil
}

// digest returns a hash of the fields, each as a netstring, so different lists are never hashed as the same text.
func digest(fields ...any) string {
	var all strings.Builder
	for _, field := range fields {
		text := fmt.Sprint(field)
		fmt.Fprintf(&all, "%d:%s,", len(text), text)
	}
	sum := sha256.Sum256([]byte(all.String()))
	return hex.EncodeToString(sum[:])
}

// text returns a text as an argument, in hexadecimal for a server, since a connection may have another character set.
func (r *Register) text(s string) any {
	if r.dialect == SQLite {
		return s
	}
	return hex.EncodeToString([]byte(s))
}

// column returns what receives a text that text has sent.
func (r *Register) column(s *string) any {
	if r.dialect == SQLite {
		return s
	}
	return (*hexText)(s)
}

// checkFields returns an error unless the explanation fits the table.
func checkFields(e serial.Explanation) error {
	return cmp.Or(e.Validate(), checkName("Series", e.Series, 1, maxSeries), checkName("Type", e.Type, 0, maxText),
		checkStart(e.Start), checkYear("At", e.At))
}

// checkName applies the limits of series and types: MySQL ignores trailing spaces when comparing texts.
func checkName(field, name string, least, most int) error {
	if len(name) < least || len(name) > most {
		return fmt.Errorf("%s has %d bytes: want %d to %d", field, len(name), least, most)
	}
	refused := func(r rune) bool { return r == ' ' || !unicode.IsPrint(r) }
	if !utf8.ValidString(name) || strings.ContainsFunc(name, refused) {
		return fmt.Errorf("%s is %q: want printable UTF-8 without spaces", field, name)
	}
	return nil
}

func checkStart(start time.Time) error {
	if start.Nanosecond() != 0 {
		return fmt.Errorf("%s is %s: want whole seconds", "Start", start.Format(time.RFC3339Nano))
	}
	return checkYear("Start", start)
}

// checkYear refuses years that MySQL's datetime does not support.
func checkYear(field string, at time.Time) error {
	if year := at.UTC().Year(); year < 1000 || year > 9999 {
		return fmt.Errorf("%s is in the year %d in UTC: want 1000 to 9999", field, year)
	}
	return nil
}
