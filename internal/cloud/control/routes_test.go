package control

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle/lifecycletest"
)

// withoutQuery are the calls with GET that read no query.
var withoutQuery = []string{
	"GetSandbox", "GetTemplateAlias", "ListTeams", "ListKeys", "ListDefaultTemplates", "ListTags", "CountTags", "GetUpload",
	"GetSpace", "GetFeatures", "ListVolumes", "GetVolume", "GetSecret",
}

// withoutBody are the other calls that read no body.
var withoutBody = []string{
	"KillSandbox", "DeleteKey", "DeleteTemplate", "EmptyBuildCache", "DeleteVolume", "DeleteSecret",
	"StartBuild", // it looks for the build first
}

// TestEveryRouteRefuses checks that each call refuses a query and a body that cannot be read, an id that
// is none, and a sandbox that does not exist.
func TestEveryRouteRefuses(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.mustCreate(t, `{"templateID":"base"}`)
	all := append(s.table(), s.slowTable()...)
	for _, r := range s.belowTemplate() {
		all = append(all, route{r.operation, r.method, "/templates/base/" + r.path, r.handler})
	}
	own := func(path, id string) string { // the id in a path
		if strings.Contains(path, "/templates/") {
			return "base"
		}
		return id
	}
	const body = `{"timeout":1,"cpuCount":1,"name":"x"}`
	for _, r := range all {
		if r.operation == "" {
			continue
		}
		refuses := func(id, query, body string, status int, message string) {
			t.Helper()
			path := strings.NewReplacer("{id}", own(r.path, id), "{alias}", "base", "{build}", "x", "{tag}", "default", "{hash}", strings.Repeat("0", 64)).Replace(r.path)
			if resp, text := s.do(t, r.method, path+query, body); resp.StatusCode != status || !strings.Contains(text, message) {
				t.Errorf("%s %s%s %s: got %d %.200s, want %d %s", r.method, path, query, body, resp.StatusCode, text, status, message)
			}
		}
		if r.method == http.MethodGet && !slices.Contains(withoutQuery, r.operation) {
			refuses(id, "?%zz", body, 400, "the query cannot be parsed")
		}
		if r.method != http.MethodGet && !slices.Contains(withoutBody, r.operation) {
			refuses("x", "", "[]", 400, "the body must be an object, not array")
		}
		if strings.Contains(r.path, "sandboxes/{id}") {
			for _, no := range []string{"-a", "a-b-c", "A", "%7B", "%60", "%3A"} {
				refuses(no, "", body, 400, "Invalid sandbox ID")
			}
			if r.operation != "ListSandboxEvents" {
				refuses(goneID, "", body, 404, goneID)
			}
		}
	}
	s.fails(t, []failure{
		{"GET", "/templates/base/tags/exists?tag=a%20b", ``, 400, "the tag 'a b' must be 1 to 128 letters, digits, hyphens, underscores and dots, and no UUID"},
		{"GET", "/templates/base/tags/a%20b/assignments", ``, 400, "the tag 'a b' must be 1 to 128 letters, digits, hyphens, underscores and dots, and no UUID"},
		{"GET", "/events/sandboxes?after=start&wait=x", ``, 400, "validation error: wait must be true or false"},
		{"GET", "/events/sandboxes?limit=x", ``, 400, "validation error: limit must be a number from 1 to 100"},
		{"GET", "/sandboxes/" + id + "/metrics?start=1099511627777", ``, 400, "validation error: start must be a time in seconds since 1970"},
		{"GET", "/v2/sandboxes?metadata=%25zz", ``, 400, "validation error: metadata cannot be unescaped"},
		{"GET", "/v2/sandboxes?metadata=%2525zz%3Da", ``, 400, "validation error: metadata cannot be unescaped"},
		{"GET", "/v2/sandboxes?metadata=a%3D%2525zz", ``, 400, "validation error: metadata cannot be unescaped"},
		{"GET", "/v2/sandboxes?nextToken=YQ==", ``, 400, "Invalid next token"},
		{"GET", "/snapshots?nextToken=" + cursor{At: time.Now(), ID: "x"}.encode(true), ``, 400, "Invalid next token"},
		{"POST", "/v3/templates", `{"name":"a","teamID":"other"}`, 403, "no access to that team: this local cloud has only " + teamID},
		{"POST", "/v3/templates", `{"name":"a","engine":"other"}`, 400, "validation error: engine must be one of [room docker wasm gvisor], not \"other\""},
		{"POST", "/sandboxes", `{"templateID":"base","mounts":[{"dir":"a","path":"/b"}]}`, 400, `validation error: mounts has the directory "a": it must be absolute`},
		{"POST", "/sandboxes", `{"templateID":"base","mounts":[{"dir":"/a","path":"b"}]}`, 400, `validation error: mounts has the path "b": it must be absolute, without . and .. and a / at the end`},
		{"POST", "/sandboxes", `{"templateID":"base","timeout":-1}`, 400, "validation error: timeout must not be negative"},
		{"POST", "/sandboxes", `{"templateID":"base","envVars":{"":"a"}}`, 400, `validation error: envVars has "", which cannot be an environment variable`},
		{"POST", "/sandboxes", `{"templateID":"base","envVars":{"A":"\u0000"}}`, 400, `validation error: envVars has "A", which cannot be an environment variable`},
		{"POST", "/v2/sandboxes", `{"templateID":"base","network":{"maskRequestHost":"ä"}}`, 400, "validation error: network.maskRequestHost is not a host name"},
		{"POST", "/health", ``, 404, "no such path in the API: /health"},
	})
}

// TestResize checks the requests for other resources that are refused, and the effect of the others.
func TestResize(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.mustCreate(t, `{"templateID":"base"}`)
	path := "/local/sandboxes/" + id + "/resources"
	s.fails(t, []failure{
		{"POST", path, `{}`, 400, "validation error: one of cpuCount, memoryBytes and diskBytes must be greater than 0"},
		{"POST", path, `{"cpuCount":-1}`, 400, "validation error: resources.cpuCount must not be negative"},
	})
	s.must(t, "POST", path, `{"cpuCount":2}`, 204)
	if has := s.fakes.Fake(id).Has(); has != (engine.Resources{CPUs: 2}) {
		t.Errorf("it has %+v, want two CPUs", has)
	}
	s.fakes.Hook = func(_ context.Context, _ string, op lifecycletest.Operation) error {
		if op == lifecycletest.Resize {
			return &engine.InUseError{Resource: "disk", Used: 3, Most: 2}
		}
		return nil
	}
	s.fails(t, []failure{{"POST", path, `{"diskBytes":1073741824}`, 409, "the sandbox uses 3 bytes of disk, which is more than the 2 bytes asked for: it keeps its resources"}})
}
