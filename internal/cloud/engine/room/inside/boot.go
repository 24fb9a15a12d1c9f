//go:build linux

package inside

import (
	"os"

	"github.com/google/uuid"
)

// showBoot replaces the machine's boot identifier by the sandbox's own identifier. So programs can
// see that the sandbox was booted anew, but cannot find out whether two sandboxes are on the same
// machine.
func showBoot() error {
	const path = "sys/kernel/random/boot_id"
	if !exists("root/proc/" + path) {
		return nil
	}
	id, err := uuid.NewRandom()
	if err != nil {
		return err
	}
	if err := os.WriteFile("boot_id", []byte(id.String()+"\n"), 0o444); err != nil {
		return err
	}
	return showInProc(path)
}
