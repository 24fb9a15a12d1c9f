//go:build !linux

package cloud

// listenerOn names the process that listens on the port of an address; "": it cannot be found.
func listenerOn(string) string { return "" }
