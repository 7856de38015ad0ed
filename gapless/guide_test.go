package gapless_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/gapless"
)

// dateOf reads the date of a document as text, because drivers convert a DATE in different ways.
func dateOf(ctx context.Context, tx gapless.Tx, query string) (serial.When, error) {
	var text string // in MySQL and SQLite, select CAST(day AS char)
	if err := tx.QueryRowContext(ctx, query).Scan(&text); err != nil {
		return serial.When{}, err
	}
	date, err := time.Parse(time.DateOnly, text)
	return serial.OnDateOf(date), err
}

// newNumbers returns a generator of invoice numbers, and creates its table.
func newNumbers(ctx context.Context, db *sql.DB) (*gapless.Generator, error) {
	scheme, err := serial.NewScheme(serial.WithLocation(time.UTC), serial.WithPeriod(serial.PerYear),
		serial.WithTemplate("{type}-{date:yyyy}-{seq:6}"))
	if err != nil {
		return nil, err
	}
	numbers, err := gapless.New(gapless.PostgreSQL, scheme)
	if err != nil {
		return nil, err
	}
	return numbers, numbers.CreateTable(ctx, db) // changes nothing if the table exists
}

// placeInvoice stores an invoice with the next number, such as INV-2026-000001.
func placeInvoice(ctx context.Context, db *sql.DB, numbers *gapless.Generator, total int64) (number serial.Number,
	err error) {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return number, err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	// Do everything else first, because other callers that need an INV number wait from Next until Commit.
	if number, err = numbers.Next(ctx, tx, "INV"); err != nil {
		return number, err
	}
	_, err = tx.ExecContext(ctx, "INSERT INTO invoices (number, total) VALUES ($1, $2)", number, total)
	if err != nil {
		return number, err
	}
	return number, tx.Commit()
}

// closeBooks closes the books of INV up to a day, and records who did it and why.
func closeBooks(ctx context.Context, db *sql.DB, numbers *gapless.Generator, until serial.When, who, why string) error {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted}) // without effect on SQLite
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := numbers.ClosePeriods(ctx, tx, "INV", until); err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, "INSERT INTO closings (until, who, why) VALUES ($1, $2, $3)", until.String(), who, why)
	if err != nil {
		return err
	}
	return tx.Commit()
}

// passOver continues a series after a number that a document already has. It accepts only the next number, because a
// higher one would leave a gap.
func passOver(ctx context.Context, db *sql.DB, numbers *gapless.Generator, number string) error {
	existing, err := numbers.Scheme().Parse(number)
	if err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted}) // without effect on SQLite
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	period := serial.At(existing.Start)
	last, err := numbers.Last(ctx, tx, existing.Type, period)
	if err != nil {
		return err
	}
	first, _ := numbers.Scheme().Limits()
	if next := max(last.Seq+1, first); existing.Seq != next {
		return fmt.Errorf("%s is not the next number, which has the sequence %d", number, next)
	}
	if err := numbers.Raise(ctx, tx, existing.Type, period, existing.Seq); err != nil {
		return err
	}
	return tx.Commit()
}

// requireInGuide checks that the guide contains the function of this file whose doc comment begins with comment.
func requireInGuide(t *testing.T, comment string) {
	t.Helper()
	source, err := os.ReadFile("guide_test.go")
	require.NoError(t, err)
	_, code, found := strings.Cut(guideText(t), "```go\n"+comment)
	require.True(t, found)
	code, _, _ = strings.Cut(code, "```")
	require.Contains(t, strings.ReplaceAll(string(source), "\r\n", "\n"), comment+code)
}

// guideText returns the text of the guide.
func guideText(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../docs/gapless.md")
	require.NoError(t, err)
	return strings.ReplaceAll(string(text), "\r\n", "\n")
}

// If a document already has the next number because a user typed it, Next fails for its type until passOver continues
// the series after that number. There must be no gap.
func TestNumberExistsAlready(t *testing.T) {
	require.Contains(t, guideText(t), "`passOver`")
	require.Contains(t, guideText(t), `numbers.Audit(ctx, db, "INV", at, stored(ctx, db))`)
	each(t, func(t *testing.T, d *database) {
		db, g := d.start(t, serial.WithPeriod(serial.PerYear), serial.WithTemplate("{type}-{date:yyyy}-{seq:4}"))
		execSQL(t, db, "CREATE TABLE invoices (number varchar(100) NOT NULL UNIQUE)")
		issue := func() error {
			return inTx(t.Context(), db, d.readCommitted(), func(tx *sql.Tx) error {
				n, err := g.NextOn(t.Context(), tx, "INV", serial.On(2021, time.October, 24))
				if err != nil {
					return err
				}
				_, err = tx.ExecContext(t.Context(), "INSERT INTO invoices VALUES ('"+n.String()+"')")
				return err
			})
		}
		require.NoError(t, issue())
		execSQL(t, db, "INSERT INTO invoices VALUES ('INV-2021-0002'), ('INV-2021-0004')")
		for range 2 {
			require.Regexp(t, `23505|Error 1062|UNIQUE constraint failed`, issue())
		}
		require.ErrorContains(t, passOver(t.Context(), db, g, "INV-2021-0004"), "which has the sequence 2")
		require.NoError(t, passOver(t.Context(), db, g, "INV-2021-0002"))
		require.NoError(t, issue())
		require.Error(t, issue())
		require.NoError(t, passOver(t.Context(), db, g, "INV-2021-0004"))
		require.ErrorContains(t, passOver(t.Context(), db, g, "INV-2021-0003"), "which has the sequence 5")
		require.NoError(t, issue())
		report, err := g.Audit(t.Context(), db, "INV", serial.On(2021, time.October, 24),
			numbers(func(int) {}, column(t, db, "SELECT number FROM invoices")...))
		require.NoError(t, err)
		require.True(t, report.Clean())
		require.EqualValues(t, 5, report.Count)
	})
}

