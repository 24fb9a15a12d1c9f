package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle/lifecycletest"
	"github.com/e2bctl/e2bctl/internal/cloud/store/storetest"
)

// list requests a list, page by page, and returns the result of f for each element.
func list(t *testing.T, s *service, path, query string, f func(map[string]any) string) []string {
	t.Helper()
	all := []string{}
	for next := ""; ; {
		resp, text := s.do(t, "GET", path+"?"+query+next, "")
		var page []map[string]any
		if err := json.Unmarshal([]byte(text), &page); err != nil || page == nil || resp.StatusCode != 200 {
			t.Fatalf("%s: got %d %s, want a list", path, resp.StatusCode, text)
		}
		for _, one := range page {
			all = append(all, f(one))
		}
		token := resp.Header.Get("X-Next-Token")
		if token == "" {
			return all
		}
		next = "&nextToken=" + url.QueryEscape(token)
	}
}

func snapshotID(one map[string]any) string { return one["snapshotID"].(string) }

// TestCreateFromSnapshot checks that a sandbox made from a snapshot begins with the files and the
// environment of the snapshot's sandbox, which continues to run.
func TestCreateFromSnapshot(t *testing.T) {
	t.Parallel()
	for body, tt := range map[string]struct {
		id     string
		names  []any
		alias  any
		memory bool // the engine can save memory
	}{
		`{}`:                          {"", []any{}, nil, false},
		`{"name":"Job"}`:              {"local/job:default", []any{"local/job"}, "job", false},
		`{"name":"local/job:v1.2"}`:   {"local/job:v1.2", []any{"local/job"}, "job", true},
		`{"memory":false}`:            {"", []any{}, nil, false},
		`{"memory":true}`:             {"", []any{}, nil, true},
		`{"memory":null}`:             {"", []any{}, nil, true},
		`{"name":null,"zeta":"beta"}`: {"", []any{}, nil, true},
	} {
		t.Run(body, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			s.fakes.SavesMemory = tt.memory || body == `{"memory":false}`
			source := s.mustCreate(t, `{"templateID":"base","envVars":{"A":"1","B":"2"}}`)
			s.fakes.Fake(source).Write("before")
			s.fakes.Fake(source).Learn("a thing")
			got := s.must(t, "POST", "/sandboxes/"+source+"/snapshots", body, 201)
			id := got["snapshotID"].(string)
			if tt.id != "" && id != tt.id || !strings.Contains(id, ":") {
				t.Errorf("got snapshotID %s, want %s", id, tt.id)
			}
			if diff := cmp.Diff(map[string]any{"snapshotID": id, "names": tt.names, "memory": tt.memory}, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			s.fakes.Fake(source).Write("after")
			if got := s.seen(t, source); got != seenRunning || s.fakes.Fake(source).Paused() {
				t.Errorf("the source is %+v, want it to run", got)
			}
			made := s.must(t, "POST", "/v2/sandboxes", fmt.Sprintf(`{"templateID":%q,"envVars":{"B":"3"}}`, id), 201)
			child := made["sandboxID"].(string)
			if made["alias"] != tt.alias {
				t.Errorf("got alias %v, want %v", made["alias"], tt.alias)
			}
			if got := s.fakes.Fake(child).Files(); got != "before" {
				t.Errorf("it begins with the files %q, want those of the snapshot", got)
			}
			if got := s.fakes.Fake(child).Knows(); (got == "a thing") != tt.memory {
				t.Errorf("it begins with the memory %q, want that of the snapshot: %v", got, tt.memory)
			}
			if listed := list(t, s, "/snapshots", "", func(one map[string]any) string { return fmt.Sprint(one["memory"]) }); len(listed) != 1 || listed[0] != fmt.Sprint(tt.memory) {
				t.Errorf("listed with memory %q, want %v", listed, tt.memory)
			}
			if diff := cmp.Diff(map[string]string{"A": "1", "B": "3"}, s.fakes.Spec(child).Envs); diff != "" {
				t.Errorf("environment (-want +got):\n%s", diff)
			}
			path := "/templates/" + url.PathEscape(id)
			if got := s.must(t, "DELETE", path, "", 400)["message"]; !strings.Contains(fmt.Sprint(got), "running or paused sandboxes use it") {
				t.Errorf("got %v", got)
			}
			s.must(t, "POST", "/sandboxes/"+child+"/pause", `{"memory":false}`, 204)
			s.must(t, "DELETE", path, "", 400)
			if found := list(t, s, "/v2/sandboxes", "template="+url.QueryEscape(strings.Split(id, ":")[0]), func(one map[string]any) string { return one["sandboxID"].(string) }); len(found) != 1 || found[0] != child {
				t.Errorf("sandboxes of that template: got %q, want %q", found, child)
			}
			s.must(t, "DELETE", "/sandboxes/"+child, "", 204)
			s.must(t, "DELETE", path, "", 204)
			s.must(t, "DELETE", path, "", 404)
			s.must(t, "POST", "/v2/sandboxes", fmt.Sprintf(`{"templateID":%q}`, id), 404)
		})
	}
}

