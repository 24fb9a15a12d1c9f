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

// inspect returns what can go wrong with what the file system of dir keeps.
func inspect(dir string) (notes []string, err error) {
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
	return notes, nil
}

const remote = ": if this machine or the network fails, paused sandboxes may be lost; use a directory on a local disk"

// systems are the file systems that do not keep what was written to them as a disk does.
var systems = map[uint32]string{
	unix.TMPFS_MAGIC:       "a file system in memory: a restart of the machine loses paused sandboxes",
	unix.RAMFS_MAGIC:       "a file system in memory: a restart of the machine loses paused sandboxes",
	unix.NFS_SUPER_MAGIC:   "NFS" + remote,
	unix.SMB_SUPER_MAGIC:   "SMB" + remote,
	unix.SMB2_SUPER_MAGIC:  "SMB" + remote,
	unix.CIFS_SUPER_MAGIC:  "SMB" + remote,
	unix.V9FS_MAGIC:        "9p" + remote,
	unix.AFS_SUPER_MAGIC:   "AFS" + remote,
	unix.CEPH_SUPER_MAGIC:  "Ceph" + remote,
	unix.MSDOS_SUPER_MAGIC: "FAT: a sandbox that wrote more than 4 GiB cannot be kept",
	unix.FUSE_SUPER_MAGIC:  "FUSE: whether what was written is on a disk depends on the program behind it",
}

// blocks returns the bytes that a file takes on the disk.
func blocks(info os.FileInfo) int64 {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return info.Size()
	}
	return stat.Blocks * 512
}
