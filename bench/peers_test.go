//go:build peers

package main

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ceyewan/genesis/connector"
	"github.com/ceyewan/genesis/idgen"
	"github.com/redis/go-redis/v9"
	"mosn.io/layotto/components/sequencer"
	layotto "mosn.io/layotto/components/sequencer/redis"
)

// These peers depend on several hundred modules, including drivers of every database, which take minutes to compile.
// Therefore they need a build tag.
func init() { ways = append(ways, way{"genesis", openGenesis}, way{"layotto", openLayotto}) }

// sharedClient passes the shared client to genesis, which would otherwise create its own.
type sharedClient struct {
	connector.RedisConnector
	rdb *redis.Client
}

func (c sharedClient) GetClient() *redis.Client { return c.rdb }

func openGenesis(b *testing.B, s *server) call {
	sequencer, err := idgen.NewSequencer(&idgen.SequencerConfig{KeyPrefix: "genesis", TTL: 24 * time.Hour},
		idgen.WithRedisConnector(sharedClient{rdb: s.rdb}))
	must(b, err)
	return opened(b, func(*rand.Rand) error {
		_, err := sequencer.Next(ctx, "IS")
		return err
	})
}

func openLayotto(b *testing.B, s *server) call {
	numbers := layotto.NewStandaloneRedisSequencer(nil) // the logger may be nil, because it is never used
	must(b, numbers.Init(sequencer.Configuration{Properties: map[string]string{"redisHost": s.addr}}))
	return opened(b, func(*rand.Rand) error {
		_, err := numbers.GetNextId(&sequencer.GetNextIdRequest{Key: "layotto"})
		return err
	})
}
