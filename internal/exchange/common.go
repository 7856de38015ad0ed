package exchange

import (
	"time"

	"github.com/dailyserial/serial/internal/redisrun"
	"github.com/dailyserial/serial/internal/store"
)

// common is shared by all servers.
type common struct {
	runner  *redisrun.Runner
	store   *store.Store
	spans   spans
	memory  memory
	gaps    gaps
	maxSkew time.Duration
	seconds bool
	key     string
	onceFor time.Duration
}
