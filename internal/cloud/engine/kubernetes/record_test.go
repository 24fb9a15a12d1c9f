package kubernetes

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

func keysFor(t *testing.T, secret, namespace string) *keys {
	t.Helper()
	k, err := newKeys([]byte(secret), namespace)
	must.Do(t, err)
	return &k
}

var longSecret = strings.Repeat("s", minSecret)

// withRecord returns the object of a sandbox with a record.
func withRecord(t *testing.T, k *keys, id string, r engine.Record) *object {
	t.Helper()
	patch, err := k.patchOf(r, id, "pod-1", "")
	must.Do(t, err)
	o := &object{TypeMeta: metav1.TypeMeta{APIVersion: sandboxes.GroupVersion().String(), Kind: "Sandbox"}}
	must.Do(t, json.Unmarshal(patch, o))
	o.Name, o.Labels, o.ResourceVersion = "sandbox-"+id, map[string]string{labelSandbox: id, labelInstance: k.instance}, "9"
	return o
}

func anyRecord() engine.Record {
	started := time.Date(2026, 1, 2, 3, 4, 5, 678, time.UTC)
	return engine.Record{Template: "base", Metadata: map[string]string{"a": "b"}, StartedAt: started, EndAt: started.Add(time.Hour), Linger: 24 * time.Hour, Sealed: []byte("tokens")}
}

// TestRecord checks that a record is read as it was stored, and that only servers with the secret can
// read it, for the sandbox and the pod that it belongs to.
func TestRecord(t *testing.T) {
	t.Parallel()
	k, want := keysFor(t, longSecret, "agents"), anyRecord()
	o := withRecord(t, k, "one", want)
	if got := o.Spec.ShutdownTime.UTC(); !got.Equal(time.Date(2026, 1, 3, 4, 4, 6, 0, time.UTC)) {
		t.Errorf("the time of shutdown is %v", got)
	}
	got, id, pod, err := keysFor(t, longSecret, "agents").recordOf(o)
	must.Do(t, err)
	if !got.Equal(want) || id != "one" || pod != "pod-1" {
		t.Errorf("got %+v of %s in %s, want %+v", got, id, pod, want)
	}
	for name, tt := range map[string]struct {
		keys   *keys
		change func(o *object)
		want   string
	}{
		"another secret":    {keysFor(t, longSecret+"s", "agents"), func(*object) {}, "another secret"},
		"another namespace": {keysFor(t, longSecret, "others"), func(*object) {}, "another secret"},
		"another sandbox":   {k, func(o *object) { o.Name, o.Labels[labelSandbox] = "sandbox-two", "two" }, "another sandbox"},
		"another pod":       {k, func(o *object) { o.Annotations[annotationPod] = "pod-2" }, "another sandbox"},
		"a changed seal": {k, func(o *object) {
			o.Annotations[annotationSealed] = "AAAA" + o.Annotations[annotationSealed][4:]
		}, "changed since"},
		"no seal":             {k, func(o *object) { delete(o.Annotations, annotationSealed) }, annotationSealed},
		"no base64":           {k, func(o *object) { o.Annotations[annotationSealed] = "%" }, annotationSealed},
		"no start":            {k, func(o *object) { delete(o.Annotations, annotationStarted) }, annotationStarted},
		"no end":              {k, func(o *object) { o.Annotations[annotationEnd] = "tomorrow" }, annotationEnd},
		"no metadata":         {k, func(o *object) { o.Annotations[annotationMetadata] = "{" }, annotationMetadata},
		"no shutdown":         {k, func(o *object) { o.Spec.ShutdownTime = nil }, "no time of shutdown"},
		"the name of another": {k, func(o *object) { o.Labels[labelSandbox] = "two" }, "not that of its name"},
		"without a record":    {k, func(o *object) { delete(o.Annotations, annotationPod) }, errIncomplete.Error()},
		"a strange label":     {k, func(o *object) { o.Labels[labelSandbox] = "../one" }, "not that of its name"},
	} {
		o := withRecord(t, k, "one", want)
		tt.change(o)
		if _, _, _, err := tt.keys.recordOf(o); !says(err, tt.want) {
			t.Errorf("%s: got %v, want %q", name, err, tt.want)
		}
	}
}

// TestShutdownIsTheEnd checks that a sandbox ends at the latest when the controller ends it.
func TestShutdownIsTheEnd(t *testing.T) {
	t.Parallel()
	k, r := keysFor(t, longSecret, "agents"), anyRecord()
	o := withRecord(t, k, "one", r)
	earlier := metav1.NewTime(r.StartedAt.Add(time.Minute).Truncate(time.Second))
	o.Spec.ShutdownTime = &earlier // as by kubectl patch
	got, _, _, err := k.recordOf(o)
	must.Do(t, err)
	if !got.EndAt.Equal(earlier.Time) || got.Linger != 0 {
		t.Errorf("it ends at %v and %v later, want %v", got.EndAt, got.Linger, earlier)
	}
}

