package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/e2bctl/e2bctl/internal/cloud/builds"
	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/image"
	"github.com/e2bctl/e2bctl/internal/cloud/layers"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle/lifecycletest"
	"github.com/e2bctl/e2bctl/internal/cloud/mounts"
	"github.com/e2bctl/e2bctl/internal/cloud/requestlog"
	"github.com/e2bctl/e2bctl/internal/cloud/secrets"
	"github.com/e2bctl/e2bctl/internal/cloud/store"
	"github.com/e2bctl/e2bctl/internal/cloud/telemetry"
	"github.com/e2bctl/e2bctl/internal/cloud/templates"
	"github.com/e2bctl/e2bctl/internal/cloud/volumes"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testKey = "e2b_0123456789abcdef0123456789abcdef01234567"

// service is the API over a registry of fakes.
type service struct {
	*Service
	registry *lifecycle.Registry
	fakes    *lifecycletest.Fakes
	kept     *telemetry.Registry
	builder  *builds.Builder
	log      requestlog.Log
	url      string
	ctx      context.Context //nolint:containedctx // of all requests: it ends a test that asks again and again, as for the next page
}

func start(t *testing.T, change ...func(*lifecycle.Options)) *service {
	t.Helper()
	s := &service{fakes: &lifecycletest.Fakes{}, ctx: patience.Context(t)}
	s.kept = telemetry.New(telemetry.Options{CPUs: 2})
	t.Cleanup(s.kept.Close)
	o := lifecycle.Options{Launch: s.fakes.Launch, Ended: s.kept.End, Store: store.Temporary(t.TempDir())}
	for _, c := range change {
		c(&o)
	}
	o.Layers = layers.Open(layers.Options{Store: o.Store})
	s.registry = lifecycle.New(o)
	all := templates.Open(templates.Options{Store: o.Store, Layers: o.Layers})
	s.builder = newBuilder(t, o.Store, o.Layers, all)
	s.Service = New(Options{
		Telemetry: s.kept,
		Key:       testKey, Domain: "localhost:1", EnvdVersion: "0.6.13", Architecture: "s390x", Sandboxes: s.registry, Store: o.Store,
		Templates: all, Builds: s.builder,
		Volumes:   volumes.New(volumes.Options{Store: o.Store, OneID: os.Geteuid() != 0}),
		Secrets:   secrets.New(secrets.Options{Store: o.Store, Key: secrets.NewKey()}),
		Resources: Resources{CPUs: 2, MemoryMB: 2048, DiskMB: 1024}, Engine: engine.Room,
		NoDiskLimit: func(name engine.Name) bool { return name == engine.GVisor },
		Of:          map[engine.Name]Resources{engine.Docker: {CPUs: 1, MemoryMB: 512, DiskMB: 1024}},
		Mounts:      []mounts.Mount{{Dir: "/host", Path: "/shown"}},
	})
	server := httptest.NewServer(s.log.Handler(s.Service))
	s.url = server.URL
	t.Cleanup(func() {
		server.Close()
		if err := s.registry.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// images contains every image that does not have the tag missing. Each pull creates the layer anew.
type images struct{ layers *layers.Set }

func (i images) Pull(_ context.Context, reference string, _ *image.Auth, _ func(string)) (image.Image, error) {
	if strings.HasSuffix(reference, ":missing") {
		return image.Image{}, errors.New("there is no such image")
	}
	id, err := i.layers.Add(func(dir string, share bool) (bool, error) {
		return share, os.WriteFile(filepath.Join(dir, "files"), nil, 0o600)
	})
	return image.Image{Digest: "sha256:1", Layers: []string{id}}, err
}

// newBuilder returns a builder whose sandboxes do not start. Of the engines, only Docker has images.
func newBuilder(t *testing.T, st *store.Store, set *layers.Set, all *templates.Registry, change ...func(*builds.Options)) *builds.Builder {
	t.Helper()
	o := builds.Options{
		Store: st, Templates: all, Layers: set, Cache: builds.OpenCache(st, set, slog.New(slog.DiscardHandler)),
		Launch: func(context.Context, lifecycle.Spec) (builds.Sandbox, error) {
			return nil, errors.New("no sandbox here")
		},
		Target: func(_ context.Context, name engine.Name) (t builds.Target, err error) {
			if name == engine.Docker {
				t.Images = images{set}
			}
			return t, nil
		},
		Logger: slog.New(slog.DiscardHandler),
	}
	for _, c := range change {
		c(&o)
	}
	b := builds.New(o)
	t.Cleanup(b.Close)
	return b
}

func templatesOf(st *store.Store) *templates.Registry {
	return templates.Open(templates.Options{Store: st, Layers: layers.Open(layers.Options{Store: st})})
}

func (s *service) do(t *testing.T, method, path, body string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(s.ctx, method, s.url+path, strings.NewReader(body))
	must.Do(t, err)
	r.Header.Set("X-API-KEY", testKey)
	return send(t, r)
}

// send sends a request. It checks that no cache may keep a JSON answer, and that the answer has a
// length, because clients fail on an empty chunked body.
func send(t *testing.T, r *http.Request) (*http.Response, string) {
	t.Helper()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(r)
	must.Do(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	must.Do(t, err)
	if resp.ContentLength != int64(len(text)) && r.Method != http.MethodHead {
		t.Errorf("%s %s: got the length %d of %d bytes", r.Method, r.URL.Path, resp.ContentLength, len(text))
	}
	if kind := resp.Header.Get("Content-Type"); strings.Contains(kind, "json") && resp.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("%s %s: got Cache-Control %q, want no-store", r.Method, r.URL.Path, resp.Header.Get("Cache-Control"))
	}
	return resp, string(text)
}

func (s *service) must(t *testing.T, method, path, body string, status int) map[string]any {
	t.Helper()
	resp, text := s.do(t, method, path, body)
	if resp.StatusCode != status {
		t.Fatalf("%s %s: %d %s, want %d", method, path, resp.StatusCode, text, status)
	}
	if text == "" {
		return nil
	}
	var object map[string]any
	if err := json.Unmarshal([]byte(text), &object); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return object
}

func (s *service) mustCreate(t *testing.T, body string) string {
	t.Helper()
	return s.must(t, "POST", "/v2/sandboxes", body, 201)["sandboxID"].(string)
}

// failure is a request, and the error that must answer it.
type failure struct {
	method, path, body string
	status             int
	message            string
}

// fails checks, in a subtest for each failure, that the request has the expected error. Pages of
// other origins must not be able to read the error.
func (s *service) fails(t *testing.T, failures []failure) {
	t.Helper()
	for _, f := range failures {
		t.Run(f.method+" "+f.path+" "+f.body, func(t *testing.T) {
			resp, text := s.do(t, f.method, f.path, f.body)
			var got apiError
			if err := json.Unmarshal([]byte(text), &got); err != nil {
				t.Fatalf("%d %s: %v", resp.StatusCode, text, err)
			}
			if want := (apiError{Code: f.status, Message: f.message}); resp.StatusCode != f.status || got != want {
				t.Errorf("%d %s, want %+v", resp.StatusCode, text, want)
			}
			if resp.Header.Get("Access-Control-Allow-Origin") != "" {
				t.Error("foreign origins must not read the API")
			}
		})
	}
}

// goneID is the ID of a sandbox that does not exist.
const goneID = "inobody0000000000000"

func TestErrorsOfCreate(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.fails(t, []failure{
		{"POST", "/sandboxes", ``, 400, "validation error: the request has no body"},
		{"POST", "/sandboxes", `{`, 400, "the body is not JSON: unexpected end of JSON input"},
		{"POST", "/sandboxes", `[]`, 400, "validation error: the body must be an object, not array"},
		{"POST", "/sandboxes", `{}`, 400, "validation error: templateID is missing"},
		{"POST", "/sandboxes", `{"templateID":1}`, 400, "validation error: templateID must be a string, not number"},
		{"POST", "/sandboxes", `{"templateID":"nope"}`, 404, "template 'nope' not found"},
		{"POST", "/sandboxes", `{"templateID":"team/base"}`, 404, "template 'team/base' not found"},
		{"POST", "/sandboxes", `{"templateID":"base:v2"}`, 404, "tag 'v2' does not exist for template 'base'"},
		{"POST", "/sandboxes", `{"templateID":"base","timeout":0}`, 400, "Timeout must be greater than 0"},
		{"POST", "/v2/sandboxes", `{"templateID":"base","timeout":0}`, 400, "Timeout must be greater than 0"},
		{"POST", "/v2/sandboxes", `{"templateID":"base","timeout":-1}`, 400, "validation error: timeout must not be negative"},
		{"POST", "/v2/sandboxes", `{"templateID":"base","timeout":1.5}`, 400, "validation error: timeout must be a 32-bit integer, not number 1.5"},
		{"POST", "/v2/sandboxes", `{"templateID":"base","timeout":86401}`, 400, "Timeout cannot be greater than 24 hours"},
		{"POST", "/v2/sandboxes", `{"templateID":"base","autoPauseMemory":false}`, 400, "validation error: autoPauseMemory false needs autoPause true"},
		{"POST", "/v2/sandboxes", `{"templateID":"base","autoPause":true,"autoPauseMemory":false,"autoResume":{"enabled":true}}`, 400, "validation error: autoResume.enabled true needs autoPauseMemory true: requests do not resume a sandbox without memory"},
		{"POST", "/v2/sandboxes", `{"templateID":"base","mcp":[]}`, 400, "validation error: mcp must be an object, not array"},
		{"POST", "/v2/sandboxes", `{"templateID":"mcp-gateway","mcp":{"github":{}}}`, 404, "template 'mcp-gateway' not found: a local cloud brings no program for MCP servers: build a template mcp-gateway with the program mcp-gateway"},
		{"POST", "/v2/sandboxes", `{"templateID":"base","iam":{"tokens":{"a":{}}}}`, 400, "not supported by this local cloud: the field iam"},
		{"POST", "/v2/sandboxes", `{"templateID":"base","network":{"httpsPorts":[443,0]}}`, 400, "validation error: network.httpsPorts must be ports from 1 to 65535"},
		{"POST", "/v2/sandboxes", `{"templateID":"base","network":{"httpsPorts":[65536]}}`, 400, "validation error: network.httpsPorts must be ports from 1 to 65535"},
		{"POST", "/v2/sandboxes", `{"templateID":"base","network":{"httpsPorts":[49983]}}`, 400, "validation error: network.httpsPorts must not have 49983, envd's port"},
		{"POST", "/v2/sandboxes", `{"templateID":"base","network":{"httpsPorts":[` + strings.Repeat("1,", 1024) + `1]}}`, 400, "validation error: network.httpsPorts has more than 1024 ports"},
		{"POST", "/v2/sandboxes", `{"templateID":"base","network":{"maskRequestHost":"a/b"}}`, 400, "validation error: network.maskRequestHost is not a host name"},
		{"POST", "/sandboxes", `{"templateID":"base","network":{"allowPublicTraffic":false}}`, 400, "validation error: network.allowPublicTraffic false needs secure true"},
		{"POST", "/v2/sandboxes", `{"templateID":"base","envVars":{"A=B":""}}`, 400, `validation error: envVars has "A=B", which cannot be an environment variable`},
		{"POST", "/v2/sandboxes", `{"templateID":"base","envVars":{"A":1}}`, 400, "validation error: envVars must be a string, not number"},
	})
}

// TestErrorsOfSandboxes checks the errors of requests to one sandbox that are invalid, or that its
// state does not allow.
func TestErrorsOfSandboxes(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.mustCreate(t, `{"templateID":"base"}`)
	s.fails(t, []failure{
		{"GET", "/sandboxes/a-b-c/logs", ``, 400, "Invalid sandbox ID"},
		{"POST", "/sandboxes/a-b-c/timeout", `{"timeout":1}`, 400, "Invalid sandbox ID"},
		{"POST", "/sandboxes/" + goneID + "/connect", `{"timeout":86401}`, 400, "Timeout cannot be greater than 24 hours"},
		{"POST", "/v2/sandboxes/" + goneID + "/connect", `{"timeout":-1}`, 400, "validation error: timeout must not be negative"},
		{"POST", "/sandboxes/" + goneID + "/resume", `{"timeout":86401}`, 400, "Timeout cannot be greater than 24 hours"},
		{"POST", "/sandboxes/" + goneID + "/timeout", `{"timeout":-1}`, 400, "validation error: timeout must not be negative"},
		{"POST", "/sandboxes/" + goneID + "/timeout", `{"timeout":2147483648}`, 400, "validation error: timeout must be a 32-bit integer, not number 2147483648"},
		{"POST", "/sandboxes/" + goneID + "/refreshes", `{"duration":3601}`, 400, "validation error: duration must be between 0 and 3600"},
		{"PUT", "/sandboxes/" + goneID + "/network", `{"denyOut":["a.test"]}`, 400, `validation error: denyOut has "a.test": want an address or a network such as 10.0.0.0/8; to deny names, deny 0.0.0.0/0 and allow others`},
		{"GET", "/sandboxes/a-b-c", ``, 400, "Invalid sandbox ID"},
		{"GET", "/sandboxes/A", ``, 400, "Invalid sandbox ID"},
		{"POST", "/sandboxes/" + id + "/connect", ``, 400, "validation error: the request has no body"},
		{"POST", "/sandboxes/" + id + "/connect", `{}`, 400, "validation error: timeout is missing"},
		{"POST", "/v2/sandboxes/" + id + "/connect", `{"timeout":86401}`, 400, "Timeout cannot be greater than 24 hours"},
		{"POST", "/sandboxes/" + id + "/timeout", `{}`, 400, "validation error: timeout is missing"},
		{"POST", "/sandboxes/" + id + "/timeout", `{"timeout":-1}`, 400, "validation error: timeout must not be negative"},
		{"POST", "/sandboxes/" + id + "/refreshes", `{"duration":3601}`, 400, "validation error: duration must be between 0 and 3600"},
		{"POST", "/sandboxes/" + id + "/resume", `{}`, 409, "Sandbox " + id + " is already running"},
	})
}

// TestErrorsOfMissingSandboxes checks that every request to a sandbox that does not exist has the
// same answer.
func TestErrorsOfMissingSandboxes(t *testing.T) {
	t.Parallel()
	s := start(t)
	notFound := fmt.Sprintf(`Sandbox "%s" doesn't exist or you don't have access to it`, goneID)
	s.fails(t, []failure{
		{"GET", "/sandboxes/" + goneID, ``, 404, notFound},
		{"DELETE", "/sandboxes/" + goneID, ``, 404, notFound},
		{"POST", "/sandboxes/" + goneID + "/connect", `{"timeout":1}`, 404, notFound},
		{"POST", "/v2/sandboxes/" + goneID + "/connect", ``, 404, notFound},
		{"POST", "/v2/sandboxes/NOT-AN-ID/connect", ``, 400, "Invalid sandbox ID"},
		{"POST", "/sandboxes/NOT-AN-ID/resume", `{"timeout":1}`, 400, "Invalid sandbox ID"},
		{"POST", "/sandboxes/" + goneID + "/timeout", `{"timeout":1}`, 404, notFound},
		{"POST", "/sandboxes/" + goneID + "/refreshes", ``, 404, notFound},
		{"POST", "/sandboxes/" + goneID + "/resume", ``, 404, notFound},
		{"PUT", "/sandboxes/" + goneID + "/network", `{}`, 404, notFound},
		{"POST", "/sandboxes/" + goneID + "/pause", ``, 404, notFound},
		{"POST", "/sandboxes/" + goneID + "/fork", ``, 404, notFound},
		{"POST", "/sandboxes/" + goneID + "/snapshots", `{}`, 404, notFound},
		{"GET", "/sandboxes/" + goneID + "/metrics", ``, 404, notFound},
		{"GET", "/sandboxes/" + goneID + "/logs", ``, 404, notFound},
		{"GET", "/v2/sandboxes/" + goneID + "/logs", ``, 404, notFound},
	})
}

func TestErrorsOfTemplates(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.fails(t, []failure{
		{"GET", "/templates/nope", ``, 404, "template 'nope' not found"},
		{"PATCH", "/v2/templates/nope", `{}`, 404, "template 'nope' not found"},
		{"GET", "/templates/nope/builds/b/status", ``, 404, "template 'nope' not found"},
		{"POST", "/v2/templates/nope/builds/b", `{}`, 404, "template 'nope' not found"},
		{"POST", "/v3/templates", `{}`, 400, "validation error: name is missing"},
		{"DELETE", "/templates/team%2Fname%3Atag", ``, 404, "template 'team/name:tag' not found"},
		{"GET", "/templates/aliases/nope", ``, 404, "template 'nope' not found"},
	})
}

func TestErrorsOfQueries(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.fails(t, []failure{
		{"GET", "/v2/sandboxes?limit=0", ``, 400, "validation error: limit must be between 1 and 100"},
		{"GET", "/v2/sandboxes?limit=101", ``, 400, "validation error: limit must be between 1 and 100"},
		{"GET", "/v2/sandboxes?state=stopped", ``, 400, "validation error: state must be running or paused"},
		{"GET", "/v2/sandboxes?order=up", ``, 400, "validation error: order must be asc or desc"},
		{"GET", "/v2/sandboxes?nextToken=x", ``, 400, "Invalid next token"},
		{"GET", "/v2/sandboxes?startedAfter=yesterday", ``, 400, "validation error: startedAfter must be an RFC 3339 time"},
		{"GET", "/v2/sandboxes?template=base:v1", ``, 400, "validation error: template must not have a tag here"},
		{"GET", "/v2/sandboxes?metadata=a", ``, 400, "validation error: metadata must be pairs of the form key=value"},
		{"GET", "/sandboxes?metadata=a%3Db%3Dc", ``, 400, "validation error: metadata must be pairs of the form key=value"},
		{"GET", "/sandboxes?%zz", ``, 400, "validation error: the query cannot be parsed"},
	})
}

func TestErrorsOfUnsupported(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.fails(t, []failure{
		{"GET", "/access-tokens", ``, 501, "not supported by this local cloud: access tokens, which are deprecated: use an API key"},
		{"POST", "/access-tokens", `{}`, 501, "not supported by this local cloud: access tokens, which are deprecated: use an API key"},
		{"DELETE", "/access-tokens/a", ``, 501, "not supported by this local cloud: access tokens, which are deprecated: use an API key"},
		{"GET", "/nodes", ``, 501, "not supported by this local cloud: nodes: it is one machine"},
		{"POST", "/nodes/a", `{}`, 501, "not supported by this local cloud: nodes: it is one machine"},
		{"GET", "/admin/sandboxes/running-counts", ``, 501, "not supported by this local cloud: administration of a cluster"},
		{"PATCH", "/events/webhooks/a", `{}`, 501, "not supported by this local cloud: webhooks of events"},
	})
}

func TestErrorsOfPaths(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.fails(t, []failure{
		{"GET", "/nothing", ``, 404, "no such path in the API: /nothing"},
		{"PUT", "/sandboxes", ``, 405, "PUT is not allowed on /sandboxes, only GET, POST"},
		{"OPTIONS", "/sandboxes", ``, 405, "OPTIONS is not allowed on /sandboxes, only GET, POST"},
	})
}

func TestKey(t *testing.T) {
	t.Parallel()
	s := start(t)
	tests := []struct {
		name, header, value, path string
		status                    int
	}{
		{"none", "", "", "/sandboxes", 401},
		{"wrong", "X-API-KEY", testKey[:len(testKey)-1] + "0", "/sandboxes", 401},
		{"shorter", "X-API-KEY", "e2b_", "/sandboxes", 401},
		{"as bearer", "Authorization", "Bearer " + testKey, "/sandboxes", 401},
		{"none, unknown path", "", "", "/nothing", 401},
		{"none, health", "", "", "/health", 200},
		{"right", "X-Api-Key", testKey, "/sandboxes", 200},
	}
	for _, tt := range tests {
		r, _ := http.NewRequestWithContext(t.Context(), "GET", s.url+tt.path, nil)
		if tt.header != "" {
			r.Header.Set(tt.header, tt.value)
		}
		resp, text := send(t, r)
		if resp.StatusCode != tt.status {
			t.Errorf("%s: %d %s, want %d", tt.name, resp.StatusCode, text, tt.status)
		}
		if want := `{"code":401,"message":"`; tt.status == 401 && (!strings.HasPrefix(text, want) || strings.Contains(text, testKey[4:])) {
			t.Errorf("%s: got %s, want %s at its start, without the key", tt.name, text, want)
		}
	}
}

func TestCreate(t *testing.T) {
	t.Parallel()
	s := start(t)
	tests := []struct {
		name, path, body          string
		secured, traffic, offline bool
		alias                     string
		lifetime                  time.Duration
		mask                      string
		https                     []int
		ignored                   []string
	}{
		{name: "v1 defaults", path: "/sandboxes", body: `{"templateID":"base"}`, alias: "base", lifetime: 15 * time.Second},
		{name: "v2 defaults", path: "/v2/sandboxes", body: `{"templateID":"base"}`, alias: "base", lifetime: 300 * time.Second, secured: true},
		{name: "v2 is always secure", path: "/v2/sandboxes", body: `{"templateID":"base","secure":false}`, alias: "base", lifetime: 300 * time.Second, secured: true},
		{name: "old SDK", path: "/sandboxes", body: `{"templateID":"code-interpreter-v1","timeout":300,"secure":true,"allow_internet_access":true,"autoPause":false,"autoResume":{"enabled":false},"mcp":null,"metadata":{},"envVars":{"A":"b"},"volumeMounts":[]}`,
			alias: "code-interpreter-v1", lifetime: 300 * time.Second, secured: true},
		{name: "by id, offline", path: "/v2/sandboxes", body: `{"templateID":" LocalBaseTemplate000:default","timeout":86400,"allow_internet_access":false}`, alias: "base", lifetime: 24 * time.Hour, secured: true, offline: true},
		{name: "private traffic, mask", path: "/v2/sandboxes", body: `{"templateID":"base","network":{"allowPublicTraffic":false,"maskRequestHost":"a.b:${PORT}","egressProxy":null,"rules":{}}}`, alias: "base", lifetime: 300 * time.Second, secured: true, traffic: true, mask: "a.b:${PORT}"},
		{name: "ports with TLS", path: "/v2/sandboxes", body: `{"templateID":"base","network":{"httpsPorts":[443,8443]}}`, alias: "base", lifetime: 300 * time.Second, secured: true, https: []int{443, 8443}},
		{name: "future fields", path: "/v2/sandboxes", body: `{"templateID":"base","zeta":1,"alpha":{},"network":{"beta":2}}`, alias: "base", lifetime: 300 * time.Second, secured: true, ignored: []string{"alpha", "network.beta", "zeta"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			began := time.Now().Truncate(time.Second)
			got := s.must(t, "POST", tt.path, tt.body, 201)
			id := got["sandboxID"].(string)
			spec := s.fakes.Spec(id)
			if len(id) != 21 || id[0] != 'i' || strings.ContainsFunc(id, notLowerAlphanumeric) {
				t.Errorf("id %q", id)
			}
			if secured, traffic := spec.AccessToken != "", spec.TrafficToken != ""; secured != tt.secured || traffic != tt.traffic {
				t.Errorf("got an access token: %v, a traffic token: %v, want %v, %v", secured, traffic, tt.secured, tt.traffic)
			}
			if offline := spec.Egress.DenyAll(); offline != tt.offline {
				t.Errorf("got offline: %v, want %v", offline, tt.offline)
			}
			if spec.MaskHost != tt.mask || !slices.Equal(spec.HTTPSPorts, tt.https) {
				t.Errorf("got host %q and HTTPS ports %v, want %q and %v", spec.MaskHost, spec.HTTPSPorts, tt.mask, tt.https)
			}
			want := map[string]any{
				"sandboxID": id, "templateID": spec.Template.ID, "clientID": "local", "envdVersion": "0.6.13",
				"alias": tt.alias, "domain": "localhost:1",
			}
			if tt.secured {
				want["envdAccessToken"] = spec.AccessToken
			}
			if tt.traffic {
				want["trafficAccessToken"] = spec.TrafficToken
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
			got = s.must(t, "GET", "/sandboxes/"+id, "", 200)
			started, _ := time.Parse(time.RFC3339, got["startedAt"].(string))
			ends, _ := time.Parse(time.RFC3339, got["endAt"].(string))
			if ends.Sub(started) != tt.lifetime || started.Before(began) {
				t.Errorf("lives from %v to %v, want it for %v from %v or later", started, ends, tt.lifetime, began)
			}
			entries := s.log.Entries()
			if created := entries[len(entries)-2]; !slices.Equal(created.Ignored, tt.ignored) || created.Path != tt.path || created.Status != 201 {
				t.Errorf("logged %+v, want ignored %v, path %v and status 201", created, tt.ignored, tt.path)
			}
		})
	}
}

func TestDetail(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.mustCreate(t, `{"templateID":"base","metadata":{"a":"b"},"allow_internet_access":false,"network":{"allowPublicTraffic":false,"httpsPorts":[443]}}`)
	got := s.must(t, "GET", "/sandboxes/"+id+"-client", "", 200)
	for _, at := range []string{"startedAt", "endAt"} {
		if _, err := time.Parse(time.RFC3339Nano, got[at].(string)); err != nil {
			t.Error(err)
		}
		delete(got, at)
	}
	want := map[string]any{
		"templateID": "localbasetemplate000", "sandboxID": id, "clientID": "local", "alias": "base",
		"cpuCount": 2.0, "memoryMB": 2048.0, "diskSizeMB": 1024.0, "state": "running", "envdVersion": "0.6.13",
		"metadata": map[string]any{"a": "b"}, "volumeMounts": []any{}, "envdAccessToken": s.fakes.Spec(id).AccessToken,
		"allowInternetAccess": false, "domain": "localhost:1", "network": map[string]any{"allowPublicTraffic": false, "httpsPorts": []any{443.0}},
		"lifecycle": map[string]any{"autoResume": false, "onTimeout": "kill"},
		"engine":    "room", "mounts": []any{map[string]any{"dir": "/host", "path": "/shown", "writable": false}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("detail (-want +got):\n%s", diff)
	}
	if got := s.must(t, "GET", "/templates/aliases/BASE", "", 200); got["templateID"] != "localbasetemplate000" || got["public"] != true {
		t.Errorf("alias %v, want the public template %q", got, "localbasetemplate000")
	}
}

func TestLifetime(t *testing.T) {
	t.Parallel()
	s := start(t)
	created := time.Now()
	id := s.mustCreate(t, `{"templateID":"base","timeout":100}`)
	advanced := time.Duration(0)
	advance := func(d time.Duration) {
		s.registry.Advance(d)
		advanced += d
	}
	// wantLeft checks that the sandbox ends a time after the call that was made
	// since from.
	wantLeft := func(what string, from time.Time, want time.Duration) {
		t.Helper()
		now := time.Now()
		end, err := time.Parse(time.RFC3339, s.must(t, "GET", "/sandboxes/"+id, "", 200)["endAt"].(string))
		must.Do(t, err)
		end = end.Add(-advanced)
		if first, last := from.Add(want), now.Add(want); end.Before(first.Add(-time.Second)) || end.After(last.Add(time.Second)) {
			t.Errorf("after %s: got the end %v, want it from %v to %v", what, end, first, last)
		}
	}
	steps := []struct {
		path, body string
		status     int
		want       time.Duration
		kept       bool // the end of the lifetime is the same as at the sandbox's creation
	}{
		{"/sandboxes/%s/connect", `{"timeout":50}`, 200, 100 * time.Second, true},
		{"/sandboxes/%s/connect", `{"timeout":200}`, 200, 200 * time.Second, false},
		{"/v2/sandboxes/%s/connect", ``, 200, 300 * time.Second, false},
		{"/v2/sandboxes/%s/connect", `{"memory":true}`, 200, 300 * time.Second, false},
		{"/sandboxes/%s/timeout", `{"timeout":60}`, 204, 60 * time.Second, false},
		{"/sandboxes/%s/refreshes", ``, 204, 60 * time.Second, false},
		{"/sandboxes/%s/refreshes", `{"duration":90}`, 204, 90 * time.Second, false},
		{"/sandboxes/%s/timeout", `{"timeout":5}`, 204, 5 * time.Second, false},
		{"/sandboxes/%s/refreshes", ``, 204, 15 * time.Second, false},
		{"/sandboxes/%s/timeout", `{"timeout":5}`, 204, 5 * time.Second, false},
		{"/sandboxes/%s/refreshes", `{"duration":14}`, 204, 15 * time.Second, false},
		{"/sandboxes/%s/refreshes", `{"duration":20}`, 204, 20 * time.Second, false},
		{"/sandboxes/%s/refreshes", `{"duration":3600}`, 204, time.Hour, false},
		{"/sandboxes/%s/timeout", `{"timeout":2000000000}`, 204, 24 * time.Hour, true},
	}
	for _, step := range steps {
		from := time.Now()
		if step.kept {
			from = created
		}
		s.must(t, "POST", fmt.Sprintf(step.path, id), step.body, step.status)
		wantLeft(step.path+" "+step.body, from, step.want)
	}
	advance(24*time.Hour - time.Minute)
	if s.fakes.Fake(id).Ended() {
		t.Fatal("ended too early")
	}
	// The longest lifetime counts from the start.
	s.must(t, "POST", "/v2/sandboxes/"+id+"/connect", `{"timeout":3600}`, 200)
	wantLeft("the longest life but a minute", created, time.Minute)
	advance(time.Minute)
	if !s.fakes.Fake(id).Ended() {
		t.Fatal("lives too long")
	}
	message := s.must(t, "GET", "/sandboxes/"+id, "", 404)["message"].(string)
	if want := fmt.Sprintf("Sandbox %q doesn't exist or you don't have access to it: its lifetime was over at ", id); !strings.HasPrefix(message, want) {
		t.Errorf("got %v, want %q at its start", message, want)
	}
}

func TestTimeoutZeroEndsAtOnce(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.mustCreate(t, `{"templateID":"base"}`)
	s.must(t, "POST", "/sandboxes/"+id+"/timeout", `{"timeout":0}`, 204)
	<-s.fakes.Fake(id).Done()
	s.must(t, "GET", "/sandboxes/"+id, "", 404)
}

func TestDeath(t *testing.T) {
	t.Parallel()
	s := start(t, func(o *lifecycle.Options) { o.MaxSandboxes = 1 })
	id := s.mustCreate(t, `{"templateID":"base"}`)
	s.fakes.Fake(id).Die(errors.New("out of memory"))
	for {
		resp, text := s.do(t, "GET", "/sandboxes/"+id, "")
		if resp.StatusCode == 404 && strings.Contains(text, "it died: out of memory at ") {
			break
		}
	}
}

func TestKill(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.mustCreate(t, `{"templateID":"base"}`)
	s.must(t, "DELETE", "/sandboxes/"+id, "", 204)
	if !s.fakes.Fake(id).Ended() {
		t.Error("still alive after DELETE")
	}
	s.must(t, "DELETE", "/sandboxes/"+id, "", 404)
	s.must(t, "POST", "/sandboxes/"+id+"/timeout", `{"timeout":1}`, 404)
}

func TestConcurrencyBound(t *testing.T) {
	t.Parallel()
	s := start(t, func(o *lifecycle.Options) { o.MaxSandboxes = 3 })
	hold := make(chan struct{})
	s.fakes.Before = func(context.Context) { <-hold }
	var statuses sync.Map
	var work sync.WaitGroup
	for i := range 8 {
		work.Go(func() {
			resp, text := s.do(t, "POST", "/v2/sandboxes", `{"templateID":"base"}`)
			statuses.Store(i, resp.StatusCode)
			if resp.StatusCode != 429 {
				return
			}
			if after, should := resp.Header.Get("Retry-After"), resp.Header.Get("Should-Retry"); after != "" || should != "false" {
				t.Errorf("got Retry-After %q, Should-Retry %q, want none, false", after, should)
			}
			if want := "sandboxes, 3"; !strings.Contains(text, want) {
				t.Errorf("got %s, want %q in it", text, want)
			}
		})
	}
	for range 3 {
		hold <- struct{}{}
	}
	work.Wait()
	count := map[int]int{}
	statuses.Range(func(_, status any) bool { count[status.(int)]++; return true })
	if want := map[int]int{201: 3, 429: 5}; !maps.Equal(count, want) {
		t.Errorf("statuses %v, want %v", count, want)
	}
	close(hold)
	// A sandbox that ended makes room.
	s.must(t, "DELETE", "/sandboxes/"+s.fakes.IDs()[0], "", 204)
	s.mustCreate(t, `{"templateID":"base"}`)
}

func TestLaunchFails(t *testing.T) {
	t.Parallel()
	s := start(t, func(o *lifecycle.Options) { o.MaxSandboxes = 1 })
	s.fakes.Fail(errors.New("no namespaces left"))
	for range 2 { // a failed one takes up no place
		got := s.must(t, "POST", "/v2/sandboxes", `{"templateID":"base"}`, 500)
		want := map[string]any{"code": 500.0, "error_code": "sandbox_create_failed", "message": "Failed to create sandbox: no namespaces left"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
	s.fakes.Fail(&lifecycle.RefusedError{Reason: "envVars are too large"})
	got := s.must(t, "POST", "/v2/sandboxes", `{"templateID":"base"}`, 400)
	if want := "validation error: envVars are too large"; got["message"] != want {
		t.Errorf("got %q, want the message %q", got, want)
	}
}

// TestAbandonedCreate checks that no sandbox is left if the client that requested it goes away.
func TestAbandonedCreate(t *testing.T) {
	t.Parallel()
	s := start(t)
	ctx, cancel := context.WithCancel(t.Context())
	s.fakes.Before = func(ctx context.Context) {
		cancel()
		<-ctx.Done()
	}
	r, _ := http.NewRequestWithContext(ctx, "POST", s.url+"/v2/sandboxes", strings.NewReader(`{"templateID":"base"}`))
	r.Header.Set("X-API-KEY", testKey)
	transport := &http.Transport{}
	if resp, err := transport.RoundTrip(r); err == nil {
		resp.Body.Close()
		t.Error("no error")
	}
	patience.Until(t, "there is a sandbox", func() bool { return len(s.fakes.IDs()) == 1 })
	id := s.fakes.IDs()[0]
	<-s.fakes.Fake(id).Done()
	s.must(t, "GET", "/sandboxes/"+id, "", 404)
}

func TestClose(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.mustCreate(t, `{"templateID":"base"}`)
	must.Do(t, errors.Join(s.registry.Close(), s.registry.Close()))
	if !s.fakes.Fake(id).Ended() {
		t.Error("alive after Close")
	}
	s.must(t, "POST", "/v2/sandboxes", `{"templateID":"base"}`, 503)
}

func TestLargeBody(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.must(t, "POST", "/v2/sandboxes", strings.Repeat(" ", maxBody+1), 413)
	s.must(t, "POST", "/v2/sandboxes", `{"templateID":"base"}`+strings.Repeat(" ", maxBody-30), 201)
}

// TestFullPages checks that a page with the last elements names no next page, even if it is full.
// Every earlier page names one.
func TestFullPages(t *testing.T) {
	t.Parallel()
	s := start(t)
	const n = 3
	for i := range n {
		id := s.mustCreate(t, `{"templateID":"base"}`)
		s.must(t, "POST", "/sandboxes/"+id+"/snapshots", fmt.Sprintf(`{"name":"job:v%d"}`, i), 201)
		s.must(t, "POST", "/secrets", fmt.Sprintf(`{"name":"S%d","value":"value"}`, i), 201)
		s.must(t, "POST", "/v3/templates", fmt.Sprintf(`{"name":"own%d"}`, i), 202)
	}
	s.must(t, "POST", "/v3/templates", `{"name":"own0","tags":["again"]}`, 202)
	more := func(path string) bool {
		t.Helper()
		response, text := s.do(t, "GET", path, "")
		if response.StatusCode != 200 {
			t.Fatalf("%s: got %d %s", path, response.StatusCode, text)
		}
		return response.Header.Get("X-Next-Token") != "" || strings.Contains(text, `"nextCursor":"`)
	}
	builtIn := 0
	for _, one := range s.templates.All() {
		if one.BuiltIn {
			builtIn++
		}
	}
	for path, all := range map[string]int{
		"/v2/sandboxes?limit=": n, "/v2/sandboxes?order=asc&limit=": n, "/snapshots?limit=": n, "/secrets?limit=": n, "/v2/templates?limit=": n + builtIn,
		"/templates/own0?limit=": 2, "/templates/job/tags/groups?tagsLimit=": n, "/templates/job/tags/groups?sort=name_asc&tagsLimit=": n,
	} {
		for limit, want := range map[int]bool{all - 1: true, all: false, all + 1: false} {
			if got := more(path + fmt.Sprint(limit)); got != want {
				t.Errorf("%s%d of %d: it names a next page: %v, want %v", path, limit, all, got, want)
			}
		}
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	s := start(t)
	ids := make([]string, 5)
	for i := range ids {
		ids[i] = s.mustCreate(t, fmt.Sprintf(`{"templateID":%q,"timeout":3600,"metadata":{"n":"%d","user id":"a&b=c%%+"}}`, []string{"base", "code-interpreter-v1"}[i%2], i))
		s.registry.Advance(time.Second)
	}
	var third struct{ StartedAt string }
	_, text := s.do(t, "GET", "/sandboxes/"+ids[2], "")
	must.Do(t, json.Unmarshal([]byte(text), &third))
	filter := func(pairs ...string) string { // encoded as by the SDKs
		form := url.Values{}
		for i := 0; i < len(pairs); i += 2 {
			form.Set(url.QueryEscape(pairs[i]), url.QueryEscape(pairs[i+1]))
		}
		return "metadata=" + url.QueryEscape(form.Encode())
	}
	tests := []struct {
		name, query string
		want        []int
		total       string
	}{
		{"all, newest first", "", []int{4, 3, 2, 1, 0}, "5"},
		{"ascending", "order=asc", []int{0, 1, 2, 3, 4}, "5"},
		{"pages", "limit=2", []int{4, 3, 2, 1, 0}, "5"},
		{"ascending pages", "limit=2&order=asc", []int{0, 1, 2, 3, 4}, "5"},
		{"running", "state=running", []int{4, 3, 2, 1, 0}, "5"},
		{"both states", "state=running,paused", []int{4, 3, 2, 1, 0}, "5"},
		{"paused", "state=paused", nil, ""},
		{"template", "template=base", []int{4, 2, 0}, "3"},
		{"template by id", "template=localcodeinterpreter", []int{3, 1}, "2"},
		{"unknown template", "template=nope", nil, "0"},
		{"started after, inclusive", "startedAfter=" + url.QueryEscape(third.StartedAt), []int{4, 3, 2}, "3"},
		{"started after, as exactly as starts are known", "startedAfter=" + url.QueryEscape(strings.Replace(third.StartedAt, "Z", "9Z", 1)), []int{4, 3, 2}, "3"},
		{"metadata", filter("n", "3"), []int{3}, "1"},
		{"metadata, special characters", filter("user id", "a&b=c%+"), []int{4, 3, 2, 1, 0}, "5"},
		{"metadata, two pairs", filter("user id", "a&b=c%+", "n", "0"), []int{0}, "1"},
		{"metadata, no match", filter("n", ""), nil, "0"},
		{"metadata, sloppy client", "metadata=n%3D1", []int{1}, "1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			query := tt.query
			for page := 0; ; page++ {
				resp, text := s.do(t, "GET", "/v2/sandboxes?"+query, "")
				if resp.StatusCode != 200 || resp.Header.Get("X-Total-Running") != tt.total {
					t.Fatalf("%d %s, X-Total-Running %q, want 200 and %q", resp.StatusCode, text, resp.Header.Get("X-Total-Running"), tt.total)
				}
				var list []listed
				if err := json.Unmarshal([]byte(text), &list); err != nil || list == nil {
					t.Fatalf("%s: got %v, want a list and no error", text, err)
				}
				for _, sb := range list {
					got = append(got, sb.SandboxID)
				}
				next := resp.Header.Get("X-Next-Token")
				if next == "" {
					break
				}
				query = tt.query + "&nextToken=" + url.QueryEscape(next)
			}
			var want []string
			for _, i := range tt.want {
				want = append(want, ids[i])
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	resp, _ := s.do(t, "GET", "/v2/sandboxes?limit=2", "")
	s.must(t, "GET", "/v2/sandboxes?order=asc&nextToken="+url.QueryEscape(resp.Header.Get("X-Next-Token")), "", 400)
	_, text = s.do(t, "GET", "/sandboxes?"+filter("n", "4"), "")
	var old []listed
	if err := json.Unmarshal([]byte(text), &old); err != nil || len(old) != 1 || old[0].SandboxID != ids[4] {
		t.Errorf("first generation: %s, want only %v", text, ids[4])
	}
}

func FuzzParseListQuery(f *testing.F) {
	f.Add("metadata=user%252520id%3Da%252526b")
	f.Add("limit=5&order=asc&state=running&template=base&startedAfter=2026-01-01T00:00:00Z")
	f.Add("nextToken=" + cursor{time.Unix(1, 2).UTC(), "iabc"}.encode(true))
	st := store.Temporary(f.TempDir())
	s := &Service{templates: templatesOf(st)}
	f.Fuzz(func(t *testing.T, raw string) {
		values, err := newQuery(raw)
		var q lifecycle.Query
		if err == nil {
			q, err = s.parseListQuery(values)
		}
		if err != nil {
			if e, ok := errors.AsType[*apiError](err); !ok || e.Code != 400 || len(e.Message) > 2*maxMessage {
				t.Errorf("got %v, want status 400 and a message of at most %d bytes", err, 2*maxMessage)
			}
			return
		}
		if q.Limit < 1 || q.Limit > maxPage {
			t.Errorf("limit %d, want 1 to %d", q.Limit, maxPage)
		}
		if q.After != nil {
			c, ascending, ok := decodeCursor(cursor(*q.After).encode(q.Ascending))
			if !ok || c.ID != q.After.ID || ascending != q.Ascending {
				t.Errorf("cursor %+v comes back as %+v, ascending: want %v", *q.After, c, q.Ascending)
			}
		}
	})
}

// FuzzMetadata checks that the server decodes metadata as clients encode it.
func FuzzMetadata(f *testing.F) {
	f.Add("user id", "a&b")
	f.Add("=%+ ", "é\x00")
	f.Fuzz(func(t *testing.T, key, value string) {
		form := url.Values{url.QueryEscape(key): {url.QueryEscape(value)}}
		query, err := url.ParseQuery("metadata=" + url.QueryEscape(form.Encode()))
		must.Do(t, err)
		got, err := parseMetadata(query.Get("metadata"))
		if err != nil || len(got) != 1 || got[key] != value {
			t.Errorf("%q=%q came as %q, %v", key, value, got, err)
		}
	})
}
