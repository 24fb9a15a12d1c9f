package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// own are the names that a directory may hold which becomes a state directory.
var own = []string{unfinished, lockFile, published, staging, noted, trash, "lost+found"}

// claim makes dir if need be, and a directory of this user alone. One that holds
// something else and no store is left as it is.
func claim(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || int(owner.Uid) != os.Geteuid() {
		return errors.New("it must be a directory of this user: it holds the files and secrets of sandboxes")
	}
	if err := claimable(dir); err != nil {
		return err
	}
	if info.Mode().Perm() == 0o700 {
		return nil
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return fmt.Errorf("others can enter it, and that cannot be changed: %w", err)
	}
	if info, err = os.Stat(dir); err == nil && info.Mode().Perm() != 0o700 {
		err = errors.New("others can enter it, and its file system keeps no modes: use a directory on another one")
	}
	return err
}

// claimable returns an error for a directory that is none of a store and has something
// in it.
func claimable(dir string) error {
	if _, err := os.Lstat(filepath.Join(dir, databaseFile)); err == nil {
		return nil
	}
	names, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if !slices.Contains(own, name.Name()) {
			return fmt.Errorf("it holds %s, which is not of a state directory: use an empty directory or a new one", name.Name())
		}
	}
	return nil
}

// spaceNeeded is how much free space a store is expected to have.
const spaceNeeded = 1 << 30

// inspect returns what the file system of dir cannot do for the files of sandboxes. It
// finds out by trying, in the directory scratch.
func inspect(dir, scratch string) (notes []string, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return nil, fmt.Errorf("asking its file system: %w", err)
	}
	if note, known := systems[uint32(s.Type)]; known { //nolint:unconvert,gosec // its size is not the same everywhere
		notes = append(notes, dir+" is on "+note)
	}
	if free := int64(s.Bavail) * s.Bsize; free < spaceNeeded {
		notes = append(notes, fmt.Sprintf("%s has %d MiB of free space", dir, free>>20))
	}
	probe, err := os.MkdirTemp(scratch, "probe-")
	if err != nil {
		return nil, err
	}
	for _, trial := range trials {
		if err := trial.try(filepath.Join(probe, "file")); err != nil {
			notes = append(notes, fmt.Sprintf("the file system of %s %s (%v)", dir, trial.loss, err))
		}
		if err := errors.Join(os.RemoveAll(probe), os.Mkdir(probe, 0o700)); err != nil {
			return nil, err
		}
	}
	return notes, os.RemoveAll(probe)
}

const remote = ": if this machine or the network fails, paused sandboxes may be lost; use a directory on a local disk"

// systems are the file systems that do not keep what was written to them as a disk does.
var systems = map[uint32]string{
	unix.TMPFS_MAGIC:      "a file system in memory: a restart of the machine loses paused sandboxes",
	unix.RAMFS_MAGIC:      "a file system in memory: a restart of the machine loses paused sandboxes",
	unix.NFS_SUPER_MAGIC:  "NFS" + remote,
	unix.SMB_SUPER_MAGIC:  "SMB" + remote,
	unix.SMB2_SUPER_MAGIC: "SMB" + remote,
	unix.CIFS_SUPER_MAGIC: "SMB" + remote,
	unix.V9FS_MAGIC:       "9p" + remote,
	unix.AFS_SUPER_MAGIC:  "AFS" + remote,
	unix.CEPH_SUPER_MAGIC: "Ceph" + remote,
	unix.FUSE_SUPER_MAGIC: "FUSE: whether what was written is on a disk depends on the program behind it",
}

// trials are what files of a sandbox need.
var trials = []struct {
	try  func(path string) error
	loss string // what a file system does not do that fails
}{
	{tryModes, "does not keep modes: a resumed sandbox has others"},
	{tryOwners, "does not keep owners: the files of a resumed sandbox are all root's"},
	{tryAttributes, "does not keep extended attributes: directories that a sandbox replaced may show their old files when it is resumed"},
	{tryWhiteout, "cannot say that a file was deleted: files of the template that a sandbox deleted are back when it is resumed"},
	{tryHardLink, "has no hard links: a resumed sandbox has copies"},
	{trySymlink, "has no symbolic links: a resumed sandbox lacks them"},
	{trySparse, "has no sparse files: those of a sandbox take their full size"},
}

func create(path string) error {
	return os.WriteFile(path, nil, 0o600)
}

func tryModes(path string) error {
	const want = 0o4751
	var s unix.Stat_t
	if err := errors.Join(create(path), unix.Chmod(path, want), unix.Lstat(path, &s)); err != nil {
		return err
	}
	if got := s.Mode & 0o7777; got != want {
		return fmt.Errorf("%o became %o", want, got)
	}
	return nil
}

// tryOwners does nothing where no other owner can be set anyway.
func tryOwners(path string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	const want = 1000
	var s unix.Stat_t
	if err := errors.Join(create(path), unix.Lchown(path, want, want), unix.Lstat(path, &s)); err != nil {
		return err
	}
	if s.Uid != want || s.Gid != want {
		return fmt.Errorf("%d became %d:%d", want, s.Uid, s.Gid)
	}
	return nil
}

func tryAttributes(path string) error {
	return errors.Join(os.Mkdir(path, 0o700), unix.Setxattr(path, "user.overlay.opaque", []byte("y"), 0))
}

func tryWhiteout(path string) error { return unix.Mknod(path, unix.S_IFCHR, 0) }

func tryHardLink(path string) error {
	return errors.Join(create(path), os.Link(path, path+"2"))
}

func trySymlink(path string) error { return os.Symlink("nowhere", path) }

func trySparse(path string) error {
	var s unix.Stat_t
	const size = 1 << 20
	if err := errors.Join(create(path), os.Truncate(path, size), unix.Lstat(path, &s)); err != nil {
		return err
	}
	if s.Blocks*512 >= size {
		return errors.New("a hole takes space")
	}
	return nil
}

// blocks returns the bytes that a file takes on the disk.
func blocks(info os.FileInfo) int64 {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return info.Size()
	}
	return stat.Blocks * 512
}
