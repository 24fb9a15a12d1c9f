//go:build linux

package interop

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/e2bctl/e2bctl/internal/clienttest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/protocol"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// TestNothingIsLeftOutInSilence has clients make their everyday calls with their own default
// values, and fails if one uses a path, a parameter or a field that the cloud does not know. The
// cloud accepts such fields, because clients are newer than it, so nothing else would show them.
func TestNothingIsLeftOutInSilence(t *testing.T) {
	t.Parallel()
	clients := map[string]func(t *testing.T, cloud []string){
		"openai-agents": func(t *testing.T, cloud []string) {
			drivePython(t, cloud, "openai-agents", "agentcases", "asynchronous")
		},
	}
	for _, generation := range []string{"newest", "2.45"} {
		clients["js-"+generation] = func(t *testing.T, cloud []string) {
			driveJS(t, cloud, generation, "defaultcases")
		}
		clients["python-"+generation] = func(t *testing.T, cloud []string) {
			drivePython(t, cloud, generation, "defaultcases", "blocking")
			drivePython(t, cloud, generation, "defaultcases", "asynchronous")
		}
		clients["command-"+generation] = func(t *testing.T, cloud []string) {
			o := officialCommand(t, generation, cloud)
			id := o.create(t)
			for _, arguments := range [][]string{{"list"}, {"info", id}, {"logs", id}, {"metrics", id}, {"pause", id}, {"resume", id}, {"exec", id, "true"}, {"kill", id}} {
				o.must(t, slices.Concat([]string{"sandbox"}, arguments)...)
			}
			name, _ := o.createTemplate(t)
			for _, arguments := range [][]string{{"list"}, {"publish", "-y", name}, {"delete", "-y", name}} {
				o.must(t, slices.Concat([]string{"template"}, arguments)...)
			}
		}
	}
	// One cloud for all: loading its kernels' modules is more work than most clients are.
	cloud := sandboxtest.New(t)
	fields := &ignoredFields{cloud: cloud, seen: map[string]bool{}}
	t.Run("clients", func(t *testing.T) {
		for name, drive := range clients {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				heard := listenTo(t, cloud, fields)
				drive(t, heard.env)
				for _, one := range heard.all() {
					t.Errorf("the client sent %s, which the cloud does not know", one)
				}
			})
		}
	})
	for _, one := range fields.unseen() {
		t.Errorf("one of the clients sent %s, which the cloud does not know", one)
	}
	t.Run("what no client sends is heard", func(t *testing.T) { hearsUnknown(t, cloud, fields) })
}

// ignoredFields are the parameters and fields of the API that a cloud did not know. The cloud
// does not tell which client sent them.
type ignoredFields struct {
	cloud *sandboxtest.Cloud

	mu     sync.Mutex
	seen   map[string]bool
	fresh  []string // fields of seen that unseen has not returned
	served int      // requests since the last look
}

// look takes over the requests that the cloud remembers, which is a bounded number. It is called
// after each request, and looks often enough that none is forgotten.
func (f *ignoredFields) look() {
	f.mu.Lock()
	defer f.mu.Unlock()
	const few = 200
	if f.served++; f.served >= few {
		f.collect()
	}
}

func (f *ignoredFields) collect() {
	f.served = 0
	for _, request := range f.cloud.Requests() {
		for _, field := range request.Ignored {
			one := fmt.Sprintf("%s %s: the field %s", request.Method, pattern(request.Path), field)
			if !f.seen[one] {
				f.seen[one] = true
				f.fresh = append(f.fresh, one)
			}
		}
	}
}

// unseen returns the fields that were not returned before.
func (f *ignoredFields) unseen() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.collect()
	fresh := f.fresh
	f.fresh = nil
	return fresh
}

// listener reads the requests of clients to a cloud and remembers their unknown parts, except for
// the parameters and fields of the API: the cloud itself reports these.
type listener struct {
	front *httptest.Server
	env   []string // the cloud's variables, which lead through the listener

	mu      sync.Mutex
	unknown map[string]bool
}

func (l *listener) note(method, path, format string, arguments ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unknown[fmt.Sprintf("%s %s: ", method, pattern(path))+fmt.Sprintf(format, arguments...)] = true
}

// all ends the listener and returns the unknown parts, once each.
func (l *listener) all() []string {
	l.front.Close() // requests that are still being answered are read
	return slices.Sorted(maps.Keys(l.unknown))
}

// listenTo puts a listener in front of a cloud.
func listenTo(t *testing.T, cloud *sandboxtest.Cloud, fields *ignoredFields) *listener {
	t.Helper()
	l := &listener{unknown: map[string]bool{}}
	target, err := url.Parse(cloud.URL())
	must.Do(t, err)
	transport := &http.Transport{DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Host = r.In.Host // it may name a port of a sandbox
		},
		Transport:      transport,
		FlushInterval:  -1,
		ModifyResponse: l.answered,
	}
	l.front = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The answer may begin before the request's body has ended. Without this, the server would
		// then stop reading the body, and the proxy would fail the request.
		if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
			t.Error(err)
		}
		heard := &heardBody{ReadCloser: r.Body}
		r.Body = heard
		proxy.ServeHTTP(w, r)
		l.request(r, heard.bytes())
		fields.look()
	}))
	t.Cleanup(l.front.Close)
	l.env = cloud.Env()
	for i, pair := range l.env {
		l.env[i] = strings.Replace(pair, cloud.URL(), l.front.URL, 1)
	}
	return l
}

// heardBody keeps the bytes read from a body. The transport may continue to read it after the
// answer.
type heardBody struct {
	io.ReadCloser
	mu   sync.Mutex
	read bytes.Buffer
}

