package kubernetes

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// transport answers requests without a connection.
type transport func(*http.Request) string

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
		Body: io.NopCloser(strings.NewReader(t(r))),
	}, nil
}

// failing returns an object with an error of its controller; "" stands for none.
func failing(text string) *object {
	o := &object{ObjectMeta: metav1.ObjectMeta{Name: "sandbox-one"}}
	if text != "" {
		o.Status.Conditions = []metav1.Condition{{Type: "Ready", Reason: "ReconcilerError", Message: text}}
	}
	return o
}

// warns returns a warning about the object of a kind. A pod has the UID 1.
func warns(kind, name, reason string) *corev1.Event {
	return &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "event"}, Type: corev1.EventTypeWarning, Reason: reason, InvolvedObject: corev1.ObjectReference{Kind: kind, Name: name, UID: "1"}}
}

// podOne returns the pod of the sandbox one in a state of its start.
func podOne(node string, installing, own corev1.ContainerState) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "sandbox-one", UID: "1"}, Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{
		InitContainerStatuses: []corev1.ContainerStatus{{Name: installer, State: installing}}, ContainerStatuses: []corev1.ContainerStatus{{Name: container, State: own}},
	}}
}

// starting returns an engine whose API server has an object, and one event with a reason, and which counts
// the requests.
func starting(t *testing.T, o *object, event string, requests *atomic.Int32) *Engine {
	t.Helper()
	e := &Engine{options: Options{Namespace: "agents"}, watch: &watch{}}
	e.watch.warnings.key = startOf
	var err error
	e.client, err = dynamic.NewForConfig(&rest.Config{Host: "http://cluster.test", Transport: transport(func(r *http.Request) string {
		requests.Add(1)
		if strings.HasSuffix(r.URL.Path, "/events") {
			return fmt.Sprintf(`{"apiVersion":"v1","kind":"EventList","items":[{"apiVersion":"v1","kind":"Event","metadata":{"name":"event"},
				"type":"Warning","reason":%q,"message":%q,"involvedObject":{"kind":"Sandbox"}}]}`, event, theReason)
		}
		condition := ""
		if failure := o.failure(); failure != "" {
			condition = fmt.Sprintf(`{"type":"Ready","reason":"ReconcilerError","message":%q}`, failure)
		}
		return `{"apiVersion":"agents.x-k8s.io/v1beta1","kind":"Sandbox","metadata":{"name":"sandbox-one"},"status":{"conditions":[` + condition + `]}}`
	})})
	must.Do(t, err)
	e.watch.objects.see(failing(""), false)
	e.watch.pods.see(podOne("", corev1.ContainerState{}, corev1.ContainerState{}), false)
	return e
}

const theReason = "the reason"

