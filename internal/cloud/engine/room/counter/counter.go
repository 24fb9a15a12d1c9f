//go:build linux

package counter

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

// Each sandbox gets 1/SandboxPart of this user's limits. All sandboxes together get 1/CloudPart, and
// the server keeps the rest of each limit.
const (
	SandboxPart = 8
	CloudPart   = 2
)

// Maxima maps file names in /proc/sys/user to values. Each value is a maximum of a user namespace.
type Maxima map[string]int64

// Directory contains the maxima of the user namespace to which the mounted /proc belongs.
const Directory = "/proc/sys/user"

// Read returns the maxima that apply to this process. The result is empty if the kernel does not have
// maxima.
func Read() (Maxima, error) {
	entries, err := os.ReadDir(Directory)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	c := make(Maxima)
	for _, e := range entries {
		value, err := cgroup.ReadNumber(filepath.Join(Directory, e.Name()))
		if err != nil {
			return nil, err
		}
		// In a user namespace this file has the namespace's own maximum, not the maxima of the
		// namespaces around it. For inotify every process may read the host's own number.
		if name, found := strings.CutPrefix(e.Name(), "max_inotify_"); found {
			if host, err := cgroup.ReadNumber("/proc/sys/fs/inotify/max_user_" + name); err == nil {
				value = min(value, host)
			}
		}
		c[e.Name()] = value
	}
	return c, nil
}

// Part returns one n-th of each maximum, but at least 1 for a maximum that is not 0. The result does
// not contain the maxima of namespaces.
func (c Maxima) Part(n int64) Maxima {
	share := make(Maxima)
	for name, value := range c {
		if !strings.HasSuffix(name, "_namespaces") {
			share[name] = min(value, max(1, value/n))
		}
	}
	return share
}

// InSandbox returns the maxima for a sandbox's own user namespace. No process of the sandbox has to
// make namespaces. So InSandbox forbids new namespaces, in case the filter of system calls has a
// hole. The exception is a second control group namespace, which the first stage makes.
func (c Maxima) InSandbox() Maxima {
	share := c.Part(SandboxPart)
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

// Write sets the maxima of this process's user namespace through the /proc at root.
func (c Maxima) Write(root string) error {
	for name, value := range c {
		path := filepath.Join(root, Directory, name)
		if err := os.WriteFile(path, strconv.AppendInt(nil, value, 10), 0); err != nil {
			return fmt.Errorf("limit a counter of the user namespace: %w", err)
		}
	}
	return nil
}
