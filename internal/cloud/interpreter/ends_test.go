//go:build linux

package interpreter

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
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

// closing dials a websocket that serve serves, in a bubble. It returns the number of messages before the close message, and the
// close message.
func closing(t *testing.T, serve http.HandlerFunc) (int, *websocket.CloseError) {
	t.Helper()
	dialer := websocket.Dialer{NetDialContext: pipetest.Serve(t, serve).DialContext}
	conn, res, err := dialer.DialContext(t.Context(), "ws://sandbox/?session_id=s", nil)
	must.Do(t, err)
	defer res.Body.Close()
	defer conn.Close()
	must.Do(t, conn.SetReadDeadline(patience.Deadline()))
	for n := 0; ; n++ {
		if _, _, err = conn.ReadMessage(); err == nil {
			continue
		}
		end, ok := errors.AsType[*websocket.CloseError](err)
		if !ok {
			t.Fatalf("got %v, want a close message", err)
		}
		if n, err := conn.NetConn().Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("after the close message: got %d bytes and %v, want the end of the connection", n, err)
		}
		return n, end
	}
}

// TestConnectionsThatGetNoBuffer checks how a connection ends that cannot serve its kernel, and that it leaves nothing
// behind.
func TestConnectionsThatGetNoBuffer(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		sessions int // that are there, each with a connection that was requested later
		removed  bool
		code     int
		reason   error
	}{
		"the kernel was removed": {0, true, websocket.CloseGoingAway, errRemoved},
		"it was replaced":        {1, false, websocket.CloseGoingAway, errReplaced},
		"no room":                {maxSockets, false, websocket.CloseTryAgainLater, errNoBuffer},
	} {
		synctest.Test(t, func(t *testing.T) {
			sessions := make([]string, tt.sessions)
			if tt.sessions == 1 {
				sessions[0] = "s"
			}
			s, buffers := newBuffers(t, sessions...)
			for _, b := range buffers {
				b.attach(&socket{number: 1 << 20, shut: func() {}})
			}
			k := s.kernels[0]
			if tt.removed {
				s.removeKernel(k)
			}
			n, end := closing(t, func(w http.ResponseWriter, r *http.Request) { s.channels(w, r, k) })
			if n != 0 || end.Code != tt.code || end.Text != tt.reason.Error() {
				t.Errorf("%s: got %d messages and %v, want %d %v", name, n, end, tt.code, tt.reason)
			}
			s.work.Wait()
			if len(s.sockets) != 0 || len(s.buffers) != tt.sessions || !s.mu.TryLock() {
				t.Fatalf("%s: %d connections and %d buffers are left, or the server is locked", name, len(s.sockets), len(s.buffers))
			}
			s.mu.Unlock()
		})
	}
}

// TestLastMessagesOfAConnection checks that a connection that ends sends what waits, and then the reason.
func TestLastMessagesOfAConnection(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		lost   bool
		code   int
		reason string
	}{{false, websocket.CloseGoingAway, ""}, {true, websocket.ClosePolicyViolation, "too slow: messages were lost"}} {
		synctest.Test(t, func(t *testing.T) {
			b := &sessionBuffer{own: "o", wake: make(chan struct{}, 1), changed: make(chan struct{})}
			for range 3 {
				b.put(&jupyter.Message{Channel: jupyter.IOPub, Header: jupyter.NewHeader("stream", "o", "u"), Content: json.RawMessage(`{}`)}, absentBytes, false)
			}
			b.next() // the first one was sent
			n, end := closing(t, func(w http.ResponseWriter, r *http.Request) {
				conn, err := upgrader.Upgrade(w, r, nil)
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.Close()
				so := &socket{conn: conn, buffer: b, ctx: t.Context()}
				so.lost.Store(tt.lost)
				so.end()
			})
			if n != 2 || end.Code != tt.code || end.Text != tt.reason {
				t.Errorf("lost %v: got %d messages and %v, want 2 and %d %s", tt.lost, n, end, tt.code, tt.reason)
			}
		})
	}
}

