//go:build linux

package room

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/layer"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/saved"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
)

// CheckLayers returns the [engine.LackError] of SharedLayers if directories in dir cannot be
// layers. To find out, it makes two layers and reads their files in the same way as a sandbox.
func (r *Room) CheckLayers(ctx context.Context, dir string) error {
	if err := r.checkLayers(ctx, dir); err != nil {
		return fmt.Errorf("room: try layers in %s: %w", dir, err)
	}
	return nil
}

func (r *Room) checkLayers(ctx context.Context, dir string) error {
	if err := r.haveLayers(); err != nil {
		return err
	}
	try, err := os.MkdirTemp(dir, "try-layers-")
	if err != nil {
		return err
	}
	_, err = r.runLayers(ctx, try, wire.LayersSpec{}, &wire.Files{})
	if err != nil && ctx.Err() == nil && !errors.Is(err, &engine.LackError{Feature: engine.SharedLayers}) {
		err = engine.Lackf(engine.SharedLayers, "%w", err)
	}
	return errors.Join(err, os.RemoveAll(try))
}

// haveLayers returns an error if sandboxes of this room cannot have layers.
func (r *Room) haveLayers() error { return r.report.Promises.Check(engine.SharedLayers) }

// unpack makes the trees of a layer in dir from the output of [saved.Write] with a layout. It reads
// all of the file from.
func (r *Room) unpack(ctx context.Context, dir, layout string, from *os.File) (layer.Manifest, error) {
	ready, err := r.runLayers(ctx, dir, wire.LayersSpec{Layout: layout}, wire.Lent(wire.FileSaved, from))
	return layer.Manifest{Layout: r.layout(), Whole: layout == r.layout(), Trees: ready.Trees}, err
}

// Merge merges layers into one layer in dir. The lowest layer is the first. dir must be empty and on
// the same mount as the layers. Merge does not copy files, but makes hard links to them.
func (r *Room) Merge(ctx context.Context, layers []string, dir string) error {
	if err := r.merge(ctx, layers, dir); err != nil {
		return fmt.Errorf("room: make one layer of %d in %s: %w", len(layers), dir, err)
	}
	return nil
}

func (r *Room) merge(ctx context.Context, layers []string, dir string) error {
	if err := r.haveLayers(); err != nil {
		return err
	}
	if len(layers) == 0 {
		return errors.New("there are none")
	}
	if err := checkClean(dir); err != nil {
		return err
	}
	manifests, err := r.readLayers(layers, false)
	if err != nil {
		return err
	}
	m := layer.Manifest{Layout: r.layout(), Whole: manifests[0].Whole, Trees: []string{""}}
	for _, l := range manifests {
		for _, path := range l.Trees {
			if !slices.Contains(m.Trees, path) {
				m.Trees = append(m.Trees, path)
			}
		}
	}
	top, below := together(append([]string{dir}, layers...))
	spec := wire.LayersSpec{}
	for n, path := range m.Trees {
		tree := wire.MergeSpec{To: below(dir, layer.Trees, strconv.Itoa(n)), Below: !m.Whole || path != ""}
		for i, l := range slices.Backward(manifests) {
			if at := slices.Index(l.Trees, path); at >= 0 {
				tree.From = append(tree.From, below(layers[i], layer.Trees, strconv.Itoa(at)))
			}
		}
		spec.Merge = append(spec.Merge, tree)
	}
	if err := os.Mkdir(filepath.Join(dir, layer.Trees), 0o755); err != nil {
		return err
	}
	if _, err := r.runLayers(ctx, top, spec, &wire.Files{}); err != nil {
		return err
	}
	return m.Write(dir)
}

// together returns the directory that contains all of paths, and a function that returns a path
// relative to that directory.
func together(paths []string) (top string, below func(parts ...string) string) {
	top = commonParent(paths)
	return top, func(parts ...string) string {
		path, _ := filepath.Rel(top, filepath.Join(parts...)) // both are absolute
		return path
	}
}

