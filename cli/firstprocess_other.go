//go:build !linux

package cli

// firstProcess does nothing: only Linux has containers.
func firstProcess() (status int, isFirst bool) { return 0, false }
