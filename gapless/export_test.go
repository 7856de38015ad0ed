package gapless

import "time"

// Misjudge has g take the database's clock to be that far ahead of this host's.
func (g *Generator) Misjudge(ahead time.Duration) { g.ahead.Store(int64(ahead)) }
