//go:build !unix

package sandbox

import "net"

// stopListening does nothing: only on Unix does a process that is being started hold the
// descriptors of the one that starts it.
func stopListening(net.Listener) {}
