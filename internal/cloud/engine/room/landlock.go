//go:build linux

package room

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Access rights that Landlock can decide about, by the version of Landlock that
// added them.
const (
	landlockRead  = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	landlockExec  = landlockRead | unix.LANDLOCK_ACCESS_FS_EXECUTE
	landlockWrite = landlockRead | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	landlockFirst = unix.LANDLOCK_ACCESS_FS_MAKE_SYM<<1 - 1 // all rights of version 1
	// landlockFile are the rights that a rule about a file, as opposed to a
	// directory, may grant.
	landlockFile = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
		unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
)

// landlockVersion returns the version that the running kernel has.
func landlockVersion() (int, error) {
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0, fmt.Errorf("landlock: %w", errno)
	}
	return int(version), nil
}

// First versions in which Landlock decides about truncate and about signals.
const (
	landlockTruncates = 3
	landlockSignals   = 6
)

// keepsSignals returns an error if Landlock does not keep a sandbox that has the
// server's id from killing any process of that user.
func keepsSignals() error {
	version, err := landlockVersion()
	if err == nil && version < landlockSignals {
		err = fmt.Errorf("this kernel's Landlock, version %d, does not stop signals, and sandboxes have the id of the server here: "+
			"code in one could kill every process of uid %d; Linux 6.12 and later stop them, "+
			"and local.WithIsolation(local.Restricted) starts nevertheless", version, os.Geteuid())
	}
	return err
}

// noteLandlock notes what an old version leaves open. This does not matter for
// processes that have an id of their own.
func (r *Room) noteLandlock() {
	version, err := landlockVersion()
	if err != nil || r.ids.ranged {
		return
	}
	if version < landlockSignals {
		r.note(fmt.Sprintf("Landlock version %d does not stop signals: sandboxes can kill other processes of the server's user", version))
	}
	if version < landlockTruncates {
		r.note(fmt.Sprintf("Landlock version %d does not stop truncate: sandboxes can empty files of the server's user", version))
	}
}

// readableFiles are the files that programs read to start, if the sandbox has no
// file system of its own.
var readableFiles = []string{
	"/etc/passwd", "/etc/group", "/etc/hosts", "/etc/host.conf", "/etc/nsswitch.conf", "/etc/os-release", "/etc/profile",
	"/etc/profile.d", "/etc/bash.bashrc", "/etc/inputrc", "/proc",
}

// applyLandlock restricts this thread and what it executes to the trees, a few
// files, devices without state, and dir, the only one it may write to. TCP is
// refused, and from version 6 on also signals and abstract sockets to the outside.
// Every error is fatal, except for a path that the host does not have.
func applyLandlock(trees []string, dir string) error {
	version, err := landlockVersion()
	if err != nil {
		return err
	}
	attr := unix.LandlockRulesetAttr{Handled_access_fs: landlockFirst}
	if version >= 2 {
		attr.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_REFER
	}
	if version >= landlockTruncates {
		attr.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if version >= 4 {
		attr.Handled_access_net = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
	}
	if version >= 5 {
		attr.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	if version >= landlockSignals {
		attr.Scoped = unix.LANDLOCK_SCOPE_SIGNAL | unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET
	}
	set, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return fmt.Errorf("landlock: create ruleset: %w", errno)
	}
	defer closeFD(int(set))
	allow := func(path string, rights uint64) error {
		fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("landlock: open %s as uid %d: %w", path, os.Getuid(), err)
		}
		defer closeFD(fd)
		return landlockRule(int(set), fd, rights&attr.Handled_access_fs)
	}
	errs := []error{landlockRule(int(set), binaryFD, unix.LANDLOCK_ACCESS_FS_EXECUTE|unix.LANDLOCK_ACCESS_FS_READ_FILE), allow(dir, attr.Handled_access_fs)}
	for _, path := range trees {
		errs = append(errs, allow(path, landlockExec))
	}
	for _, path := range rootLinks {
		errs = append(errs, allow(path, landlockExec))
	}
	for _, path := range readableFiles {
		errs = append(errs, allow(path, landlockRead))
	}
	for _, pattern := range copiedFiles {
		names, err := filepath.Glob(pattern)
		errs = append(errs, err)
		for _, name := range names {
			errs = append(errs, allow(name, landlockRead))
		}
	}
	for _, name := range deviceNames {
		errs = append(errs, allow("/dev/"+name, landlockWrite))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, set, 0, 0); errno != 0 {
		return fmt.Errorf("landlock: restrict: %w", errno)
	}
	return nil
}

func landlockRule(set, fd int, rights uint64) error {
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return fmt.Errorf("landlock: stat: %w", err)
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFDIR {
		rights &= landlockFile
	}
	rule := unix.LandlockPathBeneathAttr{Allowed_access: rights, Parent_fd: int32(fd)}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(set), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&rule)), 0, 0, 0)
	if errno != 0 {
		return fmt.Errorf("landlock: add rule: %w", errno)
	}
	return nil
}
