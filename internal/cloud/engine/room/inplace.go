//go:build linux

package room

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/place"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/spawn"
)

// planPlaces returns the directory that contains the sandboxes' directories. The
// ids that a root server gives to sandboxes cannot reach anything below its home,
// where the instance directory is.
func planPlaces(instance string) string {
	if os.Geteuid() != 0 {
		return filepath.Join(instance, "sandboxes")
	}
	return filepath.Join(os.TempDir(), "e2bctl-"+rand.Text())
}

// makePlaces makes that directory. Others may go through it but not list it.
func (r *Room) makePlaces() error {
	if r.rung == engine.Full {
		return nil
	}
	if err := os.Mkdir(r.places, 0o711); err != nil && !errors.Is(err, fs.ErrExist) { // may exist from the level tried before
		return err
	}
	return os.Chmod(r.places, 0o711)
}

// makePlace makes the directory of a sandbox, for the id that it will run as. Its
// name cannot be guessed: where sandboxes share an id, one that knew the name could
// change the mode of the directory (Landlock does not check chmod).
func (s *Sandbox) makePlace() (place.Root, error) {
	p := place.Root{Dir: filepath.Join(s.room.places, rand.Text()), Restricted: s.room.rung == engine.Restricted}
	err := os.Mkdir(p.Dir, 0o700)
	for _, dir := range []string{p.Home(), p.Temp()} {
		err = errors.Join(err, os.MkdirAll(dir, 0o755))
	}
	if id, switched := s.room.placeID(s.slot); switched {
		for _, dir := range []string{p.Home(), filepath.Dir(p.Home()), p.Temp(), p.Dir} {
			err = errors.Join(err, os.Chown(dir, id, id))
		}
	}
	return p, err
}

// placeID returns the host's id that a restricted sandbox runs as if the server is
// root; otherwise the sandbox runs as the server does.
func (r *Room) placeID(slot uint32) (int, bool) {
	return spawn.IDBase + spawn.FirstID(slot), r.rung == engine.Restricted && r.ids.ranged
}
