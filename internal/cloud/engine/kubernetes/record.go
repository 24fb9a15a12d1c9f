package kubernetes

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
)

// Annotations of the object of a sandbox with a record. The pod's UID, the times and the sealed part
// are the record, together with the time of shutdown. The others are for people.
const (
	annotationPod      = "e2bctl/pod-uid" // UID of the sandbox's pod; a pod with another one has lost the files
	annotationStarted  = "e2bctl/started-at"
	annotationEnd      = "e2bctl/end-at"
	annotationTemplate = "e2bctl/template"
	annotationMetadata = "e2bctl/metadata" // an object of JSON
	annotationSealed   = "e2bctl/sealed"   // in base64
	// annotationResuming has the time at which a server began to resume the sandbox. Until the record with
	// the new pod is stored, the sandbox is still paused.
	annotationResuming = "e2bctl/resuming-at"
)

// errIncomplete means that an object has no record: its sandbox is being created, or its server died
// meanwhile. Such an object ends by its time of shutdown.
var errIncomplete = errors.New("its sandbox is not complete")

// patchOf returns the change that stores a record in the object with a UID; "" stands for any object.
func (k *keys) patchOf(r engine.Record, id string, pod, object types.UID) ([]byte, error) {
	sealed, err := k.seal(r.Sealed, id, pod)
	if err != nil {
		return nil, err
	}
	metadata, err := json.Marshal(r.Metadata)
	if err != nil {
		return nil, err
	}
	changed := map[string]any{"annotations": map[string]any{
		annotationResuming: nil,
		annotationPod:      string(pod), annotationStarted: r.StartedAt.Format(time.RFC3339Nano), annotationEnd: r.EndAt.Format(time.RFC3339Nano),
		annotationTemplate: r.Template, annotationMetadata: string(metadata), annotationSealed: base64.StdEncoding.EncodeToString(sealed),
	}}
	if object != "" {
		changed["uid"] = object
	}
	var shutdown any // nil: a paused sandbox has no end
	if !r.Paused {
		shutdown = metav1.NewTime(wholeSecond(r.EndAt).Add(r.Linger))
	}
	return json.Marshal(map[string]any{
		"metadata": changed,
		"spec":     map[string]any{"shutdownTime": shutdown},
	})
}

// recordOf returns the record in an object, and the id and the pod of its sandbox. Without a record the
// error is errIncomplete.
func (k *keys) recordOf(o *object) (r engine.Record, id string, pod types.UID, err error) {
	id, pod = o.Labels[labelSandbox], types.UID(o.Annotations[annotationPod])
	if pod == "" {
		return r, id, pod, errIncomplete
	}
	r.Paused = o.paused()
	if !k.namesSandbox(o.Name, id) || o.Spec.ShutdownTime == nil && !r.Paused {
		return r, id, pod, errors.New("its label of the sandbox is not that of its name, or it has no time of shutdown")
	}
	sealed, err := base64.StdEncoding.DecodeString(o.Annotations[annotationSealed])
	if err != nil {
		return r, id, pod, fmt.Errorf("the annotation %s: %w", annotationSealed, err)
	}
	if r.Sealed, err = k.open(sealed, id, pod); err != nil {
		return r, id, pod, fmt.Errorf("the annotation %s: %w", annotationSealed, err)
	}
	if r.StartedAt, err = time.Parse(time.RFC3339Nano, o.Annotations[annotationStarted]); err != nil {
		return r, id, pod, fmt.Errorf("the annotation %s: %w", annotationStarted, err)
	}
	if r.EndAt, err = time.Parse(time.RFC3339Nano, o.Annotations[annotationEnd]); err != nil {
		return r, id, pod, fmt.Errorf("the annotation %s: %w", annotationEnd, err)
	}
	if err := json.Unmarshal([]byte(o.Annotations[annotationMetadata]), &r.Metadata); err != nil {
		return r, id, pod, fmt.Errorf("the annotation %s: %w", annotationMetadata, err)
	}
	r.Template = o.Annotations[annotationTemplate]
	if r.Paused {
		return r, id, pod, nil
	}
	// The controller ends the sandbox at the time of shutdown, whoever set it.
	if removed := o.Spec.ShutdownTime.UTC(); r.EndAt.After(removed) {
		r.EndAt = removed
	} else {
		r.Linger = removed.Sub(wholeSecond(r.EndAt))
	}
	return r, id, pod, nil
}

// wholeSecond returns the first whole second that is not before t, as the times of objects are whole
// seconds.
func wholeSecond(t time.Time) time.Time {
	whole := t.Truncate(time.Second)
	if whole.Before(t) {
		whole = whole.Add(time.Second)
	}
	return whole.UTC()
}
