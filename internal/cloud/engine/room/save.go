//go:build linux

package room

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/layer"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
)

// savedName is the name of the file in a directory of saved files.
const savedName = "files"

var errNotFrozen = errors.New("it is not frozen, so its files may change")

// Save writes the files written in the sandbox to dir, and syncs them. The sandbox must be frozen.
// It stays frozen even if Save fails. Save omits the content of /dev, sockets and shared memory.
// See package saved.
func (s *Sandbox) Save(ctx context.Context, dir string) error {
	if err := s.whileFrozen(ctx, func(ctx context.Context) error { return s.save(ctx, dir) }); err != nil {
		return fmt.Errorf("room: save the files of sandbox %s to %s: %w", s.options.ID, dir, err)
	}
	return nil
}

// SaveLayer makes a layer in dir from the files written in the sandbox. It saves the same files as
// [Sandbox.Save]. The files are written once: one process saves them and streams them to the
// process that makes the layer.
func (s *Sandbox) SaveLayer(ctx context.Context, dir string) (complete func() error, err error) {
	failed := func(err error) error {
		if err == nil {
			return nil
		}
		return fmt.Errorf("room: make a layer of the files of sandbox %s in %s: %w", s.options.ID, dir, err)
	}
	if err := s.room.haveLayers(); err != nil {
		return nil, failed(err)
	}
	var made layer.Manifest
	err = s.whileFrozen(ctx, func(ctx context.Context) (err error) {
		made, err = s.saveLayer(ctx, dir)
		return err
	})
	return func() error { return failed(made.Write(dir)) }, failed(err)
}

// whileFrozen calls save with a context that ends with ctx or the sandbox. save must return when
// this context ends. The sandbox does not thaw until save returns.
func (s *Sandbox) whileFrozen(ctx context.Context, save func(context.Context) error) error {
	end, err := s.pause.standstill.Turn(ctx)
	if err != nil {
		return err
	}
	defer end()
	if !s.pause.standstill.Stopped() {
		return errNotFrozen
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-s.life.done:
			cancel(engine.ErrGone)
		case <-ended:
		}
	}()
	err = save(ctx)
	if s.life.err() != nil && err != nil {
		return engine.ErrGone
	}
	return err
}

func (s *Sandbox) save(ctx context.Context, dir string) error {
	name := filepath.Join(dir, savedName)
	to, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	err = errors.Join(s.runSaver(ctx, to), to.Close())
	if err == nil {
		err = syncDirectory(dir)
	}
	if err != nil {
		return errors.Join(err, os.Remove(name))
	}
	return nil
}

func (s *Sandbox) saveLayer(ctx context.Context, dir string) (made layer.Manifest, err error) {
	read, write, err := layerPipe()
	if err != nil {
		return made, err
	}
	// Each side ends the other one if it fails. Its end of the pipe stays open until then, so that
	// the other side does not fail first with a broken pipe.
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var saving sync.WaitGroup
	saving.Go(func() {
		defer write.Close()
		if err := s.runSaver(ctx, write); err != nil {
			fail(err)
		}
	})
	if made, err = s.room.unpack(ctx, dir, s.savedLayout(), read); err != nil {
		fail(err)
	}
	read.Close()
	saving.Wait()
	return made, context.Cause(ctx)
}

// runSaver starts the process that writes the files, and waits for it.
func (s *Sandbox) runSaver(ctx context.Context, to *os.File) error {
	trees, _ := s.ofHost()
	spec := wire.SaveSpec{Layout: s.savedLayout(), Layered: len(s.options.Layers) > 0, Trees: slices.Concat(trees, s.files.lost)}
	var files wire.Files
	defer files.Close()
	namespaces, err := s.room.runner.addSaved(s, &spec, &files)
	if err != nil {
		return err
	}
	h, err := s.room.startHelper(s.slot, namespaces)
	if err != nil {
		return err
	}
	defer h.end()
	files.Lend(wire.FileTo, to)
	_, err = h.run(ctx, wire.RoleSaver, spec, &files)
	return err
}

// savedLayout returns the layout of the sandbox's saved files. The files that the sandbox saves and
// the files that were restored into it have this layout.
func (s *Sandbox) savedLayout() string {
	if len(s.options.Layers) > 0 {
		return s.room.layoutAbove()
	}
	return s.room.layout()
}

// layout identifies the layout of saved files.
func (r *Room) layout() string { return r.runner.layout() }

// layoutAbove identifies the layout of the files that are saved from sandboxes with layers.
func (r *Room) layoutAbove() string { return r.layout() + ", above layers" }

// openSaved opens the saved files in a directory.
func openSaved(dir string) (*os.File, error) {
	f, err := os.Open(filepath.Join(dir, savedName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s has no saved files: %w", dir, err)
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
