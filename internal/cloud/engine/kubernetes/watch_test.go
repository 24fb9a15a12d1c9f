package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// listedPod is a pod in the list of an API server. Its size is about that of a sandbox's pod.
func listedPod(i int) string {
	fields := fmt.Sprintf(`{"manager":"kubelet","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:status":{"f:%s":{}}}}`, strings.Repeat("x", 2000))
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"sandbox-%d","uid":"%[1]d","resourceVersion":"7","annotations":{"a":"%[2]s"},"managedFields":[%[3]s]},
		"spec":{"containers":[{"name":"sandbox","image":"an/image:1","env":[{"name":"A","value":"%[2]s"}]}]},"status":{"phase":"Running","containerStatuses":[{"name":"sandbox","state":{"running":{}}}]}}`,
		i, strings.Repeat("y", 1000), fields)
}

// TestKeep checks that the watch and its informer have the same decoded object, without the record of its
// changes, and that foreign objects do no harm.
func TestKeep(t *testing.T) {
	t.Parallel()
	w := &watched[corev1.Pod]{}
	content := &unstructured.Unstructured{}
	must.Do(t, json.Unmarshal([]byte(listedPod(1)), content))
	kept, err := w.keep(content)
	must.Do(t, err)
	pod, ok := kept.(*corev1.Pod)
	if !ok || pod.Name != "sandbox-1" || len(pod.ManagedFields) > 0 || !running(pod) {
		t.Fatalf("got %+v, want the pod without its managed fields", kept)
	}
	if again, err := w.keep(pod); err != nil || again != kept {
		t.Errorf("got %v, %v, want the same object again", again, err)
	}
	_, changed := w.get("sandbox-1")
	if w.see(pod, false); w.look("sandbox-1") != pod {
		t.Error("the watch has another object than its informer")
	}
	patience.Receive(t, "a change", changed)
	foreign := &unstructured.Unstructured{Object: map[string]any{"kind": "Pod", "metadata": map[string]any{"name": "sandbox-2"}, "spec": "none"}}
	kept, err = w.keep(foreign)
	must.Do(t, err)
	if w.see(kept, false); len(w.list()) != 1 {
		t.Errorf("got %d pods, want one", len(w.list()))
	}
}

// TestForgetWakes checks that a new sandbox which waits for the pod of its name looks again when an earlier
// sandbox of that name is forgotten.
func TestForgetWakes(t *testing.T) {
	t.Parallel()
	w := &watched[corev1.Pod]{}
	_, changed := w.get("sandbox-1")
	w.forget("sandbox-1")
	patience.Receive(t, "the waiting sandbox looks again", changed)
	if w.forget("sandbox-1"); len(w.changed) > 0 {
		t.Errorf("it keeps %d channels", len(w.changed))
	}
}

// BenchmarkWatch measures the memory for each pod that the engine watches.
func BenchmarkWatch(b *testing.B) {
	const pieces = 1000
	var items []string
	for i := range pieces {
		items = append(items, listedPod(i))
	}
	list := `{"apiVersion":"v1","kind":"PodList","metadata":{"resourceVersion":"7"},"items":[` + strings.Join(items, ",") + `]}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("watch") == "" {
			_, _ = io.WriteString(w, list)
			return
		}
		must.Do(b, http.NewResponseController(w).Flush())
		<-r.Context().Done()
	}))
	defer server.Close()
	for b.Loop() {
		e := &Engine{options: Options{Namespace: "agents"}, config: &rest.Config{Host: server.URL}}
		e.life, e.end = context.WithCancel(b.Context())
		var err error
		e.client, err = dynamic.NewForConfig(e.config)
		must.Do(b, err)
		before := live()
		w, running := &watched[corev1.Pod]{}, &sync.WaitGroup{}
		w.run(e, pods, metav1.ListOptions{}, running)
		patience.Until(b, "all pods are seen", func() bool { return len(w.list()) == pieces })
		b.ReportMetric(float64(live()-before)/pieces, "B/pod")
		e.end()
		running.Wait()
		runtime.KeepAlive(w)
	}
}

// live returns the number of bytes of the objects that are in use.
func live() int {
	runtime.GC()
	runtime.GC() // frees what finalizers held
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int(stats.HeapAlloc)
}