// TestAnswersWithoutSpace checks that the answers of the server itself wait for an absent client as long as there is
// space, and that the buffer ends then.
func TestAnswersWithoutSpace(t *testing.T) {
	t.Parallel()
	s, buffers := newBuffers(t, "s")
	b := buffers[0]
	b.put(&jupyter.Message{Content: make([]byte, absentBytes-2*messageOverhead)}, absentBytes, false)
	b.answer(&jupyter.Message{})
	if b.closed || len(b.messages) != 2 {
		t.Errorf("closed %v with %d messages, want that the answer waits", b.closed, len(b.messages))
	}
	b.answer(&jupyter.Message{})
	s.work.Wait()
	if !b.closed || len(b.messages) > 0 || len(s.buffers) > 0 {
		t.Errorf("closed %v, %d messages and %d buffers are left, want none", b.closed, len(b.messages), len(s.buffers))
	}
}

// TestBrokenKernels checks the answers about an installed kernel whose description is broken, and about a kernel that
// was closed.
func TestBrokenKernels(t *testing.T) {
	t.Parallel()
	s := withoutPython(t)
	dir := filepath.Join(s.options.Dir, "kernels", "r")
	must.Do(t, os.Mkdir(dir, 0o700))
	must.Do(t, os.WriteFile(filepath.Join(dir, "kernel.json"), []byte(`{`), 0o600))
	must.Do(t, s.kernels[0].Close())
	for _, tt := range []struct {
		handler          http.Handler
		path, body, want string
		status           int
	}{
		{s.Jupyter(), "/api/sessions", `{"path":"p","type":"t","kernel":{"name":"r"}}`, "kernel.json", http.StatusInternalServerError},
		{s.Jupyter(), "/api/kernels", `{"name":"r"}`, "kernel.json", http.StatusInternalServerError},
		{s.Interpreter(), "/contexts", `{"language":"r"}`, "Failed to create context: ", http.StatusInternalServerError},
		{s.Interpreter(), "/execute", `{"code":"1","language":"r"}`, "Failed to create context: ", http.StatusInternalServerError},
		{s.Interpreter(), "/execute", `{"code":"1"}`, kernel.ErrClosed.Error(), http.StatusServiceUnavailable},
	} {
		if answer := ask(tt.handler, "POST", tt.path, tt.body); answer.Code != tt.status || !strings.Contains(answer.Body.String(), tt.want) {
			t.Errorf("%s %s: got %d %s, want %d with %q", tt.path, tt.body, answer.Code, answer.Body, tt.status, tt.want)
		}
	}
	if len(s.kernels) != 1 || len(s.sessions) != 0 {
		t.Errorf("there are %d kernels and %d sessions, want only the default", len(s.kernels), len(s.sessions))
	}
}

// dialing returns a function that opens a websocket to the first kernel of a server, in a bubble.
func dialing(t *testing.T, s *Server) func(query string) *websocket.Conn {
	t.Helper()
	dialer := websocket.Dialer{NetDialContext: pipetest.Serve(t, s.Jupyter()).DialContext}
	return func(query string) *websocket.Conn {
		t.Helper()
		conn, res, err := dialer.DialContext(t.Context(), "ws://sandbox/api/kernels/"+s.DefaultID()+"/channels"+query, nil)
		must.Do(t, err)
		must.Do(t, res.Body.Close())
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
}

// TestSameSessionReplacesTheConnection checks that a connection takes the place of the one that its session has, and of
// no other.
func TestSameSessionReplacesTheConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := withoutPython(t)
		dial := dialing(t, s)
		first := dial("?session_id=a")
		dial("?session_id=b")
		second := dial("?session_id=a")
		var err error
		for err == nil {
			_, _, err = first.ReadMessage()
		}
		synctest.Wait()
		if n := s.connections(s.kernels[0]); !websocket.IsCloseError(err, websocket.CloseGoingAway) || n != 2 || len(s.buffers) != 2 {
			t.Errorf("the first connection ended with %v, and %d connections and %d buffers are left, want 2", err, n, len(s.buffers))
		}
		must.Do(t, second.WriteMessage(websocket.TextMessage, []byte(`{"channel":"control","header":{"msg_id":"m","msg_type":"debug_request"},"content":{}}`)))
		for {
			_, data, err := second.ReadMessage()
			must.Do(t, err)
			if strings.Contains(string(data), "debug_reply") {
				break
			}
		}
	})
}

