package serialtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// dial returns a connection through a pipe. While Redis is stopped, the pipe is closed, so the first write fails. dial
// itself never fails, because after several failures go-redis would dial only once a second.
func (r *Redis) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped {
		_ = server.Close()
	} else {
		r.server.Server().ServeConn(newServerConn(server))
	}
	return clientConn{client}, nil
}

// errRefused is the error of a command that was not sent. The *net.OpError is wrapped in another error, because
// go-redis unwraps the error once.
var errRefused = fmt.Errorf("serialtest: no connection: %w", &net.OpError{
	Op: "dial", Net: "pipe", Addr: &net.UnixAddr{Name: "serialtest", Net: "pipe"},
	Err: os.NewSyscallError("connect", syscall.ECONNREFUSED),
})

// A clientConn is the client's end of a pipe. It returns the errors of a socket, after which go-redis sends a command
// again.
type clientConn struct{ net.Conn }

func (c clientConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if errors.Is(err, io.ErrClosedPipe) {
		err = io.EOF
	}
	return n, err
}

func (c clientConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if errors.Is(err, io.ErrClosedPipe) {
		if err = io.EOF; n == 0 {
			err = errRefused
		}
	}
	return n, err
}

// If the server has closed its end, setting a deadline fails on a net.Pipe, but not on a socket. So the following
// methods return no error.

func (c clientConn) SetDeadline(t time.Time) error      { _ = c.Conn.SetDeadline(t); return nil }
func (c clientConn) SetReadDeadline(t time.Time) error  { _ = c.Conn.SetReadDeadline(t); return nil }
func (c clientConn) SetWriteDeadline(t time.Time) error { _ = c.Conn.SetWriteDeadline(t); return nil }

// A serverConn is the server's end of a pipe. A pipe has no buffer. So while a client is still writing a long pipeline,
// it would wait for the server, and the server would wait until the client reads the first replies. Therefore Write
// does not wait.
type serverConn struct {
	net.Conn
	replies chan []byte // contains at most one element: all output that is not written yet; only Write sends to it
	closed  chan struct{}
	close   func()
}

func newServerConn(conn net.Conn) *serverConn {
	c := &serverConn{Conn: conn, replies: make(chan []byte, 1), closed: make(chan struct{})}
	c.close = sync.OnceFunc(func() { close(c.closed) })
	go func() {
		for {
			select {
			case p := <-c.replies:
				if _, err := c.Conn.Write(p); err != nil {
					return
				}
			case <-c.closed:
				return
			}
		}
	}()
	return c
}

// Write adds p to the output. It must not be called concurrently.
func (c *serverConn) Write(p []byte) (int, error) {
	var before []byte
	select {
	case before = <-c.replies:
	default:
	}
	c.replies <- append(before, p...)
	return len(p), nil
}

func (c *serverConn) Close() error {
	c.close()
	return c.Conn.Close()
}
