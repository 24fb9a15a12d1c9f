//go:build linux

package room

import (
	"context"
	"errors"
)

// Freeze stops every process of the sandbox until Thaw.
func (s *Sandbox) Freeze(context.Context) error { return errors.ErrUnsupported }

// Thaw lets the processes of a frozen sandbox run again.
func (s *Sandbox) Thaw(context.Context) error { return errors.ErrUnsupported }

// Save copies the files that were written in the sandbox to dir.
func (s *Sandbox) Save(context.Context, string) error { return errors.ErrUnsupported }

// Memory returns the bytes of memory in use that cannot be reclaimed.
func (s *Sandbox) Memory() int64 { return 0 }
