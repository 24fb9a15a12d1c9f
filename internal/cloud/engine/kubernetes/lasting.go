package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
)

// lasting is a sandbox that can outlive the engine, which has a secret.
type lasting struct{ *sandbox }

var (
	_ engine.Adopter = (*Engine)(nil)
	_ engine.Lasting = lasting{}
)

// keepTimeout bounds the time in which a record is stored.
const keepTimeout = 30 * time.Second

// Keep stores the record in the object of the sandbox. If the object is gone the error matches
// [engine.ErrGone].
func (l lasting) Keep(ctx context.Context, r engine.Record) error {
	s := l.sandbox
	uid, _, _ := s.state()
	patch, err := s.engine.keys.patchOf(r, s.id, uid, s.object)
	if err != nil {
		return fmt.Errorf("kubernetes: the record of sandbox %s: %w", s.id, err)
	}
	s.storing.Lock()
	defer s.storing.Unlock()
	ctx, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	stored, err := s.engine.objects().Patch(ctx, s.name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		err = errors.Join(engine.ErrGone, err)
	}
	if err != nil {
		return fmt.Errorf("kubernetes: store the record of sandbox %s: %w", s.id, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.record, s.version, s.kept, s.turning = r, stored.GetResourceVersion(), true, false
	return nil
}

// Kept returns the stored record, and a channel that is closed when another server changes it.
func (l lasting) Kept() (engine.Record, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.record, l.changed
}

// Leave closes the connection to the sandbox, which goes on without the engine.
func (l lasting) Leave() error { return l.leave() }

// takeRecord takes over the record of an object that another server has changed. Only a resume changes
// the pod.
func (s *sandbox) takeRecord(o *object) {
	r, _, pod, err := s.engine.keys.recordOf(o)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil || s.turning || !newer(o.ResourceVersion, s.version) {
		return
	}
	if s.record.Equal(r) && pod == s.uid {
		return
	}
	if pod != s.uid || r.Paused != s.suspended {
		s.uid = pod
		s.turnLocked(r.Paused)
	}
	s.record, s.version = r, o.ResourceVersion
	close(s.changed)
	s.changed = make(chan struct{})
}

// newer reports whether a version of an object is newer than the one that is known. API servers
// number the versions of all objects upwards.
func newer(version, known string) bool {
	return len(version) > len(known) || len(version) == len(known) && version > known
}

// maxJoining bounds how many adopted sandboxes are connected at the same time.
const maxJoining = 16

// syncPause is the pause between two looks at whether the first lists are there.
const syncPause = 5 * time.Millisecond

// Adopt calls found for each sandbox that another server with the same secret made. See
// [engine.Adopter].
func (e *Engine) Adopt(ctx context.Context, found func(engine.Found)) error {
	if !e.lasts() {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, openTimeout, fmt.Errorf("no list of them within %v", openTimeout))
	defer cancel()
	stop := context.AfterFunc(e.life, cancel)
	defer stop()
	err := wait.PollUntilContextCancel(ctx, syncPause, true, func(context.Context) (bool, error) {
		return e.watch.pods.synced() && e.watch.objects.synced(), nil
	})
	if err != nil {
		return fmt.Errorf("kubernetes: list the sandboxes of the namespace %s: %w", e.options.Namespace, context.Cause(ctx))
	}
	e.consider(found)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return engine.ErrClosed
	}
	e.working.Go(func() {
		for {
			select {
			case <-e.life.Done():
				return
			case <-e.watch.objects.news:
				e.consider(found)
			}
		}
	})
	return nil
}

// consider looks at each object that has changed since the last time.
func (e *Engine) consider(found func(engine.Found)) {
	for name := range e.watch.objects.take() {
		o := e.watch.objects.look(name)
		e.mu.Lock()
		s := e.sandboxes[name]
		uid, removed := e.removed[name]
		if removed && (o == nil || o.UID != uid) {
			delete(e.removed, name)
			removed = false
		}
		e.mu.Unlock()
		switch {
		case o == nil || removed || o.DeletionTimestamp != nil || o.Annotations[annotationEnded] != "":
		case s != nil:
			s.takeRecord(o)
		default:
			e.offer(o, found)
		}
	}
}

// offer calls found for the sandbox of an object that is not known. Without a record, or with one that
// cannot be read, the object is left alone: its time of shutdown ends it.
func (e *Engine) offer(o *object, found func(engine.Found)) {
	r, id, pod, err := e.keys.recordOf(o)
	if errors.Is(err, errIncomplete) {
		return
	}
	if err != nil {
		e.options.Logger.WarnContext(e.life, "a sandbox of another server cannot be read, and is left alone", "object", o.Name, "error", err)
		return
	}
	found(engine.Found{ID: id, Record: r, Open: func(opts engine.SandboxOptions) (engine.Lasting, error) {
		s, err := e.adopt(o, pod, r, opts)
		if err != nil {
			return nil, fmt.Errorf("kubernetes: adopt sandbox %s: %w", id, err)
		}
		return s, nil
	}})
}

// adopt returns the sandbox of an object, and connects to it in the background.
func (e *Engine) adopt(o *object, pod types.UID, r engine.Record, opts engine.SandboxOptions) (engine.Lasting, error) {
	s, err := e.unconnected(opts, o.Name)
	if err != nil {
		return nil, err
	}
	s.object, s.uid, s.record, s.version, s.kept = o.UID, pod, r, o.ResourceVersion, true
	s.home, s.suspended = len(o.Spec.VolumeClaimTemplates) > 0, r.Paused
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		s.end()
		return nil, engine.ErrClosed
	}
	e.sandboxes[o.Name] = s
	e.working.Go(func() {
		if why := s.awaitSeen(); why != nil {
			s.fail(s.explain(why))
			_ = s.close() // an object that cannot be removed is removed later
			return
		}
		s.follow()
	})
	return lasting{s}, nil
}

// awaitSeen waits until the watch has seen the pod of an adopted sandbox, as it may be behind that of
// the objects. It returns why the sandbox has ended, if its pod is gone, and nil if the engine ends.
func (s *sandbox) awaitSeen() error {
	for {
		uid, _, turned := s.state()
		pod, changed := s.engine.watch.pod(s.name)
		if s.isSuspended() || pod != nil && pod.UID == uid {
			return nil
		}
		live, err := s.engine.client.Resource(pods).Namespace(s.engine.options.Namespace).Get(s.life, s.name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return s.unlessSuspended(endOf(nil, uid), uid)
		}
		if err == nil && live.GetUID() != uid {
			return s.unlessSuspended(errReplaced, uid)
		}
		select {
		case <-changed:
		case <-turned:
		case <-s.life.Done():
			return nil
		case <-time.After(eventPause):
		}
	}
}
