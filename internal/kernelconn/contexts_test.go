package kernelconn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/jupyter/jupytertest"
	"github.com/e2bctl/e2bctl/internal/must"
)

// state returns the records of ks, without those that are empty.
func state(ks *Kernels) map[string]any {
	all := map[string]any{}
	add := func(name string, n int, record any) {
		if n > 0 {
			all[name] = record
		}
	}
	add("defaults", len(ks.defaults), maps.Clone(ks.defaults))
	add("languages", len(ks.languages), maps.Clone(ks.languages))
	add("beside", len(ks.beside), maps.Clone(ks.beside))
	add("dead", len(ks.dead), maps.Clone(ks.dead))
	add("replaced", len(ks.replaced), maps.Clone(ks.replaced))
	add("lost", len(ks.lost), maps.Clone(ks.lost))
	add("heard", len(ks.heard), maps.Clone(ks.heard))
	open := map[string]string{}
	for id, k := range ks.open {
		open[id] = k.language
	}
	add("open", len(open), open)
	return all
}

// wantState checks the records of ks.
func wantState(t *testing.T, what string, ks *Kernels, want map[string]any) {
	t.Helper()
	if diff := gocmp.Diff(want, state(ks), gocmp.AllowUnexported(deadContext{})); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// withDead returns the kernels of a server that creates the context "made", with dead contexts of each kind.
func withDead(t *testing.T, s *server) *Kernels {
	t.Helper()
	ks := s.kernels()
	ks.dead = map[string]deadContext{
		"standard": {Context: Context{ID: "standard", Language: "python"}, standard: true},
		"first":    {Context: Context{ID: "first", Language: "bash", Cwd: "/d"}, heir: "second"},
		"second":   {Context: Context{ID: "second", Language: "bash", Cwd: "/d"}},
		"other":    {Context: Context{ID: "other", Language: "r"}},
	}
	ks.beside = map[string]struct{}{"second": {}}
	ks.lost = map[string]string{"second": "why", "other": "why not"}
	s.contexts = func(w http.ResponseWriter, r *http.Request) {
		var wanted Context
		if err := json.NewDecoder(r.Body).Decode(&wanted); err != nil {
			t.Error(err)
		}
		wanted.ID = "made"
		if err := json.NewEncoder(w).Encode(wanted); err != nil {
			t.Error(err)
		}
	}
	return ks
}

// TestHeirs checks which context takes the place of another, and by which names each is called.
func TestHeirs(t *testing.T) {
	t.Parallel()
	ks := withDead(t, newServer(t))
	ks.defaults["python"] = "now"
	for id, want := range map[string]struct {
		heir, language, current string
		names                   []string
	}{
		"standard": {"", "python", "now", []string{"standard"}},
		"first":    {"second", "x", "second", []string{"first"}},
		"second":   {"second", "x", "second", []string{"second", "first"}},
		"other":    {"other", "x", "other", []string{"other"}},
		"now":      {"now", "x", "now", []string{"now", "standard"}},
		"":         {"", "x", "", []string{""}},
	} {
		heir, language := ks.heirOf(id, "x")
		if current := ks.current(id); heir != want.heir || language != want.language || current != want.current {
			t.Errorf("%q: the heir is %q in %q, and the current context is %q; want %+v", id, heir, language, current, want)
		}
		if diff := gocmp.Diff(want.names, ks.names(id)); id != "" && diff != "" {
			t.Errorf("%q: names (-want +got):\n%s", id, diff)
		}
	}
	for id, want := range map[string]string{DefaultContext: "now", "standard": "now", "first": "second", "now": "now", "unknown": "unknown"} {
		if got := ks.Named(id); got != want {
			t.Errorf("%s refers to %q, want %q", id, got, want)
		}
	}
	delete(ks.defaults, "python")
	if got := ks.Named(DefaultContext); got != DefaultContext {
		t.Errorf("without a context, the default is %q, want the service's own", got)
	}
}

// TestReplace checks the context that is made in place of a dead one, everything that is then recorded, and which dead
// contexts are replaced.
func TestReplace(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	ks := withDead(t, s)
	before := state(withDead(t, s))
	for id, want := range map[string]error{"unknown": api.ErrNotFound, "other": errDead} {
		_, err := ks.replace(t.Context(), id)
		must.Is(t, err, want)
		wantState(t, "after "+id, ks, before)
	}
	heir, err := ks.replace(t.Context(), "second")
	if must.Do(t, err); heir != "made" {
		t.Errorf("the heir is %q, want made", heir)
	}
	made := func(id, language string) deadContext {
		return deadContext{Context: Context{ID: id, Language: language, Cwd: "/d"}, heir: "made"}
	}
	wantState(t, "a context beside the default one", ks, map[string]any{
		"languages": map[string]string{"made": "bash"}, "beside": map[string]struct{}{"second": {}, "made": {}},
		"lost": map[string]string{"made": "why", "other": "why not"},
		"dead": map[string]deadContext{
			"standard": ks.dead["standard"], "other": {Context: Context{ID: "other", Language: "r"}}, "first": made("first", "bash"), "second": made("second", "bash"),
		},
	})
	ks = withDead(t, s)
	_, err = ks.replace(t.Context(), "standard")
	must.Do(t, err)
	want := state(withDead(t, s))
	want["defaults"], want["languages"] = map[string]string{"python": "made"}, map[string]string{"made": "python"}
	wantState(t, "a default context", ks, want)
	ks = withDead(t, s)
	ks.open["other"] = nil // no connection was ever opened
	if _, err := ks.replace(t.Context(), "other"); !errors.Is(err, errDead) {
		t.Errorf("got %v, want %v", err, errDead)
	}
	s.kernel = jupytertest.Answering(printX)
	ks.languages["other"] = "r"
	conn, err := s.Dial(t.Context(), "/api/kernels/other/channels")
	must.Do(t, err)
	ks.add("other", "session", conn)
	if heir, err := ks.replace(t.Context(), "other"); err != nil || heir != "made" || ks.lost["made"] != "why not" {
		t.Errorf("a context with a connection: got %q, %v and %v, want that it is replaced", heir, err, ks.lost)
	}
}

// TestEndOfDeadContexts checks the records when a dead context is restarted or removed.
func TestEndOfDeadContexts(t *testing.T) {
	t.Parallel()
	failed := &api.Error{StatusCode: http.StatusInternalServerError}
	for name, tt := range map[string]struct {
		removal bool
		change  func(want map[string]any, dead map[string]deadContext)
	}{
		"removed": {true, func(_ map[string]any, dead map[string]deadContext) {
			dead["standard"] = deadContext{Context: dead["standard"].Context}
		}},
		"restarted": {false, func(want map[string]any, _ map[string]deadContext) {
			want["defaults"], want["languages"] = map[string]string{"python": "made"}, map[string]string{"made": "python"}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			ks := withDead(t, s)
			creates := s.contexts
			s.contexts = func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet {
					_, _ = io.WriteString(w, "[]")
					return
				}
				creates(w, r)
			}
			s.rest = func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "[]") }
			must.Do(t, ks.endDead(t.Context(), "standard", tt.removal, failed))
			want := state(withDead(t, s))
			tt.change(want, want["dead"].(map[string]deadContext))
			wantState(t, name, ks, want)
			if len(ks.opening) > 0 {
				t.Error("no other call can open a connection")
			}
		})
	}
}

