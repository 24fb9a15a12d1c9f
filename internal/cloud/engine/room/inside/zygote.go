//go:build linux

package inside

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/capability"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
)

// Warm prepares, over the file system of a sandbox, the program that the zygote
// runs, and returns how to execute it. config is Options.Zygote and run is
// [Guest.Run]. The files that it writes are at the same paths in every sandbox. The
// program gets its socket as descriptor 3.
type Warm func(config json.RawMessage, run string) (argv, env []string, err error)

// runZygote makes the file system that every sandbox begins with, gives up every
// privilege except that of becoming the owner of a sandbox, and executes the
// program. It returns only errors.
func runZygote(c *wire.Conn, raw json.RawMessage, mounts []*os.File, warm Warm) error {
	runtime.LockOSThread()
	var spec wire.ZygoteSpec
	if err := decodeSpec(raw, &spec); err != nil {
		return err
	}
	if warm == nil {
		return errNoKernels
	}
	unix.Umask(0) // modes are used as written
	if err := unix.Sethostname([]byte("zygote")); err != nil {
		return fmt.Errorf("set hostname: %w", err)
	}
	if _, err := build(&spec.InitSpec, mounts); err != nil {
		return err
	}
	unix.Umask(0o022)
	argv, env, err := warm(spec.Config, runDirectory)
	if err != nil {
		return err
	}
	if err := c.Export(wire.ControlFD); err != nil {
		return err
	}
	var keep uint64
	if spec.Ranged { // otherwise it already is the owner of all sandboxes
		keep = 1 << unix.CAP_SETUID
	}
	if err := capability.Drop(keep); err != nil {
		return err
	}
	return fmt.Errorf("execute %s: %w", argv[0], unix.Exec(argv[0], argv, env))
}

// reapGroup waits for the children that a zygote leaves when it ends: those that
// were forking kernels. They are then children of this process, and the first
// process of a sandbox cannot end before all others in it have been waited for.
func reapGroup(leader int) {
	for {
		if _, err := unix.Wait4(-leader, nil, 0, nil); err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
