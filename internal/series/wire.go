package series

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial/internal/wire"
)

// This file has what callers of this package need of package wire.

// Replicas says how many replicas must confirm a write.
type Replicas = wire.Replicas

var (
	// ErrNoAnswer means that a call's time has passed.
	ErrNoAnswer = wire.ErrNoAnswer
	// ErrEnded means that a hook of the client ended a goroutine.
	ErrEnded = wire.ErrEnded
)

// AnswerTime is a call's time, apart from the time for which it waits for other callers.
const AnswerTime = 10 * time.Second

// EndOf returns a context's error, nil while it lives. A deadline that has just passed counts even if the context's
// timer has not fired yet.
func EndOf(ctx context.Context) error { return wire.EndOf(ctx) }

// Foreign hides that an error comes from a context, because that context is not the caller's.
func Foreign(err error) error { return wire.Foreign(err) }

// ReadTimeout returns a client's read timeout: 0 if that is unknown, unlimited or too long to wait for.
func ReadTimeout(client redis.UniversalClient) time.Duration {
	_, read := wire.Configured(client)
	return read
}
