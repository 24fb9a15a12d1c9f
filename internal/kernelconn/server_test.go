package kernelconn

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"go.uber.org/goleak"

	"github.com/e2bctl/e2bctl/internal/clienttest"
	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/jupyter/jupytertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	testSandbox = "i1234567890"
	testContext = "c0ffee"
)

// server is a [Server] over real HTTP. A test sets the parts it needs.
type server struct {
	t        testing.TB
	url      string
	http     *http.Client
	kernel   func(*jupytertest.Kernel) // serves one websocket
	socket   http.HandlerFunc          // serves one websocket from the upgrade on; instead of kernel
	contexts http.HandlerFunc          // replaces the usual list
	execute  http.HandlerFunc          // of the interpreter
	rest     http.HandlerFunc          // of Jupyter
	settle   func(context.Context) bool
	dialled  func(context.Context)
	gone     func(error) bool
	dialer   *websocket.Dialer
	made     atomic.Pointer[time.Time] // what the last call of Settle was told
	unclosed atomic.Int32              // the answers whose bodies were not closed
}

func newServer(t testing.TB) *server {
	t.Helper()
	s := &server{t: t, http: clienttest.New(t), dialer: websocket.DefaultDialer}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

// kernels returns the kernels of a handle that is closed at the end of the test.
func (s *server) kernels() *Kernels { return s.kernelsOf(Options{}) }

// kernelsOf is like kernels, with options.
func (s *server) kernelsOf(o Options) *Kernels {
	s.t.Helper()
	var background sync.WaitGroup
	o.SandboxID, o.Server = testSandbox, s
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Envs == nil {
		o.Envs = map[string]string{}
	}
	o.Background = func(ctx context.Context, do func(context.Context)) {
		background.Go(func() { do(context.WithoutCancel(ctx)) })
	}
	ks := New(o)
	s.t.Cleanup(func() {
		ks.mu.Lock()
		opened := slices.Collect(maps.Values(ks.open))
		ks.mu.Unlock()
		ks.Close()
		background.Wait()
		s.checkLeft(ks, opened)
	})
	return ks
}

// checkLeft checks that calls that have returned left nothing behind.
func (s *server) checkLeft(ks *Kernels, opened []*Kernel) {
	s.t.Helper()
	for _, k := range opened {
		if n := k.inTurn.Load(); n != 0 || len(k.turn) > 0 || k.unfinished() != nil {
			s.t.Errorf("%d calls are in turn at %s, %d hold it, and the execution in progress is %+v; want none", n, k.id, len(k.turn), k.unfinished())
		}
	}
	for key, turn := range ks.requests {
		if turn.users != 0 || len(turn.held) > 0 {
			s.t.Errorf("%d requests use the turn of %s, and %d hold it; want none", turn.users, key, len(turn.held))
		}
	}
	if len(ks.ending) > 0 || len(ks.opening) > 0 || s.unclosed.Load() != 0 {
		s.t.Errorf("%d gates are shut, %d calls open a connection, and %d answers are open; want none", len(ks.ending), len(ks.opening), s.unclosed.Load())
	}
}

// isFree reports whether a lock is free, or becomes free: a reader of messages may hold it for a moment.
func isFree(mu *sync.Mutex) bool {
	for range 1_000_000 {
		if mu.TryLock() {
			mu.Unlock()
			return true
		}
		runtime.Gosched()
	}
	return false
}

// answerBody is the body of an answer. It records that it was closed.
type answerBody struct {
	io.ReadCloser
	close func()
}

func (b answerBody) Close() error {
	b.close()
	return b.ReadCloser.Close()
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case strings.HasPrefix(r.URL.Path, "/contexts") && s.contexts != nil:
		s.contexts(w, r)
	case r.URL.Path == "/contexts":
		fmt.Fprintf(w, `[{"id":%q,"language":"python"}]`, testContext)
	case r.URL.Path == "/execute":
		s.execute(w, r)
	case !strings.HasSuffix(r.URL.Path, "/channels") && s.rest != nil:
		s.rest(w, r)
	case !strings.HasSuffix(r.URL.Path, "/channels"):
		w.WriteHeader(http.StatusNoContent)
	case s.socket != nil:
		s.socket(w, r)
	default:
		k, err := jupytertest.Upgrade(s.t, w, r)
		if err != nil {
			s.t.Error(err)
			return
		}
		defer k.Socket.Close()
		s.kernel(k)
	}
}

func (s *server) Do(ctx context.Context, _ int, method, path string, body []byte, _ bool) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, s.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	response, err := s.http.Do(r)
	if err != nil {
		return nil, err
	}
	s.unclosed.Add(1)
	response.Body = answerBody{response.Body, sync.OnceFunc(func() { s.unclosed.Add(-1) })}
	return response, nil
}

func (s *server) Dial(ctx context.Context, path string) (*jupyter.Conn, error) {
	if s.dialled != nil {
		s.dialled(ctx)
	}
	return jupyter.Dial(ctx, s.dialer, "ws"+strings.TrimPrefix(s.url, "http")+path, nil)
}

func (s *server) Gone(err error) bool { return s.gone != nil && s.gone(err) }

func (s *server) Settle(ctx context.Context, made time.Time) bool {
	s.made.Store(&made)
	return s.settle != nil && s.settle(ctx)
}

// run runs code in the default context and returns its output.
func run(ctx context.Context, ks *Kernels, code string, h Handler) (printed string, err error) {
	message := h.Message
	h.Message = func(m *jupyter.Message) error {
		if m.Header.MsgType == "stream" {
			_, text, err := jupyter.ParseStream(m.Content)
			if err != nil {
				return err
			}
			printed += string(text)
		}
		if message == nil {
			return nil
		}
		return message(m)
	}
	_, err = ks.Execute(ctx, Call{Request: jupyter.ExecuteRequest{Code: code, StoreHistory: true}, Handler: h})
	return printed, err
}
