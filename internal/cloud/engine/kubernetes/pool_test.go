//go:build linux

package kubernetes

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/kubetest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// TestPoolOf checks which sandboxes can be taken from a pool.
func TestPoolOf(t *testing.T) {
	t.Parallel()
	e := &Engine{options: Options{Image: kubetest.Python}, keys: *keysFor(t, longSecret, "agents")}
	name, common := e.poolOf(engine.SandboxOptions{})
	for what, tt := range map[string]struct {
		o    engine.SandboxOptions
		same bool
	}{
		"another id":    {engine.SandboxOptions{ID: "one", Config: guest.Config{SandboxID: "one"}}, true},
		"the same":      {engine.SandboxOptions{Limits: engine.Limits{}.WithDefaults()}, true},
		"another image": {engine.SandboxOptions{Image: &engine.Image{Reference: "other:1"}}, false},
		"more memory":   {engine.SandboxOptions{Limits: engine.Limits{MemoryBytes: 1 << 33}}, false},
	} {
		if got, _ := e.poolOf(tt.o); (got == name) != tt.same {
			t.Errorf("%s: the pool %s, and %s of the default", what, got, name)
		}
	}
	if pod := common.PodTemplate; pod.Spec.Hostname != "" || pod.ObjectMeta.Labels[labelSandbox] != "" {
		t.Errorf("its pods have the hostname %q and the labels %v", pod.Spec.Hostname, pod.ObjectMeta.Labels)
	}
	for other, same := range map[string]bool{name + "-abcde": true, "sandbox-one": true, "sandbox-two": false, "pool-0-1-abcde": false} {
		if e.keys.namesSandbox(other, "one") != same {
			t.Errorf("%s names the sandbox: %v", other, !same)
		}
	}
}

// TestSweepClaims checks that a claim whose server died while it was removed is removed.
func TestSweepClaims(t *testing.T) {
	t.Parallel()
	s, patches := withAnswers(t, answers{http.MethodPatch: {has(modeRunning)}}, Options{claimTime: claimTime})
	s.engine.pools = map[string]struct{}{}
	now := time.Now()
	at := func(name string, age time.Duration) *claim {
		when := metav1.NewTime(now.Add(-age))
		return &claim{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), DeletionTimestamp: &when}}
	}
	s.engine.watch.claims.all = map[string]*claim{"old": at("old", 2*claimTime), "new": at("new", claimTime/2), "used": {}}
	s.engine.sweepClaims(t.Context(), now)
	if got, want := patches(), []string{`{"metadata":{"finalizers":null,"uid":"old"}}`}; !slices.Equal(got, want) {
		t.Errorf("the patches %q, want %q", got, want)
	}
}

// pooled opens an engine with a pool, and waits until its pods are ready.
func pooled(t testing.TB, c *kubetest.Cluster, size int, change func(*Options)) *Engine {
	t.Helper()
	e := open(t, c, func(o *Options) {
		o.Secret, o.Pools = secret, []Pool{{Size: size}}
		if change != nil {
			change(o)
		}
	})
	awaitPool(t, e, size)
	return e
}

// dieTaking does the first steps of taking a sandbox from a pool, as a server that is killed then. It
// returns the name of the object that was taken.
func dieTaking(t *testing.T, e *Engine, id string, stop int) (taken string) {
	t.Helper()
	pool, name := e.poolFor(engine.SandboxOptions{Config: guest.Config{SandboxID: id}}), "sandbox-"+id
	uid, err := e.claim(t.Context(), id, name, pool)
	must.Do(t, err)
	taken, err = e.awaitTaken(t.Context(), name, uid)
	must.Do(t, err)
	for _, step := range []func() error{
		func() error { return e.deleteClaim(t.Context(), name, uid) },
		func() error { _, err := e.own(t.Context(), id, taken); return err },
	}[:stop] {
		must.Do(t, step())
	}
	return taken
}

func awaitPool(t testing.TB, e *Engine, size int) {
	t.Helper()
	begin := time.Now()
	patience.Until(t, "the pool is full", func() bool {
		ready := 0
		for name := range e.pools {
			content, err := e.kind(warmPools).Get(t.Context(), name, metav1.GetOptions{})
			must.Do(t, err)
			pool, err := decode[warmPool](content.Object)
			must.Do(t, err)
			ready += pool.Status.ReadyReplicas
		}
		return ready == size
	})
	t.Logf("%d pods of the pool were ready after %v", size, time.Since(begin))
}