// TestSeal checks that each seal is another one, and the bound of its size.
func TestSeal(t *testing.T) {
	t.Parallel()
	if _, err := newKeys(bytes.Repeat([]byte("s"), minSecret-1), "agents"); err == nil {
		t.Error("a short secret is accepted")
	}
	k := keysFor(t, longSecret, "agents")
	one, err := k.seal([]byte("text"), "one", "1")
	must.Do(t, err)
	two, err := k.seal([]byte("text"), "one", "1")
	must.Do(t, err)
	if bytes.Equal(one, two) {
		t.Error("two seals of a text are equal")
	}
	large := make([]byte, maxSealed)
	_, err = k.seal(large, "one", "1") // zeros become small
	must.Do(t, err)
	_, _ = rand.Read(large)
	_, err = k.seal(large, "one", "1")
	must.Is(t, err, engine.ErrTooLarge)
	_, err = k.seal(make([]byte, maxOpened+1), "one", "1")
	must.Is(t, err, engine.ErrTooLarge)
	if other := keysFor(t, "", "agents"); other.instance == keysFor(t, "", "agents").instance {
		t.Error("two engines without a secret have the same keys")
	}
}

// TestNewer checks the order of versions.
func TestNewer(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		version, known string
		want           bool
	}{{"10", "9", true}, {"9", "10", false}, {"9", "9", false}, {"1", "", true}, {"12", "11", true}} {
		if got := newer(tt.version, tt.known); got != tt.want {
			t.Errorf("%s after %s: %v", tt.version, tt.known, got)
		}
	}
}

// apiServer has objects without a cluster. Its first watch of each kind ends with 410 Gone.
type apiServer struct {
	mu      sync.Mutex
	objects map[string]any // by name
	changed chan struct{}  // closed at the next change
	watches map[string]int // by kind
	deleted []string
}

func (a *apiServer) put(name string, o any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.objects = maps.Clone(a.objects)
	a.objects[name] = o
	close(a.changed)
	a.changed = make(chan struct{})
}

func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	answer := func(v any) { _ = json.NewEncoder(w).Encode(v) }
	fail := metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure"}
	kind := path.Base(r.URL.Path)
	a.mu.Lock()
	objects, changed := a.objects, a.changed
	var one any
	if path.Base(path.Dir(r.URL.Path)) == "sandboxes" {
		one = objects[strings.TrimPrefix(kind, "sandbox-")]
	}
	if kind != "sandboxes" {
		objects = nil // there are no pods
	}
	all := make([]any, 0, len(objects))
	for _, o := range objects {
		all = append(all, o)
	}
	first := false
	if r.URL.Query().Get("watch") != "" {
		a.watches[kind]++
		first = a.watches[kind] == 1
	}
	if r.Method == http.MethodDelete {
		a.deleted = append(a.deleted, kind)
	}
	a.mu.Unlock()
	switch {
	case r.Method == http.MethodDelete:
		answer(metav1.Status{TypeMeta: fail.TypeMeta, Status: "Success"})
	case r.Method == http.MethodGet && one != nil:
		answer(one)
	case kind != "sandboxes" && kind != "pods":
		w.WriteHeader(http.StatusNotFound)
		fail.Code, fail.Reason = http.StatusNotFound, metav1.StatusReasonNotFound
		answer(fail)
	case r.URL.Query().Get("watch") == "":
		answer(map[string]any{"apiVersion": "v1", "kind": "List", "metadata": map[string]any{"resourceVersion": "10"}, "items": all})
	case kind == "pods":
		<-r.Context().Done()
	default:
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
		if fail.Code, fail.Reason = http.StatusGone, metav1.StatusReasonExpired; first {
			answer(map[string]any{"type": "ERROR", "object": fail})
		}
	}
}

// TestAdoptGoesOn checks, without a cluster, that objects which cannot be adopted are left alone, that
// a watch which is too old is made anew, with the objects of other servers that came meanwhile, and
// that a sandbox whose pod is gone ends with its object.
func TestAdoptGoesOn(t *testing.T) {
	t.Parallel()
	k, want := keysFor(t, longSecret, "agents"), anyRecord()
	api := &apiServer{changed: make(chan struct{}), watches: map[string]int{}, objects: map[string]any{}}
	tampered, incomplete := withRecord(t, k, "tampered", want), withRecord(t, k, "incomplete", want)
	tampered.Annotations[annotationPod] = "pod-2"
	incomplete.Annotations = nil
	api.put("tampered", tampered)
	api.put("incomplete", incomplete)
	api.put("one", withRecord(t, k, "one", want))
	server := httptest.NewServer(api)
	defer server.Close()
	e, err := Open(t.Context(), Options{Config: &rest.Config{Host: server.URL}, Namespace: "agents", ProgramImage: "program", Secret: []byte(longSecret)})
	must.Do(t, err)
	defer func() { must.Do(t, e.Close()) }()
	all := make(chan engine.Found, 10)
	must.Do(t, e.Adopt(t.Context(), func(f engine.Found) { all <- f }))
	f := patience.Receive(t, "the sandbox of the first list", all)
	if f.ID != "one" || !f.Record.Equal(want) {
		t.Errorf("found %+v", f)
	}
	s, err := f.Open(engine.SandboxOptions{ID: "one"})
	must.Do(t, err)
	patience.Receive(t, "the end of a sandbox without a pod", s.Done())
	if err := s.Err(); !says(err, "its pod was deleted") {
		t.Errorf("it ended for %v", err)
	}
	must.Do(t, s.Close())
	api.put("two", withRecord(t, k, "two", want)) // the watch ends with 410
	for f := patience.Receive(t, "the sandbox of another server", all); f.ID != "two"; f = patience.Receive(t, "the sandbox of another server", all) {
		t.Errorf("found %+v", f)
	}
	api.mu.Lock()
	defer api.mu.Unlock()
	if len(api.deleted) != 1 || api.deleted[0] != "sandbox-one" {
		t.Errorf("the deleted objects are %v", api.deleted)
	}
}
