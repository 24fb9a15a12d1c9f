package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/must"
)

// answers are the answers of an API server, by method; the last one is given again.
type answers map[string][]func(w http.ResponseWriter)

func broken(w http.ResponseWriter) {
	if conn, _, err := w.(http.Hijacker).Hijack(); err == nil {
		conn.Close()
	}
}

func says404(w http.ResponseWriter) { refuse(w, http.StatusNotFound, "NotFound", "it is gone") }

func denies(w http.ResponseWriter) { refuse(w, http.StatusForbidden, "Forbidden", "exceeded quota") }

// has answers with an object in a mode.
func has(mode string) func(w http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"apiVersion":"agents.x-k8s.io/v1beta1","kind":"Sandbox","metadata":{"name":"sandbox-one","resourceVersion":"7"},"spec":{"operatingMode":%q}}`, mode)
	}
}

// withAnswers returns a sandbox whose API server gives the answers, and a function that returns the
// patches that the server received.
func withAnswers(t *testing.T, a answers, o Options) (s *sandbox, patches func() []string) {
	t.Helper()
	requests := make(chan string, 100)
	var mu sync.Mutex
	counts := map[string]int{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		of := a[r.Method]
		if len(of) == 0 {
			says404(w)
			return
		}
		if text, err := io.ReadAll(r.Body); err == nil && r.Method == http.MethodPatch {
			requests <- string(text)
		}
		mu.Lock()
		n := counts[r.Method]
		counts[r.Method]++
		mu.Unlock()
		of[min(n, len(of)-1)](w)
	}))
	t.Cleanup(server.Close)
	o.Namespace = "agents"
	e := &Engine{options: o, config: &rest.Config{Host: server.URL}, sandboxes: map[string]*sandbox{}, watch: sawAll()}
	var err error
	e.life, e.end = context.WithCancel(t.Context())
	t.Cleanup(e.end)
	e.client, err = dynamic.NewForConfig(e.config)
	must.Do(t, err)
	e.keys, err = newKeys(nil, "agents")
	must.Do(t, err)
	s, err = e.unconnected(engine.SandboxOptions{ID: "one"}, "sandbox-one")
	must.Do(t, err)
	t.Cleanup(s.end)
	s.uid = "1"
	return s, func() (all []string) {
		for len(requests) > 0 {
			all = append(all, <-requests)
		}
		return all
	}
}

// TestFreezeIsRefused checks pauses that the API server does not take, or may not have taken.
func TestFreezeIsRefused(t *testing.T) {
	t.Parallel()
	s, _ := withAnswers(t, nil, Options{})
	for _, err := range []error{s.Freeze(t.Context()), s.Thaw(t.Context())} {
		must.Is(t, err, &engine.LackError{Feature: engine.Pauses})
		if !strings.Contains(err.Error(), "--home SIZE") {
			t.Errorf("without a home: %v", err)
		}
	}
	for name, tt := range map[string]struct {
		answers   []func(http.ResponseWriter)
		want      error // a part of the error
		suspended bool
		patches   int
	}{
		"it is gone":            {[]func(http.ResponseWriter){says404}, engine.ErrGone, false, 1},
		"the connection breaks": {[]func(http.ResponseWriter){broken, has(modeSuspended)}, nil, true, 2},
	} {
		s, patches := withAnswers(t, answers{http.MethodPatch: tt.answers}, Options{HomeBytes: 1 << 20})
		err := s.Freeze(t.Context())
		if !errors.Is(err, tt.want) || s.isSuspended() != tt.suspended || s.turning {
			t.Errorf("%s: %v, suspended %v, turning %v", name, err, s.isSuspended(), s.turning)
		}
		if got := patches(); len(got) != tt.patches || !strings.Contains(got[0], `"operatingMode":"Suspended"`) {
			t.Errorf("%s: the patches %q", name, got)
		}
	}
}

// TestThawIsRefused checks that a sandbox which cannot be resumed is suspended again.
func TestThawIsRefused(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, tt := range map[string]struct {
		ctx     context.Context //nolint:containedctx // of one call
		answers []func(http.ResponseWriter)
		modes   []string
	}{
		"the cluster refuses it": {t.Context(), []func(http.ResponseWriter){denies, has(modeSuspended)}, []string{modeRunning, modeSuspended}},
		"its caller is gone":     {ended, []func(http.ResponseWriter){has(modeSuspended)}, []string{modeSuspended}},
	} {
		s, patches := withAnswers(t, answers{http.MethodPatch: tt.answers}, Options{HomeBytes: 1 << 20})
		s.suspended = true
		if err := s.Thaw(tt.ctx); err == nil {
			t.Errorf("%s: it was resumed", name)
		}
		if !s.isSuspended() || s.turning || s.uid != "1" {
			t.Errorf("%s: suspended %v, turning %v, pod %s", name, s.isSuspended(), s.turning, s.uid)
		}
		var modes []string
		for _, patch := range patches() {
			mode := modeSuspended
			if strings.Contains(patch, `"Running"`) {
				mode = modeRunning
			}
			modes = append(modes, mode)
		}
		if !slices.Equal(modes, tt.modes) {
			t.Errorf("%s: the modes %v, want %v", name, modes, tt.modes)
		}
	}
}

// TestPodIsGone checks why a sandbox with a home has no pod.
func TestPodIsGone(t *testing.T) {
	t.Parallel()
	why := errors.New("its pod was deleted")
	for name, tt := range map[string]struct {
		get  []func(http.ResponseWriter)
		want error
	}{
		"its object is gone":                 {[]func(http.ResponseWriter){says404}, why},
		"its pod is gone":                    {[]func(http.ResponseWriter){has(modeRunning), says404}, why},
		"somebody suspended it":              {[]func(http.ResponseWriter){has(modeSuspended), says404}, errSuspended},
		"the API server does not answer now": {[]func(http.ResponseWriter){denies}, nil},
	} {
		s, _ := withAnswers(t, answers{http.MethodGet: tt.get}, Options{HomeBytes: 1 << 20})
		if tt.want == nil {
			close(s.turned) // it waits for this
		}
		if err := s.unlessSuspended(why, "1"); !errors.Is(err, tt.want) {
			t.Errorf("%s: got %v, want %v", name, err, tt.want)
		}
	}
}

// TestIsOver checks which events say something about a pod that is to start.
func TestIsOver(t *testing.T) {
	t.Parallel()
	event := func(kind string, uid types.UID, reason, message string) *corev1.Event {
		return &corev1.Event{InvolvedObject: corev1.ObjectReference{Kind: kind, UID: uid}, Reason: reason, Message: message}
	}
	waits := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "2"}}
	placed := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "2"}, Spec: corev1.PodSpec{NodeName: "node"}}
	begins := placed.DeepCopy()
	begins.Status.InitContainerStatuses = []corev1.ContainerStatus{ends(installer, 0, "Completed")}
	const noVolume = "pod has unbound immediate PersistentVolumeClaims"
	for name, tt := range map[string]struct {
		event *corev1.Event
		pod   *corev1.Pod
		want  bool
	}{
		"of the claim":                {event("PersistentVolumeClaim", "9", "ProvisioningFailed", "no class"), nil, false},
		"of the pod before the pause": {event("Pod", "1", failedScheduling, "no room"), waits, true},
		"of that pod, and none yet":   {event("Pod", "1", failedScheduling, "no room"), nil, true},
		"no room":                     {event("Pod", "2", failedScheduling, "no room"), waits, false},
		"no room, and then there was": {event("Pod", "2", failedScheduling, "no room"), placed, true},
		"no volume yet":               {event("Pod", "2", failedScheduling, noVolume), waits, true},
		"no mount":                    {event("Pod", "2", "FailedMount", "no device"), placed, false},
		"no mount, and then it began": {event("Pod", "2", "FailedMount", "no device"), begins, true},
	} {
		if got := isOver(tt.event, tt.pod); got != tt.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

// TestObjectIsRemoved checks that a start ends with the reason if the object of the sandbox is removed,
// and goes on if the API server does not say so.
func TestObjectIsRemoved(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		answer func(http.ResponseWriter)
		want   error
	}{"it is gone": {says404, errRemoved}, "it cannot be read": {denies, nil}} {
		s, _ := withAnswers(t, answers{http.MethodGet: {tt.answer}}, Options{})
		if err := s.engine.refused(t.Context(), s.name, nil); !errors.Is(err, tt.want) {
			t.Errorf("%s: got %v, want %v", name, err, tt.want)
		}
	}
}
