//go:build linux

package inside

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/seccomp"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
)

// runner is one way to run the programs of a sandbox: in namespaces, in gVisor or in place. The room
// has chosen it, and both stages of the sandbox choose the same one.
type runner interface {
	// initialize is the first stage. It builds the sandbox around this process, gives up the rights
	// that the sandbox must not have, and executes the second stage. It returns only if it fails.
	initialize(c *wire.Conn, spec *wire.InitSpec, files *wire.Files) error
	// hold applies the restrictions that the second stage can only apply to itself.
	hold(spec *wire.EnvdSpec) error
	// envd fills in the properties of the sandbox in g, and serves envd until the sandbox ends.
	envd(ctx context.Context, g *Guest, spec *wire.EnvdSpec, files *wire.Files, serve func(context.Context, *Guest) error) error
}

// chooseRunner returns the runner that the room has chosen for a sandbox.
func chooseRunner(chosen wire.Runner) runner {
	switch {
	case chosen.Root != nil:
		return inPlace{}
	case chosen.GVisor:
		return &gvisor{}
	}
	return namespaces{}
}

// namespaces runs the programs of a sandbox on the machine's kernel, in the namespaces of this
// process.
type namespaces struct{}

func (n namespaces) initialize(c *wire.Conn, spec *wire.InitSpec, files *wire.Files) error {
	return initWith(n, c, spec, files)
}

func (namespaces) start(*wire.InitSpec, *wire.Files) error {
	startClock()
	return nil
}

func (namespaces) showKernel(b *built, spec *wire.InitSpec, nodes []*os.File) (err error) {
	if nodes == nil {
		err = keepProc()
	} else {
		err = b.makeProc(spec)
	}
	if err != nil || len(spec.Processors) == 0 {
		return err
	}
	return writeSys(spec.Processors)
}

func (namespaces) enter(spec *wire.InitSpec) error { return finish(spec.Authority, spec.Trees) }

func (namespaces) execute(c *wire.Conn, spec *wire.InitSpec) error {
	return executeEnvd(c, spec.Ranged, seccomp.Apply)
}

func (namespaces) hold(*wire.EnvdSpec) error { return nil }

func (namespaces) envd(ctx context.Context, g *Guest, spec *wire.EnvdSpec, files *wire.Files, serve func(context.Context, *Guest) error) error {
	g.Users, g.Root, g.Temp, g.Run = users(spec.Ranged), "/", "/tmp", runDirectory
	g.ownLoopback, g.Egress = true, spec.Egress
	if err := writeNames(spec.Hostname, spec.Names); err != nil {
		return err
	}
	return g.run(ctx, files, serve)
}

// keepProc mounts /proc of the replaced file system in the new file system, with all mounts over
// the files of /proc. It does not first clone /proc and then attach the clone. The reason is that
// the kernel counts such a clone as a mount namespace, and at this time the sandbox may not get any
// further mount namespace.
func keepProc() error {
	if err := unix.Mount("/proc", "root/proc", "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("show /proc: %w", err)
	}
	return nil
}
