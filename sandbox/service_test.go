package sandbox

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"

	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/gen/process/processconnect"
	"github.com/e2bctl/e2bctl/internal/jupyter/jupytertest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/internal/pipetest"
)

const (
	testKey     = "e2b_00000000"
	testID      = "i1234567890"
	testContext = "c0ffee00-0000-4000-8000-000000000000"
)

// service is a service with one sandbox over real HTTP. A test sets the parts it
// needs; nil parts answer that they do not exist.
type service struct {
	processconnect.UnimplementedProcessHandler
	t         testing.TB
	url       string
	transport http.RoundTripper // nil: the usual one

	start         func(ctx context.Context, r *process.StartRequest, s *connect.ServerStream[process.StartResponse]) error
	connect       func(ctx context.Context, r *process.ConnectRequest, s *connect.ServerStream[process.ConnectResponse]) error
	list          []*process.ProcessInfo
	input         func(r *process.SendInputRequest)
	update        func(r *process.UpdateRequest)
	daemonVersion string
	files         http.HandlerFunc
	execute       http.HandlerFunc
	contexts      http.HandlerFunc                              // instead of the two that there are
	raw           func(http.ResponseWriter, *http.Request) bool // of the daemon, before the usual answers: it says whether it answered
	kernel        func(k *jupytertest.Kernel)                   // serves one websocket
	socket        http.HandlerFunc                              // serves one websocket from the upgrade on; instead of kernel
	rest          http.HandlerFunc                              // of Jupyter
	control       http.HandlerFunc                              // of the API, before the usual answers; it may write nothing
	other         http.HandlerFunc                              // of the ports of the user; nil: each answers at once

	processes http.Handler

	mu      sync.Mutex
	calls   []string // "METHOD /path body"
	signals []uint32
	closed  int // inputs of commands that were closed
	gone    bool
	headers http.Header // of the last request to a port
	starter string      // the user of the last start of a command
}

func newService(t testing.TB) *service {
	t.Helper()
	s := &service{t: t}
	_, s.processes = processconnect.NewProcessHandler(s)
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

// newPipedService is newService for a bubble of synctest.
func newPipedService(t testing.TB) *service {
	t.Helper()
	s := &service{t: t, url: "http://service.invalid"}
	_, s.processes = processconnect.NewProcessHandler(s)
	s.transport = pipetest.Serve(t, s)
	return s
}

// client returns a client of the service.
func (s *service) client(opts ...ClientOption) *Client {
	s.t.Helper()
	usual := []ClientOption{WithAPIKey(testKey), WithAPIURL(s.url), WithSandboxURL(s.url), WithDomain("test.invalid"), WithMaxRetries(0)}
	if s.transport != nil {
		usual = append(usual, WithTransport(s.transport))
	}
	c, err := NewClient(append(usual, opts...)...)
	must.Do(s.t, err)
	bodies := &openBodies{RoundTripper: c.http.Transport}
	c.http.Transport = bodies
	s.t.Cleanup(func() {
		c.Close()
		patience.Until(s.t, "every answer of a port has been closed", func() bool { return bodies.n.Load() == 0 })
	})
	return c
}

// openBodies is a transport that counts the answers that were not closed.
type openBodies struct {
	http.RoundTripper
	n atomic.Int64
}

func (o *openBodies) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := o.RoundTripper.RoundTrip(r)
	if err != nil || answer.StatusCode == http.StatusSwitchingProtocols {
		return answer, err
	}
	o.n.Add(1)
	answer.Body = &openBody{answer.Body, sync.OnceFunc(func() { o.n.Add(-1) })}
	return answer, nil
}

type openBody struct {
	io.ReadCloser
	closed func()
}

func (o *openBody) Close() error {
	o.closed()
	return o.ReadCloser.Close()
}

// sandbox creates a sandbox that is closed at the end of the test.
func (s *service) sandbox(opts ...CreateOption) *Sandbox {
	s.t.Helper()
	sb, err := s.client().Create(s.t.Context(), opts...)
	must.Do(s.t, err)
	s.t.Cleanup(func() {
		// Close may fail because the service refuses requests, but every call must have ended.
		if err := sb.Close(); err != nil && strings.Contains(err.Error(), "calls in flight") {
			s.t.Error(err)
		}
	})
	return sb
}

