//go:build linux

package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/kubetest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// small are the limits of sandboxes that many fit on one node.
var small = engine.Limits{MemoryBytes: 64 << 20, CPUs: 0.5}

// TestFaults checks on a cluster that sandboxes end, or are never made, with the reason of the cluster.
func TestFaults(t *testing.T) {
	kubetest.Need(t)
	c := kubetest.Start(t)
	c.AddImage(t, kubetest.Program)
	c.AddImage(t, kubetest.Python)
	e := open(t, c, nil)
	path := func(id string) string { return childServer{Namespace: c.Namespace, ID: id}.path() }
	podPath := func(id string) string { return "/api/v1/namespaces/" + c.Namespace + "/pods/sandbox-" + id }
	refused := func(t *testing.T, id string, limits engine.Limits, want string) {
		t.Helper()
		s, err := e.NewSandbox(patience.Context(t), engine.SandboxOptions{ID: id, Limits: limits, Config: guest.Config{SandboxID: id}})
		if err == nil {
			must.Do(t, s.Close())
		}
		if !says(err, want) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want %q", err, want)
		}
		c.AwaitGone(t, path(id))
	}
	quotas := "/api/v1/namespaces/" + c.Namespace + "/resourcequotas"

	t.Run("quota of memory", func(t *testing.T) {
		must.Do(t, c.Call(t.Context(), http.MethodPost, quotas, map[string]any{
			"metadata": map[string]any{"name": "memory"}, "spec": map[string]any{"hard": map[string]any{"limits.memory": "1Mi"}},
		}, nil))
		defer func() {
			must.Do(t, c.Call(context.WithoutCancel(t.Context()), http.MethodDelete, quotas+"/memory", nil, nil))
		}()
		refused(t, "fat", engine.Limits{}, "exceeded quota: memory")
	})
	t.Run("no room", func(t *testing.T) {
		refused(t, "large", engine.Limits{MemoryBytes: 1 << 50}, "FailedScheduling: 0/1 nodes are available: 1 Insufficient memory")
	})
	t.Run("its pod is evicted", func(t *testing.T) {
		s := start(t, e, "evicted")
		must.Do(t, c.Call(t.Context(), http.MethodPost, podPath("evicted")+"/eviction", map[string]any{
			"apiVersion": "policy/v1", "kind": "Eviction", "metadata": map[string]any{"name": "sandbox-evicted", "namespace": c.Namespace},
		}, nil))
		patience.Receive(t, "the sandbox ends with its pod", s.Done())
		must.Is(t, s.Err(), errDeleted)
		c.AwaitGone(t, path("evicted"))
	})
	t.Run("the API server restarts", func(t *testing.T) {
		made := make(chan engine.Sandbox, 1)
		go func() {
			defer close(made)
			s, err := e.NewSandbox(patience.Context(t), engine.SandboxOptions{ID: "once", Config: guest.Config{SandboxID: "once"}})
			if err != nil {
				t.Error(err)
				return
			}
			made <- s
		}()
		// Without its answer to the creation of the object, the engine would remove the object.
		c.Await(t, "the pod of the object", podPath("once"), func(kubetest.Object) bool { return true })
		c.RestartAPIServer(t)
		s, ok := <-made
		if !ok {
			return
		}
		defer func() { must.Do(t, s.Close()) }()
		must.Do(t, healthy(patience.Context(t), s))
		all, err := e.client.Resource(sandboxes).Namespace(c.Namespace).List(t.Context(), metav1.ListOptions{})
		must.Do(t, err)
		if len(all.Items) != 1 {
			t.Errorf("there are %d objects, want one", len(all.Items))
		}
		must.Do(t, e.client.Resource(pods).Namespace(c.Namespace).Delete(t.Context(), "sandbox-once", metav1.DeleteOptions{}))
		patience.Receive(t, "the watch that goes on has the end", s.Done())
	})
	t.Run("a program answers in the place of envd", func(t *testing.T) {
		s := start(t, e, "hostile")
		got := run(t, s, fmt.Sprintf(`python3 -c '
import errno, os, signal, socket
for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET, ""), (socket.AF_INET, "127.0.0.2")):
    s = socket.socket(family)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        s.bind((host, %d))
        s.listen()
        print("listens at", host)
    except OSError as e:
        print(errno.errorcode[e.errno], host)
for n in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM):
    os.kill(1, n)
held = [socket.create_connection(("127.0.0.1", %d)) for _ in range(100)]
print(len(held))'`, port, port))
		if want := "EADDRINUSE 127.0.0.1\nEADDRINUSE \nlistens at 127.0.0.2\n100"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		must.Do(t, healthy(patience.Context(t), s))
	})
	t.Run("30 at once", func(t *testing.T) {
		begin := time.Now()
		var all sync.WaitGroup
		for n := range 30 {
			all.Go(func() {
				id := fmt.Sprintf("many-%d", n)
				s, err := e.NewSandbox(patience.Context(t), engine.SandboxOptions{ID: id, Limits: small, Config: guest.Config{SandboxID: id}})
				if err != nil {
					t.Error(err)
					return
				}
				if err := errors.Join(healthy(patience.Context(t), s), s.Close()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		t.Logf("30 sandboxes were made and ended in %.1f s", time.Since(begin).Seconds())
	})
	t.Run("quota of sandboxes", func(t *testing.T) {
		must.Do(t, c.Call(t.Context(), http.MethodPost, quotas, map[string]any{
			"metadata": map[string]any{"name": "none"}, "spec": map[string]any{"hard": map[string]any{"count/sandboxes.agents.x-k8s.io": "0"}},
		}, nil))
		defer func() {
			must.Do(t, c.Call(context.WithoutCancel(t.Context()), http.MethodDelete, quotas+"/none", nil, nil))
		}()
		patience.Until(t, "the cluster counts the objects of a kind that is new", func() bool {
			var quota struct {
				Status struct{ Hard map[string]string }
			}
			return c.Call(t.Context(), http.MethodGet, quotas+"/none", nil, &quota) == nil && len(quota.Status.Hard) > 0
		})
		refused(t, "many", engine.Limits{}, "exceeded quota: none")
	})
	t.Run("kinds of another version", func(t *testing.T) { otherVersion(t, c, e) }) // the cluster is of no use after it
}

// otherVersion checks that neither a server nor a sandbox starts when the cluster has the kind of sandboxes in
// another version alone.
func otherVersion(t *testing.T, c *kubetest.Cluster, e *Engine) {
	t.Helper()
	path := "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/" + sandboxes.GroupResource().String()
	var definition map[string]any
	must.Do(t, c.Call(t.Context(), http.MethodGet, path, nil, &definition))
	versions, _, err := unstructured.NestedSlice(definition, "spec", "versions")
	must.Do(t, err)
	for _, version := range versions {
		of := version.(map[string]any)
		of["served"] = of["name"] != sandboxes.Version
	}
	must.Do(t, c.Call(t.Context(), http.MethodPatch, path, map[string]any{"spec": map[string]any{"versions": versions}}, nil))
	const want = "no sandboxes.agents.x-k8s.io in the version v1beta1: install agent-sandbox 0.5"
	patience.Until(t, "the version is served no longer", func() bool {
		other, err := Open(t.Context(), Options{Config: e.options.Config, Namespace: c.Namespace, ProgramImage: kubetest.Program})
		if err == nil {
			must.Do(t, other.Close())
		}
		return says(err, want)
	})
	if _, err := e.NewSandbox(patience.Context(t), engine.SandboxOptions{ID: "late"}); !says(err, want) {
		t.Errorf("got %v, want %q", err, want)
	}
}

// TestServersShare checks on a cluster that servers with one secret make one sandbox for one request, and
// that the elected one removes what servers that died have left.
func TestServersShare(t *testing.T) {
	kubetest.Need(t)
	c := kubetest.Start(t)
	c.AddImage(t, kubetest.Program)
	c.AddImage(t, kubetest.Python)
	const pace = 2 * time.Second
	server := func(t *testing.T) *Engine {
		return open(t, c, func(o *Options) { o.Secret, o.pace = secret, pace })
	}
	first, second := server(t), server(t)
	for _, e := range []*Engine{first, second} {
		must.Do(t, e.Adopt(t.Context(), func(engine.Found) {}))
	}

	t.Run("one request at both", func(t *testing.T) {
		id := first.IDOf("key")
		type result struct {
			s   engine.Sandbox
			err error
		}
		results := make(chan result, 2)
		for _, e := range []*Engine{first, second} {
			go func() {
				s, err := e.NewSandbox(patience.Context(t), engine.SandboxOptions{ID: e.IDOf("key"), Config: guest.Config{SandboxID: id}})
				if err == nil {
					err = s.(engine.Lasting).Keep(t.Context(), recordFor(time.Hour))
				}
				results <- result{s, err}
			}()
		}
		var made engine.Sandbox
		for range 2 {
			if r := patience.Receive(t, "the answer of a server", results); r.err == nil && made == nil {
				made = r.s
			} else {
				must.Is(t, r.err, engine.ErrExists)
			}
		}
		must.Do(t, healthy(patience.Context(t), made))
		// The same request once more, after the sandbox has ended: its pod has the same name.
		must.Do(t, made.Close())
		s, err := second.NewSandbox(patience.Context(t), engine.SandboxOptions{ID: id, Config: guest.Config{SandboxID: id}})
		must.Do(t, err)
		must.Do(t, healthy(patience.Context(t), s))
		must.Do(t, s.Close())
	})
	t.Run("its server is killed while it is created", func(t *testing.T) {
		child := childServer{Kubeconfig: string(c.Kubeconfig()), Namespace: c.Namespace, ID: first.IDOf("killed"), Lease: time.Hour}
		_, kill := child.start(t)
		c.Await(t, "the object", child.path(), func(kubetest.Object) bool { return true })
		kill()
		s, err := first.NewSandbox(patience.Context(t), engine.SandboxOptions{ID: child.ID, Config: guest.Config{SandboxID: child.ID}})
		must.Do(t, err) // another server has made it anew, for the repeated request
		must.Do(t, healthy(patience.Context(t), s))
		must.Do(t, s.Close())
		c.AwaitGone(t, child.path())
	})
	t.Run("its server is killed while it is ended", func(t *testing.T) {
		dying := server(t)
		s := start(t, dying, "ending").(lasting)
		must.Do(t, s.Keep(t.Context(), recordFor(time.Hour)))
		must.Do(t, dying.Close())
		s.storeEnd(t.Context()) // all that it did of the end
		c.AwaitGone(t, childServer{Namespace: c.Namespace, ID: "ending"}.path())
	})
	t.Run("the elected server goes", func(t *testing.T) {
		elected, other := first, second
		if other.elected.Load() {
			elected, other = second, first
		}
		if !elected.elected.Load() || other.elected.Load() {
			t.Error("not exactly one server is elected")
		}
		must.Do(t, elected.Close())
		patience.Until(t, "the other is elected", other.elected.Load)
	})
}
