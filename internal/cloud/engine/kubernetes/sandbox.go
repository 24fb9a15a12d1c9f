package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/tunnel"
)

// sandbox is one pod.
type sandbox struct {
	engine *Engine
	id     string
	name   string    // name of the object and of the pod; chosen by the pool if the sandbox comes from a pool
	object types.UID // UID of the object; "": nobody knows whether it was made
	home   bool      // it can be suspended
	hello  tunnel.Hello
	tell   func(line []byte)

	storing sync.Mutex // held while the time of shutdown is changed; before mu

	mu     sync.Mutex
	uid    types.UID      // UID of the pod; of a suspended sandbox, that of the last one
	tunnel *tunnel.Server // the newest tunnel; nil: an adopted sandbox was not connected yet
	joined chan struct{}  // closed when tunnel is replaced
	// The record in the object, if kept is set, and the version of the object with it.
	record  engine.Record
	version string
	kept    bool
	changed chan struct{} // closed when another server changes the record
	// suspended means that the sandbox has no pod. turning means that this server suspends or resumes it,
	// and has not stored the record yet. turned is closed when suspended or the pod changes.
	suspended, turning bool
	turned             chan struct{}
	left               bool // close leaves the object, if it has a record

	heard  atomic.Pointer[string] // reason of the end that another server stored in the object
	reason atomic.Pointer[error]
	done   chan struct{}
	life   context.Context //nolint:containedctx // it ends with the sandbox, not with a call
	end    context.CancelFunc
	close  func() error
}

func (e *Engine) newSandbox(ctx context.Context, o engine.SandboxOptions) (_ *sandbox, err error) {
	ctx, end, err := e.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	if err := errors.Join(o.Limits.WithDefaults().Check(), e.promises().CheckOptions(o), e.checkNetwork(o)); err != nil {
		return nil, err
	}
	if err := e.removeLeftovers(ctx); err != nil {
		return nil, err
	}
	name, err := nameOf(o.ID)
	if err != nil {
		return nil, err
	}
	s, err := e.unconnected(o, name)
	if err != nil {
		return nil, err
	}
	at, made, err := e.createOnce(ctx, o, name)
	if !made {
		s.end()
		e.watch.forget(name)
		return nil, err
	}
	s.name, s.object = at.name, at.uid
	e.mu.Lock()
	e.sandboxes[s.name] = s // its time of shutdown is moved on from now on
	e.mu.Unlock()
	if err == nil {
		err = s.start(ctx)
	}
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = errors.Join(cause, e.whyNotReady(context.WithoutCancel(ctx), s.name))
		}
		return nil, errors.Join(err, s.Close())
	}
	e.working.Go(s.follow)
	return s, nil
}

// unconnected returns a sandbox without a connection.
func (e *Engine) unconnected(o engine.SandboxOptions, name string) (*sandbox, error) {
	config, err := o.EncodeConfig()
	if err != nil {
		return nil, err
	}
	s := &sandbox{
		home: e.options.HomeBytes > 0, turned: make(chan struct{}),
		engine: e, id: o.ID, name: name, hello: tunnel.Hello{ID: o.ID, Config: config}, tell: o.Tell,
		joined: make(chan struct{}), changed: make(chan struct{}), done: make(chan struct{}),
	}
	s.life, s.end = context.WithCancel(context.Background())
	s.close = sync.OnceValue(s.shutDown)
	return s, nil
}

// start waits for the pod, and connects to its envd.
func (s *sandbox) start(ctx context.Context) error {
	pod, err := s.engine.awaitPod(ctx, s.name, "")
	if err != nil {
		return err
	}
	t, err := s.join(ctx, pod.UID)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.uid, s.tunnel = pod.UID, t
	return nil
}

// rejoinPause is the pause between two attempts to connect.
const rejoinPause = 50 * time.Millisecond

// join connects to the envd of the pod with a UID. It tries again until ctx or the pod ends, because envd
// starts a moment after its container.
func (s *sandbox) join(ctx context.Context, uid types.UID) (*tunnel.Server, error) {
	var last error
	for {
		t, err := s.tryJoin(ctx, uid)
		if err == nil {
			return t, nil
		}
		last = err
		pod, changed := s.engine.watch.pod(s.name)
		if why := endOf(pod, uid); why != nil {
			return nil, fmt.Errorf("%w: %w", why, last)
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), last)
		case <-changed:
		case <-time.After(rejoinPause):
		}
	}
}

func (s *sandbox) tryJoin(ctx context.Context, uid types.UID) (*tunnel.Server, error) {
	conn, err := s.engine.forward(ctx, s.name, port)
	if err != nil {
		return nil, err
	}
	if err := tunnel.Prove(ctx, conn, s.engine.keys.proof, string(uid)); err != nil {
		return nil, err
	}
	return tunnel.Open(ctx, conn, tunnel.Options{Hello: s.hello, Tell: s.tell})
}

// follow connects again when the connection to envd breaks, until the sandbox ends.
func (s *sandbox) follow() {
	defer s.engine.watch.forget(s.name)
	for s.life.Err() == nil {
		var why error
		if s.isSuspended() {
			why = s.rest()
		} else {
			why = s.attend()
		}
		if why != nil {
			s.fail(s.explain(why))
			_ = s.close() // what cannot be removed is removed later
			return
		}
	}
}

