//go:build linux

package inside

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
)

// openVolumes returns each volume as a separate detached mount. If the server has made a mount of a
// volume, openVolumes uses that mount.
func openVolumes(volumes []wire.Volume, passed *wire.Files) ([]*os.File, error) {
	opened := make([]*os.File, len(volumes))
	for i, v := range volumes {
		same, err := passed.TakeWhen(v.Dir == "" || v.Opened, wire.FileVolume.Numbered(i))
		if err != nil {
			return opened, fmt.Errorf("the directory for %s: %w", v.Path, err)
		}
		if v.Dir == "" {
			opened[i] = same
			continue
		}
		if opened[i], err = openVolume(v, same); err != nil {
			return opened, err
		}
	}
	return opened, nil
}

// openVolume opens the directory of a volume, and returns a mount of it. If same is not nil, the
// directory must be the one that same has open. openVolume does not clone same itself, because same
// belongs to another mount namespace.
func openVolume(v wire.Volume, same *os.File) (*os.File, error) {
	if same != nil {
		defer same.Close()
	}
	at, err := unix.Open(v.Dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the directory %s: %w", v.Dir, err)
	}
	defer wire.CloseFD(at)
	if err := isSame(at, same); err != nil {
		return nil, fmt.Errorf("open the directory %s: %w", v.Dir, err)
	}
	fd, err := unix.OpenTree(at, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return nil, fmt.Errorf("clone the mount of %s: %w", v.Dir, err)
	}
	mount := os.NewFile(uintptr(fd), v.Dir)
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: v.Attributes()}); err != nil {
		mount.Close()
		return nil, fmt.Errorf("restrict the mount of %s: %w", v.Dir, err)
	}
	return mount, nil
}

func isSame(at int, as *os.File) error {
	if as == nil {
		return nil
	}
	var one, other unix.Stat_t
	if err := errors.Join(unix.Fstat(at, &one), unix.Fstat(int(as.Fd()), &other)); err != nil {
		return err
	}
	if one.Dev != other.Dev || one.Ino != other.Ino {
		return errors.New("another directory took its place")
	}
	return nil
}

// mountVolumes attaches the volumes below root. It follows no links, because root may contain saved
// files, and any of these may have been made by a sandbox's code.
func mountVolumes(volumes []wire.Volume, mounts []*os.File) error {
	for i, v := range volumes {
		if err := attach(mounts[i], v.Path); err != nil {
			return fmt.Errorf("show a volume at %s: %w", v.Path, err)
		}
	}
	return nil
}

func attach(mount *os.File, path string) error {
	target, err := makeBelow("root", strings.TrimPrefix(filepath.Clean(path), "/"))
	if err != nil {
		return err
	}
	defer target.Close()
	return unix.MoveMount(int(mount.Fd()), "", int(target.Fd()), "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
}

// makeBelow opens a directory below root, and makes the missing directories of the path. Each new
// directory belongs to the owner of its parent.
func makeBelow(root, path string) (*os.File, error) {
	const flags = unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Open(root, flags, 0)
	if err != nil {
		return nil, err
	}
	dir := os.NewFile(uintptr(fd), root)
	for name := range strings.SplitSeq(path, "/") {
		next, err := unix.Openat(int(dir.Fd()), name, flags, 0)
		if errors.Is(err, unix.ENOENT) {
			next, err = makeIn(dir, name, flags)
		}
		at := filepath.Join(dir.Name(), name)
		dir.Close()
		if errors.Is(err, unix.ENOTDIR) {
			return nil, fmt.Errorf("/%s is a link or a file there, not a directory", strings.TrimPrefix(at, root+"/"))
		}
		if err != nil {
			return nil, &os.PathError{Op: "open", Path: at, Err: err}
		}
		dir = os.NewFile(uintptr(next), at)
	}
	return dir, nil
}

func makeIn(dir *os.File, name string, flags int) (int, error) {
	var stat unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &stat); err != nil {
		return -1, err
	}
	if err := unix.Mkdirat(int(dir.Fd()), name, 0o755); err != nil {
		return -1, err
	}
	if err := unix.Fchownat(int(dir.Fd()), name, int(stat.Uid), int(stat.Gid), unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return -1, err
	}
	return unix.Openat(int(dir.Fd()), name, flags, 0)
}
