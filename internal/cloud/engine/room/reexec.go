//go:build linux

package room

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
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
	if len(os.Args) == 0 || os.Args[0] != argv0 || !isControl(controlFD) {
		return
	}
	if err := become(serve, warm); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", argv0, err)
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
	unix.CloseOnExec(controlFD)
	unix.CloseOnExec(binaryFD)
	c, err := newControl(os.NewFile(controlFD, "control"), maxMessage)
	if err != nil {
		return err
	}
	if err := c.send(message{Kind: kindHello, Protocol: wireVersion}); err != nil {
		return err
	}
	m, files, err := c.expect(kindRole, maxFiles)
	if err != nil {
		return err
	}
	if m.Protocol != wireVersion {
		return fmt.Errorf("the server speaks version %d of the protocol, not %d", m.Protocol, wireVersion)
	}
	switch m.Role {
	case roleKeeper:
		err = keep(ctx, c, m.Spec, files)
	case roleGuard:
		err = runGuard(c, files)
	case roleRoom:
		err = runRoom(c, m.Spec, files)
	case roleInit:
		err = runInit(c, m.Spec, files)
	case roleAgent:
		err = runAgent(ctx, c, m.Spec, files, serve)
	case roleZygote:
		err = runZygote(c, m.Spec, files, warm)
	case roleProbe:
		err = restrictAgent()
		if err == nil {
			err = c.send(message{Kind: kindReady})
		}
	default:
		err = fmt.Errorf("%w: role %q", ErrProtocol, m.Role)
	}
	if err != nil {
		// The server may be gone, which may be why this process ends.
		_ = c.send(message{Kind: kindFailed, Error: err.Error()})
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
		if err != nil || fd <= binaryFD {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			closeFD(fd)
		}
	}
	return nil
}

func decodeSpec(data json.RawMessage, v any) error {
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	return nil
}
