//go:build linux && !amd64 && !arm64

package room

import (
	"errors"
	"runtime"
)

// applySeccomp has no list for this architecture; without one nothing starts.
func applySeccomp(bool) error {
	return errors.New("no seccomp filter for " + runtime.GOARCH)
}

// seccompBytes is not reached: nothing starts.
func seccompBytes(bool) []byte { return nil }
