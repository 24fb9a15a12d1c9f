//go:build linux

package inside

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/layer"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
)

// untar makes the tree of a layer in dir from a layer of a container image.
func untar(dir, from *os.File, spec wire.TarSpec) error {
	o := layer.TarOptions{IDs: spec.IDs}
	defer func() { wire.CloseAll(o.Below) }()
	for _, path := range spec.Below {
		below, err := layer.OpenDir(dir, path)
		if err != nil {
			return err
		}
		o.Below = append(o.Below, below)
	}
	if err := unix.Mkdirat(int(dir.Fd()), spec.To, 0o700); err != nil {
		return &os.PathError{Op: "mkdir", Path: spec.To, Err: err}
	}
	to, err := layer.OpenDir(dir, spec.To)
	if err != nil {
		return err
	}
	defer to.Close()
	o.To = to
	if err := layer.Untar(from, o); err != nil {
		if errors.Is(err, unix.ENOSPC) {
			return fmt.Errorf("the disk is full: %w", err)
		}
		return err
	}
	return freeNames(to)
}
