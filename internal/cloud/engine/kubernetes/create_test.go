package kubernetes

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestCreateIsRefused checks that an object is removed if nobody knows whether it was made, that an
// object of the same name is not touched, and that a quota is waited for until it is counted.
func TestCreateIsRefused(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		answer func(w http.ResponseWriter, n int) // to the n-th request
		want   []string                           // methods of the requests
		says   string                             // a part of the error
	}{
		"the connection breaks": {func(w http.ResponseWriter, _ int) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				conn.Close()
			}
		}, []string{"POST", "DELETE"}, "EOF"},
		"it exists": {func(w http.ResponseWriter, _ int) { refuse(w, http.StatusConflict, "AlreadyExists", "it exists") }, []string{"POST"}, "it exists"},
		"a quota is new": {func(w http.ResponseWriter, n int) {
			if n < 3 {
				refuse(w, http.StatusForbidden, "Forbidden", "status unknown for quota: sandboxes, resources: count/sandboxes.agents.x-k8s.io")
				return
			}
			refuse(w, http.StatusConflict, "AlreadyExists", "it exists")
		}, []string{"POST", "POST", "POST"}, "it exists"},
		"a quota is used up": {func(w http.ResponseWriter, _ int) {
			refuse(w, http.StatusForbidden, "Forbidden", "exceeded quota: sandboxes, used: 3, limited: 3")
		}, []string{"POST"}, "exceeded quota: sandboxes"},
		"credentials have expired": {func(w http.ResponseWriter, _ int) {
			refuse(w, http.StatusUnauthorized, "Unauthorized", "Unauthorized")
		}, []string{"POST"}, "which may have expired: log in to it again"},
		"its kind is gone": {func(w http.ResponseWriter, _ int) {
			refuse(w, http.StatusNotFound, "NotFound", "the server could not find the requested resource")
		}, []string{"POST"}, "no sandboxes.agents.x-k8s.io in the version v1beta1: install agent-sandbox 0.5"},
	} {
		var mu sync.Mutex
		var got []string
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, r.Method)
			if r.Method == http.MethodPost {
				tt.answer(w, len(got))
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Success"}`)
		}))
		defer server.Close()
		e := engineOn(t, server.URL, "")
		if s, err := e.newSandbox(t.Context(), engine.SandboxOptions{ID: "one"}); !says(err, tt.says) {
			t.Errorf("%s: made %v, %v, want %q", name, s, err, tt.says)
		}
		mu.Lock()
		if !slices.Equal(got, tt.want) || len(e.sandboxes)+len(e.leftovers)+len(e.watch.pods.changed) > 0 {
			t.Errorf("%s: requests %v, want %v; kept %v, %v, %v", name, got, tt.want, e.sandboxes, e.leftovers, e.watch.pods.changed)
		}
		mu.Unlock()
	}
}

// noEgress is the egress of a sandbox without a network.
type noEgress struct{ engine.Egress }

func (noEgress) Closed() bool { return true }

// TestTrustNetworkPolicy checks that an engine which does not restrict networks makes no sandbox that is to
// have none, and that only its sandboxes with the program in their image have no installer.
func TestTrustNetworkPolicy(t *testing.T) {
	t.Parallel()
	e := engineOn(t, "http://127.0.0.1:1", "")
	e.options.ProgramImage, e.options.Image = "program:1", "python:1"
	baked, closed := engine.SandboxOptions{ID: "one", Image: &engine.Image{Reference: "program:1"}}, engine.SandboxOptions{ID: "one", Egress: noEgress{}}
	installers := func(o engine.SandboxOptions) (n int) {
		pod := e.pod(o)
		if mounts := len(pod.Containers[0].VolumeMounts); mounts != len(pod.InitContainers) || mounts != len(pod.Volumes) {
			t.Errorf("it has %d mounts, and the volumes %v", mounts, pod.Volumes)
		}
		return len(pod.InitContainers)
	}
	if n := installers(baked); n != 1 {
		t.Errorf("%d installers close the network, want 1", n)
	}
	e.options.TrustNetworkPolicy = true
	if n, others := installers(baked), installers(closed); n != 0 || others != 1 {
		t.Errorf("%d installers for the program in the image, and %d without it", n, others)
	}
	_, err := e.NewSandbox(t.Context(), closed)
	must.Is(t, err, &engine.LackError{Feature: engine.NetworkRules})
	if !says(err, "--trust-network-policy") {
		t.Errorf("got %v", err)
	}
}

// engineOn returns an engine on an API server of a test, without a watch.
func engineOn(t *testing.T, url, secret string) *Engine {
	t.Helper()
	e := &Engine{
		options: Options{Namespace: "agents", Secret: []byte(secret), Logger: slog.New(slog.DiscardHandler)}, config: &rest.Config{Host: url},
		sandboxes: map[string]*sandbox{}, leftovers: map[string]types.UID{}, removed: map[string]types.UID{}, watch: sawAll(),
	}
	var err error
	e.life, e.end = context.WithCancel(t.Context())
	t.Cleanup(e.end)
	e.client, err = dynamic.NewForConfig(e.config)
	must.Do(t, err)
	e.keys, err = newKeys(e.options.Secret, "agents")
	must.Do(t, err)
	return e
}

// sawAll returns a watch that has seen all pods: there are none.
func sawAll() *watch {
	w := &watch{}
	w.pods.synced = func() bool { return true }
	return w
}

// refuse answers as an API server does.
func refuse(w http.ResponseWriter, code int, reason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"message":%q,"code":%d}`, reason, message, code)
}
