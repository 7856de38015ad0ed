// Package redistest starts real Redis servers (6.2 or later, or Valkey) for tests: a single server, a cluster or a
// Sentinel set-up. The servers listen on free ports of 127.0.0.1 and store everything in temporary directories. The
// package does not connect to any other server.
//
// A server is killed at the end of its test. On Linux, it is also killed if the test binary is killed. If redis-server
// is missing or too old, the test is skipped, or fails if SERIAL_REQUIRE_REDIS=1. With -short, the test is always
// skipped.
package redistest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// patience limits every wait in this package. It is long enough for a busy machine, where sentinels can need several
// attempts at a failover, with pauses of ten seconds. So a longer wait has another cause.
const patience = time.Minute

var errPortTaken = errors.New("the port was taken in between")

// A Server is a redis-server process. It is safe for concurrent use. Only one of Kill, Pause, Resume and Restart runs
// at a time.
type Server struct {
	binary string
	old    bool // whether the binary is older than 7.0
	dir    string
	args   []string
	port   int

	mu      sync.Mutex
	process *process // latest process, which may have ended; guarded by mu
}

// Start starts a server, and returns when the server replies to PING. args are additional arguments, such as
// "--appendonly", "yes". Without --appendonly, the server does not persist its data. Do not set a password for the
// default user. The server is killed when t ends.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	return start(t, "", args)
}

// start is Start with the initial content of the configuration file. Settings that the server changes at run time
// belong in this file, because args override the file at every restart.
func start(t testing.TB, config string, args []string) *Server {
	t.Helper()
	if testing.Short() {
		t.Skipf("starts servers: not with -short")
	}
	binary, old, err := find()
	if err != nil {
		if os.Getenv("SERIAL_REQUIRE_REDIS") == "1" {
			t.Fatalf("redistest: SERIAL_REQUIRE_REDIS=1, but %v", err)
		}
		t.Skipf("redistest: %v", err)
	}
	s := &Server{binary: binary, old: old, dir: t.TempDir(), args: args}
	if err := os.WriteFile(filepath.Join(s.dir, "redis.conf"), []byte(config), 0o600); err != nil {
		t.Fatalf("redistest: %v", err)
	}
	for attempt := 1; ; attempt++ {
		if s.port, err = reservePort(); err == nil {
			if err = s.launch(); err == nil {
				break
			}
			releasePort(s.port)
		}
		if !errors.Is(err, errPortTaken) || attempt == 5 {
			t.Fatalf("redistest: %v", err)
		}
	}
	// This cleanup is registered after that of t.TempDir, so it runs first. The server has ended when the directory is
	// removed.
	t.Cleanup(func() {
		s.Kill()
		releasePort(s.port)
	})
	return s
}

// find returns the path of redis-server, and whether the server is older than 7.0. It returns an error if there is no
// server that tests can use.
func find() (binary string, old bool, err error) {
	if binary, err = exec.LookPath("redis-server"); err != nil {
		return "", false, err
	}
	out, err := exec.Command(binary, "--version").Output()
	if err != nil {
		return "", false, fmt.Errorf("%s --version: %w", binary, err)
	}
	_, version, _ := strings.Cut(string(out), " v=") // "Redis server v=7.0.15 …", Valkey's likewise
	version, _, _ = strings.Cut(version, " ")
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d.", &major, &minor); err != nil || major < 6 || major == 6 && minor < 2 {
		return "", false, fmt.Errorf("%s is of version %q, and the tests need 6.2", binary, version)
	}
	return binary, major < 7, nil
}

// Addr returns the address of the server, 127.0.0.1:port. The address never changes.
func (s *Server) Addr() string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port))
}

// Options returns new options for a client of the server. All options except the address have their defaults.
func (s *Server) Options() *redis.Options {
	return &redis.Options{Addr: s.Addr()}
}

// Client returns a new client of the server. It is closed when t ends.
func (s *Server) Client(t testing.TB) *redis.Client {
	t.Helper()
	client := redis.NewClient(s.Options())
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// Pause suspends the process with SIGSTOP. Connections stay open, but get no replies. After Pause has returned, no
// command is executed until Resume is called. Pause does nothing if the server has been killed.
func (s *Server) Pause() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process.cmd.Process.Signal(sigStop) != nil {
		return
	}
	// The signal has been sent but the process may still be running on another CPU.
	for !stopped(s.process.cmd.Process.Pid) {
		time.Sleep(time.Millisecond)
	}
}

// Resume continues a suspended process with SIGCONT.
func (s *Server) Resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.process.cmd.Process.Signal(sigCont)
}

// Kill kills the process with SIGKILL, even if it is suspended, and returns when the process has ended.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.process.kill()
}

// Restart starts the server again on the same port, with the same directory and arguments. If the server is running,
// Restart kills it first. It returns when the server replies to PING and has loaded its data.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.process.kill()
	// While the server was not running, its port may have become the local port of another connection.
	err := s.launch()
	for deadline := time.Now().Add(patience); errors.Is(err, errPortTaken) && time.Now().Before(deadline); {
		time.Sleep(50 * time.Millisecond)
		err = s.launch()
	}
	if err != nil {
		t.Fatalf("redistest: restart: %v", err)
	}
}

