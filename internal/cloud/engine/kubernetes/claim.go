package kubernetes

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/cloud/engine"
)

// claim is a SandboxClaim object of agent-sandbox, with only the fields that the engine uses.
type claim struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              claimSpec   `json:"spec"`
	Status            claimStatus `json:"status,omitempty,omitzero"`
}

type claimSpec struct {
	WarmPoolRef referenceName  `json:"warmPoolRef"`
	Lifecycle   claimLifecycle `json:"lifecycle"`
}

type claimLifecycle struct {
	ShutdownTime   metav1.Time `json:"shutdownTime"`
	ShutdownPolicy string      `json:"shutdownPolicy"`
}

type claimStatus struct {
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	Sandbox    referenceName      `json:"sandbox,omitempty,omitzero"`
}

const (
	// claimFinalizer keeps a claim that is being removed until its sandbox is detached from the claim. A
	// claim has it from the beginning: to add it later costs one more request of each create.
	claimFinalizer = "e2bctl/detach"
	// claimTime is the time after which a claim ends by itself. A sandbox that is not detached from the
	// claim then ends, too.
	claimTime = time.Minute
	// claimPatience bounds the wait for the sandbox of a claim.
	claimPatience = 5 * time.Second
)

var (
	errClaimed   = errors.New("another server has a claim for the same sandbox")
	errNoneTaken = errors.New("the pool gave no sandbox")
)

// existsError means that an object of the same sandbox exists already.
type existsError struct{ name string }

func (e *existsError) Error() string { return "the object " + e.name + " exists" }

// take takes a sandbox from a pool, by a claim. The claim has the name that a Sandbox object of the same
// id would have, and exists until an object has the id in its label. So no two servers make the same
// sandbox. Then take detaches the sandbox from the claim, and its object becomes like the objects of all
// other sandboxes. If the claim gets no sandbox, take makes a Sandbox object, as without a pool.
func (e *Engine) take(ctx context.Context, o engine.SandboxOptions, name, pool string) (at place, err error) {
	uid, err := e.claim(ctx, o.ID, name, pool)
	if err != nil {
		return place{}, err
	}
	detached := false
	defer func() {
		if !detached {
			e.dropClaim(context.WithoutCancel(ctx), name, uid)
		}
	}()
	taken, err := e.awaitOnlyTaken(ctx, o.ID, name, uid)
	if errors.Is(err, errNoneTaken) {
		e.options.Logger.WarnContext(ctx, "a sandbox is made without its pool", "pool", pool, "error", err)
		return e.create(ctx, o, name)
	}
	if err != nil {
		return place{}, err
	}
	at, err = e.detach(ctx, o.ID, name, uid, taken)
	detached = err == nil
	return at, err
}

// claim makes the claim for a sandbox of a pool. The error is errClaimed if there is one already.
func (e *Engine) claim(ctx context.Context, id, name, pool string) (types.UID, error) {
	made, err := e.make(ctx, claims, &claim{
		TypeMeta: metav1.TypeMeta{APIVersion: claims.GroupVersion().String(), Kind: "SandboxClaim"},
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: e.options.Namespace, Finalizers: []string{claimFinalizer},
			Labels: map[string]string{labelSandbox: id, labelInstance: e.keys.instance},
		},
		Spec: claimSpec{
			WarmPoolRef: referenceName{pool},
			Lifecycle:   claimLifecycle{metav1.NewTime(time.Now().Add(e.options.claimTime)), "Delete"},
		},
	})
	if apierrors.IsAlreadyExists(err) {
		return "", errClaimed
	}
	if err != nil {
		return "", fmt.Errorf("claim a sandbox of the pool %s: %w", pool, err)
	}
	return made.GetUID(), nil
}

// awaitOnlyTaken waits until a claim has a sandbox, as awaitTaken does, and meanwhile asks whether another
// object has the id of the sandbox. If one has it, the error is an [existsError].
func (e *Engine) awaitOnlyTaken(ctx context.Context, id, name string, uid types.UID) (string, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var asking sync.WaitGroup
	asking.Go(func() {
		if err := e.noOther(ctx, id); err != nil {
			cancel(err)
		}
	})
	taken, err := e.awaitTaken(ctx, name, uid)
	asking.Wait()
	return taken, cmp.Or(context.Cause(ctx), err)
}

// noOther returns an [existsError] if an object has the id of a sandbox. It asks the API server, because
// the watch may not yet have seen the object of a server that had the claim before.
func (e *Engine) noOther(ctx context.Context, id string) error {
	list, err := e.objects().List(ctx, metav1.ListOptions{LabelSelector: labelInstance + "=" + e.keys.instance + "," + labelSandbox + "=" + id})
	if err != nil {
		return fmt.Errorf("look for the object of sandbox %s: %w", id, err)
	}
	if len(list.Items) > 0 {
		return &existsError{list.Items[0].GetName()}
	}
	return nil
}

