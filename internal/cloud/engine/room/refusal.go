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

// refusals are the answers by which a kernel refuses what an isolation level needs. What the
// processes of a sandbox were refused arrives as text, so all are recognised by it.
var refusals = []error{
	unix.EPERM,      // by a profile of seccomp, or for a capability that is missing
	unix.EACCES,     // by AppArmor and other security modules
	unix.EINVAL,     // by a kernel that was built without a kind of namespace, or an older one for a flag
	unix.EOPNOTSUPP, // by a kernel whose Landlock is off, or a file system
	unix.ENODEV,     // by a kernel without a file system
	unix.ENOSPC,     // where there are as many namespaces as there may be; see package shortage
	unix.EUSERS,     // the same, on older kernels
	unix.EROFS,      // where a container shows parts of /proc read-only
	unix.EBUSY,      // where something else answers the calls that restricted sandboxes make
}

// lacks reports whether an error says that the kernel does not have a call. Go says so of those
// for handles of processes in words of its own.
func lacks(err error) bool {
	text := err.Error()
	return strings.Contains(text, unix.ENOSYS.Error()) || strings.Contains(text, os.ErrNoHandle.Error())
}

// errSignal is the end of a process at a call that a profile of seccomp answers by killing it.
var errSignal = errors.New("bad system call")

// isRefusal reports whether the machine refused an isolation level, so that a weaker one is
// tried. All else that goes wrong at the start has another cause, which a weaker level would hide.
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
