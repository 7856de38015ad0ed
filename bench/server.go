package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// A server is a redis-server process without persistence.
type server struct {
	addr string
	cmd  *exec.Cmd
	dir  string
}

func startServer(ctx context.Context) (*server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "serial-bench-")
	if err != nil {
		return nil, err
	}
	s := &server{addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), dir: dir}
	// Snapshots would compete for the CPUs in some rounds only.
	s.cmd = exec.Command("redis-server", "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", dir,
		"--save", "", "--appendonly", "no", "--loglevel", "warning")
	if err := s.cmd.Start(); err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	// A server without data to load serves as soon as it listens.
	const patience = 10 * time.Second
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		conn, err := net.Dial("tcp", s.addr)
		if err == nil {
			return s, conn.Close()
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			s.stop()
			return nil, fmt.Errorf("redis-server does not answer: %w", err)
		}
	}
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

func (s *server) stop() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	_ = os.RemoveAll(s.dir)
}

// An admin asks the server about itself, on its own connection that bypasses the slow network.
type admin struct {
	rdb *redis.Client
}

func newAdmin(addr string) *admin {
	return &admin{redis.NewClient(&redis.Options{Addr: addr, PoolSize: 1})}
}

func (a *admin) close() { _ = a.rdb.Close() }

// cpu returns the CPU time that the server has used in user and kernel mode.
func (a *admin) cpu(ctx context.Context) (time.Duration, error) {
	var sum time.Duration
	for _, field := range []string{"used_cpu_user", "used_cpu_sys"} {
		text, err := a.info(ctx, "cpu", field)
		if err != nil {
			return 0, err
		}
		seconds, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return 0, err
		}
		sum += time.Duration(seconds * float64(time.Second))
	}
	return sum, nil
}

// memory returns the memory that the server has allocated, without its clients' buffers, whose size varies. It takes a
// few seconds, because the server only periodically measures clients and trims the buffers of idle ones.
func (a *admin) memory(ctx context.Context) (int64, error) {
	select {
	case <-time.After(4 * time.Second):
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	var bytes [2]int64
	for i, field := range []string{"used_memory", "mem_clients_normal"} {
		text, err := a.info(ctx, "memory", field)
		if err != nil {
			return 0, err
		}
		if bytes[i], err = strconv.ParseInt(text, 10, 64); err != nil {
			return 0, err
		}
	}
	return bytes[0] - bytes[1], nil
}

func (a *admin) info(ctx context.Context, section, field string) (string, error) {
	text, err := a.rdb.Info(ctx, section).Result()
	if err != nil {
		return "", err
	}
	return infoField(text, field)
}
