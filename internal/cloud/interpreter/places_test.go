//go:build linux

package interpreter

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"

	"github.com/e2bctl/e2bctl/internal/cloud/kernel"
	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/internal/pipetest"
)

// A sandbox has as many connections as it may, each with a number above those before it, and the
// place of one that ended is free.
func TestPlacesOfConnections(t *testing.T) {
	t.Parallel()
	s := &Server{sockets: map[*socket]struct{}{}}
	var last *socket
	for i := range maxSockets {
		if last = new(socket); !s.addSocket(last) || last.number != uint64(i+1) {
			t.Fatalf("connection %d was refused, or has the number %d", i+1, last.number)
		}
	}
	if s.addSocket(new(socket)) {
		t.Error("there is one connection too many")
	}
	s.removeSocket(last)
	if last = new(socket); !s.addSocket(last) || last.number != maxSockets+1 {
		t.Errorf("the place of a connection that ended is not free, or the next has the number %d", last.number)
	}
	s.removeSocket(last)
	s.closed = true
	if s.addSocket(new(socket)) {
		t.Error("a closed server takes connections")
	}
	for so := range s.sockets {
		s.removeSocket(so)
	}
	s.work.Wait()
}

// A sandbox has as many sessions as it may. One that exists is found even then, and the place of one
// that was removed is free.
func TestPlacesOfSessions(t *testing.T) {
	t.Parallel()
	s, err := New(Options{Environ: func() ([]string, error) { return nil, nil }, Dir: t.TempDir(), Scratch: t.TempDir()})
	must.Do(t, err)
	defer s.Close()
	post := func(path, want string, status int) {
		t.Helper()
		body := fmt.Sprintf(`{"path":%q,"type":"t","name":"N","kernel":{"id":%q}}`, path, s.DefaultID())
		answer := httptest.NewRecorder()
		s.postSession(answer, httptest.NewRequest(http.MethodPost, "/api/sessions", strings.NewReader(body)))
		if answer.Code != status || !strings.Contains(answer.Body.String(), want) {
			t.Fatalf("%s: got %d %s, want %d with %s", path, answer.Code, answer.Body, status, want)
		}
	}
	for i := range maxSessions {
		path := fmt.Sprintf("p%d", i)
		post(path, `"name":"N"`, http.StatusCreated)
	}
	post("more", "too many sessions", http.StatusConflict)
	post("p0", `"path":"p0"`, http.StatusCreated)
	s.forgetSession(s.liveSessions()[0])
	post("more", `"path":"more"`, http.StatusCreated)
	post("p0", "too many sessions", http.StatusConflict)
}

// A buffer has the sum of the weights of its messages, and forgets them as they are acknowledged:
// each once, in order, and none that was not sent.
func TestWeightOfABuffer(t *testing.T) {
	t.Parallel()
	b := &sessionBuffer{own: "o", wake: make(chan struct{}, 1), changed: make(chan struct{})}
	message := func(content, buffer int) *jupyter.Message {
		return &jupyter.Message{Channel: jupyter.IOPub, Content: make([]byte, content), Buffers: [][]byte{make([]byte, buffer), nil}}
	}
	const limit = 10 * messageOverhead
	holds := func(what string, want int) {
		t.Helper()
		sum := 0
		for _, m := range b.messages {
			sum += messageOverhead + len(m.Content) + len(m.Buffers[0])
		}
		if b.bytes != want || sum != want {
			t.Errorf("%s: %d bytes are counted of %d, want %d", what, b.bytes, sum, want)
		}
	}
	if !b.put(message(limit, 1), limit, false) {
		t.Error("a message that is larger than the bound is refused, though it is alone")
	}
	if b.put(message(1, 1), limit, false) {
		t.Error("a message beside one over the bound is taken")
	}
	b.next()
	b.acknowledge(1)
	holds("after the first", 0)
	if !b.put(message(messageOverhead, 2*messageOverhead), limit, false) || !b.put(message(0, 5*messageOverhead), limit, false) {
		t.Error("messages of exactly the bound are refused")
	}
	if b.put(message(0, 0), limit, false) {
		t.Error("a message over the bound is taken")
	}
	holds("full", limit)
	b.acknowledge(3) // neither was sent
	holds("before any was sent", limit)
	if m := b.next(); m == nil || m.Header.MsgID != "o_1" {
		t.Errorf("got %+v, want the second message", m)
	}
	changed := b.changed
	b.acknowledge(3)
	holds("after one", 6*messageOverhead)
	select {
	case <-changed:
	default:
		t.Error("who waits for space is not told")
	}
	b.acknowledge(1)
	holds("after an old acknowledgement", 6*messageOverhead)
	if m := b.next(); m == nil || m.Header.MsgID != "o_2" || b.next() != nil {
		t.Errorf("got %+v, want the third message, and none after it", m)
	}
	b.acknowledge(3)
	holds("at the end", 0)
}

