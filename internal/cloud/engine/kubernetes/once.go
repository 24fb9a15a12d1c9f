package kubernetes

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
)

// idCharacters is the number of characters of an id after its first one. They carry 100 bits.
const idCharacters = 20

// IDOf returns the id of the sandbox that a request with an idempotency key makes: a keyed hash, so
// that all servers with the secret name the object of the sandbox alike. The API server then refuses
// the second object.
func (e *Engine) IDOf(key string) string {
	if !e.lasts() {
		return ""
	}
	mac := hmac.New(sha256.New, e.keys.naming)
	_, _ = mac.Write([]byte(key)) // never fails
	return "i" + strings.ToLower(base32.StdEncoding.EncodeToString(mac.Sum(nil)))[:idCharacters]
}

// place identifies the object of a sandbox.
type place struct {
	name string
	uid  types.UID // "": nobody knows whether it was made
}

// createOnce makes the object of a sandbox, or takes an object from a pool. If another server makes the
// same sandbox, createOnce waits for that server. If that server succeeds, the error is
// [engine.ErrExists]. If it fails, createOnce tries again. made reports whether the object may exist now.
func (e *Engine) createOnce(ctx context.Context, o engine.SandboxOptions, name string) (at place, made bool, err error) {
	makeOne := func() (place, error) { return e.create(ctx, o, name) }
	if pool := e.poolFor(o); pool != "" {
		makeOne = func() (place, error) { return e.take(ctx, o, name, pool) }
	}
	for {
		if err := e.awaitNoPod(ctx, name); err != nil {
			return place{}, false, err
		}
		at, err := makeOne()
		other, exists := errors.AsType[*existsError](err)
		switch {
		case err == nil:
			return at, true, nil
		case e.lasts() && exists:
			err = e.awaitOther(ctx, other.name)
		case errors.Is(err, errClaimed):
			err = e.awaitClaim(ctx, name)
		default:
			return at, at.name != "" && apierrors.ReasonForError(err) == metav1.StatusReasonUnknown, err
		}
		if err != nil {
			return place{}, false, err
		}
	}
}

// awaitClaim waits until a claim of another server changes, or for otherPause.
func (e *Engine) awaitClaim(ctx context.Context, name string) error {
	_, changed := e.watch.claims.get(name)
	select {
	case <-changed:
		return nil
	case <-time.After(otherPause): // it may be gone already
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", errClaimed, context.Cause(ctx))
	}
}

// awaitNoPod waits until no pod has a name. A pod that is ending has the name of a new sandbox if the
// request is repeated after a failure, and that of a sandbox which has just been suspended. It first
// waits until the watch has seen the pods: those of a server that was here before are among them.
func (e *Engine) awaitNoPod(ctx context.Context, name string) error {
	if err := wait.PollUntilContextCancel(ctx, syncPause, true, func(context.Context) (bool, error) { return e.watch.pods.synced(), nil }); err != nil {
		return fmt.Errorf("list the pods of the namespace %s: %w", e.options.Namespace, context.Cause(ctx))
	}
	for {
		pod, changed := e.watch.pod(name)
		if pod == nil {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait for the end of the pod %s: %w", name, context.Cause(ctx))
		}
	}
}

// otherPause is the pause between two looks at an object that another server has made.
const otherPause = 250 * time.Millisecond

// awaitOther waits for the result of another server that makes the same sandbox. It returns
// [engine.ErrExists] if the object has a record, and nil if the object is gone, since the other server
// has failed.
func (e *Engine) awaitOther(ctx context.Context, name string) error {
	for {
		o, err := e.object(ctx, name)
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil: // the next look may succeed, and ctx bounds all of them
		case o.Labels[labelInstance] != e.keys.instance:
			return fmt.Errorf("the object %s belongs to a server with another secret", name)
		case o.DeletionTimestamp != nil || o.Annotations[annotationEnded] != "":
		default:
			if _, _, _, err := e.keys.recordOf(o); !errors.Is(err, errIncomplete) {
				return errors.Join(engine.ErrExists, err)
			}
		}
		select {
		case <-time.After(otherPause):
		case <-ctx.Done():
			return fmt.Errorf("another server makes the same sandbox: %w", context.Cause(ctx))
		}
	}
}

// objects returns the client for the objects of sandboxes.
func (e *Engine) objects() dynamic.ResourceInterface {
	return e.client.Resource(sandboxes).Namespace(e.options.Namespace)
}

// object reads the object of a sandbox.
func (e *Engine) object(ctx context.Context, name string) (*object, error) {
	content, err := e.objects().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return decode[object](content.Object)
}