func TestListSnapshots(t *testing.T) {
	t.Parallel()
	s := start(t)
	sources := []string{s.mustCreate(t, `{"templateID":"base"}`), s.mustCreate(t, `{"templateID":"base"}`)}
	take := func(source int, body string) string {
		return s.must(t, "POST", "/sandboxes/"+sources[source]+"/snapshots", body, 201)["snapshotID"].(string)
	}
	unnamed := take(0, `{}`)
	v1 := take(0, `{"name":"job:v1"}`)
	v1Build := s.must(t, "GET", "/templates/job", "", 200)["builds"].([]any)[0].(map[string]any)["buildID"].(string)
	v2 := take(1, `{"name":"job:v2"}`)
	first := take(0, `{"name":"job"}`)
	if again := take(1, `{"name":"local/job:default"}`); again != first {
		t.Errorf("the same name: got %s, want %s", again, first)
	}
	id, _, _ := strings.Cut(unnamed, ":")
	for query, want := range map[string][]string{
		"":                          {first, v2, v1, unnamed},
		"limit=1":                   {first, v2, v1, unnamed},
		"limit=3":                   {first, v2, v1, unnamed},
		"sandboxID=" + sources[0]:   {v1, unnamed},
		"sandboxID=" + sources[1]:   {first, v2}, // the newer one has the name
		"sandboxID=inobody":         {},
		"name=job":                  {first, v2, v1},
		"name=JOB&limit=1":          {first, v2, v1},
		"name=local%2Fjob":          {first, v2, v1},
		"name=job:v1":               {v1},
		"name=job:default":          {first},
		"name=job:v3":               {},
		"name=job:" + v1Build:       {v1},
		"name=nope":                 {},
		"name=base":                 {},
		"name=" + id:                {unnamed},
		"name=" + id + "%3Adefault": {unnamed},
	} {
		if diff := cmp.Diff(want, list(t, s, "/snapshots", query, snapshotID)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", query, diff)
		}
	}
	template := s.must(t, "GET", "/templates/"+id, "", 200)
	if got := len(template["builds"].([]any)); got != 1 {
		t.Errorf("got %d builds of a snapshot, want 1", got)
	}
	if got := list(t, s, "/v2/templates", "limit=1", func(one map[string]any) string { return one["names"].([]any)[0].(string) }); len(got) != 2 {
		t.Errorf("got templates %q, want the built-in ones", got)
	}
}

func forkOf(t *testing.T, s *service, id, body string) []forkEntry {
	t.Helper()
	resp, text := s.do(t, "POST", "/sandboxes/"+id+"/fork", body)
	var entries []forkEntry
	if err := json.Unmarshal([]byte(text), &entries); err != nil || resp.StatusCode != 201 {
		t.Fatalf("got %d %s", resp.StatusCode, text)
	}
	return entries
}