// placeInvoice in the guide must store each invoice with the next number, and take no number if the row is refused.
func TestPlaceInvoice(t *testing.T) {
	requireInGuide(t, "// newNumbers ")
	db := postgreSQL(t).open(t)
	execSQL(t, db, "CREATE TABLE invoices (number text NOT NULL UNIQUE, total bigint NOT NULL CHECK (total > 0))")
	g, err := newNumbers(t.Context(), db)
	require.NoError(t, err)
	for _, total := range []int64{1250, 0, 99} {
		number, err := placeInvoice(t.Context(), db, g, total)
		require.Equal(t, total == 0, err != nil)
		require.Equal(t, map[int64]int64{1250: 1, 0: 2, 99: 2}[total], number.Seq)
	}
	require.Len(t, column(t, db, "SELECT number FROM invoices"), 2)
}

// closeBooks in the guide must record a closing if and only if it closes the periods.
func TestCloseBooks(t *testing.T) {
	requireInGuide(t, "// closeBooks ")
	d := postgreSQL(t)
	db, g := d.start(t)
	execSQL(t, db, "CREATE TABLE closings (until date NOT NULL, who text NOT NULL, why text NOT NULL)")
	require.NoError(t, closeBooks(t.Context(), db, g, serial.On(2021, time.October, 5), "Ada", "September is reported"))
	open := serial.OnDateOf(time.Now().UTC().AddDate(0, 1, 0))
	require.ErrorIs(t, closeBooks(t.Context(), db, g, open, "Bob", "by mistake"), gapless.ErrPeriodOpen)
	var closings int
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT count(*) FROM closings").Scan(&closings))
	require.Equal(t, 1, closings)
	requireResult(t, october(5))(g.ClosedUntil(t.Context(), db, "INV"))
}

// A date that is read from a DATE column with each driver must name the same date, even if that date has no midnight.
// If a setting of MySQL's driver changes the date, reading it as text must work as the guide describes.
func TestDateColumns(t *testing.T) {
	require.Contains(t, guideText(t), "`CAST(day AS char)`")
	require.Contains(t, guideText(t), "`time.Parse(time.DateOnly, text)`")
	saoPaulo, err := time.LoadLocation("America/Sao_Paulo")
	require.NoError(t, err)
	each(t, func(t *testing.T, d *database) {
		db := d.open(t)
		g := d.generator(t, db, serial.WithLocation(saoPaulo))
		local := db // connections with the setting
		if d.dialect == gapless.MySQL {
			db, local = d.with("parseTime=true").open(t), d.with("parseTime=true&loc=America%2FSao_Paulo").open(t)
		}
		execSQL(t, db, "CREATE TABLE documents (day date NOT NULL)")
		for _, want := range []string{"2018-11-04", "2026-08-01"} {
			execSQL(t, db, "DELETE FROM documents")
			execSQL(t, db, "INSERT INTO documents VALUES ('"+want+"')")
			var day time.Time
			require.NoError(t, db.QueryRowContext(t.Context(), "SELECT day FROM documents").Scan(&day))
			require.Equal(t, want, serial.OnDateOf(day).String())
			commits(t, db, func(tx *sql.Tx) {
				n, err := g.NextOn(t.Context(), tx, "INV", serial.OnDateOf(day))
				require.NoError(t, err)
				require.Equal(t, "INV"+strings.ReplaceAll(want, "-", "")+"0001", n.String())
				requireSeq(t, 1)(g.Last(t.Context(), tx, "INV", serial.OnDateOf(day)))
			})
			if d.dialect == gapless.PostgreSQL {
				continue
			}
			commits(t, local, func(tx *sql.Tx) {
				on, err := dateOf(t.Context(), tx, "SELECT CAST(day AS char) FROM documents")
				require.NoError(t, err)
				require.Equal(t, serial.OnDateOf(day), on)
				require.NoError(t, onlyErr(g.NextOn(t.Context(), tx, "INV", on)))
				if d.dialect == gapless.MySQL && want == "2018-11-04" {
					require.NoError(t, tx.QueryRowContext(t.Context(), "SELECT day FROM documents").Scan(&day))
					require.Equal(t, "2018-11-03", serial.OnDateOf(day).String())
				}
			})
		}
	})
}

