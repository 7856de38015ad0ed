package gapless

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"errors"
	"strings"
)

// judge locks the gate of a series in share mode, and returns an error if the series has another calendar or the period
// is closed. If there is no gate, judge makes it, and who wants it too waits until tx ends. Without must, it
// does nothing and returns false if it would be in the way of others.
func (g *Generator) judge(ctx context.Context, tx Tx, typ, series string, s *span, must bool) (judged bool, err error) {
	var mark string
	var closed sql.NullInt64
	scan := func(query, period string) error {
		query, args := g.dialect.bind(query, []byte(series), []byte(period))
		return tx.QueryRowContext(ctx, query, args...).Scan(&mark, &closed)
	}
	find := true
	if g.sql.lockShared != "" {
		required := int64(0)
		if must || s.end <= g.now().Unix() {
			required = 1
		}
		err := tx.QueryRowContext(ctx, g.sql.lockShared, lockKey(series), required).Scan(&find)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return false, err
		}
		if !must && (err != nil || !find) {
			return false, nil
		}
	}
	if find {
		if err = scan(g.sql.gate, s.label); err != nil && !errors.Is(err, sql.ErrNoRows) {
			return false, err
		}
	}
	calendar, _, period := strings.Cut(mark, markJoint)
	switch {
	case mark == "" || period && calendar == g.scheme.Calendar():
		// There is no gate: the series is new, or somebody has deleted it.
		if find && g.sql.newGate != "" {
			query, args := g.dialect.bind(g.sql.newGate, []byte(series), []byte(gatePeriod), []byte(g.scheme.Calendar()))
			if _, err := tx.ExecContext(ctx, query, args...); err != nil {
				return false, err
			}
			if err := scan(g.sql.gate, s.label); err != nil {
				return false, err
			}
			calendar = mark
			break
		}
		c, err := g.upsert(ctx, tx, series, gatePeriod, g.scheme.Calendar(), 1, 0)
		if err != nil {
			return false, err
		}
		calendar, closed = c.mark, c.closed
	case !period && g.sql.share != "":
		if err := scan(g.sql.share, gatePeriod); err != nil {
			return false, err
		}
		calendar = mark
	}
	if calendar != g.scheme.Calendar() {
		return false, g.conflict(typ, s.label, calendar)
	}
	if closed.Valid && s.end <= closed.Int64 {
		return false, g.closedError(typ, s.label, closed.Int64)
	}
	return true, nil
}

// readGate returns the calendar of a series and the end of its last closed period, as its gate has them. It locks
// nothing.
func (g *Generator) readGate(ctx context.Context, q Querier, series string) (calendar string, closed sql.NullInt64,
	err error) {
	query, args := g.dialect.bind(g.sql.closed, []byte(series), []byte(gatePeriod))
	err = q.QueryRowContext(ctx, query, args...).Scan(&calendar, &closed)
	return calendar, closed, err
}

// lockKey is the part of an advisory lock's key that identifies the series.
func lockKey(series string) int64 {
	sum := sha256.Sum256([]byte(series))
	return int64(binary.BigEndian.Uint64(sum[:]))
}
