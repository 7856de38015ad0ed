// Package redistest starts real Redis servers (6.2 or later, or Valkey) for tests: a single server, a cluster or a
// Sentinel set-up. The servers listen on free ports of 127.0.0.1 and store everything in temporary directories. The
// package does not connect to any other server.
//
// A server is killed at the end of its test. On Linux, it is also killed if the test binary is killed. If redis-server
// is missing or too old, the test is skipped, or fails if SERIAL_REQUIRE_REDIS=1. With -short, the test is always
// skipped.
package redistest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// patience limits every wait in this package. It is long enough for a busy machine, where sentinels can need several
// attempts at a failover, with pauses of ten seconds. So a longer wait has another cause.
const patience = time.Minute

// A Server is a redis-server process. Its methods may be called at the same time, except for Kill, Pause, Resume and
// Restart.
type Server struct {
	binary  string
	old     bool // whether the binary is older than 7.0
	dir     string
	args    []string
	port    int
	process *process // latest process, which may have ended
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
	if err != nil && os.Getenv("SERIAL_REQUIRE_REDIS") == "1" {
		t.Fatalf("redistest: SERIAL_REQUIRE_REDIS=1, but %v", err)
	}
	if err != nil {
		t.Skipf("redistest: %v", err)
	}
	s := &Server{binary: binary, old: old, dir: t.TempDir(), args: args}
	err = os.WriteFile(filepath.Join(s.dir, "redis.conf"), []byte(config), 0o600)
	if err == nil {
		err = errPortTaken
	}
	for attempt := 1; errors.Is(err, errPortTaken) && attempt <= 10; attempt++ {
		if s.port, err = reservePort(); err == nil {
			err = s.launch()
		}
	}
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	t.Cleanup(s.Kill) // runs before the cleanup of t.TempDir
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
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d.", &major, &minor); err != nil || major < 6 || major == 6 && minor < 2 {
		return "", false, fmt.Errorf("the tests need version 6.2, and %s --version printed %q", binary, out)
	}
	return binary, major < 7, nil
}

// Addr returns the address of the server, 127.0.0.1:port. The address never changes.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// Options returns new options for a client of the server. All options except the address have their defaults.
func (s *Server) Options() *redis.Options { return &redis.Options{Addr: s.Addr()} }

// Client returns a new client of the server. It is closed when t ends.
func (s *Server) Client(t testing.TB) *redis.Client { return closing(t, redis.NewClient(s.Options())) }

// closing returns the client, which is closed when t ends.
func closing[C interface{ Close() error }](t testing.TB, client C) C {
	t.Cleanup(func() { _ = client.Close() })
	return client
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

// Pause suspends the process with SIGSTOP. Connections stay open, but get no replies. After Pause has returned, no
// command is executed until Resume is called. Pause does nothing if the server has been killed.
func (s *Server) Pause() {
	s.process.signal("STOP")
	for !s.process.stopped() { // it may still be running on another CPU
		time.Sleep(time.Millisecond)
	}
}

// Resume continues a suspended process with SIGCONT.
func (s *Server) Resume() { s.process.signal("CONT") }

// Kill kills the process with SIGKILL, even if it is suspended, and returns when the process has ended.
func (s *Server) Kill() { s.process.kill() }

// Restart starts the server again on the same port, with the same directory and arguments. If the server is running,
// Restart kills it first. It returns when the server replies to PING and has loaded its data.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.Kill()
	eventually(t, "restart", s.launch) // its port may have become the local port of another connection for a while
}

var errPortTaken = errors.New("the port was taken in between")

// launch starts a process and waits until it replies. The previous process must have ended. If launch fails, no process
// keeps running.
func (s *Server) launch() error {
	debug := []string{"--enable-debug-command", "yes"}
	if s.old {
		debug = nil // before 7.0, DEBUG needs no permission, and the setting does not exist
	}
	// Without a configuration file, CONFIG REWRITE fails, and Sentinel needs CONFIG REWRITE.
	args := slices.Concat([]string{"redis.conf", "--save", "", "--repl-diskless-sync-delay", "0"}, debug, s.args,
		[]string{"--bind", "127.0.0.1", "--port", strconv.Itoa(s.port)})
	p, err := spawn(s.binary, s.dir, args)
	if err != nil {
		return err
	}
	err = errors.New("redis-server does not answer")
	for deadline := time.Now().Add(patience); time.Now().Before(deadline) && p.ended.Err() == nil; {
		if err = s.answers(p); err == nil {
			s.process = p
			return nil
		}
		time.Sleep(5 * time.Millisecond)
	}
	p.kill()
	if strings.Contains(p.log.String(), "Address already in use") {
		err = errPortTaken
	}
	return fmt.Errorf("%w; %v; its log:\n%s", err, p.cmd.ProcessState, &p.log)
}

// answers returns an error if the process does not serve commands yet.
func (s *Server) answers(p *process) error {
	conn, err := net.DialTimeout("tcp", s.Addr(), time.Second) // go-redis would log that a connection is refused
	if err != nil {
		return err
	}
	_ = conn.Close()
	err = s.Do("PING").Err() // such as LOADING
	// If another server got the port first, only the process ID shows that it is not this server.
	if info := s.Do("INFO", "server"); err == nil && !strings.Contains(info.String(),
		fmt.Sprintf("process_id:%d\r", p.cmd.Process.Pid)) {
		err = fmt.Errorf("INFO of another process: %v", info)
	}
	return err
}

// A process is a started command.
type process struct {
	cmd   *exec.Cmd
	log   bytes.Buffer    // its output, once it has ended
	ended context.Context // canceled when the process has ended and has been reaped
}