// seen returns how often calls with that prefix were made.
func (s *service) seen(prefix string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.calls {
		if strings.HasPrefix(c, prefix) {
			n++
		}
	}
	return n
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	port := r.Header.Get("E2b-Sandbox-Port")
	s.mu.Lock()
	gone := s.gone
	if port != "" {
		s.headers = r.Header.Clone()
	}
	s.mu.Unlock()
	if port == "" {
		s.api(w, r)
		return
	}
	if gone {
		w.WriteHeader(http.StatusBadGateway)
		fmt.Fprintf(w, `{"sandboxId":%q,"message":"The sandbox was not found","code":502}`, r.Header.Get("E2b-Sandbox-Id"))
		return
	}
	switch port {
	case "49983":
		s.daemon(w, r)
	case "49999":
		s.interpreter(w, r)
	case "8888":
		s.jupyter(w, r)
	default:
		if s.other != nil {
			s.other(w, r)
		}
	}
}

func (s *service) api(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	s.mu.Lock()
	s.calls = append(s.calls, r.Method+" "+r.URL.Path+" "+string(body))
	gone := s.gone
	s.mu.Unlock()
	if s.control != nil {
		recorder := httptest.NewRecorder()
		recorder.Code = 0
		s.control(recorder, r)
		if recorder.Code != 0 {
			w.WriteHeader(recorder.Code)
			_, _ = w.Write(recorder.Body.Bytes())
			return
		}
	}
	if gone && !strings.HasSuffix(r.URL.Path, "/sandboxes") {
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"code":404,"message":"Sandbox doesn't exist"}`)
		return
	}
	switch {
	case r.Method == http.MethodDelete:
		s.mu.Lock()
		s.gone = true
		s.mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodPost && (strings.HasSuffix(r.URL.Path, "/sandboxes") || strings.HasSuffix(r.URL.Path, "/connect")):
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"sandboxID":%q,"templateID":"t","clientID":"c","envdVersion":%q,"envdAccessToken":"envdtoken","trafficAccessToken":"traffictoken"}`, testID, cmp.Or(s.daemonVersion, "0.6.13"))
	case r.Method == http.MethodPost:
		w.WriteHeader(http.StatusNoContent)
	default:
		fmt.Fprintf(w, `{"sandboxID":%q,"state":"running","metadata":{"a":"b"}}`, testID)
	}
}

func (s *service) daemon(w http.ResponseWriter, r *http.Request) {
	switch {
	case s.raw != nil && s.raw(w, r):
	case strings.HasPrefix(r.URL.Path, "/process.Process/"):
		s.processes.ServeHTTP(w, r)
	case r.URL.Path == "/health":
		w.WriteHeader(http.StatusNoContent)
	case r.URL.Path == "/envs":
		_, _ = io.WriteString(w, `{"E2B_SANDBOX":"true","PATH":"/bin"}`)
	case r.URL.Path == "/files" && s.files != nil:
		s.files(w, r)
	default:
		http.NotFound(w, r)
	}
}

func (s *service) Start(ctx context.Context, r *connect.Request[process.StartRequest], stream *connect.ServerStream[process.StartResponse]) error {
	if r.Header().Get("Keepalive-Ping-Interval") != "50" {
		s.t.Errorf("Start has no keepalive interval: %v", r.Header())
	}
	s.mu.Lock()
	s.starter, _, _ = (&http.Request{Header: r.Header()}).BasicAuth()
	s.mu.Unlock()
	return s.start(ctx, r.Msg, stream)
}

func (s *service) Connect(ctx context.Context, r *connect.Request[process.ConnectRequest], stream *connect.ServerStream[process.ConnectResponse]) error {
	if s.connect == nil {
		return connect.NewError(connect.CodeNotFound, errors.New("no such process"))
	}
	if r.Header().Get("Keepalive-Ping-Interval") != "50" {
		s.t.Errorf("Connect has no keepalive interval: %v", r.Header())
	}
	return s.connect(ctx, r.Msg, stream)
}

