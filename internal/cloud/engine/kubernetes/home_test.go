//go:build linux

package kubernetes

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/kubetest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// withHome sets the options of an engine with homes. Its sandboxes outlive it.
func withHome(o *Options) { o.Secret, o.HomeBytes, o.staleResume = secret, 16<<20, shortLease }

// TestHome checks on a cluster that a pause keeps the home of a sandbox, and nothing else.
func TestHome(t *testing.T) {
	kubetest.Need(t)
	c := kubetest.Start(t)
	c.AddImage(t, kubetest.Program)
	c.AddImage(t, kubetest.Python)
	paused := func(t *testing.T, id string) (object kubetest.Object) {
		t.Helper()
		must.Do(t, c.Call(t.Context(), "GET", childServer{Namespace: c.Namespace, ID: id}.path(), nil, &object))
		return object
	}
	gone := func(t *testing.T, id string) {
		t.Helper()
		c.AwaitGone(t, childServer{Namespace: c.Namespace, ID: id}.path())
		c.AwaitGone(t, "/api/v1/namespaces/"+c.Namespace+"/persistentvolumeclaims/home-sandbox-"+id)
	}
	write := func(t *testing.T, s engine.Sandbox) {
		t.Helper()
		run(t, s, "echo kept >/home/user/file; echo lost >/tmp/file")
	}
	check := func(t *testing.T, s engine.Sandbox) {
		t.Helper()
		if got := run(t, s, "cat /home/user/file; cat /tmp/file 2>/dev/null || echo none"); got != "kept\nnone" {
			t.Errorf("after its pause it has %q", got)
		}
	}
	pausedRecord := func(r engine.Record) engine.Record {
		r.EndAt, r.Paused, r.Linger = time.Now().UTC(), true, 0
		return r
	}

	t.Run("its server closes", func(t *testing.T) {
		e := open(t, c, withHome)
		s, running := start(t, e, "one").(engine.Lasting), recordFor(time.Hour)
		must.Do(t, s.Keep(t.Context(), running))
		write(t, s)
		begin := time.Now()
		for range 2 {
			must.Do(t, s.Freeze(patience.Context(t)))
		}
		t.Logf("paused after %v", time.Since(begin))
		c.AwaitGone(t, "/api/v1/namespaces/"+c.Namespace+"/pods/sandbox-one")
		if text, err := json.Marshal(paused(t, "one")); err != nil || strings.Contains(string(text), "shutdownTime") {
			t.Errorf("a paused sandbox has an end, or %v: %s", err, text)
		}
		if _, err := s.Dial(t.Context(), protocol.PortEnvd); !errors.Is(err, engine.ErrFrozen) {
			t.Errorf("dial: %v", err)
		}
		want := pausedRecord(running)
		must.Do(t, s.Keep(t.Context(), want))
		must.Do(t, e.Close())

		second, all := adopting(t, c)
		s = adopted(t, all, "one", want)
		if !s.(engine.Suspender).Suspends() {
			t.Error("an adopted sandbox has lost its home")
		}
		begin = time.Now()
		must.Do(t, s.Thaw(patience.Context(t)))
		t.Logf("resumed after %v", time.Since(begin))
		must.Do(t, s.Keep(t.Context(), running))
		check(t, s)

		// Another server beside the second one sees each pause and resume.
		_, others := adopting(t, c)
		other := adopted(t, others, "one", running)
		check(t, other)
		must.Do(t, s.Freeze(patience.Context(t)))
		patience.Until(t, "the other server sees the pause", func() bool { r, _ := other.Kept(); return r.Paused })
		must.Do(t, s.Thaw(patience.Context(t)))
		must.Do(t, s.Keep(t.Context(), running))
		patience.Until(t, "the other server sees the resume", func() bool { r, _ := other.Kept(); return !r.Paused })
		check(t, other)
		must.Do(t, second.Err())
		must.Do(t, s.Freeze(patience.Context(t)))
		must.Do(t, other.Close())
		patience.Receive(t, "the paused sandbox ends at the first server", s.Done())
		gone(t, "one")
	})
	t.Run("its server is killed while it pauses", func(t *testing.T) {
		killedPausing(t, c)
		gone(t, "pausing")
	})
	t.Run("its server died while it resumed", func(t *testing.T) {
		e := open(t, c, withHome)
		s, running := start(t, e, "two").(engine.Lasting), recordFor(time.Hour)
		must.Do(t, s.Keep(t.Context(), running))
		write(t, s)
		must.Do(t, s.Freeze(patience.Context(t)))
		r, _ := s.Kept()
		must.Do(t, e.Close())
		patch := `{"spec": {"operatingMode": "Running"}, "metadata": {"annotations": {"` + annotationResuming + `": "2026-01-01T00:00:00Z"}}}`
		_, err := e.client.Resource(sandboxes).Namespace(c.Namespace).Patch(t.Context(), "sandbox-two", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		must.Do(t, err)
		e = open(t, c, withHome)
		all := make(chan engine.Found, 100)
		must.Do(t, e.Adopt(t.Context(), func(f engine.Found) { all <- f }))
		f := patience.Receive(t, "the sandbox is found", all)
		if !f.Record.Paused || !f.Record.StartedAt.Equal(r.StartedAt) {
			t.Errorf("found %+v, want %+v", f.Record, r)
		}
		s, err = f.Open(engine.SandboxOptions{ID: "two", Config: guest.Config{SandboxID: "two"}})
		must.Do(t, err)
		patience.Until(t, "it is suspended again", func() bool {
			o, pod := e.watch.objects.look("sandbox-two"), e.watch.pods.look("sandbox-two")
			return o != nil && o.Spec.OperatingMode == modeSuspended && pod == nil
		})
		must.Do(t, s.Thaw(patience.Context(t)))
		must.Do(t, s.Keep(t.Context(), running))
		check(t, s)
		// A pod that is not the one of a resume has lost its processes.
		must.Do(t, e.client.Resource(pods).Namespace(c.Namespace).Delete(t.Context(), "sandbox-two", metav1.DeleteOptions{}))
		patience.Receive(t, "the sandbox ends with its pod", s.Done())
		if err := s.Err(); !strings.Contains(err.Error(), "its pod was deleted") {
			t.Errorf("it ended for %v", err)
		}
		gone(t, "two")
	})
	t.Run("no such storage class", func(t *testing.T) {
		e := open(t, c, func(o *Options) { o.HomeBytes, o.StorageClass = 1<<20, "none" })
		_, err := e.NewSandbox(patience.Context(t), engine.SandboxOptions{ID: "three"})
		if err == nil || !strings.Contains(err.Error(), `"none" not found`) {
			t.Errorf("got %v", err)
		}
		gone(t, "three")
	})
}

// killedPausing checks that another server resumes a sandbox whose server was killed while it paused the
// sandbox, and had not stored the record of the pause.
func killedPausing(t *testing.T, c *kubetest.Cluster) {
	t.Helper()
	child := childServer{Kubeconfig: string(c.Kubeconfig()), Namespace: c.Namespace, ID: "pausing", Lease: shortLease, Keeps: true, Pauses: true}
	out, kill := child.start(t)
	line, err := out.ReadBytes('\n')
	must.Do(t, err)
	var kept engine.Record
	must.Do(t, json.Unmarshal(line, &kept))
	patience.Until(t, "the object is suspended", func() bool {
		var o struct {
			Spec struct{ OperatingMode string }
		}
		must.Do(t, c.Call(t.Context(), "GET", child.path(), nil, &o))
		return o.Spec.OperatingMode == modeSuspended
	})
	kill()
	_, all := adopting(t, c)
	f := patience.Receive(t, "the sandbox is found", all)
	if !f.Record.Paused || !f.Record.StartedAt.Equal(kept.StartedAt) || f.Record.Template != kept.Template {
		t.Errorf("found %+v, want %+v, paused", f.Record, kept)
	}
	s, err := f.Open(engine.SandboxOptions{ID: child.ID, Config: guest.Config{SandboxID: child.ID}})
	must.Do(t, err)
	must.Do(t, s.Thaw(patience.Context(t)))
	must.Do(t, s.Keep(t.Context(), kept))
	must.Do(t, healthy(patience.Context(t), s))
	must.Do(t, s.Freeze(patience.Context(t)))
	must.Do(t, s.Close())
}
