//go:build !linux

package refusetest

import "errors"

// Refuse returns an error: only Linux can refuse calls at a process's own request.
func Refuse(string) error { return errors.ErrUnsupported }