// TestMalformedMessageEndsTheConnection checks the end of a connection whose client sends what is no message.
func TestMalformedMessageEndsTheConnection(t *testing.T) {
	t.Parallel()
	for _, frame := range []string{"{", `{"channel":"nowhere","header":{}}`, `{"channel":"shell","header":{}}`} {
		synctest.Test(t, func(t *testing.T) {
			s := withoutPython(t)
			conn := dialing(t, s)("")
			began := time.Now()
			must.Do(t, conn.WriteMessage(websocket.TextMessage, []byte(frame)))
			var err error
			for err == nil {
				_, _, err = conn.ReadMessage()
			}
			if !websocket.IsCloseError(err, websocket.CloseInvalidFramePayloadData) || time.Since(began) >= pingInterval {
				t.Errorf("%s: got %v after %v, want a close message about it", frame, err, time.Since(began))
			}
		})
	}
}

// TestUnansweredPings checks after how many pings without an answer a connection ends, and that each answer counts.
func TestUnansweredPings(t *testing.T) {
	t.Parallel()
	for every, took := range map[int]time.Duration{1: time.Hour, maxPings: time.Hour, maxPings + 1: (maxPings + 1) * pingInterval} {
		synctest.Test(t, func(t *testing.T) {
			s := withoutPython(t)
			began := time.Now()
			conn := dialing(t, s)("")
			var err error
			pings, answer := 0, conn.PingHandler()
			conn.SetPingHandler(func(payload string) error {
				if pings++; pings%every != 0 {
					return nil
				}
				return answer(payload)
			})
			time.AfterFunc(time.Hour, func() { must.Do(t, s.Close()) })
			for err == nil {
				_, _, err = conn.ReadMessage()
			}
			if got := time.Since(began); got != took || websocket.IsCloseError(err, websocket.CloseGoingAway) != (took == time.Hour) {
				t.Errorf("each %d. ping is answered: the connection ended after %v with %v, want after %v", every, got, err, took)
			}
			synctest.Wait()
			if len(s.sockets) > 0 || len(s.buffers) > 0 {
				t.Errorf("%d connections and %d buffers are left", len(s.sockets), len(s.buffers))
			}
		})
	}
}

// timedOut reports whether a read ended at its deadline.
func timedOut(err error) bool {
	e, ok := errors.AsType[net.Error](err)
	return ok && e.Timeout()
}

// TestLargestMessage checks that a message over the bound ends the connection when it begins.
func TestLargestMessage(t *testing.T) {
	t.Parallel()
	for beyond, ends := range map[uint64]bool{0: false, 1: true} {
		synctest.Test(t, func(t *testing.T) {
			conn := dialing(t, withoutPython(t))("")
			head := append([]byte{0x82, 0x80 | 127}, binary.BigEndian.AppendUint64(nil, maxMessage+beyond)...) // of a binary message with a mask
			_, err := conn.NetConn().Write(append(head, 0, 0, 0, 0))
			must.Do(t, err)
			must.Do(t, conn.SetReadDeadline(time.Now().Add(time.Second)))
			for err == nil {
				_, _, err = conn.ReadMessage()
			}
			if ended := websocket.IsCloseError(err, websocket.CloseMessageTooBig); ended != ends || !ended && !timedOut(err) {
				t.Errorf("%d bytes beyond the bound: got %v, want the end: %v", beyond, err, ends)
			}
		})
	}
}

