package kubernetes

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/must"
)

// says reports whether the text of an error has a part; "" stands for no error.
func says(err error, part string) bool {
	if err == nil || part == "" {
		return err == nil && part == ""
	}
	return strings.Contains(err.Error(), part)
}

func waits(name, reason string) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, Image: "an/image:1", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "its message"}}}
}

func ends(name string, status int32, reason string) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: status, Reason: reason, Message: "the last\nlines"}}}
}

// TestStuck checks which states of containers mean that a pod will not run.
func TestStuck(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		init, own corev1.ContainerStatus
		want      string // a part of the error; "" for none
	}{
		{waits(installer, "PodInitializing"), waits(container, "PodInitializing"), ""},
		{ends(installer, 0, "Completed"), waits(container, "ContainerCreating"), ""},
		{ends(installer, 0, "Completed"), waits(container, "ImagePullBackOff"), `"sandbox" of the image an/image:1 does not start: ImagePullBackOff: its message`},
		{waits(installer, "ErrImagePull"), waits(container, "PodInitializing"), `"install" of the image`},
		{ends(installer, 1, "Error"), waits(container, "PodInitializing"), "its network could not be closed, or its program not installed: status 1, Error: the last lines"},
	} {
		pod := &corev1.Pod{Status: corev1.PodStatus{InitContainerStatuses: []corev1.ContainerStatus{tt.init}, ContainerStatuses: []corev1.ContainerStatus{tt.own}}}
		err := stuck(pod)
		if !says(err, tt.want) {
			t.Errorf("got %v, want %q", err, tt.want)
		}
		if running(pod) {
			t.Error("its container runs")
		}
	}
}

// TestEnded checks the reasons for the end of a pod.
func TestEnded(t *testing.T) {
	t.Parallel()
	pod := func(own corev1.ContainerStatus, reason string) *corev1.Pod {
		return &corev1.Pod{Status: corev1.PodStatus{
			Phase: corev1.PodFailed, Reason: reason, Message: "too much of the disk",
			InitContainerStatuses: []corev1.ContainerStatus{ends(installer, 0, "Completed")}, ContainerStatuses: []corev1.ContainerStatus{own},
		}}
	}
	must.Is(t, ended(pod(ends(container, 137, "OOMKilled"), "")), engine.ErrOutOfMemory)
	for want, p := range map[string]*corev1.Pod{
		`its container "sandbox" ended: status 2, Error: the last lines`: pod(ends(container, 2, "Error"), ""),
		"its pod ended: Evicted: too much of the disk":                   pod(corev1.ContainerStatus{Name: container}, "Evicted"),
		"its pod ended: Failed":                                          pod(corev1.ContainerStatus{Name: container}, ""),
	} {
		if err := ended(p); err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// TestNewest checks which events mean that a pod will not run.
func TestNewest(t *testing.T) {
	t.Parallel()
	at := func(minute int, kind, reason string) *corev1.Event {
		return &corev1.Event{Type: kind, Reason: reason, Message: "its message", LastTimestamp: metav1.NewTime(time.Date(2026, 1, 1, 0, minute, 0, 0, time.UTC))}
	}
	warn := corev1.EventTypeWarning
	noRoom, noNetwork := at(1, warn, failedScheduling), at(2, warn, "FailedCreatePodSandBox")
	for _, tt := range []struct {
		all  []*corev1.Event
		want string // the error; "" for none
	}{
		{nil, ""},
		{[]*corev1.Event{at(1, corev1.EventTypeNormal, "Pulling"), at(2, warn, "Unhealthy")}, ""},
		{[]*corev1.Event{noRoom}, "the cluster says: FailedScheduling: its message"},
		{[]*corev1.Event{noRoom, noNetwork}, "the cluster says: FailedCreatePodSandBox: its message"},
		{[]*corev1.Event{noNetwork, noRoom}, "the cluster says: FailedCreatePodSandBox: its message"},
		{[]*corev1.Event{noRoom, at(3, corev1.EventTypeNormal, scaledUp)}, ""}, // a node will come
		{[]*corev1.Event{at(3, corev1.EventTypeNormal, scaledUp), noNetwork}, "the cluster says: FailedCreatePodSandBox: its message"},
	} {
		err := newest(tt.all, refusals)
		if !says(err, tt.want) {
			t.Errorf("got %v, want %q", err, tt.want)
		}
	}
	if err := newest([]*corev1.Event{at(2, warn, "Unhealthy")}, nil); err == nil {
		t.Error("with any reason, a warning is none")
	}
}

// TestEndOf checks which pods of its name are still the sandbox.
func TestEndOf(t *testing.T) {
	t.Parallel()
	now := metav1.Now()
	for want, pod := range map[string]*corev1.Pod{
		"":                         {ObjectMeta: metav1.ObjectMeta{UID: "1"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}},
		"its pod was deleted":      nil,
		"its pod was deleted, and": {ObjectMeta: metav1.ObjectMeta{UID: "2"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}},
		"its pod ended: Succeeded": {ObjectMeta: metav1.ObjectMeta{UID: "1"}, Status: corev1.PodStatus{Phase: corev1.PodSucceeded}},
	} {
		if err := endOf(pod, "1"); !says(err, want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if err := endOf(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "1", DeletionTimestamp: &now}}, "1"); err == nil {
		t.Error("a pod that is being deleted has not ended")
	}
}

// TestNameOf checks that an id which is no part of a pod's name is refused.
func TestNameOf(t *testing.T) {
	t.Parallel()
	if name, err := nameOf("i0a1b2c3d4e5f6g7h8i9"); err != nil || name != "sandbox-i0a1b2c3d4e5f6g7h8i9" {
		t.Errorf("got %q, %v", name, err)
	}
	for _, id := range []string{"", "UPPER", "a.b", "a/b", "-", strings.Repeat("a", 56)} {
		if name, err := nameOf(id); err == nil {
			t.Errorf("%q became %q", id, name)
		}
	}
}

// TestImageOf checks that a template's image is named by its digest.
func TestImageOf(t *testing.T) {
	t.Parallel()
	e := &Engine{options: Options{Image: "own:1"}}
	for want, image := range map[string]*engine.Image{
		"own:1":              nil,
		"a/b:2":              {Reference: "a/b:2"},
		"a/b:2@sha256:01":    {Reference: "a/b:2", Digest: "sha256:01"},
		"a/b@sha256:02":      {Reference: "a/b@sha256:02", Digest: "sha256:02"},
		"h.test:5/c@sha256:": {Reference: "h.test:5/c@sha256:"},
	} {
		if got := e.image(engine.SandboxOptions{Image: image}); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
