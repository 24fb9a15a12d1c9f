package api

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
)

func TestListTemplates(t *testing.T) {
	t.Parallel()
	const item = `[{"templateID":"t1","buildID":"b1","cpuCount":2,"memoryMB":512,"diskSizeMB":1024,"public":true,"aliases":["a"],
		"names":["team/a"],"createdAt":"2026-11-22T13:30:00Z","updatedAt":"2026-11-22T14:30:00Z","createdBy":null,"lastSpawnedAt":null,
		"spawnCount":3,"buildCount":1,"envdVersion":"0.6.13","buildStatus":"ready","later":1}]`
	c, queries := paged(t, item, `[{"templateID":"t2","lastSpawnedAt":"2026-11-22T14:30:00Z"}]`)
	var got []Template
	for template, err := range c.Templates.List(t.Context(), nil) {
		must.Do(t, err)
		got = append(got, template)
	}
	at := time.Date(2026, 11, 22, 13, 30, 0, 0, time.UTC)
	later := at.Add(time.Hour)
	if diff := cmp.Diff([]Template{{
		ID: "t1", BuildID: "b1", CPUs: 2, MemoryBytes: 512 << 20, DiskBytes: 1 << 30, Public: true, Aliases: []string{"a"}, Names: []string{"team/a"},
		CreatedAt: at, UpdatedAt: later, SpawnCount: 3, BuildCount: 1, EnvdVersion: "0.6.13", BuildStatus: BuildReady,
	}, {ID: "t2", LastSpawnedAt: &later}}, got); diff != "" {
		t.Error(diff)
	}
	for _, want := range []string{"/v2/templates?", "/v2/templates?nextToken=n1"} {
		if got := <-queries; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// TestTemplatesOfAnOlderService checks that the client uses the first version of these routes with
// a service that does not have the second version.
func TestTemplatesOfAnOlderService(t *testing.T) {
	t.Parallel()
	calls := make(chan string, 10)
	c := service(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		calls <- strings.TrimSpace(r.Method + " " + r.URL.Path + " " + string(body))
		switch {
		case strings.HasPrefix(r.URL.Path, "/v2"):
			http.NotFound(w, r)
		case r.Method == http.MethodGet:
			_, _ = io.WriteString(w, `[{"templateID":"t1"}]`)
		}
	})
	page, err := c.Templates.ListPage(t.Context(), nil)
	must.Do(t, err)
	if diff := cmp.Diff(&TemplatePage{Templates: []Template{{ID: "t1"}}}, page); diff != "" {
		t.Error(diff)
	}
	if _, err := c.Templates.Update(t.Context(), "t1", &TemplateUpdateParams{Public: new(true)}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"GET /v2/templates", "GET /templates", `PATCH /v2/templates/t1 {"public":true}`, `PATCH /templates/t1 {"public":true}`} {
		if got := <-calls; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestGetTemplate(t *testing.T) {
	t.Parallel()
	c, queries := paged(t, `{"templateID":"t1","names":["team/a"],"builds":[{"buildID":"b2","status":"building","cpuCount":2}]}`,
		`{"templateID":"t1","builds":[{"buildID":"b1","status":"ready","finishedAt":"2026-11-22T13:30:00Z"}]}`)
	detail, err := c.Templates.Get(t.Context(), "t1", &TemplateGetParams{PageSize: 1})
	must.Do(t, err)
	if diff := cmp.Diff(&TemplateDetail{
		Template: Template{ID: "t1", Names: []string{"team/a"}}, NextToken: "n1",
		Builds: []TemplateBuild{{ID: "b2", Status: BuildBuilding, CPUs: 2}},
	}, detail); diff != "" {
		t.Error(diff)
	}
	rest, err := c.Templates.Get(t.Context(), "t1", &TemplateGetParams{NextToken: detail.NextToken})
	must.Do(t, err)
	finished := time.Date(2026, 11, 22, 13, 30, 0, 0, time.UTC)
	if diff := cmp.Diff([]TemplateBuild{{ID: "b1", Status: BuildReady, FinishedAt: &finished}}, rest.Builds); diff != "" || rest.NextToken != "" {
		t.Error(rest.NextToken, diff)
	}
	for _, want := range []string{"/templates/t1?limit=1", "/templates/t1?nextToken=n1"} {
		if got := <-queries; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if _, err := c.Templates.Get(t.Context(), "team/a", nil); !errors.Is(err, ErrInvalidArgument) {
		t.Errorf("got %v, want ErrInvalidArgument for a name", err)
	}
}

func TestTemplateCalls(t *testing.T) {
	t.Parallel()
	made := time.Date(2026, 11, 22, 13, 30, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		answer string
		do     func(*TemplateService) (any, error)
		sent   string
		want   any
	}{
		"resolve": {
			`{"templateID":"t1","public":true}`,
			func(s *TemplateService) (any, error) { return s.Resolve(t.Context(), "team/a:v1") },
			"GET /templates/aliases/team/a:v1", &TemplateName{"t1", true},
		},
		"delete": {
			``, func(s *TemplateService) (any, error) { return nil, s.Delete(t.Context(), "a") },
			"DELETE /templates/a", nil,
		},
		"publish": {
			`{"names":["team/a"]}`,
			func(s *TemplateService) (any, error) {
				return s.Update(t.Context(), "a", &TemplateUpdateParams{Public: new(true)})
			},
			`PATCH /v2/templates/a {"public":true}`, []string{"team/a"},
		},
		"change nothing": {
			`{"names":[]}`, func(s *TemplateService) (any, error) { return s.Update(t.Context(), "a", nil) },
			`PATCH /v2/templates/a {}`, []string{},
		},
		"tags": {
			`[{"tag":"default","buildID":"b1","createdAt":"2026-11-22T13:30:00Z"}]`,
			func(s *TemplateService) (any, error) { return s.Tags(t.Context(), "team/a") },
			"GET /templates/team/a/tags", []TemplateTag{{"default", "b1", made}},
		},
		"assign": {
			`{"tags":["v1"],"buildID":"b1"}`,
			func(s *TemplateService) (any, error) { return s.AssignTags(t.Context(), "a:default", []string{"v1"}) },
			`POST /templates/tags {"target":"a:default","tags":["v1"]}`, &AssignedTags{[]string{"v1"}, "b1"},
		},
		"remove": {
			``, func(s *TemplateService) (any, error) {
				return nil, s.RemoveTags(t.Context(), "a", []string{"v1", "v2"})
			},
			`DELETE /templates/tags {"name":"a","tags":["v1","v2"]}`, nil,
		},
	} {
		c, calls := recorded(t, 200, test.answer)
		got, err := test.do(c.Templates)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if diff := cmp.Diff([]string{test.sent}, calls()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestTemplateErrors(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]error{400: ErrInvalidArgument, 403: ErrForbidden, 404: ErrNotFound} {
		c, _ := recorded(t, status, fmt.Sprintf(`{"code":%d,"message":"told so"}`, status))
		_, resolved := c.Templates.Resolve(t.Context(), "a")
		_, tags := c.Templates.Tags(t.Context(), "a")
		_, updated := c.Templates.Update(t.Context(), "a", nil)
		for what, err := range map[string]error{"Resolve": resolved, "Tags": tags, "Update": updated, "Delete": c.Templates.Delete(t.Context(), "a")} {
			if !errors.Is(err, want) || !strings.Contains(err.Error(), "told so") {
				t.Errorf("%s, %d: got %v, want %v with the service's message", what, status, err, want)
			}
		}
	}
}
