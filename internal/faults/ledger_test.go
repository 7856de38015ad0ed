//go:build unix

package faults

import (
	"context"
	"errors"
	"net"
	"net/rpc"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/serialtest"
)

// A storage is the ledger and the floor of all workers, which outlive Redis. It lives in the watching process, and
// workers call it by net/rpc.
type storage struct {
	journal *journal // the floor's source
	ledger  serialtest.Ledger

	mu     sync.Mutex
	floors map[string]int64 // count of floor queries, by type
	broken bool
	delay  time.Duration // before it reserves if positive, otherwise after
}

// FloorArgs is exported for net/rpc.
type FloorArgs struct{ Type, Period string }

var errStorage = errors.New("storage failed")

// margin is what a floor adds to the numbers that it has seen: more than were issued but not yet recorded.
const margin = 5000

// startStorage starts a storage, and returns its address.
func startStorage(t *testing.T, j *journal) (*storage, string) {
	s := &storage{journal: j, floors: map[string]int64{}}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	server := rpc.NewServer()
	require.NoError(t, server.RegisterName("Storage", s))
	go func() {
		for conn, err := listener.Accept(); err == nil; conn, err = listener.Accept() {
			go server.ServeConn(conn)
		}
	}()
	return s, listener.Addr().String()
}

// disturb makes it fail or reply late; with neither, it recovers.
func (s *storage) disturb(broken bool, delay time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken, s.delay = broken, delay
}

// Reserve is called by net/rpc.
func (s *storage) Reserve(args serial.Reservation, after *int64) (err error) {
	s.mu.Lock()
	broken, delay := s.broken, s.delay
	s.mu.Unlock()
	if broken {
		return errStorage
	}
	time.Sleep(delay)
	defer time.Sleep(-delay)
	*after, err = s.ledger.Reserve(context.Background(), args)
	return err
}

// Floor is called by net/rpc.
func (s *storage) Floor(args FloorArgs, last *int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.floors[args.Type]++
	*last = s.journal.last(args.Type, args.Period) + margin
	return nil
}

// A storageClient is a process's connection to the storage.
type storageClient struct {
	*rpc.Client
	setting setting
}

func (c storageClient) Reserve(ctx context.Context, r serial.Reservation) (int64, error) {
	return c.ask(ctx, "Storage.Reserve", r)
}

func (c storageClient) floor(ctx context.Context, typ string, start time.Time) (int64, error) {
	return c.ask(ctx, "Storage.Floor", FloorArgs{typ, c.setting.period(start)})
}

// ask abandons a request when ctx ends. Its error is not ctx's: that would look like the caller's own.
func (c storageClient) ask(ctx context.Context, method string, args any) (int64, error) {
	reply := new(int64)
	select {
	case call := <-c.Go(method, args, reply, make(chan *rpc.Call, 1)).Done:
		return *reply, call.Error
	case <-ctx.Done():
		return 0, errStorage
	}
}

// Every type of the suite has such a name, so it is found in any key or series.
var typePattern = regexp.MustCompile(`[TR]-\d{8}`)

func typeIn(s string) string { return typePattern.FindString(s) }
