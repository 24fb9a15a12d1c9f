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
