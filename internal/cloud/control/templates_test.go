package control

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/cloud/builds"
	"github.com/e2bctl/e2bctl/internal/cloud/layers"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/store"
	"github.com/e2bctl/e2bctl/internal/cloud/templates"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// TestTemplates checks that every template has all fields that clients require.
func TestTemplates(t *testing.T) {
	t.Parallel()
	s := start(t)
	source := s.mustCreate(t, `{"templateID":"base"}`)
	s.must(t, "POST", "/sandboxes/"+source+"/snapshots", `{"name":"job"}`, 201)
	fields := []string{
		"aliases", "buildCount", "buildID", "buildStatus", "cpuCount", "createdAt", "createdBy", "description", "diskSizeMB", "engine", "envdVersion",
		"isDefault", "lastSpawnedAt", "memoryMB", "names", "public", "spawnCount", "templateID", "updatedAt",
	}
	for _, path := range []string{"/templates", "/v2/templates", "/templates?teamID=" + teamID, "/default-templates"} {
		_, text := s.do(t, "GET", path, "")
		var all []map[string]any
		if err := json.Unmarshal([]byte(text), &all); err != nil || len(all) != 2 {
			t.Fatalf("%s: got %s, want the built-in templates and no snapshots", path, text)
		}
		for _, one := range all {
			if got := slices.Sorted(maps.Keys(one)); !slices.Equal(got, fields) {
				t.Errorf("%s: got the fields %q, want %q", path, got, fields)
			}
		}
		base := all[0]
		if base["spawnCount"] != 1.0 || base["lastSpawnedAt"] == nil || all[1]["spawnCount"] != 0.0 || all[1]["lastSpawnedAt"] != nil {
			t.Errorf("%s: got %v, want one sandbox of the first", path, all)
		}
		want := map[string]any{"aliases": []any{"base"}, "names": []any{"base"}, "public": true, "buildStatus": "ready", "createdBy": nil, "isDefault": true}
		for field, want := range want {
			if diff := cmp.Diff(want, base[field]); diff != "" {
				t.Errorf("%s: %s (-want +got):\n%s", path, field, diff)
			}
		}
	}
	if base := s.must(t, "GET", "/templates/base", "", 200); base["isDefault"] != true || base["description"] == "" {
		t.Errorf("got %v, want a default template with a description", base)
	}
	job := s.must(t, "GET", "/templates/job", "", 200)
	delete(job, "templateID")
	for _, field := range []string{"createdAt", "updatedAt"} {
		if job[field] == "" {
			t.Errorf("got no %s", field)
		}
		delete(job, field)
	}
	build := job["builds"].([]any)[0].(map[string]any)
	if build["status"] != "ready" || build["buildID"] == "" || build["envdVersion"] != "0.6.13" {
		t.Errorf("got the build %v", build)
	}
	if job["buildID"] != build["buildID"] {
		t.Errorf("got %v, want the id of its build", job["buildID"])
	}
	delete(job, "builds")
	delete(job, "buildID")
	want := map[string]any{
		"public": false, "aliases": []any{"job"}, "names": []any{"local/job"}, "lastSpawnedAt": nil, "spawnCount": 0.0, "isDefault": false, "createdBy": nil,
		"cpuCount": 2.0, "memoryMB": 2048.0, "diskSizeMB": 1024.0, "buildCount": 1.0, "buildStatus": "ready", "envdVersion": "0.6.13", "engine": "room",
	}
	if diff := cmp.Diff(want, job); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestTemplateCalls checks the clients' requests about templates, in order, and
// their answers.
func TestTemplateCalls(t *testing.T) {
	t.Parallel()
	s := start(t)
	source := s.mustCreate(t, `{"templateID":"base"}`)
	for i, tt := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"POST", "/sandboxes/%/snapshots", `{"name":"job"}`, 201, `local/job:default`},
		{"POST", "/templates/tags", `{"target":"job","tags":["V1","prod"]}`, 201, `"tags":["v1","prod"]`},
		{"POST", "/templates/tags", `{"target":"job:v9","tags":["a"]}`, 404, `"message":"tag 'v9' does not exist for template 'job'"`},
		{"POST", "/templates/tags", `{"tags":["a"]}`, 400, `target is missing`},
		{"POST", "/templates/tags", `{"target":"job"}`, 400, `tags must have a tag`},
		{"POST", "/templates/tags", `{"target":"job","tags":"a"}`, 400, `tags must be an array`},
		{"POST", "/templates/tags", `{"target":"other/job","tags":["a"]}`, 400, `is of the team 'other'`},
		{"POST", "/templates/tags", `{"target":"base","tags":["a"]}`, 403, `'base' is a built-in template`},
		{"GET", "/templates/job/tags", ``, 200, `"tag":"v1"`},
		{"GET", "/templates/local%2Fjob/tags", ``, 200, `"tag":"prod"`},
		{"GET", "/templates/base/tags", ``, 200, `"tag":"default"`},
		{"GET", "/templates/other%2Fjob/tags", ``, 400, `is of the team 'other'`},
		{"GET", "/templates/nope/tags", ``, 404, `template 'nope' not found`},
		{"DELETE", "/templates/tags", `{"name":"job","tags":["v1"]}`, 204, ``},
		{"DELETE", "/templates/tags", `{"name":"job","tags":["default"]}`, 400, `cannot be removed`},
		{"DELETE", "/templates/tags", `{"name":"job:v1","tags":["a"]}`, 400, `must not have a tag here`},
		{"DELETE", "/templates/tags", `{"tags":["a"]}`, 400, `name is missing`},
		{"DELETE", "/templates/tags", ``, 400, `the request has no body`},
		{"GET", "/templates/aliases/job", ``, 200, `"public":false`},
		{"GET", "/templates/aliases/local%2Fjob%3Aprod", ``, 200, `"public":false`},
		{"GET", "/templates/aliases/job:v1", ``, 404, `"message":"tag 'v1' does not exist for template 'job'"`},
		{"GET", "/templates/aliases/other%2Fjob", ``, 400, `is of the team 'other'`},
		{"GET", "/templates/aliases/tags", ``, 404, `template 'tags' not found`},
		{"PATCH", "/v2/templates/job", `{"public":true}`, 200, `{"names":["local/job"]}`},
		{"PATCH", "/v2/templates/job", `{}`, 200, `{"names":["local/job"]}`},
		{"PATCH", "/v2/templates/job", `{"public":1}`, 400, `public must be a boolean`},
		{"GET", "/templates/aliases/job", ``, 200, `"public":true`},
		{"PATCH", "/templates/job", `{"public":false}`, 200, ``},
		{"PATCH", "/v2/templates/base", `{"public":false}`, 403, `'base' is a built-in template`},
		{"DELETE", "/templates/base", ``, 403, `'base' is a built-in template`},
		{"GET", "/templates?teamID=other", ``, 400, `no access to that team`},
		{"GET", "/v2/templates?limit=0", ``, 400, `limit must be between`},
		{"GET", "/v2/templates?%zz", ``, 400, `the query cannot be parsed`},
		{"GET", "/templates/job?nextToken=x", ``, 400, `Invalid next token`},
		{"GET", "/templates/job/builds/b/status", ``, 400, `template 'job' has no build 'b'`},
		{"DELETE", "/templates/local%2Fjob%3Aprod", ``, 204, ``},
		{"GET", "/templates/aliases/job", ``, 404, `template 'job' not found`},
	} {
		resp, text := s.do(t, tt.method, strings.Replace(tt.path, "%/", source+"/", 1), tt.body)
		if resp.StatusCode != tt.status || !strings.Contains(text, tt.want) {
			t.Errorf("%d, %s %s %s: got %d %s, want %d and %q in it", i, tt.method, tt.path, tt.body, resp.StatusCode, text, tt.status, tt.want)
		}
		if tt.status == http.StatusNoContent && text != "" {
			t.Errorf("%s: got %q with 204", tt.path, text)
		}
	}
}

