package kubernetes

import (
	"context"
	"fmt"
	"maps"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// mark notes that an object is about to be removed, so that the sandbox is not adopted again while
// the watch still has it.
func (e *Engine) mark(name string) {
	o := e.watch.objects.look(name)
	if o == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.removed[name] = o.UID
}

// removeTimeout limits the time to remove objects.
const removeTimeout = 30 * time.Second

// remove removes the object of a sandbox, unless another one has taken its name. The controller removes
// its pod after that. If uid is "", remove removes any object of that name.
func (e *Engine) remove(ctx context.Context, name string, uid types.UID) error {
	var o metav1.DeleteOptions
	if uid != "" {
		o.Preconditions = &metav1.Preconditions{UID: &uid}
	}
	err := e.objects().Delete(ctx, name, o)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("kubernetes: remove the object %s: %w", name, err)
	}
	return nil
}

// removeLeftovers removes the objects that could not be removed before.
func (e *Engine) removeLeftovers(ctx context.Context) error {
	e.mu.Lock()
	left := maps.Clone(e.leftovers)
	e.mu.Unlock()
	for name, uid := range left {
		if err := e.remove(ctx, name, uid); err != nil {
			return err
		}
		e.mu.Lock()
		delete(e.leftovers, name)
		e.mu.Unlock()
	}
	return nil
}
