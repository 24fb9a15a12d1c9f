//go:build linux

package realservice

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/envd"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// The key and tokens that the service accepts, and its only sandbox. The ids have
// the form of the real service's ids.
const (
	APIKey       = "e2b_00000000"
	SandboxID    = "i1real2service3"
	accessToken  = "envdtoken"
	trafficToken = "traffictoken"
)

// Service is a running service with one sandbox, [SandboxID]. A request to create a sandbox also
// returns this sandbox.
type Service struct {
	// URL is the address of the API and of the sandbox's ports. The headers E2b-Sandbox-Id and
	// E2b-Sandbox-Port distinguish requests to the API from requests to the ports.
	URL string
	// Home is the directory on this machine that stands for /home/user.
	Home string

	daemon, interpreter, kernels http.Handler

	mu     sync.Mutex
	closed map[string]bool // the ports on which no program listens
	gone   bool
}

// Start starts a service, which ends with the test. Starting takes seconds, so tests should share a
// service if they can. If Python or the packages are missing, the test is skipped, but with CI=true
// it fails.
func Start(t testing.TB) *Service {
	t.Helper()
	home := t.TempDir()
	server := startJupyter(t, home)
	daemon, err := envd.New(envd.Options{
		Users: []envd.User{account("user", home), account("root", home)},
		Token: accessToken, Path: os.Getenv("PATH"), Scratch: t.TempDir(),
		System: map[string]string{"E2B_SANDBOX": "true", "E2B_SANDBOX_ID": SandboxID, "E2B_TEMPLATE_ID": "code-interpreter-v1"},
	})
	if err != nil {
		t.Fatalf("start envd: %v", err)
	}
	t.Cleanup(func() {
		if err := daemon.Close(); err != nil {
			t.Errorf("close envd: %v", err)
		}
	})
	s := &Service{Home: home, daemon: daemon.Handler(), closed: map[string]bool{}}
	ctx, cancel := context.WithCancel(context.Background())
	code := &interpreter{jupyter: server, home: home, ctx: ctx, kernels: map[string]*kernel{}, languages: map[string]string{}, envs: s.envs}
	t.Cleanup(func() {
		cancel()
		code.close()
	})
	if err := code.start(t.Context()); err != nil {
		t.Fatalf("make the first context: %v", err)
	}
	s.interpreter = code.handler()
	s.kernels = &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: "localhost"}) },
		Transport: server.client.Transport,
	}
	front := httptest.NewServer(s)
	t.Cleanup(func() {
		front.CloseClientConnections()
		front.Close()
	})
	s.URL = front.URL
	return s
}

// account returns the account of a user of the sandbox. Its processes always run as the user
// of the tests.
func account(name, home string) envd.User {
	return envd.User{Name: name, UID: uint32(os.Getuid()), GID: uint32(os.Getgid()), Home: home, Shell: "/bin/bash"}
}

// ClosePort makes the service answer as if no program listened on a port. If the port is that of
// the kernels, the SDK then does not use their websockets.
func (s *Service) ClosePort(port string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed[port] = true
}

// envs returns envd's answer to the interpreter's request for the variables. If envd refuses the
// request, envs returns the fields of the refusal as variables, because the real interpreter makes
// this mistake, too.
func (s *Service) envs(token string) map[string]string {
	request := httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/envs", nil)
	request.Header.Set("X-Access-Token", token)
	recorder := httptest.NewRecorder()
	s.daemon.ServeHTTP(recorder, request)
	var fields map[string]any
	_ = json.Unmarshal(recorder.Body.Bytes(), &fields) // envd writes JSON
	envs := map[string]string{}
	for name, value := range fields {
		if text, ok := value.(string); ok {
			envs[name] = text
		}
	}
	return envs
}

func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id, port := r.Header.Get("E2b-Sandbox-Id"), r.Header.Get("E2b-Sandbox-Port")
	s.mu.Lock()
	gone, closed := s.gone || id != SandboxID, s.closed[port]
	s.mu.Unlock()
	to := map[string]http.Handler{"49983": s.daemon, "49999": s.interpreter, "8888": s.kernels}[port]
	switch {
	case id == "" && port == "":
		s.control(w, r)
	case gone:
		routed(w, map[string]any{"sandboxId": id, "message": "The sandbox was not found", "code": http.StatusBadGateway})
	case port != "49983" && r.Header.Get("E2b-Traffic-Access-Token") != trafficToken:
		routed(w, map[string]any{"sandboxId": id, "message": "Sandbox is secured with traffic access token. Token header 'e2b-traffic-access-token' is missing", "code": http.StatusForbidden})
	case closed || to == nil:
		routed(w, map[string]any{"sandboxId": id, "message": "The sandbox is running but port is not open", "port": json.Number(port), "code": http.StatusBadGateway})
	default:
		to.ServeHTTP(w, r)
	}
}

// routed writes an answer of the service's router, the part that passes requests on to sandboxes.
// The status is the code in body.
func routed(w http.ResponseWriter, body map[string]any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(body["code"].(int))
	_ = json.NewEncoder(w).Encode(body) // the client may be gone
}

// control is the part of the API that a handle needs.
func (s *Service) control(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	create := r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/sandboxes")
	known := strings.Contains(r.URL.Path, "/sandboxes/"+SandboxID)
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.Header.Get("X-Api-Key") != APIKey:
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"code":401,"message":"Invalid API key"}`)
	case !create && (!known || s.gone):
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"code":404,"message":"Sandbox doesn't exist"}`)
	case create, strings.HasSuffix(r.URL.Path, "/connect"):
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(map[string]any{ // the client may be gone
			"sandboxID": SandboxID, "templateID": "code-interpreter-v1", "clientID": "c", "envdVersion": protocol.EnvdVersion,
			"envdAccessToken": accessToken, "trafficAccessToken": trafficToken,
		})
	case r.Method == http.MethodDelete:
		s.gone = true
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodPost:
		w.WriteHeader(http.StatusNoContent)
	default:
		_ = json.NewEncoder(w).Encode(map[string]any{"sandboxID": SandboxID, "state": "running"}) // the client may be gone
	}
}
