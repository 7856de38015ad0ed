//go:build unix

package faults

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/redistest"
)

// A server refuses what a client sends.

// crowd has many callers of every type ask at once for one number after the other, and returns the sequences issued and
// the errors, by type.
func crowd(gen *serial.Generator, types []string, callers, calls int) (issued map[string][]int64, failed map[string][]error) {
	issued, failed = map[string][]int64{}, map[string][]error{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, typ := range types {
		for range callers {
			wg.Go(func() {
				for range calls {
					n, err := gen.NextNumber(context.Background(), typ)
					mu.Lock()
					if err != nil {
						failed[typ] = append(failed[typ], err)
					} else {
						issued[typ] = append(issued[typ], n.Seq)
					}
					mu.Unlock()
				}
			})
		}
	}
	wg.Wait()
	return issued, failed
}

func requireNone(t *testing.T, failed []error) {
	t.Helper()
	if len(failed) > 0 {
		t.Fatalf("%d calls failed, such as: %v", len(failed), failed[0])
	}
}

// typesNamed are as many types.
func typesNamed(n int) (types []string) {
	for i := range n {
		types = append(types, fmt.Sprintf("T-%08d", i+1))
	}
	return types
}

func upTo(n int) (all []int64) {
	for i := range n {
		all = append(all, int64(i+1))
	}
	return all
}

// A client for a single server may lead to one in cluster mode, as with a managed Redis of one shard. The suite had
// missed that types share scripts there, which such a server refuses: each of its servers had the client made for it.
func TestClusterModeBehindPlainClient(t *testing.T) {
	t.Parallel()
	server := redistest.StartSolo(t)
	for _, p := range []protection{{}, {Ledger: true}} {
		gen, err := (setting{Protection: p}).generator(server.Client(t), newStorage(newJournal()), nil, serial.WithKeyPrefix(fmt.Sprint(p.Ledger)))
		require.NoError(t, err)
		const callers, calls = 8, 5
		types := typesNamed(40)
		issued, failed := crowd(gen, types, callers, calls)
		for _, typ := range types {
			requireNone(t, failed[typ])
			require.Equal(t, upTo(callers*calls), slices.Sorted(slices.Values(issued[typ])), "ledger %v, %s", p.Ledger, typ)
		}
	}
}

const password = "secret"

// user gives a server a user with these rules, and returns a client that is this user.
func user(t *testing.T, s *redistest.Server, name string, rules ...any) *redis.Client {
	allow(t, s, name, append([]any{"on", ">" + password}, rules...)...)
	options := s.Options()
	options.Username, options.Password = name, password
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// allow changes the rules of a user.
func allow(t *testing.T, s *redistest.Server, name string, rules ...any) {
	require.NoError(t, s.Do(append([]any{"ACL", "SETUSER", name}, rules...)...).Err())
}

// An ACL may leave a service no other types than its own. The suite had missed that one type's refusal reached the
// others: each of its users might do everything.
func TestUserOfOneType(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	own, other := alwaysUsed[0], alwaysUsed[1]
	client := user(t, server, "own", "~"+recordKey(own)+"*", "+@all")
	for _, p := range []protection{{}, {Ledger: true}} {
		server.Do("FLUSHALL")
		gen, err := (setting{Protection: p}).generator(client, newStorage(newJournal()), nil)
		require.NoError(t, err)
		const callers, calls = 20, 25
		issued, failed := crowd(gen, []string{own, other}, callers, calls)
		requireNone(t, failed[own])
		require.Equal(t, upTo(callers*calls), slices.Sorted(slices.Values(issued[own])))
		require.Len(t, failed[other], callers*calls)
		for _, err := range failed[other] {
			require.ErrorContains(t, err, "NOPERM")
		}
	}
}
