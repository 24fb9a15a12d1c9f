package kubernetes

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// These are the kinds of objects that the engine uses. The kind sandboxes belongs to agent-sandbox,
// version 0.5.
var (
	sandboxes = schema.GroupVersionResource{Group: "agents.x-k8s.io", Version: "v1beta1", Resource: "sandboxes"}
	pods      = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	events    = schema.GroupVersionResource{Version: "v1", Resource: "events"}
)

// object is a Sandbox object of agent-sandbox, with only the fields that the engine uses.
type object struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              objectSpec   `json:"spec"`
	Status            objectStatus `json:"status,omitempty,omitzero"`
}

type objectSpec struct {
	PodTemplate    podTemplate  `json:"podTemplate"`
	ShutdownTime   *metav1.Time `json:"shutdownTime,omitempty"`
	ShutdownPolicy string       `json:"shutdownPolicy,omitempty"`
	// OperatingMode is modeRunning, modeSuspended or "", which means modeRunning.
	OperatingMode        string        `json:"operatingMode,omitempty"`
	VolumeClaimTemplates []volumeClaim `json:"volumeClaimTemplates,omitempty"`
}

type volumeClaim struct {
	ObjectMeta struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec corev1.PersistentVolumeClaimSpec `json:"spec"`
}

type podTemplate struct {
	ObjectMeta podMetadata    `json:"metadata"`
	Spec       corev1.PodSpec `json:"spec"`
}

type podMetadata struct {
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type objectStatus struct {
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// failure returns the error of the controller that is to make the pod, and "" if there is none.
func (o *object) failure() string {
	for _, c := range o.Status.Conditions {
		if c.Type == "Ready" && c.Reason == "ReconcilerError" {
			return cmp.Or(c.Message, c.Reason)
		}
	}
	return ""
}

// startOf returns the name of the sandbox whose start an event may end, and "" if the event is none of
// refusals. The claim of a sandbox's home has a name of its own.
func startOf(event *corev1.Event) string {
	about := event.InvolvedObject
	switch {
	case !slices.Contains(refusals, event.Reason) || awaitsVolume(event):
		return ""
	case about.Kind == "PersistentVolumeClaim":
		return strings.TrimPrefix(about.Name, homeVolume+"-")
	}
	return about.Name
}

// decode converts an object from the dynamic client to the type T.
func decode[T any](content map[string]any) (*T, error) {
	t := new(T)
	return t, runtime.DefaultUnstructuredConverter.FromUnstructured(content, t)
}
