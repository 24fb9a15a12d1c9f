package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/e2bctl/e2bctl/examples/internal/leak"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

var token = leak.New("ghp_")

// service is an API for issues on this machine, for clients that have the token.
type service struct {
	*httptest.Server
	mu       sync.Mutex
	calls    []string
	comments []string
}

func newService(t *testing.T) *service {
	s := &service{}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, r.Method+" "+r.URL.RequestURI())
	if r.Header.Get("Authorization") != "Bearer "+token.Text {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	switch {
	case r.Method == http.MethodPost:
		body, _ := io.ReadAll(r.Body)
		s.comments = append(s.comments, string(body))
		w.WriteHeader(http.StatusCreated)
	case r.FormValue("page") == "1":
		_, _ = io.WriteString(w, `[{"number":7,"title":"How?","labels":[{"name":"question"}],"body":"It hangs."},
			{"number":5,"title":"Crash","labels":[{"name":"bug"},{"name":"question"}],"body":"It was called with `+r.Header.Get("Authorization")+`"}]`)
	case r.FormValue("page") == "2":
		_, _ = io.WriteString(w, `[{"number":2,"title":"Typo","labels":[{"name":"bug"}]}]`)
	case r.FormValue("page") == "3":
		_, _ = io.WriteString(w, `[]`)
	default:
		w.WriteHeader(http.StatusBadGateway)
	}
}

func newIssues(t *testing.T, s *service) *tracker {
	t.Helper()
	issues, err := newTracker(s.URL, "octo/cat", token.Text)
	must.Do(t, err)
	return issues
}

// TestToken checks that the code can use data that only the token can reach, and that the
// token is nowhere in the sandbox: not while a tool is called, and not afterwards.
func TestToken(t *testing.T) {
	s, sb := newService(t), leak.Cloud(t).Create(t, sandbox.WithInternet(false))
	var asked []string
	approve := func(_ context.Context, question string) error {
		if asked = append(asked, question); len(asked) == 1 {
			if f, err := token.Search(t.Context(), sb); err != nil || len(f.Found) > 0 {
				t.Errorf("while the code waits for a tool, the token is in: %+v, %v", f, err)
			}
		}
		if strings.Contains(question, "#5") {
			return errors.New("not this one")
		}
		return nil
	}
	steps, err := code(nil)
	must.Do(t, err)
	var shown strings.Builder
	if err := work(t.Context(), &shown, sb, newIssues(t, s), approve, steps); err != nil {
		t.Fatalf("%v\n%s", err, shown.String())
	}
	for _, want := range []string{"[('question', 2), ('bug', 2)]", "#5: comment: the call was not approved: not this one", "{'open': 3, 'reminded': [7]}"} {
		if !strings.Contains(shown.String(), want) {
			t.Errorf("no %s in what it shows:\n%s", want, shown.String())
		}
	}
	if len(asked) != 2 || asked[0] != `comment on #7: "Has this been answered? Then please close it."` {
		t.Errorf("it asked %q", asked)
	}
	if len(s.comments) != 1 || s.comments[0] != `{"body":"Has this been answered? Then please close it."}` {
		t.Errorf("comments: %q", s.comments)
	}
	if found, err := token.Everywhere(t.Context(), sb); err != nil || len(found) > 0 {
		t.Errorf("the token is in: %q, %v", found, err)
	}

	// The API had repeated the token in an issue.
	execution, err := sb.RunCode(t.Context(), "found[1]['body']", nil)
	if err != nil || execution.Text() != "It was called with Bearer [redacted]" {
		t.Errorf("%s, %v", execution.Text(), err)
	}
	if strings.Contains(shown.String(), token.Text) {
		t.Errorf("the token is in what is shown:\n%s", shown.String())
	}
}

// TestBounds checks that the code cannot do more than the tools offer, nor more often, and
// gets the reason.
func TestBounds(t *testing.T) {
	s, sb := newService(t), sandboxtest.New(t).Create(t, sandbox.WithInternet(false))
	yes := func(context.Context, string) error { return nil }
	var shown strings.Builder
	err := work(t.Context(), &shown, sb, newIssues(t, s), yes, []string{`
def attempt(f, *args):
    try:
        return f(*args)
    except Exception as e:
        return f"{type(e).__name__}: {e}"
print(attempt(issues, "1/../../../user"))
print(attempt(issues, 4))
print(attempt(comment, 7, "x" * 5000))
for i in range(4): print(attempt(comment, 7, "spam"))
import urllib.request
print(attempt(urllib.request.urlopen, "` + s.URL + `"))
final_answer(None)`})
	must.Do(t, err)
	for _, want := range []string{"TypeError: ", "ToolError: issues: the API answered 502", " bytes, more than 4096", "as often as it may be", "URLError: "} {
		if !strings.Contains(shown.String(), want) {
			t.Errorf("no %q in:\n%s", want, shown.String())
		}
	}
	if len(s.comments) != 3 {
		t.Errorf("comments: %q", s.comments)
	}
	const post = "POST /repos/octo/cat/issues/7/comments"
	want := []string{"GET /repos/octo/cat/issues?page=4", post, post, post}
	if !slices.Equal(s.calls, want) {
		t.Errorf("the API was asked for %q", s.calls)
	}
}

// TestSecrettool runs the whole example, on a service from its environment.
func TestSecrettool(t *testing.T) {
	s := newService(t)
	sandboxtest.New(t).Setenv(t)
	t.Setenv("GITHUB_TOKEN", "")
	for _, arguments := range [][]string{nil, {"octo/cat"}} {
		if err := secrettool(t.Context(), false, s.URL, arguments); err == nil {
			t.Errorf("no error with %q", arguments)
		}
	}
	t.Setenv("GITHUB_TOKEN", token.Text)
	if err := secrettool(t.Context(), false, s.URL, []string{"octo/cat/.."}); err == nil {
		t.Error("a path was taken for a repository")
	}
	file := t.TempDir() + "/step.py"
	must.Do(t, os.WriteFile(file, []byte("final_answer(issues(2)[0]['title'])"), 0o600))
	if err := secrettool(t.Context(), false, s.URL, []string{"octo/cat", file}); err != nil {
		t.Error(err)
	}
}

// Without an account the issues are made up.
func TestMadeUp(t *testing.T) {
	sandboxtest.New(t, local.WithWarm(0)) // skips on a machine that cannot run a local cloud
	t.Setenv("GITHUB_TOKEN", "")
	if err := secrettool(t.Context(), true, github, nil); err != nil {
		t.Error(err)
	}
}

// TestAsk checks that the person who is asked may say yes, no, or nothing until the run ends.
func TestAsk(t *testing.T) {
	var out strings.Builder
	approve := ask(strings.NewReader("y\nn\n"), &out)
	for i, want := range []string{"<nil>", "the user said no", "the user said no"} {
		if err := approve(t.Context(), "well"); fmt.Sprint(err) != want {
			t.Errorf("answer %d: %v, want %s", i, err, want)
		}
	}
	if !strings.HasPrefix(out.String(), "well? [y/N] ") {
		t.Errorf("it asked %q", out.String())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	silent, talks := io.Pipe()
	defer talks.Close()
	if err := ask(silent, io.Discard)(ctx, "well"); !errors.Is(err, context.Canceled) {
		t.Errorf("nobody answered: %v", err)
	}
}
