package series

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial/internal/wire"
)

// This file exports the names of package wire that callers of this package need.

// Replicas determines how many replicas must confirm a write.
type Replicas = wire.Replicas

var (
	// ErrNoAnswer means that Redis, a floor or a ledger did not answer before the deadline of a call.
	ErrNoAnswer = wire.ErrNoAnswer
	// ErrEnded means that a hook of the client, a floor or a ledger panicked or ended its goroutine.
	ErrEnded = wire.ErrEnded
)

// AnswerTime is the longest duration of a call, without the time for which it waits for other callers.
const AnswerTime = 10 * time.Second

// ContextErr returns the error of a context, or nil if the context has not ended. A context whose deadline has passed
// counts as ended even if its timer has not fired yet.
func ContextErr(ctx context.Context) error { return wire.ContextErr(ctx) }

// Foreign wraps an error so that it does not match the errors of contexts. It is for an error that may come from a
// context that is not the caller's.
func Foreign(err error) error { return wire.Foreign(err) }

// ReadTimeout returns a client's read timeout, or 0 if it is unknown, unlimited or longer than 5 seconds.
func ReadTimeout(client redis.UniversalClient) time.Duration {
	_, read := wire.Configured(client)
	return read
}
