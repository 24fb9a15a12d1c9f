package cloud

import (
	"fmt"
	"os"

	"github.com/e2bctl/e2bctl/internal/privatedir"
)

// newInstanceDir creates the directory of one cloud below parent, which must belong to the user;
// "" stands for a directory of e2bctl's own. If the cloud crashes, the next one with the same
// parent finds and removes its leftovers.
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

// removeInstance removes the directory of the cloud once it is no longer used. If its keeper
// cannot remove a part, that stays for the next cloud, with the file that names it.
func (c *Cloud) removeInstance(dir string) error {
	if c.keeper != nil {
		return c.keeper.Close()
	}
	return os.RemoveAll(dir)
}
