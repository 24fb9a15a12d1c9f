//go:build linux

package inside

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/layer"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
)

// rootUpper is the upper directory of the root of a sandbox with layers. rootWork is the work
// directory of the root's overlay.
const rootUpper, rootWork = "upper/root", "work/root"

// openLayers returns each layer as a separate detached mount. If the layer has no path, openLayers
// uses the mount that the server made.
func openLayers(layers []wire.Layer, passed *wire.Files) (opened []*os.File, err error) {
	for i, l := range layers {
		if l.Dir == "" {
			mount, err := passed.TakeAt(wire.FileLayer, i)
			if err != nil {
				return opened, err
			}
			opened = append(opened, mount)
			continue
		}
		fd, err := unix.OpenTree(unix.AT_FDCWD, l.Dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
		if err != nil {
			return opened, fmt.Errorf("open the layer %s: %w", l.Dir, err)
		}
		opened = append(opened, os.NewFile(uintptr(fd), l.Dir))
		if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: wire.LayerAttributes}); err != nil {
			return opened, fmt.Errorf("restrict the layer %s: %w", l.Dir, err)
		}
	}
	return opened, nil
}

// attachLayers attaches the layers in the staging directory, and records the trees that exist
// only in layers.
func (b *built) attachLayers(spec *wire.InitSpec, mounts []*os.File) error {
	if len(mounts) > 0 {
		if err := os.Mkdir("layers", 0o755); err != nil {
			return err
		}
	}
	for i, mount := range mounts {
		dir := layerDirectory(i)
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
		if err := unix.MoveMount(int(mount.Fd()), "", unix.AT_FDCWD, dir, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return fmt.Errorf("attach a layer: %w", err)
		}
	}
	for _, l := range spec.Layers {
		for _, path := range l.Trees {
			if path != "" && !slices.Contains(spec.Trees, path) {
				if _, err := b.addTree(spec, path); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func layerDirectory(i int) string { return "layers/" + strconv.Itoa(i) }

// addTree adds a tree that sandboxes on this machine no longer have, such as another Python
// environment. It keeps the changes to the tree, even if most of them are useless without the tree's
// other files.
func (b *built) addTree(spec *wire.InitSpec, path string) (i int, err error) {
	if err := checkLost(spec, path); err != nil {
		return 0, err
	}
	b.noteLost(path)
	b.lost = append(b.lost, path)
	spec.Trees = append(spec.Trees, path)
	return len(spec.Trees) - 1, nil
}

// inLayers returns the layers' directories of a tree, highest first.
func inLayers(layers []wire.Layer, path string) (dirs []string) {
	for i, l := range slices.Backward(layers) {
		if n := slices.Index(l.Trees, path); n >= 0 {
			dirs = append(dirs, filepath.Join(layerDirectory(i), strconv.Itoa(n)))
		}
	}
	return dirs
}

// mountRoot mounts the root as an overlay: the layers' changes to the root are below the sandbox's
// own changes.
func (b *built) mountRoot(spec *wire.InitSpec) error {
	if err := os.Mkdir(rootWork, 0o755); err != nil {
		return err
	}
	lower := inLayers(spec.Layers, "")
	if len(lower) == 0 {
		return layer.ErrDamaged
	}
	if !b.restored[""] {
		if err := makeUpper(rootUpper, lower[0]); err != nil {
			return err
		}
	}
	if spec.Image {
		return mountImage(lower)
	}
	if err := makeMissing(rootUpper); err != nil {
		return err
	}
	return mountOverlay("root", lower, rootUpper, rootWork)
}

// makeUpper makes an upper directory with the attributes of lower, the highest directory below it.
// This is necessary because the overlay's own root has the attributes of the upper directory.
func makeUpper(upper, lower string) error {
	if err := os.Mkdir(upper, 0o700); err != nil {
		return err
	}
	from, err := os.Open(lower)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.Open(upper)
	if err != nil {
		return err
	}
	defer to.Close()
	return layer.CopyAttributes(from, to)
}

// mountOverlay mounts an overlay of lower, highest first, and upper.
func mountOverlay(target string, lower []string, upper, work string) error {
	options := "userxattr,upperdir=" + upper + ",workdir=" + work + ",lowerdir=" + strings.Join(lower, ":")
	if len(options) >= os.Getpagesize() {
		return fmt.Errorf("%d layers are more than one overlay can have", len(lower))
	}
	return unix.Mount("overlay", target, "overlay", unix.MS_NODEV, options)
}

// freeNames renames directories in a layer's /etc that have a name in madeAnew, because every start
// writes files with these names to /etc. root is the root of the layer. The directories must be
// renamed in the layer, because an overlay cannot rename directories of its lower layers.
func freeNames(root *os.File) error {
	etc, err := layer.OpenDir(root, "etc")
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return nil
	}
	if err != nil {
		return err
	}
	defer etc.Close()
	for _, name := range madeAnew {
		var stat unix.Stat_t
		if err := unix.Fstatat(int(etc.Fd()), name, &stat, unix.AT_SYMLINK_NOFOLLOW); err != nil || stat.Mode&unix.S_IFMT != unix.S_IFDIR {
			continue
		}
		if _, err := renameAway(int(etc.Fd()), name); err != nil {
			return err
		}
	}
	return nil
}