// TestFork checks that children have the source's request and files, but their own ids, tokens and
// lifetimes.
func TestFork(t *testing.T) {
	t.Parallel()
	for body, tt := range map[string]struct {
		count    int
		lifetime time.Duration
		memory   bool // the engine can save memory
	}{
		``:                         {1, 300 * time.Second, false},
		`{}`:                       {1, 300 * time.Second, true},
		`{"timeout":20,"count":5}`: {5, 20 * time.Second, true},
		`{"memory":true}`:          {1, 300 * time.Second, true},
		`{"memory":false}`:         {1, 300 * time.Second, false},
	} {
		t.Run(body, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			s.fakes.SavesMemory = body != ``
			created := s.must(t, "POST", "/v2/sandboxes", `{"templateID":"base","metadata":{"a":"b"},"envVars":{"A":"1"},"autoPause":true,"network":{"allowPublicTraffic":false,"denyOut":["10.0.0.0/8"]}}`, 201)
			source := created["sandboxID"].(string)
			s.fakes.Fake(source).Write("text")
			s.fakes.Fake(source).Learn("a thing")
			entries := forkOf(t, s, source, body)
			if len(entries) != tt.count {
				t.Fatalf("got %d entries, want %d", len(entries), tt.count)
			}
			want := s.must(t, "GET", "/sandboxes/"+source, "", 200)
			if spawned := s.templates.Spawned(want["templateID"].(string)).Count; spawned != 1+tt.count {
				t.Errorf("its template counts %d sandboxes, want %d", spawned, 1+tt.count)
			}
			for _, entry := range entries {
				if entry.Error != nil || entry.Memory == nil || *entry.Memory != tt.memory {
					t.Fatalf("got %+v, want a sandbox, memory %v", entry, tt.memory)
				}
				if got := s.fakes.Fake(entry.Sandbox.SandboxID).Knows(); (got == "a thing") != tt.memory {
					t.Errorf("it began with the memory %q, want that of the source: %v", got, tt.memory)
				}
				child := entry.Sandbox
				if child.EnvdAccessToken == "" || child.EnvdAccessToken == created["envdAccessToken"] || child.TrafficAccessToken == "" {
					t.Errorf("got %+v, want tokens of its own", child)
				}
				if got := s.fakes.Fake(child.SandboxID); got.Files() != "text" || s.fakes.Spec(child.SandboxID).Envs["A"] != "1" {
					t.Errorf("it began with the files %q and the environment %v", got.Files(), s.fakes.Spec(child.SandboxID).Envs)
				}
				got := s.must(t, "GET", "/sandboxes/"+child.SandboxID, "", 200)
				started, _ := time.Parse(time.RFC3339, got["startedAt"].(string))
				ends, _ := time.Parse(time.RFC3339, got["endAt"].(string))
				if !livesFor(tt.lifetime, started, ends) {
					t.Errorf("it lives for %v, want %v", ends.Sub(started), tt.lifetime)
				}
				for _, own := range []string{"sandboxID", "startedAt", "endAt", "envdAccessToken"} {
					delete(got, own)
					delete(want, own)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("(-source +child):\n%s", diff)
				}
			}
			if found := list(t, s, "/snapshots", "", snapshotID); len(found) != 0 {
				t.Errorf("got snapshots %q after a fork, want none", found)
			}
		})
	}
}

// TestForkEntries checks that a child that cannot be created has its own error.
func TestForkEntries(t *testing.T) {
	t.Parallel()
	s := start(t, func(o *lifecycle.Options) { o.MaxSandboxes = 3 })
	source := s.mustCreate(t, `{"templateID":"base"}`)
	s.mustCreate(t, `{"templateID":"base"}`)
	made := 0
	for _, entry := range forkOf(t, s, source, `{"count":2}`) {
		switch {
		case entry.Sandbox != nil && entry.Error == nil:
			made++
		case entry.Error == nil || entry.Error.Code != http.StatusTooManyRequests || entry.Memory != nil:
			t.Errorf("got %+v, want an error 429", entry)
		}
	}
	if made != 1 {
		t.Errorf("got %d children, want the one there is room for", made)
	}
	s = start(t)
	source = s.mustCreate(t, `{"templateID":"base"}`)
	s.fakes.Fail(errors.New("no namespaces left"))
	for _, entry := range forkOf(t, s, source, `{"count":2}`) {
		if entry.Error == nil || entry.Error.Code != 500 || !strings.Contains(entry.Error.Message, "no namespaces left") {
			t.Errorf("got %+v, want an error 500 with the cause", entry)
		}
	}
}

