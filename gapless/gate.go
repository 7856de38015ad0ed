package gapless

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"errors"
	"strings"
)

// A gate is a row of the table of series. A caller that takes the first number of a period, or a number of a period
// that has ended, locks the row in share mode. A caller that closes or reopens periods locks it exclusively.
type gate struct {
	calendar string
	closed   sql.NullInt64 // end of the last closed period, in Unix seconds
}

// judge locks the row of a series in share mode, and returns an error if the series has a different calendar or if the
// period is closed. If the row does not exist, judge creates it, and then other callers that need the row wait until tx
// ends. On PostgreSQL at SERIALIZABLE, judge would have to lock the row exclusively and block other callers. If must is
// false, it does not lock the row in this case, and returns false.
func (g *Generator) judge(ctx context.Context, tx Tx, typ, series string, s *span, must bool) (judged bool, err error) {
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
	var found gate
	if find {
		found, err = g.shareGate(ctx, tx, series, s.label)
	} else {
		found, err = g.lockGate(ctx, tx, series)
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

// readGate runs one of the statements that return a row of the table of series. If the row does not exist, the error is
// sql.ErrNoRows.
func (g *Generator) readGate(ctx context.Context, q Querier, statement, series string) (found gate, err error) {
	err = g.scan(ctx, q, statement, g.row(series, ""), &found.calendar, &found.closed)
	return found, err
}

// lockGate locks the row of a series exclusively, and creates it if it does not exist.
func (g *Generator) lockGate(ctx context.Context, tx Tx, series string) (found gate, err error) {
	_, _, err = g.upsert(ctx, tx, g.sql.lockGate, g.row(series, ""), &found.calendar, &found.closed)
	return found, err
}

// shareGate locks the row of a series in share mode, and creates it if it does not exist. But if a period other than
// the one with the given label already has numbers with a different calendar, it creates nothing and returns that
// calendar.
func (g *Generator) shareGate(ctx context.Context, tx Tx, series, label string) (gate, error) {
	found, err := g.readGate(ctx, tx, g.sql.find, series)
	if err == nil && g.sql.share != "" {
		return g.readGate(ctx, tx, g.sql.share, series)
	}
	if !errors.Is(err, sql.ErrNoRows) {
		return found, err
	}
	calendar, err := g.calendarOfRows(ctx, tx, series, label)
	if err != nil || calendar != g.calendar {
		return gate{calendar: calendar}, err
	}
	if g.sql.newGate == "" {
		return g.lockGate(ctx, tx, series)
	}
	if err := g.exec(ctx, tx, g.sql.newGate, g.row(series, "")); err != nil {
		return gate{}, err
	}
	return g.readGate(ctx, tx, g.sql.find, series)
}

// calendarOfRows returns the calendar of the numbers that were taken in periods other than the one with the given
// label. If none were taken, it returns the scheme's calendar. It is used if the series has no row, because the series
// is new or because the row was deleted.
func (g *Generator) calendarOfRows(ctx context.Context, tx Tx, series, label string) (string, error) {
	var mark string
	err := g.scan(ctx, tx, g.sql.other, g.row(series, label), &mark)
	if errors.Is(err, sql.ErrNoRows) {
		return g.calendar, nil
	}
	calendar, _, _ := strings.Cut(mark, markJoint)
	return calendar, err
}

// lockKey returns a hash of the series, which is a part of the key of an advisory lock.
func lockKey(series string) int64 {
	sum := sha256.Sum256([]byte(series))
	return int64(binary.BigEndian.Uint64(sum[:]))
}
