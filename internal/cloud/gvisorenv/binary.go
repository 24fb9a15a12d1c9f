package gvisorenv

import (
	"cmp"
	"fmt"
	"os"

	"github.com/e2bctl/e2bctl/internal/cloud/hostprogram"
)

// CheckBinary returns an error if the program at path cannot serve sandboxes from inside
// gVisor, where no file of this machine is accessible. "" means this program.
func CheckBinary(path string) error {
	f, err := os.Open(cmp.Or(path, "/proc/self/exe"))
	if err != nil {
		return fmt.Errorf("gvisor: the program that serves sandboxes: %w", err)
	}
	defer f.Close()
	if hostprogram.IsLinked(f) {
		return fmt.Errorf("gvisor: %s is linked to libraries, and inside gVisor it would not have them: build it with CGO_ENABLED=0, or use a release build of e2bctl", cmp.Or(path, "this program"))
	}
	return nil
}