// TestSnapshotsRefused checks that invalid requests, and requests that the state of the sandbox
// does not allow, are refused.
func TestSnapshotsRefused(t *testing.T) {
	t.Parallel()
	const full = `not supported by the fake engine: the memory of snapshots; mode="filesystem" (memory false) keeps the files`
	long := strings.Repeat("a", 129)
	for _, tt := range []struct {
		before             func(t *testing.T, s *service, id string)
		method, path, body string
		status             int
		message            string
	}{
		{nil, "POST", "/sandboxes/%/snapshots", ``, 400, "the request has no body"},
		{nil, "POST", "/sandboxes/%/snapshots", `[]`, 400, "must be an object"},
		{nil, "POST", "/sandboxes/%/snapshots", `{"name":1}`, 400, "name must be a string"},
		{nil, "POST", "/sandboxes/%/snapshots", `{"name":"a b"}`, 400, "the name 'a b' must be 1 to 128 letters"},
		{nil, "POST", "/sandboxes/%/snapshots", `{"name":"` + long + `"}`, 400, "must be 1 to 128 letters"},
		{nil, "POST", "/sandboxes/%/snapshots", `{"name":"other/a"}`, 400, "is of the team 'other'"},
		{nil, "POST", "/sandboxes/%/snapshots", `{"name":"a/b/c"}`, 400, "is of the team 'a'"},
		{nil, "POST", "/sandboxes/%/snapshots", `{"name":"a:"}`, 400, "the tag '' must be"},
		{nil, "POST", "/sandboxes/%/snapshots", `{"name":"a:b:c"}`, 400, "the tag 'b:c' must be"},
		{nil, "POST", "/sandboxes/%/snapshots", `{"name":"a:00000000-0000-4000-8000-000000000001"}`, 400, "no UUID"},
		{nil, "POST", "/sandboxes/%/snapshots", `{"name":"base"}`, 400, "'base' is the name of a built-in template"},
		{nil, "POST", "/sandboxes/%/snapshots", `{"name":"local/base"}`, 400, "is the name of a built-in template"},
		{nil, "POST", "/sandboxes/%/snapshots", `{"name":"localbasetemplate000"}`, 400, "built-in template"},
		{nil, "POST", "/sandboxes/%/snapshots", `{"memory":true}`, 400, full},
		{nil, "POST", "/sandboxes/%/fork", `{"memory":true}`, 400, full},
		{nil, "POST", "/sandboxes/%/fork", `{"count":0}`, 400, "count must be between 1 and 100"},
		{nil, "POST", "/sandboxes/%/fork", `{"count":101}`, 400, "count must be between 1 and 100"},
		{nil, "POST", "/sandboxes/%/fork", `{"count":100}`, 400, "count must be lower than the maximum number of concurrent sandboxes, 100"},
		{nil, "POST", "/sandboxes/%/fork", `{"count":"2"}`, 400, "count must be a 32-bit integer"},
		{nil, "POST", "/sandboxes/%/fork", `{"timeout":0}`, 400, "Timeout must be greater than 0"},
		{nil, "POST", "/sandboxes/%/fork", `{"timeout":-1}`, 400, "timeout must not be negative"},
		{nil, "POST", "/sandboxes/%/fork", `{"timeout":86401}`, 400, "Timeout cannot be greater"},
		{nil, "POST", "/sandboxes/a-b-c/fork", ``, 400, "Invalid sandbox ID"},
		{nil, "GET", "/snapshots?limit=0", ``, 400, "limit must be between 1 and 100"},
		{nil, "GET", "/snapshots?nextToken=x", ``, 400, "Invalid next token"},
		{nil, "GET", "/snapshots?name=other/a", ``, 400, "is of the team 'other'"},
		{nil, "GET", "/snapshots?%zz", ``, 400, "the query cannot be parsed"},
		{paused, "POST", "/sandboxes/%/fork", ``, 409, "resume it first"},
		{func(_ *testing.T, s *service, id string) {
			s.failing(lifecycletest.Checkpoint, &lifecycle.StateError{ID: id, State: lifecycle.Killing})
		},
			"POST", "/sandboxes/%/fork", ``, 409, "being killed"},
		{paused, "POST", "/sandboxes/%/snapshots", `{}`, 404, "it is paused"},
		{func(_ *testing.T, s *service, _ string) {
			s.failing(lifecycletest.Checkpoint, errors.New("no space left on device"))
		},
			"POST", "/sandboxes/%/fork", ``, 507, "The disk of the state directory is full, so the sandbox could not be kept: no space left"},
		{func(_ *testing.T, s *service, _ string) {
			s.failing(lifecycletest.Checkpoint, fmt.Errorf("freeze: %w", errors.ErrUnsupported))
		}, "POST", "/sandboxes/%/snapshots", `{"name":"a"}`, 501, "not supported by the isolation"},
		{memoryFails, "POST", "/sandboxes/%/snapshots", `{"memory":true}`, 500, `The sandbox could not be kept: its memory: it has a device open; it is as it was before: mode="filesystem" (memory false)`},
		{memoryFails, "POST", "/sandboxes/%/fork", ``, 500, "The sandbox could not be kept: its memory: it has"},
	} {
		t.Run(tt.method+" "+tt.path+" "+tt.body, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			id := s.mustCreate(t, `{"templateID":"base"}`)
			if tt.before != nil {
				tt.before(t, s, id)
			}
			got := fmt.Sprint(s.must(t, tt.method, strings.Replace(tt.path, "%/", id+"/", 1), tt.body, tt.status)["message"])
			if !strings.Contains(got, tt.message) {
				t.Errorf("got %q, want %q in it", got, tt.message)
			}
			if found := list(t, s, "/snapshots", "", snapshotID); len(found) != 0 {
				t.Errorf("got snapshots %q, want none", found)
			}
			s.must(t, "DELETE", "/sandboxes/"+id, "", 204)
		})
	}
}