// attend waits for the next change of a sandbox that is not suspended, and connects again if the
// connection is broken. It returns why the sandbox has ended.
func (s *sandbox) attend() error {
	uid, lost, turned := s.state()
	pod, changed := s.engine.watch.pod(s.name)
	if why := endOf(pod, uid); why != nil {
		return s.unlessSuspended(why, uid)
	}
	select {
	case <-s.life.Done():
	case <-changed:
	case <-turned:
	case <-lost:
		t, err := s.joinInTurn(uid)
		if err == nil { // otherwise the pod says why
			s.replace(t, uid)
		}
	}
	return nil
}

// always is closed.
var always = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// state returns the UID of the pod, a channel that is closed when there is no connection to envd, and
// one that is closed when the sandbox is suspended or resumed.
func (s *sandbox) state() (uid types.UID, lost, turned <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tunnel == nil {
		return s.uid, always, s.turned
	}
	return s.uid, s.tunnel.Done(), s.turned
}

// turnTimeout bounds how long a sandbox that cannot be connected keeps others waiting.
const turnTimeout = 10 * time.Second

// joinInTurn connects to envd again. The first connections of adopted sandboxes wait for their turn.
func (s *sandbox) joinInTurn(uid types.UID) (*tunnel.Server, error) {
	s.mu.Lock()
	first := s.tunnel == nil
	s.mu.Unlock()
	if first {
		select {
		case s.engine.joining <- struct{}{}:
			defer func() { <-s.engine.joining }()
		case <-s.life.Done():
			return nil, context.Cause(s.life)
		}
	}
	ctx, cancel := context.WithTimeoutCause(s.life, turnTimeout, errors.New("its turn to connect is over"))
	defer cancel()
	return s.join(ctx, uid)
}

// replace makes t the tunnel of the sandbox, unless its pod is not the one of a UID any longer.
func (s *sandbox) replace(t *tunnel.Server, uid types.UID) {
	s.mu.Lock()
	if s.uid != uid || s.suspended {
		s.mu.Unlock()
		t.Close()
		return
	}
	old := s.tunnel
	s.tunnel = t
	close(s.joined)
	s.joined = make(chan struct{})
	over := s.life.Err() != nil
	s.mu.Unlock()
	if old != nil {
		old.Close()
	}
	if over {
		t.Close()
	}
}

// errReplaced is the end of a sandbox whose pod came back empty.
var errReplaced = errors.New("its pod was deleted, and the one that took its place has none of its files")

// endOf returns the reason why a sandbox in the pod with a UID has ended, or nil if it runs. pod is the
// pod that has the name of the sandbox now.
func endOf(pod *corev1.Pod, uid types.UID) error {
	switch {
	case pod == nil || pod.DeletionTimestamp != nil:
		return errDeleted
	case pod.UID != uid:
		return errReplaced
	case pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded:
		return ended(pod)
	}
	return nil
}

// fail records err as the reason for the sandbox's end. Only the first reason is kept.
func (s *sandbox) fail(err error) {
	if s.reason.CompareAndSwap(nil, &err) {
		close(s.done)
	}
}

// Done returns a channel that is closed when the reason for the sandbox's end is known.
func (s *sandbox) Done() <-chan struct{} { return s.done }

// Err returns the reason why the sandbox ended. It returns nil before the end.
func (s *sandbox) Err() error {
	if reason := s.reason.Load(); reason != nil {
		return *reason
	}
	return nil
}

// Close ends the sandbox and removes its object, and with it the pod.
func (s *sandbox) Close() error {
	s.fail(engine.ErrClosed)
	return s.close()
}

// isKept reports whether the sandbox has a record, and so outlives the engine.
func (s *sandbox) isKept() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kept
}

// leave ends the sandbox for this engine. If it has a record, its object and its pod stay.
func (s *sandbox) leave() error {
	s.mu.Lock()
	s.left = true
	s.mu.Unlock()
	return s.Close()
}

func (s *sandbox) shutDown() error {
	s.end()
	s.mu.Lock()
	t, stays := s.tunnel, s.left && s.kept
	s.mu.Unlock()
	if t != nil {
		t.Close()
	}
	if stays {
		s.engine.mu.Lock()
		delete(s.engine.sandboxes, s.name)
		s.engine.mu.Unlock()
		s.engine.watch.forget(s.name)
		return nil
	}
	s.engine.mark(s.name)
	ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
	defer cancel()
	if s.isKept() && s.heard.Load() == nil {
		s.storeEnd(ctx)
	}
	err := s.engine.remove(ctx, s.name, s.object)
	s.engine.mu.Lock()
	delete(s.engine.sandboxes, s.name)
	if err != nil {
		s.engine.leftovers[s.name] = s.object
	}
	s.engine.mu.Unlock()
	s.engine.watch.forget(s.name)
	return err
}

// Dial connects to a port in the sandbox. If the connection to envd is broken, Dial waits until the
// engine has connected again.
func (s *sandbox) Dial(ctx context.Context, port int) (net.Conn, error) {
	for {
		s.mu.Lock()
		t, joined, suspended := s.tunnel, s.joined, s.suspended
		s.mu.Unlock()
		if suspended {
			return nil, fmt.Errorf("kubernetes: dial port %d of sandbox %s: %w", port, s.id, engine.ErrFrozen)
		}
		if t != nil {
			conn, err := t.Dial(ctx, port)
			if err == nil {
				return conn, nil
			}
			if !errors.Is(err, engine.ErrGone) {
				return nil, fmt.Errorf("kubernetes: dial port %d of sandbox %s: %w", port, s.id, err)
			}
		}
		select {
		case <-joined:
		case <-s.done:
			return nil, fmt.Errorf("kubernetes: dial port %d of sandbox %s: %w", port, s.id, engine.ErrGone)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
