//go:build unix

package privatedir

import (
	"fmt"
	"os"
	"syscall"
)

// Check returns an error if dir is not a directory of this user, or if other users can write to it.
func Check(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || info.Mode().Perm()&0o022 != 0 || int(owner.Uid) != os.Geteuid() {
		return fmt.Errorf("%s must be a directory of this user that no other can write to (chmod 700)", dir)
	}
	return nil
}
