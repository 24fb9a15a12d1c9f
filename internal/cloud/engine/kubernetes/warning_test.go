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

// warns returns a warning about the object of a kind.
func warns(kind, name string) *warning {
	w := &warning{ObjectMeta: metav1.ObjectMeta{Name: "event"}}
	w.InvolvedObject.Kind, w.InvolvedObject.Name = kind, name
	return w
}

// TestAwaitPod checks that the wait for a pod sends no request until a watch shows trouble, and then ends
// with the reason, or goes on if the trouble is over.
func TestAwaitPod(t *testing.T) {
	t.Parallel()
	const text = "the reason"
	for name, tt := range map[string]struct {
		trouble func(w *watch)
		object  *object // as the API server has it
		event   string  // the reason of the one event that the API server has
		want    string  // a part of the error; "": the pod runs
		looks   bool
	}{
		"nothing":               {func(*watch) {}, failing(""), failedScheduling, "", false},
		"of another sandbox":    {func(w *watch) { w.warnings.see(warns("Pod", "sandbox-two"), false) }, failing(""), failedScheduling, "", false},
		"no room":               {func(w *watch) { w.warnings.see(warns("Pod", "sandbox-one"), false) }, failing(""), failedScheduling, "FailedScheduling: " + text, true},
		"no volume":             {func(w *watch) { w.warnings.see(warns("PersistentVolumeClaim", homeVolume+"-sandbox-one"), false) }, failing(""), "ProvisioningFailed", "ProvisioningFailed: " + text, true},
		"a warning of no use":   {func(w *watch) { w.warnings.see(warns("Pod", "sandbox-one"), false) }, failing(""), "Unhealthy", "", true},
		"its controller fails":  {func(w *watch) { w.objects.see(failing("quota"), false) }, failing("quota"), "Unhealthy", "cannot make its pod: quota", true},
		"its controller failed": {func(w *watch) { w.objects.see(failing("conflict"), false) }, failing(""), "Unhealthy", "", true},
		"over at once": {func(w *watch) {
			w.objects.see(failing("conflict"), false)
			w.objects.see(failing(""), false)
		}, failing("conflict"), failedScheduling, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var requests atomic.Int32
				e := &Engine{options: Options{Namespace: "agents"}, watch: &watch{}}
				e.watch.warnings.key = (*warning).about
				var err error
				e.client, err = dynamic.NewForConfig(&rest.Config{Host: "http://cluster.test", Transport: transport(func(r *http.Request) string {
					requests.Add(1)
					if strings.HasSuffix(r.URL.Path, "/events") {
						return fmt.Sprintf(`{"apiVersion":"v1","kind":"EventList","items":[{"apiVersion":"v1","kind":"Event","metadata":{"name":"event"},
							"type":"Warning","reason":%q,"message":%q,"involvedObject":{"kind":"Sandbox"}}]}`, tt.event, text)
					}
					condition := ""
					if failure := tt.object.failure(); failure != "" {
						condition = fmt.Sprintf(`{"type":"Ready","reason":"ReconcilerError","message":%q}`, failure)
					}
					return `{"apiVersion":"agents.x-k8s.io/v1beta1","kind":"Sandbox","metadata":{"name":"sandbox-one"},"status":{"conditions":[` + condition + `]}}`
				})})
				must.Do(t, err)
				e.watch.objects.see(failing(""), false)
				got := make(chan error, 1)
				go func() {
					_, err := e.awaitPod(t.Context(), "sandbox-one", "")
					got <- err
				}()
				synctest.Wait()
				tt.trouble(e.watch)
				time.Sleep(10 * eventPause) //nolint:forbidigo // its time is fake
				e.watch.pods.see(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "sandbox-one", UID: "1"}, Status: corev1.PodStatus{
					ContainerStatuses: []corev1.ContainerStatus{{Name: container, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}},
				}}, false)
				if err := <-got; !says(err, tt.want) {
					t.Errorf("got %v, want %q", err, tt.want)
				}
				if n := requests.Load(); n > 0 != tt.looks {
					t.Errorf("%d requests", n)
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
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"Event","metadata":{"name":"event-%d","resourceVersion":"%[1]d"},"type":"Warning","involvedObject":{"kind":%q,"name":%q}}`, n, kind, name)
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
	w, running := &watched[warning]{key: (*warning).about}, &sync.WaitGroup{}
	_, first := w.get("sandbox-one")
	_, second := w.get("sandbox-two")
	w.run(e, events, warningsOnly, running)
	patience.Receive(t, "the warning in the second list", first)
	patience.Receive(t, "the warning in the third watch", second)
	e.end()
	running.Wait()
}
