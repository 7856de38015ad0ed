package serial

import (
	"time"

	"github.com/dailyserial/serial/internal/calendar"
	"github.com/dailyserial/serial/internal/store"
)

// Opens reports whether a command that is sent with these arguments is open.lua.
func Opens(args []any) bool { return store.IsOpen(args) }

// Remembered is how many types a generator remembers.
func (g *Generator) Remembered() int { return len(g.marks.of) + len(g.marks.older) }

// Remember has g remember that it issued a number of a type now, without Redis.
func (g *Generator) Remember(typ string) {
	s := &span{stretch: g.stretchAt(time.Now())}
	s.stored = g.store.NewPeriod(s.Label, s.Start, s.End, s.from, s.to, s.End)
	g.marks.raise(typ, s, 1, &clock{})
}

// Made is the number that g would have issued, and false where it could not have been.
func (g *Generator) Made(typ string, at time.Time, seq int64) (Number, bool) {
	n, err := g.Scheme().Number(typ, at, seq)
	return n, err == nil
}

// Determines reports whether what a date layout prints determines the period.
func Determines(layout string, per Period, month time.Month, day int) bool {
	l, err := parseLayout(layout)
	if err != nil {
		panic(err)
	}
	return l.determines(per.unit(), calendar.NewYearStart(month, day))
}

// Stretch is the part of a period in which the same date is printed; of an instant, in Unix seconds.
func (s *Scheme) Stretch(at int64) (from, to int64, date string) {
	of := s.stretchAt(time.Unix(at, 0))
	return of.from, of.to, of.date
}

// Varies reports whether what is printed of the date may change within a period.
func (s *Scheme) Varies() bool { return s.varies }
