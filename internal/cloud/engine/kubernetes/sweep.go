package kubernetes

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"os"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// sweepPace is the pause between two looks for remains, between two proofs of a server that it still
// creates a sandbox, and between two attempts of a server to be the one that looks.
const sweepPace = 10 * time.Second

// How many paces a server may be silent: before its sandbox without a record is removed, before another
// server is elected, and before it takes itself for no longer elected.
const (
	abandonedPaces = 3
	electedPaces   = 6
	renewalPaces   = 4
)

// leaseName returns the name of the Lease that elects one of the servers with the secret. It is in the
// namespace of the sandboxes, where the servers have all of their rights.
func (k *keys) leaseName() string { return "e2bctl-" + k.instance }

// elect takes part in the election of the server that sweeps, until the engine ends. Without the right
// to Leases there is no election: remains then end by their time of shutdown.
func (e *Engine) elect() {
	client, err := coordination.NewForConfig(e.config)
	if err == nil {
		_, err = client.Leases(e.options.Namespace).Get(e.life, e.keys.leaseName(), metav1.GetOptions{})
	}
	if apierrors.IsForbidden(err) {
		e.options.Logger.WarnContext(e.life, "this server may not use Leases, so remains of servers that died stay until their time of shutdown", "error", err)
		return
	}
	host, _ := os.Hostname() // for people; the rest is unique
	pace := e.options.pace
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Name: e.keys.leaseName(), Namespace: e.options.Namespace}, Client: client,
			LockConfig: resourcelock.ResourceLockConfig{Identity: host + "_" + rand.Text()[:8]},
		},
		LeaseDuration: electedPaces * pace, RenewDeadline: renewalPaces * pace, RetryPeriod: pace, ReleaseOnCancel: true, Name: "e2bctl",
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { e.elected.Store(ctx.Err() == nil) },
			OnStoppedLeading: func() { e.elected.Store(false) },
		},
	})
	if err != nil {
		panic(err) // only of a wrong configuration
	}
	for e.life.Err() == nil {
		elector.Run(e.life)
	}
}

// sweepRemains removes the remains of servers that died, as long as this server is elected.
func (e *Engine) sweepRemains() {
	tick := time.NewTicker(e.options.pace)
	defer tick.Stop()
	seen := remains{}
	for {
		select {
		case <-e.life.Done():
			return
		case <-tick.C:
		}
		if !e.elected.Load() {
			clear(seen)
			continue
		}
		e.sweepClaims(e.life, time.Now())
		for _, o := range seen.over(e.watch.objects.list(), time.Now(), abandonedPaces*e.options.pace) {
			if err := e.sweep(e.life, o); err != nil && e.life.Err() == nil {
				e.options.Logger.WarnContext(e.life, "the remains of a sandbox could not be removed", "object", o.Name, "error", err)
			}
		}
	}
}

// sweep removes an object if nobody has changed it.
func (e *Engine) sweep(ctx context.Context, o *object) error {
	err := e.objects().Delete(ctx, o.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &o.UID, ResourceVersion: &o.ResourceVersion},
	})
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err): // the next look decides anew
		return nil
	case err != nil:
		return fmt.Errorf("kubernetes: remove the object %s: %w", o.Name, err)
	}
	e.options.Logger.InfoContext(ctx, "the remains of a sandbox whose server died were removed", "object", o.Name)
	return nil
}

// remains has the objects that may be the remains of servers that died, by their UID.
type remains map[types.UID]remain

type remain struct {
	proof string // changes as long as its server lives
	since time.Time
}

// over returns those of all objects that have been remains for longer than a time.
func (r remains) over(all []*object, now time.Time, longer time.Duration) (found []*object) {
	before := maps.Clone(r)
	clear(r)
	for _, o := range all {
		proof, may := o.proof()
		if !may {
			continue
		}
		one, known := before[o.UID]
		if !known || one.proof != proof {
			one = remain{proof, now}
		}
		r[o.UID] = one
		if now.Sub(one.since) > longer {
			found = append(found, o)
		}
	}
	return found
}

// proof reports whether an object can be the remains of a server that died: its sandbox has no record or
// has ended. The text changes as long as a server creates the sandbox.
func (o *object) proof() (text string, may bool) {
	switch {
	case o.DeletionTimestamp != nil:
		return "", false
	case o.Annotations[annotationEnded] != "":
		return annotationEnded, true
	case o.Annotations[annotationPod] != "" || o.Spec.ShutdownTime == nil:
		return "", false
	}
	return o.Spec.ShutdownTime.String(), true
}
