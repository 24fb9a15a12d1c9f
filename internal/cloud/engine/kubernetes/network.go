package kubernetes

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/e2bctl/e2bctl/internal/cloud/network"
)

// deniedNetworks returns the networks that the installer closes. They are arguments of the
// installer. In these networks, pods reach only their DNS servers.
func (e *Engine) deniedNetworks() []string {
	if e.options.TrustNetworkPolicy {
		return nil
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