// spawn starts the binary in dir.
func spawn(binary, dir string, args []string) (*process, error) {
	p := &process{cmd: exec.Command(binary, args...)}
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr, p.cmd.SysProcAttr = dir, &p.log, &p.log, new(syscall.SysProcAttr)
	// The kernel kills the process when the thread that starts it ends. This is necessary because t.Cleanup does not run
	// if the test binary ends with a timeout or a SIGKILL. Only Linux supports it, so only there the struct has the field.
	if field := reflect.ValueOf(p.cmd.SysProcAttr).Elem().FieldByName("Pdeathsig"); field.IsValid() {
		field.Set(reflect.ValueOf(syscall.SIGKILL))
	}
	p.cmd.WaitDelay = time.Second // for a process that Redis has forked, which keeps its output open
	ended, end := context.WithCancel(context.Background())
	p.ended = ended
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // the runtime could end this thread before the process
		defer runtime.UnlockOSThread()
		defer end()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait()
		}
	}()
	return p, <-started
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended.Done()
}

// signal sends a signal unless the process has ended. A shell sends it, because not all systems for which this package
// must compile have SIGSTOP.
func (p *process) signal(name string) {
	if p.ended.Err() != nil {
		return
	}
	if err := exec.Command("sh", "-c", fmt.Sprintf("kill -%s %d", name, p.cmd.Process.Pid)).Run(); err != nil {
		panic(err)
	}
}

// stopped reports whether SIGSTOP has taken effect or the process has ended. It returns true where there is no cheap way
// to check this.
func (p *process) stopped() bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	// "pid (redis-server) state …"
	return err != nil || p.ended.Err() != nil || regexp.MustCompile(`\) [TtZX] `).Match(stat)
}

// StartReplica starts a replica of master, and returns when the replica is online. The replica is killed when t ends.
func StartReplica(t testing.TB, master *Server, args ...string) *Server {
	t.Helper()
	s := start(t, fmt.Sprintf("replicaof 127.0.0.1 %d\n", master.port), args)
	master.AwaitReplica(t)
	return s
}

// ReplicaOf makes the server a replica of master, or a master if master is nil. The role persists across restarts.
func (s *Server) ReplicaOf(master *Server) error {
	host, port := "NO", "ONE"
	if master != nil {
		host, port = "127.0.0.1", strconv.Itoa(master.port)
	}
	return errors.Join(s.Do("REPLICAOF", host, port).Err(), s.Do("CONFIG", "REWRITE").Err())
}

// IsMaster reports whether the server replies and is a master.
func (s *Server) IsMaster() bool {
	role, err := s.Do("ROLE").Slice()
	return err == nil && len(role) > 0 && role[0] == "master"
}

// AwaitReplica returns when the server has a replica that acknowledges its writes.
func (s *Server) AwaitReplica(t testing.TB) {
	t.Helper()
	eventually(t, "replica", s.replicated)
}

// replicated returns an error until the replica of the master is online. The replica reports "master_link_status:up"
// too early, so it must acknowledge a write. This write does not leave a key.
func (s *Server) replicated() error {
	client := redis.NewClient(s.Options())
	defer func() { _ = client.Close() }()
	ctx := context.Background()
	replies, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.Set(ctx, "redistest", "", 0)
		p.Del(ctx, "redistest")
		return p.Do(ctx, "WAIT", 1, 100).Err()
	})
	if err == nil && replies[2].(*redis.Cmd).Val() == int64(0) {
		err = errors.New("no replica acknowledges")
	}
	return err
}

// CutOff interrupts the connection of the replica to its master until Rejoin is called. Both servers keep running, and
// the replica lags behind.
func (s *Server) CutOff(master *Server) error {
	return errors.Join(
		s.Do("CONFIG", "SET", "masterauth", "wrong").Err(), // a master without a password rejects every password
		master.Do("CLIENT", "KILL", "TYPE", "replica").Err())
}

// Rejoin reverts CutOff.
func (s *Server) Rejoin() error {
	// A promotion makes a replica rewrite its configuration, and a restart must not restore the wrong password.
	return errors.Join(s.Do("CONFIG", "SET", "masterauth", "").Err(), s.Do("CONFIG", "REWRITE").Err())
}

// Save returns a snapshot (RDB) of the data of the server. It can be passed to Restore. The server must not use an
// append-only file.
func (s *Server) Save() ([]byte, error) {
	if err := s.Do("SAVE").Err(); err != nil {
		return nil, err
	}
	return os.ReadFile(s.snapshot())
}

// Restore replaces the snapshot from which a killed server will start. If the snapshot is nil, the server will start
// empty.
func (s *Server) Restore(snapshot []byte) error {
	if snapshot == nil {
		return os.RemoveAll(s.snapshot()) // no error if there is none
	}
	return os.WriteFile(s.snapshot(), snapshot, 0o600)
}

func (s *Server) snapshot() string { return filepath.Join(s.dir, "dump.rdb") }

// reserved contains the ports that servers of this binary have ever had. A server that is not running does not occupy
// its port.
var reserved sync.Map

// reservePort returns a free port. Another process can still take it, or the port that a cluster node needs as its bus,
// before the server is started.
func reservePort() (int, error) {
	for {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return 0, err
		}
		_ = l.Close()
		port := l.Addr().(*net.TCPAddr).Port
		bus := port + 10000
		_, taken := reserved.LoadOrStore(port, true)
		if _, busTaken := reserved.LoadOrStore(bus, true); !taken && !busTaken && bus < 1<<16 {
			return port, nil
		}
	}
}

// eventually repeats check until it returns nil. If this takes longer than patience, the test fails with the latest
// error.
func eventually(t testing.TB, what string, check func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for err := check(); err != nil; err = check() {
		if time.Now().After(deadline) {
			t.Fatalf("redistest: %s: %v", what, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
