//go:build linux

package inside

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest/login"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/hello"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/holder"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/landlock"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/orphan"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/place"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
)

// inPlace runs the programs of a sandbox without namespaces, restricted or not.
type inPlace struct{}

// initialize applies the same restrictions as the other runners, as far as that is possible without
// namespaces.
func (inPlace) initialize(c *wire.Conn, spec *wire.InitSpec, files *wire.Files) error {
	// The room requested this when it started the process, but the kernel keeps the
	// setting per thread, and this is the thread that becomes envd.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("end with the room: %w", err)
	}
	if err := restoreInPlace(spec, files); err != nil {
		return fmt.Errorf("restore the saved files: %w", err)
	}
	if err := os.Chdir(spec.Root.Home()); err != nil {
		return err
	}
	if err := limit(spec.Limits); err != nil {
		return err
	}
	if spec.Saved == "" {
		for name, text := range map[string]string{".profile": login.InPlaceProfile(spec.Path), ".bashrc": login.UserBashrc, ".bash_logout": login.UserLogout} {
			if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
				return err
			}
		}
	}
	notes := runOn(spec.Processors)
	trees, hidden := reachable(spec.Trees)
	if err := awaitGo(c, wire.Message{Kind: wire.KindReady, Notes: notes, Hidden: hidden}, nil); err != nil {
		return err
	}
	if !spec.Root.Restricted {
		if err := c.Export(hello.ControlFD); err != nil {
			return err
		}
		return execBinary()
	}
	return executeEnvd(c, false, func() error { return restrictFiles(trees, spec.Root.Dir) })
}

// readableFiles are the files that programs read to start, if the sandbox has no
// file system of its own.
var readableFiles = []string{
	"/etc/passwd", "/etc/group", "/etc/hosts", "/etc/host.conf", "/etc/nsswitch.conf", "/etc/profile", "/etc/profile.d",
	"/etc/bash.bashrc", "/etc/inputrc", "/proc",
}

// hold applies the seccomp filter of a restricted sandbox. Before any of the sandbox's code runs, the
// process of the second stage calls hold itself, because [holder.Start] makes the calling process the
// holder.
func (inPlace) hold(spec *wire.EnvdSpec) error {
	if !spec.Root.Restricted {
		return nil
	}
	return holder.Start(spec.Root.Dir)
}

func (inPlace) envd(ctx context.Context, g *Guest, spec *wire.EnvdSpec, files *wire.Files, serve func(context.Context, *Guest) error) error {
	g.Users, g.Root, g.Temp, g.Run = usersOf(spec.Root), spec.Root.Dir, spec.Root.Temp(), spec.Root.Run()
	g.restricted = spec.Root.Restricted
	if err := orphan.BecomeReaper(); err != nil { // pid 1 is a reaper anyway
		return err
	}
	return g.run(ctx, files, serve)
}

// usersOf returns the accounts of a sandbox whose files are in root. Both have the id of this process.
func usersOf(root *place.Root) []guest.User {
	users := users(false)
	for i := range users {
		users[i].UID, users[i].GID, users[i].Home = uint32(os.Getuid()), uint32(os.Getgid()), root.Home()
	}
	return users
}

// restrictFiles restricts this thread, and programs that it executes, to the trees, a few files,
// devices without state, and dir.
func restrictFiles(trees []string, dir string) error {
	access := landlock.Access{Program: hello.BinaryFD, Own: dir, Execute: slices.Concat(trees, guest.RootLinks), Read: slices.Clone(readableFiles)}
	for _, pattern := range copiedFiles {
		names, err := filepath.Glob(pattern)
		if err != nil {
			return err
		}
		access.Read = append(access.Read, names...)
	}
	for _, name := range guest.DeviceNames {
		access.Devices = append(access.Devices, "/dev/"+name)
	}
	return landlock.Apply(access)
}

// reachable divides directories into open directories, which this process's user may enter and
// list, and closed directories. For example, directories below root's home directory are closed to
// the user ids of root's sandboxes.
func reachable(trees []string) (open, closed []string) {
	for _, path := range trees {
		if err := unix.Access(path, unix.R_OK|unix.X_OK); errors.Is(err, fs.ErrPermission) {
			closed = append(closed, path)
			continue
		}
		open = append(open, path)
	}
	return open, closed
}
