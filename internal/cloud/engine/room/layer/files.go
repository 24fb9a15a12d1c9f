//go:build linux

package layer

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Names of extended attributes. Attributes with the prefix overlayAttr belong to the overlay itself.
// escapedAttr is the prefix of escaped attributes.
const (
	overlayAttr = "user.overlay."
	escapedAttr = overlayAttr + "overlay."
	opaqueAttr  = overlayAttr + "opaque"
	originAttr  = overlayAttr + "origin"
)

// OpenDir opens a directory below dir without following any link.
func OpenDir(dir *os.File, path string) (*os.File, error) {
	how := unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOATIME | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS}
	fd, err := unix.Openat2(int(dir.Fd()), path, &how)
	if errors.Is(err, unix.EPERM) { // it belongs to another user
		how.Flags &^= unix.O_NOATIME
		fd, err = unix.Openat2(int(dir.Fd()), path, &how)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// CopyAttributes copies the owner, the mode, the times and the extended attributes of a directory. It
// does not copy the attributes of an overlay itself.
func CopyAttributes(from, to *os.File) error {
	var stat unix.Stat_t
	if err := unix.Fstat(int(from.Fd()), &stat); err != nil {
		return os.NewSyscallError("fstat", err)
	}
	if err := unix.Fchown(int(to.Fd()), int(stat.Uid), int(stat.Gid)); err != nil {
		return os.NewSyscallError("fchown", err)
	}
	names, err := attributes(from)
	if err != nil {
		return err
	}
	for _, name := range names {
		if strings.HasPrefix(name, overlayAttr) && !strings.HasPrefix(name, escapedAttr) {
			continue
		}
		if err := copyAttribute(from, to, name); err != nil {
			return fmt.Errorf("copy attribute %.300q: %w", name, err)
		}
	}
	if err := unix.Fchmod(int(to.Fd()), stat.Mode&0o7777); err != nil {
		return os.NewSyscallError("fchmod", err)
	}
	times := []unix.Timespec{stat.Atim, stat.Mtim}
	// Without a name the call changes the descriptor's file.
	if _, _, errno := unix.Syscall6(unix.SYS_UTIMENSAT, to.Fd(), 0, uintptr(unsafe.Pointer(&times[0])), 0, 0, 0); errno != 0 {
		return os.NewSyscallError("utimensat", errno)
	}
	return nil
}

// maxValue is the kernel's own bound on the size of an attribute, and of a list of attributes.
const maxValue = 64 << 10

// attributes lists the extended attributes that a file keeps at every place: those with the prefix
// "user.", and access control lists.
func attributes(f *os.File) (names []string, err error) {
	list := make([]byte, maxValue)
	n, err := unix.Flistxattr(int(f.Fd()), list)
	if errors.Is(err, unix.ENOTSUP) {
		return nil, nil
	}
	if err != nil {
		return nil, os.NewSyscallError("flistxattr", err)
	}
	for name := range bytes.SplitSeq(list[:n], []byte{0}) {
		if bytes.HasPrefix(name, []byte("user.")) || bytes.HasPrefix(name, []byte("system.posix_acl_")) {
			names = append(names, string(name))
		}
	}
	return names, nil
}

func copyAttribute(from, to *os.File, name string) error {
	value := make([]byte, maxValue)
	n, err := unix.Fgetxattr(int(from.Fd()), name, value)
	if err != nil {
		return err
	}
	return unix.Fsetxattr(int(to.Fd()), name, value[:n], 0)
}

// isOpaque reports whether a directory hides the same directory of the layers below.
func isOpaque(dir *os.File) (bool, error) {
	var value [2]byte
	n, err := unix.Fgetxattr(int(dir.Fd()), opaqueAttr, value[:])
	switch {
	case errors.Is(err, unix.ENODATA), errors.Is(err, unix.ENOTSUP):
		return false, nil
	case err != nil:
		return false, os.NewSyscallError("fgetxattr", err)
	}
	return string(value[:n]) == "y", nil
}

func setOpaque(dir *os.File) error {
	return os.NewSyscallError("fsetxattr", unix.Fsetxattr(int(dir.Fd()), opaqueAttr, []byte("y"), 0))
}

// setWhiteouts marks a directory as containing whiteouts. If no layer below has the same directory,
// an overlay would list the whiteouts of an unmarked directory as files.
func setWhiteouts(dir *os.File) error {
	return os.NewSyscallError("fsetxattr", unix.Fsetxattr(int(dir.Fd()), originAttr, nil, 0))
}
