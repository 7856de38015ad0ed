package serial

import (
	"time"

	"github.com/dailyserial/serial/internal/store"
)

// A Calendar gives tests the periods.
type Calendar struct{ c calendar }

// A Span is a period, without what only scripts and templates need.
type Span struct {
	Label      string
	Start, End int64 // Unix seconds
}

func spanOf(p *period) Span { return Span{p.label, p.start, p.end} }

func NewCalendar(loc *time.Location, per Period, dayStart time.Duration) Calendar {
	return Calendar{calendar{location: loc, period: per, dayStart: int64(dayStart / time.Second)}}
}

// At is the period of an instant, in Unix seconds; Around and Later are those next to it.
func (c Calendar) At(at int64) Span { return spanOf(c.c.at(time.Unix(at, 0))) }

func (c Calendar) Around(at int64) (previous, current, next Span) {
	p := c.c.at(time.Unix(at, 0))
	return spanOf(c.c.previous(p)), spanOf(p), spanOf(c.c.next(p))
}

func (c Calendar) Later(at int64, n int) Span { return spanOf(c.c.later(c.c.at(time.Unix(at, 0)), n)) }

// Of is the period whose label a reading falls under, and whether it exists.
func (c Calendar) Of(wall time.Time) (Span, bool) {
	p, ok := c.c.of(wall)
	return spanOf(p), ok
}

// PeriodBounds gives tests the label and bounds of the day of t.
func PeriodBounds(t time.Time, loc *time.Location) (label string, start, end int64) {
	p := calendar{location: loc, period: PerDay}.at(t)
	return p.label, p.start, p.end
}

// Opens reports whether a command that is sent with these arguments is open.lua.
func Opens(args []any) bool { return store.IsOpen(args) }

// Remembered is how many types a generator remembers.
func (g *Generator) Remembered() int { return len(g.marks.of) + len(g.marks.older) }

// Remember has g remember that it issued a number of a type now, without Redis.
func (g *Generator) Remember(typ string) {
	s := &span{stretch: g.stretchAt(time.Now())}
	s.stored = g.store.NewPeriod(s.label, s.start, s.end, s.from, s.to, s.end)
	g.marks.raise(typ, s, 1, &clock{})
}

// Made is the number that g would have issued, and false where it could not have been.
func (g *Generator) Made(typ string, at time.Time, seq int64) (Number, bool) {
	n, err := g.Scheme().Number(typ, at, seq)
	return n, err == nil
}

// From is c with another first day of the business year.
func (c Calendar) From(month time.Month, day int) Calendar {
	c.c.yearStart = yearStart{int(month - time.January), day - 1}
	return c
}

// Determines reports whether what a date layout prints determines the period.
func Determines(layout string, per Period, month time.Month, day int) bool {
	l, err := parseLayout(layout)
	if err != nil {
		panic(err)
	}
	return l.determines(per, yearStart{int(month - time.January), day - 1})
}

// Stretch is the part of a period in which the same date is printed; of an instant, in Unix seconds.
func (s *Scheme) Stretch(at int64) (from, to int64, date string) {
	of := s.stretchAt(time.Unix(at, 0))
	return of.from, of.to, of.date
}

// Varies reports whether what is printed of the date may change within a period.
func (s *Scheme) Varies() bool { return s.varies }
