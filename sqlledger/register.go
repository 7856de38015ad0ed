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
	hookRetryTime        = time.Minute      // time for which a hook repeats its write
	hookAttemptTime      = 10 * time.Second // limit of one attempt, because the next one may reach another server
)

// atLayout is the layout of Explanation.At in statements. The time is in UTC. The layout of Explanation.Start is
// time.DateTime.
const atLayout = time.DateTime + ".000000"

// A Register stores explanations of missing numbers in a database table. [Register.Explain] adds one explanation. A
// [serial.Generator] with [Register.Hooks] adds an explanation for every number that it leaves unused. A Register is
// safe for concurrent use, and any number of processes may use the same table at the same time.
//
// A Register adds rows, and never changes or deletes them. After the table has been created, the database's user needs
// only the rights to SELECT and to INSERT.
//
// Unlike a [Ledger], a Register does not check whether the database can lose committed data. If an explanation is lost,
// its number is an unexplained gap, but no number is issued twice.
type Register struct {
	runner
	sql registerStatements
}

// A RegisterOption configures the Register that [NewRegister] returns.
type RegisterOption interface{ applyRegister(*registerConfig) }

type registerConfig struct{ table string }

type registerOptionFunc func(*registerConfig)

func (f registerOptionFunc) applyRegister(c *registerConfig) { f(c) }

// WithRegisterTable sets the name of the table of a [Register], by the rules of [WithTable]. It must not be the table
// of a Ledger.
//
// The default is serial_explanations.
func WithRegisterTable(name string) RegisterOption {
	return registerOptionFunc(func(c *registerConfig) { c.table = name })
}

// NewRegister returns a Register in db. The caller opens and closes db. NewRegister does not access the database. It
// returns an error if db is nil, if the Dialect is unknown, or if [WithTable] does not allow the table name.
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
		outdated: "the table was not created for a Register by this version; choose another name with WithRegisterTable, " +
			"and then call CreateTable to create a new table",
	}}, nil
}

// CreateTable creates the table if it does not exist. Any number of processes may call it at the same time. The
// database's user needs the right to create the table (on PostgreSQL even if it exists) and to read it. If an existing
// table lacks a column, for example because it is the table of a Ledger, CreateTable returns an error and does not
// change it. If the table lacks the primary key, either CreateTable or the first call that adds an explanation returns
// an error.
func (r *Register) CreateTable(ctx context.Context) error {
	return r.do(ctx, "create the table", func(c *sql.Conn) error {
		if _, err := c.ExecContext(ctx, r.sql.schema); err != nil {
			return err
		}
		_, err := c.ExecContext(ctx, r.sql.check.text)
		return err
	})
}

// Explain adds an explanation in one short transaction. If the table already has the same explanation, nothing changes,
// and the explanation keeps its position in [Register.Explanations]. Two explanations are the same if all their fields
// are equal; Start is compared as an instant, and At is truncated to microseconds. After an error or a canceled call,
// it is unknown whether the explanation was added, but you can simply repeat the call.
//
// Explain rejects an explanation without accessing the database in these cases:
//
//   - [serial.Explanation.Validate] rejects it.
//   - Series is not 1 to 255 bytes of printable UTF-8 without spaces, or Type is not 0 to 64 such bytes.
//   - Start is not a whole second.
//   - Start or At is not in the years 1000 to 9999 in UTC.
//
// After a deadlock, or if the database reports that a lock is in the way, Explain tries again for up to 30 s or until
// ctx ends. Every other error wraps the driver's error, and also matches the error of ctx if ctx has ended.
//
// In a transaction, use [Register.ExplainIn] instead. If the transaction uses the only connection of the pool or, on
// SQLite, has written to the same file, Explain would wait for the end of that transaction, and then fail.
func (r *Register) Explain(ctx context.Context, e serial.Explanation) error {
	args, err := r.arguments(e)
	if err != nil {
		return err
	}
	return r.insert(ctx, args)
}

// insert adds an explanation, given as the result of Register.arguments.
func (r *Register) insert(ctx context.Context, args []any) error {
	return r.do(ctx, "explain", func(c *sql.Conn) error { return r.insertIn(ctx, c, args) })
}

// insertIn does what insert does, in the caller's transaction.
func (r *Register) insertIn(ctx context.Context, tx Execer, args []any) error {
	_, err := tx.ExecContext(ctx, r.sql.insert.text, args...)
	if err != nil && r.dialect == MySQL && mysqlDuplicate.MatchString(err.Error()) {
		return nil
	}
	return err
}

