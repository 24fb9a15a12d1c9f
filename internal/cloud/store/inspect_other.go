//go:build !linux

package store

// inspect returns no warnings on this system. Warnings exist only for file systems of Linux.
func inspect(string) ([]string, error) { return nil, nil }
