//go:build !linux

package volumes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
)

// Volumes exist only on Linux, because engines on other systems could not use them.

var errNone = fmt.Errorf("volumes need Linux, and no engine of this system has them: %w", errors.ErrUnsupported)

func sweep(context.Context, string) error { return nil }

func makeImage(context.Context, string, int64) error { return errNone }

// CheckSize returns errors.ErrUnsupported if a size is set.
func (r *Registry) CheckSize(context.Context) error {
	if r.size != 0 {
		return errNone
	}
	return nil
}

type mounts struct{}

func (mounts) end() {}

func (*Registry) enter(v *volume) (string, error) { return v.dir, nil }

func (*Registry) leave(*volume) error { return nil }

func (*Registry) clone(*volume) (*os.File, error) { return nil, errNone }

func (ids) setAttributes(*os.File, Owner, uint32) error { return errNone }

// Stat returns errors.ErrUnsupported.
func (*Content) Stat(string) (Entry, error) { return Entry{}, errNone }

// SetAttributes returns errors.ErrUnsupported.
func (*Content) SetAttributes(string, Attributes) (Entry, error) {
	return Entry{}, errNone
}

// List returns errors.ErrUnsupported.
func (*Content) List(context.Context, string, int) ([]Entry, error) {
	return nil, errNone
}

// Read returns errors.ErrUnsupported.
func (*Content) Read(string) (io.ReadCloser, Entry, error) {
	return nil, Entry{}, errNone
}

// Write returns errors.ErrUnsupported.
func (*Content) Write(string, io.Reader, Attributes, bool) (Entry, error) {
	return Entry{}, errNone
}

// MakeDir returns errors.ErrUnsupported.
func (*Content) MakeDir(string, Attributes, bool) (Entry, error) {
	return Entry{}, errNone
}

// Remove returns errors.ErrUnsupported.
func (*Content) Remove(context.Context, string) error { return errNone }
