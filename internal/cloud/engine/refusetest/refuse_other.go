//go:build !linux

package refusetest

import "errors"

// Refuse returns an error, because only on Linux can a process make the kernel refuse its calls.
func Refuse(string) error { return errors.ErrUnsupported }
