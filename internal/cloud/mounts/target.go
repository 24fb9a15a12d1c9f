package mounts

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
)

// maxTarget bounds the length, in bytes, of the path of a mount.
const maxTarget = 1024

// ownTrees lists the trees that belong to the sandbox itself. They contain the files of its
// kernel, the files of its first process, and its program in a container.
var ownTrees = []string{"/proc", "/sys", "/dev", "/run", "/var/run", "/.e2bctl"}

// vital lists directories and files that a sandbox needs to start, or that it writes at the start.
// Paths below these directories may be mounted.
var vital = []string{
	"/", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32",
	"/usr", "/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libx32",
	"/etc", "/etc/passwd", "/etc/group", "/etc/shadow", "/etc/gshadow", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/etc/mtab",
	"/etc/sudoers.d", "/etc/apt", "/etc/apt/apt.conf.d",
}

// CheckTarget returns an error if at least one engine cannot mount a directory at this path in a
// sandbox.
func CheckTarget(target string) error {
	switch {
	case !path.IsAbs(target) || path.Clean(target) != target || strings.ContainsRune(target, 0) || len(target) > maxTarget:
		return errors.New("it must be absolute, without . and .. and a / at the end")
	case slices.Contains(vital, target):
		return errors.New("nothing can be mounted there: the sandbox would not start without what is at this path; choose another path, such as /data")
	}
	for _, tree := range ownTrees {
		if target == tree || strings.HasPrefix(target, tree+"/") {
			return fmt.Errorf("nothing can be mounted in %s, which is the sandbox's own: choose another path, such as /data", tree)
		}
	}
	return nil
}
