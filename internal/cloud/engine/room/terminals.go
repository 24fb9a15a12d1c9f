//go:build linux

package room

import (
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
	"github.com/e2bctl/e2bctl/internal/cloud/pty"
)

// terminals are the terminals that the server opened for a restricted sandbox. Such a sandbox has
// no access to /dev/pts, because the user's own terminals are there. A value of type terminals may
// be used by one goroutine only.
type terminals []terminalName

// terminalName distinguishes a terminal from a later one with the same name.
type terminalName struct {
	path    string
	created unix.Timespec
}

// named returns the name and the creation time of tty. Together they distinguish tty from later
// terminals.
func named(tty *os.File) (terminalName, error) {
	name := terminalName{path: tty.Name()}
	var stat unix.Stat_t
	if err := unix.Fstat(int(tty.Fd()), &stat); err != nil {
		return name, fmt.Errorf("stat %s: %w", name.path, err)
	}
	name.created = stat.Ctim
	return name, nil
}

// open reports whether the terminal is open. Its file exists only while the terminal is open.
func (n terminalName) open() bool {
	var stat unix.Stat_t
	return unix.Stat(n.path, &stat) == nil && stat.Ctim == n.created
}

// add opens another terminal, up to the limit of the sandbox.
func (t *terminals) add() (controller, tty *os.File, err error) {
	*t = slices.DeleteFunc(*t, func(n terminalName) bool { return !n.open() })
	if len(*t) >= guest.MaxTerminals {
		return nil, nil, fmt.Errorf("%w: %d terminals are open", engine.ErrTooMany, guest.MaxTerminals)
	}
	if controller, tty, err = pty.Open(); err != nil {
		return nil, nil, err
	}
	name, err := named(tty)
	if err != nil {
		wire.CloseAll([]*os.File{controller, tty})
		return nil, nil, err
	}
	*t = append(*t, name)
	return controller, tty, nil
}

// giveTerminal answers envd's request for a terminal with both ends of a new terminal.
func (s *Sandbox) giveTerminal(id uint64) error {
	controller, tty, err := s.ttys.add()
	if err != nil {
		return s.refuse(id, err)
	}
	var files wire.Files
	files.Add(wire.FileTerminal, controller)
	files.Add(wire.FileTTY, tty)
	defer files.Close()
	// If envd does not read the answer, only envd is harmed.
	_ = s.envd.SendFiles(wire.Message{Kind: wire.KindTerminal, ID: id}, &files)
	return nil
}
