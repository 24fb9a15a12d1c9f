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
	// Alias is the template's first name; empty if the template has no name.
	Alias string
	State SandboxState
	// StartedAt is the time of the sandbox's start or last resume.
	StartedAt time.Time
	// EndAt is the end of the sandbox's lifetime. For a paused sandbox it is the time of the
	// pause.
	EndAt       time.Time
	CPUs        int
	MemoryBytes int64
	DiskBytes   int64
	EnvdVersion string
	Metadata    map[string]string
	// EnvdUnresponsiveAtPause reports whether envd, the daemon inside, did not answer when the
	// sandbox was paused with its memory. Only [WithReboot] resumes such a sandbox.
	EnvdUnresponsiveAtPause bool

	// The fields below are not set in a list, except VolumeMounts.

	// PauseMode reports which parts of the sandbox the pause kept. It is empty while the sandbox runs,
	// or if an older service does not report it.
	PauseMode PauseMode
	// Lifecycle describes the end of the lifetime; nil if the service does not report it.
	Lifecycle *Lifecycle
	// AccessToken is the token of envd; empty if the sandbox is not secured.
	AccessToken Key
	// AllowInternetAccess reports whether the internet is allowed. Nil means that this was never set;
	// access is then allowed.
	AllowInternetAccess *bool
	// Network contains the network rules; nil if they were never set. Its DenyOut lists the
	// networks that DenyPrivate added.
	Network *Network
	// Asks reports whether the service asks a client about hosts that no rule mentions: see [WithAsk].
	Asks bool
	// VolumeMounts are the volumes in the sandbox, with their paths.
	VolumeMounts []VolumeMount
	// Engine is the engine of a local cloud that runs the sandbox, such as "room".
	Engine api.Engine
	// Mounts are the directories of the local cloud's machine that the sandbox can see, except
	// the cloud's Pyodide distribution.
	Mounts []Mount
	// Idle is the time without use after which the sandbox ends or is paused; zero means that there is no
	// such limit. See [Expiry].
	Idle time.Duration
	// Image is the container image whose files the sandbox began with; empty means that it is unknown
	// or that there is none.
	Image  string
	Domain string
}

// Lifecycle describes the end of a sandbox's lifetime.
type Lifecycle struct {
	OnTimeout OnTimeout
	// AutoResume reports whether a request to the paused sandbox resumes it.
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
		VolumeMounts: allAs(i.VolumeMounts, volumeMountOf), Engine: i.Engine, Mounts: allAs(i.Mounts, mountOf), Idle: i.IdleTimeout, Image: i.Image, Domain: i.Domain,
	}
}

// networkOf converts rules of the API to a Network. It is the inverse of wire.
func networkOf(w *api.Egress) *Network {
	if w == nil {
		return nil
	}
	n := &Network{AllowOut: slices.Clone(w.AllowOut), DenyOut: slices.Clone(w.DenyOut), DNSServers: slices.Clone(w.DNSServers), EgressProxy: egressProxyOf(w.EgressProxy)}
	for host, rules := range w.Rules {
		n.addRules(host, rules)
	}
	return n
}

// addRules adds the rules of the API for a host. A rule without requests is one for headers.
func (n *Network) addRules(host string, rules []api.NetworkRule) {
	headers, requests := map[string]string{}, allAs(rules, func(r api.NetworkRule) []RequestRule {
		return allAs(r.Requests, func(one api.NetworkRequest) RequestRule { return RequestRule{slices.Clone(one.Methods), one.Path} })
	})
	for _, rule := range rules {
		if rule.Transform != nil {
			maps.Copy(headers, rule.Transform.Headers)
		}
	}
	if all := slices.Concat(requests...); len(all) > 0 {
		if n.Requests == nil {
			n.Requests = map[string][]RequestRule{}
		}
		if n.Requests[host] = all; len(headers) == 0 {
			return
		}
	}
	if n.Headers == nil {
		n.Headers = map[string]map[string]string{}
	}
	n.Headers[host] = headers
}

// ListParams filters a list of sandboxes. The zero value selects all sandboxes.
type ListParams struct {
	// Metadata lists labels that a sandbox must have, with exactly these values.
	Metadata map[string]string
	// States lists the states to return; empty means all.
	States []SandboxState
	// Template is the id or a name of a template, without a tag. Empty means all templates.
	Template string
	// PageSize limits the entries of a page, 1 to 100. Zero means the service's default, 100.
	PageSize int
	// NextToken is the token of the page to return; empty means the first page.
	NextToken string
}