// TestBuildAnswersAreWhole checks all fields of the answers about a build, before and after its
// end.
func TestBuildAnswersAreWhole(t *testing.T) {
	t.Parallel()
	s := start(t)
	made := s.must(t, "POST", "/v3/templates", `{"name":"job","tags":["a"],"cpuCount":3,"memoryMB":1000}`, 202)
	template, id := made["templateID"].(string), made["buildID"].(string)
	want := buildAnswer{BuildID: id, Status: "waiting", CPUCount: 3, MemoryMB: 1000, DiskSizeMB: 1024, EnvdVersion: "0.6.13"}
	check := func() {
		t.Helper()
		_, text := s.do(t, "GET", "/templates/job", "")
		var got struct{ Builds []buildAnswer }
		if err := json.Unmarshal([]byte(text), &got); err != nil || len(got.Builds) != 1 {
			t.Fatalf("got %s and error %v, want one build", text, err)
		}
		known, err := s.templates.Get(templates.ParseReference("job"))
		must.Do(t, err)
		build, _ := known.Build(id)
		want.CreatedAt, want.FinishedAt = build.CreatedAt, build.FinishedAt
		want.UpdatedAt = build.CreatedAt
		if !build.FinishedAt.IsZero() {
			want.UpdatedAt = build.FinishedAt
		}
		if diff := cmp.Diff(want, got.Builds[0]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", want.Status, diff)
		}
	}
	check()
	must.Do(t, s.templates.Begin(template, id))
	want.Status = "building"
	check()
	must.Do(t, s.templates.Finish(template, id, templates.Content{}))
	want.Status = "ready"
	if check(); want.FinishedAt.IsZero() || !want.FinishedAt.After(want.CreatedAt) {
		t.Errorf("got the end %v of what began at %v", want.FinishedAt, want.CreatedAt)
	}
}

