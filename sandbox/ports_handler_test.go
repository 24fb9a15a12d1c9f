package sandbox

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/gorilla/websocket"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/clienttest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// echo serves a websocket that returns each message.
func echo(w http.ResponseWriter, r *http.Request) {
	upgrader := websocket.Upgrader{CheckOrigin: func(*http.Request) bool { return true }}
	conn, err := upgrader.Upgrade(w, r, http.Header{"X-Answer": {"a"}})
	if err != nil {
		return
	}
	defer conn.Close()
	for {
		kind, message, err := conn.ReadMessage()
		if err != nil || conn.WriteMessage(kind, message) != nil {
			return
		}
	}
}

// checkEcho checks that a connection to echo returns a message.
func checkEcho(t *testing.T, conn *websocket.Conn) {
	t.Helper()
	must.Do(t, conn.SetReadDeadline(patience.Deadline()))
	must.Do(t, conn.WriteMessage(websocket.TextMessage, []byte("text")))
	if _, got, err := conn.ReadMessage(); err != nil || string(got) != "text" {
		t.Errorf("got %q and error %v, want the same message", got, err)
	}
}

// TestDialWebsocket checks the request of a handshake, its answer, and the error of each refusal.
func TestDialWebsocket(t *testing.T) {
	t.Parallel()
	refuse := func(status int, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status); _, _ = io.WriteString(w, text) }
	}
	for name, tt := range map[string]struct {
		answer http.HandlerFunc
		path   string // the default is /p
		closed bool   // the handle
		ended  bool   // the context
		want   []error
		text   string
		status int
		body   string
	}{
		"open":            {answer: echo, status: 101},
		"without a slash": {answer: echo, path: "p?q=1", status: 101},
		"a closed port":   {answer: func(w http.ResponseWriter, _ *http.Request) { refusePort(w, port3000) }, want: []error{ErrPortClosed}, text: "nothing listens on port 3000", status: 502, body: `{"sandboxId":"` + testID + `","message":"m","code":502` + port3000 + `}`},
		"gone":            {answer: func(w http.ResponseWriter, _ *http.Request) { refusePort(w, "") }, want: []error{ErrGone}, text: "gone", status: 502, body: `{"sandboxId":"` + testID + `","message":"m","code":502}`},
		"its own 502":     {answer: refuse(502, "down"), want: []error{websocket.ErrBadHandshake}, text: "down", status: 502, body: "down"},
		"forbidden":       {answer: refuse(403, `{"message":"not you"}`), path: "/p?secret", want: []error{websocket.ErrBadHandshake, api.ErrForbidden}, text: "api: GET /p: 403: not you", status: 403, body: `{"message":"not you"}`},
		"broken":          {answer: func(w http.ResponseWriter, _ *http.Request) { cut(w) }, path: "/p?secret", want: []error{api.ErrRetryable}, text: "api: GET /p: no answer"},
		"a closed handle": {closed: true, want: []error{ErrClosed}, text: testID},
		"too late":        {ended: true, want: []error{context.Canceled}, text: testID},
	} {
		s := newService(t)
		s.other = func(w http.ResponseWriter, r *http.Request) {
			got := []string{r.URL.Path, r.Header.Get("X-Own"), r.Header.Get("E2b-Sandbox-Port"), r.Header.Get("E2b-Traffic-Access-Token")}
			if !slices.Equal(got, []string{"/p", "own", "3000", "traffictoken"}) || r.UserAgent() == "" {
				t.Errorf("%s: got the request %s with %v", name, r.URL, r.Header)
			}
			tt.answer(w, r)
		}
		sb := s.sandbox()
		if tt.closed {
			must.Do(t, sb.Close())
		}
		ctx, cancel := context.WithCancel(patience.Context(t))
		if tt.ended {
			cancel()
		}
		path := tt.path
		if path == "" {
			path = "/p"
		}
		own := http.Header{"X-Own": {"own"}}
		conn, response, err := sb.DialWebsocket(ctx, 3000, path, own)
		cancel() // it limits only the handshake
		if len(own) != 1 {
			t.Errorf("%s: the caller's header was changed: %v", name, own)
		}
		opened, status := tt.want == nil, 0
		if response != nil {
			status = response.StatusCode
		}
		if (conn != nil) != opened || (err == nil) != opened || status != tt.status {
			t.Fatalf("%s: got %v, %v and error %v, want status %d", name, conn, response, err, tt.status)
		}
		if conn != nil {
			checkEcho(t, conn)
			must.Do(t, conn.Close())
			continue
		}
		for _, want := range tt.want {
			if !errors.Is(err, want) || !strings.Contains(err.Error(), tt.text) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: got error %v, want %v with %q", name, err, want, tt.text)
			}
		}
		if response == nil {
			continue
		}
		if body, err := io.ReadAll(response.Body); err != nil || string(body) != tt.body {
			t.Errorf("%s: the answer has %q and error %v, want %q", name, body, err, tt.body)
		}
	}
}

