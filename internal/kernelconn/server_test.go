package kernelconn

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/gorilla/websocket"
	"go.uber.org/goleak"

	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/jupyter/jupytertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	testSandbox = "i1234567890"
	testContext = "c0ffee"
)

// server is a [Server] with one context, of Python. A test sets the parts it needs.
type server struct {
	t      testing.TB
	url    string
	kernel func(*jupytertest.Kernel)                            // serves one websocket
	answer func(method, path string) (answer string, err error) // to a request that is not for the contexts; an empty answer is null
}

func newServer(t testing.TB) *server {
	t.Helper()
	s := &server{t: t}
	sockets := httptest.NewServer(s)
	t.Cleanup(sockets.Close)
	s.url = "ws" + strings.TrimPrefix(sockets.URL, "http")
	return s
}

// kernels returns the kernels of a handle that is closed at the end of the test.
func (s *server) kernels(envs map[string]string) *Kernels {
	s.t.Helper()
	var background sync.WaitGroup
	ks := New(Options{
		SandboxID: testSandbox, Server: s, Logger: slog.New(slog.DiscardHandler), Envs: envs,
		Background: func(ctx context.Context, do func(context.Context)) {
			background.Go(func() { do(context.WithoutCancel(ctx)) })
		},
	})
	s.t.Cleanup(func() {
		ks.Close()
		background.Wait()
	})
	return ks
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	k, err := jupytertest.Upgrade(s.t, w, r)
	if err != nil {
		s.t.Error(err)
		return
	}
	defer k.Socket.Close()
	s.kernel(k)
}

func (s *server) JSON(_ context.Context, _ int, method, path string, _, out any) error {
	var answer string
	var err error
	switch {
	case path == "/contexts":
		answer = `[{"id":"` + testContext + `","language":"python"}]`
	case s.answer != nil:
		answer, err = s.answer(method, path)
	}
	if err != nil || out == nil {
		return err
	}
	if answer == "" {
		answer = "null"
	}
	return json.Unmarshal([]byte(answer), out)
}

func (s *server) Dial(ctx context.Context, path string) (*jupyter.Conn, error) {
	return jupyter.Dial(ctx, websocket.DefaultDialer, s.url+path, nil)
}

func (s *server) Gone(error) bool { return false }

func (s *server) Prime(context.Context, string) error { return errors.New("it has only Python") }

// run runs code in the default context and returns what it prints.
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
