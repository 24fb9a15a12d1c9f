//go:build linux

package inside

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/counter"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// exists reports whether path exists. It follows links.
func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// stagingDirectory returns a directory of the host over which this process mounts the staging file
// system. All other processes still see the directory unchanged.
func stagingDirectory() (string, error) {
	for _, dir := range []string{"/tmp", "/mnt", "/var", "/usr"} {
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			return dir, nil
		}
	}
	return "", errors.New("no directory to build the sandbox in")
}

// openTrees returns each tree as a separate detached mount. If the server has made a mount of a tree,
// openTrees uses that mount, because the server may be able to read trees that this process cannot
// read.
func openTrees(spec *wire.InitSpec, passed *wire.Files) (trees []*os.File, err error) {
	if len(spec.Mounted) != len(spec.Trees) {
		return nil, fmt.Errorf("%w: %d trees and %d marks", wire.ErrProtocol, len(spec.Trees), len(spec.Mounted))
	}
	trees = make([]*os.File, len(spec.Trees))
	for i, path := range spec.Trees {
		if spec.Mounted[i] {
			if trees[i], err = passed.TakeAt(wire.FileTree, i); err != nil {
				return nil, fmt.Errorf("the mount of %s: %w", path, err)
			}
			continue
		}
		fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
		if err != nil {
			return nil, fmt.Errorf("open %s: %w", path, os.NewSyscallError("open_tree", err))
		}
		trees[i] = os.NewFile(uintptr(fd), path)
	}
	return trees, nil
}

// mountTree mounts a writable overlay of the tree at the tree's own path. The overlay includes the
// layers' changes to the tree, and hides the private files of the tree. If the kernel refuses an
// overlay, mountTree mounts the tree read-only, and adds a note.
func (b *built) mountTree(i int, spec *wire.InitSpec, tree *os.File, private []string) error {
	path := spec.Trees[i]
	n := strconv.Itoa(i)
	lower, upper, work, target := filepath.Join("lower", n), filepath.Join("upper", n), filepath.Join("work", n), filepath.Join("root", path)
	if err := errors.Join(os.Mkdir(lower, 0o755), os.Mkdir(work, 0o755)); err != nil {
		return err
	}
	layers := inLayers(spec.Layers, path)
	if err := b.fillUpper(spec, path, tree, layers, upper); err != nil {
		return err
	}
	// New parent directories are traversable and empty: the other files that the host has beside
	// the tree are not shown.
	if err := b.makeReal(path, 0o755); err != nil {
		return err
	}
	if tree != nil {
		defer tree.Close()
		if err := unix.MoveMount(int(tree.Fd()), "", unix.AT_FDCWD, lower, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return fmt.Errorf("attach: %w", os.NewSyscallError("move_mount", err))
		}
	}
	hidden := upper
	if len(layers) > 0 && len(private) > 0 { // a layer's file at such a path is the sandbox's own
		hidden = filepath.Join("hidden", n)
		if err := os.MkdirAll(hidden, 0o755); err != nil {
			return err
		}
		layers = append(layers, hidden)
	}
	if err := whiteOut(lower, hidden, private); err != nil {
		return err
	}
	overlay := mountOverlay(target, append(layers, lower), upper, work)
	if overlay == nil || len(layers) > 0 || b.restored[path] { // saved or layered changes would be invisible without an overlay
		return overlay
	}
	if err := unix.MountSetattr(unix.AT_FDCWD, lower, unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
		return fmt.Errorf("overlay: %w; make read-only: %w", overlay, err)
	}
	if err := unix.Mount(lower, target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("overlay: %w; bind: %w", overlay, err)
	}
	for _, name := range private {
		if err := cover(filepath.Join(target, name)); err != nil {
			return fmt.Errorf("overlay: %w; hide %s: %w", overlay, name, err)
		}
	}
	b.notes = append(b.notes, fmt.Sprintf("%s is read-only: overlay: %v", path, overlay))
	return nil
}

// fillUpper makes the upper directory of a tree, unless it was restored.
func (b *built) fillUpper(spec *wire.InitSpec, path string, tree *os.File, layers []string, upper string) error {
	if b.restored[path] {
		return nil
	}
	if len(layers) > 0 {
		return makeUpper(upper, layers[0])
	}
	return fillUpper(spec, path, tree, upper)
}

// fillUpper makes the upper directory of an unchanged tree.
func fillUpper(spec *wire.InitSpec, path string, tree *os.File, upper string) error {
	info, err := tree.Stat()
	if err != nil {
		return err
	}
	if err := os.Mkdir(upper, 0o755); err != nil {
		return err
	}
	// The merged root has the attributes of the upper directory, and must be
	// traversable.
	if err := os.Chmod(upper, info.Mode().Perm()|0o555); err != nil {
		return err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Uid == protocol.UserID {
		if err := os.Chown(upper, protocol.UserID, protocol.UserID); err != nil {
			return err
		}
	}
	switch path {
	case "/usr":
		return errors.Join(openLocal(upper), addSudo(upper, spec.Ranged))
	case guest.PackageTree:
		return openDpkg(upper)
	}
	return nil
}

// Files in /proc that describe or control the whole machine.
var (
	procHidden = []string{
		"kcore", "keys", "timer_list", "sched_debug", "latency_stats", "sysrq-trigger", "kmsg",
		"acpi", "scsi", "asound", "bus", "driver",
	}
	// sys comes last because boot_id is mounted below it. A sandbox that was warm lists its mounts
	// in the order of the directory tree, and every other sandbox in the order of mounting. With
	// sys last, both lists are equal.
	procReadOnly = []string{"fs", "irq", "tty", "sys"}
)

// cover mounts an empty file or directory over path. If path does not exist, cover does nothing.
func cover(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.IsDir() {
		return unix.Mount("tmpfs", path, "tmpfs", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "size=0,mode=0555")
	}
	return unix.Mount("root/dev/null", path, "", unix.MS_BIND, "")
}

func mountProc(maxima counter.Maxima) error {
	if err := unix.Mount("proc", "root/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	// This lets services on ports below 1024, and ping, work without capabilities. A missing file
	// belongs to a feature that this kernel does not have.
	for name, value := range map[string]string{"ipv4/ip_unprivileged_port_start": "0", "ipv4/ping_group_range": "0 0"} {
		if err := os.WriteFile("root/proc/sys/net/"+name, []byte(value), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("set %s: %w", name, err)
		}
	}
	if err := maxima.Write("root"); err != nil {
		return err
	}
	for _, name := range procHidden {
		if err := cover("root/proc/" + name); err != nil {
			return fmt.Errorf("hide /proc/%s: %w", name, err)
		}
	}
	for _, name := range procReadOnly {
		path := "root/proc/" + name
		if !exists(path) {
			continue
		}
		if err := unix.Mount(path, path, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("bind /proc/%s: %w", name, err)
		}
		if err := unix.MountSetattr(unix.AT_FDCWD, path, unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
			return fmt.Errorf("make /proc/%s read-only: %w", name, err)
		}
	}
	return nil
}
