package main

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/gapless"
	"github.com/dailyserial/serial/serialpage"
	"github.com/dailyserial/serial/sqlledger"
)

const (
	orderType   = "ORD" // ORD202110240001
	invoiceType = "INV" // INV-20211024-00001

	largest  = 1_000_000_00     // cents of an order
	patience = 10 * time.Second // per request
	kept     = 400              // days for which Redis keeps counters of orders, for their accounts
)

// schema creates the tables. In production, leave it to your migrations.
//
// Numbers are unique, whoever issues them, and compared byte by byte; MySQL would need COLLATE utf8mb4_bin for that. Column day is
// the day that the number prints. An order has one invoice that is not void. No invoice can be deleted: its number would be missing.
// Table closings tells who closed and reopened months, and why.
var schema = fmt.Sprintf(`
CREATE TABLE IF NOT EXISTS orders (
	number       text    PRIMARY KEY,
	day          text    NOT NULL,
	seq          integer NOT NULL,
	customer     text    NOT NULL,
	amount_cents integer NOT NULL CHECK (amount_cents BETWEEN 0 AND %d)
);
CREATE INDEX IF NOT EXISTS orders_by_seq ON orders (day, seq);
CREATE TABLE IF NOT EXISTS invoices (
	number       text    PRIMARY KEY,
	day          text    NOT NULL,
	order_number text    NOT NULL REFERENCES orders (number),
	amount_cents integer NOT NULL CHECK (amount_cents > 0),
	voided_at    text
);
CREATE UNIQUE INDEX IF NOT EXISTS one_invoice ON invoices (order_number) WHERE voided_at IS NULL;
CREATE TRIGGER IF NOT EXISTS invoices_stay BEFORE DELETE ON invoices
BEGIN
	SELECT RAISE(ABORT, 'invoices are voided, not deleted');
END;
CREATE TABLE IF NOT EXISTS closings (
	action  text NOT NULL CHECK (action IN ('close', 'reopen')),
	month   text NOT NULL,
	done_by text NOT NULL,
	reason  text NOT NULL,
	done_at text NOT NULL DEFAULT (strftime('%%Y-%%m-%%dT%%H:%%M:%%SZ', 'now'))
)`, largest)

// A draft is an order without a number.
type draft struct {
	Customer    string `json:"customer"`
	AmountCents int64  `json:"amount_cents"`
}

type order struct {
	Number string `json:"number"`
	draft
}

type invoice struct {
	Number      string  `json:"number"`
	Order       string  `json:"order"`
	AmountCents int64   `json:"amount_cents"`
	VoidedAt    *string `json:"voided_at"` // null unless void
}

// A service answers requests. It is safe for use by any number of goroutines.
type service struct {
	db       *sql.DB
	zone     *time.Location
	orders   *serial.Generator
	invoices *gapless.Generator
	register *sqlledger.Register // why numbers are missing
	log      *slog.Logger
}

// openDatabase opens a file of SQLite and creates the service's tables. Transactions begin with BEGIN IMMEDIATE: one that read
// first and then wanted to write would fail at once if another has written meanwhile. Writers wait for each other up to the busy
// timeout, and in the pool as long as their contexts allow.
func openDatabase(ctx context.Context, file string) (*sql.DB, error) {
	if !slices.Contains(sql.Drivers(), "sqlite") {
		return nil, errors.New("built with the race detector, and so without SQLite")
	}
	db, err := sql.Open("sqlite", "file:"+file+
		"?_txlock=immediate&_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_pragma=foreign_keys(1)")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(4)
	db.SetMaxIdleConns(4)
	if _, err := db.ExecContext(ctx, schema); err != nil {
		return nil, errors.Join(fmt.Errorf("create the tables: %w", err), db.Close())
	}
	return db, nil
}

