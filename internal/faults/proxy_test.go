//go:build unix

package faults

import (
	"net"
	"sync"
	"testing"
	"time"
)

// A proxy is the network between the workers and a server; its address stays when another server takes over.
type proxy struct {
	listener net.Listener

	mu     sync.Mutex
	change *sync.Cond // signals changes of the fields below
	target string
	mode   weather
	delay  time.Duration
	spared int               // replies that pass before the weather takes effect
	conns  map[net.Conn]bool // true if replies were dropped: later ones would be mistaken for them
}

type weather int

const (
	fine      weather = iota
	slow              // every packet takes longer
	late              // every reply does
	mute              // replies are dropped
	blackHole         // nothing passes; afterwards requests arrive, however late
)

func newProxy() *proxy {
	p := &proxy{conns: map[net.Conn]bool{}}
	p.change = sync.NewCond(&p.mu)
	return p
}

func startProxy(t *testing.T, target string) *proxy {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := newProxy()
	p.listener, p.target = listener, target
	t.Cleanup(func() {
		_ = listener.Close()
		p.turn(fine, 0)
		p.reset()
	})
	go p.serve()
	return p
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

// turn changes the weather.
func (p *proxy) turn(mode weather, delay time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode, p.delay = mode, delay
	for conn, torn := range p.conns {
		if torn {
			_ = conn.Close()
		}
	}
	p.change.Broadcast()
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

// redirect breaks all connections and leads new ones to another server.
func (p *proxy) redirect(target string) {
	p.mu.Lock()
	p.target = target
	p.mu.Unlock()
	p.reset()
}

func (p *proxy) serve() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		target := p.target
		p.mu.Unlock()
		server, err := net.DialTimeout("tcp", target, time.Second)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		if target != p.target { // the target changed meanwhile
			_, _ = client.Close(), server.Close()
			p.mu.Unlock()
			continue
		}
		p.link(client, server)
		p.mu.Unlock()
	}
}

// link must be called with mu held.
func (p *proxy) link(client, server net.Conn) {
	p.conns[client], p.conns[server] = false, false
	go p.forward(server, client, false)
	go p.forward(client, server, true)
}

// dial returns a connection without a port, for a server that has none.
func (p *proxy) dial(server net.Conn) net.Conn {
	client, end := net.Pipe()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.link(end, server)
	return client
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
		if err != nil {
			return
		}
		p.mu.Lock()
		spared := replies && p.spared > 0
		if spared {
			p.spared--
		}
		if !spared && (p.mode == slow || p.mode == late && replies) {
			delay := p.delay
			p.mu.Unlock()
			time.Sleep(delay)
			p.mu.Lock()
		}
		for p.mode == blackHole {
			p.change.Wait()
		}
		vanishes := p.mode == mute && replies
		if vanishes {
			p.conns[src] = true
		}
		p.mu.Unlock()
		if vanishes {
			continue
		}
		if _, err := dst.Write(buffer[:n]); err != nil {
			return
		}
	}
}
