package gapless

import "time"

// Misjudge has g take the database's clock to be that far ahead of this host's.
func (g *Generator) Misjudge(ahead time.Duration) {
	g.clock.Store(&clock{time.Now().Add(ahead), time.Now()})
}

// Read reads the database's clock from the column that a statement returned.
func Read(column any) (time.Time, error) {
	var r reading
	err := r.Scan(column)
	return r.Time, err
}
