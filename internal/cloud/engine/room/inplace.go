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

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/counter"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/holder"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/instance"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/landlock"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/place"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/spawn"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
)

// inPlace runs the programs of sandboxes without namespaces, restricted or not.
type inPlace struct{ direct }

func (p inPlace) prepare(context.Context) error {
	r := p.room
	if r.level == engine.Restricted {
		if r.options.Isolation == engine.Auto && !r.ids.apart {
			if err := landlock.KeepsSignals(); err != nil {
				return err
			}
		}
		if err := holder.TryOpenat2(); err != nil {
			return err
		}
	}
	if r.options.Runsc != "" {
		return fmt.Errorf("gVisor needs the isolation %q", engine.Full)
	}
	return r.makeRoots()
}

func (p inPlace) startRoom(ctx context.Context, control, stderr *os.File) (*spawn.Process, *wire.Conn, error) {
	return p.room.startGuard(ctx, control, stderr)
}

func (inPlace) roomSpec() (wire.RoomSpec, error) { return wire.RoomSpec{InPlace: true}, nil }

func (p inPlace) describe() {
	r := p.room
	r.report.Disk = "not enforced: no file system of its own"
	defer r.noteNoexec()
	if r.level == engine.None {
		r.note("nothing is isolated: sandboxes are plain processes of the server's user")
		return
	}
	r.note("no namespaces: processes see those of the host, there is no network and no socket inside, and the Python environment is read-only")
	if !r.ids.apart {
		r.note("sandboxes have the id of the server: they can use up what the kernel counts by user (processes, inotify, locked memory)")
		r.report.Notes = append(r.report.Notes, landlock.LeavesOpen()...)
	}
}

func (p inPlace) lacks(promises engine.Promises) {
	why := fmt.Sprintf("at the isolation level %s it has no mounts", p.room.level)
	promises.Lack(why, engine.SharedLayers, engine.Volumes, engine.HeaderRules, engine.Mounts, engine.Images)
	promises.Lack(fmt.Sprintf("at the isolation level %s it has no network of its own", p.room.level), engine.HostServices)
}

func (p inPlace) egressReport(*Sandbox) string {
	if p.room.level == engine.None {
		return "not isolated: the machine's own network"
	}
	return "none: no network namespaces"
}

func (inPlace) forksKernels() bool { return false }

func (inPlace) layout() string { return "a directory of their own" }

func (p inPlace) place(s *Sandbox, request *wire.Message) error {
	root, err := s.makeRoot()
	s.files.root = &root
	if id, switched := p.room.restrictedID(s.slot); switched {
		request.UID = uint32(id)
	}
	return err
}

func (inPlace) displace(s *Sandbox) error {
	if s.files.root == nil {
		return nil // its start failed before
	}
	return place.Remove(s.files.root.Dir)
}

func (inPlace) disk(s *Sandbox) (disk unix.Statfs_t, ok bool) {
	return disk, unix.Statfs(s.files.root.Dir, &disk) == nil
}

func (p inPlace) addSaved(s *Sandbox, spec *wire.SaveSpec, files *wire.Files) (uintptr, error) {
	from, err := os.Open(s.files.root.Dir)
	if err != nil {
		return 0, err
	}
	files.Add(wire.FileFiles, from)
	spec.InPlace, spec.Trees = true, nil
	if id, switched := p.room.restrictedID(s.slot); switched {
		spec.FirstID = uint32(id)
	}
	return 0, nil
}

// processLimit returns a limit if sandboxes have ids of their own. Otherwise a limit would also count
// the server and the other processes of its user.
func (p inPlace) processLimit(s *Sandbox) (uint64, bool) {
	if _, apart := p.room.restrictedID(s.slot); !apart {
		return 0, false
	}
	// Nothing counts all sandboxes together, so each gets a part.
	part := max(p.room.options.Processes*counter.CloudPart/counter.SandboxPart, minProcesses)
	return min(uint64(s.share.limits.MaxProcesses), uint64(part)), true
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
	if err := os.Mkdir(r.keeper.spec.Roots, 0o711); err != nil {
		info, errOfInfo := os.Lstat(r.keeper.spec.Roots)
		// An attempt at a stronger level may have made it.
		if errOfInfo != nil || !info.IsDir() || !instance.OwnedByUs(info) {
			if filepath.Dir(r.keeper.spec.Roots) == filepath.Clean(os.TempDir()) {
				err = fmt.Errorf("%w; set TMPDIR to a directory that other users may pass through", err)
			}
			return fmt.Errorf("make the directory of sandboxes: %w", err)
		}
	}
	return os.Chmod(r.keeper.spec.Roots, 0o711)
}

// makeRoot makes the directory of a sandbox, owned by the id that the sandbox will have. Its name
// cannot be guessed: if sandboxes share an id, a sandbox that knew the name could change the mode
// of the directory (Landlock does not check chmod).
func (s *Sandbox) makeRoot() (place.Root, error) {
	p := place.Root{Dir: filepath.Join(s.room.keeper.spec.Roots, rand.Text()), Restricted: s.room.level == engine.Restricted}
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
	return r.ids.firstOf(slot), r.level == engine.Restricted && r.ids.apart
}