// launch starts a process and waits until it replies. The previous process must have ended. The caller must hold s.mu,
// unless no other goroutine can use s yet. If launch fails, no process keeps running.
func (s *Server) launch() error {
	debug := []string{"--enable-debug-command", "yes"}
	if s.old {
		debug = nil // before 7.0, DEBUG needs no permission, and the setting does not exist
	}
	p, err := spawn(s.binary, s.dir, slices.Concat(
		// Without a configuration file, CONFIG REWRITE fails, and Sentinel needs CONFIG REWRITE.
		[]string{"redis.conf", "--save", "", "--repl-diskless-sync-delay", "0"},
		debug,
		s.args,
		[]string{"--bind", "127.0.0.1", "--port", strconv.Itoa(s.port)},
	))
	if err != nil {
		return err
	}
	deadline := time.Now().Add(patience)
	for {
		err := p.answers(s.Addr())
		if err == nil {
			s.process = p
			return nil
		}
		select {
		case <-p.done:
			err = fmt.Errorf("redis-server ended: %v", p.cmd.ProcessState)
		case <-time.After(5 * time.Millisecond):
			if time.Now().Before(deadline) {
				continue
			}
			p.kill()
			err = fmt.Errorf("redis-server does not answer: %w", err)
		}
		log, _ := os.ReadFile(filepath.Join(s.dir, "log"))
		if strings.Contains(string(log), "Address already in use") {
			err = errPortTaken
		}
		return fmt.Errorf("%w; its log:\n%s", err, log)
	}
}

// Do sends a command on a new connection. It does not repeat the command, so it returns an error immediately if the
// server is not running. It closes the connection, so that no connection stays in the client list of the server.
func (s *Server) Do(args ...any) *redis.Cmd {
	opt := s.Options()
	opt.MaxRetries, opt.DialerRetries = -1, 1 // the caller repeats the command if necessary
	client := redis.NewClient(opt)
	defer func() { _ = client.Close() }()
	return client.Do(context.Background(), args...)
}

// A process is a started command.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended and has been reaped
}

// spawn starts the binary in dir, with its output in dir/log.
func spawn(binary, dir string, args []string) (*process, error) {
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.Command(binary, args...), done: make(chan struct{})}
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = dir, log, log
	p.cmd.SysProcAttr = dieWithParent()
	started := make(chan error)
	go func() {
		// On Linux, the parent of a process is a thread, and the Go runtime can end any thread. This thread is locked, so
		// that it does not end before the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		_ = log.Close()
		started <- err
		if err == nil {
			_ = p.cmd.Wait()
			close(p.done)
		}
	}()
	return p, <-started
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// answers returns an error if the process does not serve commands at addr yet. It implements the protocol itself,
// because go-redis needs seconds to return an error if a connection is refused, and logs the error.
func (p *process) answers(addr string) error {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := conn.Write([]byte("PING\r\nINFO server\r\n")); err != nil {
		return err
	}
	lines := bufio.NewScanner(conn)
	if lines.Scan() && lines.Text() != "+PONG" { // such as -LOADING
		return fmt.Errorf("PING: %s", lines.Text())
	}
	// If another server got the port first, only the process ID shows that it is not this server.
	want := fmt.Sprintf("process_id:%d", p.cmd.Process.Pid)
	for lines.Scan() {
		if lines.Text() == want {
			return nil
		}
	}
	return fmt.Errorf("no %s in INFO: %v", want, lines.Err())
}

// reserved contains the ports of all servers of this binary, including servers that are not running and do not occupy
// their ports.
var reserved = struct {
	sync.Mutex
	ports map[int]bool
}{ports: map[int]bool{}}

// busOffset is the difference between the bus port and the port of a cluster node.
const busOffset = 10000

// reservePort returns a free port whose bus port is also free. Another process can still take one of them before the
// server is started.
func reservePort() (int, error) {
	reserved.Lock()
	defer reserved.Unlock()
	for range 100 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return 0, err
		}
		port := l.Addr().(*net.TCPAddr).Port
		_ = l.Close()
		bus := port + busOffset
		if bus > 65535 || reserved.ports[port] || reserved.ports[bus] {
			continue
		}
		if l, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(bus))); err != nil {
			continue
		}
		_ = l.Close()
		reserved.ports[port], reserved.ports[bus] = true, true
		return port, nil
	}
	return 0, errors.New("no free port found")
}

func releasePort(port int) {
	reserved.Lock()
	defer reserved.Unlock()
	delete(reserved.ports, port)
	delete(reserved.ports, port+busOffset)
}

// eventually repeats check until it returns nil. If this takes longer than patience, the test fails with the latest
// error.
func eventually(t testing.TB, what string, check func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("redistest: %s: %v", what, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
