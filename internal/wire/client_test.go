package wire_test

import (
	"context"
	"io"
	"net"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/internal/wire"
)

func TestDo(t *testing.T) {
	inBubble(t, func(t *testing.T, x *fixture) {
		x.play(t, "reply NOSCRIPT no; alone k → 1; alone k → 2; call k → 3; call k → 4; "+
			"sent → k / eval:k / k / k / k; call k:plain → 5; reply null; call k → <nil>") // a null is a reply
		r := x.calls["k"].Result
		require.False(t, r.Sent.IsZero() || r.Received.Before(r.Sent))
		require.Equal(t, "local", x.node.Local)

		join := func(name string) (*wire.Item, int, error) {
			return x.Join(t.Context(), x.node, wire.Merge{Name: name}, time.Now().Add(timeLimit))
		}
		x.play(t, "occupy; go call k:merge → 6")
		item, _, _ := join("other")
		require.Nil(t, item)
		x.all.Go(func() {
			item, position, err := join("k")
			require.NoError(t, err)
			require.Equal(t, []any{int64(7), 1}, []any{item.Result.Value, position})
		})
		synctest.Wait()
	})
}

// The options of a client determine its retries and its read timeout, which is 0 if it is long or unknown. A real
// connection has room for more items than one in memory, about which nothing is known. If pipelines are short, more of
// them must be in flight, but at most one for every two connections.
func TestConfigured(t *testing.T) {
	const addr, read, long = "127.0.0.1:1", 5 * time.Second, 6 * time.Second // read is the default
	inMemory := func(context.Context, string, string) (net.Conn, error) { return nil, io.EOF }
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{addr}, ReadTimeout: time.Second, PoolSize: 9})
	for _, c := range []struct {
		client                  redis.UniversalClient
		retries, together, most int
		read                    time.Duration
	}{
		{redis.NewClient(&redis.Options{Addr: addr, PoolSize: 1000}), 3, wire.MaxTogether, wire.MaxInFlight, read},
		{redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{addr}}),
			3, wire.MaxTogether, wire.MaxInFlight, read},
		{redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, ReadTimeout: -1, PoolSize: 1, Dialer: inMemory}),
			0, 4, wire.MaxInFlight, 0},
		{redis.NewClient(&redis.Options{Addr: addr, MaxRetries: 7, ReadTimeout: long, PoolSize: 40, Dialer: inMemory}),
			7, 4, 20, 0},
		{redis.NewClient(&redis.Options{Addr: addr, PoolSize: 1000, Dialer: inMemory}), 3, 4, 4 * wire.MaxInFlight, read},
		{cluster, 3, 1, 9, time.Second},
		{struct{ redis.UniversalClient }{cluster}, 3, 1, 10 * runtime.GOMAXPROCS(0), 0},
	} {
		defer c.client.Close()
		retries, read := wire.Configured(c.client)
		n := wire.New(c.client, wire.Replicas{}, func() any { return nil }).Node(t.Context(), "")
		require.Equal(t, []any{c.retries, c.together, c.most, c.read}, []any{retries, *n.Together(), *n.MaxPipelines(), read})
	}
}
