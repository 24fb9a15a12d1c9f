//go:build linux

package instance

import (
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Group returns the name of the control groups of the instance in dir. The name is derived from
// dir, so that a lock file cannot name the groups of other instances.
func Group(dir string) string { return name("groups", dir) }

// SandboxesIn returns the directory of sandboxes inside the directory of their instance.
func SandboxesIn(dir string) string { return filepath.Join(dir, "sandboxes") }

// SandboxesBeside returns the path of the directory of sandboxes in temp. Other users can also make
// directories in temp. Unlike the names of the groups, the name of this directory is not visible to
// other users before the directory exists.
func SandboxesBeside(dir, temp string) string { return filepath.Join(temp, name("sandboxes", dir)) }

func name(of, dir string) string {
	sum := sha256.Sum256([]byte(of + "\x00" + dir))
	return "e2bctl-" + base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:16])
}

// check returns an error if the spec names anything that does not belong to the instance.
func (s Spec) check() error {
	if s.Roots != "" && s.Roots != SandboxesIn(s.Dir) {
		if err := checkName(s.Roots, name("sandboxes", s.Dir)); err != nil {
			return err
		}
	}
	for _, group := range s.Groups {
		if err := checkName(group, Group(s.Dir)); err != nil {
			return err
		}
		if err := checkGroup(group); err != nil {
			return err
		}
	}
	return nil
}

// checkName returns an error unless path is absolute, clean and ends with name. If path exists, it
// must also be a directory of this user.
func checkName(path, name string) error {
	if !filepath.IsAbs(path) || filepath.Clean(path) != path || filepath.Base(path) != name {
		return fmt.Errorf("%q is not named %s, as files of the instance are", path, name)
	}
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !info.IsDir() || !OwnedByUs(info) {
		return fmt.Errorf("%q is not a directory of this user", path)
	}
	return nil
}

// checkGroup returns an error if path exists and is not a control group.
func checkGroup(path string) error {
	var stat unix.Statfs_t
	err := unix.Statfs(path, &stat)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("file system of %q: %w", path, err)
	}
	if stat.Type != unix.CGROUP_SUPER_MAGIC && stat.Type != unix.CGROUP2_SUPER_MAGIC {
		return fmt.Errorf("%q is not a control group", path)
	}
	return nil
}
