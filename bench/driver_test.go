package main

import (
	"flag"
	"math/rand/v2"
	"net"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial/internal/redistest"
)

var roundLength = flag.Duration("round", 200*time.Millisecond, "`duration` of a round")

// A server is a redis-server that is reached through one of the networks.
type server struct {
	*redistest.Server
	network string
	addr    string        // address in that network
	rdb     *redis.Client // client for addr with default options, as in most programs; shared by all ways
	admin   *redis.Client // client that bypasses the slow network
	zone    *time.Location
}

func newServer(b *testing.B, network string) *server {
	s := &server{Server: redistest.Start(b), network: network}
	s.addr, s.admin = s.Addr(), s.Client(b)
	if network == slow {
		s.addr = startProxy(b, s.addr, time.Millisecond)
	}
	s.rdb = redis.NewClient(&redis.Options{Addr: s.addr})
	b.Cleanup(func() { _ = s.rdb.Close() })
	// In this time zone, it is noon now, so no day ends during the run.
	now := time.Now().UTC()
	s.zone = time.FixedZone("bench", int((12*time.Hour-now.Sub(now.Truncate(24*time.Hour)))/time.Second))
	return s
}

var cpuFields = regexp.MustCompile(`used_cpu_(?:user|sys):([\d.]+)`)

// cpu returns the CPU time that the server has used in user and kernel mode.
func (s *server) cpu(b *testing.B) time.Duration {
	info, err := s.admin.Info(ctx, "cpu").Result()
	must(b, err)
	var sum float64
	for _, field := range cpuFields.FindAllStringSubmatch(info, -1) {
		seconds, _ := strconv.ParseFloat(field[1], 64)
		sum += seconds
	}
	return time.Duration(sum * float64(time.Second))
}

// A meter adds up the calls of one round.
type meter struct {
	call      call
	calls     []int           // count of the calls of each caller
	latencies []time.Duration // an equal part for each caller; if the part is full, new values replace the oldest ones
	elapsed   time.Duration
	allocs    uint64 // allocations of the whole process, including the proxy
	serverCPU time.Duration
}

// The buffers are allocated once, because allocating them in every round would trigger the garbage collector.
var wayBuffer, baseBuffer = make([]time.Duration, 1<<20), make([]time.Duration, 1<<20)

// run makes every caller call repeatedly for the given time. Calls that are in flight when the time is over count, too,
// and so does the time until they end.
func (m *meter) run(b *testing.B, s *server, length time.Duration) {
	var ready, done sync.WaitGroup
	var start time.Time
	begin := make(chan struct{})
	ready.Add(len(m.calls))
	room := len(m.latencies) / len(m.calls)
	for i := range m.calls {
		done.Go(func() {
			latencies, n := m.latencies[i*room:(i+1)*room], m.calls[i]
			rnd := rand.New(rand.NewPCG(uint64(i), uint64(n)))
			ready.Done()
			<-begin
			// The clock is read once per call, because the end of a call is the beginning of the next. Every caller makes
			// at least one call, even if the time is over before the caller runs.
			for last := time.Duration(0); last == 0 || last < length; n++ {
				if err := m.call(rnd); err != nil {
					b.Error(err)
					break
				}
				now := time.Since(start)
				latencies[n%room] = now - last
				last = now
			}
			m.calls[i] = n
		})
	}
	ready.Wait()
	runtime.GC() // so that the garbage of earlier measurements costs no time in this one
	var before, after runtime.MemStats
	cpu := s.cpu(b)
	runtime.ReadMemStats(&before)
	start = time.Now()
	close(begin)
	done.Wait()
	m.elapsed += time.Since(start)
	runtime.ReadMemStats(&after)
	m.serverCPU += s.cpu(b) - cpu
	m.allocs += after.Mallocs - before.Mallocs
	if b.Failed() {
		b.FailNow()
	}
}

