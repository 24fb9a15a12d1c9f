//go:build linux

package inside

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/layer"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/saved"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// runLayers makes a layer. If the spec is empty, it only tests whether it could make a layer. This
// process has the ids of a sandbox. These ids own the files in the mount of the layer's directory,
// and the process has rights over these files only.
func runLayers(c *wire.Conn, raw json.RawMessage, files *wire.Files) error {
	var spec wire.LayersSpec
	if err := wire.DecodeSpec(raw, &spec); err != nil {
		return err
	}
	unix.Umask(0) // modes are used as written
	dir, err := openLayerDirectory(spec.Dir, files)
	if err != nil {
		return err
	}
	from, err := files.TakeWhen(spec.Layout != "", wire.FileSaved)
	if err == nil && spec.Tar != nil {
		from, err = files.Take(wire.FileTar)
	}
	if err == nil {
		err = files.End()
	}
	if err != nil {
		return err
	}
	ready := wire.Message{Kind: wire.KindReady}
	switch {
	case spec.Layout != "":
		ready.Trees, err = unpack(dir, from, spec.Layout)
	case spec.Tar != nil:
		err = untar(dir, from, *spec.Tar)
	case len(spec.Merge) > 0:
		err = merge(dir, spec.Merge)
	default:
		err = tryLayers(dir, spec.Ranged)
	}
	if err != nil {
		return err
	}
	return c.Send(ready)
}

// openLayerDirectory returns the directory of a layer as a detached mount.
func openLayerDirectory(path string, passed *wire.Files) (*os.File, error) {
	if path == "" {
		return passed.Take(wire.FileDirectory)
	}
	fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("clone the mount of %s: %w", path, err)
	}
	return os.NewFile(uintptr(fd), path), nil
}

// unpack makes the trees of a layer in dir from saved files.
func unpack(dir, from *os.File, layout string) (trees []string, err error) {
	if err := unix.Fchdir(int(dir.Fd())); err != nil {
		return nil, os.NewSyscallError("fchdir", err)
	}
	if err := os.Mkdir(layer.Trees, 0o755); err != nil {
		return nil, err
	}
	err = readSaved(from, ".", "the disk of the layer", saved.Options{Layout: layout, Place: func(name string) (saved.Place, error) {
		at := filepath.Join(layer.Trees, strconv.Itoa(len(trees)))
		if err := os.Mkdir(at, 0o700); err != nil {
			return saved.Place{}, err
		}
		trees = append(trees, name)
		to, err := os.Open(at)
		return saved.Place{Dir: to}, err
	}})
	if err != nil {
		return nil, err
	}
	if len(trees) == 0 || trees[0] != "" {
		return nil, fmt.Errorf("%w: they have no root", saved.ErrDamaged)
	}
	root, err := layer.OpenDir(dir, filepath.Join(layer.Trees, "0"))
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return trees, freeNames(root)
}

func merge(dir *os.File, all []wire.MergeSpec) error {
	for _, spec := range all {
		if err := mergeTree(dir, spec); err != nil {
			return err
		}
	}
	return nil
}

func mergeTree(dir *os.File, spec wire.MergeSpec) error {
	var from []*os.File
	defer func() { wire.CloseAll(from) }()
	for _, path := range spec.From {
		f, err := layer.OpenDir(dir, path)
		if err != nil {
			return err
		}
		from = append(from, f)
	}
	if err := unix.Mkdirat(int(dir.Fd()), spec.To, 0o700); err != nil {
		return &os.PathError{Op: "mkdir", Path: spec.To, Err: err}
	}
	to, err := layer.OpenDir(dir, spec.To)
	if err != nil {
		return err
	}
	defer to.Close()
	return layer.Merge(to, from, spec.Below)
}

// tryLayers makes two layers in dir, and checks their files through an overlay, in the same way as a
// sandbox uses layers.
func tryLayers(dir *os.File, ranged bool) error {
	if err := unix.Fchdir(int(dir.Fd())); err != nil {
		return os.NewSyscallError("fchdir", err)
	}
	for _, name := range []string{"lower", "lower/opaque", "upper", "upper/opaque"} {
		if err := os.Mkdir(name, 0o700); err != nil {
			return err
		}
	}
	for _, name := range []string{"lower/removed", "lower/opaque/removed", "lower/kept"} {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			return err
		}
	}
	if ranged {
		if err := os.Chown("lower/kept", protocol.UserID, protocol.UserID); err != nil {
			return err
		}
	}
	if err := unix.Mknod("upper/removed", unix.S_IFCHR, 0); err != nil {
		return fmt.Errorf("note that a file was removed: %w", err)
	}
	if err := unix.Setxattr("upper/opaque", "user.overlay.opaque", []byte("y"), 0); err != nil {
		return fmt.Errorf("note that a directory was replaced: %w", err)
	}
	return lookThrough(dir)
}

// lookThrough mounts an overlay of tryLayers's layers.
func lookThrough(dir *os.File) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	stage, err := stagingDirectory()
	if err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", stage, "tmpfs", unix.MS_NODEV, ""); err != nil {
		return fmt.Errorf("mount tmpfs: %w", err)
	}
	if err := os.Chdir(stage); err != nil {
		return err
	}
	for _, name := range []string{"layers", "upper", "work", "root"} {
		if err := os.Mkdir(name, 0o755); err != nil {
			return err
		}
	}
	if err := unix.MoveMount(int(dir.Fd()), "", unix.AT_FDCWD, "layers", unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("attach: %w", err)
	}
	if err := mountOverlay("root", []string{"layers/upper", "layers/lower"}, "upper", "work"); err != nil {
		return fmt.Errorf("mount an overlay: %w", err)
	}
	if exists("root/removed") || exists("root/opaque/removed") {
		return errors.New("an overlay shows what was removed")
	}
	if err := os.WriteFile("root/kept", []byte("changed"), 0); err != nil {
		return fmt.Errorf("change a file through an overlay: %w", err)
	}
	return nil
}
