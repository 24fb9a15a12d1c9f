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

// built is what building the file system of a sandbox leaves.
type built struct {
	notes    []string        // what is weaker on this kernel
	memory   *os.File        // open for writing the text of /proc/meminfo
	files    *os.File        // the file system with all that the sandbox writes
	restored map[string]bool // trees whose upper directory is filled already
}

// build makes the file system of a sandbox and moves this process into it.
// Everything that can be written to is on one tmpfs, whose size is the disk limit:
//
//	root/     becomes /
//	lower/N   the Nth tree as it is on the host, read-only
//	upper/N   what the sandbox changes in it
//	work/N    what overlayfs needs beside
//	meminfo   the text of /proc/meminfo
//	cpuinfo   that of /proc/cpuinfo
//
// Only root stays visible.
func build(spec *wire.InitSpec, mounts []*os.File) (b *built, err error) {
	b = &built{restored: make(map[string]bool)}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return nil, fmt.Errorf("make mounts private: %w", err)
	}
	var saved *os.File
	if last := len(mounts) - 1; spec.Saved != "" && last >= 0 {
		saved, mounts = mounts[last], mounts[:last]
	}
	var private []string
	if last := len(mounts) - 1; spec.Private && last >= 0 {
		if private, err = readPrivate(mounts[last]); err != nil {
			return nil, err
		}
		mounts = mounts[:last]
	}
	var made *os.File
	if last := len(mounts) - 1; spec.Devices && last >= 0 {
		made, mounts = mounts[last], mounts[:last]
	}
	// The trees come first: the staging directory is mounted over a directory of
	// the host, and hides what is below it.
	trees, mounts, err := openTrees(spec, mounts)
	if err != nil {
		return nil, err
	}
	volumes, err := openVolumes(spec.Volumes, mounts)
	if err != nil {
		return nil, err
	}
	defer func() { wire.CloseAll(volumes) }()
	nodes, err := openNodes(hostDevices)
	if err != nil {
		return nil, err
	}
	defer func() { wire.CloseAll(nodes) }()
	stage, err := stagingDirectory()
	if err != nil {
		return nil, err
	}
	// An inode takes about 1 KiB of the kernel's memory, which size does not count.
	options := fmt.Sprintf("mode=0755,size=%d,nr_inodes=%d", spec.Disk, spec.Disk>>10)
	if err := unix.Mount("tmpfs", stage, "tmpfs", unix.MS_NODEV, options); err != nil {
		return nil, fmt.Errorf("mount tmpfs: %w", err)
	}
	if err := os.Chdir(stage); err != nil {
		return nil, err
	}
	for _, dir := range []string{"root", "lower", "upper", "work"} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return nil, err
		}
	}
	if b.files, err = openStage(); err != nil {
		return nil, err
	}
	if saved != nil {
		if err := b.restore(spec, saved); err != nil {
			return nil, fmt.Errorf("restore the saved files: %w", err)
		}
	}
	if err := unix.Mount("root", "root", "", unix.MS_BIND, ""); err != nil { // pivot_root requires a mount
		return nil, fmt.Errorf("bind the root: %w", err)
	}
	write := writeSkeleton
	if saved != nil {
		write = b.mendSkeleton
	}
	if err := write(spec); err != nil {
		return nil, err
	}
	if made != nil {
		wire.CloseAll(nodes)
		if nodes, err = openMade(made); err != nil {
			return nil, err
		}
	}
	if err := mountDevices(nodes, spec.Ranged); err != nil { // before the trees, because files that are hidden may be replaced by a device
		return nil, err
	}
	for i, tree := range trees {
		if err := b.mountTree(i, spec, tree, below(spec.Trees[i], private)); err != nil {
			return nil, fmt.Errorf("show %s: %w", spec.Trees[i], err)
		}
	}
	if err := mountProc(spec.Counters); err != nil {
		return nil, err
	}
	if len(spec.Processors) > 0 {
		if err := showProcessors(spec.Processors); err != nil {
			return nil, err
		}
	}
	if spec.Memory > 0 {
		if b.memory, err = showMemory(uint64(spec.Memory)); err != nil {
			return nil, err
		}
	}
	if err := mountVolumes(spec.Volumes, volumes); err != nil {
		return nil, err
	}
	if err := os.Chdir("root"); err != nil {
		return nil, err
	}
	// Both arguments are the same directory: the old root ends up on top and is
	// unmounted.
	if err := unix.PivotRoot(".", "."); err != nil {
		return nil, fmt.Errorf("pivot_root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return nil, fmt.Errorf("detach the host's root: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return nil, err
	}
	if len(spec.Authority) > 0 {
		if err := showAuthority(spec.Authority, spec.Trees); err != nil {
			return nil, fmt.Errorf("show the certificate authority: %w", err)
		}
	}
	return b, nil
}

