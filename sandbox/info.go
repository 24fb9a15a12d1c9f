package sandbox

import (
	"maps"
	"slices"
	"time"

	"github.com/e2bctl/e2bctl/api"
)

// Info describes a sandbox.
type Info struct {
	ID         string
	TemplateID string
	ClientID   string
	// Alias is the template's first name; empty when it has none.
	Alias string
	State SandboxState
	// StartedAt is the time when the sandbox was started or resumed.
	StartedAt time.Time
	// EndAt is the end of the sandbox's lifetime or, if it is paused, the time of the pause.
	EndAt       time.Time
	CPUs        int
	MemoryBytes int64
	DiskBytes   int64
	EnvdVersion string
	Metadata    map[string]string
	// EnvdUnresponsiveAtPause reports that envd, the daemon inside, did not answer when
	// the sandbox was paused with its memory: only [WithReboot] resumes such a sandbox.
	EnvdUnresponsiveAtPause bool

	// The fields below are not set in a list, except VolumeMounts.

	// PauseMode says which state the pause kept; empty while the sandbox runs, and on older
	// services.
	PauseMode PauseMode
	// Lifecycle is nil when the service does not say.
	Lifecycle *Lifecycle
	// AccessToken is the token of envd; empty when the sandbox is not secured.
	AccessToken Key
	// AllowInternetAccess is nil when it was never set, which means allowed.
	AllowInternetAccess *bool
	// Network is nil when it was never set. Its DenyOut has the networks that DenyPrivate
	// stands for.
	Network *Network
	// Asks reports whether the service asks about hosts that no rule names: see [WithAsk].
	Asks bool
	// VolumeMounts are the volumes of the sandbox and their directories.
	VolumeMounts []VolumeMount
	// Engine is the engine of a local cloud that runs the sandbox, such as "room".
	Engine api.Engine
	// Mounts are the directories of the machine of a local cloud that the sandbox sees,
	// except that cloud's Pyodide distribution.
	Mounts []Mount
	Domain string
}

// Lifecycle describes the end of a sandbox's lifetime.
type Lifecycle struct {
	OnTimeout OnTimeout
	// AutoResume reports whether a request for the paused sandbox resumes it.
	AutoResume bool
}

func infoOf(i api.SandboxInfo) Info {
	return Info{
		ID: i.ID, TemplateID: i.TemplateID, ClientID: i.ClientID, Alias: i.Alias,
		State: i.State, StartedAt: i.StartedAt, EndAt: i.EndAt,
		CPUs: i.CPUs, MemoryBytes: i.MemoryBytes, DiskBytes: i.DiskBytes,
		EnvdVersion: i.EnvdVersion, Metadata: i.Metadata, EnvdUnresponsiveAtPause: i.EnvdUnresponsiveAtPause,
		PauseMode: i.PauseMode, Lifecycle: (*Lifecycle)(i.Lifecycle), AccessToken: i.AccessToken,
		AllowInternetAccess: i.AllowInternetAccess, Network: networkOf(i.Egress), Asks: i.Egress != nil && i.Egress.Ask,
		VolumeMounts: allAs(i.VolumeMounts, volumeMountOf), Engine: i.Engine, Mounts: allAs(i.Mounts, mountOf), Domain: i.Domain,
	}
}

// networkOf is the opposite of wire.
func networkOf(w *api.Egress) *Network {
	if w == nil {
		return nil
	}
	n := &Network{AllowOut: slices.Clone(w.AllowOut), DenyOut: slices.Clone(w.DenyOut), DNSServers: slices.Clone(w.DNSServers), EgressProxy: egressProxyOf(w.EgressProxy)}
	for host, rules := range w.Rules {
		headers := map[string]string{}
		for _, rule := range rules {
			if rule.Transform != nil {
				maps.Copy(headers, rule.Transform.Headers)
			}
		}
		if n.Headers == nil {
			n.Headers = map[string]map[string]string{}
		}
		n.Headers[host] = headers
	}
	return n
}

// ListParams filters a list of sandboxes. The zero value means all sandboxes.
type ListParams struct {
	// Metadata has labels that must all be present, with exactly these values.
	Metadata map[string]string
	// States are the states wanted; empty means all.
	States []SandboxState
	// Template is an id or a name, without a tag.
	Template string
	// PageSize limits the entries of a page, 1 to 100. Zero means the service's default, 100.
	PageSize int
	// NextToken continues where the previous page ended.
	NextToken string
}