// An outbox takes frames up to its bytes, where a small one counts as much as outboxFrame, and has
// room for as many again when they are taken.
func TestRoomOfAnOutbox(t *testing.T) {
	t.Parallel()
	for size, want := range map[int]int{0: outboxBytes / outboxFrame, outboxFrame: outboxBytes / outboxFrame, outboxFrame + 1: outboxBytes / (outboxFrame + 1), outboxBytes: 1, outboxBytes + 1: 1} {
		o, data := newOutbox(), make([]byte, size)
		for range 2 {
			n := 0
			for n <= want && o.tryPush(frame{data}) {
				n++
			}
			if n != want {
				t.Errorf("%d frames of %d bytes were taken, want %d", n, size, want)
			}
			for range n {
				o.taken(<-o.frames)
			}
		}
	}
}

// TestPlacesOfKernels checks how many kernels a sandbox may have, and that a closed server gets none.
func TestPlacesOfKernels(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		there  int
		closed bool
		want   error
	}{
		"the last one": {maxKernels - 1, false, nil},
		"too many":     {maxKernels, false, errTooMany},
		"closed":       {0, true, kernel.ErrClosed},
	} {
		s := &Server{options: Options{Logger: slog.New(slog.DiscardHandler)}, closed: test.closed}
		for i := range test.there {
			s.kernels = append(s.kernels, &runningKernel{id: strconv.Itoa(i)})
		}
		k, err := s.addKernel(&runningKernel{})
		if !errors.Is(err, test.want) || (k != nil) != (test.want == nil) {
			t.Errorf("%s: got error %v, want %v", name, err, test.want)
		}
		if k != nil {
			must.Do(t, k.Close())
		}
	}
}

// TestNoEnvironment checks that no kernels are listed of a sandbox whose environment is unknown: the
// variables name the directories to look into.
func TestNoEnvironment(t *testing.T) {
	t.Parallel()
	want := errors.New("no environment")
	_, err := (&Server{options: Options{Environ: func() ([]string, error) { return nil, want }}}).kernelspecs()
	must.Is(t, err, want)
}

// dependents is a context that counts the contexts that end with it.
type dependents struct {
	context.Context //nolint:containedctx // a wrapper
	count           *int
}

// Value hides the kind of the context, so that others use AfterFunc.
func (dependents) Value(any) any { return nil }

func (d dependents) AfterFunc(f func()) (stop func() bool) {
	*d.count++
	end := context.AfterFunc(d.Context, f)
	return sync.OnceValue(func() bool { *d.count--; return end() })
}

// TestRefusedConnections checks that a connection that is refused leaves nothing behind that lasts as
// long as the server.
func TestRefusedConnections(t *testing.T) {
	t.Parallel()
	longest := strings.Repeat("x", maxSessionID)
	for name, test := range map[string]struct {
		query  string
		taken  int
		status int
		text   string
	}{
		"a long session_id":     {"?session_id=" + longest + "x", 0, http.StatusBadRequest, "session_id is longer than 1024 bytes"},
		"too many connections":  {"", maxSockets, http.StatusServiceUnavailable, "too many connections: the limit of a sandbox is 256"},
		"a malformed handshake": {"?session_id=" + longest, 0, http.StatusBadRequest, "Bad Request"},
	} {
		count := 0
		s := &Server{ctx: dependents{t.Context(), &count}, sockets: map[*socket]struct{}{}}
		for range test.taken {
			s.addSocket(new(socket))
		}
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/"+test.query, nil)
		r.Header.Set("Connection", "upgrade")
		r.Header.Set("Upgrade", "websocket")
		s.channels(w, r, &runningKernel{})
		if w.Code != test.status || !strings.Contains(w.Body.String(), test.text) {
			t.Errorf("%s: got %d %s, want %d with %q", name, w.Code, w.Body, test.status, test.text)
		}
		if count != 0 || len(s.sockets) != test.taken {
			t.Errorf("%s: got %d contexts and %d connections, want 0 and %d", name, count, len(s.sockets), test.taken)
		}
	}
}