// An Execer executes statements in a transaction. Examples are a [*sql.Tx], and a [*sql.Conn] on which a transaction
// has begun. The statements use the placeholders of the dialect.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// ExplainIn does what [Register.Explain] does, in the caller's transaction. For example, call it in the transaction
// that voids a document: if that transaction is rolled back, so is the explanation. If the explanation already exists,
// ExplainIn returns no error, and the transaction can continue.
//
// ExplainIn returns an error if tx is nil, or if Explain would reject the explanation. In these cases it sends nothing
// to the database. Otherwise it executes one statement, and does not repeat it. If the statement fails, the error wraps
// the driver's error. The state of the transaction then depends on the database and the driver, so you must roll it
// back. Also roll it back if ctx or the context of the transaction has ended.
//
// If another transaction is inserting the same explanation, ExplainIn waits until that transaction ends. After that it
// may fail, and you must repeat your transaction: on PostgreSQL with error 40001, if the other transaction committed
// and yours is at REPEATABLE READ or above; on MySQL and MariaDB with a deadlock, if the other transaction was rolled
// back.
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
// periods if start is zero. They are in the order in which they were added, by the database's clock. The resolution of
// this clock is a microsecond, or a millisecond on SQLite. If several explanations cover the same number, an audit
// therefore uses the one that was added last, regardless of At. Explanations that were added at the same instant are
// sorted by At, First and Last, and then in an arbitrary but fixed order. If the database's clock was set back, the
// order is wrong.
//
// Start and At are in UTC. The rows are read while a loop over the iterator runs, so memory use does not depend on
// their number. The loop may end early, and every new loop runs the query again.
//
// A loop uses one connection of the pool until it ends. If the pool has no other connection, the body of the loop must
// not use the database. On SQLite, it must not write to the same file.
//
// If an error occurs, the connection is released. The iterator then yields the error once, and the loop ends. The error
// is one of the following:
//
//   - an error for a series or a start that [Register.Explain] rejects, except a zero start
//   - an error for a row that another program has added and that Explain would have rejected
//   - the error of ctx
//   - an error that wraps the driver's error
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

// list yields the explanations and returns the error, if any. It returns nil if yield returns false.
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
	if r.dialect == MySQL { // if autocommit is off, the connection may be in a transaction with an old snapshot
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
			e.At, err = time.Parse(time.DateTime, at) // also accepts fractions of a second
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

// Hooks returns hooks for [serial.WithHooks] that store the explanations of a [serial.Generator]. Only the field Unused
// is set. If an explanation cannot be added, the hook tries again for a minute, so that no explanation is lost while
// the database restarts or fails over. After that minute, the hook calls the function failed with the explanation and
// the last error, so that the function can log them. The function may be nil. It runs in the goroutine that calls
// Unused.
//
// When a process ends, the error of [serial.Generator.Flush] lists all explanations that have not been added by then,
// with the last error.
func (r *Register) Hooks(failed func(serial.Explanation, error)) serial.Hooks {
	return serial.Hooks{Unused: func(ctx context.Context, e serial.Explanation) {
		if err := r.keepExplaining(ctx, e); err != nil && failed != nil {
			failed(e, err)
		}
	}}
}

// keepExplaining does what Explain does, and repeats it for up to a minute until it succeeds. It reports every attempt
// with serial.UnusedFailed.
func (r *Register) keepExplaining(ctx context.Context, e serial.Explanation) error {
	args, err := r.arguments(e)
	if err != nil {
		serial.UnusedFailed(ctx, err)
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, hookRetryTime)
	defer cancel()
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		attempt, end := context.WithTimeout(ctx, hookAttemptTime)
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

// arguments checks an explanation, and returns the arguments for the statement insert.
func (r *Register) arguments(e serial.Explanation) ([]any, error) {
	if err := checkFields(e); err != nil {
		return nil, fmt.Errorf("sqlledger: explain: %w", err)
	}
	start := e.Start.UTC().Format(time.DateTime)
	at := e.At.UTC().Format(atLayout) // truncates At to microseconds
	return r.sql.insert.bind(arguments{
		"series": r.text(e.Series), "type": r.text(e.Type), "start": start,
		"first": e.First, "last": e.Last,
		"reason": r.text(e.Reason), "by": r.text(e.By), "at": at, "unused": e.Unused, "possible": e.Possible,
		"digest": digest(e.Series, e.Type, start, e.First, e.Last, e.Reason, e.By, at, e.Unused, e.Possible),
	}), nil
}

// digest returns a hash of the fields. Each field is written as a netstring, so that different lists of fields are
// never hashed as the same text.
func digest(fields ...any) string {
	var all strings.Builder
	for _, field := range fields {
		text := fmt.Sprint(field)
		fmt.Fprintf(&all, "%d:%s,", len(text), text)
	}
	sum := sha256.Sum256([]byte(all.String()))
	return hex.EncodeToString(sum[:])
}

// text returns s as an argument of a statement. For a server, s is encoded in hexadecimal, because the connection may
// have another character set.
func (r *Register) text(s string) any {
	if r.dialect == SQLite {
		return s
	}
	return hex.EncodeToString([]byte(s))
}

// column returns the destination for a column with a string, in the form in which the statements return it.
func (r *Register) column(s *string) any {
	if r.dialect == SQLite {
		return s
	}
	return (*hexText)(s)
}

// checkFields returns an error if the table cannot store the explanation.
func checkFields(e serial.Explanation) error {
	return cmp.Or(e.Validate(), checkName("Series", e.Series, 1, maxSeries), checkName("Type", e.Type, 0, maxText),
		checkStart(e.Start), checkYear("At", e.At))
}

// checkName returns an error if a series or a type cannot be stored. Spaces are not allowed, because MySQL ignores
// trailing spaces when it compares strings.
func checkName(field, name string, minLen, maxLen int) error {
	if len(name) < minLen || len(name) > maxLen {
		return fmt.Errorf("%s has %d bytes: want %d to %d", field, len(name), minLen, maxLen)
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

// checkYear returns an error if an instant is in a year that the type DATETIME of MySQL does not support.
func checkYear(field string, at time.Time) error {
	if year := at.UTC().Year(); year < 1000 || year > 9999 {
		return fmt.Errorf("%s is in the year %d in UTC: want 1000 to 9999", field, year)
	}
	return nil
}
