package serial

import "time"

// PeriodBounds gives tests the label and bounds of the period of t.
func PeriodBounds(t time.Time, loc *time.Location) (label string, start, end int64) {
	p := periodAt(t, loc)
	return p.label, p.start, p.end
}

// Remembered is how many types a generator remembers.
func (g *Generator) Remembered() int { return len(g.memory.series) }

// Made is the number that g would have issued, and false where it could not have been.
func (g *Generator) Made(typ string, at time.Time, seq int64) (Number, bool) {
	p := periodAt(at, g.location)
	if checkType(typ) != nil || seq < 1 || seq > g.format.maxSeq() || g.format.checkYear(p.wall.Year()) != nil || p.end <= 0 {
		return Number{}, false
	}
	return (&batch{g, typ, p, seq}).number(seq), true
}
