//go:build linux

package room

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/spawn"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
)

// SaveMemory writes the memory of a sandbox that runs in gVisor to dir. gVisor can do that only
// while it runs: it is thawed, and from then on gVisor itself keeps the processes from running,
// until Thaw. It is not frozen again, because processes then crash that gVisor has stopped.
func (s *Sandbox) SaveMemory(ctx context.Context, dir string) error {
	if err := s.saveMemory(ctx, dir); err != nil {
		return fmt.Errorf("room: save the memory of sandbox %s to %s: %w", s.options.ID, dir, err)
	}
	return nil
}

// saveMemoryTimeout bounds how long it takes to write the memory: some GB, on a slow disk.
const saveMemoryTimeout = 5 * time.Minute

func (s *Sandbox) saveMemory(ctx context.Context, dir string) (err error) {
	if s.room.runsc == nil {
		return errors.ErrUnsupported
	}
	if err := s.takeTurn(ctx); err != nil {
		return err
	}
	defer s.endTurn()
	switch {
	case s.pause.thaw == nil:
		return errNotFrozen
	case s.pause.still:
		return errors.New("it has been saved since it was frozen")
	}
	to, err := s.openMemory(dir)
	if err != nil {
		return err
	}
	defer to.Close()
	if err := s.pause.thaw(); err != nil {
		return err
	}
	s.pause.thaw = nil
	still, err := s.ask(ctx, wire.KindSaveMemory, saveMemoryTimeout, to)
	if still {
		s.pause.still, s.pause.thaw = true, s.goOn
	} else {
		err = errors.Join(err, s.freezeAgain(ctx))
	}
	if err == nil {
		err = closeMemory(dir)
	}
	if err != nil {
		return errors.Join(err, removeIn(dir))
	}
	return nil
}

// freezeAgain freezes a sandbox that gVisor has not stopped, also for whoever has given up
// meanwhile.
func (s *Sandbox) freezeAgain(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), freezeTimeout, errFreezeTimeout)
	defer cancel()
	thaw, err := s.stopProcesses(ctx)
	if err != nil {
		return s.lose(err)
	}
	s.pause.thaw = thaw
	return nil
}

// lose ends a sandbox that is in no state that it could go on from.
func (s *Sandbox) lose(err error) error {
	s.fail(err)
	s.room.killProcess(s)
	return err
}

// goOn lets the processes of a sandbox run again that gVisor has stopped.
func (s *Sandbox) goOn() error {
	if _, err := s.ask(context.Background(), wire.KindGoOn, freezeTimeout); err != nil {
		return s.lose(err)
	}
	s.pause.still = false
	return nil
}

// ask has what runs gVisor do something, and waits until it has, or has given up when ctx ends. It
// reports whether gVisor keeps the processes from running now. When that takes too long the
// sandbox ends.
func (s *Sandbox) ask(ctx context.Context, kind wire.Kind, within time.Duration, files ...*os.File) (still bool, err error) {
	if err := s.envd.Send(wire.Message{Kind: kind}, files...); err != nil {
		return false, err
	}
	defer context.AfterFunc(ctx, func() {
		_ = s.envd.Send(wire.Message{Kind: wire.KindGiveUp}) // if it is gone it has ended
	})()
	timeout := time.NewTimer(within)
	defer timeout.Stop()
	select {
	case m := <-s.pause.answers:
		switch {
		case m.Kind != kind:
			return false, s.lose(fmt.Errorf("%w: %q instead of %q", wire.ErrProtocol, m.Kind, kind))
		case m.Error != "":
			return m.Still, cmp.Or(context.Cause(ctx), errors.New(m.Error))
		}
		return m.Still, nil
	case <-s.exited:
		return false, engine.ErrGone
	case <-timeout.C:
		return false, s.lose(fmt.Errorf("gVisor did not answer %q within %v", kind, within))
	}
}

// openMemory opens the directory, for the first id of the sandbox.
func (s *Sandbox) openMemory(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if s.room.ranged() {
		owner := spawn.IDBase + spawn.FirstID(s.slot)
		if err := f.Chown(owner, owner); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	return f, nil
}

// closeMemory makes what was written to a directory files of this user's that everybody can
// read who gets at them, as a sandbox does that begins with them, and syncs them.
func closeMemory(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if len(entries) == 0 {
		return errors.New("gVisor wrote nothing")
	}
	for _, e := range entries {
		if err := closeFile(filepath.Join(dir, e.Name()), e); err != nil {
			return err
		}
	}
	if err := errors.Join(os.Chown(dir, os.Getuid(), os.Getgid()), os.Chmod(dir, 0o755)); err != nil {
		return err
	}
	return syncDirectory(dir)
}

func closeFile(name string, e os.DirEntry) error {
	if !e.Type().IsRegular() {
		return fmt.Errorf("%s is no file", name)
	}
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return errors.Join(f.Chown(os.Getuid(), os.Getgid()), f.Chmod(0o444), f.Sync())
}

// removeIn empties a directory.
func removeIn(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	return err
}
