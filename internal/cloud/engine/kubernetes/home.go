package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
)

const (
	// homeVolume is the name of the volume that is the home of a sandbox. Its files are in homeFiles, as
	// some file systems have files of their own at the top.
	homeVolume = "home"
	homeFiles  = "home"
	// homeGroup may write to the home, whichever user an image has.
	homeGroup = 1000
)

// Modes of an object.
const (
	modeRunning   = "Running"
	modeSuspended = "Suspended" // it has no pod, and keeps its volumes
)

// paused reports whether the sandbox of an object is paused.
func (o *object) paused() bool {
	return o.Spec.OperatingMode == modeSuspended || o.Annotations[annotationResuming] != ""
}

// addHome adds a home to the pod of an object: a volume that outlives the pod and ends with the object.
func (e *Engine) addHome(o *object) {
	if e.options.HomeBytes == 0 {
		return
	}
	claim := volumeClaim{Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(e.options.HomeBytes, resource.BinarySI)}},
	}}
	claim.ObjectMeta.Name = homeVolume
	if class := e.options.StorageClass; class != "" {
		claim.Spec.StorageClassName = &class
	}
	o.Spec.VolumeClaimTemplates = []volumeClaim{claim}
	pod, group, onMismatch := &o.Spec.PodTemplate.Spec, int64(homeGroup), corev1.FSGroupChangeOnRootMismatch
	pod.SecurityContext.FSGroup, pod.SecurityContext.FSGroupChangePolicy = &group, &onMismatch
	own := &pod.Containers[0]
	own.VolumeMounts = append(own.VolumeMounts, corev1.VolumeMount{Name: homeVolume, MountPath: guest.UserHome, SubPath: homeFiles})
}

// Suspends implements [engine.Suspender].
func (s *sandbox) Suspends() bool { return s.home }

func (s *sandbox) isSuspended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.suspended
}

// turnLocked notes that the sandbox was suspended or resumed. It closes the connection to envd.
func (s *sandbox) turnLocked(suspended bool) {
	if s.tunnel != nil {
		s.tunnel.Close()
		s.tunnel = nil
	}
	close(s.joined)
	s.joined = make(chan struct{})
	s.suspended = suspended
	close(s.turned)
	s.turned = make(chan struct{})
}

// Bounds of the wait for an answer to a change of the mode: how often it is tried again, and for how
// long.
const (
	modePause    = 500 * time.Millisecond
	modePatience = 30 * time.Second
)

// patchMode changes the mode of the object, and returns the object's new version. It tries again if it
// is not known whether the API server took the change.
func (s *sandbox) patchMode(ctx context.Context, metadata, spec map[string]any) (version string, err error) {
	patch, err := json.Marshal(map[string]any{"metadata": metadata, "spec": spec})
	if err != nil {
		return "", err
	}
	waited := wait.PollUntilContextTimeout(ctx, modePause, modePatience, true, func(ctx context.Context) (bool, error) {
		var patched interface{ GetResourceVersion() string }
		patched, err = s.engine.objects().Patch(ctx, s.name, types.MergePatchType, patch, metav1.PatchOptions{})
		if err == nil {
			version = patched.GetResourceVersion()
		}
		return err == nil || apierrors.ReasonForError(err) != metav1.StatusReasonUnknown, nil
	})
	if err == nil && version == "" {
		err = waited
	}
	if apierrors.IsNotFound(err) {
		err = errors.Join(engine.ErrGone, err)
	}
	if err != nil {
		return "", fmt.Errorf("kubernetes: change the mode of the object %s: %w", s.name, err)
	}
	return version, nil
}

// suspension returns the change of an object that suspends its sandbox. A record outlives all servers,
// and the sandbox then has no end.
func suspension(kept bool) (metadata, spec map[string]any) {
	spec = map[string]any{"operatingMode": modeSuspended}
	if kept {
		spec["shutdownTime"] = nil
	}
	return map[string]any{"annotations": map[string]any{annotationResuming: nil}}, spec
}

