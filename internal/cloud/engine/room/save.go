//go:build linux

package room

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/spawn"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
)

// savedName is the file in a directory of saved files.
const savedName = "files"

// saveTimeout bounds a save, in case that the disk does not answer.
const saveTimeout = time.Hour

var errNotFrozen = errors.New("it is not frozen, so its files may change")

// Save writes the files that were written in the sandbox to dir, and syncs them. The
// sandbox must be frozen, and still is afterwards, whether it fails or not. What is in
// /dev, sockets and shared memory are not saved. See package saved.
func (s *Sandbox) Save(ctx context.Context, dir string) error {
	if err := s.save(ctx, dir); err != nil {
		return fmt.Errorf("room: save the files of sandbox %s to %s: %w", s.options.ID, dir, err)
	}
	return nil
}

func (s *Sandbox) save(ctx context.Context, dir string) (err error) {
	if err := s.takeTurn(ctx); err != nil {
		return err
	}
	defer s.endTurn()
	if s.pause.thaw == nil {
		return errNotFrozen
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-s.exited:
			cancel(engine.ErrGone)
		case <-ended:
		}
	}()
	name := filepath.Join(dir, savedName)
	to, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	err = errors.Join(s.runSaver(ctx, to), to.Close())
	if err == nil {
		err = syncDirectory(dir)
	}
	if s.reason.Load() != nil && err != nil {
		err = engine.ErrGone
	}
	if err != nil {
		return errors.Join(err, os.Remove(name))
	}
	return nil
}

// runSaver starts the process that writes the files, and waits for it.
func (s *Sandbox) runSaver(ctx context.Context, to *os.File) error {
	spec := wire.SaveSpec{Layout: s.room.layout(), Trees: s.room.trees}
	attr := &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	from := s.files
	if s.root == nil {
		attr.Cloneflags = syscall.CLONE_NEWUSER
		spawn.MapIDs(attr, s.room.ranged(), spawn.IDBase+spawn.FirstID(s.slot), spawn.SlotSize, os.Geteuid(), os.Getegid())
	} else {
		spec.InPlace, spec.Trees = true, nil
		if id, switched := s.room.restrictedID(s.slot); switched {
			spec.FirstID = uint32(id)
		}
		var err error
		if from, err = os.Open(s.root.Dir); err != nil {
			return err
		}
		defer from.Close()
	}
	conn, fd3, err := wire.Pair(wire.MaxMessage)
	if err != nil {
		return err
	}
	defer conn.Close()
	process, err := spawn.Start(s.room.binary, fd3, nil, attr, spawn.Placement{})
	fd3.Close()
	if err != nil {
		return fmt.Errorf("start the process that saves: %w", err)
	}
	defer process.Kill()
	if err := conn.Handshake(ctx, wire.RoleSaver, spec, from, to); err != nil {
		return fmt.Errorf("start the process that saves: %w", err)
	}
	return conn.AwaitReady(ctx, saveTimeout)
}

// layout describes the files of sandboxes, for those that others saved: only with the
// same ids and the same directories can they be restored.
func (r *Room) layout() string {
	switch {
	case r.level != engine.Full:
		return "a directory of their own"
	case r.ranged():
		return fmt.Sprintf("%d ids", spawn.SlotSize)
	}
	return "one id"
}

// openSaved opens the saved files to begin with; nil if there are none.
func (s *Sandbox) openSaved() (*os.File, error) {
	if s.options.Files == "" {
		return nil, nil
	}
	f, err := os.Open(filepath.Join(s.options.Files, savedName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s has no saved files: %w", s.options.Files, err)
	}
	return f, err
}

func syncDirectory(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
