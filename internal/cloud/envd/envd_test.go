//go:build linux

package envd

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/e2bctl/e2bctl/internal/cloud/child"
	"github.com/e2bctl/e2bctl/internal/gen/filesystem/filesystemconnect"
	"github.com/e2bctl/e2bctl/internal/gen/process/processconnect"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// daemon is an envd that serves requests.
type daemon struct {
	server  *Server
	url     string
	home    string
	http    *http.Client
	options []connect.ClientOption
}

// serve starts an envd with one user, "me", the user that runs the test.
func serve(t *testing.T, change ...func(*Options)) *daemon {
	t.Helper()
	home := t.TempDir()
	o := Options{
		Users: []User{{Name: "me", UID: uint32(os.Getuid()), GID: uint32(os.Getgid()), Home: home, Shell: "/bin/sh"}},
		Path:  "/usr/local/bin:/usr/bin:/bin",
	}
	for _, c := range change {
		c(&o)
	}
	a, err := New(o)
	must.Do(t, err)
	transport := &http.Transport{DisableCompression: true, DialContext: dialPatiently}
	server := httptest.NewServer(a.Handler())
	t.Cleanup(func() {
		closed := make(chan error, 1)
		go func() { closed <- a.Close() }()
		if err := patience.Receive(t, "the end of every process and watch", closed); err != nil {
			t.Errorf("Close: %v", err)
		}
		transport.CloseIdleConnections()
		go func() {
			server.Close()
			closed <- nil
		}()
		_ = patience.Receive(t, "the end of every request", closed)
		a.wantNothingLeft(t)
	})
	return &daemon{server: a, url: server.URL, home: home, http: &http.Client{Transport: transport}}
}

// patientConn is a client's connection that breaks off if the server sends nothing for patience.Limit. So
// a request that hangs fails in its test.
type patientConn struct{ net.Conn }