// TestHandler checks the requests and answers that a handler passes on.
func TestHandler(t *testing.T) {
	t.Parallel()
	s := newService(t)
	sb := s.sandbox()
	handler := sb.Handler(3000)
	s.other = func(_ http.ResponseWriter, r *http.Request) {
		got := []string{r.Method, r.RequestURI, r.Header.Get("X-Forwarded-Host"), r.Header.Get("X-Forwarded-For"), r.Header.Get("X-Forwarded-Proto"), r.Header.Get("Cookie")}
		if diff := cmp.Diff([]string{"PUT", "/a%2Fb/../c?x=1;y=%zz", "outside.test", "192.0.2.1", "http", "a=b"}, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPut, "http://outside.test/a%2Fb/../c?x=1;y=%zz", nil)
	r.Header.Set("Cookie", "a=b")
	r.Header.Set("X-Forwarded-For", "203.0.113.1") // of a client that lies
	handler.ServeHTTP(httptest.NewRecorder(), r)
	for location, want := range map[string]string{
		"": "", "/p": "/p", "p?q": "p?q", "http://localhost:3000/p?q#f": "/p?q#f", "http://localhost:3000": "/", sb.URL(3000) + "//evil.test/p": "/evil.test/p",
		"http://u:p@127.0.0.1:3000/p": "/p", "http://localhost:3001/p": "http://localhost:3001/p", "http://other.test/p": "http://other.test/p", "http://%zz": "http://%zz",
	} {
		s.other = func(w http.ResponseWriter, _ *http.Request) {
			if location != "" {
				w.Header().Set("Location", location)
			}
			w.WriteHeader(http.StatusFound)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://outside.test/", nil))
		if got := w.Header().Get("Location"); got != want || w.Code != http.StatusFound {
			t.Errorf("%q: got status %d and %q, want %q", location, w.Code, got, want)
		}
	}
	s.other = echo
	outside := httptest.NewServer(handler)
	defer outside.Close()
	conn, response, err := websocket.DefaultDialer.DialContext(patience.Context(t), "ws"+strings.TrimPrefix(outside.URL, "http"), nil)
	must.Do(t, err)
	defer conn.Close()
	if response.Header.Get("X-Answer") != "a" {
		t.Errorf("got the answer %v", response.Header)
	}
	checkEcho(t, conn)
	more := make(chan struct{})
	s.other = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "2")
		_, _ = io.WriteString(w, "a")
		_ = http.NewResponseController(w).Flush()
		<-more
		_, _ = io.WriteString(w, "b")
	}
	defer close(more)
	streamed, err := http.NewRequestWithContext(patience.Context(t), http.MethodGet, outside.URL, nil)
	must.Do(t, err)
	answer, err := clienttest.New(t).Do(streamed)
	must.Do(t, err)
	defer answer.Body.Close()
	if piece, err := io.ReadAll(io.LimitReader(answer.Body, 1)); err != nil || string(piece) != "a" {
		t.Errorf("got %q and error %v, want a piece while the answer goes on", piece, err)
	}
}

// TestHandlerFails checks the answers of a handler whose sandbox does not answer, and that only the log has the reason.
func TestHandlerFails(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		answer func(http.ResponseWriter)
		closed bool // the handle
		left   bool // the client of the handler
		want   string
		logged string
	}{
		"closed port":   {answer: func(w http.ResponseWriter) { refusePort(w, port3000) }, want: "Nothing listens on port 3000 of the sandbox.\n", logged: "nothing listens on port 3000"},
		"gone":          {answer: func(w http.ResponseWriter) { refusePort(w, "") }, want: "The sandbox does not answer.\n", logged: "gone"},
		"broken":        {answer: cut, want: "The sandbox does not answer.\n", logged: "api: GET /"},
		"closed handle": {closed: true, want: "The sandbox does not answer.\n", logged: ErrClosed.Error()},
		"nobody waits":  {left: true, want: "The sandbox does not answer.\n"},
	} {
		s := newService(t)
		s.other = func(w http.ResponseWriter, _ *http.Request) { tt.answer(w) }
		var log bytes.Buffer
		sb, err := s.client(WithLogger(slog.New(slog.NewTextHandler(&log, nil)))).Create(t.Context())
		must.Do(t, err)
		defer sb.Close()
		handler := sb.Handler(3000)
		if tt.closed {
			must.Do(t, sb.Close())
		}
		ctx, cancel := context.WithCancel(t.Context())
		if tt.left {
			cancel()
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "http://outside.test/", nil))
		cancel()
		if w.Code != http.StatusBadGateway || w.Body.String() != tt.want {
			t.Errorf("%s: got status %d and %q, want %q", name, w.Code, w.Body, tt.want)
		}
		text := log.String()
		warned := strings.Contains(text, "sandbox="+testID+" port=3000") && strings.Contains(text, "level=WARN")
		if warned != (tt.logged != "") || (text != "") != warned || !strings.Contains(text, tt.logged) {
			t.Errorf("%s: got the log %q, want a warning with %q", name, text, tt.logged)
		}
	}
}
