package main

import (
	"net"
	"sync"
	"time"
)

// A proxy forwards TCP connections and delays every byte by the same time in each direction. As in a network, bytes
// under way do not block those that follow, so the delay does not limit throughput.
type proxy struct {
	listener net.Listener
	target   string
	delay    time.Duration
}

// A chunk is the result of one read.
type chunk struct {
	due  time.Time
	n    int
	data [16 << 10]byte
}

// chunks are reused, so only the contestants' allocations are counted.
var chunks = sync.Pool{New: func() any { return new(chunk) }}

// startProxy serves until stop is called.
func startProxy(target string, delay time.Duration) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{l, target, delay}
	go p.serve()
	return p, nil
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

// stop stops accepting connections; open ones end with their clients.
func (p *proxy) stop() { _ = p.listener.Close() }

func (p *proxy) serve() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		go p.forward(server, client)
		go p.forward(client, server)
	}
}

// forward returns when src has ended and dst has received everything.
func (p *proxy) forward(dst, src net.Conn) {
	// Enough for more than 1 GB/s.
	queue := make(chan *chunk, 1024)
	go func() {
		defer close(queue)
		for {
			c := chunks.Get().(*chunk)
			n, err := src.Read(c.data[:])
			if n == 0 || err != nil {
				return
			}
			c.n, c.due = n, time.Now().Add(p.delay)
			queue <- c
		}
	}()
	for c := range queue {
		time.Sleep(time.Until(c.due))
		_, err := dst.Write(c.data[:c.n])
		chunks.Put(c)
		if err != nil {
			break
		}
	}
	_ = dst.Close()
	_ = src.Close()
	for range queue { // the reader may be waiting to send
	}
}
