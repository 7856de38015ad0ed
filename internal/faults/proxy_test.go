//go:build unix

package faults

import (
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A proxy is the network between clients and a server; its address stays when another server takes over.
type proxy struct {
	listener net.Listener

	mu      sync.Mutex
	changed *sync.Cond // signals changes of the fields below
	target  string
	mode    mode
	delay   time.Duration
	spared  int               // replies that pass before the mode takes effect
	conns   map[net.Conn]bool // true if replies were dropped: later ones would be mistaken for them
}

type mode int

const (
	passing   mode = iota
	slow           // every packet takes longer
	late           // every reply takes longer
	dropping       // replies are dropped
	blackHole      // nothing passes; afterwards requests arrive, however late
)

func newProxy() *proxy {
	p := &proxy{conns: map[net.Conn]bool{}}
	p.changed = sync.NewCond(&p.mu)
	return p
}

func startProxy(t *testing.T, target string) *proxy {
	p := newProxy()
	p.target = target
	var err error
	p.listener, err = net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = p.listener.Close()
		p.set(passing, 0)
		p.reset()
	})
	go func() {
		for client, err := p.listener.Accept(); err == nil; client, err = p.listener.Accept() {
			p.mu.Lock()
			target := p.target
			p.mu.Unlock()
			server, err := net.DialTimeout("tcp", target, time.Second)
			if err != nil || !p.link(client, server, target) {
				_ = client.Close()
			}
		}
	}()
	return p
}

// set sets the mode.
func (p *proxy) set(m mode, delay time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode, p.delay = m, delay
	for conn, dropped := range p.conns {
		if dropped {
			_ = conn.Close()
		}
	}
	p.changed.Broadcast()
}

// reset breaks all connections.
func (p *proxy) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.conns {
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = conn.Close()
	}
}

// redirect breaks all connections, and leads new ones to another server.
func (p *proxy) redirect(target string) {
	p.mu.Lock()
	p.target = target
	p.mu.Unlock()
	p.reset()
}

// link forwards between two connections, unless the target has changed meanwhile.
func (p *proxy) link(client, server net.Conn, target string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if target != p.target {
		_ = server.Close()
		return false
	}
	p.conns[client], p.conns[server] = false, false
	go p.forward(server, client, false)
	go p.forward(client, server, true)
	return true
}

// forward copies from src to dst until either is closed.
func (p *proxy) forward(dst, src net.Conn, replies bool) {
	defer func() {
		_, _ = dst.Close(), src.Close()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, src)
	}()
	buffer := make([]byte, 16<<10)
	for {
		n, err := src.Read(buffer)
		if err == nil && !p.drops(src, replies) {
			_, err = dst.Write(buffer[:n])
		}
		if err != nil {
			return
		}
	}
}

// drops lets a packet take its time, and reports whether it is dropped.
func (p *proxy) drops(src net.Conn, reply bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if reply && p.spared > 0 {
		p.spared--
	} else if p.mode == slow || p.mode == late && reply {
		delay := p.delay
		p.mu.Unlock()
		time.Sleep(delay)
		p.mu.Lock()
	}
	for p.mode == blackHole {
		p.changed.Wait()
	}
	if p.mode == dropping && reply {
		p.conns[src] = true
		return true
	}
	return false
}