// results returns the measured values by unit.
func (m *meter) results() values {
	calls, room := 0, len(m.latencies)/len(m.calls)
	latencies := m.latencies[:0]
	for i, n := range m.calls { // remove the unused room between the latencies
		calls += n
		latencies = append(latencies, m.latencies[i*room:i*room+min(n, room)]...)
	}
	slices.Sort(latencies)
	return values{
		rate:        float64(calls) / m.elapsed.Seconds(),
		halfTime:    float64(latencies[len(latencies)/2]),
		tailTime:    float64(latencies[len(latencies)*99/100]),
		allocations: float64(m.allocs) / float64(calls),
		serverCPU:   float64(m.serverCPU) / float64(calls),
	}
}

// compare measures call and base in rounds. An operation of the benchmark is a round. The output contains the values of
// call, and their ratios to the values of base.
//
// With few callers, the CPUs may fall asleep between two calls. All calls then take several times as long for at least
// a tenth of a second, and only measurements within that time can be compared. Therefore such rounds are divided into
// forty short parts, and take four times as long. On a slow network, the effect is not noticeable.
func compare(b *testing.B, s *server, callers int, call, base call) {
	length, parts := *roundLength, 1
	if callers < 10 && s.network != slow {
		length, parts = length/10, 40
	}
	newMeters := func() (way, reference *meter) {
		return &meter{call: call, calls: make([]int, callers), latencies: wayBuffer},
			&meter{call: base, calls: make([]int, callers), latencies: baseBuffer}
	}
	// The first calls are not counted, because they create connections, load scripts and grow stacks.
	way, reference := newMeters()
	way.run(b, s, min(length, 20*time.Millisecond))
	reference.run(b, s, min(length, 20*time.Millisecond))
	way, reference = newMeters()
	for range b.N * parts {
		takeTurn(b, func() {
			first, second := way, reference
			if reversed = !reversed; reversed {
				first, second = second, first
			}
			first.run(b, s, length)
			second.run(b, s, length)
		})
	}
	references := reference.results()
	for unit, value := range way.results() {
		b.ReportMetric(value, unit)
		if unit != allocations {
			b.ReportMetric(value/references[unit], unit+ratioSuffix)
		}
	}
	b.ReportMetric(0, "ns/op") // removes the duration of a round from the output
}

// reversed alternates, so that a way is measured as often before its base as after it.
var reversed bool

// If two test binaries take turns, each of them waits for a byte from the other before it measures, and then sends a
// byte. Otherwise, these files are nil.
var fromOther, toOther *os.File

func init() {
	if os.Getenv(turnsVariable) != "" {
		fromOther, toOther = os.NewFile(3, "from"), os.NewFile(4, "to")
		syscall.CloseOnExec(3) // redis-server would keep the pipes open after this process has ended
		syscall.CloseOnExec(4)
	}
}

// takeTurn calls measure when it is the turn of this process.
func takeTurn(b *testing.B, measure func()) {
	if fromOther == nil {
		measure()
		return
	}
	_, err := fromOther.Read(make([]byte, 1)) // fails if the other process has ended
	must(b, err)
	measure()
	_, _ = toOther.Write([]byte{0}) // fails if the other process has ended after its last turn
}

func must(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// startProxy returns the address of a proxy for the TCP server at target. The proxy delays every byte by the same time
// in each direction. As in a network, bytes in flight do not block the following bytes, so the delay does not limit
// throughput.
func startProxy(b *testing.B, target string, delay time.Duration) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(b, err)
	b.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				return // the server has ended
			}
			go forward(server, client, delay)
			go forward(client, server, delay)
		}
	}()
	return listener.Addr().String()
}

// forward copies from src to dst until either is closed, and then closes both.
func forward(dst, src net.Conn, delay time.Duration) {
	type chunk struct {
		due  time.Time
		data []byte
	}
	queue := make(chan chunk, 1024)
	go func() {
		defer close(queue)
		buffer := make([]byte, 16<<10)
		for {
			n, err := src.Read(buffer)
			if err != nil {
				return
			}
			queue <- chunk{time.Now().Add(delay), slices.Clone(buffer[:n])}
		}
	}()
	for c := range queue {
		time.Sleep(time.Until(c.due))
		if _, err := dst.Write(c.data); err != nil {
			break
		}
	}
	_ = dst.Close()
	_ = src.Close()
	for range queue { // the goroutine may be waiting to send
	}
}
