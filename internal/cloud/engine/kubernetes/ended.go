package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/cloud/engine"
)

// annotationEnded has the reason why a server ended a sandbox. The server writes it before it removes
// the object, for the other servers.
const annotationEnded = "e2bctl/ended"

// closedHere is the reason in annotationEnded of a sandbox that a server closed, because a client asked
// for it or its time was over.
const closedHere = "closed"

var (
	errDeleted = errors.New("its pod was deleted")
	errRemoved = errors.New("its object was removed from the cluster")
)

// explainTimeout bounds the search for the reason why a pod is gone, and explainPause is the pause
// between two looks.
const (
	explainTimeout = 5 * time.Second
	explainPause   = 50 * time.Millisecond
)

// storeEnd stores the reason of the sandbox's end in the object. It ignores errors, because the object
// is removed in any case: other servers then do not have the reason.
func (s *sandbox) storeEnd(ctx context.Context) {
	text := closedHere
	if err := s.Err(); err != nil && !errors.Is(err, engine.ErrClosed) {
		text = clip.Text(err.Error(), maxReason)
	}
	metadata := map[string]any{"annotations": map[string]string{annotationEnded: text}}
	if s.object != "" {
		metadata["uid"] = s.object // refuses another object of the same name
	}
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err == nil {
		_, err = s.engine.objects().Patch(ctx, s.name, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		s.engine.options.Logger.DebugContext(ctx, "the reason of a sandbox's end could not be stored", "object", s.name, "error", err)
	}
}

// takeEnd takes over the reason that another server stored in the object of a sandbox.
func (e *Engine) takeEnd(o *object) {
	text := o.Annotations[annotationEnded]
	if text == "" {
		return
	}
	e.mu.Lock()
	s := e.sandboxes[o.Name]
	e.mu.Unlock()
	if s != nil && s.object == o.UID {
		s.heard.Store(&text)
	}
}

// explain returns the reason why the pod of a sandbox is gone, as the object or another server has it.
// why is the reason that the pods alone have.
func (s *sandbox) explain(why error) error {
	removed := errors.Is(why, errDeleted) || errors.Is(why, errReplaced) || errors.Is(why, errRemoved)
	if !s.engine.lasts() || !removed {
		return why
	}
	gone := false
	_ = wait.PollUntilContextTimeout(s.life, explainPause, explainTimeout, true, func(ctx context.Context) (bool, error) { // without a reason, that of the pods remains
		if s.heard.Load() != nil {
			return true, nil
		}
		o, err := s.engine.object(ctx, s.name)
		switch {
		case apierrors.IsNotFound(err) || err == nil && o.UID != s.object:
			gone = true
			seen := s.engine.watch.objects.look(s.name)
			return seen == nil || seen.UID != s.object, nil // the watch has the reason, as soon as it is up to date
		case err != nil:
			return false, nil //nolint:nilerr // the next look may succeed
		}
		s.engine.takeEnd(o)
		return o.DeletionTimestamp == nil, nil
	})
	switch text := s.heard.Load(); {
	case text != nil && *text == closedHere:
		return engine.ErrElsewhere
	case text != nil && *text == engine.ErrOutOfMemory.Error():
		return engine.ErrOutOfMemory
	case text != nil:
		return errors.New(*text)
	case gone:
		return fmt.Errorf("%w: %w", errRemoved, why)
	}
	return why
}
