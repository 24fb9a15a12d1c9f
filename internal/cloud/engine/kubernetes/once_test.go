package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/must"
)

// scripted answers requests one after the other, and notes them.
type scripted struct {
	mu      sync.Mutex
	answers []any // an object, or the status of a refusal; the last one is repeated
	got     []string
}

func (s *scripted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got = append(s.got, r.Method)
	answer := s.answers[0]
	if len(s.answers) > 1 {
		s.answers = s.answers[1:]
	}
	if code, refused := answer.(int); refused {
		reason := map[int]metav1.StatusReason{http.StatusConflict: metav1.StatusReasonAlreadyExists, http.StatusNotFound: metav1.StatusReasonNotFound, http.StatusForbidden: metav1.StatusReasonForbidden}[code]
		refuse(w, code, string(reason), "refused")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

// TestAnotherServerCreates checks that a server which finds the object of another one waits for the
// result, and never removes that object.
func TestAnotherServerCreates(t *testing.T) {
	t.Parallel()
	k := keysFor(t, longSecret, "agents")
	complete := withRecord(t, k, "one", anyRecord())
	incomplete := withRecord(t, k, "one", anyRecord())
	incomplete.Annotations = nil
	ending := withRecord(t, k, "one", anyRecord())
	ending.Annotations[annotationEnded] = closedHere
	foreign := withRecord(t, keysFor(t, longSecret+"s", "agents"), "one", anyRecord())
	for name, tt := range map[string]struct {
		answers []any
		want    error // nil: the last refusal
		methods []string
	}{
		"it succeeds":              {[]any{http.StatusConflict, incomplete, complete}, engine.ErrExists, []string{"POST", "GET", "GET"}},
		"it fails":                 {[]any{http.StatusConflict, incomplete, http.StatusNotFound, http.StatusForbidden}, nil, []string{"POST", "GET", "GET", "POST"}},
		"it has ended the sandbox": {[]any{http.StatusConflict, ending, http.StatusNotFound, http.StatusForbidden}, nil, []string{"POST", "GET", "GET", "POST"}},
		"it has another secret":    {[]any{http.StatusConflict, foreign}, nil, []string{"POST", "GET"}},
	} {
		api := &scripted{answers: tt.answers}
		server := httptest.NewServer(api)
		e := engineOn(t, server.URL, longSecret)
		_, err := e.NewSandbox(t.Context(), engine.SandboxOptions{ID: "one"})
		if err == nil || tt.want != nil != errors.Is(err, engine.ErrExists) {
			t.Errorf("%s: got %v, want %v", name, err, tt.want)
		}
		server.Close()
		if !slices.Equal(api.got, tt.methods) {
			t.Errorf("%s: requests %v, want %v", name, api.got, tt.methods)
		}
	}

	api := &scripted{answers: []any{http.StatusConflict, incomplete}}
	server := httptest.NewServer(api)
	defer server.Close()
	gone := errors.New("the client is gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	e := engineOn(t, server.URL, longSecret)
	must.Is(t, e.awaitOther(ctx, "sandbox-one"), gone)
}

// TestIDOf checks that the ids of requests are those of all servers with the secret, and of no others.
func TestIDOf(t *testing.T) {
	t.Parallel()
	engineOf := func(secret, namespace string) *Engine {
		return &Engine{options: Options{Secret: []byte(secret)}, keys: *keysFor(t, secret, namespace)}
	}
	id := engineOf(longSecret, "agents").IDOf("key")
	if again := engineOf(longSecret, "agents").IDOf("key"); again != id || len(id) != 21 || strings.Trim(id, "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
		t.Errorf("the ids are %q and %q", id, again)
	}
	if _, err := nameOf(id); err != nil {
		t.Error(err)
	}
	for name, other := range map[string]string{
		"another key": engineOf(longSecret, "agents").IDOf("key2"), "another secret": engineOf(longSecret+"s", "agents").IDOf("key"),
		"another namespace": engineOf(longSecret, "others").IDOf("key"),
	} {
		if other == id {
			t.Errorf("%s has the same id", name)
		}
	}
	if id := engineOf("", "agents").IDOf("key"); id != "" {
		t.Errorf("without a secret, the id is %q", id)
	}
}

// TestPodOfTheServerBefore checks that a server which has just started knows of a pod that is still ending
// before it makes a sandbox of the same name.
func TestPodOfTheServerBefore(t *testing.T) {
	t.Parallel()
	e := engineOn(t, "", longSecret)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	looks := 0
	e.watch.pods.synced = func() bool {
		if looks++; looks < 3 {
			return false
		}
		e.watch.pods.see(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "sandbox-one"}}, false)
		cancel()
		return true
	}
	if err := e.awaitNoPod(ctx, "sandbox-one"); !says(err, "wait for the end of the pod sandbox-one") || looks != 3 {
		t.Errorf("after %d looks: %v", looks, err)
	}
}

// TestClaimOfSandboxThatExists checks that a claim is given up as soon as another object has the id of its
// sandbox, without a wait for the pool, and that the claim is removed.
func TestClaimOfSandboxThatExists(t *testing.T) {
	t.Parallel()
	complete := withRecord(t, keysFor(t, longSecret, "agents"), "one", anyRecord())
	s := &scripted{answers: []any{
		&claim{TypeMeta: metav1.TypeMeta{APIVersion: claims.GroupVersion().String(), Kind: "SandboxClaim"}, ObjectMeta: metav1.ObjectMeta{Name: "sandbox-one", UID: "u"}},
		map[string]any{"apiVersion": sandboxes.GroupVersion().String(), "kind": "SandboxList", "items": []any{complete}},
		metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Success"},
	}}
	server := httptest.NewServer(s)
	defer server.Close()
	e := engineOn(t, server.URL, longSecret)
	_, err := e.take(t.Context(), engine.SandboxOptions{ID: "one"}, "sandbox-one", "pool")
	if other, ok := errors.AsType[*existsError](err); !ok || other.name != complete.Name {
		t.Errorf("got %v, want that %s exists", err, complete.Name)
	}
	if want := []string{"POST", "GET", "DELETE", "PATCH"}; !slices.Equal(s.got, want) {
		t.Errorf("the requests are %v, want %v", s.got, want)
	}
}
