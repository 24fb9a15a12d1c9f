package store

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// spaceNeeded is the free space, in bytes, that the disk of a store should have.
const spaceNeeded = 1 << 30

// inspect returns warnings about the file system of dir.
func inspect(dir string) (notes []string, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return nil, fmt.Errorf("asking its file system: %w", err)
	}
	if note, known := systems[uint32(s.Type)]; known { //nolint:unconvert,gosec // its size is not the same everywhere
		notes = append(notes, dir+" is on "+note)
	}
	if free := int64(s.Bavail) * int64(s.Bsize); free < spaceNeeded { //nolint:unconvert // its size is not the same everywhere
		notes = append(notes, fmt.Sprintf("%s has %d MiB of free space", dir, free>>20))
	}
	return notes, nil
}

const remote = ": if this machine or the network fails, paused sandboxes may be lost; use a directory on a local disk"

// systems contains the file systems that do not store files like a local disk. It maps their types
// to descriptions.
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
