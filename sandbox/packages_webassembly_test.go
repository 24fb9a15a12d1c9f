package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/gen/filesystem"
	"github.com/e2bctl/e2bctl/internal/gen/filesystem/filesystemconnect"
	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/jupyter/jupytertest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// wasmService has a sandbox whose Python runs in WebAssembly, and one with a pip for it, whose id is "second".
type wasmService struct {
	*service
	second *pipService
	dist   string // the lock file of a distribution
	refuse string // a request that is refused: its method and path
	breaks string // code with this text fails
	error  string // of the installation by the sandbox's Python

	wasmMu  sync.Mutex
	created string
	ended   []string          // contexts and sandboxes that were ended
	brought map[string]string // files that the sandbox got, whose directory is called D
}

func newWasmService(t *testing.T) *wasmService {
	t.Helper()
	s := &wasmService{service: newService(t), second: newPipService(t), brought: map[string]string{}}
	s.start = func(context.Context, *process.StartRequest, *startStream) error {
		return connect.NewError(connect.CodeUnimplemented, errors.New("no processes"))
	}
	ofPip := s.second.start
	s.second.start = func(ctx context.Context, r *process.StartRequest, stream *startStream) error {
		if p := r.GetProcess(); p.GetCmd() == "/bin/sh" {
			if p.Args[5] != pipWithMarkers || p.Args[6] != `{"os_name":"w"}` {
				t.Errorf("pip has the arguments %q", p.Args[5:7])
			}
			p.Args = slices.Concat(p.Args[:5], []string{"pip"}, p.Args[7:])
		}
		return ofPip(ctx, r, stream)
	}
	_, listing := filesystemconnect.NewFilesystemHandler(wheelList{})
	s.raw = func(w http.ResponseWriter, r *http.Request) bool {
		second := r.Header.Get("E2b-Sandbox-Id") == "second"
		switch {
		case s.refused(w, r, map[bool]string{true: "second "}[second]):
		case second && r.URL.Query().Get("path") == "/opt/pyodide/pyodide-lock.json":
			if s.dist == "" {
				w.WriteHeader(http.StatusNotFound)
			}
			_, _ = io.WriteString(w, s.dist)
		case second && r.URL.Path == filesystemconnect.FilesystemListDirProcedure:
			listing.ServeHTTP(w, r)
		case second:
			s.second.daemon(w, r)
		case r.URL.Path == "/files" && r.Method == http.MethodPost:
			body, _ := io.ReadAll(r.Body)
			s.wasmMu.Lock()
			s.brought["D/"+path.Base(r.URL.Query().Get("path"))] = r.FormValue("username") + ": " + string(body)
			s.wasmMu.Unlock()
			_, _ = io.WriteString(w, `[{"name":"f","path":"/f","type":"file"}]`)
		default:
			return false
		}
		return true
	}
	s.contexts = s.serveContext
	s.control = s.serveControl
	s.kernel = jupytertest.Answering(s.run)
	return s
}

// wheelList lists the wheel that pip has downloaded.
type wheelList struct {
	filesystemconnect.UnimplementedFilesystemHandler
}

func (wheelList) ListDir(_ context.Context, r *connect.Request[filesystem.ListDirRequest]) (*connect.Response[filesystem.ListDirResponse], error) {
	if !strings.HasSuffix(r.Msg.GetPath(), "/wheels") {
		return nil, connect.NewError(connect.CodeNotFound, errors.New("no such directory"))
	}
	return connect.NewResponse(&filesystem.ListDirResponse{Entries: []*filesystem.EntryInfo{{Name: "b.whl", Path: r.Msg.GetPath() + "/b.whl", Type: filesystem.FileType_FILE_TYPE_FILE}}}), nil
}

// refused refuses a request if the test says so.
func (s *wasmService) refused(w http.ResponseWriter, r *http.Request, of string) bool {
	if s.refuse == "" || of+r.Method+" "+r.URL.Path != s.refuse {
		return false
	}
	w.WriteHeader(http.StatusForbidden)
	_, _ = io.WriteString(w, `{"code":403,"message":"refused"}`)
	return true
}

