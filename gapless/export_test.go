package gapless

import (
	"strings"
	"time"
)

// Misjudge makes g believe that the database's clock is ahead of this host's clock by the given duration.
func (g *Generator) Misjudge(ahead time.Duration) {
	g.clock.Store(&clock{time.Now().Add(ahead), time.Now()})
}

// Read returns the time of the database's clock from a column that a statement returned.
func Read(column any) (time.Time, error) {
	var r clockTime
	err := r.Scan(column)
	return r.Time, err
}

// Bind calls bind for a dialect.
func Bind(d Dialect, statement string, a map[string]any) (text string, values []any) {
	return d.bind(statement, a)
}

// AsOn makes MariaDB read g's statements as MariaDB 10.4 does or, with "/*M!", as MySQL does. It turns the parts that a
// later server would execute into comments. What g has stored about the kind of the server does not change.
func (g *Generator) AsOn(comment string) {
	for _, s := range []*statements{&g.sql, g.plain} {
		for _, query := range []*string{&s.upsert.returning, &s.upsert.write, &s.upsert.read, &s.lockSeriesRow.write,
			&s.lockSeriesRow.read, &s.server} {
			*query = strings.ReplaceAll(*query, comment, "/*")
		}
	}
}

// Remember makes g remember a time of the database's clock that was read at most age ago.
func (g *Generator) Remember(now time.Time, age time.Duration) { g.remember(now, age) }

// Now returns the current time by the database's clock, as far as g knows it.
func (g *Generator) Now() time.Time { return g.now() }

// Suspend makes it look as if this host were suspended during each call: until resume is called, the wall clock
// advances by an additional d, but the monotonic clock does not.
func Suspend(d time.Duration) (resume func()) {
	since = func(t time.Time) time.Duration {
		if t == t.Round(0) { // t has no monotonic time
			return time.Since(t) + d
		}
		return time.Since(t)
	}
	return func() { since = time.Since }
}
