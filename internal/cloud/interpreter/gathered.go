//go:build linux

package interpreter

import (
	"bufio"
	"net"
	"net/http"
	"sync"
	"time"
)

// gatheredBytes bounds the bytes that a gathered connection keeps for one write.
const gatheredBytes = 32 << 10

// gathered is a connection that can send several small writes as one. So the other side wakes once
// for messages that follow each other at once.
type gathered struct {
	net.Conn

	mu      sync.Mutex
	keeping bool
	kept    []byte
}

// keep makes writes wait until release. The caller must not block between the two calls, except in
// a write.
func (g *gathered) keep() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.keeping = true
}

// release sends the bytes of all writes since keep.
func (g *gathered) release() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.keeping = false
	return g.send()
}

// send sends the kept bytes. The caller holds mu.
func (g *gathered) send() error {
	if len(g.kept) == 0 {
		return nil
	}
	// The last write of a control message has left its deadline, which is short.
	_ = g.SetWriteDeadline(time.Time{})
	_, err := g.Conn.Write(g.kept)
	g.kept = g.kept[:0]
	return err
}

func (g *gathered) Write(data []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.keeping && len(g.kept)+len(data) <= gatheredBytes {
		g.kept = append(g.kept, data...)
		return len(data), nil
	}
	if err := g.send(); err != nil {
		return 0, err
	}
	return g.Conn.Write(data)
}

// gathering is a response whose connection becomes a gathered connection when it is hijacked.
type gathering struct {
	http.ResponseWriter
	conn *gathered
}

func (w *gathering) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	w.conn = &gathered{Conn: conn}
	return w.conn, buffered, nil
}
