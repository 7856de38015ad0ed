package main

import (
	"bytes"
	"context"
	"database/sql"
	_ "embed"
	"fmt"
	"html/template"
	"iter"
	"net/http"
	"time"

	"github.com/dailyserial/serial"
)

// An audit is what the page shows, and /audit?format=json.
type audit struct {
	Date     string  `json:"date"`
	Orders   account `json:"orders"`   // of the day
	Invoices account `json:"invoices"` // of the month
	Days     []day   `json:"days"`     // of the month
	Closed   string  `json:"closed"`   // the last month that is closed for invoices; "" if none is
	zone     string
}

// An account is a [serial.Report] for readers.
type account struct {
	Type         string  `json:"type"`
	Period       string  `json:"period"`
	Last         int64   `json:"last"`
	Stored       int64   `json:"stored"`
	Voided       int64   `json:"voided"` // invoices
	Missing      finding `json:"missing"`
	Explained    finding `json:"explained"` // those of the missing ones that the register explains
	Contradicted finding `json:"contradicted"`
	Duplicates   finding `json:"duplicates"`
	Beyond       finding `json:"beyond"`
	Foreign      finding `json:"foreign"`
	Clean        bool    `json:"clean"`           // every number is accounted for
	Error        string  `json:"error,omitempty"` // the reason if nothing is known
}

// A finding holds numbers that are not as they should be: their count, and a list of the first 1,000.
type finding struct {
	Count int64    `json:"count"`
	List  []string `json:"list"`
}

// A day counts its documents.
type day struct {
	Date     string `json:"date"`
	Orders   int64  `json:"orders"`   // stored
	Missing  int64  `json:"missing"`  // orders that were numbered and are not stored, as far as Redis still knows
	Invoices int64  `json:"invoices"` // stored, void or not
	Voided   int64  `json:"voided"`
}

func accountOf(r serial.Report, layout string) account {
	a := account{Type: r.Type, Period: r.Start.Format(layout), Last: r.Last, Stored: r.Count, Clean: r.Clean()}
	a.Missing, a.Explained = finding{r.MissingCount, []string{}}, finding{r.ExplainedCount, []string{}}
	for _, m := range r.Missing {
		a.Missing.List = append(a.Missing.List, sequences(m))
	}
	for _, e := range r.Explained {
		a.Explained.List = append(a.Explained.List, sequences(e.Range)+": "+e.Explanation.Reason)
	}
	a.Contradicted = finding{r.ContradictedCount, texts(r.Contradicted)}
	a.Duplicates = finding{r.DuplicateCount, texts(r.Duplicates)}
	a.Beyond = finding{r.BeyondCount, texts(r.Beyond)}
	a.Foreign = finding{r.ForeignCount, append([]string{}, r.Foreign...)}
	return a
}

// sequences, since nobody knows what day a missing invoice would have printed.
func sequences(r serial.Range) string {
	if r.First == r.Last {
		return fmt.Sprint(r.First)
	}
	return fmt.Sprintf("%d–%d", r.First, r.Last)
}

func texts(numbers []serial.Number) []string {
	list := []string{}
	for _, n := range numbers {
		list = append(list, n.String())
	}
	return list
}

// audit accounts for the orders of a day and the invoices of its month.
func (s *service) audit(ctx context.Context, at time.Time) (audit, error) {
	a := audit{Date: at.Format(time.DateOnly), zone: s.zone.String()}

	// Audit asks Redis for the counter and only then reads the orders, so an order that is stored meanwhile is not missing.
	// All orders are read: an audit that chose them by a column of the same table would trust the table that it checks.
	series, err := s.orders.Scheme().Series(orderType)
	if err != nil {
		return a, err
	}
	_, start, _ := s.orders.Scheme().Period(at)
	report, err := s.orders.Audit(ctx, orderType, at, stored(ctx, s.db, "SELECT number FROM orders"),
		serial.WithExplanations(s.register.Explanations(ctx, series, start)))
	a.Orders = accountOf(report, time.DateOnly)
	// The day may have no counter, or no longer have one, or Redis is away. The invoices are shown all the same.
	if err != nil {
		if ctx.Err() != nil {
			return a, err
		}
		a.Orders.Type, a.Orders.Period, a.Orders.Error = orderType, a.Date, err.Error()
	}

	// For the chart, too, Redis's counters are read first, so that an order that is stored meanwhile is not missing.
	issued := map[string]int64{}
	history, err := s.orders.History(ctx, orderType, kept+1)
	if err != nil {
		s.log.WarnContext(ctx, "the chart shows no missing orders", "err", err)
	}
	for _, n := range history {
		issued[n.Start.Format(time.DateOnly)] = n.Seq
	}

	// One transaction sees counter and invoices at one instant, on PostgreSQL only at REPEATABLE READ. It only reads, so it makes
	// nobody wait.
	tx, err := s.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return a, err
	}
	defer func() { _ = tx.Rollback() }()
	report, err = s.invoices.Audit(ctx, tx, invoiceType, at, stored(ctx, tx, "SELECT number FROM invoices"))
	if err != nil {
		return a, err
	}
	a.Invoices = accountOf(report, "2006-01")
	until, err := s.invoices.ClosedUntil(ctx, tx, invoiceType)
	if err != nil {
		return a, err
	}
	if !until.IsZero() {
		a.Closed = until.AddDate(0, -1, 0).Format("2006-01")
	}
	a.Days, err = s.days(ctx, tx, at, issued)
	for _, d := range a.Days {
		a.Invoices.Voided += d.Voided
	}
	return a, err
}