func (h *heardBody) Read(p []byte) (int, error) {
	n, err := h.ReadCloser.Read(p)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.read.Write(p[:n])
	return n, err
}

func (h *heardBody) bytes() []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	return bytes.Clone(h.read.Bytes())
}

// answered records paths and methods that the cloud does not serve.
func (l *listener) answered(r *http.Response) error {
	request := r.Request
	switch r.StatusCode {
	case http.StatusMethodNotAllowed, http.StatusNotImplemented:
		l.note(request.Method, request.URL.Path, "the path or method, refused with %d", r.StatusCode)
	case http.StatusNotFound:
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return err
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if request.Header.Get(protocol.HeaderSandboxID) == "" && bytes.Contains(body, []byte("no such path")) {
			l.note(request.Method, request.URL.Path, "the path")
		}
	}
	return nil
}

// request records the unknown parts of a request.
func (l *listener) request(r *http.Request, body []byte) {
	path := r.URL.Path
	if method := procedure(path); method != nil {
		for _, one := range unknownInMessages(method.Input(), r.Header, body) {
			l.note(r.Method, path, "%s", one)
		}
		return
	}
	known, ofSandbox := parameters[pattern(path)]
	if !ofSandbox && r.Header.Get(protocol.HeaderSandboxID) == "" {
		return // the cloud itself reports those of the API
	}
	for name := range r.URL.Query() {
		if !slices.Contains(known, name) {
			l.note(r.Method, path, "the parameter %s", name)
		}
	}
	if r.Header.Get(protocol.HeaderSandboxID) == "" {
		return
	}
	for _, name := range keys(body) {
		if !slices.Contains(known, name) {
			l.note(r.Method, path, "the field %s", name)
		}
	}
}

// parameters are the known parameters of sandboxes' queries, and the known fields of the bodies
// that the code interpreter reads.
var parameters = map[string][]string{
	"/files":             {"path", "username", "signature", "signature_expiration"},
	"/execute":           {"code", "context_id", "language", "env_vars"},
	"/contexts":          {"cwd", "language"},
	"/contexts/*":        nil,
	"/contexts/*/reboot": nil,
}

// pattern returns the path with a star in place of each id.
func pattern(path string) string {
	parts := strings.Split(path, "/")
	for i, part := range parts[1:] {
		if slices.Contains([]string{"sandboxes", "contexts", "templates", "builds", "uploads"}, parts[i]) {
			part = "*"
		}
		parts[i+1] = part
	}
	return strings.Join(parts, "/")
}

// hearsUnknown sends requests that no client sends.
func hearsUnknown(t *testing.T, cloud *sandboxtest.Cloud, fields *ignoredFields) {
	send := func(address, kind string, body []byte, header map[string]string) []byte {
		method := http.MethodPost
		if body == nil {
			method = http.MethodGet
		}
		request, err := http.NewRequestWithContext(t.Context(), method, address, bytes.NewReader(body))
		must.Do(t, err)
		request.Header.Set("Content-Type", kind)
		for name, value := range header {
			request.Header.Set(name, value)
		}
		response, err := clienttest.New(t).Do(request)
		must.Do(t, err)
		defer func() { _ = response.Body.Close() }()
		answer, err := io.ReadAll(response.Body)
		must.Do(t, err)
		return answer
	}
	key := map[string]string{protocol.HeaderAPIKey: string(cloud.APIKey())}
	// The first version of the API creates sandboxes that ask for no token.
	var made struct{ SandboxID string }
	must.Do(t, json.Unmarshal(send(cloud.URL()+"/sandboxes", "", []byte(`{"templateID": "base", "timeout": 60}`), key), &made))
	toSandbox := map[string]string{protocol.HeaderSandboxID: made.SandboxID, protocol.HeaderSandboxPort: "49983", "Connect-Content-Encoding": "gzip"}
	number := protowire.AppendVarint(protowire.AppendTag(nil, 999, protowire.VarintType), 1)
	config := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), number) // StartRequest.process
	var zipped bytes.Buffer
	writer := gzip.NewWriter(&zipped)
	_, _ = writer.Write(config)
	_ = writer.Close()
	envelope := func(flags byte, message []byte) []byte {
		return append(binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(message))), message...)
	}
	for _, tt := range []struct {
		path, kind string
		body       []byte
		want       string
	}{
		{"/v2/sandboxes?metadata=a%3Db&page=1", "", nil, "the field ?page"},
		{"/files?path=x&follow=1", "file", nil, "the parameter follow"},
		{"/execute", "application/json", []byte(`{"code": "1", "nice": 1}`), "the field nice"},
		{"/process.Process/List", "application/json", []byte(`{"all": true}`), "all"},
		{"/process.Process/List", "application/proto", number, "fields of process.ListRequest"},
		{"/process.Process/Start", "application/connect+json", envelope(0, []byte(`{"process": {"cmd": "true", "nice": 1}}`)), "nice"},
		{"/process.Process/Start", "application/connect+proto", envelope(0, config), "fields of process.ProcessConfig"},
		{"/process.Process/Start", "application/connect+proto", envelope(1, zipped.Bytes()), "fields of process.ProcessConfig"},
		{"/no/such", "", nil, "the path"},
		{"/sandboxes", "", []byte(`{"templateID": "base", "nice": 1}`), "the field nice"},
	} {
		heard := listenTo(t, cloud, fields)
		header := key
		if tt.kind != "" {
			header = toSandbox
		}
		send(heard.front.URL+tt.path, tt.kind, tt.body, header)
		got := append(heard.all(), fields.unseen()...)
		if len(got) != 1 || !strings.Contains(got[0], tt.want) {
			t.Errorf("for %s %s %q: got %q, want %q", tt.path, tt.kind, tt.body, got, tt.want)
		}
	}
}
