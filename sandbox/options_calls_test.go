package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/must"
)

// creating returns a service of a local cloud, and a function that returns the content of the last creation.
func creating(t *testing.T) (s *service, last func() string) {
	t.Helper()
	s = newService(t)
	body := ""
	s.control = func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/local/features":
			w.WriteHeader(200)
			_, _ = io.WriteString(w, `{"ask":true,"requests":true,"mounts":true,"image":true,"resources":true,"idle":true,"idleTimeout":true,"resize":true}`)
		case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/sandboxes"):
			text, _ := io.ReadAll(r.Body)
			body = string(text)
		}
	}
	return s, func() string { return body }
}

// TestEachOptionOfCreate checks what each option alone changes in the request that creates a sandbox.
func TestEachOptionOfCreate(t *testing.T) {
	t.Parallel()
	headers := map[string]map[string]string{"a.test": {"A": "Bearer " + SecretRef("s")}}
	requests := map[string][]RequestRule{"a.test": {{[]string{"GET"}, "/p"}, {}}}
	usual := func(text string) string {
		return `{"templateID":"code-interpreter-v1","timeout":300` + text + `}`
	}
	for name, tt := range map[string]struct {
		option CreateOption
		want   string
	}{
		"none":         {WithOptions(), usual("")},
		"template":     {WithTemplate("x"), `{"templateID":"x","timeout":300}`},
		"no template":  {WithTemplate(""), usual("")},
		"image":        {WithImage("python:3"), usual(`,"image":"python:3"`)},
		"resources":    {WithResources(Resources{1.5, 512 << 20, 9 << 20}), usual(`,"resources":{"cpuCount":1.5,"memoryBytes":536870912,"diskBytes":9437184}`)},
		"no resources": {WithResources(Resources{}), usual("")},
		"metadata":     {WithMetadata(map[string]string{"a": "b"}), usual(`,"metadata":{"a":"b"}`)},
		"envs":         {WithEnvs(map[string]string{"A": "b"}), usual(`,"envVars":{"A":"b"}`)},
		"internet":     {WithInternet(true), usual(`,"allow_internet_access":true`)},
		"no internet":  {WithInternet(false), usual(`,"allow_internet_access":false`)},
		"private":      {WithPrivateTraffic(), usual(`,"network":{"allowPublicTraffic":false}`)},
		"https":        {WithHTTPSPorts(443, 8443), usual(`,"network":{"httpsPorts":[443,8443]}`)},
		"host":         {WithRequestHost("localhost:${PORT}"), usual(`,"network":{"maskRequestHost":"localhost:${PORT}"}`)},
		"volume":       {WithVolume("v", "/d"), usual(`,"volumeMounts":[{"name":"v","path":"/d"}]`)},
		"mount":        {WithMount(Mount{"/m", "/d", true}), usual(`,"mounts":[{"dir":"/m","path":"/d","writable":true}]`)},
		"lifetime":     {WithExpiry(Expiry{After: time.Minute}), `{"templateID":"code-interpreter-v1","timeout":60}`},
		"addresses":    {WithNetwork(Network{AllowOut: []string{"a"}, DenyOut: []string{"b"}, DNSServers: []string{"c"}}), usual(`,"network":{"allowOut":["a"],"denyOut":["b"],"dnsServers":["c"]}`)},
		"no private":   {WithNetwork(Network{DenyOut: []string{"b"}, DenyPrivate: true}), usual(`,"network":{"denyOut":["b","10.0.0.0/8","100.64.0.0/10","172.16.0.0/12","192.168.0.0/16","fc00::/7"]}`)},
		"headers":      {WithNetwork(Network{Headers: headers}), usual(`,"network":{"rules":{"a.test":[{"transform":{"headers":{"A":"Bearer ${e2b.secrets.s}"}}}]}}`)},
		"requests":     {WithNetwork(Network{Requests: requests}), usual(`,"network":{"rules":{"a.test":[{"requests":[{"methods":["GET"],"path":"/p"},{}]}]}}`)},
		"both":         {WithNetwork(Network{Headers: headers, Requests: requests}), usual(`,"network":{"rules":{"a.test":[{"transform":{"headers":{"A":"Bearer ${e2b.secrets.s}"}},"requests":[{"methods":["GET"],"path":"/p"},{}]}]}}`)},
		"proxy":        {WithNetwork(Network{EgressProxy: &EgressProxy{"p:1", "u", "w", nil}}), usual(`,"network":{"egressProxy":{"address":"p:1","username":"u","password":"w"}}`)},
		"proxy by TLS": {WithNetwork(Network{EgressProxy: &EgressProxy{Address: "p:1", TLS: &EgressProxyTLS{true, "n", "c"}}}), usual(`,"network":{"egressProxy":{"address":"p:1","tls":{"enabled":true,"serverName":"n","caCert":"c"}}}`)},
	} {
		s, last := creating(t)
		sb, err := s.client().Create(t.Context(), tt.option)
		must.Do(t, err)
		must.Do(t, sb.Close())
		if diff := cmp.Diff(tt.want, last()); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", name, diff)
		}
	}
}

