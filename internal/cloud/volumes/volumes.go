package volumes

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
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
	// Max bounds the number of volumes.
	Max = 1000
	// maxName bounds the length of a volume's name in bytes.
	maxName = 128
	// MinSize is the minimum size of a volume in bytes.
	MinSize = 16 << 20
	// recordVersion is the version of the stored format.
	recordVersion = 1
)

// Names of the directories in a volume's directory.
const (
	filesName   = "files"
	newName     = "new"
	removedName = "removed"
)

var (
	// ErrNotFound reports that there is no such volume.
	ErrNotFound = errors.New("volumes: no such volume")
	// ErrExists reports that another volume already has the name.
	ErrExists = errors.New("volumes: there is a volume with that name")
	// ErrName reports that a name is not valid for a volume.
	ErrName = fmt.Errorf("volumes: a name has 1 to %d letters, digits, - and _", maxName)
	// ErrTooMany reports that there are already [Max] volumes.
	ErrTooMany = fmt.Errorf("volumes: there are %d, which is the limit", Max)
	// ErrInUse reports that a volume is in use.
	ErrInUse = errors.New("volumes: the volume is in use")
	// ErrNoSize reports that volumes with a size do not work in this process.
	ErrNoSize = errors.New("volumes with a size (loop-mounted file systems) do not work here")
)

// Volume describes a volume.
type Volume struct {
	ID        string
	Name      string
	CreatedAt time.Time
}

// record is a volume as stored.
type record struct {
	Version   int
	Name      string
	CreatedAt time.Time
	Size      int64 `json:",omitempty"` // 0: no limit
}

// volume is a volume in memory.
type volume struct {
	Volume
	size    int64 // bytes of its own file system; 0: none
	dir     string
	holders int

	mounting sync.Mutex
	root     *os.File // root of the volume's own file system; nil: not mounted
}

// Options configure a [Registry].
type Options struct {
	Store  *store.Store // closed by the caller after the last use of a volume
	Logger *slog.Logger // nil: no log
	// OneID means that sandboxes have a single id, the id of this process.
	OneID bool
	// Size is the size of each new volume in bytes. 0 means that there is no limit. A volume with a
	// size has its own file system; see [Registry.CheckSize]. An existing volume keeps its size, even
	// if the option changes later.
	Size int64
}

// Registry contains the volumes of one cloud. It is safe for concurrent use. The caller must
// close it.
type Registry struct {
	store  *store.Store
	log    *slog.Logger
	ids    ids
	size   int64
	mounts mounts

	mu   sync.Mutex
	byID map[string]*volume
}

// New returns the volumes of a store. It does not change unreadable records.
func New(o Options) *Registry {
	log := cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	ctx := context.Background()
	r := &Registry{store: o.Store, log: log, ids: ids{o.OneID}, size: o.Size, byID: map[string]*volume{}}
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
		if v.size == 0 { // volumes with a size are swept when they are mounted
			r.sweep(ctx, v, v.dir)
		}
		r.byID[v.ID] = v
	}
	return r
}

// sweep deletes the files that an earlier process left in a volume.
func (r *Registry) sweep(ctx context.Context, v *volume, dir string) {
	if err := sweep(ctx, dir); err != nil {
		r.log.WarnContext(ctx, "what was removed from a volume is not all gone", "volume", v.ID, "error", err)
	}
}

// Close unmounts the volumes, which must no longer be in use. It is idempotent.
func (r *Registry) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for _, v := range r.byID {
		errs = append(errs, r.leave(v))
	}
	r.mounts.end()
	return errors.Join(errs...)
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
	case rec.Size < 0:
		return nil, errors.New("its size is negative")
	case entry.Dir == "":
		return nil, errors.New("it has no files")
	}
	return &volume{Volume: Volume{entry.ID, rec.Name, rec.CreatedAt}, size: rec.Size, dir: entry.Dir}, nil
}

func validName(name string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
	return name != "" && len(name) <= maxName && strings.Trim(name, letters) == ""
}

