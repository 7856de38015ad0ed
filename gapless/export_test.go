package gapless

import (
	"strings"
	"time"
)

// Misjudge makes g believe that the database's clock is that far ahead of this host's.
func (g *Generator) Misjudge(ahead time.Duration) {
	g.clock.Store(&clock{time.Now().Add(ahead), time.Now()})
}

// Read reads the database's clock from the column that a statement returned.
func Read(column any) (time.Time, error) {
	var r reading
	err := r.Scan(column)
	return r.Time, err
}

// Bind has d bind the arguments of a statement.
func Bind(d Dialect, statement string, a map[string]any) (text string, values []any) {
	return d.bind(statement, a)
}

// AsOn makes MariaDB read g's statements as MariaDB 10.4 does or, with "/*M!", as MySQL does: what a later server would
// run is a comment. What g knows of the server stays.
func (g *Generator) AsOn(comment string) {
	for _, s := range []*statements{&g.sql, g.plain} {
		for _, query := range []*string{&s.upsert.returning, &s.upsert.write, &s.upsert.read, &s.lockGate.write,
			&s.lockGate.read, &s.server} {
			*query = strings.ReplaceAll(*query, comment, "/*")
		}
	}
}

// Now returns the time by the database's clock as g knows it.
func (g *Generator) Now() time.Time { return g.now() }

// Suspend advances this host's wall clock by d during each call, but not its monotonic clock, until resume is called.
func Suspend(d time.Duration) (resume func()) {
	since = func(t time.Time) time.Duration {
		if t == t.Round(0) { // it has no reading of the monotonic clock
			return time.Since(t) + d
		}
		return time.Since(t)
	}
	return func() { since = time.Since }
}
