//go:build linux

package room

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/instance"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/place"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/spawn"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
)

// inPlace runs the programs of sandboxes without namespaces, restricted or not.
type inPlace struct {
	direct
	room *Room
}

func (inPlace) groupLimits(limits engine.Limits) engine.Limits { return limits }

func (inPlace) takeBuilt(*Sandbox, *wire.Files) error { return nil }

func (inPlace) configure(*Sandbox, wire.Role, *wire.EnvdSpec, *wire.Files) error { return nil }

// takes returns true for requests for terminals, which a restricted envd cannot open.
func (p inPlace) takes(kind wire.Kind) bool {
	return kind == wire.KindTerminal && p.room.level == engine.Restricted
}

func (p inPlace) dialler(*Sandbox) func(context.Context, uint16) (*net.TCPConn, error) {
	if p.room.level == engine.Restricted {
		return nil
	}
	return dialHost
}

func (p inPlace) limitsReport(why map[string]string) (memory, processes string) {
	memory, processes = p.memoryReport(why), "not enforced: "+why["pids"]
	if _, apart := p.room.restrictedID(0); apart {
		processes = "RLIMIT_NPROC of the sandbox's id"
	}
	return memory, processes
}

// planRoots returns the directory that contains the sandboxes' directories. The
// ids that a root server gives to sandboxes cannot reach anything below its home,
// where the instance directory is.
func planRoots(dir string) string {
	if os.Geteuid() != 0 {
		return instance.SandboxesIn(dir)
	}
	return instance.SandboxesBeside(dir, os.TempDir())
}

// makeRoots makes the directory that contains the sandboxes' directories. Other users may pass
// through this directory, but cannot list it.
func (r *Room) makeRoots() error {
	if r.level == engine.Full {
		return nil
	}
	if err := os.Mkdir(r.roots, 0o711); err != nil {
		info, errOfInfo := os.Lstat(r.roots)
		// An attempt at a stronger level may have made it.
		if errOfInfo != nil || !info.IsDir() || !instance.OwnedByUs(info) {
			return fmt.Errorf("make the directory of sandboxes: %w", err)
		}
	}
	return os.Chmod(r.roots, 0o711)
}

// makeRoot makes the directory of a sandbox, owned by the id that the sandbox will have. Its name
// cannot be guessed: if sandboxes share an id, a sandbox that knew the name could change the mode
// of the directory (Landlock does not check chmod).
func (s *Sandbox) makeRoot() (place.Root, error) {
	p := place.Root{Dir: filepath.Join(s.room.roots, rand.Text()), Restricted: s.room.level == engine.Restricted}
	err := os.Mkdir(p.Dir, 0o700)
	for _, dir := range []string{p.Home(), p.Temp()} {
		err = errors.Join(err, os.MkdirAll(dir, 0o755))
	}
	if id, switched := s.room.restrictedID(s.slot); switched {
		for _, dir := range []string{p.Home(), filepath.Dir(p.Home()), p.Temp(), p.Dir} {
			err = errors.Join(err, os.Chown(dir, id, id))
		}
	}
	return p, err
}

// restrictedID returns the host id of a restricted sandbox of a root server. It returns false if
// the sandbox runs with the server's id.
func (r *Room) restrictedID(slot uint32) (int, bool) {
	return spawn.IDBase + spawn.FirstID(slot), r.level == engine.Restricted && r.ids.apart
}