func (c patientConn) Read(p []byte) (int, error) {
	if err := c.SetReadDeadline(patience.Deadline()); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

func dialPatiently(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return patientConn{conn}, nil
}

// wantNothingLeft checks that a closed envd counts no processes, no watchers and no kept events.
func (s *Server) wantNothingLeft(t *testing.T) {
	t.Helper()
	ps, ws := s.processes, s.watchers
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.starting != 0 || len(ps.open) != 0 || len(ps.live) != 0 {
		t.Errorf("in the end %d processes are starting, %d open and %d live, want none", ps.starting, len(ps.open), len(ps.live))
	}
	ps.kept.mu.Lock()
	defer ps.kept.mu.Unlock()
	if live, replays, used, left := len(ps.kept.live), ps.kept.replays.Load(), ps.kept.used.Load(), ps.kept.left.Load(); live != 0 || replays != 0 || used != left {
		t.Errorf("in the end %d outputs are live, %d bytes wait to be sent again, and %d bytes are used, %d by ended processes, want all used by these", live, replays, used, left)
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.count != len(ws.polled) || ws.kept.Load() != 0 {
		t.Errorf("in the end %d watchers, of which %d are polled, keep %d bytes, want no others and none", ws.count, len(ws.polled), ws.kept.Load())
	}
}

func (d *daemon) processes(options ...connect.ClientOption) processconnect.ProcessClient {
	return processconnect.NewProcessClient(d.http, d.url, append(options, d.options...)...)
}

func (d *daemon) files(options ...connect.ClientOption) filesystemconnect.FilesystemClient {
	return filesystemconnect.NewFilesystemClient(d.http, d.url, append(options, d.options...)...)
}

// hesitate limits how many bytes of an answer the client takes before the test reads them: the
// client's sockets have small buffers, and answers are not compressed.
func (d *daemon) hesitate(t *testing.T) {
	t.Helper()
	transport := &http.Transport{DisableCompression: true}
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dialPatiently(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return conn, conn.(patientConn).Conn.(*net.TCPConn).SetReadBuffer(64 << 10)
	}
	t.Cleanup(transport.CloseIdleConnections)
	d.http = &http.Client{Transport: transport}
	d.options = []connect.ClientOption{connect.WithAcceptCompression("gzip", nil, nil)}
}

// do sends one request and returns the answer with its whole body.
func (d *daemon) do(t *testing.T, method, target, body string, header ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, d.url+target, strings.NewReader(body))
	must.Do(t, err)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := d.http.Do(req)
	must.Do(t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	must.Do(t, err)
	return res, string(text)
}

func basic(user string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"))
}

// envelope frames one message of a Connect stream.
func envelope(payload string) string {
	n := len(payload)
	return string([]byte{0, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}) + payload
}

func TestNewRefusesBadOptions(t *testing.T) {
	t.Parallel()
	user := User{Name: "me", Home: "/"}
	for name, o := range map[string]Options{
		"no users":             {},
		"unknown default user": {Users: []User{user}, DefaultUser: "you"},
		"bad variable":         {Users: []User{user}, Envs: map[string]string{"A=B": "c"}},
	} {
		if _, err := New(o); err == nil {
			t.Errorf("%s: New succeeded", name)
		}
	}
}

// TestOptions checks that a server has every option, and the defaults of those that are not set.
func TestOptions(t *testing.T) {
	t.Parallel()
	users := []User{{Name: "root", Home: "/root"}, {Name: "me", Home: "/me"}}
	memory := &child.Memory{Limit: 7}
	logger := slog.New(slog.DiscardHandler)
	opened := errors.New("opened")
	all, err := New(Options{
		Users: users, DefaultUser: "me", AnyUser: true, AnyOwner: true, OneUser: "a reason", DefaultWorkdir: "/work", Token: "token",
		System: map[string]string{"A": "system"}, Envs: map[string]string{"A": "created", "B": "created"}, Path: "/bin", Scratch: "/scratch",
		MemoryBytes: 7, CPUs: 3, Memory: memory, MemoryUse: func() (used, cache uint64, known bool) { return 1, 2, true },
		Terminal:    func(context.Context) (controller, tty *os.File, err error) { return nil, nil, opened },
		NoProcesses: "none here", KernelsBusy: func() bool { return true }, Logger: logger,
	})
	must.Do(t, err)
	none, err := New(Options{Users: users})
	must.Do(t, err)
	describe := func(s *Server) map[string]any {
		used, cache, known := s.metrics.memoryUse()
		return map[string]any{
			"users": s.users.list, "default user": s.users.fallback.Name, "any user": s.users.anyUser, "any owner": s.anyOwner, "one user": s.users.single,
			"files": s.users.passwd.file + " " + s.users.group.file, "workdir": s.paths.workdir, "token": s.Token(), "variables": s.sandbox.Load().envs,
			"path": s.path, "scratch": s.scratch, "homes": s.homes, "memory": s.metrics.memory, "processors": s.metrics.cpus, "use": []any{used, cache, known},
			"refusal": fmt.Sprint(s.refusal), "code": connect.CodeOf(s.refusal), "grace": s.processes.grace, "measured since a minute": time.Since(s.metrics.sampled) < time.Minute,
		}
	}
	want := map[string]any{
		"users": users, "default user": "me", "any user": true, "any owner": true, "one user": "a reason",
		"files": "/etc/passwd /etc/group", "workdir": "/work", "token": "token", "variables": map[string]string{"A": "system", "B": "created"},
		"path": "/bin", "scratch": "/scratch", "homes": "/home", "memory": uint64(7), "processors": uint32(3), "use": []any{uint64(1), uint64(2), true},
		"refusal": "unimplemented: none here", "code": connect.CodeUnimplemented, "grace": outputGrace, "measured since a minute": true,
	}
	if diff := cmp.Diff(want, describe(all)); diff != "" {
		t.Errorf("all options (-want +got):\n%s", diff)
	}
	maps.Copy(want, map[string]any{
		"default user": "root", "any user": false, "any owner": false, "one user": none.users.single, "workdir": "", "token": "", "variables": map[string]string{},
		"path": "", "scratch": os.TempDir(), "memory": none.metrics.memory, "processors": uint32(runtime.NumCPU()), "use": []any{uint64(0), uint64(0), false},
		"refusal": "<nil>", "code": connect.CodeUnknown,
	})
	if diff := cmp.Diff(want, describe(none)); diff != "" {
		t.Errorf("no options (-want +got):\n%s", diff)
	}
	if all.processes.memory != memory || all.processes.logger != logger || !all.kernelsBusy() {
		t.Error("the limit of memory, the logger or the kernels are others")
	}
	if _, _, err := all.terminal(t.Context()); !errors.Is(err, opened) {
		t.Errorf("its terminal: got error %v, want %v", err, opened)
	}
	controller, tty, err := none.terminal(t.Context())
	must.Do(t, err)
	must.Do(t, errors.Join(controller.Close(), tty.Close()))
}

// TestNoProcesses checks that the reason why no process can be started reaches a client that starts one.
func TestNoProcesses(t *testing.T) {
	t.Parallel()
	d := serve(t, func(o *Options) { o.NoProcesses = "there is no shell here" })
	s, err := d.processes().Start(t.Context(), connect.NewRequest(shell("true")))
	must.Do(t, err)
	defer s.Close()
	if s.Receive() || connect.CodeOf(s.Err()) != connect.CodeUnimplemented || !strings.Contains(s.Err().Error(), "there is no shell here") {
		t.Errorf("got %v and error %v, want the reason", s.Msg(), s.Err())
	}
}

func TestRoutes(t *testing.T) {
	t.Parallel()
	d := serve(t, func(o *Options) {
		o.Envs = map[string]string{"A": "1", "E2B_SANDBOX": "no"}
		o.System = map[string]string{"E2B_SANDBOX": "true"}
	})
	for _, test := range []struct {
		method, target string
		status         int
		body           string
		header         map[string]string
	}{
		{"GET", "/health", 204, "", map[string]string{"Cache-Control": "no-store", "Content-Type": "", "Vary": "Origin"}},
		{"GET", "/envs", 200, `{"A":"1","E2B_SANDBOX":"true"}` + "\n", map[string]string{"Cache-Control": "no-store"}},
		{"GET", "/nothing", 404, "404 page not found\n", map[string]string{"Content-Type": "text/plain; charset=utf-8"}},
		{"GET", "/process.Process/Nothing", 404, "404 page not found\n", nil},
		{"POST", "/init", 404, "404 page not found\n", nil},
		{"DELETE", "/health", 405, "", map[string]string{"Allow": "GET"}},
		{"HEAD", "/files", 405, "", nil},
		{"GET", "/process.Process/List", 405, "", map[string]string{"Allow": "POST"}},
	} {
		res, body := d.do(t, test.method, test.target, "")
		if res.StatusCode != test.status || body != test.body {
			t.Errorf("%s %s: %d %q, want %d %q", test.method, test.target, res.StatusCode, body, test.status, test.body)
		}
		for key, want := range test.header {
			if got := res.Header.Get(key); got != want {
				t.Errorf("%s %s: %s: %q, want %q", test.method, test.target, key, got, want)
			}
		}
	}
	if res, _ := d.do(t, "HEAD", "/files", ""); len(res.Header.Values("Allow")) != 2 {
		t.Errorf("Allow of /files: %q, want two headers", res.Header.Values("Allow"))
	}
}

func TestCrossOrigin(t *testing.T) {
	t.Parallel()
	d := serve(t, func(o *Options) { o.Token = "secret" })
	res, _ := d.do(t, "OPTIONS", "/process.Process/Start", "", "Origin", "https://example.com",
		"Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "x-access-token,content-type")
	if res.StatusCode != http.StatusNoContent {
		t.Errorf("preflight: %d, want 204", res.StatusCode)
	}
	for key, want := range map[string]string{
		"Access-Control-Allow-Origin":  "*",
		"Access-Control-Allow-Methods": "POST",
		"Access-Control-Allow-Headers": "x-access-token,content-type",
		"Access-Control-Max-Age":       "7200",
	} {
		if got := res.Header.Get(key); got != want {
			t.Errorf("preflight: %s: %q, want %q", key, got, want)
		}
	}
	res, _ = d.do(t, "GET", "/health", "", "Origin", "https://example.com")
	if got := res.Header.Get("Access-Control-Allow-Origin"); got != "*" {
		t.Errorf("Access-Control-Allow-Origin: %q, want *", got)
	}
}

// TestCrossOriginHeaders checks all headers for a browser, and which requests are answered without the handler.
func TestCrossOriginHeaders(t *testing.T) {
	t.Parallel()
	const vary = "Origin, Access-Control-Request-Method, Access-Control-Request-Headers"
	const exposed = "Grpc-Status, Grpc-Message, Grpc-Status-Details-Bin, Location, Cache-Control, X-Content-Type-Options"
	plain := http.Header{"Vary": {"Origin"}}
	open := http.Header{"Vary": {"Origin"}, "Access-Control-Allow-Origin": {"*"}, "Access-Control-Expose-Headers": {exposed}}
	refused := http.Header{"Vary": {vary}}
	for _, tt := range []struct {
		method, origin, wants, names string
		handled                      bool
		want                         http.Header
	}{
		{"GET", "", "", "", true, plain},
		{"GET", "https://a", "", "", true, open},
		{"GET", "https://a", "POST", "", true, open},
		{"OPTIONS", "https://a", "", "", true, open},
		{"OPTIONS", "", "", "", true, plain},
		{"OPTIONS", "", "POST", "", false, refused},
		{"OPTIONS", "https://a", "TRACE", "x-a", false, refused},
		{"OPTIONS", "https://a", "PUT", "", false, http.Header{"Vary": {vary}, "Access-Control-Allow-Origin": {"*"}, "Access-Control-Allow-Methods": {"PUT"}, "Access-Control-Max-Age": {"7200"}}},
		{"OPTIONS", "https://a", "GET", "x-a, x-b", false, http.Header{
			"Vary": {vary}, "Access-Control-Allow-Origin": {"*"}, "Access-Control-Allow-Methods": {"GET"}, "Access-Control-Allow-Headers": {"x-a, x-b"}, "Access-Control-Max-Age": {"7200"},
		}},
	} {
		r := httptest.NewRequestWithContext(t.Context(), tt.method, "/", nil)
		for name, value := range map[string]string{"Origin": tt.origin, "Access-Control-Request-Method": tt.wants, "Access-Control-Request-Headers": tt.names} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		w := httptest.NewRecorder()
		allowCrossOrigin(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })).ServeHTTP(w, r)
		status := http.StatusNoContent
		if tt.handled {
			status = http.StatusTeapot
		}
		if diff := cmp.Diff(tt.want, w.Header()); diff != "" || w.Code != status {
			t.Errorf("%s from %q for %q: got %d, want %d; headers (-want +got):\n%s", tt.method, tt.origin, tt.wants, w.Code, status, diff)
		}
	}
}

func TestToken(t *testing.T) {
	t.Parallel()
	d := serve(t, func(o *Options) { o.Token = "secret" })
	const refusal = `{"code":401,"message":"unauthorized access, please provide a valid access token or method signing if supported"}` + "\n"
	for _, test := range []struct {
		method, target, token, contentType string
		status                             int
	}{
		{"GET", "/health", "", "", 204},
		{"GET", "/envs", "", "", 401},
		{"GET", "/envs", "wrong", "", 401},
		{"GET", "/envs", "secret", "", 200},
		{"POST", "/files/compose", "", "", 401},
		{"POST", "/process.Process/List", "", "application/json", 401},
		{"POST", "/process.Process/Start", "", "application/connect+json", 401},
	} {
		header := []string{"Content-Type", test.contentType}
		if test.token != "" {
			header = append(header, "X-Access-Token", test.token)
		}
		res, body := d.do(t, test.method, test.target, "{}", header...)
		if res.StatusCode != test.status {
			t.Errorf("%s %s with %q: %d, want %d", test.method, test.target, test.token, res.StatusCode, test.status)
		}
		if test.status != 401 {
			continue
		}
		if body != refusal {
			t.Errorf("%s %s: %q, want %q", test.method, test.target, body, refusal)
		}
		if got, want := res.Header.Get("Content-Type"), "application/json; charset=utf-8"; got != want {
			t.Errorf("%s %s: Content-Type %q, want %q", test.method, test.target, got, want)
		}
	}
}

func TestUnknownUser(t *testing.T) {
	t.Parallel()
	d := serve(t)
	const message = `{"code":"unauthenticated","message":"invalid username: 'you'"}`
	for _, test := range []struct {
		method, target, contentType string
		status                      int
		body                        string
	}{
		{"GET", "/health", "", 401, message},
		{"POST", "/process.Process/List", "application/json", 401, message},
		{"POST", "/process.Process/Start", "application/connect+json", 200,
			"\x02\x00\x00\x00\x48" + `{"error":` + message + `}`},
	} {
		res, body := d.do(t, test.method, test.target, "{}", "Content-Type", test.contentType, "Authorization", basic("you"))
		if res.StatusCode != test.status || body != test.body {
			t.Errorf("%s %s: %d %q, want %d %q", test.method, test.target, res.StatusCode, body, test.status, test.body)
		}
	}
	if res, _ := d.do(t, "GET", "/health", "", "Authorization", basic("")); res.StatusCode != 401 {
		t.Errorf("empty user: %d, want 401", res.StatusCode)
	}
	if res, body := d.do(t, "GET", "/health", "", "Authorization", basic("54321")); res.StatusCode != 401 || !strings.Contains(body, ErrNoID.Error()) || !strings.Contains(body, "it has a single one") {
		t.Errorf("an id that is not there: %d %s, want 401 with the reason", res.StatusCode, body)
	}
	if res, _ := d.do(t, "GET", "/health", "", "Authorization", basic("me")); res.StatusCode != 204 {
		t.Errorf("known user: %d, want 204", res.StatusCode)
	}
}

func TestSignature(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ path, operation, user, token, expiration, want string }{
		{"/tmp/b.txt", signedRead, "", "deadbeef", "", "v1_tIWP3Kx9pOTBydJr6NhK6AVCrVziGp6TQN4bHh/MDkE"},
		{"/home/user/a.txt", signedRead, "user", "0123456789abcdef", "1700000000", "v1_7tBnmImUz4OT9m/akKudyCkRsVT00BK8CtkP439xWzM"},
		{"/home/user/a.txt", signedWrite, "", "0123456789abcdef", "", "v1_xvlQ963AAcGfb56vmq3RqD2lnCrOttksvuQ+wdzvAuI"},
		{"", signedWrite, "", "0123456789abcdef", "", "v1_vWy40L+F6t8a9aNkeq4zjDQBhkQmfGuV/zwviL9BRZk"},
	} {
		if got := signature(test.path, test.operation, test.user, test.token, test.expiration); got != test.want {
			t.Errorf("signature(%q, %q, %q): %s, want %s", test.path, test.operation, test.user, got, test.want)
		}
	}
}

