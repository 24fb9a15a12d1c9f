package tunnel

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/hashicorp/yamux"
)

// Parts of the header of a frame of yamux: version, type, flags, stream and length.
const (
	muxHeader  = 12
	muxVersion = 0
	muxSYN     = 1 // the flag that opens a stream
)

// Types of yamux frames. Neither end of a tunnel sends pings or go-away frames. To end a session,
// an end closes the stream of bytes.
const (
	muxData byte = iota
	muxWindow
)

// stuckTimeout limits the time in which the server's session handles the bytes that it has read.
// The session blocks only when the other end breaks the protocol and does not read the answer.
const stuckTimeout = time.Minute

// guard checks every frame from the other end before it passes the frame to the server's session.
// The session answers some frames. Without the guard, the session would buffer answers without
// bound if the other end did not read them.
type guard struct {
	*lane
	began   chan struct{} // closed when session is set
	session *yamux.Session
	broken  func(error) // is called with the reason before the session fails with that reason
	timeout time.Duration
	stuck   *time.Timer // runs while the session handles bytes that it has read

	header [muxHeader]byte
	got    int    // bytes of header that have arrived
	body   uint32 // bytes of the frame that are still to come
}

// guarded begins the server's session over l. It calls broken with the reason when the tunnel
// cannot continue. It calls end when the session is stuck for longer than timeout. end must end the
// session.
func guarded(l *lane, timeout time.Duration, broken func(error), end func()) (*yamux.Session, error) {
	g := &guard{lane: l, began: make(chan struct{}), broken: broken, timeout: timeout}
	g.stuck = time.AfterFunc(timeout, func() {
		broken(fmt.Errorf("%w: it does not read the answer to its invalid message", ErrProtocol))
		end()
	})
	g.stuck.Stop()
	session, err := yamux.Client(g, config())
	if err != nil {
		return nil, err
	}
	g.session = session
	close(g.began)
	return session, nil
}

// Read reads the bytes of the other end, up to the first frame that breaks the protocol.
func (g *guard) Read(p []byte) (int, error) {
	<-g.began
	g.stuck.Stop()
	n, err := g.lane.Read(p)
	if wrong := g.check(p[:n]); wrong != nil {
		g.broken(wrong)
		return 0, wrong
	}
	if err == nil {
		g.stuck.Reset(g.timeout)
	}
	return n, err
}

// Close closes the lane.
func (g *guard) Close() error {
	g.stuck.Stop()
	return g.lane.Close()
}

// check checks the frames in data. data is the continuation of the data of earlier calls.
func (g *guard) check(data []byte) error {
	opened := 0 // by data, which the session has not seen
	for len(data) > 0 {
		if g.body > 0 {
			n := min(uint32(len(data)), g.body)
			g.body -= n
			data = data[n:]
			continue
		}
		n := copy(g.header[g.got:], data)
		data = data[n:]
		if g.got += n; g.got < muxHeader {
			return nil
		}
		g.got = 0
		kind, length := g.header[1], binary.BigEndian.Uint32(g.header[8:])
		if g.header[0] != muxVersion || kind > muxWindow {
			return fmt.Errorf("%w: a frame of type %d and version %d", ErrProtocol, kind, g.header[0])
		}
		if kind == muxData {
			if length > window {
				return fmt.Errorf("%w: a frame with %d bytes of data", ErrProtocol, length)
			}
			g.body = length
		}
		if binary.BigEndian.Uint16(g.header[2:])&muxSYN == 0 {
			continue
		}
		if id := binary.BigEndian.Uint32(g.header[4:]); id == 0 || id%2 != 0 {
			return fmt.Errorf("%w: it opened stream %d", ErrProtocol, id)
		}
		if opened++; g.session.NumStreams()+opened > maxStreams {
			return fmt.Errorf("%w: more than %d connections", ErrProtocol, maxStreams)
		}
	}
	return nil
}
