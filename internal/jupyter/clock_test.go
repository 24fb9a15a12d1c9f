package jupyter

import (
	"context"
	"errors"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"

	"github.com/e2bctl/e2bctl/internal/must"
)

// onClock dials a server that runs serve, over a pipe of the test's own clock, and calls
// client with the connection. left is closed once client has returned.
func onClock(t *testing.T, serve func(socket *websocket.Conn, left <-chan struct{}), client func(*Conn)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		left := make(chan struct{})
		accepted := &oneConn{conn: make(chan net.Conn, 1), closed: make(chan struct{})}
		accepted.conn <- far
		server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			socket, err := (&websocket.Upgrader{}).Upgrade(w, r, nil)
			if err != nil {
				t.Error(err)
				return
			}
			defer socket.Close()
			serve(socket, left)
		})}
		go func() { _ = server.Serve(accepted) }()
		defer server.Close()
		dialer := &websocket.Dialer{NetDialContext: func(context.Context, string, string) (net.Conn, error) { return near, nil }}
		c, err := Dial(t.Context(), dialer, "ws://kernel/channels", nil)
		must.Do(t, err)
		defer c.Close()
		defer close(left)
		client(c)
	})
}

// oneConn is a listener that accepts one connection.
type oneConn struct {
	conn   chan net.Conn
	closed chan struct{}
}

func (l *oneConn) Accept() (net.Conn, error) {
	select {
	case c := <-l.conn:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *oneConn) Close() error { close(l.closed); return nil }

func (l *oneConn) Addr() net.Addr { return &net.UnixAddr{} }

// TestSilentCellIsNotCut checks that code that prints nothing for hours keeps its connection:
// the answers to pings show that its kernel is there.
func TestSilentCellIsNotCut(t *testing.T) {
	t.Parallel()
	const hours = 3
	onClock(t, func(socket *websocket.Conn, _ <-chan struct{}) {
		pings, answer := 0, socket.PingHandler()
		socket.SetPingHandler(func(data string) error {
			if pings++; pings < hours*int(time.Hour/pingInterval) {
				return answer(data)
			}
			frame, _, err := Marshal(&Message{Channel: IOPub, Header: NewHeader("x", "s", "u")})
			if err != nil {
				t.Error(err)
			}
			return socket.WriteMessage(websocket.TextMessage, frame)
		})
		echo(socket)
	}, func(c *Conn) {
		start := time.Now()
		if m, err := c.Receive(); err != nil || m.Header.MsgType != "x" {
			t.Errorf("got %+v, %v, want the message after the silence", m, err)
		}
		if took := time.Since(start); took < hours*time.Hour-silence {
			t.Errorf("the message came after %v of pings, want %d hours of them", took, hours)
		}
	})
}

// TestPeerThatIsGoneIsNoticed checks that a peer that answers no pings for 45 seconds is lost,
// and no sooner.
func TestPeerThatIsGoneIsNoticed(t *testing.T) {
	t.Parallel()
	onClock(t, func(socket *websocket.Conn, _ <-chan struct{}) {
		socket.SetPingHandler(func(string) error { return nil })
		echo(socket)
	}, func(c *Conn) {
		start := time.Now()
		defer time.AfterFunc(2*silence, func() { _ = c.socket.Close() }).Stop()
		if m, err := c.Receive(); !timedOut(err) {
			t.Errorf("got %+v, %v, want a timeout", m, err)
		}
		if took := time.Since(start); took != silence {
			t.Errorf("it was noticed after %v, want %v", took, silence)
		}
	})
}

// TestPeerThatReadsNothing checks that a write to a peer that accepts nothing ends.
func TestPeerThatReadsNothing(t *testing.T) {
	t.Parallel()
	onClock(t, func(_ *websocket.Conn, left <-chan struct{}) { <-left }, func(c *Conn) {
		start := time.Now()
		if err := c.Send(&Message{Channel: Shell, Header: NewHeader("x", "s", "u")}); !timedOut(err) {
			t.Errorf("got %v, want a timeout", err)
		}
		if took := time.Since(start); took != writeTimeout {
			t.Errorf("it was given up after %v, want %v", took, writeTimeout)
		}
	})
}

// TestCloseTakesNoTime checks that the peer learns that the connection was closed, and that the end waits for no ping.
func TestCloseTakesNoTime(t *testing.T) {
	t.Parallel()
	ended := make(chan error, 1)
	onClock(t, func(socket *websocket.Conn, _ <-chan struct{}) {
		_, _, err := socket.ReadMessage()
		ended <- err
	}, func(c *Conn) {
		start := time.Now()
		first := c.Close()
		if again := c.Close(); again != first { //nolint:errorlint // the error itself
			t.Errorf("closed with %v, and then with %v, want the same", first, again)
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("the end took %v, want no time", took)
		}
		if _, err := c.Receive(); err == nil {
			t.Error("got a message of a connection that is closed")
		}
	})
	if err := <-ended; !websocket.IsCloseError(err, websocket.CloseNormalClosure) {
		t.Errorf("the peer got %v, want a normal end", err)
	}
}

// TestCloseWaitsForPings checks that no ping is in progress after the end of a connection.
func TestCloseWaitsForPings(t *testing.T) {
	t.Parallel()
	onClock(t, func(socket *websocket.Conn, _ <-chan struct{}) { echo(socket) }, func(c *Conn) {
		c.pinging.Go(func() { <-time.After(time.Second) }) // a slow one
		start := time.Now()
		must.Do(t, c.Close())
		if took := time.Since(start); took != time.Second {
			t.Errorf("the end took %v, want that of the ping", took)
		}
	})
}

// TestSendAfterBadMessage checks that a message that cannot be encoded does not keep others from being sent.
func TestSendAfterBadMessage(t *testing.T) {
	t.Parallel()
	onClock(t, func(socket *websocket.Conn, _ <-chan struct{}) { echo(socket) }, func(c *Conn) {
		for _, content := range []string{"{", "{}"} {
			err := c.Send(&Message{Channel: Shell, Header: NewHeader("x", "s", "u"), Content: []byte(content)})
			if (err == nil) != (content == "{}") {
				t.Errorf("%s: got %v", content, err)
			}
			wantUnlocked(t, c)
		}
		if m, err := c.Receive(); err != nil || m.Header.MsgType != "x" {
			t.Errorf("got %+v, %v, want what was sent", m, err)
		}
	})
}

func timedOut(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}