// TestEndOfContexts checks the request and the records when a context is restarted or removed.
func TestEndOfContexts(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		end    func(*Kernels, context.Context, string) error
		status int
		want   string // the request
		ended  bool
	}{
		"restarted":     {(*Kernels).Restart, http.StatusOK, "POST /contexts/c0ffee/restart", true},
		"removed":       {(*Kernels).Remove, http.StatusOK, "DELETE /contexts/c0ffee", true},
		"not restarted": {(*Kernels).Restart, http.StatusNotFound, "POST /contexts/c0ffee/restart", false},
		"not removed":   {(*Kernels).Remove, http.StatusNotFound, "DELETE /contexts/c0ffee", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			s.kernel = jupytertest.Answering(printX)
			ks := s.kernels()
			k, err := ks.Open(t.Context(), "", "")
			must.Do(t, err)
			ks.lose(testContext, "why")
			ks.hear(testContext)
			want := map[string]any{}
			if tt.ended && name == "restarted" {
				want["replaced"] = map[string]bool{testContext: true}
			}
			if !tt.ended {
				want = state(ks)
			}
			var asked []string
			s.contexts = func(w http.ResponseWriter, r *http.Request) {
				asked = append(asked, r.Method+" "+r.URL.Path)
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, "null")
				if len(ks.ending) != 1 {
					t.Errorf("%d gates are shut while the context is being ended, want one", len(ks.ending))
				}
			}
			if err := tt.end(ks, t.Context(), testContext); (err == nil) != tt.ended {
				t.Errorf("got %v, want no error: %v", err, tt.ended)
			}
			if got := fmt.Sprint(asked); got != "["+tt.want+"]" {
				t.Errorf("asked for %s, want %s", got, tt.want)
			}
			wantState(t, name, ks, want)
			ended := false
			select {
			case <-k.Done():
				ended = true
			default:
			}
			if ended != tt.ended || len(ks.ending) > 0 {
				t.Errorf("the connection has ended: %v, and %d gates are shut", ended, len(ks.ending))
			}
			if !tt.ended {
				must.Is(t, ks.Loss(testContext), ErrRestarted)
			}
		})
	}
}