func memoryFails(_ *testing.T, s *service, _ string) {
	s.fakes.SavesMemory = true
	s.failing(lifecycletest.SaveMemory, errors.New("it has a device open"))
}

func paused(t *testing.T, s *service, id string) {
	t.Helper()
	s.must(t, "POST", "/sandboxes/"+id+"/pause", ``, 204)
}

// TestSnapshotIsStoredOrNot makes each change of the disk fail while a snapshot with a name is taken. The
// answer is an error, there is no snapshot, and the next request succeeds.
func TestSnapshotIsStoredOrNot(t *testing.T) {
	t.Parallel()
	tried := 0
	for n := 1; ; n++ {
		s := start(t)
		path := "/sandboxes/" + s.mustCreate(t, `{"templateID":"base"}`) + "/snapshots"
		fault := storetest.FailNth(s.options.Store, n)
		resp, text := s.do(t, "POST", path, `{"name":"job"}`)
		storetest.Mend(s.options.Store)
		if fault.Which() == "" {
			if resp.StatusCode != http.StatusCreated {
				t.Errorf("without a fault: got %d %s, want 201", resp.StatusCode, text)
			}
			break
		}
		tried++
		found := list(t, s, "/snapshots", "", snapshotID)
		if resp.StatusCode < http.StatusInternalServerError || len(found) != 0 {
			t.Errorf("at %q: got %d %s and the snapshots %q, want an error and none", fault.Which(), resp.StatusCode, text, found)
		}
		s.must(t, "POST", path, `{"name":"job"}`, 201)
	}
	if tried == 0 {
		t.Error("there was nothing that could fail")
	}
}