// TestDeletedTemplateEndsItsBuilds checks that deleting a template cancels its builds.
func TestDeletedTemplateEndsItsBuilds(t *testing.T) {
	t.Parallel()
	st := store.Temporary(t.TempDir())
	set, all := layers.Open(layers.Options{Store: st}), templatesOf(st)
	runs, ended := make(chan struct{}), make(chan error, 1)
	builder := newBuilder(t, st, set, all, func(o *builds.Options) {
		o.Launch = func(ctx context.Context, _ lifecycle.Spec) (builds.Sandbox, error) {
			close(runs)
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return nil, context.Cause(ctx)
		}
	})
	a := newAPI(t, st, func(o *Options) { o.Templates, o.Builds = all, builder })
	var made struct{ TemplateID, BuildID string }
	a.call(t, "POST", "/v3/templates", `{"name":"job"}`, 202, &made, "X-API-KEY", testKey)
	a.call(t, "POST", "/v2/templates/"+made.TemplateID+"/builds/"+made.BuildID, `{"fromImage":"e2bdev/base","steps":[{"type":"RUN","args":["x"]}]}`, 202, nil, "X-API-KEY", testKey)
	<-runs
	a.call(t, "DELETE", "/templates/job", "", 204, nil, "X-API-KEY", testKey)
	if err := patience.Receive(t, "the build of a deleted template ends", ended); err == nil || !strings.Contains(err.Error(), "deleted") {
		t.Errorf("the build ended with %v, want that the template was deleted", err)
	}
}

// TestBuilds checks that each page has a limited number of a template's builds, newest first.
func TestBuilds(t *testing.T) {
	t.Parallel()
	s := start(t)
	source := s.mustCreate(t, `{"templateID":"base"}`)
	var want []string
	for i := range 3 {
		s.must(t, "POST", "/sandboxes/"+source+"/snapshots", fmt.Sprintf(`{"name":"job:v%d"}`, i), 201)
		tagged := s.must(t, "POST", "/templates/tags", fmt.Sprintf(`{"target":"job:v%d","tags":["again"]}`, i), 201)
		want = append([]string{tagged["buildID"].(string)}, want...)
	}
	var got []string
	for next := ""; ; {
		resp, text := s.do(t, "GET", "/templates/job?limit=2"+next, "")
		var page struct{ Builds []buildAnswer }
		if err := json.Unmarshal([]byte(text), &page); err != nil || resp.StatusCode != 200 {
			t.Fatalf("got %d %s", resp.StatusCode, text)
		}
		for _, b := range page.Builds {
			got = append(got, b.BuildID)
		}
		token := resp.Header.Get("X-Next-Token")
		if token == "" {
			break
		}
		next = "&nextToken=" + token
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