// commonParent returns the directory that contains all of paths.
func commonParent(paths []string) string {
	parent := filepath.Dir(paths[0])
	for _, path := range paths[1:] {
		for !strings.HasPrefix(path, strings.TrimSuffix(parent, "/")+"/") {
			parent = filepath.Dir(parent)
		}
	}
	return parent
}

func checkClean(dir string) error {
	if !filepath.IsAbs(dir) || filepath.Clean(dir) != dir {
		return fmt.Errorf("%q is not a clean absolute path", dir)
	}
	return nil
}

// readLayers reads the manifests of layers. With forUse it also checks that a sandbox can have
// these layers together.
func (r *Room) readLayers(dirs []string, forUse bool) (manifests []layer.Manifest, err error) {
	for i, dir := range dirs {
		var m layer.Manifest
		err := checkClean(dir)
		if err == nil {
			m, err = r.manifests.read(dir)
		}
		if err == nil && m.Layout != r.layout() {
			err = fmt.Errorf("%w: with %s, and here there are sandboxes with %s", saved.ErrLayout, m.Layout, r.layout())
		}
		if err == nil && forUse && m.Whole != (i == 0) {
			err = errors.New("it is not on the layers that it was made on")
		}
		if err != nil {
			return nil, fmt.Errorf("layer %s: %w", dir, err)
		}
		manifests = append(manifests, m)
	}
	return manifests, nil
}

// mountLayers makes a mount of each layer for the sandbox whose first process is pid. It makes the
// mounts in the same way as mountVolumes.
func (s *Sandbox) mountLayers(pid int, files *wire.Files) (layers []wire.Layer, err error) {
	if len(s.options.Layers) == 0 {
		return nil, nil
	}
	manifests, err := s.room.readLayers(s.options.Layers, true)
	if err != nil {
		return nil, err
	}
	for i, m := range manifests {
		if s.options.Image != nil && len(m.Trees) > 1 {
			return nil, fmt.Errorf("layer %s: it was made in a sandbox that is not of an image: it has changes of %s of this machine", s.options.Layers[i], m.Trees[1])
		}
		layers = append(layers, wire.Layer{Dir: filepath.Join(s.options.Layers[i], layer.Trees), Trees: m.Trees})
	}
	if !s.room.ranged() {
		return layers, nil
	}
	ids, err := openUserNamespace(pid)
	if err != nil {
		return nil, err
	}
	defer ids.Close()
	for i := range layers {
		mount, err := mapDirectory(layers[i].Dir, ids, wire.LayerAttributes, engine.SharedLayers)
		if err != nil {
			return nil, err
		}
		files.Add(wire.FileLayer.Numbered(i), mount)
		layers[i].Dir = ""
	}
	return layers, nil
}

// runLayers starts the process that makes layers in dir, and waits for it. The process has the ids
// of a sandbox, and a mount of dir that maps these ids to the ids that start at 0. So it has no
// rights over any other file of the host.
func (r *Room) runLayers(ctx context.Context, dir string, spec wire.LayersSpec, files *wire.Files) (wire.Message, error) {
	if err := checkClean(dir); err != nil {
		return wire.Message{}, err
	}
	slot, err := r.roster.takeSlot()
	if err != nil {
		return wire.Message{}, err
	}
	defer r.roster.releaseSlot(slot)
	h, err := r.startHelper(slot, syscall.CLONE_NEWUSER|syscall.CLONE_NEWNS)
	if err != nil {
		return wire.Message{}, err
	}
	defer h.end()
	spec.Dir = dir
	if r.ranged() {
		spec.Ranged = true
		ids, err := openUserNamespace(h.process.Cmd.Process.Pid)
		if err != nil {
			return wire.Message{}, err
		}
		defer ids.Close()
		mount, err := mapDirectory(dir, ids, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC, engine.SharedLayers)
		if err != nil {
			return wire.Message{}, err
		}
		defer mount.Close()
		files.Lend(wire.FileDirectory, mount)
		spec.Dir = ""
	}
	return h.run(ctx, wire.RoleLayers, spec, files)
}
