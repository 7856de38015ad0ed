package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

// A request whose body does not arrive takes no longer than patience, and is distinguished from a client that has left.
// This also holds if the answer does not depend on the body.
func TestStalledBody(t *testing.T) {
	gen, err := serial.New(client(t, "127.0.0.1:0")) // it is never asked
	require.NoError(t, err)
	const good = `{"amount_cents": 1250}`
	const ada = "X-Forwarded-User: Ada\r\n"
	const key = ada + "Idempotency-Key: first\r\n"
	for _, tt := range []struct {
		name, method, header, body string
		length                     int
		leaves                     bool
		status                     int // 0 if there is no answer
		logged                     string
	}{
		{"no body", "POST /orders", key, "", 100, false, 408, "the body did not arrive in time"},
		{"half a body", "POST /orders", key, good[:15], len(good), false, 408, "the body did not arrive in time"},
		{"most of a body", "POST /orders", key, good, len(good) + 1, false, 408, "the body did not arrive in time"},
		{"an unwanted body", "POST /orders", ada, "", 100, false, 400, ""},
		{"a wrong body", "POST /orders", key, "!", 100, false, 400, ""},
		{"a body that is not read", "GET /orders/%20", ada, "", 100, false, 400, ""},
		{"the client leaves", "POST /orders", key, good[:15], len(good), true, 0, "the client has left"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := &journal{}
				conn := serving(t, (&service{gen, nil, log.logger()}).routes(), log)
				began := time.Now()
				_, err := fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: h\r\n%sContent-Length: %d\r\n\r\n%s",
					tt.method, tt.header, tt.length, tt.body)
				require.NoError(t, err)
				if tt.leaves {
					require.NoError(t, conn.Close())
				} else {
					response, err := http.ReadResponse(bufio.NewReader(conn), nil)
					require.NoError(t, err)
					require.Equal(t, patience, time.Since(began))
					require.Equal(t, tt.status, response.StatusCode)
					require.True(t, response.Close, "a late body must not become the next request")
					_, err = io.Copy(io.Discard, response.Body)
					require.NoError(t, err)
				}
				synctest.Wait()
				require.Contains(t, log.String(), tt.logged)
				if tt.status != 0 {
					require.NotContains(t, log.String(), "has left")
				}
			})
		})
	}
}

// serving returns a connection to a server that runs for the rest of the test.
func serving(t *testing.T, handler http.Handler, log *journal) net.Conn {
	ctx, stop := context.WithCancel(t.Context())
	listener := make(pipes)
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, listener, handler, log.logger()) }()
	conn := listener.dial()
	t.Cleanup(func() {
		_ = conn.Close()
		stop()
		require.NoError(t, <-ended)
	})
	return conn
}

// pipes is a listener in memory, for tests with virtual time.
type pipes chan net.Conn

func (p pipes) dial() net.Conn {
	client, server := net.Pipe()
	p <- server
	return client
}

func (p pipes) Accept() (net.Conn, error) {
	conn, open := <-p
	if !open {
		return nil, net.ErrClosed
	}
	return conn, nil
}

func (p pipes) Close() error   { close(p); return nil }
func (p pipes) Addr() net.Addr { return &net.IPAddr{} }
