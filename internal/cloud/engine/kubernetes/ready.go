package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/cloud/engine"
)

// eventPause is the pause before each look at the reason why a pod may never run. Some warnings are over
// within it.
const eventPause = 2 * time.Second

// awaitPod waits until the container of a sandbox's pod runs. If the container will never run, the
// error contains the cluster's reason. It takes no notice of a pod that is being deleted, or that has the
// UID old. It sends requests only while the watches show trouble, and none after the trouble is over.
func (e *Engine) awaitPod(ctx context.Context, name string, old types.UID) (*corev1.Pod, error) {
	look := time.NewTicker(eventPause)
	look.Stop()
	defer look.Stop()
	looking := false
	for {
		pod, changed := e.watch.pod(name)
		if pod != nil && (pod.UID == old || pod.DeletionTimestamp != nil) {
			pod = nil
		}
		switch {
		case pod == nil:
		case running(pod):
			return pod, nil
		case pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded:
			return nil, ended(pod)
		default:
			if err := stuck(pod); err != nil {
				return nil, err
			}
		}
		troubled, news, warning := e.troubled(name, pod)
		switch {
		case troubled && !looking:
			look.Reset(eventPause)
		case !troubled:
			look.Stop()
		}
		looking = troubled
		select {
		case <-changed:
		case <-news:
		case <-warning:
		case <-look.C:
			if err := e.refused(ctx, name, pod); err != nil {
				return nil, err
			}
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// troubled reports whether refused may find a reason: the watches have no object of the name, one with an
// error of its controller, or a warning that is not over. pod is the pod of the sandbox, or nil if there is
// none yet. troubled also returns channels that are closed at the next change of the object, and at the next
// warning.
func (e *Engine) troubled(name string, pod *corev1.Pod) (_ bool, news, warning <-chan struct{}) {
	o, news := e.watch.objects.get(name)
	last, warning := e.watch.warnings.get(name)
	return o == nil || o.failure() != "" || last != nil && !isOver(last, pod), news, warning
}

// running reports whether the container of the sandbox runs.
func running(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
		return c.Name == container && c.State.Running != nil
	})
}

// hopeless lists the reasons that the kubelet reports for a waiting container that will not start,
// for example because its image does not exist.
var hopeless = []string{"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError", "CreateContainerError", "RunContainerError", "CrashLoopBackOff"}

// stuck returns the reason if a container of the pod will not start. It returns nil if all
// containers may start.
func stuck(pod *corev1.Pod) error {
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if w := c.State.Waiting; w != nil && slices.Contains(hopeless, w.Reason) {
			return fmt.Errorf("its container %q of the image %s does not start: %s: %s", c.Name, c.Image, w.Reason, clip.Text(w.Message, maxReason))
		}
		if t := c.State.Terminated; t != nil && c.Name == installer && t.ExitCode != 0 {
			return fmt.Errorf("its network could not be closed, or its program not installed: %s", terminated(t))
		}
	}
	return nil
}

// maxReason limits the bytes of the text of a reason from the cluster.
const maxReason = 1 << 10

// ended returns the reason for the end of a pod's processes.
func ended(pod *corev1.Pod) error {
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		t := c.State.Terminated
		if t == nil || t.ExitCode == 0 && c.Name == installer {
			continue
		}
		if t.Reason == "OOMKilled" {
			return engine.ErrOutOfMemory
		}
		return fmt.Errorf("its container %q ended: %s", c.Name, terminated(t))
	}
	if pod.Status.Reason != "" { // evicted
		return fmt.Errorf("its pod ended: %s: %s", pod.Status.Reason, clip.Text(pod.Status.Message, maxReason))
	}
	return fmt.Errorf("its pod ended: %s", pod.Status.Phase)
}

func terminated(t *corev1.ContainerStateTerminated) string {
	text := fmt.Sprintf("status %d, %s", t.ExitCode, t.Reason)
	if t.Message != "" {
		text += ": " + clip.Text(strings.Join(strings.Fields(t.Message), " "), maxReason)
	}
	return text
}

// refusals lists the reasons of events which report that a pod will not run where it should run.
var refusals = []string{"FailedCreatePodSandBox", "FailedMount", "ProvisioningFailed", failedScheduling}