func (s *wasmService) serveControl(w http.ResponseWriter, r *http.Request) {
	s.wasmMu.Lock()
	defer s.wasmMu.Unlock()
	body, _ := io.ReadAll(r.Body)
	switch {
	case strings.Contains(string(body), pipTemplate):
		if s.created = string(body); s.refused(w, r, "second ") {
			return
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"sandboxID":"second","templateID":"t"}`)
	case s.refused(w, r, ""):
	case r.Method == http.MethodDelete && strings.HasSuffix(r.URL.Path, "/second"):
		s.ended = append(s.ended, "second")
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodGet:
		w.WriteHeader(http.StatusOK)
		fmt.Fprintf(w, `{"sandboxID":%q,"state":"running","allowInternetAccess":false,"network":{"allowOut":["i.test"],"denyOut":["0.0.0.0/0"],"ask":true}}`, testID)
	}
}

func (s *wasmService) serveContext(w http.ResponseWriter, r *http.Request) {
	s.wasmMu.Lock()
	defer s.wasmMu.Unlock()
	switch {
	case s.refused(w, r, ""):
	case r.Method == http.MethodPost:
		_, _ = io.WriteString(w, `{"id":"c1","language":"python"}`)
	case r.Method == http.MethodDelete:
		s.ended = append(s.ended, strings.TrimPrefix(r.URL.Path, "/contexts/"))
	}
}

// run runs a script in the sandbox's Python.
func (s *wasmService) run(k *jupytertest.Kernel, m *jupyter.Message) {
	code := jupytertest.Code(m)
	k.Begin(m)
	switch {
	case s.breaks != "" && strings.Contains(code, s.breaks):
		k.Say(m, jupyter.IOPub, "error", jupyter.ErrorContent{Name: "E", Value: "v"})
		k.Reply(m, "error")
		k.Status(m, "idle")
		return
	case strings.Contains(code, "PYEMSCRIPTEN"):
		k.Stream(m, "stdout", `{"version":"3.13.2","platforms":["w32"],"markers":{"os_name":"w"}}`)
	case strings.Contains(code, "Installs the wheels"):
		k.Stream(m, "stdout", fmt.Sprintf(`{"Error":%q}`, s.error))
	case strings.Contains(code, "USER_SITE"):
		k.Stream(m, "stdout", `{"directory":"/site","packages":{"have":"1","b":"1"}}`)
	}
	k.Reply(m, "ok")
	k.Status(m, "idle")
}

var wasmReport = `{"install":[{"download_info":{"url":"https://i.test/x-1-py3-none-any.whl","archive_info":{"hashes":{"sha256":"` + sumB + `"}}},"metadata":{"name":"x","version":"1"}}],"environment":{}}`

// TestInstallInWebAssembly checks how packages reach a Python in WebAssembly: by the pip of a second sandbox with the rules of
// the first, which is ended afterwards.
func TestInstallInWebAssembly(t *testing.T) {
	t.Parallel()
	const accepted = " --only-binary :all: --python-version 3.13 --implementation cp --abi cp313 --platform w32"
	lock := &LockFile{Packages: []LockedPackage{locked("a", "a-1-py3-none-any.whl"), locked("x", "x-1-py3-none-any.whl")}}
	for name, tt := range map[string]struct {
		install func(context.Context, *Packages) (*Installation, error)
		dist    string
		runs    []string
		brought map[string]string
	}{
		"by name": {
			install: func(ctx context.Context, p *Packages) (*Installation, error) {
				return p.Install(ctx, []string{"x"}, nil)
			},
			runs:    []string{"install --dry-run --prefer-binary --report D/report.json x" + accepted + " --target /tmp/nowhere", "download --no-deps --require-hashes --find-links D --dest D/wheels -r D/lock.txt" + accepted},
			brought: map[string]string{"D/b.whl": "root: wheel b"},
		},
		"by a lock": {
			install: func(ctx context.Context, p *Packages) (*Installation, error) { return p.InstallLock(ctx, lock, nil) }, dist: `{"packages":{}}`,
			runs:    []string{"download --no-deps --require-hashes --find-links D --dest D/wheels -r D/lock.txt" + accepted + " --find-links /opt/pyodide"},
			brought: map[string]string{"D/a-1-py3-none-any.whl": "root: wheel a", "D/b.whl": "root: wheel b"},
		},
		"from the cache": {
			install: func(ctx context.Context, p *Packages) (*Installation, error) {
				return p.InstallLock(ctx, &LockFile{Packages: lock.Packages[:1]}, nil)
			},
			brought: map[string]string{"D/a-1-py3-none-any.whl": "root: wheel a"},
		},
	} {
		s := newWasmService(t)
		s.second.report, s.dist = wasmReport, tt.dist
		sb := s.sandbox()
		sb.Packages.wheels = wheelCache{directory: t.TempDir(), limit: 1000}
		must.Do(t, sb.Packages.wheels.add([]string{sumOf("wheel a")}, strings.NewReader("wheel a")))
		_, err := tt.install(t.Context(), sb.Packages)
		must.Do(t, err)
		sb.running.Wait()
		if diff := cmp.Diff(tt.runs, s.second.runs); diff != "" {
			t.Errorf("%s: runs of pip (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(tt.brought, s.brought); diff != "" {
			t.Errorf("%s: files (-want +got):\n%s", name, diff)
		}
		created, ended := `{"templateID":"base-room","timeout":300,"allow_internet_access":false,"metadata":{"`+protocol.PipFor+`":"`+testID+`"},"network":{"allowOut":["i.test"],"denyOut":["0.0.0.0/0"]}}`, []string{"c1", "second"}
		if tt.runs == nil {
			created, ended = "", ended[:1]
		}
		if diff := cmp.Diff(created, s.created) + cmp.Diff(ended, s.ended); diff != "" {
			t.Errorf("%s: the second sandbox (-want +got):\n%s", name, diff)
		}
	}
}

// TestInstallInWebAssemblyFails checks the error of each step, and that the context and the second sandbox are ended.
func TestInstallInWebAssemblyFails(t *testing.T) {
	t.Parallel()
	contextOnly, both := []string{"c1"}, []string{"c1", "second"}
	for name, tt := range map[string]struct {
		refuse, breaks, dist, error, pip string
		report                           string
		want                             error
		text                             string
		ended                            []string
	}{
		"no context":          {refuse: "POST /contexts", want: api.ErrForbidden, text: "create a context for packages in " + testID},
		"a broken Python":     {breaks: "PYEMSCRIPTEN", text: "find out which packages its Python takes", ended: contextOnly},
		"no list of packages": {breaks: "USER_SITE", text: "list packages in " + testID, ended: contextOnly},
		"no description":      {refuse: "GET /sandboxes/" + testID, want: api.ErrForbidden, text: "install packages in " + testID, ended: contextOnly},
		"no second sandbox":   {refuse: "second POST /v2/sandboxes", want: api.ErrForbidden, text: "one in a second sandbox is needed", ended: contextOnly},
		"a broken list":       {dist: "x", text: "the lock file of the Pyodide distribution", ended: []string{"second", "c1"}},
		"no package":          {pip: "install", text: "install x: pip ended with status 3", ended: both},
		"a broken report":     {report: "x", text: "read pip's report", ended: both},
		"no wheel":            {report: wasmReport, pip: "download", text: "install x: pip ended with status 3", ended: both},
		"no listing":          {report: wasmReport, refuse: "second POST " + filesystemconnect.FilesystemListDirProcedure, want: api.ErrForbidden, ended: both},
		"no place":            {report: wasmReport, refuse: "POST /files", want: api.ErrForbidden, text: "sandbox: install packages: ", ended: both},
		"broken unpacking":    {report: wasmReport, breaks: "Installs the wheels", text: "unpack packages in " + testID, ended: both},
		"a refused wheel":     {report: wasmReport, error: "x.whl: a path", want: api.ErrInvalidArgument, text: "sandbox: unpack packages in " + testID + ": x.whl: a path", ended: both},
	} {
		s := newWasmService(t)
		sb := s.sandbox()
		s.refuse, s.breaks, s.dist, s.error, s.second.fails, s.second.report = tt.refuse, tt.breaks, tt.dist, tt.error, tt.pip, tt.report
		got, err := sb.Packages.Install(t.Context(), []string{"x"}, nil)
		if got != nil || !isError(err, tt.want, tt.text) {
			t.Errorf("%s: got %v and error %v, want %v with %q", name, got, err, tt.want, tt.text)
		}
		sb.running.Wait()
		if diff := cmp.Diff(tt.ended, s.ended); diff != "" {
			t.Errorf("%s: ended (-want +got):\n%s", name, diff)
		}
		if failed, ok := errors.AsType[*InstallError](err); ok && failed.wasm == nil {
			t.Errorf("%s: the failure %v does not know its Python", name, failed)
		}
	}
}

// TestLockInWebAssembly checks that a lock for a Python in WebAssembly lacks the packages that this Python has, and that the
// context and the second sandbox are ended.
func TestLockInWebAssembly(t *testing.T) {
	t.Parallel()
	s := newWasmService(t)
	has := strings.ReplaceAll(wasmReport[len(`{"install":[`):strings.LastIndex(wasmReport, `],`)], `"x`, `"b`)
	s.second.report = strings.Replace(wasmReport, "[", "["+has+",", 1)
	sb := s.sandbox()
	got, err := sb.Packages.Lock(t.Context(), []string{"x"}, nil)
	must.Do(t, err)
	if diff := cmp.Diff([]LockedPackage{{"x", "1", []string{sumB}, "x-1-py3-none-any.whl"}}, got.Packages); diff != "" {
		t.Errorf("packages (-want +got):\n%s", diff)
	}
	sb.running.Wait()
	if diff := cmp.Diff([]string{"c1", "second"}, s.ended); diff != "" {
		t.Errorf("ended (-want +got):\n%s", diff)
	}
}
