package serialpage

import (
	"context"
	"iter"
	"time"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/gapless"
)

// A Source is where the numbers of a series are counted: [Redis] or [Table].
type Source interface {
	scheme() *serial.Scheme
	// last returns the last number of the current period.
	last(ctx context.Context, typ string) (serial.Number, error)
	// history returns the last numbers of the latest periods, newest first.
	history(ctx context.Context, typ string, periods int) ([]serial.Number, error)
	audit(ctx context.Context, typ string, at time.Time, used iter.Seq2[string, error], opts ...serial.AuditOption) (
		serial.Report, error)
	// closed returns the end of the last closed period, or zero.
	closed(ctx context.Context, typ string) (time.Time, error)
}

// Redis is the source of the series that a [serial.Generator] counts.
func Redis(g *serial.Generator) Source { return inRedis{g} }

type inRedis struct{ gen *serial.Generator }

func (s inRedis) scheme() *serial.Scheme { return s.gen.Scheme() }

func (s inRedis) last(ctx context.Context, typ string) (serial.Number, error) {
	return s.gen.Peek(ctx, typ)
}

func (s inRedis) history(ctx context.Context, typ string, periods int) ([]serial.Number, error) {
	return s.gen.History(ctx, typ, periods)
}

func (s inRedis) audit(ctx context.Context, typ string, at time.Time, used iter.Seq2[string, error],
	opts ...serial.AuditOption) (serial.Report, error) {
	return s.gen.Audit(ctx, typ, at, used, opts...)
}

func (s inRedis) closed(context.Context, string) (time.Time, error) { return time.Time{}, nil }

// Table is the source of the series that a [gapless.Generator] counts, read through q, such as a [*database/sql.DB].
func Table(q gapless.Querier, g *gapless.Generator) Source { return inTable{q, g} }

type inTable struct {
	q   gapless.Querier
	gen *gapless.Generator
}

func (s inTable) scheme() *serial.Scheme { return s.gen.Scheme() }

func (s inTable) last(ctx context.Context, typ string) (serial.Number, error) {
	return s.gen.Last(ctx, s.q, typ, time.Now())
}

func (s inTable) history(ctx context.Context, typ string, periods int) ([]serial.Number, error) {
	return s.gen.History(ctx, s.q, typ, periods)
}

func (s inTable) audit(ctx context.Context, typ string, at time.Time, used iter.Seq2[string, error],
	opts ...serial.AuditOption) (serial.Report, error) {
	return s.gen.Audit(ctx, s.q, typ, at, used, opts...)
}

func (s inTable) closed(ctx context.Context, typ string) (time.Time, error) {
	return s.gen.ClosedUntil(ctx, s.q, typ)
}
