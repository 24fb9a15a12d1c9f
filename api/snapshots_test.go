package api

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
)

func TestSnapshotSendsWhatWasAskedFor(t *testing.T) {
	t.Parallel()
	c, calls := recorded(t, 201, `{"snapshotID":"local/s:v1","names":["local/s"],"later":1}`)
	for want, p := range map[string]*SnapshotParams{
		`{}`:                             nil,
		`{"name":"s:v1"}`:                {Name: "s:v1"},
		`{"memory":true}`:                {Mode: SnapshotFull},
		`{"name":"s:v1","memory":false}`: {Name: "s:v1", Mode: SnapshotFilesystem},
	} {
		got, err := c.Snapshots.Create(t.Context(), "i1", p)
		must.Do(t, err)
		if diff := cmp.Diff([]string{"POST /sandboxes/i1/snapshots " + want}, calls()); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(&Snapshot{ID: "local/s:v1", Names: []string{"local/s"}}, got); diff != "" {
			t.Error(diff)
		}
	}
	_, ofMode := c.Snapshots.Create(t.Context(), "i1", &SnapshotParams{Mode: "disk"})
	_, ofID := c.Snapshots.Create(t.Context(), "../x", nil)
	for what, err := range map[string]error{`"disk"`: ofMode, "sandbox": ofID} {
		if !errors.Is(err, ErrInvalidArgument) || !strings.Contains(err.Error(), what) {
			t.Errorf("got %v, want ErrInvalidArgument with %s in it", err, what)
		}
	}
	if got := calls(); got != nil {
		t.Errorf("bad arguments were sent: %q", got)
	}
}

func TestSnapshotSaysWhatItHas(t *testing.T) {
	t.Parallel()
	for field, want := range map[string]*bool{``: nil, `,"memory":false`: new(bool), `,"memory":true`: new(true)} {
		c, _ := recorded(t, 201, `{"snapshotID":"t1:default","names":[]`+field+`}`)
		got, err := c.Snapshots.Create(t.Context(), "i1", nil)
		must.Do(t, err)
		if diff := cmp.Diff(want, got.Memory); diff != "" {
			t.Errorf("%q: %s", field, diff)
		}
	}
	for _, answer := range []string{`{}`, `{"snapshotID":"a b"}`, `{"snapshotID":"../x"}`} {
		c, _ := recorded(t, 201, answer)
		if _, err := c.Snapshots.Create(t.Context(), "i1", nil); err == nil || !strings.Contains(err.Error(), "snapshotID") {
			t.Errorf("of %s got %v, want an error about snapshotID", answer, err)
		}
	}
}

// TestMakingIsNotRepeated checks that snapshots and forks are not requested again if the first
// request may have made them.
func TestMakingIsNotRepeated(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]error{400: ErrInvalidArgument, 404: ErrNotFound, 409: ErrConflict, 503: ErrUnavailable} {
		c, calls := recorded(t, status, fmt.Sprintf(`{"code":%d,"message":"told so"}`, status))
		_, ofSnapshot := c.Snapshots.Create(t.Context(), "i1", nil)
		_, ofFork := c.Sandboxes.Fork(t.Context(), "i1", nil)
		for what, err := range map[string]error{"snapshot": ofSnapshot, "fork": ofFork} {
			if !errors.Is(err, want) || !strings.Contains(err.Error(), "told so") {
				t.Errorf("%s, %d: got %v, want %v with the service's message", what, status, err, want)
			}
		}
		if n := len(calls()); n != 2 {
			t.Errorf("%d: got %d calls, want 2", status, n)
		}
	}
	var cut atomic.Int32
	c := service(t, func(http.ResponseWriter, *http.Request) {
		cut.Add(1)
		panic(http.ErrAbortHandler)
	})
	_, ofSnapshot := c.Snapshots.Create(t.Context(), "i1", nil)
	_, ofFork := c.Sandboxes.Fork(t.Context(), "i1", nil)
	if cut.Load() != 2 || !errors.Is(ofSnapshot, ErrUnavailable) || !errors.Is(ofFork, ErrUnavailable) {
		t.Errorf("got %d calls, %v and %v, want ErrUnavailable twice and 2 calls", cut.Load(), ofSnapshot, ofFork)
	}
}

