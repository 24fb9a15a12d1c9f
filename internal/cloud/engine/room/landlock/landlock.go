//go:build linux

package landlock

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Access rights that Landlock can check, by the version of Landlock that added them.
const (
	read        = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	execute     = read | unix.LANDLOCK_ACCESS_FS_EXECUTE
	write       = read | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	devices     = unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK
	firstRights = unix.LANDLOCK_ACCESS_FS_MAKE_SYM<<1 - 1 // all rights of version 1
	// fileRights are the rights that a rule about a file, as opposed to a
	// directory, may grant.
	fileRights = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
		unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
)

// version returns the Landlock version of the running kernel.
func version() (int, error) {
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0, fmt.Errorf("landlock: %w", os.NewSyscallError("landlock_create_ruleset", errno))
	}
	return int(version), nil
}

// First versions in which Landlock checks truncate and signals.
const (
	truncates = 3
	signals   = 6
)

// ErrSignals means that this version of Landlock does not stop signals.
var ErrSignals = errors.New("does not stop signals")

// KeepsSignals returns an error that matches [ErrSignals] if Landlock cannot prevent signals. A
// sandbox with the server's id could then kill any process of the server's user.
func KeepsSignals() error {
	version, err := version()
	if err != nil {
		return err
	}
	return keepsSignals(version)
}

// keepsSignals is KeepsSignals for a version of Landlock.
func keepsSignals(version int) (err error) {
	if version < signals {
		err = fmt.Errorf("this kernel's Landlock, version %d, %w, and sandboxes have the id of the server here: "+
			"code in one could kill every process of uid %d; Linux 6.12 and later stop them, "+
			"and local.WithIsolation(local.Restricted) starts nevertheless", version, ErrSignals, os.Geteuid())
	}
	return err
}

// LeavesOpen returns notes about actions between processes of the same user id that an old version
// of Landlock does not prevent.
func LeavesOpen() (notes []string) {
	version, err := version()
	if err != nil {
		return nil
	}
	return leavesOpen(version)
}

// leavesOpen is LeavesOpen for a version of Landlock.
func leavesOpen(version int) (notes []string) {
	if version < signals {
		notes = append(notes, fmt.Sprintf("Landlock version %d does not stop signals: sandboxes can kill other processes of the server's user", version))
	}
	if version < truncates {
		notes = append(notes, fmt.Sprintf("Landlock version %d does not stop truncate: sandboxes can empty files of the server's user", version))
	}
	return notes
}

// Access lists the files that a process may reach. Paths that do not exist on the host are skipped.
type Access struct {
	Program int      // descriptor of a program that the process may execute
	Own     string   // the only directory to which the process may write
	Execute []string // directories with programs and libraries
	Read    []string
	Devices []string
}

// Apply restricts this thread, and programs that it executes, to access. It refuses TCP. With
// Landlock version 6 or later, it also refuses signals to processes outside and connections to
// abstract sockets outside. A path that does not exist on the host is no error. Every other error
// is fatal.
func Apply(access Access) error {
	version, err := version()
	if err != nil {
		return err
	}
	attr := checked(version)
	set, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return fmt.Errorf("landlock: %w", os.NewSyscallError("landlock_create_ruleset", errno))
	}
	defer func() { _ = unix.Close(int(set)) }()
	allow := func(path string, rights uint64) error {
		fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("landlock: open %s as uid %d: %w", path, os.Getuid(), err)
		}
		defer func() { _ = unix.Close(fd) }()
		return addRule(int(set), fd, rights&attr.Handled_access_fs)
	}
	errs := []error{
		addRule(int(set), access.Program, unix.LANDLOCK_ACCESS_FS_EXECUTE|unix.LANDLOCK_ACCESS_FS_READ_FILE),
		allow(access.Own, attr.Handled_access_fs&^devices),
	}
	for _, path := range access.Execute {
		errs = append(errs, allow(path, execute))
	}
	for _, path := range access.Read {
		errs = append(errs, allow(path, read))
	}
	for _, path := range access.Devices {
		errs = append(errs, allow(path, write))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, set, 0, 0); errno != 0 {
		return fmt.Errorf("landlock: %w", os.NewSyscallError("landlock_restrict_self", errno))
	}
	return nil
}

// checked returns everything that a version of Landlock can check.
func checked(version int) unix.LandlockRulesetAttr {
	attr := unix.LandlockRulesetAttr{Handled_access_fs: firstRights}
	if version >= 2 {
		attr.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_REFER
	}
	if version >= truncates {
		attr.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if version >= 4 {
		attr.Handled_access_net = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
	}
	if version >= 5 {
		attr.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	if version >= signals {
		attr.Scoped = unix.LANDLOCK_SCOPE_SIGNAL | unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET
	}
	return attr
}

func addRule(set, fd int, rights uint64) error {
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return fmt.Errorf("landlock: stat: %w", err)
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFDIR {
		rights &= fileRights
	}
	rule := unix.LandlockPathBeneathAttr{Allowed_access: rights, Parent_fd: int32(fd)}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(set), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&rule)), 0, 0, 0)
	if errno != 0 {
		return fmt.Errorf("landlock: %w", os.NewSyscallError("landlock_add_rule", errno))
	}
	return nil
}
