//go:build !linux

package cli

// firstProcess does nothing: only on Linux can e2bctl be the first process of a container.
func firstProcess() (status int, isFirst bool) { return 0, false }