// TestBufferThatMissedAMessage checks that a client gets nothing after a gap: neither its connection nor
// a later one of its session.
func TestBufferThatMissedAMessage(t *testing.T) {
	t.Parallel()
	b := &sessionBuffer{own: "o", session: "s", wake: make(chan struct{}, 1), changed: make(chan struct{})}
	shut := false
	so := &socket{shut: func() { shut = true }}
	b.reader = so
	b.lose()
	if !shut || !so.lost.Load() {
		t.Errorf("its connection was ended: %v, with the reason: %v", shut, so.lost.Load())
	}
	if taken := b.put(&jupyter.Message{}, absentBytes, false); !taken || b.next() != nil {
		t.Errorf("a message after the gap was taken: %v, and waits: %d, want it to be dropped", taken, len(b.messages))
	}
	b.reader = nil
	if before, ok := b.attach(new(socket)); before != nil || ok {
		t.Error("a later connection got the buffer")
	}
}

// TestPositionsAreAsked checks when a client is asked what it has received: each time after more than
// unconfirmed bytes, also while further messages wait, and once when no message has come for a while.
func TestPositionsAreAsked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const messages, size = 50, 16 << 10
		b := &sessionBuffer{own: "o", wake: make(chan struct{}, 1), changed: make(chan struct{})}
		content := json.RawMessage(`"` + strings.Repeat("x", size) + `"`)
		header := jupyter.NewHeader("stream", "o", "u")
		put := func() {
			if !b.put(&jupyter.Message{Channel: jupyter.IOPub, Header: header, Content: content}, absentBytes, false) {
				t.Error("the messages do not fit")
			}
		}
		for range messages {
			put()
		}
		var served sync.WaitGroup
		defer served.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		transport := pipetest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			served.Add(1)
			defer served.Done()
			hijacked := &gathering{ResponseWriter: w}
			conn, err := upgrader.Upgrade(hijacked, r, nil)
			if err != nil {
				t.Error(err)
				return
			}
			so := &socket{server: &Server{ping: time.Hour}, session: "s", conn: conn, writes: hijacked.conn, buffer: b, ctx: ctx, shut: cancel}
			so.write()
		}))
		conn, res, err := (&websocket.Dialer{NetDialContext: transport.DialContext}).DialContext(ctx, "ws://sandbox", nil)
		must.Do(t, err)
		defer conn.Close()
		defer res.Body.Close()
		must.Do(t, conn.SetReadDeadline(patience.Deadline()))
		var asked, want []uint64
		last := errors.New("the last message was asked about")
		conn.SetPingHandler(func(payload string) error {
			position := binary.BigEndian.Uint64([]byte(payload))
			if asked = append(asked, position); position > messages {
				return last
			}
			if position == messages && asked[max(0, len(asked)-2)] != messages {
				for range 2 { // without a message, there is nothing to ask about
					b.poke()
					patience.Until(t, "the token to be taken", func() bool { return len(b.wake) == 0 })
				}
				put()
			}
			return nil
		})
		bytes := 0
		for n := uint64(1); ; n++ {
			var data []byte
			if _, data, err = conn.ReadMessage(); err != nil {
				break
			}
			if bytes += len(data); bytes > unconfirmed || n >= messages {
				want, bytes = append(want, n), 0
			}
		}
		must.Is(t, err, last)
		if !slices.Equal(asked, want) || len(want) < 3 {
			t.Errorf("asked after the messages %d, want %d", asked, want)
		}
	})
}

// TestRefusalOfARequest checks the two messages that clients wait for after a request that is not
// supported: a complete reply on the channel of the request, and then that the kernel is idle.
func TestRefusalOfARequest(t *testing.T) {
	t.Parallel()
	for _, channel := range []string{jupyter.Shell, jupyter.Control} {
		b := &sessionBuffer{own: "o", wake: make(chan struct{}, 1), changed: make(chan struct{})}
		so := &socket{buffer: b}
		request := &jupyter.Message{Channel: channel, Header: jupyter.NewHeader("debug_request", "c", "u")}
		so.refuse(request, errors.New("no debugger"))
		reply := map[string]any{"status": "error", "ename": "KernelError", "evalue": "no debugger", "traceback": []any{"no debugger"}, "execution_count": 0.0}
		want := []struct {
			channel, msgType string
			content          map[string]any
		}{
			{channel, "debug_reply", reply},
			{jupyter.IOPub, "status", map[string]any{"execution_state": "idle"}},
		}
		if len(b.messages) != len(want) {
			t.Fatalf("%s: got %d messages, want %d", channel, len(b.messages), len(want))
		}
		for i, m := range b.messages {
			var content map[string]any
			must.Do(t, json.Unmarshal(m.Content, &content))
			if m.Channel != want[i].channel || m.Header.MsgType != want[i].msgType || m.Parent.MsgID != request.Header.MsgID ||
				!reflect.DeepEqual(content, want[i].content) {
				t.Errorf("%s: got %s on %s to %q: %v, want %v to %q", channel, m.Header.MsgType, m.Channel, m.Parent.MsgID, content, want[i], request.Header.MsgID)
			}
		}
	}
}