// TestPools takes sandboxes from pools of a cluster.
func TestPools(t *testing.T) {
	kubetest.Need(t)
	c := kubetest.Start(t)
	c.AddImage(t, kubetest.Program)
	c.AddImage(t, kubetest.Python)
	e := pooled(t, c, 2, nil)
	path := func(kind, name string) string {
		return "/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/" + c.Namespace + "/" + kind + "/" + name
	}
	objectPath := func(name string) string {
		return "/apis/agents.x-k8s.io/v1beta1/namespaces/" + c.Namespace + "/sandboxes/" + name
	}
	podPath := func(s *sandbox) string { return "/api/v1/namespaces/" + c.Namespace + "/pods/" + s.name }
	// taken starts a sandbox, and checks that it is from the pool and is detached from its claim.
	taken := func(t *testing.T, e *Engine, id string) lasting {
		t.Helper()
		begin := time.Now()
		s := start(t, e, id).(lasting)
		if got := run(t, s, "echo $E2B_SANDBOX_ID"); got != id {
			t.Errorf("it takes itself for %q, want %q", got, id)
		}
		t.Logf("first command after %v, in %s", time.Since(begin), s.name)
		if !strings.HasPrefix(s.name, e.keys.poolPrefix()) {
			t.Errorf("%s is not of the pool", s.name)
		}
		c.AwaitGone(t, path("sandboxclaims", "sandbox-"+id))
		o, err := e.object(t.Context(), s.name)
		must.Do(t, err)
		if len(o.OwnerReferences) > 0 || o.Labels[labelSandbox] != id || o.Spec.ShutdownTime == nil {
			t.Errorf("its object: owners %v, labels %v, time of shutdown %v", o.OwnerReferences, o.Labels, o.Spec.ShutdownTime)
		}
		return s
	}

	t.Run("taken, adopted and ended", func(t *testing.T) {
		s, want := taken(t, e, "one"), recordFor(time.Hour)
		must.Do(t, s.Keep(t.Context(), want))
		run(t, s, "echo unsaved >/tmp/file")
		other, all := adopting(t, c)
		second := adopted(t, all, "one", want)
		if got := run(t, second, "cat /tmp/file"); got != "unsaved" {
			t.Errorf("after its adoption it says %q", got)
		}
		must.Do(t, second.Close())
		patience.Receive(t, "the first server sees the end", s.Done())
		must.Is(t, s.Err(), engine.ErrElsewhere)
		c.AwaitGone(t, objectPath(s.name))
		c.AwaitGone(t, podPath(s.sandbox))
		must.Do(t, other.Close())
	})
	t.Run("its time is over", func(t *testing.T) {
		awaitPool(t, e, 2)
		s, r := taken(t, e, "over"), recordFor(2*time.Second)
		r.Linger = 0
		must.Do(t, s.Keep(t.Context(), r))
		c.AwaitGone(t, objectPath(s.name))
		c.AwaitGone(t, podPath(s.sandbox))
	})
	t.Run("two servers and one id", func(t *testing.T) {
		awaitPool(t, e, 2)
		s := taken(t, e, "both")
		must.Do(t, s.Keep(t.Context(), recordFor(time.Hour)))
		other := pooled(t, c, 2, nil)
		_, err := other.NewSandbox(patience.Context(t), engine.SandboxOptions{ID: "both"})
		must.Is(t, err, engine.ErrExists)
		c.AwaitGone(t, path("sandboxclaims", "sandbox-both"))
	})
	t.Run("another image", func(t *testing.T) {
		o := engine.SandboxOptions{ID: "image", Image: &engine.Image{Reference: "e2bctl.test/none:1"}}
		if _, err := e.NewSandbox(patience.Context(t), o); err == nil || !strings.Contains(err.Error(), "e2bctl.test/none:1") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("more than the pool has", func(t *testing.T) {
		awaitPool(t, e, 2)
		var all sync.WaitGroup
		for i := range 5 {
			all.Go(func() {
				id := fmt.Sprintf("more%d", i)
				s, err := e.NewSandbox(patience.Context(t), engine.SandboxOptions{ID: id, Config: guest.Config{SandboxID: id}})
				if err == nil {
					t.Logf("%s in %s", id, s.(lasting).name)
					err = s.Close()
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	})
	t.Run("its server is killed while it takes one", func(t *testing.T) {
		dying := pooled(t, c, 2, func(o *Options) { o.claimTime = 5 * time.Second })
		var taken []string
		for stop := range 3 {
			awaitPool(t, dying, 2)
			taken = append(taken, dieTaking(t, dying, fmt.Sprint("dead", stop), stop))
		}
		must.Do(t, dying.Close())
		must.Do(t, e.Close()) // it might be elected
		sweeping := open(t, c, func(o *Options) { o.Secret, o.pace, o.claimTime = secret, time.Second, 2*time.Second })
		must.Do(t, sweeping.Adopt(t.Context(), func(engine.Found) {}))
		for stop, name := range taken {
			c.AwaitGone(t, path("sandboxclaims", fmt.Sprint("sandbox-dead", stop)))
			c.AwaitGone(t, objectPath(name))
		}
		must.Do(t, sweeping.Close())
	})
	e = pooled(t, c, 2, nil)
	t.Run("a pool that was removed", func(t *testing.T) {
		for name := range e.pools {
			must.Do(t, e.kind(warmPools).Delete(t.Context(), name, metav1.DeleteOptions{}))
			c.AwaitGone(t, path("sandboxtemplates", name))
		}
		s := start(t, e, "alone").(lasting)
		if s.name != "sandbox-alone" {
			t.Errorf("it is in %s", s.name)
		}
		must.Do(t, s.Close())
		c.AwaitGone(t, path("sandboxclaims", "sandbox-alone"))
	})
	t.Run("homes", func(t *testing.T) {
		e := pooled(t, c, 1, func(o *Options) { o.HomeBytes = 16 << 20 })
		s := taken(t, e, "home")
		run(t, s, "echo kept >/home/user/file")
		must.Do(t, s.Freeze(patience.Context(t)))
		must.Do(t, s.Thaw(patience.Context(t)))
		if got := run(t, s, "cat /home/user/file"); got != "kept" {
			t.Errorf("after a pause it says %q", got)
		}
	})
	// A server whose pool has no pods removes the others.
	must.Do(t, open(t, c, func(o *Options) { o.Secret, o.Pools = secret, []Pool{{}} }).Close())
	patience.Until(t, "no objects are left", func() bool {
		for _, kind := range []string{"sandboxwarmpools", "sandboxtemplates", "sandboxclaims"} {
			gvr := warmPools
			gvr.Resource = kind
			list, err := e.kind(gvr).List(t.Context(), metav1.ListOptions{})
			must.Do(t, err)
			if len(list.Items) > 0 {
				return false
			}
		}
		list, err := e.objects().List(t.Context(), metav1.ListOptions{})
		must.Do(t, err)
		for _, o := range list.Items {
			if o.GetLabels()[labelSandbox] == "" {
				return false // of a pool
			}
		}
		return true
	})
}