func TestResolve(t *testing.T) {
	t.Parallel()
	user := &User{Home: "/home/user"}
	for _, test := range []struct{ workdir, path, want string }{
		{"", "", "/home/user"},
		{"/code", "", "/code"},
		{"/code", "a/../b", "/home/user/b"},
		{"code", "", "/home/user/code"},
		{"~/code", "", "/home/user/code"},
		{"/code", "~", "/home/user"},
		{"", "~", "/home/user"},
		{"", "~/x", "/home/user/x"},
		{"", "/a/../b/", "/a/../b/"},
		{"", "/" + strings.Repeat("x", 4094), "/" + strings.Repeat("x", 4094)},
	} {
		got, err := paths{test.workdir}.resolve(test.path, user)
		if err != nil || got != test.want {
			t.Errorf("resolve(%q) with workdir %q: %q, %v, want %q", test.path, test.workdir, got, err, test.want)
		}
	}
	for _, path := range []string{"~root/x", "a\x00b", "/" + strings.Repeat("x", 4095)} {
		if got, err := (paths{}).resolve(path, user); err == nil {
			t.Errorf("resolve(%.20q): %q, want an error", path, got)
		}
	}
}

func FuzzResolve(f *testing.F) {
	for _, path := range []string{"", "~", "~/", "~x", "/", "//..", "a/../../b", "\x00"} {
		f.Add(path)
	}
	user := &User{Home: "/home/user"}
	f.Fuzz(func(t *testing.T, path string) {
		got, err := paths{}.resolve(path, user)
		if err == nil && !strings.HasPrefix(got, "/") {
			t.Errorf("resolve(%q) = %q, which is not absolute", path, got)
		}
	})
}

func TestEnviron(t *testing.T) {
	t.Parallel()
	a, err := New(Options{
		Users:  []User{{Name: "root", Home: "/root"}, {Name: "user", Home: "/home/user"}},
		Path:   "/bin",
		Envs:   map[string]string{"A": "created", "B": "created", "E2B_SANDBOX": "no"},
		System: map[string]string{"E2B_SANDBOX": "true"},
	})
	must.Do(t, err)
	got, err := a.Environ("user", map[string]string{"B": "given"})
	must.Do(t, err)
	want := "A=created B=given E2B_SANDBOX=true HOME=/home/user LOGNAME=user PATH=/bin USER=user"
	if strings.Join(got, " ") != want {
		t.Errorf("Environ: %q, want %q", got, want)
	}
	if _, err := a.Environ("nobody", nil); err == nil {
		t.Error("Environ of an unknown user succeeded, want an error")
	}
	for name, value := range map[string]string{"X": "a\x00b", "": "a", "A\x00": "a", "A=B": "a"} {
		if got, err := a.Environ("", map[string]string{name: value}); err == nil {
			t.Errorf("Environ with %q as %q: got %q, want an error", name, value, got)
		}
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}
