// Package recipes contains the code of its README.
package recipes

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial"
)

// newControls returns a generator of control numbers.
func newControls(rdb redis.UniversalClient) (*serial.Generator, error) {
	return serial.New(rdb, serial.WithLocation(time.UTC), serial.WithPeriod(serial.Never),
		serial.WithTemplate("{type}-{seq:15}"))
}

// wrap returns the value of a counter that begins at 1 again after last.
func wrap(n serial.Number, last int64) int64 { return (n.Seq-1)%last + 1 }

// interchange returns the control number of an X12 interchange: 000000001 to 999999999.
func interchange(n serial.Number) string { return fmt.Sprintf("%09d", wrap(n, 999_999_999)) }

// trace returns a NACHA trace number. The type is the first eight digits of the bank's routing number.
func trace(n serial.Number) string { return fmt.Sprintf("%s%07d", n.Type, wrap(n, 9_999_999)) }

// ticket returns a number without its day, such as A001.
func ticket(n serial.Number) string { return fmt.Sprintf("%s%03d", n.Type, n.Seq) }

// correct stores the next revision of a document, and returns what it prints, such as ABBV180001-01. If the number is
// not stored, the error is sql.ErrNoRows.
func correct(ctx context.Context, db *sql.DB, number string) (string, error) {
	var revision int
	err := db.QueryRowContext(ctx, `INSERT INTO documents (number, revision)
		SELECT number, max(revision) + 1 FROM documents WHERE number = $1 GROUP BY number
		RETURNING revision`, number).Scan(&revision)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s-%02d", number, revision), nil
}

// keepSkipped stores the numbers of a day whose sequences first to last were skipped.
func keepSkipped(ctx context.Context, tx *sql.Tx, s *serial.Scheme, typ string, day serial.When,
	first, last int64) error {
	for seq := first; seq <= last; seq++ {
		n, err := s.Number(typ, day, seq)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO skipped (seq, number) VALUES ($1, $2)", seq, n); err != nil {
			return err
		}
	}
	return nil
}

// nextSkipped takes the smallest skipped number, in the transaction of its document. If none is available, found is
// false, and the caller takes a number with Next.
func nextSkipped(ctx context.Context, tx *sql.Tx) (number string, found bool, err error) {
	row := tx.QueryRowContext(ctx, "DELETE FROM skipped WHERE seq = (SELECT min(seq) FROM skipped) RETURNING number")
	if err = row.Scan(&number); errors.Is(err, sql.ErrNoRows) {
		return "", false, nil
	}
	return number, err == nil, err
}
