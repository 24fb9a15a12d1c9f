package tunnel

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/e2bctl/e2bctl/internal/must"
)

// movable is a connection of a guest that leads to another server when it was moved.
type movable struct {
	mu    sync.Mutex
	conn  net.Conn
	moved chan struct{} // closed by move
}

func (m *movable) now() (net.Conn, chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.conn, m.moved
}

// move replaces the connection, as saving and restoring does. Nothing may be on the way.
func (m *movable) move(to net.Conn) {
	m.mu.Lock()
	was := m.conn
	m.conn = to
	close(m.moved)
	m.moved = make(chan struct{})
	m.mu.Unlock()
	_ = was.Close() // wakes the reader
}

func (m *movable) Read(p []byte) (int, error) {
	for {
		conn, moved := m.now()
		n, err := conn.Read(p)
		select {
		case <-moved:
			continue
		default:
			return n, err
		}
	}
}

func (m *movable) Write(p []byte) (int, error) {
	conn, _ := m.now()
	return conn.Write(p)
}

func (m *movable) Close() error {
	conn, _ := m.now()
	return conn.Close()
}

// TestPark checks that both ends stand still for as long as the server says, and lose nothing.
func TestPark(t *testing.T) {
	t.Parallel()
	s := tunnel(t, Options{}, echoes)
	conn, err := s.Dial(t.Context(), 7)
	must.Do(t, err)
	data := bytes.Repeat([]byte("some data "), 1<<17)
	written := make(chan error, 1)
	go func() {
		_, err := conn.Write(data)
		written <- errors.Join(err, conn.(*dialled).CloseWrite())
	}()
	got := make([]byte, len(data))
	for from := 0; from < len(got); from += 1 << 16 { // in the middle of the data, time and again
		must.Do(t, s.Park(t.Context()))
		must.Do(t, s.GoOn())
		_, err := io.ReadFull(conn, got[from:min(from+1<<16, len(got))])
		must.Do(t, err)
	}
	if err := <-written; err != nil || !bytes.Equal(got, data) {
		t.Errorf("got other data than was written, %v", err)
	}
}

// TestParkRefused checks that the wait for a guest that does not stand still ends, and that the
// server continues if the guest stands still later.
func TestParkRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer theirs.Close()
		l := newFramed(ours).lane()
		defer l.Close()
		go func() { _, _ = io.Copy(io.Discard, l) }() // reads until the end
		ctx, cancel := context.WithTimeout(t.Context(), parkPatience)
		defer cancel()
		if err := l.park(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v, want that it took too long", err)
		}
		expect := func(want byte) {
			t.Helper()
			var header [frameHeader]byte
			if _, err := io.ReadFull(theirs, header[:]); err != nil || header[0] != want || binary.BigEndian.Uint32(header[1:]) > 1 {
				t.Fatalf("got %v, %v, want frame %d", header, err, want)
			}
		}
		expect(framePark)
		if _, err := theirs.Write([]byte{frameParked, 0, 0, 0, 0}); err != nil {
			t.Fatal(err)
		}
		expect(frameGoOn)
		go func() { _, _ = l.Write([]byte("x")) }()
		expect(frameData)
		var data [1]byte
		if _, err := io.ReadFull(theirs, data[:]); err != nil || data[0] != 'x' {
			t.Errorf("got %q, %v, want x", data, err)
		}
	})
}

// parkPatience is for a clock that does not wait.
const parkPatience = 3e9

// TestMove checks that a guest that stood still continues with another server, and that the
// connections of the former server have ended.
func TestMove(t *testing.T) {
	t.Parallel()
	first, theirs := net.Pipe()
	guest := &movable{conn: theirs, moved: make(chan struct{})}
	link := NewLink(guest)
	joined := make(chan *Guest, 2)
	var work sync.WaitGroup
	work.Go(func() {
		for {
			g, err := link.Join()
			if err != nil {
				t.Errorf("join: %v", err)
				return
			}
			if err := g.Ready(); err != nil {
				t.Errorf("ready: %v", err)
				return
			}
			joined <- g
			echoes(t, g)
			if !g.Superseded() {
				return
			}
		}
	})
	s, err := Open(t.Context(), first, Options{Hello: Hello{ID: "first"}})
	must.Do(t, err)
	<-joined
	old, err := s.Dial(t.Context(), 7)
	must.Do(t, err)
	must.Do(t, s.Park(t.Context()))
	second, theirs := net.Pipe()
	guest.move(theirs)
	again, err := Open(t.Context(), second, Options{Restored: true, Hello: Hello{ID: "second"}})
	must.Do(t, err)
	if g := <-joined; g.Hello.ID != "second" {
		t.Errorf("the guest is that of %q, want second", g.Hello.ID)
	}
	conn, err := again.Dial(t.Context(), 7)
	must.Do(t, err)
	go func() { _, _ = conn.Write([]byte("hello")) }()
	got := make([]byte, 5)
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != "hello" {
		t.Errorf("got %q, %v, want hello", got, err)
	}
	if _, err := old.Read(make([]byte, 1)); err == nil {
		t.Error("a connection of the former server goes on")
	}
	s.Close()
	again.Close()
	_ = guest.Close()
	work.Wait()
}

// FuzzLink sends any frames from the other end: the result is data or an error.
func FuzzLink(f *testing.F) {
	f.Add([]byte{frameData, 0, 0, 0, 1, 'x', framePark, 0, 0, 0, 0, frameGoOn, 0, 0, 0, 0}, true)
	f.Add([]byte{frameParked, 0, 0, 0, 0, frameParked, 0, 0, 0, 0}, false)
	f.Add([]byte{framePark, 0, 0, 0, 0, frameData, 255, 255, 255, 255}, true)
	f.Add([]byte{frameServer, 0, 0, 0, 0}, true)
	f.Fuzz(func(t *testing.T, frames []byte, guest bool) {
		l := newFramed(readWriter{bytes.NewReader(frames), io.Discard}).lane()
		l.guest = guest
		if _, err := io.Copy(io.Discard, l); err == nil && len(frames) > 0 && len(frames) < frameHeader {
			t.Errorf("half a header of %d bytes was no error", len(frames))
		}
		if _, err := l.Write([]byte("x")); err == nil {
			t.Error("it writes after its end")
		}
	})
}

type readWriter struct {
	io.Reader
	io.Writer
}

func (readWriter) Close() error { return nil }
