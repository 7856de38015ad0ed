package serial

import (
	"slices"
	"time"

	"github.com/dailyserial/serial/internal/exchange"
	"github.com/dailyserial/serial/internal/store"
)

// Opens reports whether a command that is sent with these arguments is open.lua.
func Opens(args []any) bool {
	return args[1] == store.OpenScript.Digest || args[1] == store.OpenScript.Source
}

// Remembered is how many types a generator remembers.
func (g *Generator) Remembered() int { return g.issuer.Remembered() }

// SpanAt is the part of a period in which the same date is printed; of an instant, in Unix seconds.
func (s *Scheme) SpanAt(at int64) (from, to int64, date string) {
	span, _ := s.template.Dates.SpanAt(time.Unix(at, 0))
	return span.From, span.To, span.Date
}

// Varies reports whether what is printed of the date may change within a period.
func (s *Scheme) Varies() bool { return s.template.Dates.Vary }

// ReportGap has the hooks get a gap of the period that begins in 1970, with one of this package's reasons.
func (g *Generator) ReportGap(typ string, first, last int64, reason string) {
	cause := exchange.Cause(slices.Index(reasons[:], reason))
	g.reporter.report(exchange.Gap{Type: typ, Span: &exchange.Span{}, First: first, Last: last, Cause: cause})
}
