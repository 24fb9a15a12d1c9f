package volumes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/e2bctl/e2bctl/internal/protocol"
)

const (
	defaultFileMode = 0o644
	defaultDirMode  = 0o755
	// maxMode contains all bits of a mode.
	maxMode = 0o7777
	// maxID is the highest id in a sandbox.
	maxID = 1<<16 - 1
	// maxPath bounds the length of a path in bytes. maxElement bounds the length of one
	// element.
	maxPath    = 4096
	maxElement = 255
	// maxEntries bounds the number of entries in a list.
	maxEntries = 50_000
)

var (
	// ErrPath reports that a path is not valid in a volume.
	ErrPath = errors.New("volumes: not a path in a volume")
	// ErrNotFile reports that a path does not lead to a regular file.
	ErrNotFile = errors.New("volumes: not a regular file")
	// ErrIsDir reports that a path leads to a directory.
	ErrIsDir = errors.New("volumes: a directory")
	// ErrNotDir reports that a path does not lead to a directory.
	ErrNotDir = errors.New("volumes: not a directory")
	// ErrTooLong reports that a list would have too many entries.
	ErrTooLong = fmt.Errorf("volumes: there are more than %d entries", maxEntries)
	// ErrAttributes reports that a file cannot have the requested mode or owner.
	ErrAttributes = fmt.Errorf("volumes: a mode is at most %#o, an id at most %d", maxMode, maxID)
)

// Kind is the kind of an entry.
type Kind string

// Kinds of entries.
const (
	File      Kind = "file"
	Directory Kind = "directory"
	Symlink   Kind = "symlink"
	Other     Kind = "unknown" // a pipe, a socket, a device
)

// Owner contains the ids of the user and group of an entry. The ids are those inside sandboxes.
type Owner struct{ UID, GID uint32 }

// DefaultOwner is the owner of new entries if no other owner is requested. It is the user
// of sandboxes.
var DefaultOwner = Owner{protocol.UserID, protocol.UserID}

// Entry describes the file at a path.
type Entry struct {
	Path               string // from the root of the volume, which is /
	Kind               Kind
	Size               int64
	Mode               uint32 // permissions, setuid, setgid and sticky bit
	Owner              Owner
	Accessed, Modified time.Time
	Changed            time.Time // last change of the attributes
	Target             string    // target of a symbolic link
}

// Name returns the last element of the path.
func (e Entry) Name() string { return path.Base(e.Path) }

// Attributes are the mode and owner for an entry. For a new entry, nil means the default. For an
// existing entry, nil means no change.
type Attributes struct {
	Mode, UID, GID *uint32
}

func (a Attributes) check() error {
	for _, id := range []*uint32{a.UID, a.GID} {
		if id != nil && *id > maxID {
			return ErrAttributes
		}
	}
	if a.Mode != nil && *a.Mode > maxMode {
		return ErrAttributes
	}
	return nil
}

// apply returns owner and mode. Each attribute that is set in a replaces the given value.
func (a Attributes) apply(owner Owner, mode uint32) (Owner, uint32) {
	for _, one := range []struct{ from, to *uint32 }{{a.UID, &owner.UID}, {a.GID, &owner.GID}, {a.Mode, &mode}} {
		if one.from != nil {
			*one.to = *one.from
		}
	}
	return owner, mode
}

// Content reads and changes the files of one volume. It holds the volume until Close. Paths begin
// at the root of the volume, with or without a leading /. If a directory in a path is a link, the
// link is followed, but never out of the volume. Errors match those of this package and of io/fs.
// Content is safe for concurrent use.
type Content struct {
	dir     string
	ids     ids
	root    *os.Root
	release func()
}

// Open returns the content of a volume. If there is no such volume, the error is [ErrNotFound].
// The caller must close the content.
func (r *Registry) Open(id string) (*Content, error) {
	_, dir, release, err := r.holdVolume(id)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(filepath.Join(dir, filesName))
	if err != nil {
		release()
		return nil, err
	}
	return &Content{dir, r.ids, root, release}, nil
}

// ids converts between the ids of files and the ids in sandboxes, which begin at 0.
type ids struct {
	// one means that there is a single id, the id of this process. In sandboxes, this id is root.
	one bool
}

// Close releases the volume. It is idempotent.
func (c *Content) Close() {
	_ = c.root.Close() // only reads and writes of files can fail
	c.release()
}

// clean returns a path in the form that os.Root needs. In this form, "." is the root. The result
// never leads above the root.
func clean(name string) (string, error) {
	if name == "" || len(name) > maxPath || strings.ContainsRune(name, 0) {
		return "", ErrPath
	}
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	if name == "" {
		return ".", nil
	}
	if slices.ContainsFunc(strings.Split(name, "/"), func(s string) bool { return len(s) > maxElement }) {
		return "", ErrPath
	}
	return name, nil
}

// clientPath returns the path of an entry as clients know it.
func clientPath(name string) string { return path.Clean("/" + name) }

// explain adds the matching error of this package, or of io/fs, to an error of the system, and
// returns the result.
func explain(err error) error {
	var refused *fs.PathError
	switch {
	case errors.Is(err, syscall.ENOTDIR): // a file in the directories of the path
		return fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	case errors.Is(err, syscall.ENAMETOOLONG), errors.Is(err, syscall.ELOOP):
		return fmt.Errorf("%w: %w", ErrPath, err)
	case errors.As(err, &refused):
		if _, system := errors.AsType[syscall.Errno](refused.Err); !system { // an error of os.Root: the path leads out
			return fmt.Errorf("%w: %w", ErrPath, err)
		}
	}
	return err
}