const (
	failedScheduling = "FailedScheduling"
	scaledUp         = "TriggeredScaleUp" // from the cluster's autoscaler: it is adding a node
)

// refused returns the reason if a pod that does not run yet will not run. The reason is the error
// of the controller that creates the pod, or else the newest event with one of the reasons in
// refusals. refused returns nil if the pod may still run. It asks the API server, because the watches may
// be behind, and pod is the pod that they have.
func (e *Engine) refused(ctx context.Context, name string, pod *corev1.Pod) error {
	if err := e.notMade(ctx, name); err != nil {
		return err
	}
	all := slices.DeleteFunc(e.eventsOf(ctx, name), func(event *corev1.Event) bool { return isOver(event, pod) })
	if e.options.HomeBytes > 0 {
		all = append(all, e.eventsOf(ctx, homeVolume+"-"+name)...)
	}
	return newest(all, refusals)
}

// isOver reports whether an event says nothing about the future of a pod, which is nil if there is none
// yet: it is about an earlier pod of that name, or about a step of the start that the pod has behind it.
func isOver(event *corev1.Event, pod *corev1.Pod) bool {
	switch {
	case event.InvolvedObject.Kind != "Pod":
		return false
	case pod == nil || event.InvolvedObject.UID != pod.UID:
		return true
	case event.Reason == failedScheduling:
		return pod.Spec.NodeName != "" || awaitsVolume(event)
	}
	return begun(pod) // its network and its volumes are there
}

// awaitsVolume reports whether an event only says that the scheduler waits until a volume is there. If the
// volume cannot be made, this has an event of its own.
func awaitsVolume(event *corev1.Event) bool {
	return event.Reason == failedScheduling && strings.Contains(strings.ToLower(event.Message), "persistentvolumeclaim")
}

// begun reports whether a container of the pod runs or has run.
func begun(pod *corev1.Pod) bool {
	return slices.ContainsFunc(slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses), func(c corev1.ContainerStatus) bool {
		return c.State.Running != nil || c.State.Terminated != nil
	})
}

// whyNotReady returns the newest warning about a sandbox's pod, and nil if there is none.
func (e *Engine) whyNotReady(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, eventPause)
	defer cancel()
	return newest(e.eventsOf(ctx, name), nil)
}

// notMade returns the reason why the controller will not create the pod: its own error, or that the
// object is gone. It returns nil if it knows no reason, or if the object cannot be read at the moment.
func (e *Engine) notMade(ctx context.Context, name string) error {
	o, err := e.object(ctx, name)
	switch {
	case apierrors.IsNotFound(err):
		return errRemoved
	case err != nil:
		return nil //nolint:nilerr // the next look may succeed, and ctx bounds all of them
	}
	if failure := o.failure(); failure != "" {
		return errors.New("agent-sandbox cannot make its pod: " + clip.Text(failure, maxReason))
	}
	return nil
}

// eventsOf returns the events about the objects called name. It returns none if the role of the
// engine does not permit it to list events. Then only the context of a start limits the wait for a
// pod.
func (e *Engine) eventsOf(ctx context.Context, name string) (all []*corev1.Event) {
	list, err := e.client.Resource(events).Namespace(e.options.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("involvedObject.name", name).String(),
	})
	if err != nil {
		return nil
	}
	for _, item := range list.Items {
		if event, err := decode[corev1.Event](item.Object); err == nil {
			all = append(all, event)
		}
	}
	return all
}

// newest returns, as an error, the newest warning with one of the reasons. If reasons is nil, it
// considers all warnings. It returns nil if there is none.
func newest(all []*corev1.Event, reasons []string) error {
	if slices.ContainsFunc(all, func(e *corev1.Event) bool { return e.Reason == scaledUp }) {
		reasons = slices.DeleteFunc(slices.Clone(reasons), func(r string) bool { return r == failedScheduling })
	}
	var found *corev1.Event
	for _, event := range all {
		switch {
		case event.Type != corev1.EventTypeWarning || reasons != nil && !slices.Contains(reasons, event.Reason):
		case found == nil || found.LastTimestamp.Before(&event.LastTimestamp):
			found = event
		}
	}
	if found == nil {
		return nil
	}
	return fmt.Errorf("the cluster says: %s: %s", found.Reason, clip.Text(found.Message, maxReason))
}
