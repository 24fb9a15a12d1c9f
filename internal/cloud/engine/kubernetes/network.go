package kubernetes

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/e2bctl/e2bctl/internal/cloud/network"
)

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

// installerCapabilities returns the capabilities that the installer needs.
func (e *Engine) installerCapabilities() []corev1.Capability {
	if e.options.TrustNetworkPolicy {
		return nil
	}
	return []corev1.Capability{"NET_ADMIN"}
}
