package tunnel

import (
	"encoding/binary"
	"io"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/must"
)

// deaf is the connection of an inner end that can stop reading.
type deaf struct {
	net.Conn
	mu     sync.Mutex
	closed chan struct{} // nil: it reads
}

func (d *deaf) Read(p []byte) (int, error) {
	n, err := d.Conn.Read(p)
	d.mu.Lock()
	closed := d.closed
	d.mu.Unlock()
	if closed != nil {
		<-closed
		return 0, io.EOF
	}
	return n, err
}

func (d *deaf) listensNoLonger() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = make(chan struct{})
}

func (d *deaf) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed != nil {
		close(d.closed)
	}
	_ = d.Close()
}

// frame returns a frame of yamux.
func frame(version, kind byte, flags uint16, stream, length uint32) []byte {
	f := binary.BigEndian.AppendUint16([]byte{version, kind}, flags)
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(f, stream), length)
}

// TestHostileFrames checks that no type of frame, with any flags, makes the server start
// goroutines or keep memory without a bound, whether the other end reads the answers or not,
// and that a session that cannot continue ends with the reason.
func TestHostileFrames(t *testing.T) { //nolint:paralleltest // it counts goroutines
	const (
		syn, ack, fin, rst = 1, 2, 4, 8
		many               = 20_000
	)
	for _, tt := range []struct {
		name  string
		frame func(i uint32) []byte
		goes  bool // the session may continue: the frames have no effect
	}{
		{"pings", func(i uint32) []byte { return frame(0, 2, syn, 0, i) }, false},
		{"answers to no ping", func(i uint32) []byte { return frame(0, 2, ack, 0, i) }, false},
		{"going away", func(uint32) []byte { return frame(0, 3, 0, 0, 0) }, false},
		{"going away for errors", func(uint32) []byte { return frame(0, 3, 0, 0, 1) }, false},
		{"an unknown type", func(uint32) []byte { return frame(0, 200, 0, 0, 0) }, false},
		{"an unknown version", func(uint32) []byte { return frame(7, 0, 0, 1, 0) }, false},
		{"streams opened by window updates", func(i uint32) []byte { return frame(0, 1, syn, 2*i+2, 0) }, false},
		{"streams opened by data", func(i uint32) []byte { return append(frame(0, 0, syn, 2*i+2, 1), 'x') }, false},
		{"a stream opened twice", func(uint32) []byte { return frame(0, 1, syn, 2, 0) }, false},
		{"a stream with a number of the server", func(uint32) []byte { return frame(0, 1, syn, 1, 0) }, false},
		{"streams opened and reset", func(i uint32) []byte { return append(frame(0, 1, syn, 2*i+2, 0), frame(0, 1, rst, 2*i+2, 0)...) }, true},
		{"streams opened and ended", func(i uint32) []byte { return append(frame(0, 1, syn, 2*i+2, 0), frame(0, 1, fin, 2*i+2, 0)...) }, true},
		{"ends of an open stream", func(uint32) []byte { return frame(0, 1, fin, 1, 0) }, false},
		{"ends of no stream", func(uint32) []byte { return frame(0, 1, fin, 1001, 0) }, true},
		{"resets of no stream", func(uint32) []byte { return frame(0, 1, rst, 1001, 0) }, true},
		{"acknowledgements", func(uint32) []byte { return frame(0, 1, ack, 1, 0) }, true},
		{"giant window updates", func(uint32) []byte { return frame(0, 1, 0, 1, 0xffffffff) }, true},
		{"window updates of no stream", func(uint32) []byte { return frame(0, 1, 0, 1001, 1) }, true},
		{"giant data", func(uint32) []byte { return frame(0, 0, 0, 1, 0xffffffff) }, false},
		{"giant data of no stream", func(uint32) []byte { return frame(0, 0, 0, 1001, 0xffffffff) }, false},
		{"more data than the window", func(uint32) []byte { return append(frame(0, 0, 0, 1, 32<<10), make([]byte, 32<<10)...) }, false},
		{"data of no stream", func(uint32) []byte { return append(frame(0, 0, 0, 1001, 1), 'x') }, true},
	} {
		for _, reads := range []bool{true, false} {
			name := tt.name
			if !reads {
				name += ", and answers are not read"
			}
			t.Run(name, func(t *testing.T) {
				flood(t, reads, many, tt.goes, tt.frame)
			})
		}
	}
}

// flood has the other end of a tunnel send many frames.
func flood(t *testing.T, reads bool, many uint32, goes bool, frame func(i uint32) []byte) {
	ours, conn := net.Pipe()
	theirs := &deaf{Conn: conn}
	var work sync.WaitGroup
	joined := make(chan *Guest, 1)
	work.Go(func() {
		g, err := NewLink(theirs).Join()
		if err == nil {
			err = g.Ready()
		}
		if err != nil {
			t.Error(err)
		}
		joined <- g
	})
	s, err := Open(t.Context(), ours, Options{stuck: time.Second})
	must.Do(t, err)
	g := <-joined
	if !reads {
		theirs.listensNoLonger()
	}
	before := runtime.NumGoroutine()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	held := memory.HeapInuse
	sent := make(chan struct{})
	work.Go(func() {
		defer close(sent)
		for i := range many {
			if _, err := g.lane.Write(frame(i)); err != nil {
				return
			}
		}
	})
	if goes {
		select {
		case <-sent:
		case <-s.Done():
		}
	} else {
		<-s.Done()
	}
	if now := runtime.NumGoroutine(); now > before+2*maxStreams {
		t.Errorf("got %d goroutines, there were %d", now, before)
	}
	if runtime.ReadMemStats(&memory); memory.HeapInuse > held+64<<20 {
		t.Errorf("got %d bytes in use, there were %d", memory.HeapInuse, held)
	}
	select {
	case <-s.Done():
		if s.Err() == nil {
			t.Error("it ended without a reason")
		}
	default:
	}
	s.Close()
	theirs.end()
	work.Wait()
}