// A boundary can be a date, which stands for the business day in the scheme's zone with its day start.
func TestBoundaryDates(t *testing.T) {
	saoPaulo, err := time.LoadLocation("America/Sao_Paulo")
	require.NoError(t, err)
	s := inFile(t).steps(t, schemes{"": {serial.WithLocation(saoPaulo), serial.WithDayStart(4 * time.Hour),
		serial.WithPeriod(serial.PerMonth), serial.WithTemplate("{type}{date:yyyyMM}{seq}")}})
	s.run("begin")
	err = s.generators[""].ClosePeriods(t.Context(), s.sessions[""].tx, "IS", serial.On(2021, time.October, 2))
	require.ErrorContains(t, err, "no period begins at 2021-10-02: want 2021-10-01 (2021-10-01T07:00:00Z) or "+
		"2021-11-01 (2021-11-01T07:00:00Z)")
	s.run("close20211001 on20210930!closed reopen20210901 on20210930=1 commit")
}

// If the template prints the time of day, a date can identify a period, but a number cannot be issued for it.
func TestDatesWithoutTimes(t *testing.T) {
	inFile(t).steps(t, schemes{"": {serial.WithTemplate("{type}{date:yyMMddHH}{seq}")}}).run(
		"on24!instant raise24=5 last24=5 raise19991024=5!unprintable")
}

// A column also contains numbers of other series. An audit with the query of docs/audit.md must ignore them. On
// PostgreSQL, a CHAR column pads numbers with spaces, which the query has to remove.
func TestAuditColumnWithOtherSeries(t *testing.T) {
	text, err := os.ReadFile("../docs/audit.md")
	require.NoError(t, err)
	const query = "SELECT number FROM invoices WHERE number LIKE 'INV%'"
	require.Contains(t, string(text), "\n    "+query+"\n")

	each(t, func(t *testing.T, d *database) {
		s := d.steps(t, nil)
		db, g, day := s.db, s.generators[""], serial.At(october(24))
		s.run(`
			sql CREATE TABLE invoices (number char(30) NOT NULL)
			INV/on24=INV202110240001 QUO/on24=QUO202110240001 INV/on24=INV202110240002
			sql INSERT INTO invoices VALUES ('INV202110240001'), ('QUO202110240001'), ('INV202110240002'), ('OLD-17')
		`)
		audit := func(query string) serial.Report {
			r, err := g.Audit(t.Context(), db, "INV", day, numbers(func(int) {}, column(t, db, query)...))
			require.NoError(t, err)
			return r
		}
		r := audit("SELECT number FROM invoices")
		require.Equal(t, []int64{1, 1}, []int64{r.OtherCount, r.ForeignCount})
		require.True(t, r.Clean(), "a text that is no number belongs to no period")
		r = audit(query)
		require.Zero(t, r.OtherCount+r.ForeignCount)
		require.True(t, r.Clean())

		stored := column(t, db, query)[0]
		require.Equal(t, d.dialect == gapless.PostgreSQL, strings.HasSuffix(stored, " "))
		_, err = scheme(t).Parse(strings.TrimRight(stored, " "))
		require.NoError(t, err)
		if _, err = scheme(t).Parse(stored); d.dialect == gapless.PostgreSQL {
			require.ErrorIs(t, err, serial.ErrInvalidNumber)
		}
	})
}

// The floor's query in docs/transactions.md returns the largest sequence of a type and day on each database. Its index
// can be created there.
func TestFloorInSQL(t *testing.T) {
	text, err := os.ReadFile("../docs/transactions.md")
	require.NoError(t, err)
	query := regexp.MustCompile(`"(SELECT coalesce.*)",`).FindSubmatch(text)
	require.NotNil(t, query)
	index := regexp.MustCompile(`CREATE INDEX orders_floor ON .*\);`).Find(text)
	require.NotNil(t, index)
	each(t, func(t *testing.T, d *database) {
		db := d.open(t)
		column, floor := "varchar(64)", string(query[1])
		if d.dialect == gapless.MySQL {
			column += " CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
			floor = regexp.MustCompile(`\$\d`).ReplaceAllString(floor, "?")
		}
		execSQL(t, db, "CREATE TABLE orders (type "+column+" NOT NULL, day date NOT NULL, seq bigint NOT NULL)")
		execSQL(t, db, string(index))
		execSQL(t, db, `INSERT INTO orders VALUES
			('IS', '2021-10-24', 9), ('IS', '2021-10-24', 10), ('IS', '2021-10-25', 11), ('is', '2021-10-24', 12)`)
		for day, want := range map[string]int64{"2021-10-24": 10, "2021-10-25": 11, "2021-10-26": 0} {
			var last int64
			require.NoError(t, db.QueryRowContext(t.Context(), floor, "IS", day).Scan(&last))
			require.Equal(t, want, last, day)
		}
	})
}

// column returns the strings that a query selects.
func column(t *testing.T, db *sql.DB, query string) (texts []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), query)
	require.NoError(t, err)
	defer func() { require.NoError(t, rows.Close()) }()
	for rows.Next() {
		var text string
		require.NoError(t, rows.Scan(&text))
		texts = append(texts, text)
	}
	require.NoError(t, rows.Err())
	return texts
}