// newService returns a service. It uses the database but not yet Redis.
func newService(ctx context.Context, rdb redis.UniversalClient, db *sql.DB, zone *time.Location, log *slog.Logger,
	opts ...serial.Option) (*service, error) {
	s := &service{db: db, zone: zone, log: log}
	var err error
	if s.register, err = sqlledger.NewRegister(db, sqlledger.SQLite); err != nil {
		return nil, err
	}
	if err := s.register.CreateTable(ctx); err != nil {
		return nil, err
	}
	// Orders are counted by the day. If Redis loses a counter, it continues above the orders that are stored. Numbers that come to
	// nothing on their way from Redis are explained.
	opts = append(opts, serial.WithLocation(zone), serial.WithRetention(kept), serial.WithFloor(s.lastOrder),
		serial.WithHooks(s.register.Hooks(s.notKept)))
	s.orders, err = serial.New(rdb, opts...)
	if err != nil {
		return nil, err
	}
	// Invoices print the day, and are counted by the month.
	scheme, err := serial.NewScheme(serial.WithLocation(zone), serial.WithPeriod(serial.PerMonth),
		serial.WithTemplate("{type}-{date:yyyyMMdd}-{seq:5}"))
	if err != nil {
		return nil, err
	}
	if s.invoices, err = gapless.New(gapless.SQLite, scheme); err != nil {
		return nil, err
	}
	return s, s.invoices.CreateTable(ctx, db)
}

// lastOrder is the floor of [serial.WithFloor]. An order that was deleted counts, too: its number may be on paper. So
// does what an operator raised the counter over. Other possible reasons do not, since an answer that was lost reaches
// up to the largest number.
func (s *service) lastOrder(ctx context.Context, typ string, start time.Time) (last int64, err error) {
	row := s.db.QueryRowContext(ctx, "SELECT coalesce(max(seq), 0) FROM orders WHERE day = ?", start.Format(time.DateOnly))
	if err := row.Scan(&last); err != nil {
		return 0, err
	}
	series, err := s.orders.Scheme().Series(typ)
	if err != nil {
		return 0, err
	}
	for e, err := range s.register.Explanations(ctx, series, start) {
		if err != nil {
			return 0, err
		}
		if !e.Possible || strings.HasPrefix(e.Reason, serial.Raised) {
			last = max(last, e.Last)
		}
	}
	return last, nil
}

// notKept logs an explanation that the database did not take.
func (s *service) notKept(e serial.Explanation, err error) {
	s.log.Error("an explanation was not kept", "type", e.Type, "first", e.First, "last", e.Last, "reason", e.Reason,
		"err", err)
}

// explanation says why an order's number is missing.
func (s *service) explanation(n serial.Number, reason, by string) (serial.Explanation, error) {
	series, err := s.orders.Scheme().Series(n.Type)
	return serial.Explanation{Series: series, Type: n.Type, Start: n.Start, First: n.Seq, Last: n.Seq, Reason: reason,
		By: by, At: time.Now()}, err
}

// place stores an order. Its number is taken first, outside of any transaction: Redis cannot take it back, and a transaction
// would only make others wait for Redis. If the order then fails, its number is a gap, and the register says why. If the order is
// stored all the same, although the database said nothing in time, the explanation is of no effect.
func (s *service) place(ctx context.Context, d draft) (order, error) {
	number, err := s.orders.NextNumber(ctx, orderType)
	if err != nil {
		return order{}, err
	}
	_, err = s.db.ExecContext(ctx, "INSERT INTO orders (number, day, seq, customer, amount_cents) VALUES (?, ?, ?, ?, ?)",
		number, number.Date.Format(time.DateOnly), number.Seq, d.Customer, d.AmountCents)
	if err == nil {
		return order{number.String(), d}, nil
	}
	reason := "the order could not be stored"
	if broken(err, checkFailed) {
		err = refusal{http.StatusUnprocessableEntity, fmt.Sprintf("amount_cents must be 0 to %d", largest)}
		reason = "the order was refused: " + err.Error()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience) // the client may have left
	defer cancel()
	e, failed := s.explanation(number, reason, "orders")
	if failed = cmp.Or(failed, s.register.Explain(ctx, e)); failed != nil {
		s.notKept(e, failed)
	}
	return order{}, err
}

