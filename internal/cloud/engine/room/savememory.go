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
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
)

// SaveMemory writes the memory of the sandbox to dir. The sandbox must run in gVisor.
func (s *Sandbox) SaveMemory(ctx context.Context, dir string) error {
	if err := s.room.runner.saveMemory(ctx, s, dir); err != nil {
		return fmt.Errorf("room: save the memory of sandbox %s to %s: %w", s.options.ID, dir, err)
	}
	return nil
}

// Timeouts of gVisor. saveMemoryTimeout is for writing some GB of memory to a slow disk.
// holdTimeout is for stopping processes or letting them run again. If a timeout passes, the sandbox
// ends.
const (
	saveMemoryTimeout = 5 * time.Minute
	holdTimeout       = time.Minute
)

func (*gvisor) saveMemory(ctx context.Context, s *Sandbox, dir string) (err error) {
	end, err := s.pause.standstill.Turn(ctx)
	if err != nil {
		return err
	}
	defer end()
	if !s.pause.standstill.Stopped() {
		return errNotFrozen
	}
	to, err := s.openMemory(dir)
	if err != nil {
		return err
	}
	defer to.Close()
	err = s.ask(ctx, wire.KindSaveMemory, saveMemoryTimeout, wire.Lent(wire.FileMemory, to))
	if err == nil {
		err = closeMemory(dir)
	}
	if err != nil {
		return errors.Join(err, removeIn(dir))
	}
	return nil
}

// stopProcesses makes gVisor stop the processes of its sandbox. gVisor's own processes are then
// idle.
func (*gvisor) stopProcesses(ctx context.Context, s *Sandbox) (thaw func() error, err error) {
	thaw = func() error {
		if err := s.ask(context.Background(), wire.KindGoOn, holdTimeout, nil); err != nil {
			return s.lose(err)
		}
		return nil
	}
	if err := s.ask(ctx, wire.KindStop, holdTimeout, nil); err != nil {
		return nil, err
	}
	return thaw, nil
}

// lose ends a sandbox that is in a broken state.
func (s *Sandbox) lose(err error) error {
	s.life.fail(err)
	s.room.killProcess(s)
	return err
}

// ask sends a request to the process that runs gVisor, and waits for its answer. When ctx ends, ask
// cancels the request and still waits for the answer. If the answer takes longer than the duration
// within, the sandbox ends.
func (s *Sandbox) ask(ctx context.Context, kind wire.Kind, within time.Duration, files *wire.Files) error {
	s.pause.asked++
	id := s.pause.asked
	if err := s.envd.SendFiles(wire.Message{Kind: kind, ID: id}, files); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() {
		_ = s.envd.Send(wire.Message{Kind: wire.KindGiveUp, ID: id}) // if it is gone it has ended
	})()
	timeout := time.NewTimer(within)
	defer timeout.Stop()
	select {
	case m := <-s.pause.answers:
		switch {
		case m.Kind != kind:
			return s.lose(fmt.Errorf("%w: %q instead of %q", wire.ErrProtocol, m.Kind, kind))
		case m.Error != "":
			return cmp.Or(context.Cause(ctx), errors.New(m.Error))
		}
		return nil
	case <-s.life.done:
		return engine.ErrGone
	case <-timeout.C:
		return s.lose(fmt.Errorf("gVisor did not answer %q within %v", kind, within))
	}
}

// openMemory opens the directory of saved memory, and makes the first id of the sandbox the owner
// of the directory.
func (s *Sandbox) openMemory(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if s.room.ranged() {
		owner := s.room.ids.firstOf(s.slot)
		if err := f.Chown(owner, owner); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	return f, nil
}

// closeMemory changes the owner of the files in a directory to this user, and syncs the files. It
// makes the files readable by everybody, because a sandbox that begins with this memory must read
// them.
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
		return fmt.Errorf("%s is not a file", name)
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
