package serial

import (
	"time"

	"github.com/dailyserial/serial/internal/issue"
	"github.com/dailyserial/serial/internal/store"
)

// Opens reports whether a command that is sent with these arguments is open.lua.
func Opens(args []any) bool {
	return args[1] == store.OpenScript.Digest || args[1] == store.OpenScript.Source
}

// Remembered is how many types a generator remembers.
func (g *Generator) Remembered() int { return g.issuer.Remembered() }

// Remember has g remember that it issued a number of a type now, without Redis.
func (g *Generator) Remember(typ string) { g.issuer.Remember(typ, 1) }

// SpanAt is the part of a period in which the same date is printed; of an instant, in Unix seconds.
func (s *Scheme) SpanAt(at int64) (from, to int64, date string) {
	span, _ := s.template.Dates.SpanAt(time.Unix(at, 0))
	return span.From, span.To, span.Date
}

// Varies reports whether what is printed of the date may change within a period.
func (s *Scheme) Varies() bool { return s.template.Dates.Vary }

// TellLeft tells the hooks that the callers of these sequences have left.
func (g *Generator) TellLeft(typ string, first, last int64) {
	gap := issue.Gap{Type: typ, Span: &issue.Span{}, First: first, Last: last, Cause: issue.CallerLeft}
	g.tellGap(gap)
}