// voidOrder deletes an order that has no invoice, and keeps why its number is missing, in one transaction.
func (s *service) voidOrder(ctx context.Context, number, reason, by string) error {
	n, err := s.orders.Scheme().Parse(number)
	if err != nil {
		return sql.ErrNoRows
	}
	e, err := s.explanation(n, reason, by)
	if err != nil {
		return err
	}
	if err := e.Validate(); err != nil {
		return refusal{http.StatusBadRequest, err.Error()}
	}
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	var deleted string
	err = tx.QueryRowContext(ctx, "DELETE FROM orders WHERE number = ? RETURNING number", number).Scan(&deleted)
	if broken(err, keyFailed) {
		return refusal{http.StatusConflict, "the order has an invoice"}
	}
	if err != nil {
		return err
	}
	if err := s.register.ExplainIn(ctx, tx, e); err != nil {
		return err
	}
	return tx.Commit()
}

// closeMonth closes the month of a day, and all before it: invoices get no more numbers there. It waits for those who are taking
// one.
func (s *service) closeMonth(ctx context.Context, day time.Time, reason, by string) error {
	_, start, end := s.invoices.Scheme().Period(day)
	if time.Now().Before(end) {
		return refusal{http.StatusConflict, "the month has not ended"}
	}
	return s.record(ctx, "close", start, reason, by, func(tx *sql.Tx) error {
		return s.invoices.ClosePeriods(ctx, tx, invoiceType, end)
	})
}

// reopenMonth opens the month of a day, and all after it.
func (s *service) reopenMonth(ctx context.Context, day time.Time, reason, by string) error {
	_, start, _ := s.invoices.Scheme().Period(day)
	return s.record(ctx, "reopen", start, reason, by, func(tx *sql.Tx) error {
		return s.invoices.ReopenPeriods(ctx, tx, invoiceType, start)
	})
}

// record carries out a change of a month, and keeps who asked for it and why, in one transaction.
func (s *service) record(ctx context.Context, action string, start time.Time, reason, by string,
	change func(*sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	if err := change(tx); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO closings (action, month, done_by, reason) VALUES (?, ?, ?, ?)",
		action, start.Format("2006-01"), by, reason); err != nil {
		return err
	}
	return tx.Commit()
}

// invoice stores the invoice of an order, or finds the one that the order has. The number and its invoice are committed together
// or not at all: whatever fails, the next invoice gets the number. If date is not zero, the invoice is dated back: it
// prints that day, and gets the next number of that month.
func (s *service) invoice(ctx context.Context, orderNumber string, date time.Time) (v invoice, created bool,
	err error) {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return v, false, err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	v, err = scan(tx.QueryRowContext(ctx, selectInvoices+"WHERE order_number = ? AND voided_at IS NULL", orderNumber))
	if err == nil || !errors.Is(err, sql.ErrNoRows) {
		return v, false, err
	}
	v.Order = orderNumber
	if err := tx.QueryRowContext(ctx, "SELECT amount_cents FROM orders WHERE number = ?", orderNumber).
		Scan(&v.AmountCents); err != nil {
		return v, false, err
	}

	// The number comes last: from here until the commit, everybody else waits.
	var number serial.Number
	if date.IsZero() {
		number, err = s.invoices.Next(ctx, tx, invoiceType) // by the database's clock
	} else {
		number, err = s.invoices.NextOn(ctx, tx, invoiceType, date)
	}
	if errors.Is(err, gapless.ErrPeriodClosed) {
		return v, false, refusal{http.StatusConflict, "the month is closed"}
	}
	if err != nil {
		return v, false, err
	}
	v.Number = number.String()
	_, err = tx.ExecContext(ctx, "INSERT INTO invoices (number, day, order_number, amount_cents) VALUES (?, ?, ?, ?)",
		v.Number, number.Date.Format(time.DateOnly), v.Order, v.AmountCents)
	if broken(err, checkFailed) {
		return v, false, refusal{http.StatusUnprocessableEntity, "this order has nothing to pay"}
	}
	if err != nil {
		return v, false, err
	}
	return v, true, tx.Commit()
}

