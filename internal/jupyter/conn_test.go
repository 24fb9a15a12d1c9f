package jupyter

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/gorilla/websocket"
	"go.uber.org/goleak"

	"github.com/e2bctl/e2bctl/internal/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// dial opens a connection to a server that runs serve.
func dial(t *testing.T, subprotocols []string, serve func(*websocket.Conn)) *Conn {
	t.Helper()
	upgrader := websocket.Upgrader{Subprotocols: subprotocols}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		socket, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer socket.Close()
		serve(socket)
	}))
	t.Cleanup(server.Close)
	c, err := Dial(t.Context(), websocket.DefaultDialer, "ws"+strings.TrimPrefix(server.URL, "http"), nil)
	must.Do(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// echo sends back every message until the connection ends.
func echo(socket *websocket.Conn) {
	for {
		kind, frame, err := socket.ReadMessage()
		if err != nil || socket.WriteMessage(kind, frame) != nil {
			return
		}
	}
}

func TestConnSpeaksBothFramings(t *testing.T) {
	t.Parallel()
	for name, subprotocols := range map[string][]string{"default": nil, "v1": {SubprotocolV1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := dial(t, subprotocols, echo)
			for _, buffers := range [][][]byte{nil, {{1, 2}, {}}} {
				sent := &Message{Channel: Control, Header: NewHeader("x", "s", "u"), Content: []byte(`{"a":"é"}`), Buffers: buffers}
				must.Do(t, c.Send(sent))
				got, err := c.Receive()
				must.Do(t, err)
				if diff := cmp.Diff(sent, got, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(Message{}, "Metadata")); diff != "" {
					t.Errorf("(-sent +received):\n%s", diff)
				}
			}
		})
	}
}

func TestConnTakesManyWriters(t *testing.T) {
	t.Parallel()
	c := dial(t, []string{SubprotocolV1}, echo)
	const n = 100
	var writers sync.WaitGroup
	for range n {
		writers.Go(func() {
			if err := c.Send(&Message{Channel: Shell, Header: NewHeader("x", "s", "u")}); err != nil {
				t.Error(err)
			}
		})
	}
	for range n {
		_, err := c.Receive()
		must.Do(t, err)
	}
	writers.Wait()
}

// TestConnWaitsForItsReader checks that a reader may let a message wait for any time.
func TestConnWaitsForItsReader(t *testing.T) {
	t.Parallel()
	c := dial(t, nil, func(socket *websocket.Conn) {
		frame, _, err := Marshal(&Message{Channel: IOPub, Header: NewHeader("x", "s", "u")})
		if err != nil {
			t.Error(err)
		}
		_ = socket.WriteMessage(websocket.TextMessage, frame)
		echo(socket)
	})
	_ = c.socket.SetReadDeadline(time.Unix(1, 0)) // this deadline has passed by then
	if m, err := c.Receive(); err != nil || m.Header.MsgType != "x" {
		t.Errorf("got %+v, %v, want the type %q and no error", m, err, "x")
	}
}

func TestConnEnds(t *testing.T) {
	t.Parallel()
	for name, serve := range map[string]func(*websocket.Conn){
		"the server closes": func(*websocket.Conn) {},
		"a message is cut": func(s *websocket.Conn) {
			_, _ = s.NetConn().Write([]byte("\x81\x10{}")) // a text of 16 bytes begins, and ends after two
			_ = s.Close()
		},
		"garbage": func(s *websocket.Conn) { _ = s.WriteMessage(websocket.TextMessage, []byte("<")); echo(s) },
	} {
		c := dial(t, nil, serve)
		_, first := c.Receive()
		if _, again := c.Receive(); first == nil || !errors.Is(again, first) {
			t.Errorf("%s: %v, then %v, want the same error twice", name, first, again)
		}
	}
	c := dial(t, nil, echo)
	received := make(chan error, 1)
	go func() { _, err := c.Receive(); received <- err }()
	var closing sync.WaitGroup
	for range 3 {
		closing.Go(func() { c.Close() })
	}
	closing.Wait()
	if err := <-received; err == nil {
		t.Error("Receive of a closed connection has no error")
	}
	if err := c.Send(&Message{}); err == nil {
		t.Error("Send on a closed connection has no error")
	}
}

// TestConnKeepsNoLargeBuffer checks that a connection does not keep the memory of a large message,
// and keeps that of a small one.
func TestConnKeepsNoLargeBuffer(t *testing.T) {
	t.Parallel()
	c := dial(t, nil, echo)
	for _, size := range []int{keptBuffer / 4, 2 * keptBuffer, 100} {
		want := []byte(`{"text":"` + strings.Repeat("x", size) + `"}`)
		must.Do(t, c.Send(&Message{Header: NewHeader("stream", "s", "u"), Channel: "iopub", Content: want}))
		m, err := c.Receive()
		if err != nil || string(m.Content) != string(want) {
			t.Fatalf("a message of %d bytes: got %d bytes and %v", size, len(m.Content), err)
		}
		if kept := c.buffer.Cap(); kept > keptBuffer || size < keptBuffer && kept < size {
			t.Errorf("after a message of %d bytes, %d bytes are kept", size, kept)
		}
	}
}

// An unanswered handshake ends with the context's error, because callers check for it.
func TestDialDeadline(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	must.Do(t, err)
	defer silent.Close()
	for i := range 100 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*100*time.Microsecond)
		_, err := Dial(ctx, websocket.DefaultDialer, "ws://"+silent.Addr().String(), nil)
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() == nil {
			t.Errorf("got %v, and %v of the context, want %v of both", err, ctx.Err(), context.DeadlineExceeded)
		}
		cancel()
	}
}

func TestDialRefused(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadGateway)
		_, _ = io.WriteString(w, `{"port":8888}`)
	}))
	defer server.Close()
	url := "ws" + strings.TrimPrefix(server.URL, "http")
	_, err := Dial(t.Context(), websocket.DefaultDialer, url, nil)
	refused, ok := errors.AsType[*DialError](err)
	if !ok || refused.StatusCode != 502 || string(refused.Body) != `{"port":8888}` {
		t.Errorf("got %v, want a *DialError with status 502 and the body %q", err, `{"port":8888}`)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Dial(ctx, websocket.DefaultDialer, url, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}
