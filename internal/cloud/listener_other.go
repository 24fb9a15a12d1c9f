//go:build !linux

package cloud

// listenerOn returns "", because it can find the process that listens on an address only on
// Linux.
func listenerOn(string) string { return "" }
