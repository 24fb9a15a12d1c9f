//go:build !linux

package refusetest

import "errors"

// Refuse returns an error: only Linux refuses a process what the process asks it to.
func Refuse(string) error { return errors.ErrUnsupported }
