//go:build peers

package main

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/ceyewan/genesis/connector"
	"github.com/ceyewan/genesis/idgen"
	"github.com/redis/go-redis/v9"
	"mosn.io/layotto/components/sequencer"
	layotto "mosn.io/layotto/components/sequencer/redis"
)

var peers = []*contestant{
	{"genesis", "ceyewan/genesis idgen (no date)", 1, false, false, true, openGenesis},
	{"layotto", "layotto Redis sequencer (no date; its own go-redis v8 client)", 1, false, false, true, openLayotto},
}

const peersLeftOut = ""

// shared passes the common client to genesis, which would otherwise make its own.
type shared struct {
	connector.RedisConnector
	rdb *redis.Client
}

func (s shared) GetClient() *redis.Client { return s.rdb }

func openGenesis(ctx context.Context, t *target) (op, error) {
	seq, err := idgen.NewSequencer(&idgen.SequencerConfig{KeyPrefix: "genesis", TTL: 24 * time.Hour},
		idgen.WithRedisConnector(shared{rdb: t.rdb}))
	if err != nil {
		return nil, err
	}
	return warm(ctx, func(ctx context.Context, _ *rand.Rand) error {
		_, err := seq.Next(ctx, "IS")
		return err
	})
}

func openLayotto(ctx context.Context, t *target) (op, error) {
	seq := layotto.NewStandaloneRedisSequencer(nil) // the logger is stored but never used
	if err := seq.Init(sequencer.Configuration{Properties: map[string]string{"redisHost": t.addr}}); err != nil {
		return nil, err
	}
	return warm(ctx, func(context.Context, *rand.Rand) error {
		_, err := seq.GetNextId(&sequencer.GetNextIdRequest{Key: "layotto"})
		return err
	})
}
