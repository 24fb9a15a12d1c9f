//go:build !linux

package cloud

// listenerOn would name the process that listens on the port of an address; "": it is not
// found.
func listenerOn(string) string { return "" }