// paged returns a client of a service with two pages, and a channel with the queries that the
// service receives.
func paged(t *testing.T, first, second string) (*Client, chan string) {
	t.Helper()
	queries := make(chan string, 10)
	return service(t, func(w http.ResponseWriter, r *http.Request) {
		select {
		case queries <- r.URL.Path + "?" + r.URL.RawQuery:
		default: // the error ends the list
			t.Errorf("%s was requested after the last page", r.URL)
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		if r.URL.Query().Get("nextToken") == "" {
			w.Header().Set("X-Next-Token", "n1")
			_, _ = io.WriteString(w, first)
			return
		}
		_, _ = io.WriteString(w, second)
	}), queries
}

func TestListSnapshots(t *testing.T) {
	t.Parallel()
	c, queries := paged(t, `[{"snapshotID":"a:default","names":[]}]`, `[{"snapshotID":"local/b:v1","names":["local/b"],"memory":false}]`)
	var got []string
	for snapshot, err := range c.Snapshots.List(t.Context(), &SnapshotListParams{SandboxID: "i1", Name: "local/b:v1", PageSize: 1}) {
		must.Do(t, err)
		got = append(got, snapshot.ID)
	}
	close(queries)
	for query := range queries {
		got = append(got, query)
	}
	if diff := cmp.Diff([]string{
		"a:default", "local/b:v1",
		"/snapshots?limit=1&name=local%2Fb%3Av1&sandboxID=i1",
		"/snapshots?limit=1&name=local%2Fb%3Av1&nextToken=n1&sandboxID=i1",
	}, got); diff != "" {
		t.Error(diff)
	}
}

func TestDeleteSnapshot(t *testing.T) {
	t.Parallel()
	paths := make(chan string, 100)
	c := service(t, func(w http.ResponseWriter, r *http.Request) {
		paths <- r.Method + " " + r.URL.EscapedPath()
		w.WriteHeader(http.StatusNoContent)
	})
	for id, want := range map[string]string{
		"t1:default":     "/templates/t1:default",
		"local/s:v1.0-a": "/templates/local%2Fs:v1.0-a",
		"s_1":            "/templates/s_1",
	} {
		must.Do(t, c.Snapshots.Delete(t.Context(), id))
		if got := <-paths; got != "DELETE "+want {
			t.Errorf("got %s, want DELETE %s", got, want)
		}
	}
	for _, id := range []string{"", ".", "..", "a/..", "../a", "a/b/c", "a:b:c", "a:", "/a", "a b", "a?b", "a%2fb", "a\n", "ü", strings.Repeat("a", 600)} {
		if err := c.Snapshots.Delete(t.Context(), id); !errors.Is(err, ErrInvalidArgument) {
			t.Errorf("%q: got %v, want ErrInvalidArgument", id, err)
		}
	}
	if len(paths) != 0 {
		t.Errorf("%s was sent", <-paths)
	}
}

func TestForkSendsWhatWasAskedFor(t *testing.T) {
	t.Parallel()
	c, calls := recorded(t, 201, `[{"sandbox":{"sandboxID":"i2"}}]`)
	for want, p := range map[string]*ForkParams{
		`{"timeout":300}`:             nil,
		`{"timeout":300,"count":100}`: {Count: 100},
		`{"timeout":61,"count":1}`:    {Count: 1, Lifetime: time.Minute + 1},
	} {
		_, err := c.Sandboxes.Fork(t.Context(), "i1", p)
		must.Do(t, err)
		if diff := cmp.Diff([]string{"POST /sandboxes/i1/fork " + want}, calls()); diff != "" {
			t.Error(diff)
		}
	}
	for _, p := range []*ForkParams{{Count: -1}, {Lifetime: -1}} {
		if _, err := c.Sandboxes.Fork(t.Context(), "i1", p); !errors.Is(err, ErrInvalidArgument) {
			t.Errorf("%+v: got %v, want ErrInvalidArgument", p, err)
		}
	}
	if got := calls(); got != nil {
		t.Errorf("bad arguments were sent: %q", got)
	}
}

func TestForkEntries(t *testing.T) {
	t.Parallel()
	c, _ := recorded(t, 201, `[
		{"sandbox":{"sandboxID":"i2","envdAccessToken":"t"},"memory":false},
		{"sandbox":{"sandboxID":"i3"}},
		{"error":{"code":429,"message":"too many\nsandboxes","error_code":"limit"}},
		{"error":{"code":404,"message":"no such snapshot"}},
		{"error":{"code":0}},
		{"sandbox":{"sandboxID":"../x"}},
		{}, null]`)
	forks, err := c.Sandboxes.Fork(t.Context(), "i1", &ForkParams{Count: 8})
	must.Do(t, err)
	for i, want := range []struct {
		id    string
		class error
		text  string
	}{
		{id: "i2"}, {id: "i3"},
		{class: ErrRateLimited, text: "429 limit: too many sandboxes"},
		{class: ErrNotFound, text: "no such snapshot"},
		{text: "500: internal server error"},
		{text: "sandboxID"}, {text: "neither"}, {text: "neither"},
	} {
		f := forks[i]
		switch {
		case want.id != "" && f.Err == nil && f.Sandbox.ID == want.id:
		case want.id != "" || f.Err == nil:
			t.Errorf("%d: got %+v, want %+v", i, f, want)
		case f.Sandbox != nil || !strings.Contains(f.Err.Error(), want.text):
			t.Errorf("%d: got %v and %v, want only an error with %q in it", i, f.Sandbox, f.Err, want.text)
		case want.class != nil && !errors.Is(f.Err, want.class):
			t.Errorf("%d: got %v, want %v", i, f.Err, want.class)
		}
	}
	if forks[0].Memory == nil || *forks[0].Memory || forks[1].Memory != nil {
		t.Errorf("got memory %v and %v, want false and nothing", forks[0].Memory, forks[1].Memory)
	}
	if forks[0].Sandbox.AccessToken != "t" {
		t.Error("the copy has no token")
	}
	none, _ := recorded(t, 201, `[]`)
	if _, err := none.Sandboxes.Fork(t.Context(), "i1", nil); err == nil {
		t.Error("an answer without copies is no error")
	}
}
