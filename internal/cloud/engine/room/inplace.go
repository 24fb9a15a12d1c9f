//go:build linux

package room

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
)

// This file contains the isolation levels without namespaces: the agent and its
// processes live among those of the host, restricted or not, in a directory of
// their own.

// place is the root directory of a sandbox without namespaces; "" if it has
// namespaces.
type place struct {
	Dir        string `json:"dir,omitempty"` // contains home and tmp
	Restricted bool   `json:"restricted,omitempty"`
}

func (p place) home() string { return filepath.Join(p.Dir, "home", "user") }
func (p place) temp() string { return filepath.Join(p.Dir, "tmp") }
func (p place) run() string  { return filepath.Join(p.Dir, "run") }

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
func (s *Sandbox) makePlace() (place, error) {
	p := place{Dir: filepath.Join(s.room.places, rand.Text()), Restricted: s.room.rung == engine.Restricted}
	err := os.Mkdir(p.Dir, 0o700)
	for _, dir := range []string{p.home(), p.temp()} {
		err = errors.Join(err, os.MkdirAll(dir, 0o755))
	}
	if id, switched := s.room.placeID(s.slot); switched {
		for _, dir := range []string{p.home(), filepath.Dir(p.home()), p.temp(), p.Dir} {
			err = errors.Join(err, os.Chown(dir, id, id))
		}
	}
	return p, err
}

// placeID returns the host's id that a restricted sandbox runs as if the server is
// root; otherwise the sandbox runs as the server does.
func (r *Room) placeID(slot uint32) (int, bool) {
	return idBase + firstID(slot), r.rung == engine.Restricted && r.ids.ranged
}

// removePlace removes a directory of sandboxes, including directories whose mode
// locks out their owner.
func removePlace(dir string) error {
	err := os.RemoveAll(dir)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	walk := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() {
			return os.Chmod(path, 0o700)
		}
		return err
	})
	return errors.Join(walk, os.RemoveAll(dir))
}
