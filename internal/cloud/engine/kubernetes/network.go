package kubernetes

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/network"
)

// checkNetwork refuses a sandbox without a network if this engine does not restrict networks.
func (e *Engine) checkNetwork(o engine.SandboxOptions) error {
	if e.options.TrustNetworkPolicy && closed(o) {
		return engine.Lackf(engine.NetworkRules, "%s", noClosing)
	}
	return nil
}

// closed reports whether a sandbox is to reach nothing.
func closed(o engine.SandboxOptions) bool { return o.Egress != nil && o.Egress.Closed() }

// deniedNetworks returns the networks that the installer closes. They are arguments of the
// installer. In these networks, pods reach only their DNS servers. If closed is set, pods reach
// nothing, and no DNS servers either.
func (e *Engine) deniedNetworks(closed bool) []string {
	if e.options.TrustNetworkPolicy {
		return nil
	}
	if closed {
		return []string{"0.0.0.0/0", "::/0"}
	}
	var networks []string
	for _, prefix := range network.NotInternet() {
		networks = append(networks, prefix.String())
	}
	return append(networks, e.options.Denied...)
}

// installerSecurity returns the rights of the installer. The image may name another user, but only root
// can have capabilities.
func (e *Engine) installerSecurity() *corev1.SecurityContext {
	no, yes, root := false, true, int64(0)
	s := &corev1.SecurityContext{
		AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes,
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
	if !e.options.TrustNetworkPolicy {
		s.RunAsUser, s.Capabilities.Add = &root, []corev1.Capability{"NET_ADMIN"}
	}
	return s
}