func (s *service) List(context.Context, *connect.Request[process.ListRequest]) (*connect.Response[process.ListResponse], error) {
	return connect.NewResponse(&process.ListResponse{Processes: s.list}), nil
}

func (s *service) Update(_ context.Context, r *connect.Request[process.UpdateRequest]) (*connect.Response[process.UpdateResponse], error) {
	s.update(r.Msg)
	return connect.NewResponse(&process.UpdateResponse{}), nil
}

func (s *service) SendSignal(_ context.Context, r *connect.Request[process.SendSignalRequest]) (*connect.Response[process.SendSignalResponse], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.signals = append(s.signals, r.Msg.GetProcess().GetPid())
	return connect.NewResponse(&process.SendSignalResponse{}), nil
}

func (s *service) SendInput(_ context.Context, r *connect.Request[process.SendInputRequest]) (*connect.Response[process.SendInputResponse], error) {
	s.input(r.Msg)
	return connect.NewResponse(&process.SendInputResponse{}), nil
}

func (s *service) CloseStdin(context.Context, *connect.Request[process.CloseStdinRequest]) (*connect.Response[process.CloseStdinResponse], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed++
	return connect.NewResponse(&process.CloseStdinResponse{}), nil
}

func started(s *connect.ServerStream[process.StartResponse], pid uint32) error {
	return s.Send(&process.StartResponse{Event: &process.ProcessEvent{Event: &process.ProcessEvent_Start{Start: &process.ProcessEvent_StartEvent{Pid: pid}}}})
}

func stdout(s *connect.ServerStream[process.StartResponse], data []byte) error {
	return s.Send(&process.StartResponse{Event: &process.ProcessEvent{Event: &process.ProcessEvent_Data{Data: &process.ProcessEvent_DataEvent{Output: &process.ProcessEvent_DataEvent_Stdout{Stdout: data}}}}})
}

func stderr(s *connect.ServerStream[process.StartResponse], data []byte) error {
	return s.Send(&process.StartResponse{Event: &process.ProcessEvent{Event: &process.ProcessEvent_Data{Data: &process.ProcessEvent_DataEvent{Output: &process.ProcessEvent_DataEvent_Stderr{Stderr: data}}}}})
}

func ended(s *connect.ServerStream[process.StartResponse], code int32, status string) error {
	return s.Send(&process.StartResponse{Event: &process.ProcessEvent{Event: &process.ProcessEvent_End{End: &process.ProcessEvent_EndEvent{ExitCode: code, Exited: code >= 0, Status: status}}}})
}

func (s *service) interpreter(w http.ResponseWriter, r *http.Request) {
	switch {
	case strings.HasPrefix(r.URL.Path, "/contexts") && s.contexts != nil:
		s.contexts(w, r)
	case r.URL.Path == "/contexts" && r.Method == http.MethodGet:
		fmt.Fprintf(w, `[{"id":%q,"language":"python","cwd":"/home/user"},{"id":"b0b","language":"bash","cwd":"/home/user"}]`, testContext)
	case r.URL.Path == "/execute" && s.execute != nil:
		s.execute(w, r)
	default:
		w.WriteHeader(http.StatusBadGateway)
		fmt.Fprintf(w, `{"sandboxId":%q,"message":"The sandbox is running but port is not open","port":49999,"code":502}`, testID)
	}
}

func (s *service) jupyter(w http.ResponseWriter, r *http.Request) {
	if !strings.HasSuffix(r.URL.Path, "/channels") {
		s.mu.Lock()
		s.calls = append(s.calls, r.Method+" "+r.URL.Path)
		s.mu.Unlock()
		if s.rest == nil {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		s.rest(w, r)
		return
	}
	if s.socket != nil {
		s.socket(w, r)
		return
	}
	if s.kernel == nil {
		w.WriteHeader(http.StatusBadGateway)
		fmt.Fprintf(w, `{"sandboxId":%q,"message":"The sandbox is running but port is not open","port":8888,"code":502}`, testID)
		return
	}
	k, err := jupytertest.Upgrade(s.t, w, r)
	if err != nil {
		s.t.Error(err)
		return
	}
	defer k.Socket.Close()
	s.kernel(k)
}
