//go:build linux

package inside

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
)

// runMounter is the mounter: the process that can replace the file system of a warm sandbox, until
// the sandbox has an owner. Its parent is the second stage. It replaces the file system, and gets
// the tmpfs to which the sandbox writes. The new file system is built beside the old one on the same
// tmpfs, so that both share the disk limit. If no files were passed and the spec has an authority,
// runMounter only makes the sandbox's programs trust the authority. None of the sandbox's code has
// run yet.
func runMounter(c *wire.Conn, raw json.RawMessage, files *wire.Files) error {
	if err := restrictEnvd(); err != nil {
		return err
	}
	var spec wire.InitSpec
	if err := wire.DecodeSpec(raw, &spec); err != nil {
		return err
	}
	unix.Umask(0) // modes are used as written
	if files.Len() == 0 && len(spec.Authority) > 0 {
		if err := showAuthority(spec.Authority, spec.Trees); err != nil {
			return fmt.Errorf("show the certificate authority: %w", err)
		}
		return c.Send(wire.Message{Kind: wire.KindReady})
	}
	before, err := files.Take(wire.FileFiles)
	if err != nil {
		return err
	}
	b, err := rebuild(&spec, before, files)
	if err == nil {
		err = enter()
	}
	if err != nil {
		return err
	}
	if err := c.SendFiles(wire.Message{Kind: wire.KindReady, Notes: b.notes, Trees: b.lost}, wire.Lent(wire.FileFiles, b.files)); err != nil {
		return err
	}
	return leaveOldRoot() // while envd starts
}

// runEnterer moves all processes of the sandbox into the root that the first stage made. The first
// stage has not entered that root itself. None of the sandbox's code has run yet.
func runEnterer(c *wire.Conn, raw json.RawMessage, files *wire.Files) error {
	if err := restrictEnvd(); err != nil {
		return err
	}
	var spec wire.EnterSpec
	if err := wire.DecodeSpec(raw, &spec); err != nil {
		return err
	}
	if err := files.End(); err != nil {
		return err
	}
	unix.Umask(0) // modes are used as written
	stage, err := stagingDirectory()
	if err != nil {
		return err
	}
	if err := os.Chdir(stage); err != nil {
		return err
	}
	if err := finish(spec.Authority, nil); err != nil {
		return err
	}
	return c.Send(wire.Message{Kind: wire.KindReady})
}

func rebuild(spec *wire.InitSpec, before *os.File, passed *wire.Files) (*built, error) {
	p, err := openParts(spec, passed)
	if err != nil {
		return nil, err
	}
	defer p.close()
	stage, err := stagingDirectory()
	if err != nil {
		return nil, err
	}
	if err := unix.MoveMount(int(before.Fd()), "", unix.AT_FDCWD, stage, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return nil, fmt.Errorf("attach the files: %w", err)
	}
	if err := os.Chdir(stage); err != nil {
		return nil, err
	}
	const beside = "next"
	if err := errors.Join(os.Mkdir(beside, 0o755), os.Chdir(beside)); err != nil {
		return nil, err
	}
	files, err := os.Open(".")
	if err != nil {
		return nil, err
	}
	return construct(namespaces{}, spec, p, files)
}
