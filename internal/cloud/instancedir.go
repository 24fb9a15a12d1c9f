//go:build linux

package cloud

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/e2bctl/e2bctl/internal/privatedir"
)

// newInstanceDir creates the directory of one cloud below parent, which must
// belong to the user; "" stands for a directory of e2bctl's own. If the cloud crashes, the next one with the same parent
// finds and removes what was left there.
func newInstanceDir(parent string) (string, error) {
	if parent == "" {
		var err error
		if parent, err = privatedir.Make("run", privatedir.Cache, privatedir.Runtime, privatedir.Temporary); err != nil {
			return "", fmt.Errorf("cloud: directory for instances: %w", err)
		}
	}
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return "", fmt.Errorf("cloud: directory for instances: %w", err)
	}
	info, err := os.Lstat(parent)
	if err != nil {
		return "", fmt.Errorf("cloud: directory for instances: %w", err)
	}
	if !private(info) {
		return "", fmt.Errorf("cloud: directory for instances: %s must be a directory of this user that no other can write to", parent)
	}
	dir, err := os.MkdirTemp(parent, "cloud-")
	if err != nil {
		return "", fmt.Errorf("cloud: directory for instances: %w", err)
	}
	return dir, nil
}

func private(info fs.FileInfo) bool {
	owner, ok := info.Sys().(*syscall.Stat_t)
	return ok && info.IsDir() && info.Mode().Perm()&0o022 == 0 && int(owner.Uid) == os.Geteuid()
}