// void marks an invoice, which keeps its number. The order can then have another invoice, with a new number. Voiding an invoice
// again changes nothing.
func (s *service) void(ctx context.Context, number string) (invoice, error) {
	_, err := s.db.ExecContext(ctx, `UPDATE invoices SET voided_at = strftime('%Y-%m-%dT%H:%M:%SZ', 'now')
		WHERE number = ? AND voided_at IS NULL`, number)
	if err != nil {
		return invoice{}, err
	}
	return scan(s.db.QueryRowContext(ctx, selectInvoices+"WHERE number = ?", number))
}

// latest returns the 100 invoices that were stored last, the newest first.
func (s *service) latest(ctx context.Context) ([]invoice, error) {
	rows, err := s.db.QueryContext(ctx, selectInvoices+"ORDER BY rowid DESC LIMIT 100")
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	all := []invoice{}
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, rows.Err()
}

const selectInvoices = "SELECT number, order_number, amount_cents, voided_at FROM invoices "

func scan(row interface{ Scan(...any) error }) (v invoice, err error) {
	err = row.Scan(&v.Number, &v.Order, &v.AmountCents, &v.VoidedAt)
	return v, err
}

// SQLite's codes for a constraint that a statement would break.
const (
	checkFailed = 275 // SQLITE_CONSTRAINT_CHECK
	keyFailed   = 787 // SQLITE_CONSTRAINT_FOREIGNKEY
)

// broken reports whether the database refused a statement for a constraint of that kind.
func broken(err error, kind int) bool {
	var e interface{ Code() int }
	return errors.As(err, &e) && e.Code() == kind
}

// routes returns the handler of the whole service. It is an error if a.origin is not an origin.
func (s *service) routes(a access) (http.Handler, error) {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders", s.handle(func(w http.ResponseWriter, r *http.Request) error {
		var d draft
		if err := read(w, r, &d); err != nil || strings.TrimSpace(d.Customer) == "" {
			return wrongBody(err, `JSON such as {"customer": "Ada", "amount_cents": 1250}`)
		}
		o, err := s.place(r.Context(), d)
		return write(w, http.StatusCreated, o, err)
	}))
	mux.HandleFunc("POST /orders/{number}/invoice", s.handle(func(w http.ResponseWriter, r *http.Request) error {
		var dated struct{ Date string }
		var date time.Time
		err := read(w, r, &dated)
		if err == nil && dated.Date != "" {
			date, err = s.day(dated.Date)
		}
		if err != nil || date.After(time.Now().Add(12*time.Hour)) { // today's noon may be yet to come
			return wrongBody(err, `empty, or to date it back {"date": "2021-10-24"}`)
		}
		v, created, err := s.invoice(r.Context(), r.PathValue("number"), date)
		if created {
			return write(w, http.StatusCreated, v, err)
		}
		return write(w, http.StatusOK, v, err)
	}))
	mux.HandleFunc("POST /invoices/{number}/void", s.handle(func(w http.ResponseWriter, r *http.Request) error {
		v, err := s.void(r.Context(), r.PathValue("number"))
		return write(w, http.StatusOK, v, err)
	}))
	mux.HandleFunc("POST /orders/{number}/void", s.handle(func(w http.ResponseWriter, r *http.Request) error {
		why, err := readReason(w, r)
		if err == nil {
			err = s.voidOrder(r.Context(), r.PathValue("number"), why.Reason, why.By)
		}
		return write(w, http.StatusOK, why, err)
	}))
	for action, change := range map[string]func(_ context.Context, day time.Time, reason, by string) error{
		"close": s.closeMonth, "reopen": s.reopenMonth,
	} {
		mux.HandleFunc("POST /months/{month}/"+action, s.handle(func(w http.ResponseWriter, r *http.Request) error {
			day, err := s.day(r.PathValue("month") + "-01")
			if err != nil {
				return refusal{http.StatusBadRequest, "the month must be like 2021-10, from 1971-01 on"}
			}
			why, err := readReason(w, r)
			if err == nil {
				err = change(r.Context(), day, why.Reason, why.By)
			}
			return write(w, http.StatusOK, why, err)
		}))
	}
	mux.HandleFunc("GET /invoices", s.handle(func(w http.ResponseWriter, r *http.Request) error {
		all, err := s.latest(r.Context())
		return write(w, http.StatusOK, all, err)
	}))
	pages := serialpage.Options{Prefix: "/numbers", Series: s.series, User: a.name, Logger: s.log}
	// Any page that the user visits can make the browser send forms here, even if only this host can reach the service.
	guard := http.NewCrossOriginProtection()
	guard.SetDenyHandler(s.handle(func(http.ResponseWriter, *http.Request) error {
		return refusal{http.StatusForbidden, "a page of another site sent this request"}
	}))
	if a.origin != "" {
		if err := guard.AddTrustedOrigin(a.origin); err != nil {
			return nil, err
		}
		pages.TrustedOrigins = []string{a.origin}
	}
	numbers, err := serialpage.NewHandler(pages)
	if err != nil {
		return nil, err
	}
	mux.Handle("/numbers", numbers)
	mux.Handle("/numbers/", numbers)
	mux.Handle("GET /{$}", http.RedirectHandler("/numbers/", http.StatusFound))
	return guard.Handler(mux), nil
}