// Create creates an empty volume. The errors include [ErrName], [ErrExists] and [ErrTooMany].
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
	value, err := json.Marshal(record{recordVersion, v.Name, v.CreatedAt, r.size})
	if err != nil {
		return Volume{}, err
	}
	dir, err := r.store.NewDir()
	if err != nil {
		return Volume{}, err
	}
	if r.size == 0 {
		err = r.makeDirectories(dir)
	} else {
		err = makeImage(context.Background(), dir, r.size)
	}
	published := ""
	if err == nil {
		published, err = r.store.Put(store.Volumes, id, value, dir)
	}
	if err != nil {
		return Volume{}, errors.Join(err, r.store.Discard(dir))
	}
	r.byID[id] = &volume{Volume: v, size: r.size, dir: published}
	return v, nil
}

// makeDirectories creates the missing directories of a volume. The directory with the files
// appears only when it is complete.
func (r *Registry) makeDirectories(dir string) error {
	if _, err := os.Lstat(filepath.Join(dir, filesName)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	const unfinished = filesName + ".new"
	for _, name := range []string{newName, removedName, unfinished} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); !errors.Is(err, fs.ErrExist) && err != nil {
			return err
		}
	}
	files, err := os.Open(filepath.Join(dir, unfinished))
	if err != nil {
		return err
	}
	defer files.Close()
	if err := r.ids.setAttributes(files, DefaultOwner, defaultDirMode); err != nil {
		return err
	}
	return os.Rename(filepath.Join(dir, unfinished), filepath.Join(dir, filesName))
}

// Get returns a volume. If there is none, the error is [ErrNotFound].
func (r *Registry) Get(id string) (Volume, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if v := r.byID[id]; v != nil {
		return v.Volume, nil
	}
	return Volume{}, ErrNotFound
}

// Named returns the volume with a name. If there is none, the error is [ErrNotFound].
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

// Mount contains the information with which an engine mounts a volume in a sandbox.
type Mount struct {
	// Dir is the directory with the files.
	Dir string
	// Clone returns a detached mount of Dir. If an engine can create such a mount without the
	// registry, Clone is nil.
	Clone func() (*os.File, error)
}

// Hold prevents the deletion of a volume until release is called. If there is no such volume, the
// error is [ErrNotFound]. If the volume cannot be mounted, the error is [ErrNoSize].
func (r *Registry) Hold(id string) (m Mount, release func(), err error) {
	v, dir, release, err := r.holdVolume(id)
	if err != nil {
		return Mount{}, nil, err
	}
	m.Dir = filepath.Join(dir, filesName)
	if v.size > 0 {
		m.Clone = func() (*os.File, error) { return r.clone(v) }
	}
	return m, release, nil
}

// holdVolume holds a volume like Hold. It also returns the volume and its directory.
func (r *Registry) holdVolume(id string) (v *volume, dir string, release func(), err error) {
	r.mu.Lock()
	v = r.byID[id]
	if v != nil {
		v.holders++
	}
	r.mu.Unlock()
	if v == nil {
		return nil, "", nil, ErrNotFound
	}
	release = sync.OnceFunc(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		v.holders--
	})
	if dir, err = r.enter(v); err != nil {
		release()
		return nil, "", nil, err
	}
	return v, dir, release, nil
}

// Delete deletes a volume and all of its files. wanted reports whether something that does not hold
// the volume still needs it, for example a paused sandbox. wanted must not use the registry. The
// errors include [ErrNotFound] and [ErrInUse].
func (r *Registry) Delete(id string, wanted func() bool) error {
	v, err := r.take(id, wanted)
	if err != nil {
		return err
	}
	err = r.leave(v)
	if err == nil {
		err = r.store.Delete(store.Volumes, id)
	}
	if err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.byID[id] = v
		return err
	}
	return nil
}

// take removes a volume from the registry's memory. Then Delete can delete the volume's files while
// other calls use the registry.
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
