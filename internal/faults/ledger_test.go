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

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/serialtest"
)

// A storage outlives Redis: it is the ledger, or the floor of generators without one. It lives in the watching process,
// which never dies, and the workers reach it over a connection.
type storage struct {
	journal *journal // the floor's source

	mu       sync.Mutex
	ledger   serialtest.Ledger
	made     map[string][]reservation // by type
	doubtful map[string]int64         // numbers in reservations whose answer may have come too late, by type
	floors   map[string]int64         // how often the floor was asked, by type
	asked    int
	broken   bool
	delay    time.Duration // before it reserves if positive, otherwise after
}

// A reservation holds the numbers from first to last.
type reservation struct {
	day         string
	first, last int64
}

// FloorArgs is exported for net/rpc.
type FloorArgs struct{ Type, Day string }

func newStorage(j *journal) *storage {
	return &storage{journal: j, made: map[string][]reservation{}, doubtful: map[string]int64{},
		floors: map[string]int64{}}
}

var errStorage = errors.New("storage failed")

// serve returns the storage's address.
func (s *storage) serve(t *testing.T) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	server := rpc.NewServer()
	if err := server.RegisterName("Storage", &remoteStorage{s}); err != nil {
		t.Fatal(err)
	}
	go func() {
		for conn, err := listener.Accept(); err == nil; conn, err = listener.Accept() {
			go server.ServeConn(conn)
		}
	}()
	return listener.Addr().String()
}

// disturb makes it fail or answer late; with neither, it recovers.
func (s *storage) disturb(broken bool, delay time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken, s.delay = broken, delay
}

// Reserve implements serial.Ledger.
func (s *storage) Reserve(_ context.Context, r serial.Reservation) (int64, error) {
	s.mu.Lock()
	broken, delay := s.broken, s.delay
	s.asked++
	s.mu.Unlock()
	if broken {
		return 0, errStorage
	}
	time.Sleep(delay)
	defer time.Sleep(-delay)
	s.mu.Lock()
	defer s.mu.Unlock()
	after, err := s.ledger.Reserve(context.Background(), r)
	if err != nil {
		return 0, err
	}
	typ := typeIn(r.Series)
	s.made[typ] = append(s.made[typ], reservation{r.Period, after + 1, after + r.N})
	if delay != 0 {
		s.doubtful[typ] += r.N
	}
	return after, nil
}

// margin is what a floor adds to the numbers it has seen: more than were issued but not yet recorded.
const margin = 5000

func (s *storage) floor(typ, day string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.floors[typ]++
	return s.journal.highest(typ, day) + margin
}

type remoteStorage struct{ s *storage }

func (r *remoteStorage) Reserve(args serial.Reservation, after *int64) (err error) {
	*after, err = r.s.Reserve(context.Background(), args)
	return err
}

func (r *remoteStorage) Floor(args FloorArgs, seq *int64) error {
	*seq = r.s.floor(args.Type, args.Day)
	return nil
}

// A storageClient is a worker's connection to the storage.
type storageClient struct {
	*rpc.Client
	trap    *trap
	setting setting
}

func (c storageClient) Reserve(ctx context.Context, r serial.Reservation) (int64, error) {
	c.trap.pass("reserve", r.Series)
	defer c.trap.pass("", r.Series)
	return c.ask(ctx, "Storage.Reserve", r)
}

func (c storageClient) floor(ctx context.Context, typ string, start time.Time) (int64, error) {
	return c.ask(ctx, "Storage.Floor", FloorArgs{typ, c.setting.label(start)})
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

// Every type of the suite has such a name, so it can be found in any key or series.
var typePattern = regexp.MustCompile(`[TR]-\d{8}`)

func typeIn(s string) string { return typePattern.FindString(s) }