// read decodes a body, for which handle has set a deadline. An empty one leaves v as it is.
func read(w http.ResponseWriter, r *http.Request, v any) error {
	body := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10))
	body.DisallowUnknownFields()
	err := body.Decode(v)
	if err == io.EOF {
		return nil
	}
	_, end := body.Token()
	switch {
	case errors.Is(errors.Join(err, end), os.ErrDeadlineExceeded):
		return errStalled
	case err == nil && end != io.EOF:
		return errors.New("more than one value")
	}
	return err
}

var errStalled = refusal{http.StatusRequestTimeout, "the body did not come in time"}

// A reason says why something is done, and who wants it.
type reason struct {
	Reason string `json:"reason"`
	By     string `json:"by"`
}

func readReason(w http.ResponseWriter, r *http.Request) (why reason, err error) {
	if err := read(w, r, &why); err != nil || strings.TrimSpace(why.Reason) == "" || strings.TrimSpace(why.By) == "" {
		return why, wrongBody(err, `JSON such as {"reason": "ordered twice", "by": "Ada"}`)
	}
	return why, nil
}

// wrongBody returns the refusal of a body that cannot be read or has the wrong content.
func wrongBody(err error, must string) error {
	if errors.Is(err, errStalled) {
		return err
	}
	return refusal{http.StatusBadRequest, "the body must be " + must}
}

// day returns noon of a day that is written as 2021-10-24. Noon exists also on days that begin at 01:00.
func (s *service) day(text string) (time.Time, error) {
	day, err := time.ParseInLocation(time.DateOnly, text, s.zone)
	if err == nil && day.Year() < 1971 {
		err = errors.New("the year is before 1971")
	}
	return day.Add(12 * time.Hour), err
}

// A refusal is an error that the client can correct.
type refusal struct {
	status int
	detail string
}

func (r refusal) Error() string { return r.detail }

// handle limits the time of f and answers if f returns an error.
func (s *service) handle(f func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), patience)
		defer cancel()
		if deadline, _ := ctx.Deadline(); r.ContentLength != 0 {
			// The end of a context does not end the read of a body. This deadline does. If w does not support it, ReadTimeout remains.
			_ = http.NewResponseController(w).SetReadDeadline(deadline)
		}
		err := f(w, r.WithContext(ctx))
		if err == nil {
			return
		}
		refused := refusal{http.StatusServiceUnavailable, "not available at present"}
		switch {
		case errors.As(err, &refused):
		case errors.Is(err, sql.ErrNoRows):
			refused = refusal{http.StatusNotFound, "there is no such number"}
		case r.Context().Err() == nil: // else the client has left
			s.log.Error("unavailable", "method", r.Method, "path", r.URL.Path, "err", err)
		}
		_ = write(w, refused.status, map[string]string{"error": refused.detail}, nil)
	}
}

// write answers with v, or returns err if there is one.
func write(w http.ResponseWriter, status int, v any, err error) error {
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // nobody reads it if the client has left
	return nil
}
