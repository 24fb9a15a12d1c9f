package kubernetes

import (
	"context"
	"errors"
	"fmt"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
)

// Report describes the features of sandboxes in the cluster.
func (e *Engine) Report() engine.Report {
	r := engine.Report{
		Engine: engine.Kubernetes, Promises: e.promises(), Isolation: engine.Full, IDs: 1,
		Memory: "limit of the pod", CPU: "limit of the pod", Processes: "not enforced: " + noProcessLimit, Disk: "ephemeral storage of the pod: " + noDiskLimit,
		Pause: "none: " + noPause, Suspends: e.options.HomeBytes > 0,
		Egress: "the pod's own network, without private networks",
	}
	if e.options.TrustNetworkPolicy {
		r.Egress = "the pod's own network, as the cluster's policies leave it"
	}
	if r.Suspends {
		r.Pause = fmt.Sprintf("ends the pod, and keeps the home of %d MiB", e.options.HomeBytes>>20)
	}
	r.Notes = append(r.Notes, fmt.Sprintf("sandboxes are pods of the namespace %s of the cluster at %s", e.options.Namespace, e.config.Host))
	return r
}

const (
	noPause        = "a pause ends a pod, and keeps only a home on a volume: pods have one if the server was started with --home SIZE"
	noProcessLimit = "the kubelets limit the processes of a pod, if they are told to"
	noDiskLimit    = "the kubelet ends a pod that writes more"
	noResize       = "a pod keeps the resources of its start"
	noClosing      = "with --trust-network-policy, the policies of the cluster decide what pods reach, and they do not know which sandbox has no network"
	noRules        = "pods have the network of the cluster, not the server's"
)

// promises returns the promises with an empty text for each promise that a pod keeps, and the
// reason for each promise that it does not keep.
func (e *Engine) promises() engine.Promises {
	return engine.Promises{
		engine.Commands:     "",
		engine.Terminals:    "",
		engine.Ports:        "",
		engine.TwoUsers:     "all processes of a pod have the user of its image",
		engine.AllEgress:    noRules,
		engine.NetworkRules: noRules,
		engine.MemoryLimit:  "",
		engine.CPULimit:     "",
		engine.ProcessLimit: noProcessLimit,
		engine.DiskLimit:    noDiskLimit,
		engine.Pauses:       noPause,
		engine.SavedFiles:   "the files of a pod are on its node, except a home (--home SIZE of the server), which only pauses keep",
		engine.SavedMemory:  "a cluster does not write the memory of processes to files",
		engine.SharedLayers: "a pod stands on its image only",
		engine.Volumes:      "volumes belong to the server's machine, and pods run on others",
		engine.HeaderRules:  noRules,
		engine.Mounts:       "directories belong to the server's machine, and pods run on others",
		engine.Images:       "",
		engine.IdleLimits:   "requests to a pod pass several servers, none of which sees all of them",
		engine.HostServices: noRules,
		engine.Resizes:      noResize,
	}
}

// SetEgress does nothing, because pods do not use the egress of the server.
func (s *sandbox) SetEgress(engine.Egress) {}

// Hold returns an error: see [engine.Pauses].
func (s *sandbox) Hold(context.Context) error { return s.lacks(engine.Pauses) }

// Save returns an error: see [engine.SavedFiles].
func (s *sandbox) Save(context.Context, string) error { return s.lacks(engine.SavedFiles) }

// SaveLayer returns an error: see [engine.SharedLayers].
func (s *sandbox) SaveLayer(context.Context, string) (func() error, error) {
	return nil, s.lacks(engine.SharedLayers)
}

// Resize returns an error, because the engine cannot resize running sandboxes.
func (s *sandbox) Resize(context.Context, engine.Limits) error {
	return engine.Lackf(engine.Resizes, "%s", noResize)
}

// SaveMemory returns an error that matches [errors.ErrUnsupported].
func (s *sandbox) SaveMemory(context.Context, string) error {
	return fmt.Errorf("%w: %w", errors.ErrUnsupported, s.lacks(engine.SavedMemory))
}

func (s *sandbox) lacks(f engine.Feature) error {
	return fmt.Errorf("kubernetes: %w", s.engine.promises().Check(f))
}

// Memory returns 0: only the cluster's metrics contain the memory usage.
func (s *sandbox) Memory() int64 { return 0 }

// Usage returns false: only the cluster's metrics contain the usage.
func (s *sandbox) Usage() (engine.Usage, bool) { return engine.Usage{}, false }
