//go:build linux

package room

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/cgroup"
)

// The kernel counts many things by user and not by process: inotify instances,
// queued signals and timers, POSIX message queues, processes. A user namespace does
// not start a new count: what is used inside is also counted, in the namespace
// above, for the user that made the inner namespace, and so on up to the host's.
// Each level has its own maximum, so the share of one sandbox has to be set on a
// level where only that sandbox is counted:
//
//   - with a range of ids, the namespace of each sandbox is made by a different
//     user (see birthplace.owner). The maximum of the room's namespace then applies
//     to each sandbox separately, however many users it becomes inside. The room's
//     namespace is also made by a user of its own, so nothing here counts for the
//     host's root;
//   - with a single id, everything in a sandbox is one user of the room's
//     namespace. The maximum of the sandbox's own namespace applies to that
//     sandbox, and the maximum of the room's namespace to all sandboxes together.
//
// Without namespaces there are only the limits of each process.

// A sandbox gets 1/sandboxPart of what this user may have, and all sandboxes together
// get 1/cloudPart, so that the server keeps the rest.
const (
	sandboxPart = 8
	cloudPart   = 2
)

// counters are maxima of a user namespace, by their names below /proc/sys/user.
type counters map[string]int64

const countersDirectory = "/proc/sys/user"

// readCounters returns the maxima that apply to this process. It is empty if the
// kernel has none.
func readCounters() (counters, error) {
	entries, err := os.ReadDir(countersDirectory)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	c := make(counters)
	for _, e := range entries {
		value, err := cgroup.ReadNumber(filepath.Join(countersDirectory, e.Name()))
		if err != nil {
			return nil, err
		}
		// In a user namespace the number above is what that namespace allows, not
		// what the namespaces around it allow. For inotify every process may read
		// the host's own number.
		if name, found := strings.CutPrefix(e.Name(), "max_inotify_"); found {
			if host, err := cgroup.ReadNumber("/proc/sys/fs/inotify/max_user_" + name); err == nil {
				value = min(value, host)
			}
		}
		c[e.Name()] = value
	}
	return c, nil
}

// part returns one n-th of each counter, but at least 1 of a counter that is not 0.
// Counts of namespaces are left out.
func (c counters) part(n int64) counters {
	share := make(counters)
	for name, value := range c {
		if !strings.HasSuffix(name, "_namespaces") {
			share[name] = min(value, max(1, value/n))
		}
	}
	return share
}

// inSandbox returns the counters of a sandbox's own namespace. Nothing in it makes
// namespaces, so none may be made, even if a filter has a hole. The exception is
// the control group namespace, which the first stage makes again.
func (c counters) inSandbox() counters {
	share := c.part(sandboxPart)
	for name := range c {
		if strings.HasSuffix(name, "_namespaces") {
			share[name] = 0
		}
	}
	const anew = "max_cgroup_namespaces"
	if _, found := c[anew]; found {
		share[anew] = 2 // the first one ends once the second exists
	}
	return share
}

// write sets the maxima of this process's user namespace through the /proc at root.
func (c counters) write(root string) error {
	for name, value := range c {
		path := filepath.Join(root, countersDirectory, name)
		if err := os.WriteFile(path, strconv.AppendInt(nil, value, 10), 0); err != nil {
			return fmt.Errorf("limit a counter of the user namespace: %w", err)
		}
	}
	return nil
}
