//go:build linux

package inside

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
)

// Reexec turns this process into what the local cloud started it as: the keeper,
// the room, or the agent of a sandbox, which runs serve. It acts only if argv[0] is
// e2bctl-agent and descriptor 3 is a SOCK_SEQPACKET Unix socket, and then never
// returns. In every other process it returns without having done anything.
//
// serve has the sandbox to itself until it returns or the server ends; when it
// returns, the sandbox ends. It must call [Guest.Ready] once its ports listen. warm
// is nil in a program without a zygote.
func Reexec(serve func(context.Context, *Guest) error, warm Warm) {
	if len(os.Args) == 0 || os.Args[0] != wire.Argv0 || !isControl(wire.ControlFD) {
		return
	}
	if err := become(serve, warm); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", wire.Argv0, err)
		unix.Exit(1) // there is no main to return to: this process does not run as the program it was built as
	}
	unix.Exit(0)
}

func isControl(fd int) bool {
	typ, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil || typ != unix.SOCK_SEQPACKET {
		return false
	}
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	return err == nil && domain == unix.AF_UNIX
}

func become(serve func(context.Context, *Guest) error, warm Warm) error {
	ctx := context.Background()
	if err := closeInherited(); err != nil {
		return fmt.Errorf("close inherited descriptors: %w", err)
	}
	// The first stage of a sandbox passes its socket on when it executes the
	// second. Nothing else may pass it to a child.
	unix.CloseOnExec(wire.ControlFD)
	unix.CloseOnExec(wire.BinaryFD)
	c, err := wire.NewConn(os.NewFile(wire.ControlFD, "control"), wire.MaxMessage)
	if err != nil {
		return err
	}
	if err := c.Send(wire.Message{Kind: wire.KindHello, Protocol: wire.Version}); err != nil {
		return err
	}
	m, files, err := c.Expect(wire.KindRole, wire.MaxFiles)
	if err != nil {
		return err
	}
	if m.Protocol != wire.Version {
		return fmt.Errorf("the server speaks version %d of the protocol, not %d", m.Protocol, wire.Version)
	}
	switch m.Role {
	case wire.RoleKeeper:
		err = keep(ctx, c, m.Spec, files)
	case wire.RoleGuard:
		err = runGuard(c, files)
	case wire.RoleRoom:
		err = runRoom(c, m.Spec, files)
	case wire.RoleInit:
		err = runInit(c, m.Spec, files)
	case wire.RoleAgent:
		err = runAgent(ctx, c, m.Spec, files, serve)
	case wire.RoleZygote:
		err = runZygote(c, m.Spec, files, warm)
	case wire.RoleProbe:
		err = restrictAgent()
		if err == nil {
			err = c.Send(wire.Message{Kind: wire.KindReady})
		}
	default:
		err = fmt.Errorf("%w: role %q", wire.ErrProtocol, m.Role)
	}
	if err != nil {
		// The server may be gone, which may be why this process ends.
		_ = c.Send(wire.Message{Kind: wire.KindFailed, Error: err.Error()})
	}
	return err
}

// closeInherited closes the descriptors that the server inherited without
// close-on-exec: a keeper would otherwise hold open the pipe of a caller that waits
// for its end. What the Go runtime opened for itself is marked close-on-exec, and
// stays.
func closeInherited() error {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd <= wire.BinaryFD {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			wire.CloseFD(fd)
		}
	}
	return nil
}

func decodeSpec(data json.RawMessage, v any) error {
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("%w: %w", wire.ErrProtocol, err)
	}
	return nil
}
