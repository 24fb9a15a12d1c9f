package kubernetes

import corev1 "k8s.io/api/core/v1"

// denied are the networks that pods cannot reach, beside their DNS servers: those of the cluster, of
// its nodes and their metadata services, and every other that is not the internet. They are the
// networks that [network.Policy] denies with DenyPrivate, for whole prefixes.
var denied = []string{
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
	"192.168.0.0/16", "198.18.0.0/15", "240.0.0.0/4",
	"fc00::/7", "fe80::/10", "fec0::/10", "64:ff9b::/96", "64:ff9b:1::/48", "2002::/16",
}

// deniedNetworks returns the arguments with which the installer closes the network.
func (e *Engine) deniedNetworks() []string {
	if e.options.TrustNetworkPolicy {
		return nil
	}
	return append(append([]string{}, denied...), e.options.Denied...)
}

// installerCapabilities are those that the installer needs.
func (e *Engine) installerCapabilities() []corev1.Capability {
	if e.options.TrustNetworkPolicy {
		return nil
	}
	return []corev1.Capability{"NET_ADMIN"}
}
