//go:build linux

package inside

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/capability"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/hello"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
	"github.com/e2bctl/e2bctl/internal/cloud/kernel/python"
)

// linearAlgebra contains the environment variables with which the zygote loads its linear algebra
// library. The first variable makes the library start no threads, because a second thread would
// make forking impossible; kernels start their own threads. The second variable is the number of
// cycles for which these threads spin before they sleep, as a power of two. With the default
// number, they would occupy a processor until the kernel has started.
var linearAlgebra = []string{"OPENBLAS_NUM_THREADS=1", "OPENBLAS_THREAD_TIMEOUT=20"}

// runZygote makes the file system with which every sandbox begins. It then gives up every privilege
// except the privilege to become the owner of a sandbox, and executes the driver. The driver gets its
// socket as descriptor 3. runZygote returns only if it fails.
func runZygote(c *wire.Conn, raw json.RawMessage, files *wire.Files) error {
	runtime.LockOSThread()
	var spec wire.ZygoteSpec
	if err := wire.DecodeSpec(raw, &spec); err != nil {
		return err
	}
	unix.Umask(0) // modes are used as written
	if err := unix.Sethostname([]byte("zygote")); err != nil {
		return fmt.Errorf("set hostname: %w", err)
	}
	b, err := build(namespaces{}, &spec.InitSpec, files)
	if err != nil {
		return err
	}
	b.files.Close()
	unix.Umask(0o022)
	script, err := python.WriteDriver(runDirectory)
	if err != nil {
		return err
	}
	argv := append(spec.Config.Python, script, "--zygote")
	env := append(spec.Config.KernelEnviron(), linearAlgebra...)
	if err := c.Export(hello.ControlFD); err != nil {
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

// reapGroup waits for the processes that an ended zygote leaves: processes that were forking
// kernels. After the zygote's end they are children of this process. They must be reaped, because
// the first process of a sandbox cannot end before all other processes of the sandbox have been
// waited for.
func reapGroup(leader int) {
	for {
		if _, err := unix.Wait4(-leader, nil, 0, nil); err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
