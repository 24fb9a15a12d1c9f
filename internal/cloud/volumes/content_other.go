//go:build !linux

package volumes

import (
	"context"
	"errors"
	"io"
	"os"
)

// Systems without a local cloud have no volumes.

func sweep(context.Context, string) error { return nil }

func makeImage(context.Context, string, int64) error { return errors.ErrUnsupported }

// CheckSize returns errors.ErrUnsupported if there is a size.
func (r *Registry) CheckSize(context.Context) error {
	if r.size != 0 {
		return errors.ErrUnsupported
	}
	return nil
}

type mounts struct{}

func (mounts) end() {}

func (*Registry) enter(v *volume) (string, error) { return v.dir, nil }

func (*Registry) leave(*volume) error { return nil }

func (*Registry) clone(*volume) (*os.File, error) { return nil, errors.ErrUnsupported }

func (ids) give(*os.File, Owner, uint32) error { return nil }

// Stat returns errors.ErrUnsupported.
func (*Content) Stat(string) (Entry, error) { return Entry{}, errors.ErrUnsupported }

// SetAttributes returns errors.ErrUnsupported.
func (*Content) SetAttributes(string, Attributes) (Entry, error) {
	return Entry{}, errors.ErrUnsupported
}

// List returns errors.ErrUnsupported.
func (*Content) List(context.Context, string, int) ([]Entry, error) {
	return nil, errors.ErrUnsupported
}

// Read returns errors.ErrUnsupported.
func (*Content) Read(string) (io.ReadCloser, Entry, error) {
	return nil, Entry{}, errors.ErrUnsupported
}

// Write returns errors.ErrUnsupported.
func (*Content) Write(string, io.Reader, Attributes, bool) (Entry, error) {
	return Entry{}, errors.ErrUnsupported
}

// MakeDir returns errors.ErrUnsupported.
func (*Content) MakeDir(string, Attributes, bool) (Entry, error) {
	return Entry{}, errors.ErrUnsupported
}

// Remove returns errors.ErrUnsupported.
func (*Content) Remove(context.Context, string) error { return errors.ErrUnsupported }