// TestAcknowledgements checks that what a client has received is forgotten, and that a client that does not read does not
// hold up the end of the server.
func TestAcknowledgements(t *testing.T) {
	t.Parallel()
	for _, query := range []string{"", "?session_id=a"} {
		synctest.Test(t, func(t *testing.T) {
			s := withoutPython(t)
			conn := dialing(t, s)(query)
			must.Do(t, conn.WriteControl(websocket.PongMessage, []byte("x"), time.Now().Add(time.Second))) // which answers no ping
			must.Do(t, conn.WriteMessage(websocket.TextMessage, []byte(`{"channel":"control","header":{"msg_id":"m","msg_type":"debug_request"},"content":{}}`)))
			must.Do(t, conn.SetReadDeadline(time.Now().Add(time.Second)))
			n, err := 0, error(nil)
			for ; err == nil; n++ {
				_, _, err = conn.ReadMessage()
			}
			if !timedOut(err) || n < 4 {
				t.Errorf("got %d messages and %v, want 3 at least", n-1, err)
			}
			b := s.buffers[0]
			if position, pending := b.position(); len(b.messages) > 0 || pending || position < 3 || b.bytes != 0 {
				t.Errorf("%q: %d messages of %d bytes are kept at the position %d, want none", query, len(b.messages), b.bytes, position)
			}
			b.put(&jupyter.Message{Channel: jupyter.IOPub, Header: jupyter.NewHeader("stream", "o", "u"), Content: json.RawMessage(`{}`)}, absentBytes, false)
			synctest.Wait() // it is being written
			began := time.Now()
			must.Do(t, s.Close())
			if took := time.Since(began); took != farewell {
				t.Errorf("%q: the end took %v, want %v", query, took, farewell)
			}
		})
	}
}

// TestHeadersComeAtOnce checks that a request is answered before its code runs, and that nothing of it is left at the end.
func TestHeadersComeAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, release := withoutPython(t), make(chan struct{})
		s.options.Environ = func() ([]string, error) {
			<-release // the request lasts until then
			return nil, errors.New("no environment")
		}
		k, err := s.addKernel(&runningKernel{})
		must.Do(t, err)
		w, done := httptest.NewRecorder(), false
		go func() {
			s.stream(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/execute", nil), k, "1", nil)
			done = true
		}()
		synctest.Wait()
		if !w.Flushed || w.Code != http.StatusOK || done || k.Connections() != 1 {
			t.Errorf("flushed %v with %d, done %v, %d clients; want the headers", w.Flushed, w.Code, done, k.Connections())
		}
		close(release)
		synctest.Wait()
		if !done || k.Connections() != 0 || !strings.HasSuffix(w.Body.String(), "{\"type\": \"end_of_execution\"}\n") {
			t.Errorf("done %v with %d clients: got %s, want the end", done, k.Connections(), w.Body)
		}
	})
}

// TestClientThatGoesAway checks that a request goes on until its code has heeded an interrupt, or the last one is sent.
func TestClientThatGoesAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, release := withoutPython(t), make(chan struct{})
		s.options.Environ = func() ([]string, error) {
			<-release // the request lasts until then
			return nil, errors.New("no environment")
		}
		k, err := s.addKernel(&runningKernel{})
		must.Do(t, err)
		ctx, leave := context.WithCancel(t.Context())
		w, done, began := httptest.NewRecorder(), make(chan struct{}), time.Now()
		time.AfterFunc(time.Minute, leave)
		go func() {
			defer close(done)
			s.stream(w, httptest.NewRequestWithContext(ctx, http.MethodPost, "/execute", nil), k, "1", nil)
		}()
		<-done
		if took := time.Since(began); took != time.Minute+interrupts*interruptPause || k.Connections() != 0 || w.Body.Len() > 0 {
			t.Errorf("it ended after %v with %d clients and %q, want %v of interrupts", took, k.Connections(), w.Body, interrupts*interruptPause)
		}
		close(release)
	})
}

// TestWhoStartsKernels checks which calls start the process of a kernel before its first request.
func TestWhoStartsKernels(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		port, method, path, body string
		starts                   bool
	}{
		{"interpreter", "POST", "/contexts", `{}`, true},
		{"jupyter", "POST", "/api/kernels", `{}`, true},
		{"jupyter", "POST", "/api/sessions", `{"path":"p","type":"t"}`, true},
		{"jupyter", "GET", "/api/kernels", ``, false},
	} {
		s := withoutPython(t)
		h := s.Jupyter()
		if tt.port == "interpreter" {
			h = s.Interpreter()
		}
		ask(h, tt.method, tt.path, tt.body)
		s.work.Wait()
		kernels := s.listKernels()
		if state, _ := kernels[len(kernels)-1].State(); (state == jupyter.StateDead) != tt.starts { // its start has failed
			t.Errorf("%s %s: the state is %s, want that it was started: %v", tt.method, tt.path, state, tt.starts)
		}
	}
}
