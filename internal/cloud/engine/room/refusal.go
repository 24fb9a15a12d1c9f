//go:build linux

package room

import (
	"errors"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/landlock"
)

// refusals are the errors with which a kernel refuses a call that an isolation level needs. If the
// kernel refuses a call of a sandbox's process, the error arrives as text. So all refusals are
// recognised by their text.
var refusals = []error{
	unix.EPERM,      // by a profile of seccomp, or for a missing capability
	unix.EACCES,     // by AppArmor and other security modules
	unix.EINVAL,     // by a kernel that was built without a kind of namespace, or an older one for a flag
	unix.EOPNOTSUPP, // by a kernel whose Landlock is off, or a file system
	unix.ENODEV,     // by a kernel without a file system
	unix.ENOSPC,     // when there are as many namespaces as allowed; see package shortage
	unix.EUSERS,     // the same, on older kernels
	unix.EROFS,      // where a container shows parts of /proc read-only
	unix.EBUSY,      // if another process handles the calls of restricted sandboxes
}

// lacks reports whether an error means that the kernel lacks a call. For pidfds, Go has an error
// of its own.
func lacks(err error) bool {
	text := err.Error()
	return strings.Contains(text, unix.ENOSYS.Error()) || strings.Contains(text, os.ErrNoHandle.Error())
}

// errSignal means that a seccomp profile killed a process because of a call.
var errSignal = errors.New("bad system call")

// isRefusal reports whether an error means that the machine refused an isolation level. A weaker
// level is then tried. Every other failure at the start has another cause, which a weaker level
// would hide.
func isRefusal(err error) bool {
	if errors.Is(err, errLimit) {
		return false
	}
	if errors.Is(err, errHostRoot) || errors.Is(err, errNoDirectories) || errors.Is(err, landlock.ErrSignals) {
		return true
	}
	text := strings.ToLower(err.Error())
	return lacks(err) || slices.ContainsFunc(append(refusals[:len(refusals):len(refusals)], errSignal), func(refusal error) bool {
		return strings.Contains(text, refusal.Error())
	})
}