// awaitTaken waits until a claim has a sandbox, and returns the name of the sandbox's object. If the claim
// gets no sandbox, the error is errNoneTaken.
func (e *Engine) awaitTaken(ctx context.Context, name string, uid types.UID) (string, error) {
	defer e.watch.claims.forget(name)
	timer := time.NewTimer(claimPatience)
	defer timer.Stop()
	for {
		c, changed := e.watch.claims.get(name)
		if c != nil && c.UID == uid {
			if c.Status.Sandbox.Name != "" {
				return c.Status.Sandbox.Name, nil
			}
			if err := c.failed(); err != nil {
				return "", err
			}
		}
		select {
		case <-changed:
		case <-timer.C:
			return "", fmt.Errorf("%w within %v: agent-sandbox may run without its extensions", errNoneTaken, claimPatience)
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

// hopelessClaims lists the reasons in the status of claims that will not get a sandbox soon.
var hopelessClaims = []string{"WarmPoolNotFound", "TemplateNotFound", "ReconcilerError"}

// failed returns errNoneTaken, with the controller's reason, if the controller cannot give the claim a
// sandbox.
func (c *claim) failed() error {
	for _, condition := range c.Status.Conditions {
		if condition.Type == "Ready" && slices.Contains(hopelessClaims, condition.Reason) {
			return fmt.Errorf("%w: %s", errNoneTaken, clip.Text(condition.Message, maxReason))
		}
	}
	return nil
}

// detach makes the sandbox of a claim independent of the claim, like all other sandboxes, and removes the
// claim. If a claim that is not being removed has lost its sandbox, the controller takes another sandbox
// for it. Therefore detach first starts the removal of the claim. The finalizer keeps the claim until its
// sandbox is detached; the sandbox does not wait until the claim is gone.
func (e *Engine) detach(ctx context.Context, id, name string, uid types.UID, taken string) (at place, err error) {
	if err := e.deleteClaim(ctx, name, uid); err != nil {
		return place{}, err
	}
	if at, err = e.own(ctx, id, taken); err != nil {
		return place{}, err
	}
	e.working.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
		defer cancel()
		if err := e.release(ctx, name, uid); err != nil { // the server that sweeps does it later
			e.options.Logger.WarnContext(ctx, "a claim that is over could not be removed", "object", name, "error", err)
		}
	})
	return at, nil
}

// own makes the object of a claim one that belongs to a sandbox, and to no claim.
func (e *Engine) own(ctx context.Context, id, taken string) (place, error) {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{
			"ownerReferences": nil,
			"labels":          map[string]string{labelSandbox: id, labelInstance: e.keys.instance},
		},
		"spec": map[string]any{"shutdownTime": metav1.NewTime(time.Now().Add(e.options.lease)), "shutdownPolicy": "Delete"},
	})
	if err != nil {
		return place{}, err
	}
	object, err := e.objects().Patch(ctx, taken, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return place{}, fmt.Errorf("detach the object %s from its claim: %w", taken, err)
	}
	return place{taken, object.GetUID()}, nil
}

// release removes the finalizer of a claim. It is no error if the claim no longer exists.
func (e *Engine) release(ctx context.Context, name string, uid types.UID) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": uid, "finalizers": nil}})
	if err != nil {
		return err
	}
	_, err = e.kind(claims).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return fmt.Errorf("change the claim %s: %w", name, err)
}

func (e *Engine) deleteClaim(ctx context.Context, name string, uid types.UID) error {
	err := e.kind(claims).Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return fmt.Errorf("remove the claim %s: %w", name, err)
}

// dropClaim removes a claim together with its sandbox. If that is impossible at the moment, the claim ends
// by itself.
func (e *Engine) dropClaim(ctx context.Context, name string, uid types.UID) {
	ctx, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	if err := errors.Join(e.deleteClaim(ctx, name, uid), e.release(ctx, name, uid)); err != nil {
		e.options.Logger.WarnContext(ctx, "a claim could not be removed, and ends by itself", "object", name, "error", err)
	}
}

// sweepClaims removes claims whose server died before the sandbox of the claim was detached. Only
// sweepClaims then removes the finalizer of the claim.
func (e *Engine) sweepClaims(ctx context.Context, now time.Time) {
	all, err := e.allClaims(ctx)
	if err != nil && ctx.Err() == nil {
		e.options.Logger.WarnContext(ctx, "claims whose server died could not be listed", "error", err)
	}
	for _, c := range all {
		if c.DeletionTimestamp == nil || now.Sub(c.DeletionTimestamp.Time) < e.options.claimTime {
			continue
		}
		if err := e.release(ctx, c.Name, c.UID); err != nil && ctx.Err() == nil {
			e.options.Logger.WarnContext(ctx, "a claim whose server died could not be removed", "object", c.Name, "error", err)
		}
	}
}

// allClaims returns the claims of servers with the secret. An engine without pools does not watch
// claims, and asks the API server for those that servers with pools have left. If it has no right to
// claims, they stay until a server with pools starts.
func (e *Engine) allClaims(ctx context.Context) ([]*claim, error) {
	if e.pools != nil {
		return e.watch.claims.list(), nil
	}
	list, err := e.kind(claims).List(ctx, metav1.ListOptions{LabelSelector: labelInstance + "=" + e.keys.instance})
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []*claim
	for _, item := range list.Items {
		if c, err := decode[claim](item.Object); err == nil {
			all = append(all, c)
		}
	}
	return all, nil
}