// Freeze suspends the sandbox: its pod ends, and its home stays. See [engine.Suspender].
func (s *sandbox) Freeze(ctx context.Context) error {
	if !s.home {
		return s.lacks(engine.Pauses)
	}
	s.mu.Lock()
	done := s.suspended && !s.turning
	s.turning = s.turning || !done
	kept := s.kept
	s.mu.Unlock()
	if done {
		return nil
	}
	metadata, spec := suspension(kept)
	version, err := s.patchMode(ctx, metadata, spec)
	s.mu.Lock()
	s.turning = false
	if err == nil {
		s.version, s.record.Paused = version, kept
		s.turnLocked(true)
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	s.awaitEnd(ctx)
	return nil
}

// awaitEnd waits until the processes of a suspended sandbox have ended. After removeTimeout it stops
// waiting, because the cluster ends them in any case.
func (s *sandbox) awaitEnd(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	defer context.AfterFunc(s.life, cancel)()
	_ = s.engine.awaitNoPod(ctx, s.name) // only ctx ends the wait early
}

// Thaw starts the sandbox in another pod, with the files of its home. After an error it is suspended.
func (s *sandbox) Thaw(ctx context.Context) error {
	if !s.home {
		return s.lacks(engine.Pauses)
	}
	s.mu.Lock()
	old, runs := s.uid, !s.suspended
	s.turning = s.turning || !runs // until the record is stored, if there is one
	s.mu.Unlock()
	if runs {
		return nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.life, func() { cancel(engine.ErrGone) })()
	err := s.thaw(ctx, old)
	if err != nil && s.life.Err() == nil {
		err = errors.Join(err, s.engine.whyNotReady(context.WithoutCancel(ctx), s.name), s.Freeze(context.WithoutCancel(ctx)))
	}
	return err
}

func (s *sandbox) thaw(ctx context.Context, old types.UID) error {
	if o := s.engine.watch.objects.look(s.name); o != nil {
		if left, resuming := s.engine.leftToResume(o); resuming && left <= 0 { // its pod may be about to end
			s.mu.Lock()
			metadata, spec := suspension(s.kept)
			s.mu.Unlock()
			if _, err := s.patchMode(ctx, metadata, spec); err != nil {
				return err
			}
			s.awaitEnd(ctx)
		}
	}
	now := time.Now().UTC().Format(time.RFC3339)
	_, err := s.patchMode(ctx, map[string]any{"annotations": map[string]any{annotationResuming: now}}, map[string]any{"operatingMode": modeRunning})
	if err != nil {
		return err
	}
	pod, err := s.engine.awaitPod(ctx, s.name, old)
	if err != nil {
		return fmt.Errorf("kubernetes: resume sandbox %s: %w", s.id, err)
	}
	t, err := s.join(ctx, pod.UID)
	if err != nil {
		return fmt.Errorf("kubernetes: resume sandbox %s: %w", s.id, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.uid, s.turning = pod.UID, s.kept
	s.turnLocked(false)
	s.tunnel = t
	return nil
}

var errSuspended = errors.New("its pod was suspended, and not by its server")

// unlessSuspended returns why, the reason for which the pod with a UID is gone. If it is gone because
// the sandbox was suspended or resumed, unlessSuspended returns nil. Then it has waited for a moment, or
// taken note of the change.
func (s *sandbox) unlessSuspended(why error, uid types.UID) error {
	if !s.home {
		return why
	}
	pod, changed := s.engine.watch.pod(s.name)
	if pod != nil && pod.UID == uid && pod.DeletionTimestamp == nil {
		return why // it ended by itself
	}
	o, err := s.engine.object(s.life, s.name)
	if apierrors.IsNotFound(err) {
		return why
	}
	s.mu.Lock()
	turning, suspended, turned := s.turning, s.suspended, s.turned
	s.mu.Unlock()
	switch {
	case suspended:
		return nil
	case err != nil || turning || s.hasPod(uid): // the API server, the resume or the watch may be ready later
		select {
		case <-s.life.Done():
		case <-turned:
		case <-changed:
		case <-time.After(eventPause):
		}
		return nil
	case s.engine.lasts() && (o.paused() || types.UID(o.Annotations[annotationPod]) != uid) && s.isKept():
		s.takeRecord(o)
		s.mu.Lock()
		same := s.uid == uid && !s.suspended
		s.mu.Unlock()
		if !same {
			return nil
		}
		return why
	case o.paused():
		return errSuspended
	}
	return why
}

// hasPod asks the API server whether the pod with a UID is there, as the watch of pods may be behind
// that of the objects.
func (s *sandbox) hasPod(uid types.UID) bool {
	pod, err := s.engine.client.Resource(pods).Namespace(s.engine.options.Namespace).Get(s.life, s.name, metav1.GetOptions{})
	return err == nil && pod.GetUID() == uid && pod.GetDeletionTimestamp() == nil
}

// staleResume is the time after which a resume is taken for one whose server died.
const staleResume = 2 * time.Minute

// rest waits for the next change of a suspended sandbox. If a server died while it resumed the sandbox,
// rest suspends it again. It returns why the sandbox has ended.
func (s *sandbox) rest() error {
	_, _, turned := s.state()
	o, changed := s.engine.watch.objects.get(s.name)
	if o == nil {
		if _, err := s.engine.object(s.life, s.name); apierrors.IsNotFound(err) { // the watch may be behind
			return errRemoved
		}
	} else if o.DeletionTimestamp != nil {
		return errRemoved
	}
	var stale <-chan time.Time
	if o == nil { // the watch is behind
		stale = time.After(eventPause)
	} else if left, resuming := s.engine.leftToResume(o); resuming {
		stale = time.After(max(left, eventPause))
	}
	select {
	case <-s.life.Done():
	case <-turned:
	case <-changed:
	case <-stale:
		if o != nil {
			s.suspendAgain(o)
		}
	}
	return nil
}

// leftToResume returns the time after which the server that resumes the sandbox of an object is taken
// for dead. It returns false if no server resumes it.
func (e *Engine) leftToResume(o *object) (left time.Duration, resuming bool) {
	began, err := time.Parse(time.RFC3339, o.Annotations[annotationResuming])
	return time.Until(began.Add(e.options.staleResume)), err == nil
}

// suspendAgain suspends the sandbox of an object, unless the object has changed or this server resumes
// it.
func (s *sandbox) suspendAgain(o *object) {
	s.mu.Lock()
	turning, kept := s.turning, s.kept
	s.mu.Unlock()
	if turning {
		return
	}
	metadata, spec := suspension(kept)
	metadata["resourceVersion"] = o.ResourceVersion
	if _, err := s.patchMode(s.life, metadata, spec); err != nil && !apierrors.IsConflict(err) {
		s.engine.options.Logger.WarnContext(s.life, "a sandbox whose server died while it resumed the sandbox could not be suspended again", "sandbox", s.id, "error", err)
	}
}
