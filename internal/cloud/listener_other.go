//go:build !linux

package cloud

// listenerOn returns "", because the process that listens on an address can be found only on Linux.
func listenerOn(string) string { return "" }