// TestAwaitPod checks that the wait for a pod sends no request until a watch shows trouble, and then ends
// with the reason, or goes on if the trouble is over.
func TestAwaitPod(t *testing.T) {
	t.Parallel()
	runs := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	over := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
	warn := func(e *Engine, kind, name, reason string) { e.watch.warnings.see(warns(kind, name, reason), false) }
	const all = 2 * 9 // requests of all looks
	for name, tt := range map[string]struct {
		trouble  func(e *Engine)
		object   *object // as the API server has it
		event    string  // the reason of the one event that the API server has
		want     string  // a part of the error; "": the pod runs
		requests int32
	}{
		"nothing":               {func(*Engine) {}, failing(""), failedScheduling, "", 0},
		"of another sandbox":    {func(e *Engine) { warn(e, "Pod", "sandbox-two", failedScheduling) }, failing(""), failedScheduling, "", 0},
		"no room":               {func(e *Engine) { warn(e, "Pod", "sandbox-one", failedScheduling) }, failing(""), failedScheduling, "FailedScheduling: " + theReason, 2},
		"no volume":             {func(e *Engine) { warn(e, "PersistentVolumeClaim", homeVolume+"-sandbox-one", "ProvisioningFailed") }, failing(""), "ProvisioningFailed", "ProvisioningFailed: " + theReason, 2},
		"a warning of no use":   {func(e *Engine) { warn(e, "Pod", "sandbox-one", "Unhealthy") }, failing(""), "Unhealthy", "", 0},
		"its controller fails":  {func(e *Engine) { e.watch.objects.see(failing("quota"), false) }, failing("quota"), "Unhealthy", "cannot make its pod: quota", 1},
		"its controller failed": {func(e *Engine) { e.watch.objects.see(failing("conflict"), false) }, failing(""), "Unhealthy", "", all},
		"over at once": {func(e *Engine) {
			e.watch.objects.see(failing("conflict"), false)
			e.watch.objects.see(failing(""), false)
		}, failing("conflict"), failedScheduling, "", 0},
		"over after a look": {func(e *Engine) {
			e.watch.objects.see(failing("conflict"), false)
			time.Sleep(eventPause * 3 / 2) //nolint:forbidigo // its time is fake
			e.watch.objects.see(failing(""), false)
		}, failing(""), "Unhealthy", "", 2},
		"no room, and then there was": {func(e *Engine) {
			warn(e, "Pod", "sandbox-one", failedScheduling)
			time.Sleep(eventPause / 2) //nolint:forbidigo // its time is fake
			e.watch.pods.see(podOne("node", corev1.ContainerState{}, corev1.ContainerState{}), false)
		}, failing(""), failedScheduling, "", 0},
		"no network, and then it had one": {func(e *Engine) {
			warn(e, "Pod", "sandbox-one", "FailedCreatePodSandBox")
			time.Sleep(eventPause / 2) //nolint:forbidigo // its time is fake
			e.watch.pods.see(podOne("node", runs, corev1.ContainerState{}), false)
			time.Sleep(eventPause) //nolint:forbidigo // its time is fake
			e.watch.pods.see(podOne("node", over, corev1.ContainerState{}), false)
		}, failing(""), "FailedCreatePodSandBox", "", 0},
		"a pull failed, and then it did not": {func(e *Engine) {
			warn(e, "Pod", "sandbox-one", "Failed")
			e.watch.pods.see(podOne("node", over, corev1.ContainerState{}), false)
		}, failing(""), "Failed", "", 0},
		"it waited for its volume": {func(e *Engine) {
			event := warns("Pod", "sandbox-one", failedScheduling)
			event.Message = "pod has unbound immediate PersistentVolumeClaims"
			e.watch.warnings.see(event, false)
		}, failing(""), failedScheduling, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var requests atomic.Int32
				e := starting(t, tt.object, tt.event, &requests)
				begin, got := time.Now(), make(chan error, 1)
				go func() {
					_, err := e.awaitPod(t.Context(), "sandbox-one", "")
					got <- err
				}()
				synctest.Wait()
				tt.trouble(e)
				time.Sleep(eventPause*19/2 - time.Since(begin)) //nolint:forbidigo // its time is fake
				e.watch.pods.see(podOne("node", over, runs), false)
				if err := <-got; !says(err, tt.want) {
					t.Errorf("got %v, want %q", err, tt.want)
				}
				if n := requests.Load(); n != tt.requests {
					t.Errorf("%d requests, want %d", n, tt.requests)
				}
			})
		})
	}
}

// TestWarningsGoOn checks that the watch of warnings goes on after the API server has dropped the version
// from which it watched, and after the end of its connection, and that it ends with the engine.
func TestWarningsGoOn(t *testing.T) {
	t.Parallel()
	var lists, watches atomic.Int32
	event := func(n int, kind, name string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"Event","metadata":{"name":"event-%d","resourceVersion":"%[1]d"},"type":"Warning","reason":%q,"involvedObject":{"kind":%q,"name":%q}}`, n, failedScheduling, kind, name)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if got := r.URL.Query().Get("fieldSelector"); got != "type=Warning" {
			t.Errorf("it selects %q", got)
		}
		if r.URL.Query().Get("watch") == "" {
			items := ""
			if lists.Add(1) > 1 {
				items = event(8, "Pod", "sandbox-one")
			}
			_, _ = fmt.Fprintf(w, `{"apiVersion":"v1","kind":"EventList","metadata":{"resourceVersion":"8"},"items":[%s]}`, items)
			return
		}
		switch watches.Add(1) {
		case 1:
			_, _ = io.WriteString(w, `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","message":"too old resource version","reason":"Expired","code":410}}`)
			return
		case 2: // the connection ends
			return
		}
		_, _ = fmt.Fprintf(w, `{"type":"ADDED","object":%s}`, event(9, "PersistentVolumeClaim", homeVolume+"-sandbox-two"))
		must.Do(t, http.NewResponseController(w).Flush())
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	s, _ := withAnswers(t, nil, Options{})
	e := s.engine
	var err error
	e.client, err = dynamic.NewForConfig(&rest.Config{Host: server.URL})
	must.Do(t, err)
	e.options.Logger = slog.New(slog.DiscardHandler)
	w, running := &watched[corev1.Event]{key: startOf}, &sync.WaitGroup{}
	_, first := w.get("sandbox-one")
	_, second := w.get("sandbox-two")
	w.run(e, events, warningsOnly, running)
	patience.Receive(t, "the warning in the second list", first)
	patience.Receive(t, "the warning in the third watch", second)
	e.end()
	running.Wait()
}