// A source is a database or a transaction.
type source interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// stored yields the numbers that a query selects. It asks the database when the first number is requested.
func stored(ctx context.Context, from source, query string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		rows, err := from.QueryContext(ctx, query)
		if err != nil {
			yield("", err)
			return
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var number string
			err := rows.Scan(&number)
			if !yield(number, err) || err != nil {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield("", err)
		}
	}
}

// days counts the documents of a month. issued has the number of orders that were counted, by day.
func (s *service) days(ctx context.Context, from source, at time.Time, issued map[string]int64) ([]day, error) {
	var days []day
	first := time.Date(at.Year(), at.Month(), 1, 12, 0, 0, 0, s.zone) // noon exists on every day
	for d := first; d.Month() == at.Month(); d = d.AddDate(0, 0, 1) {
		days = append(days, day{Date: d.Format(time.DateOnly)})
	}
	rows, err := from.QueryContext(ctx, `
		SELECT day, count(*), 0, 0 FROM orders WHERE day BETWEEN ?1 AND ?2 GROUP BY day UNION ALL
		SELECT day, 0, count(*), count(voided_at) FROM invoices WHERE day BETWEEN ?1 AND ?2 GROUP BY day`,
		days[0].Date, days[len(days)-1].Date)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var d day
		if err := rows.Scan(&d.Date, &d.Orders, &d.Invoices, &d.Voided); err != nil {
			return nil, err
		}
		for i := range days {
			if days[i].Date == d.Date {
				days[i].Orders += d.Orders
				days[i].Invoices += d.Invoices
				days[i].Voided += d.Voided
			}
		}
	}
	for i, d := range days {
		days[i].Missing = max(0, issued[d.Date]-d.Orders)
	}
	return days, rows.Err()
}

//go:embed audit.html
var pageText string

var page = template.Must(template.New("audit").Parse(pageText))

func (s *service) showAudit(w http.ResponseWriter, r *http.Request) error {
	at := time.Now().In(s.zone)
	if date := r.FormValue("date"); date != "" {
		var err error
		if at, err = s.day(date); err != nil {
			return refusal{http.StatusBadRequest, "date must be like 2021-10-24, from 1971 on"}
		}
	}
	a, err := s.audit(r.Context(), at)
	if err != nil {
		return err
	}
	switch format := r.FormValue("format"); format {
	case "json":
		return write(w, http.StatusOK, a, nil)
	case "", "html":
	default:
		return refusal{http.StatusBadRequest, "format must be html or json"}
	}
	var text bytes.Buffer
	err = page.Execute(&text, struct {
		audit
		Zone  string
		Chart chart
	}{a, a.zone, draw(a)})
	if err != nil {
		return fmt.Errorf("the page: %w", err)
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	// The page loads nothing.
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'")
	_, _ = text.WriteTo(w)
	return nil
}

// A chart is numbers per day, as the SVG of the page has them.
type chart struct {
	Width, Height, Left, Bottom int // of the plot, within the picture
	Lines                       []line
	Columns                     []column
}

type line struct {
	Y     float64
	Value int64
}

type column struct {
	day
	X, Width, Middle float64
	Label            int
	Selected         bool
	Bars             []bar
}

type bar struct {
	Class               string
	X, Y, Width, Height float64
}

// draw stacks missing orders on the stored ones and, beside them, void invoices on the others.
func draw(a audit) chart {
	c := chart{Width: 760, Height: 240, Left: 40, Bottom: 210}
	const top = 10
	var most int64 = 1
	for _, d := range a.Days {
		most = max(most, d.Orders+d.Missing, d.Invoices)
	}
	step := int64(1) // 1, 2 or 5 times a power of ten, so that there are at most five lines
	for i := 0; 5*step < most; i++ {
		step = step * []int64{2, 5, 2}[i%3] / []int64{1, 2, 1}[i%3]
	}
	most = (most + step - 1) / step * step
	scale := float64(c.Bottom-top) / float64(most)
	for v := int64(0); v <= most; v += step {
		c.Lines = append(c.Lines, line{float64(c.Bottom) - float64(v)*scale, v})
	}
	width := float64(c.Width-c.Left) / float64(len(a.Days))
	for i, d := range a.Days {
		x := float64(c.Left) + float64(i)*width
		col := column{day: d, X: x, Width: width, Middle: x + width/2, Label: i + 1, Selected: d.Date == a.Date}
		stack := func(x float64, base, n int64, class string) {
			if n > 0 {
				col.Bars = append(col.Bars, bar{class, x, float64(c.Bottom) - float64(base+n)*scale, width * 0.38,
					float64(n) * scale})
			}
		}
		stack(x+width*0.1, 0, d.Orders, "orders")
		stack(x+width*0.1, d.Orders, d.Missing, "missing")
		stack(x+width*0.52, 0, d.Invoices-d.Voided, "invoices")
		stack(x+width*0.52, d.Invoices-d.Voided, d.Voided, "voided")
		c.Columns = append(c.Columns, col)
	}
	return c
}
