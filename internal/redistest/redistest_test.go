package redistest_test

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/internal/redistest"
)

func TestServer(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--appendonly", "yes")
	addr, rdb := s.Addr(), s.Client(t)
	require.NoError(t, rdb.Set(t.Context(), "k", "v", 0).Err())

	s.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, s.Client(t).Ping(ctx).Err(), context.DeadlineExceeded)
	s.Resume()
	require.NoError(t, rdb.Ping(t.Context()).Err())

	s.Kill()
	require.True(t, refused(addr))
	s.Kill() // on a dead server all three do nothing
	s.Pause()
	s.Resume()

	s.Restart(t)
	require.Equal(t, addr, s.Addr())
	require.Equal(t, "v", rdb.Get(t.Context(), "k").Val(), "the append-only file survives")

	s.Pause()
	s.Restart(t)
	require.Equal(t, "v", rdb.Get(t.Context(), "k").Val(), "a server that still runs is replaced, even a paused one")

	t.Run("test", func(t *testing.T) {
		s = redistest.Start(t)
		s.Pause()
	})
	require.True(t, refused(s.Addr()), "the server is gone after its test")
}

// A second test binary is killed, so its t.Cleanup does not run. Its server must be killed, too.
func TestGoneAfterKill(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t) // skips the test here if there is no server
	if os.Getenv("REDISTEST_VICTIM") != "" {
		fmt.Println("serving on", s.Addr())
		_, _ = io.Copy(io.Discard, os.Stdin) // returns if the outer test dies
		return
	}
	if runtime.GOOS != "linux" {
		t.Skip("only Linux kills the server together with the test binary")
	}
	victim := exec.Command(os.Args[0], "-test.run=^TestGoneAfterKill$")
	victim.Env = append(os.Environ(), "REDISTEST_VICTIM=1", "TMPDIR="+t.TempDir())
	victim.Stderr = os.Stderr
	_, err1 := victim.StdinPipe() // closed by Wait
	stdout, err2 := victim.StdoutPipe()
	require.NoError(t, errors.Join(err1, err2, victim.Start()))
	addr := ""
	for lines := bufio.NewScanner(stdout); addr == "" && lines.Scan(); {
		_, addr, _ = strings.Cut(lines.Text(), "serving on ")
	}
	require.NotEmpty(t, addr)
	require.False(t, refused(addr))
	require.NoError(t, victim.Process.Kill())
	_ = victim.Wait()
	require.Eventually(t, func() bool { return refused(addr) }, 30*time.Second, 20*time.Millisecond)
}

func refused(addr string) bool {
	conn, err := net.Dial("tcp", addr)
	if err == nil {
		_ = conn.Close()
	}
	return err != nil
}

// There is no usable redis-server, or its arguments are invalid. The test must be skipped or fail. With -short, it must
// be skipped even if servers are required.
func TestStartFails(t *testing.T) {
	_, taken, _ := net.SplitHostPort(redistest.Start(t).Addr())
	for name, tt := range map[string]struct {
		program string // in place of redis-server; "" for none, "real" for the real one
		args    []string
		want    string
	}{
		"no binary":     {"", nil, "not found"},
		"too old":       {"echo Redis server v=6.0.16 sha=00000000:0", nil, `v=6.0.16 `},
		"no version":    {"echo hello", nil, `"hello`},
		"broken":        {"exit 1", nil, "exit status 1"},
		"bad argument":  {"real", []string{"--no-such-thing", "1"}, "no-such-thing"},
		"port is taken": {"real", []string{"--cluster-enabled", "yes", "--cluster-port", taken}, "taken"},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.program != "real" {
				path := t.TempDir()
				t.Setenv("PATH", path)
				if tt.program != "" {
					script := []byte("#!/bin/sh\n" + tt.program + "\n")
					require.NoError(t, os.WriteFile(filepath.Join(path, "redis-server"), script, 0o700))
				}
				t.Setenv("SERIAL_REQUIRE_REDIS", "")
				require.Regexp(t, "^skipped: .*"+tt.want, outcome(t))
			}
			t.Setenv("SERIAL_REQUIRE_REDIS", "1")
			ended := outcome(t, tt.args...)
			if strings.Contains(ended, "'cluster-port") {
				t.Skip("--cluster-port exists from 7.0 on")
			}
			require.Regexp(t, "(?s)^failed: .*"+tt.want, ended)
		})
	}
	t.Setenv("SERIAL_REQUIRE_REDIS", "1")
	require.NoError(t, flag.Set("test.short", "true"))
	defer func() { _ = flag.Set("test.short", "false") }()
	require.Equal(t, "skipped: starts servers: not with -short", outcome(t))
}

// outcome starts a server with these arguments in a test, and returns how this test ends.
func outcome(t *testing.T, args ...string) string {
	tb := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		redistest.Start(tb, args...)
	}()
	<-done
	return tb.ended
}

// A recorder is a testing.TB that records how the test would have ended.
type recorder struct {
	testing.TB
	ended string
}

func (r *recorder) Skipf(format string, args ...any)  { r.end("skipped: "+format, args) }
func (r *recorder) Fatalf(format string, args ...any) { r.end("failed: "+format, args) }

func (r *recorder) end(format string, args []any) {
	r.ended = fmt.Sprintf(format, args...)
	runtime.Goexit()
}
