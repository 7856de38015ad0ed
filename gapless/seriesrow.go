package gapless

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"errors"
	"strings"
)

// A seriesRow is a row of the table of series. A caller that takes the first number of a period, or a number of a
// period that has ended, locks the row in share mode. A caller that closes or reopens periods locks it exclusively.
type seriesRow struct {
	calendar string
	closed   sql.NullInt64 // end of the last closed period, in Unix seconds
}

// checkSeries locks the row of a series in share mode, and returns an error if the series has a different calendar or
// if the period of s is closed. If the row does not exist, checkSeries creates it. Other callers that need the row then
// wait until tx ends.
//
// On PostgreSQL at SERIALIZABLE, the row can only be locked exclusively, which blocks other callers. Therefore, if must
// is false, checkSeries does not lock the row there, and returns false. But if the period has ended, it still acquires
// the advisory lock of the series.
func (g *Generator) checkSeries(ctx context.Context, tx Tx, typ, series string, s *span, must bool) (
	checked bool, err error,
) {
	find := true
	if g.sql.lockShared != "" {
		a := arguments{"key": lockKey(series), "required": int64(0)}
		if must || s.end <= g.now().Unix() {
			a["required"] = int64(1)
		}
		err := g.scan(ctx, tx, g.sql.lockShared, a, &find)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return false, err
		}
		if !must && (err != nil || !find) {
			return false, nil
		}
	}
	var found seriesRow
	if find {
		found, err = g.shareSeriesRow(ctx, tx, series, s.label)
	} else {
		found, err = g.lockSeriesRow(ctx, tx, series)
	}
	switch {
	case err != nil:
		return false, err
	case found.calendar != g.calendar:
		return false, g.conflict(typ, s.label, found.calendar)
	case found.closed.Valid && s.end <= found.closed.Int64:
		return false, g.closedError(typ, s.label, found.closed.Int64)
	}
	return true, nil
}

// readSeriesRow runs a statement that returns calendar and closed from the row of a series. If the row does not exist,
// the error is sql.ErrNoRows.
func (g *Generator) readSeriesRow(ctx context.Context, q Querier, statement, series string) (seriesRow, error) {
	var found seriesRow
	err := g.scan(ctx, q, statement, g.row(series, ""), &found.calendar, &found.closed)
	return found, err
}

// lockSeriesRow locks the row of a series exclusively, and creates it if it does not exist.
func (g *Generator) lockSeriesRow(ctx context.Context, tx Tx, series string) (found seriesRow, err error) {
	_, _, err = g.upsert(ctx, tx, g.sql.lockSeriesRow, g.row(series, ""), &found.calendar, &found.closed)
	return found, err
}

// shareSeriesRow locks the row of a series in share mode, and creates it if it does not exist. It creates no row if the
// numbers of other periods (all but the one with the given label) have a different calendar. In this case, it returns a
// row with that calendar.
func (g *Generator) shareSeriesRow(ctx context.Context, tx Tx, series, label string) (seriesRow, error) {
	found, err := g.readSeriesRow(ctx, tx, g.sql.find, series)
	if err == nil && g.sql.share != "" {
		return g.readSeriesRow(ctx, tx, g.sql.share, series)
	}
	if !errors.Is(err, sql.ErrNoRows) {
		return found, err
	}
	calendar, err := g.findCalendar(ctx, tx, series, label)
	if err != nil || calendar != g.calendar {
		return seriesRow{calendar: calendar}, err
	}
	if g.sql.newSeriesRow == "" {
		return g.lockSeriesRow(ctx, tx, series)
	}
	if err := g.exec(ctx, tx, g.sql.newSeriesRow, g.row(series, "")); err != nil {
		return seriesRow{}, err
	}
	return g.readSeriesRow(ctx, tx, g.sql.find, series)
}

// findCalendar returns the calendar of the numbers that were taken in periods other than the one with the given label,
// or the scheme's calendar if none were taken. It is needed if the series has no row, because the series is new or
// because its row was deleted.
func (g *Generator) findCalendar(ctx context.Context, tx Tx, series, label string) (string, error) {
	var mark string
	err := g.scan(ctx, tx, g.sql.other, g.row(series, label), &mark)
	if errors.Is(err, sql.ErrNoRows) {
		return g.calendar, nil
	}
	calendar, _, _ := strings.Cut(mark, markSeparator)
	return calendar, err
}

// lockKey returns a hash of the series. advisoryKey uses this hash in the key of an advisory lock.
func lockKey(series string) int64 {
	sum := sha256.Sum256([]byte(series))
	return int64(binary.BigEndian.Uint64(sum[:]))
}
