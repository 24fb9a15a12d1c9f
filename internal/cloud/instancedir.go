package cloud

import (
	"fmt"
	"os"

	"github.com/e2bctl/e2bctl/internal/privatedir"
)

// newInstanceDir creates the directory of a cloud's instance below parent, which must belong to
// the user. If parent is "", it uses e2bctl's own directory. If the cloud crashes, the next
// cloud with the same parent removes the directory.
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
	if err := privatedir.Check(parent); err != nil {
		return "", fmt.Errorf("cloud: directory for instances: %w", err)
	}
	dir, err := os.MkdirTemp(parent, "cloud-")
	if err != nil {
		return "", fmt.Errorf("cloud: directory for instances: %w", err)
	}
	return dir, nil
}

// removeInstance removes the directory of the instance once it is no longer used. The keeper
// may be unable to remove a part of it. That part, and the file that names it, stay for the
// next cloud to remove.
func (c *Cloud) removeInstance(dir string) error {
	if c.keeper != nil {
		return c.keeper.Close()
	}
	return os.RemoveAll(dir)
}
