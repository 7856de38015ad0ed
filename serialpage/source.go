package serialpage

import (
	"context"
	"iter"
	"reflect"
	"time"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/gapless"
)

// A Source is the generator of a series, with access to its counter. [Redis] and [Table] return Sources.
type Source interface {
	scheme() *serial.Scheme
	// last returns the last number of the current period.
	last(ctx context.Context, typ string) (serial.Number, error)
	// history returns the last number of each of the latest periods, newest first.
	history(ctx context.Context, typ string, periods int) ([]serial.Number, error)
	audit(ctx context.Context, typ string, at time.Time, used iter.Seq2[string, error], opts ...serial.AuditOption) (
		serial.Report, error)
	// auditAll accounts for all periods whose counters still exist.
	auditAll(ctx context.Context, typ string, used iter.Seq2[string, error], opts ...serial.AuditOption) (
		serial.Reports, error)
	// closed returns the end of the last closed period, or the zero time.
	closed(ctx context.Context, typ string) (time.Time, error)
}

// Redis returns the Source of a series whose numbers g issues. The counter of the series is in Redis. If g is nil, the
// Source is nil, too, and the pages cannot be shown.
func Redis(g *serial.Generator) Source {
	if g == nil {
		return nil
	}
	return redisSource{g}
}

type redisSource struct{ gen *serial.Generator }

func (s redisSource) scheme() *serial.Scheme { return s.gen.Scheme() }

func (s redisSource) last(ctx context.Context, typ string) (serial.Number, error) {
	return s.gen.Peek(ctx, typ)
}

func (s redisSource) history(ctx context.Context, typ string, periods int) ([]serial.Number, error) {
	return s.gen.History(ctx, typ, periods)
}

func (s redisSource) audit(ctx context.Context, typ string, at time.Time, used iter.Seq2[string, error],
	opts ...serial.AuditOption) (serial.Report, error) {
	return s.gen.Audit(ctx, typ, serial.At(at), used, opts...)
}

func (s redisSource) auditAll(ctx context.Context, typ string, used iter.Seq2[string, error],
	opts ...serial.AuditOption) (serial.Reports, error) {
	return s.gen.AuditAll(ctx, typ, used, opts...)
}

func (s redisSource) closed(context.Context, string) (time.Time, error) { return time.Time{}, nil }

// Table returns the Source of a series whose numbers g issues. The counter of the series is in a database table. The
// pages read the table through q, which is usually a [*database/sql.DB]. If q or g is nil, the Source is nil, too, and
// the pages cannot be shown.
func Table(q gapless.Querier, g *gapless.Generator) Source {
	if v := reflect.ValueOf(q); g == nil || !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil
	}
	return tableSource{q, g}
}

type tableSource struct {
	q   gapless.Querier
	gen *gapless.Generator
}

func (s tableSource) scheme() *serial.Scheme { return s.gen.Scheme() }

func (s tableSource) last(ctx context.Context, typ string) (serial.Number, error) {
	return s.gen.Last(ctx, s.q, typ, serial.At(time.Now()))
}

func (s tableSource) history(ctx context.Context, typ string, periods int) ([]serial.Number, error) {
	return s.gen.History(ctx, s.q, typ, periods)
}

func (s tableSource) audit(ctx context.Context, typ string, at time.Time, used iter.Seq2[string, error],
	opts ...serial.AuditOption) (serial.Report, error) {
	return s.gen.Audit(ctx, s.q, typ, serial.At(at), used, opts...)
}

func (s tableSource) auditAll(ctx context.Context, typ string, used iter.Seq2[string, error],
	opts ...serial.AuditOption) (serial.Reports, error) {
	return s.gen.AuditAll(ctx, s.q, typ, used, opts...)
}

// closes reports whether periods of the series can be closed.
func (s *Series) closes() bool {
	_, ok := s.Source.(tableSource)
	return ok
}

func (s tableSource) closed(ctx context.Context, typ string) (time.Time, error) {
	return s.gen.ClosedUntil(ctx, s.q, typ)
}
