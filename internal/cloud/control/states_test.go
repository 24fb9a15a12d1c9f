package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/store"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestListStates checks that lists contain running and paused sandboxes, and that only the running
// ones are counted.
func TestListStates(t *testing.T) {
	t.Parallel()
	s := start(t)
	var ids []string // ids of sandboxes: 0, 2 and 4 run, 1 is paused with its memory, 3 with its files
	for i := range 5 {
		id := s.mustCreate(t, `{"templateID":"base","timeout":3600}`)
		ids = append(ids, id)
		s.registry.Advance(time.Second)
		if i%2 == 1 {
			s.must(t, "POST", "/sandboxes/"+id+"/pause", fmt.Sprintf(`{"memory":%v}`, i == 1), 204)
		}
	}
	for _, tt := range []struct {
		path  string
		want  []int
		total string
	}{
		{"/v2/sandboxes?", []int{4, 3, 2, 1, 0}, "3"},
		{"/v2/sandboxes?limit=2", []int{4, 3, 2, 1, 0}, "3"},
		{"/v2/sandboxes?limit=1&order=asc", []int{0, 1, 2, 3, 4}, "3"},
		{"/v2/sandboxes?state=running", []int{4, 2, 0}, "3"},
		{"/v2/sandboxes?state=paused", []int{3, 1}, ""},
		{"/v2/sandboxes?state=paused&limit=1", []int{3, 1}, ""},
		{"/v2/sandboxes?state=paused,running", []int{4, 3, 2, 1, 0}, "3"},
		{"/sandboxes?", []int{4, 2, 0}, ""},
	} {
		t.Run(tt.path, func(t *testing.T) {
			var got, want []string
			query := ""
			for {
				resp, text := s.do(t, "GET", tt.path+query, "")
				var page []listed
				if err := json.Unmarshal([]byte(text), &page); err != nil || resp.StatusCode != 200 {
					t.Fatalf("%d %s: %v", resp.StatusCode, text, err)
				}
				if total := resp.Header.Get("X-Total-Running"); total != tt.total {
					t.Errorf("got X-Total-Running %q, want %q", total, tt.total)
				}
				for _, sb := range page {
					got = append(got, sb.SandboxID+" "+sb.State)
				}
				next := resp.Header.Get("X-Next-Token")
				if next == "" {
					break
				}
				query = "&nextToken=" + url.QueryEscape(next)
			}
			for _, i := range tt.want {
				want = append(want, ids[i]+" "+[]string{"running", "paused"}[i%2])
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestLifecycleOfCreate checks that the requested action at the end of the lifetime is taken, and
// is reported.
func TestLifecycleOfCreate(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]struct {
		lifecycle map[string]any
		then      seen // zero: the sandbox no longer exists
	}{
		`{"templateID":"base"}`: {map[string]any{"autoResume": false, "onTimeout": "kill"}, seen{}},
		`{"templateID":"base","autoPause":false,"autoPauseMemory":true,"autoResume":{"enabled":false}}`: {map[string]any{"autoResume": false, "onTimeout": "kill"}, seen{}},
		`{"templateID":"base","autoPause":null,"autoPauseMemory":null,"autoResume":null}`:               {map[string]any{"autoResume": false, "onTimeout": "kill"}, seen{}},
		`{"templateID":"base","autoPause":true}`:                                                        {map[string]any{"autoResume": false, "onTimeout": "pause"}, seenFull},
		`{"templateID":"base","autoPause":true,"autoPauseMemory":true,"autoResume":{"enabled":true}}`:   {map[string]any{"autoResume": true, "onTimeout": "pause"}, seenFull},
		`{"templateID":"base","autoPause":true,"autoPauseMemory":false,"autoResume":{}}`:                {map[string]any{"autoResume": false, "onTimeout": "pause"}, seenFiles},
		// The default request of openai-agents.
		`{"templateID":"base","timeout":300,"secure":true,"allow_internet_access":true,"autoPause":true,"autoPauseMemory":true,` +
			`"autoResume":{"enabled":true},"envVars":{},"metadata":{},"network":{"allowPublicTraffic":true}}`: {map[string]any{"autoResume": true, "onTimeout": "pause"}, seenFull},
	} {
		t.Run(body, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			id := s.mustCreate(t, body)
			if diff := cmp.Diff(want.lifecycle, s.must(t, "GET", "/sandboxes/"+id, "", 200)["lifecycle"]); diff != "" {
				t.Errorf("lifecycle (-want +got):\n%s", diff)
			}
			s.registry.Advance(time.Hour)
			if want.then.state == nil {
				s.must(t, "GET", "/sandboxes/"+id, "", 404)
				return
			}
			if got := s.seen(t, id); got != want.then {
				t.Errorf("after its lifetime GET says %+v, want %+v", got, want.then)
			}
		})
	}
}

// TestResumeChangesAutoPause checks that the deprecated call resume can change the action at the
// end of the lifetime.
func TestResumeChangesAutoPause(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.mustCreate(t, `{"templateID":"base"}`)
	s.must(t, "POST", "/sandboxes/"+id+"/pause", ``, 204)
	s.must(t, "POST", "/sandboxes/"+id+"/resume", `{"timeout":1,"autoPause":true}`, 201)
	s.registry.Advance(time.Minute)
	if got := s.seen(t, id); got != seenFull {
		t.Errorf("after its lifetime GET says %+v, want %+v", got, seenFull)
	}
}

// TestReasons checks that every call about a sandbox that has ended reports the reason and the time
// of the end.
func TestReasons(t *testing.T) {
	t.Parallel()
	began := time.Now().Truncate(time.Second)
	dir := t.TempDir()
	st, err := store.Open(t.Context(), dir)
	must.Do(t, err)
	before := start(t, func(o *lifecycle.Options) { o.Store = st })
	left := before.mustCreate(t, `{"templateID":"base"}`)
	must.Do(t, errors.Join(before.registry.Close(), st.Close()))
	st, err = store.Open(t.Context(), dir)
	must.Do(t, err)
	t.Cleanup(func() { _ = st.Close() })
	s := start(t, func(o *lifecycle.Options) { o.Store = st })
	ids := map[string]string{"server_gone": left}
	for _, reason := range []string{"expired", "killed", "out_of_memory", "died"} {
		ids[reason] = s.mustCreate(t, `{"templateID":"base","timeout":3600}`)
	}
	s.must(t, "POST", "/sandboxes/"+ids["expired"]+"/timeout", `{"timeout":0}`, 204)
	s.must(t, "DELETE", "/sandboxes/"+ids["killed"], "", 204)
	s.fakes.Fake(ids["out_of_memory"]).Die(engine.ErrOutOfMemory)
	s.fakes.Fake(ids["died"]).Die(errors.New("no envd"))
	for reason, id := range ids {
		for resp, _ := s.do(t, "GET", "/sandboxes/"+id, ""); resp.StatusCode == 200; resp, _ = s.do(t, "GET", "/sandboxes/"+id, "") {
			continue // it will end soon
		}
		for _, call := range []struct{ method, path, body string }{
			{"GET", "/sandboxes/%s", ``},
			{"DELETE", "/sandboxes/%s", ``},
			{"POST", "/sandboxes/%s/pause", ``},
			{"POST", "/sandboxes/%s/resume", ``},
			{"POST", "/v2/sandboxes/%s/connect", ``},
			{"POST", "/sandboxes/%s/timeout", `{"timeout":1}`},
			{"POST", "/sandboxes/%s/refreshes", ``},
			{"PUT", "/sandboxes/%s/network", `{}`},
			{"POST", "/sandboxes/%s/fork", ``},
		} {
			got := s.must(t, call.method, fmt.Sprintf(call.path, id), call.body, http.StatusNotFound)
			at, err := time.Parse(time.RFC3339, fmt.Sprint(got["endedAt"]))
			if got["reason"] != reason || err != nil || at.Before(began) {
				t.Errorf("%s %s: got %v, want reason %s and a time after %v", call.method, call.path, got, reason, began)
			}
		}
	}
}

// BenchmarkList10000 lists a page of 10,000 paused sandboxes, and filters them.
func BenchmarkList10000(b *testing.B) {
	st := store.Temporary(b.TempDir())
	for i := range lifecycle.DefaultMaxKept {
		dir, err := st.NewDir()
		if err == nil {
			value := fmt.Sprintf(`{"Version":1,"Request":{"Template":{"ID":"localbasetemplate000","Alias":"base"},"Metadata":{"n":"%d"}},"StartedAt":%q}`,
				i, time.Unix(int64(i), 0).UTC().Format(time.RFC3339))
			_, err = st.Put(store.Sandboxes, fmt.Sprintf("i%020d", i), []byte(value), dir)
		}
		must.Do(b, err)
	}
	r := lifecycle.New(lifecycle.Options{Store: st})
	defer r.Close()
	s := New(Options{Key: testKey, Sandboxes: r, Templates: templatesOf(st), Store: st, Rate: RateLimit{PerSecond: 1e9, Burst: 1e9}})
	for name, query := range map[string]string{"page": "", "last page": "?order=asc&startedAfter=1970-01-01T02:46:39Z", "metadata": "?metadata=n%3D77"} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				w := httptest.NewRecorder()
				q := httptest.NewRequestWithContext(b.Context(), "GET", "/v2/sandboxes"+query, nil)
				q.Header.Set("X-API-KEY", testKey)
				s.ServeHTTP(w, q)
				if w.Code != http.StatusOK || w.Body.Len() < 100 {
					b.Fatal(w.Code, w.Body)
				}
			}
		})
	}
	b.Run("one by id", func(b *testing.B) {
		for b.Loop() {
			_, err := r.Get(fmt.Sprintf("i%020d", 77))
			must.Do(b, err)
		}
	})
	b.Run("eviction", func(b *testing.B) {
		for b.Loop() {
			r.Advance(0)
		}
	})
}
