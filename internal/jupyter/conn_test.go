package jupyter

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
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

// send sends a message, after which others can be sent.
func send(t *testing.T, c *Conn, m *Message) {
	t.Helper()
	must.Do(t, c.Send(m))
	wantUnlocked(t, c)
}

// wantUnlocked checks that another message can be sent.
func wantUnlocked(t *testing.T, c *Conn) {
	t.Helper()
	if !c.writing.TryLock() {
		t.Fatal("nothing else can be sent")
	}
	c.writing.Unlock()
}

func TestConnSpeaksBothFramings(t *testing.T) {
	t.Parallel()
	for name, subprotocols := range map[string][]string{"default": nil, "v1": {SubprotocolV1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := dial(t, subprotocols, echo)
			for _, buffers := range [][][]byte{nil, {{1, 2}, {}}} {
				sent := &Message{Channel: Control, Header: NewHeader("x", "s", "u"), Content: []byte(`{"a":"é"}`), Buffers: buffers}
				send(t, c, sent)
				got, err := c.Receive()
				must.Do(t, err)
				if c.v1 != (name == "v1") {
					t.Errorf("the second framing is used: %v", c.v1)
				}
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
	send(t, c, &Message{Channel: Shell, Header: NewHeader("x", "s", "u")})
	const n = 100
	var writers sync.WaitGroup
	for range n {
		writers.Go(func() {
			if err := c.Send(&Message{Channel: Shell, Header: NewHeader("x", "s", "u")}); err != nil {
				t.Error(err)
			}
		})
	}
	for range n + 1 {
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
		"garbage": func(s *websocket.Conn) {
			_ = s.WriteMessage(websocket.TextMessage, []byte("<"))
			_ = s.WriteMessage(websocket.TextMessage, []byte("{}")) // is not read
			echo(s)
		},
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

// TestConnOfTwoKinds checks that a server of the second framing may also send text, which is in the default one.
func TestConnOfTwoKinds(t *testing.T) {
	t.Parallel()
	text, _, err := Marshal(sample())
	must.Do(t, err)
	v1, err := MarshalV1(sample())
	must.Do(t, err)
	c := dial(t, []string{SubprotocolV1}, func(s *websocket.Conn) {
		_ = s.WriteMessage(websocket.TextMessage, text)
		_ = s.WriteMessage(websocket.BinaryMessage, v1)
		echo(s)
	})
	for range 2 {
		if m, err := c.Receive(); err != nil || string(m.Content) != string(sample().Content) {
			t.Errorf("got %+v and error %v, want the content %s", m, err, sample().Content)
		}
	}
	bad := &Message{Header: NewHeader("comm_msg", "s", "u"), Channel: Shell, Content: []byte("{")}
	// The second framing does not look at the content.
	send(t, c, bad)
	if err := dial(t, nil, echo).Send(bad); err == nil || !strings.Contains(err.Error(), "encode comm_msg") {
		t.Errorf("got error %v, want one that names the message", err)
	}
}

// TestTooBig checks the error of a peer that refuses the size of a message, and that of any other end.
func TestTooBig(t *testing.T) {
	t.Parallel()
	for code, want := range map[int]bool{websocket.CloseMessageTooBig: true, websocket.ClosePolicyViolation: false} {
		c := dial(t, nil, func(s *websocket.Conn) {
			_ = s.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(code, ""))
		})
		_, err := c.Receive()
		if closed, ok := errors.AsType[*websocket.CloseError](err); !ok || closed.Code != code || errors.Is(err, ErrTooBig) != want {
			t.Errorf("code %d: got error %v, want ErrTooBig: %v", code, err, want)
		}
	}
}

// TestLargestMessage checks the largest size of a message that is read, by the header of a frame whose bytes never come.
func TestLargestMessage(t *testing.T) {
	t.Parallel()
	for size, refused := range map[uint64]bool{MaxMessage: false, MaxMessage + 1: true} {
		c := dial(t, nil, func(s *websocket.Conn) {
			_, _ = s.NetConn().Write(binary.BigEndian.AppendUint64([]byte{0x81, 127}, size))
		})
		if _, err := c.Receive(); err == nil || errors.Is(err, websocket.ErrReadLimit) != refused {
			t.Errorf("%d bytes: got %v, want %v: %v", size, err, websocket.ErrReadLimit, refused)
		}
	}
}

// late is an error of a network, which may be a timeout.
type late bool

func (late) Error() string   { return "late" }
func (l late) Timeout() bool { return bool(l) }
func (late) Temporary() bool { return false }

// TestOrDeadline checks when an error of dialling is replaced by that of its context.
func TestOrDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, testOrDeadline)
}

func testOrDeadline(t *testing.T) {
	passed, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	limited, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	other := errors.New("other")
	for name, tt := range map[string]struct {
		ctx       context.Context //nolint:containedctx // in a table
		err, want error
	}{
		"a timeout at the deadline":         {passed, late(true), context.DeadlineExceeded},
		"another error of the network":      {passed, late(false), late(false)},
		"an error that is not its":          {passed, other, other},
		"a timeout of the dialler's own":    {limited, late(true), late(true)},
		"a timeout without a deadline":      {ended, late(true), late(true)},
		"a timeout in an error around it":   {passed, fmt.Errorf("dial: %w", late(true)), context.DeadlineExceeded},
		"no error of the network, no limit": {ended, other, other},
	} {
		start := time.Now()
		if got := OrDeadline(tt.ctx, tt.err); !errors.Is(got, tt.want) || errors.Is(got, tt.err) != errors.Is(tt.want, tt.err) {
			t.Errorf("%s: got %v, want %v", name, got, tt.want)
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("%s: it took %v, want no time", name, took)
		}
	}
}

// TestConnKeepsNoLargeBuffer checks that a connection does not keep the memory of a large message,
// and keeps that of a small one.
func TestConnKeepsNoLargeBuffer(t *testing.T) {
	t.Parallel()
	c := dial(t, nil, echo)
	for _, size := range []int{keptBuffer / 4, 2 * keptBuffer, 100} {
		want := []byte(`{"text":"` + strings.Repeat("x", size) + `"}`)
		send(t, c, &Message{Header: NewHeader("stream", "s", "u"), Channel: "iopub", Content: want})
		m, err := c.Receive()
		if err != nil || string(m.Content) != string(want) {
			t.Fatalf("a message of %d bytes: got %d bytes and %v", size, len(m.Content), err)
		}
		if kept := c.buffer.Cap(); kept > keptBuffer || size < keptBuffer && kept < size {
			t.Errorf("after a message of %d bytes, %d bytes are kept", size, kept)
		}
	}
}

// TestLargestKeptBuffer checks the size up to which a buffer is kept.
func TestLargestKeptBuffer(t *testing.T) {
	t.Parallel()
	c := dial(t, nil, echo)
	for size, kept := range map[int]bool{keptBuffer: true, keptBuffer + 1: false} {
		c.buffer = *bytes.NewBuffer(make([]byte, 0, size))
		send(t, c, &Message{Header: NewHeader("stream", "s", "u"), Channel: "iopub"})
		_, err := c.Receive()
		if must.Do(t, err); c.buffer.Cap() == size != kept {
			t.Errorf("a buffer of %d bytes: %d are left, want that it is kept: %v", size, c.buffer.Cap(), kept)
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
		w.Header().Set("X-Reason", "closed")
		w.WriteHeader(http.StatusBadGateway)
		_, _ = io.WriteString(w, `{"port":8888}`)
	}))
	defer server.Close()
	url := "ws" + strings.TrimPrefix(server.URL, "http")
	_, err := Dial(t.Context(), websocket.DefaultDialer, url, nil)
	refused, ok := errors.AsType[*DialError](err)
	if !ok || refused.StatusCode != 502 || string(refused.Body) != `{"port":8888}` || refused.Header.Get("X-Reason") != "closed" {
		t.Errorf("got %v, want a *DialError with status 502 and the body %q", err, `{"port":8888}`)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Dial(ctx, websocket.DefaultDialer, url, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}