// TestOptionsAddUp checks that an option which is given twice adds to the first, and that a client keeps its defaults.
func TestOptionsAddUp(t *testing.T) {
	t.Parallel()
	s, last := creating(t)
	c := s.client(WithDefaults(WithVolume("v", "/v"), WithMount(Mount{Dir: "/m", Path: "/m"}), WithEnvs(map[string]string{"A": "1", "B": "1"})))
	usual := `{"templateID":"code-interpreter-v1","timeout":300,"envVars":{"A":"1","B":"1"},"volumeMounts":[{"name":"v","path":"/v"}],"mounts":[{"dir":"/m","path":"/m"}]}`
	more := `{"templateID":"code-interpreter-v1","timeout":300,"envVars":{"A":"1","B":"2"},"volumeMounts":[{"name":"v","path":"/v"},{"name":"w","path":"/w"}],"mounts":[{"dir":"/m","path":"/m"},{"dir":"/n","path":"/n"}]}`
	for _, opts := range [][]CreateOption{nil, {WithVolume("w", "/w"), WithMount(Mount{Dir: "/n", Path: "/n"}), WithEnvs(map[string]string{"B": "2"})}, nil} {
		want := usual
		if opts != nil {
			want = more
		}
		sb, err := c.Create(t.Context(), opts...)
		must.Do(t, err)
		must.Do(t, sb.Close())
		if diff := cmp.Diff(want, last()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// TestRefusedOptions checks for each option which values it refuses, and that nothing is sent then.
func TestRefusedOptions(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		option CreateOption
		text   string // no text: it is allowed
	}{
		"no option":            {nil, "sandbox: option 1 is nil"},
		"mount":                {WithMount(Mount{Dir: "/a", Path: "/b"}), ""},
		"mount of a relative":  {WithMount(Mount{Dir: "a", Path: "/b"}), "sandbox: WithMount(a, /b): want"},
		"mount to a relative":  {WithMount(Mount{Dir: "/a", Path: "b"}), "sandbox: WithMount(/a, b): want"},
		"mount not clean":      {WithMount(Mount{Dir: "/a", Path: "/b/"}), "sandbox: WithMount(/a, /b/): want"},
		"mount to the root":    {WithMount(Mount{Dir: "/a", Path: "/"}), "sandbox: WithMount(/a, /): want"},
		"volume":               {WithVolume("a", "/b"), ""},
		"volume without name":  {WithVolume("", "/b"), "sandbox: WithVolume(, /b): want"},
		"volume to a relative": {WithVolume("a", "b"), "sandbox: WithVolume(a, b): want"},
		"volume not clean":     {WithVolume("a", "/b/../c"), "sandbox: WithVolume(a, /b/../c): want"},
		"volume to the root":   {WithVolume("a", "/"), "sandbox: WithVolume(a, /): want"},
		"no CPU":               {WithResources(Resources{CPUs: 0}), ""},
		"less than no CPU":     {WithResources(Resources{CPUs: -0.1}), "sandbox: WithResources("},
		"NaN CPUs":             {WithResources(Resources{CPUs: math.NaN()}), "sandbox: WithResources("},
		"endless CPUs":         {WithResources(Resources{CPUs: math.Inf(1)}), "sandbox: WithResources("},
		"less than no memory":  {WithResources(Resources{MemoryBytes: -1}), "sandbox: WithResources("},
		"less than no disk":    {WithResources(Resources{DiskBytes: -1}), "sandbox: WithResources("},
		"no servers":           {WithMCP(nil), "sandbox: WithMCP: want one server at least"},
		"strange servers":      {WithMCP(map[string]any{"a": func() {}}), "sandbox: WithMCP: json"},
		"strange transport":    {WithCodeTransport("x"), `sandbox: WithCodeTransport("x"): unknown`},
		"HTTP":                 {WithCodeTransport(CodeTransportHTTP), ""},
		"websocket":            {WithCodeTransport(CodeTransportWebsocket), ""},
		"of the client":        {WithUserAgent("a"), "sandbox: Create: WithUserAgent is an option of the client"},
	} {
		s, last := creating(t)
		sb, err := s.client().Create(t.Context(), tt.option)
		if (err == nil) != (tt.text == "") || err != nil && !strings.HasPrefix(err.Error(), tt.text) || (last() == "") != (err != nil) {
			t.Errorf("%s: got error %v and the request %q, want %q", name, err, last(), tt.text)
		}
		must.Do(t, sb.Close())
	}
	for name, opts := range map[string][]ClientOption{
		"nil": {nil}, "defaults": {WithDefaults(WithUserAgent("a"))}, "nil in defaults": {WithDefaults(nil)}, "a broken default": {WithDefaults(WithVolume("", ""))},
	} {
		if c, err := NewClient(append(opts, WithAPIKey(testKey))...); err == nil {
			t.Errorf("%s: no error", name)
			must.Do(t, c.Close())
		}
	}
}

// TestChangesByHandle checks the requests and the errors of changes of one sandbox, with a handle and without one.
func TestChangesByHandle(t *testing.T) {
	t.Parallel()
	type client = *Client
	on := Network{AllowOut: []string{"a"}}
	resources := Resources{1.5, 512 << 20, 9 << 20}
	const resized = `/resources {"cpuCount":1.5,"memoryBytes":536870912,"diskBytes":9437184}`
	for name, tt := range map[string]struct {
		do      func(context.Context, client, *Sandbox) error
		request string
		fails   string
	}{
		"network":         {func(ctx context.Context, _ client, sb *Sandbox) error { return sb.SetNetwork(ctx, on) }, "PUT /sandboxes/" + testID + `/network {"allowOut":["a"]}`, "sandbox: set network in " + testID},
		"lifetime":        {func(ctx context.Context, _ client, sb *Sandbox) error { return sb.SetLifetime(ctx, time.Minute) }, "POST /sandboxes/" + testID + `/timeout {"timeout":60}`, "sandbox: set lifetime in " + testID},
		"lifetime by id":  {func(ctx context.Context, c client, _ *Sandbox) error { return c.SetLifetime(ctx, "i1", time.Minute) }, `POST /sandboxes/i1/timeout {"timeout":60}`, "sandbox: set lifetime: "},
		"resources":       {func(ctx context.Context, _ client, sb *Sandbox) error { return sb.Resize(ctx, resources) }, "POST /local/sandboxes/" + testID + resized, "sandbox: resize in " + testID},
		"resources by id": {func(ctx context.Context, c client, _ *Sandbox) error { return c.Resize(ctx, "i1", resources) }, `POST /local/sandboxes/i1` + resized, "sandbox: resize: "},
		"kill":            {func(ctx context.Context, _ client, sb *Sandbox) error { return sb.Kill(ctx) }, "DELETE /sandboxes/" + testID, "sandbox: kill in " + testID},
		"describe":        {func(ctx context.Context, _ client, sb *Sandbox) error { return second(sb.Info(ctx)) }, "GET /sandboxes/" + testID, "sandbox: info in " + testID},
		"pause":           {func(ctx context.Context, _ client, sb *Sandbox) error { return sb.Pause(ctx, nil) }, "POST /sandboxes/" + testID + "/pause {}", "sandbox: pause in " + testID},
		"resume":          {func(ctx context.Context, _ client, sb *Sandbox) error { return sb.Resume(ctx, nil) }, "POST /v2/sandboxes/" + testID + `/connect {"timeout":300}`, "sandbox: resume in " + testID},
		"change the rules": {func(ctx context.Context, c client, _ *Sandbox) error {
			return c.UpdateNetwork(ctx, "i1", &UpdateNetworkParams{AllowOut: []string{"a"}})
		}, `PUT /sandboxes/i1/network {"allowOut":["a"]}`, "sandbox: update network: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status := 200
			sb, requests := newControl(t, func(request string) (int, string) {
				switch {
				case strings.HasSuffix(request, "/features"):
					return 200, `{"resize":true}`
				case status != 200 && (request == tt.request || status == 404):
					return status, `{"code":1,"message":"refused"}`
				}
				return 200, `{"sandboxID":"i1","state":"running"}`
			})
			must.Do(t, tt.do(t.Context(), sb.client, sb))
			if !slices.Contains(requests(), tt.request) {
				t.Errorf("got the requests %q, want %s", requests(), tt.request)
			}
			for refusal, want := range map[int]error{404: ErrGone, 403: api.ErrForbidden, 409: api.ErrConflict} {
				status = refusal
				if err := tt.do(t.Context(), sb.client, sb); !errors.Is(err, want) || !strings.HasPrefix(err.Error(), tt.fails) || errors.Is(err, ErrGone) != (refusal == 404) {
					t.Errorf("status %d: got error %v, want %v", refusal, err, want)
				}
			}
		})
	}
	sb, requests := newControl(t, func(string) (int, string) { return 200, "{}" })
	for _, r := range []Resources{{}, {CPUs: -1}, {MemoryBytes: -1}, {DiskBytes: -1, CPUs: 1}} {
		must.Is(t, sb.Resize(t.Context(), r), api.ErrInvalidArgument)
		must.Is(t, sb.client.Resize(t.Context(), "i1", r), api.ErrInvalidArgument)
	}
	if n := len(requests()); n > 0 {
		t.Errorf("got the requests %q for resources that nothing can have", requests())
	}
	must.Is(t, sb.Resize(t.Context(), resources), errors.ErrUnsupported)
}

// TestMCP checks how the servers are started, their address and token, and that a sandbox without them is killed.
func TestMCP(t *testing.T) {
	t.Parallel()
	s, last := creating(t)
	var got *process.ProcessConfig
	code := int32(0)
	s.start = func(_ context.Context, r *process.StartRequest, stream *startStream) error {
		got = r.GetProcess()
		_ = started(stream, 1)
		_ = stderr(stream, []byte("no such server\n"))
		return ended(stream, code, fmt.Sprint("exit status ", code))
	}
	s.files = func(w http.ResponseWriter, r *http.Request) {
		if q := r.URL.Query(); q.Get("path") != "/etc/mcp-gateway/.token" || q.Get("username") != "root" {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = io.WriteString(w, " token\n")
	}
	servers := map[string]any{"exa": map[string]string{"apiKey": "secret"}}
	option := WithMCP(servers)
	servers["later"] = 1
	sb, err := s.client().Create(t.Context(), option)
	must.Do(t, err)
	defer sb.Close()
	if want := `{"templateID":"mcp-gateway","timeout":300,"mcp":{"exa":{"apiKey":"secret"}}}`; last() != want {
		t.Errorf("got the request %s, want %s", last(), want)
	}
	token := got.GetEnvs()["GATEWAY_ACCESS_TOKEN"]
	args := strings.Join(got.GetArgs(), " ")
	if !strings.HasSuffix(args, " "+mcpGateway+` {"exa":{"apiKey":"secret"}}`) || len(token) < 20 || s.starter != "root" {
		t.Errorf("started %s %q as %q with a token of %d characters", got.GetCmd(), args, s.starter, len(token))
	}
	if got := sb.MCPURL(); got != sb.URL(50005)+"/mcp" {
		t.Errorf("got the address %s", got)
	}
	if token, err := sb.MCPToken(t.Context()); token != "token" || err != nil {
		t.Errorf("got the token %q and error %v", token, err)
	}
	s.files = nil
	_, err = sb.MCPToken(t.Context())
	must.Is(t, err, fs.ErrNotExist)
	must.Do(t, sb.Close())
	s.mu.Lock()
	s.gone = false
	s.mu.Unlock()
	code = 3
	_, err = s.client().Create(t.Context(), option, WithTemplate("own"))
	if exit, ok := errors.AsType[*ExitError](err); !ok || exit.Result.ExitCode != 3 || !strings.HasPrefix(err.Error(), "sandbox: start MCP servers in "+testID) || strings.Contains(err.Error(), "secret") {
		t.Errorf("got error %v, want the failure of the gateway without its settings", err)
	}
	var sent struct{ TemplateID string }
	must.Do(t, json.Unmarshal([]byte(last()), &sent))
	if sent.TemplateID != "own" || s.seen("DELETE /sandboxes/"+testID) != 2 {
		t.Errorf("got the template %q, and %d sandboxes were killed, want own and both", sent.TemplateID, s.seen("DELETE"))
	}
}

// TestClientOfAHandle checks that a handle with its own client closes the client, and that no other handle does.
func TestClientOfAHandle(t *testing.T) {
	t.Parallel()
	s := newService(t)
	own := WithOptions(WithAPIKey(testKey), WithAPIURL(s.url), WithSandboxURL(s.url), WithEnvFile(""))
	for name, tt := range map[string]struct {
		open  func() (*Sandbox, error)
		owned bool // its client
	}{
		"created":             {func() (*Sandbox, error) { return Create(t.Context(), own) }, true},
		"connected":           {func() (*Sandbox, error) { return Connect(t.Context(), testID, own) }, true},
		"created by a client": {func() (*Sandbox, error) { return s.client().Create(t.Context()) }, false},
		"of another client":   {func() (*Sandbox, error) { return s.client().Connect(t.Context(), testID) }, false},
	} {
		s.mu.Lock()
		s.gone = false
		s.mu.Unlock()
		sb, err := tt.open()
		must.Do(t, err)
		if sb.client.API() != sb.client.api {
			t.Errorf("%s: the client of the API is another", name)
		}
		must.Do(t, sb.Close())
		sb.client.mu.Lock()
		if sb.client.closed != tt.owned {
			t.Errorf("%s: the client is closed: %v, want %v", name, sb.client.closed, tt.owned)
		}
		sb.client.mu.Unlock()
	}
}
