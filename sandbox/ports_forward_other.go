//go:build !unix

package sandbox

import "net"

// stopListening does nothing: only on Unix does a starting process hold copies of its parent's
// descriptors.
func stopListening(net.Listener) {}