// TestCreated checks that a context that was created on request is no default, and that a context that is known is not
// looked up again.
func TestCreated(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	ks := s.kernels()
	lists := 0
	s.contexts = func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			_, _ = io.WriteString(w, `{"id":"mine","language":"python","cwd":"/d"}`)
			return
		}
		lists++
		_, _ = io.WriteString(w, `[{"id":"mine","language":"python"},{"id":"first","language":"python"}]`)
	}
	made, err := ks.Create(t.Context(), Context{Language: "python"})
	must.Do(t, err)
	if want := (Context{ID: "mine", Language: "python", Cwd: "/d"}); *made != want {
		t.Errorf("got %+v, want %+v", *made, want)
	}
	wantState(t, "created", ks, map[string]any{"languages": map[string]string{"mine": "python"}, "beside": map[string]struct{}{"mine": {}}})
	for _, tt := range []struct {
		id, want string
		lists    int
	}{{"mine", "mine", 0}, {"", "first", 1}, {"", "first", 1}, {"first", "first", 1}} {
		if got, err := ks.lookup(t.Context(), tt.id, ""); err != nil || got != tt.want || lists != tt.lists {
			t.Errorf("%q: got %q, %v after %d lists, want %q after %d", tt.id, got, err, lists, tt.want, tt.lists)
		}
	}
}

// TestKernelsKeepNoLock checks that the lock of the kernels is free after each function, however this ends.
func TestKernelsKeepNoLock(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.contexts = func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			_, _ = io.WriteString(w, `{"id":"new","language":"r"}`)
			return
		}
		_, _ = io.WriteString(w, `[{"id":"a","language":"python"}]`)
	}
	s.rest = func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `[{"id":"a"}]`) }
	// These kernels are not closed: this would wait for a lock that is kept.
	ks := New(Options{Server: s, Logger: slog.New(slog.DiscardHandler)})
	ks.dead["dead"] = deadContext{Context: Context{ID: "dead", Language: "r"}, standard: true}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	open, turn := func() {}, new(requestTurn)
	call := func(ctx context.Context) (err error) { turn, err = ks.takeRequestTurn(ctx, HTTPCall{}); return err }
	for _, step := range []struct {
		name string
		do   func()
	}{
		{"lose", func() { ks.lose("a", "why") }}, {"noteEnd", func() { ks.noteEnd("a") }},
		{"Loss", func() { _ = ks.Loss("a") }}, {"Loss of nothing", func() { _ = ks.Loss("a") }},
		{"hear", func() { ks.hear("a") }}, {"hasHeard", func() { ks.hasHeard("a") }},
		{"Named", func() { ks.Named("a") }}, {"Named of the default", func() { ks.Named(DefaultContext) }},
		{"names", func() { ks.names("a") }}, {"Opened", func() { ks.Opened("python") }}, {"Disconnect", ks.Disconnect},
		{"shut", func() { open, _ = ks.shut(t.Context(), "b") }}, {"shut again", func() { _, _ = ks.shut(ended, "b") }},
		{"waitAtGate", func() { _ = ks.waitAtGate(ended, "b") }}, {"open", func() { open() }}, {"waitAtGate, open", func() { _ = ks.waitAtGate(ended, "b") }},
		{"add", func() { ks.add("unknown", "session", nil) }}, {"drop", func() { ks.drop("unknown") }},
		{"takeRequestTurn", func() { _ = call(t.Context()) }}, {"takeRequestTurn, given up", func() { _, _ = ks.takeRequestTurn(ended, HTTPCall{}) }},
		{"releaseRequestTurn", func() { ks.releaseRequestTurn(turn) }},
		{"Contexts", func() { _, _ = ks.Contexts(t.Context()) }}, {"create", func() { _, _ = ks.create(t.Context(), Context{}) }},
		{"Create", func() { _, _ = ks.Create(t.Context(), Context{}) }}, {"bury", func() { _, _ = ks.bury(t.Context()) }},
		{"lookup", func() { _, _ = ks.lookup(t.Context(), "", "") }}, {"lookup of what is created", func() { _, _ = ks.lookup(t.Context(), "", "new") }},
		{"replace", func() { _, _ = ks.replace(t.Context(), "dead") }}, {"replace nothing", func() { _, _ = ks.replace(t.Context(), "none") }},
		{"endDead", func() { _ = ks.endDead(t.Context(), "dead", true, &api.Error{StatusCode: 500}) }}, {"Close", ks.Close},
	} {
		step.do()
		if !isFree(&ks.mu) {
			t.Fatalf("%s keeps the lock", step.name)
		}
	}
}
