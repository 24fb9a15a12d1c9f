package kubernetes

import (
	"context"
	"encoding/json"
	"maps"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// leaseTime bounds the time for which a sandbox without a record outlives a server that dies.
const leaseTime = 10 * time.Minute

// renewLeases moves the time of shutdown of all sandboxes without a record on, until the engine ends.
// It also removes objects that could not be removed before.
func (e *Engine) renewLeases() {
	pause := e.options.lease * 3 / 10
	if e.lasts() { // the server that sweeps takes others for dead sooner
		pause = min(pause, e.options.pace)
	}
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		select {
		case <-e.life.Done():
			return
		case <-tick.C:
		}
		if err := e.removeLeftovers(e.life); err != nil && e.life.Err() == nil {
			e.options.Logger.WarnContext(e.life, "an ended sandbox could not be removed", "error", err)
		}
		e.mu.Lock()
		all := maps.Clone(e.sandboxes)
		e.mu.Unlock()
		for name, s := range all {
			if err := s.renew(e.life); err != nil && !apierrors.IsNotFound(err) && e.life.Err() == nil {
				e.options.Logger.WarnContext(e.life, "the time of a sandbox's shutdown could not be moved on", "object", name, "error", err)
			}
		}
	}
}

// renew moves the time of shutdown of a sandbox without a record on. A record has the time of the end,
// which renew must not overwrite, so it excludes Keep.
func (s *sandbox) renew(ctx context.Context) error {
	e := s.engine
	s.storing.Lock()
	defer s.storing.Unlock()
	if s.isKept() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"shutdownTime": metav1.NewTime(time.Now().Add(e.options.lease))}})
	if err != nil {
		return err
	}
	_, err = e.objects().Patch(ctx, s.name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}
