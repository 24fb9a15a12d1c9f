package control

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/mounts"
	"github.com/e2bctl/e2bctl/internal/cloud/network"
	"github.com/e2bctl/e2bctl/internal/cloud/store"
	"github.com/e2bctl/e2bctl/internal/cloud/templates"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// TestCreateIsWhole checks that each field of a request to create a sandbox, and each property of
// its template, reaches the sandbox's record.
func TestCreateIsWhole(t *testing.T) {
	t.Parallel()
	linuxOnly(t)
	s := start(t)
	trusted := httptest.NewTLSServer(http.NotFoundHandler())
	trusted.Close()
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: trusted.Certificate().Raw}))
	ref := templates.ParseReference("made")
	made, err := s.templates.Add(&ref, templates.Build{CPUs: 3, Content: templates.Content{
		Engine: engine.Docker, Image: &engine.Image{Reference: "a", Digest: "b"}, Envs: map[string]string{"A": "of the build", "B": "2"},
		User: "me", Home: "/home/made", Workdir: "/work", Start: "start", Ready: "ready",
	}})
	must.Do(t, err)
	volume := s.must(t, "POST", "/volumes", `{"name":"data"}`, 201)["volumeID"].(string)
	s.must(t, "POST", "/secrets", `{"name":"KEY","value":"value"}`, 201)
	yes, no := true, false
	q := createRequest{
		TemplateID: "made", Timeout: new(int32(77)), IdleTimeout: new(int32(33)), Secure: true, AllowInternetAccess: &yes, AutoPause: true, AutoPauseMemory: &yes, AutoResume: &autoResumeRequest{true},
		EnvVars: map[string]string{"A": "1"}, Metadata: map[string]string{"m": "n"}, MCP: map[string]any{"x": map[string]any{}}, IAM: json.RawMessage("null"),
		Network: &networkRequest{
			egressRequest: egressRequest{
				AllowOut: []string{"a.test"}, DenyOut: []string{"0.0.0.0/0"}, DNSServers: []string{"9.9.9.9"}, Ask: true,
				EgressProxy: &egressProxy{Address: "proxy.test:1080", Username: "u", Password: "p", TLS: &proxyTLS{Enabled: true, ServerName: "name.test", CACert: ca}},
				Rules:       map[string][]networkRule{"A.test": {{&transform{map[string]string{"X": "${e2b.secrets.KEY}"}}, []requestMatch{{[]string{"GET"}, "/a/**"}}}}},
			},
			AllowPublicTraffic: &no, MaskRequestHost: "mask.test", HTTPSPorts: []int{443},
		},
		VolumeMounts: []volumeMount{{"data", "/data"}}, Mounts: []hostMount{{"/dir", "/mounted", true}}, Resources: resourcesRequest{CPUCount: 0.5, MemoryBytes: 1 << 28, DiskBytes: 1 << 26},
	}
	for _, part := range []any{q, *q.Network, q.Network.egressRequest, *q.Network.EgressProxy, *q.Network.EgressProxy.TLS} {
		for i, v := 0, reflect.ValueOf(part); i < v.NumField(); i++ {
			if f := v.Type().Field(i); f.IsExported() && v.Field(i).IsZero() && f.Name != "Image" { // TestImageOf has this one
				t.Errorf("%T.%s is not tried", part, f.Name)
			}
		}
	}
	body, err := json.Marshal(q)
	must.Do(t, err)
	sb, err := s.registry.Get(s.mustCreate(t, string(body)))
	must.Do(t, err)
	got := sb.Request
	if got.Egress == nil || got.Network == nil || got.Network.Proxy == nil || len(got.Network.Proxy.Sealed) == 0 {
		t.Fatalf("got %+v, want rules and the proxy's sealed password", got)
	}
	got.Egress, got.Network.Proxy.Sealed = nil, nil
	want := lifecycle.Request{
		Template:  lifecycle.Template{ID: made.ID, Build: got.Template.Build, Alias: "made", User: "me", Home: "/home/made", Workdir: "/work", Start: "start", Ready: "ready", Engine: engine.Docker, Image: &engine.Image{Reference: "a", Digest: "b"}, Resources: engine.Resources{CPUs: 3}},
		Resources: engine.Resources{CPUs: 0.5, MemoryBytes: 1 << 28, DiskBytes: 1 << 26},
		Lifetime:  77 * time.Second, Idle: 33 * time.Second, Secure: true, Envs: map[string]string{"A": "1", "B": "2"}, Metadata: map[string]string{"m": "n"}, Internet: &yes,
		Network: &lifecycle.Network{
			AllowOut: []string{"a.test"}, DenyOut: []string{"0.0.0.0/0"}, NameServers: []string{"9.9.9.9"}, Headers: map[string]map[string]string{"a.test": {"X": "${e2b.secrets.KEY}"}},
			Requests: map[string][]network.Request{"a.test": {{Methods: []string{"GET"}, Path: "/a/**"}}},
			Proxy:    &network.EgressProxy{Address: "proxy.test:1080", Username: "u", TLS: true, ServerName: "name.test", CACert: ca},
			Ask:      true, AllowPublicTraffic: &no, MaskHost: "mask.test", HTTPSPorts: []int{443},
		},
		AutoPause: true, KeepMemory: true, AutoResume: true, Headers: true,
		Volumes: []lifecycle.VolumeMount{{ID: volume, Name: "data", Path: "/data"}}, Mounts: []mounts.Mount{{Dir: "/dir", Path: "/mounted", Writable: true}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestImageOf checks which templates are images.
func TestImageOf(t *testing.T) {
	t.Parallel()
	for template, want := range map[string]bool{
		"docker.io/library/python:3.12-slim": true, "registry.test/x": true, "registry.test:5000/team/x@sha256:0a": true, "127.0.0.1:5000/x": true, "localhost:5000/x": true, "x:80/y": true,
		"localhost/x": false, "team/name:tag": false, "team/a.b": false, "python:3.12": false, "a.b": false, "a.b:1": false, "": false, "x:tag/y": false, "x:65536/y": false, "oci:/dir": false, "docker-archive:/x.tar": false, "x:/y": false, "../base": false, "./base": false, ".hidden/base": false, "a..b/base": false, ":80/x": false,
	} {
		if got := imageOf(&createRequest{TemplateID: template}); (got != "") != want {
			t.Errorf("%q is the image %q, want an image: %v", template, got, want)
		}
		if got := imageOf(&createRequest{TemplateID: template, Image: "oci:/dir"}); got != "oci:/dir" {
			t.Errorf("%q with an image is the image %q, want that one", template, got)
		}
	}

	s := start(t)
	if got := s.must(t, "POST", "/v2/sandboxes", `{"templateID":"docker.io/e2bdev/code-interpreter:latest"}`, 201)["alias"]; got != "code-interpreter-v1" {
		t.Errorf("the image of a built-in template begins with %v", got)
	}
	for body, want := range map[string]int{
		`{"templateID":"base","resources":{"cpuCount":-1}}`: 400, `{"templateID":"base","resources":{"memoryBytes":-1}}`: 400, `{"templateID":"base","resources":{"diskBytes":-1}}`: 400, `{"templateID":"base","resources":{"memoryBytes":0.5}}`: 400,
		`{"templateID":"none","image":"python:3"}`: 404, `{"templateID":"base","image":"python:3"}`: 400, `{"templateID":"registry.test/python:3"}`: 400,
		`{"templateID":"base","idleTimeout":0}`: 400, `{"templateID":"base","idleTimeout":-1}`: 400, `{"templateID":"base","idleTimeout":"1"}`: 400,
		`{"templateID":"base","idleTimeout":60,"timeout":60}`: 400, `{"templateID":"base","idleTimeout":86400}`: 400,
		`{"templateID":"base","image":"` + strings.Repeat("x", maxImageName+1) + `"}`: 400,
	} {
		if response, text := s.do(t, "POST", "/v2/sandboxes", body); response.StatusCode != want {
			t.Errorf("%.80s: got %d %s, want %d", body, response.StatusCode, text, want)
		}
	}
}

// TestImagesAreReleased checks that no request holds the layers of its image after the answer,
// whatever the result. The file of an image is read for each request. Each time it has another
// layer, which replaces the last one in the cache.
func TestImagesAreReleased(t *testing.T) {
	t.Parallel()
	s := start(t)
	ref := templates.ParseReference("docker")
	_, err := s.templates.Add(&ref, templates.Build{Content: templates.Content{Engine: engine.Docker}})
	must.Do(t, err)
	for _, test := range []struct {
		body   string
		launch error
		status int
	}{
		{`"image":"oci:/dir"`, nil, 201},
		{`"image":"oci:/dir"`, nil, 201},
		{`"image":"oci:/dir","volumeMounts":[{"name":"none","path":"/x"}]`, nil, 400},
		{`"image":"oci:/dir"`, errors.New("no room"), 500},
		{`"image":"oci:/dir:missing"`, nil, 400},
	} {
		s.fakes.Fail(test.launch)
		s.must(t, "POST", "/v2/sandboxes", `{"templateID":"docker",`+test.body+`}`, test.status)
		all, err := s.options.Store.Records(store.Layers)
		must.Do(t, err)
		if len(all) != 1 {
			t.Errorf("%s: %d layers are kept, want the one in the cache", test.body, len(all))
		}
	}
}

// TestMountPointsAreApart checks that no volume and no directory of the host can be mounted at or
// below the mount point of another one.
func TestMountPointsAreApart(t *testing.T) {
	t.Parallel()
	for paths, want := range map[[2]string]bool{
		{"/a", "/b"}: true, {"/a", "/ab"}: true, {"/a/b", "/a/c"}: true, {"/ab", "/a"}: true,
		{"/a", "/a"}: false, {"/a", "/a/b"}: false, {"/a/b", "/a"}: false, {"/a/b/c", "/a"}: false,
	} {
		volume := func(path string) volumeMount { return volumeMount{"data", path} }
		dir := func(path string) hostMount { return hostMount{Dir: "/dir", Path: path} }
		first, second := paths[0], paths[1]
		for name, err := range map[string]error{
			"two volumes":              checkMounts([]volumeMount{volume(first), volume(second)}),
			"two volumes after one":    checkMounts([]volumeMount{volume("/x"), volume(first), volume(second)}),
			"two with one in between":  checkMounts([]volumeMount{volume(first), volume("/x"), volume(second)}),
			"two directories":          checkHostMounts([]hostMount{dir(first), dir("/x"), dir(second)}, nil),
			"a volume and a directory": checkHostMounts([]hostMount{dir(first)}, []volumeMount{volume("/x"), volume(second)}),
			"the other way round":      checkHostMounts([]hostMount{dir("/x"), dir(second)}, []volumeMount{volume(first)}),
		} {
			if (err == nil) != want {
				t.Errorf("%s at %v: got %v, want them to be allowed: %v", name, paths, err, want)
			}
		}
	}
}

// TestUniqueLabels checks that at most one sandbox has a unique label, and that a request leaves
// the label free, whatever its result.
func TestUniqueLabels(t *testing.T) {
	t.Parallel()
	s := start(t)
	create := func(body string, status int) string {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), "POST", s.url+"/v2/sandboxes", strings.NewReader(body))
		must.Do(t, err)
		r.Header.Set("X-API-KEY", testKey)
		r.Header.Set(protocol.HeaderUniqueLabel, "name")
		response, text := send(t, r)
		if response.StatusCode != status {
			t.Fatalf("%s: got %d %s, want %d", body, response.StatusCode, text, status)
		}
		s.unique.mu.Lock()
		defer s.unique.mu.Unlock()
		if len(s.unique.busy) > 0 {
			t.Fatalf("%s: after the answer %v are taken", body, s.unique.busy)
		}
		return text
	}
	const body = `{"templateID":"base","metadata":{"name":"a"}}`
	s.fakes.Fail(errors.New("no room"))
	create(body, 500)
	s.fakes.Fail(nil)
	create(`{"templateID":"base"}`, 400)
	create(`{"templateID":"base","metadata":{"name":""}}`, 400)
	var made answer
	must.Do(t, json.Unmarshal([]byte(create(body, 201)), &made))
	if text := create(body, 409); !strings.Contains(text, made.SandboxID) {
		t.Errorf("got %s, want the id of the other sandbox", text)
	}
	create(`{"templateID":"base","metadata":{"name":"b"}}`, 201)
	create(`{"templateID":"base","metadata":{"name":"c","other":"a"}}`, 201)
	s.must(t, "POST", "/sandboxes/"+made.SandboxID+"/pause", ``, 204)
	create(body, 409)
	s.must(t, "DELETE", "/sandboxes/"+made.SandboxID, "", 204)
	create(body, 201)
}

// TestLabelLocks checks that callers with one label run one after the other, that callers with
// other labels do not wait for them, and that a caller stops waiting when its request ends.
func TestLabelLocks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var all labelLocks
		first, second := [2]string{"name", "a"}, [2]string{"name", "b"}
		done, err := all.begin(t.Context(), first)
		must.Do(t, err)
		other, err := all.begin(t.Context(), second)
		must.Do(t, err)
		other()
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := all.begin(gone, first); !errors.Is(err, context.Canceled) {
			t.Errorf("got error %v, want %v", err, context.Canceled)
		}
		running := 1
		for range 3 {
			go func() {
				done, err := all.begin(t.Context(), first)
				if running++; err != nil || running > 1 {
					t.Errorf("got error %v and %d at once, want one", err, running)
				}
				running--
				done()
			}()
		}
		synctest.Wait()
		running--
		done()
		synctest.Wait()
		if len(all.busy) > 0 {
			t.Errorf("in the end %v are taken", all.busy)
		}
	})
}
