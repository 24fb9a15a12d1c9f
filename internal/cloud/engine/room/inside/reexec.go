//go:build linux

package inside

import (
	"context"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/hello"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
)

// envdControl is the control connection of the second stage of an envd, and nil in every other process.
var envdControl *wire.Conn

// init runs the role for which the local cloud started this process, if package hello reports a
// stage. The roles that do not serve an envd never leave this function. This package imports only
// the packages that these roles need, so that it is initialised before the packages that serve an
// envd. The second stage and the first process of a container wait for their role in [Serve].
func init() {
	stage, sent := hello.Said()
	if stage == hello.None || stage == hello.Contained || stage == hello.Pod {
		return
	}
	switch stage {
	case hello.Removing:
		exit(removeNamed(os.Stdin))
	case hello.Installing:
		exit(install(os.Args[2], os.Args[3:]))
	}
	c, err := takeControl(sent)
	switch {
	case err != nil:
	case stage == hello.Second:
		envdControl = c
		return
	default:
		err = takeRole(c, map[wire.Role]func(wire.Message, *wire.Files) error{
			wire.RoleKeeper:  func(m wire.Message, files *wire.Files) error { return keep(context.Background(), c, m.Spec, files) },
			wire.RoleGuard:   func(_ wire.Message, files *wire.Files) error { return runGuard(c, files) },
			wire.RoleRoom:    func(m wire.Message, files *wire.Files) error { return runRoom(c, m.Spec, files) },
			wire.RoleInit:    func(m wire.Message, files *wire.Files) error { return runInit(c, m.Spec, files) },
			wire.RoleZygote:  func(m wire.Message, files *wire.Files) error { return runZygote(c, m.Spec, files) },
			wire.RoleSaver:   func(m wire.Message, files *wire.Files) error { return runSaver(c, m.Spec, files) },
			wire.RoleMounter: func(m wire.Message, files *wire.Files) error { return runMounter(c, m.Spec, files) },
			wire.RoleEnterer: func(m wire.Message, files *wire.Files) error { return runEnterer(c, m.Spec, files) },
			wire.RoleLayers:  func(m wire.Message, files *wire.Files) error { return runLayers(c, m.Spec, files) },
		})
	}
	exit(err)
}

// Serve turns this process into the envd of a sandbox if it was started as one: it runs serve,
// and never returns. In every other process it does nothing.
//
// serve runs until it returns or the server ends. When serve returns, the sandbox ends. serve must
// call [Guest.Ready] when its ports listen.
func Serve(serve func(context.Context, *Guest) error) {
	switch stage, _ := hello.Said(); stage {
	case hello.Contained:
		exit(runContained(context.Background(), serve))
	case hello.Pod:
		exit(runPod(context.Background(), serve))
	}
	c := envdControl
	if c == nil {
		return
	}
	exit(takeRole(c, map[wire.Role]func(wire.Message, *wire.Files) error{
		wire.RoleEnvd: func(m wire.Message, files *wire.Files) error {
			return runEnvd(context.Background(), c, m.Spec, files, serve)
		},
		wire.RoleProbe: func(m wire.Message, _ *wire.Files) error {
			if _, _, err := holdEnvd(m.Spec); err != nil {
				return err
			}
			return c.Send(wire.Message{Kind: wire.KindReady})
		},
	}))
}

// takeControl takes over the control connection. sent is the error of sending the hello over it.
func takeControl(sent error) (*wire.Conn, error) {
	if sent != nil {
		return nil, fmt.Errorf("say hello: %w", sent)
	}
	if err := closeInherited(); err != nil {
		return nil, fmt.Errorf("close inherited descriptors: %w", err)
	}
	// The first stage of a sandbox passes its socket on when it executes the
	// second. Nothing else may pass it to a child.
	unix.CloseOnExec(hello.ControlFD)
	unix.CloseOnExec(hello.BinaryFD)
	c, err := wire.NewConn(os.NewFile(hello.ControlFD, "control"), wire.MaxMessage)
	if err != nil {
		return nil, err
	}
	return c, c.Keep(hello.ControlFD)
}

// takeRole waits for this process's role and runs it.
func takeRole(c *wire.Conn, roles map[wire.Role]func(wire.Message, *wire.Files) error) error {
	m, files, err := c.Expect(wire.KindRole, wire.MaxFiles)
	if err != nil {
		return err
	}
	if m.Protocol != hello.Version {
		return fmt.Errorf("the server speaks version %d of the protocol, not %d", m.Protocol, hello.Version)
	}
	if run := roles[m.Role]; run != nil {
		err = run(m, files)
	} else {
		err = fmt.Errorf("%w: role %q", wire.ErrProtocol, m.Role)
	}
	if err != nil {
		// The server may be gone, and this process may end because of that.
		_ = c.Send(wire.Message{Kind: wire.KindFailed, Error: err.Error()})
	}
	return err
}

// exit ends this process. A re-executed process must not continue in main, because it must not run as
// the program that was built.
func exit(err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", hello.Argv0, err)
		unix.Exit(1)
	}
	unix.Exit(0)
}

// closeInherited closes the descriptors that the server inherited without close-on-exec and that
// this process therefore has too. Otherwise, if the caller of the server waits for the end of a
// pipe, a keeper would keep this pipe open. The Go runtime's own descriptors are marked
// close-on-exec, and stay open.
func closeInherited() error {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd <= hello.BinaryFD {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			wire.CloseFD(fd)
		}
	}
	return nil
}