// exists reports whether path exists, following links.
func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// stagingDirectory returns some directory of the host to mount over; all other
// processes still see it unchanged.
func stagingDirectory() (string, error) {
	for _, dir := range []string{"/tmp", "/mnt", "/var", "/usr"} {
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			return dir, nil
		}
	}
	return "", errors.New("no directory to build the sandbox in")
}

// openTrees returns each tree as a separate mount that is attached nowhere. It uses
// the server's mount where there is one, because the server may read what this
// process may not, and returns the files that were passed after them.
func openTrees(spec *wire.InitSpec, mounts []*os.File) (trees, rest []*os.File, err error) {
	if len(spec.Mounted) != len(spec.Trees) {
		return nil, nil, fmt.Errorf("%w: %d trees and %d marks", wire.ErrProtocol, len(spec.Trees), len(spec.Mounted))
	}
	trees = make([]*os.File, len(spec.Trees))
	for i, path := range spec.Trees {
		if spec.Mounted[i] {
			if len(mounts) == 0 {
				return nil, nil, fmt.Errorf("%w: the mount of %s is missing", wire.ErrProtocol, path)
			}
			trees[i], mounts = mounts[0], mounts[1:]
			continue
		}
		fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
		if err != nil {
			return nil, nil, fmt.Errorf("open %s: %w", path, err)
		}
		trees[i] = os.NewFile(uintptr(fd), path)
	}
	return trees, mounts, nil
}

// mountTree shows the tree at its own path under a writable overlay, without what
// is private in it. If the kernel refuses an overlay the tree is shown read-only,
// and the note says so.
func (b *built) mountTree(i int, spec *wire.InitSpec, tree *os.File, private []string) error {
	defer tree.Close()
	path := spec.Trees[i]
	n := strconv.Itoa(i)
	lower, upper, work, target := filepath.Join("lower", n), filepath.Join("upper", n), filepath.Join("work", n), filepath.Join("root", path)
	if err := errors.Join(os.Mkdir(lower, 0o755), os.Mkdir(work, 0o755)); err != nil {
		return err
	}
	if !b.restored[path] {
		if err := fillUpper(spec, path, tree, upper); err != nil {
			return err
		}
	}
	// New parent directories are traversable and empty: whatever else the host has
	// beside the tree is not shown.
	if err := b.makeReal(path, 0o755); err != nil {
		return err
	}
	if err := unix.MoveMount(int(tree.Fd()), "", unix.AT_FDCWD, lower, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("attach: %w", err)
	}
	if err := whiteOut(lower, upper, private); err != nil {
		return err
	}
	options := "userxattr,lowerdir=" + lower + ",upperdir=" + upper + ",workdir=" + work
	overlay := unix.Mount("overlay", target, "overlay", unix.MS_NODEV, options)
	if overlay == nil || b.restored[path] { // what was written there would not be seen without it
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

// fillUpper makes the upper directory of a tree.
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
	procReadOnly = []string{"sys", "fs", "irq", "tty"}
)

// cover puts an empty file or directory over path, if it exists.
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
	// This lets services on ports below 1024, and ping, work without capabilities.
	// Files that are missing belong to features that this kernel does not have.
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
