package volumes

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/store"
)

const (
	// Max bounds the volumes.
	Max = 1000
	// maxName bounds the name of a volume, in bytes.
	maxName = 128
	// recordVersion is the version of what is stored.
	recordVersion = 1
)

// The directories in that of a volume.
const (
	filesName   = "files"
	newName     = "new"
	removedName = "removed"
)

var (
	// ErrNotFound means that there is no such volume.
	ErrNotFound = errors.New("volumes: no such volume")
	// ErrExists means that there is a volume with that name.
	ErrExists = errors.New("volumes: there is a volume with that name")
	// ErrName means that a volume cannot have that name.
	ErrName = fmt.Errorf("volumes: a name has 1 to %d letters, digits, - and _", maxName)
	// ErrTooMany means that there are as many volumes as there may be.
	ErrTooMany = fmt.Errorf("volumes: there are %d, which is the limit", Max)
	// ErrInUse means that a volume is in use.
	ErrInUse = errors.New("volumes: the volume is in use")
)

// Volume describes a volume.
type Volume struct {
	ID        string
	Name      string
	CreatedAt time.Time
}

// record is a volume in the store.
type record struct {
	Version   int
	Name      string
	CreatedAt time.Time
}

// volume is a volume in memory.
type volume struct {
	Volume
	dir     string
	holders int
}

// Options configure a [Registry].
type Options struct {
	Store  *store.Store // the caller closes it after the last use of a volume
	Logger *slog.Logger // nil: no log
	// OneID: sandboxes have a single id, which is that of this process.
	OneID bool
}

// Registry holds the volumes of one cloud. It is safe for concurrent use.
type Registry struct {
	store *store.Store
	ids   ids

	mu   sync.Mutex
	byID map[string]*volume
}

// New returns the volumes that a store keeps. One that cannot be read is left alone.
func New(o Options) *Registry {
	log := cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	ctx := context.Background()
	r := &Registry{store: o.Store, ids: ids{o.OneID}, byID: map[string]*volume{}}
	all, err := o.Store.Records(store.Volumes)
	if err != nil {
		log.ErrorContext(ctx, "volumes that cannot be read are left alone", "error", err)
	}
	for _, entry := range all {
		v, err := load(entry)
		if err != nil {
			log.ErrorContext(ctx, "a volume that cannot be read is left alone", "volume", entry.ID, "error", err)
			continue
		}
		if err := sweep(ctx, v.dir); err != nil {
			log.WarnContext(ctx, "what was removed from a volume is not all gone", "volume", entry.ID, "error", err)
		}
		r.byID[v.ID] = v
	}
	return r
}

func load(entry store.Record) (*volume, error) {
	var rec record
	if err := json.Unmarshal(entry.Value, &rec); err != nil {
		return nil, err
	}
	switch {
	case rec.Version != recordVersion:
		return nil, fmt.Errorf("its version is %d, and this program knows %d", rec.Version, recordVersion)
	case !validName(rec.Name):
		return nil, ErrName
	case entry.Dir == "":
		return nil, errors.New("it has no files")
	}
	return &volume{Volume: Volume{entry.ID, rec.Name, rec.CreatedAt}, dir: entry.Dir}, nil
}

func validName(name string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
	return name != "" && len(name) <= maxName && strings.Trim(name, letters) == ""
}

// Create makes an empty volume. Its errors include [ErrName], [ErrExists] and
// [ErrTooMany].
func (r *Registry) Create(id, name string) (Volume, error) {
	if !validName(name) {
		return Volume{}, ErrName
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.namedLocked(name) != nil:
		return Volume{}, ErrExists
	case len(r.byID) >= Max:
		return Volume{}, ErrTooMany
	}
	v := Volume{ID: id, Name: name, CreatedAt: time.Now().UTC()}
	value, err := json.Marshal(record{recordVersion, v.Name, v.CreatedAt})
	if err != nil {
		return Volume{}, err
	}
	dir, err := r.store.NewDir()
	if err != nil {
		return Volume{}, err
	}
	err = r.makeDirectories(dir)
	published := ""
	if err == nil {
		published, err = r.store.Put(store.Volumes, id, value, dir)
	}
	if err != nil {
		return Volume{}, errors.Join(err, r.store.Discard(dir))
	}
	r.byID[id] = &volume{Volume: v, dir: published}
	return v, nil
}

func (r *Registry) makeDirectories(dir string) error {
	for _, name := range []string{filesName, newName, removedName} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			return err
		}
	}
	files, err := os.Open(filepath.Join(dir, filesName))
	if err != nil {
		return err
	}
	defer files.Close()
	return r.ids.give(files, DefaultOwner, defaultDirMode)
}

// Get returns a volume, or [ErrNotFound].
func (r *Registry) Get(id string) (Volume, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if v := r.byID[id]; v != nil {
		return v.Volume, nil
	}
	return Volume{}, ErrNotFound
}

// Named returns the volume with a name, or [ErrNotFound].
func (r *Registry) Named(name string) (Volume, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if v := r.namedLocked(name); v != nil {
		return v.Volume, nil
	}
	return Volume{}, ErrNotFound
}

func (r *Registry) namedLocked(name string) *volume {
	for _, v := range r.byID {
		if v.Name == name {
			return v
		}
	}
	return nil
}

// List returns all volumes, oldest first.
func (r *Registry) List() []Volume {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]Volume, 0, len(r.byID))
	for _, v := range r.byID {
		all = append(all, v.Volume)
	}
	slices.SortFunc(all, func(a, b Volume) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), strings.Compare(a.ID, b.ID))
	})
	return all
}

// Hold keeps a volume from being deleted until release is called, once, and returns the
// directory to mount. It returns [ErrNotFound] if there is no such volume.
func (r *Registry) Hold(id string) (dir string, release func(), err error) {
	v, release, err := r.hold(id)
	if err != nil {
		return "", nil, err
	}
	return filepath.Join(v.dir, filesName), release, nil
}

func (r *Registry) hold(id string) (v *volume, release func(), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if v = r.byID[id]; v == nil {
		return nil, nil, ErrNotFound
	}
	v.holders++
	return v, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		v.holders--
	}, nil
}

// Delete deletes a volume and all that is in it. wanted reports whether anything that
// does not hold it, such as a paused sandbox, needs it; it must not use the registry. The
// errors include [ErrNotFound] and [ErrInUse].
func (r *Registry) Delete(id string, wanted func() bool) error {
	v, err := r.take(id, wanted)
	if err != nil {
		return err
	}
	if err := r.store.Delete(store.Volumes, id); err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.byID[id] = v
		return err
	}
	return nil
}

// take removes a volume from those in memory. Its files take time to remove, which
// nobody else has to wait for.
func (r *Registry) take(id string, wanted func() bool) (*volume, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v := r.byID[id]
	switch {
	case v == nil:
		return nil, ErrNotFound
	case v.holders > 0 || wanted():
		return nil, ErrInUse
	}
	delete(r.byID, id)
	return v, nil
}
