package sandbox

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"sync"
	"syscall"
	"time"

	"github.com/e2bctl/e2bctl/api"
)

// VolumeEntry describes a file, a directory or something else in a volume.
type VolumeEntry struct {
	Name string
	Type VolumeEntryType
	// Path is the absolute path in the volume. The volume's root is "/".
	Path string
	Size int64
	// Mode has the permission bits as on Unix. UID and GID are the ids of the owner and its
	// group, as sandboxes see them.
	Mode       uint32
	UID        uint32
	GID        uint32
	AccessedAt time.Time
	ModifiedAt time.Time
	// ChangedAt is the time of the last change to the content or an attribute.
	ChangedAt time.Time
	// Target is the target of a symlink; empty for other entries.
	Target string
}

func volumeEntryOf(e api.VolumeEntry) VolumeEntry { return VolumeEntry(e) }

// VolumeEntryType is the type of a volume's entry. A service may use values other than the
// constants here.
type VolumeEntryType = api.VolumeEntryType

// These are the types of entries of a volume.
const (
	VolumeFile      = api.VolumeFile
	VolumeDirectory = api.VolumeDirectory
	VolumeSymlink   = api.VolumeSymlink
	VolumeOther     = api.VolumeOther
)

// VolumeListParams sets the depth of a list. The zero value lists one level.
type VolumeListParams struct {
	// MaxDepth limits the levels of directories to list. Zero means 1.
	MaxDepth int
}

// VolumeAttributesParams contains changes to a file's attributes. A nil field changes nothing.
type VolumeAttributesParams struct {
	// Mode has the permission bits as on Unix. UID and GID are the ids of the owner and its
	// group, as sandboxes see them.
	Mode, UID, GID *uint32
}

// Volume gives access to the files of a volume, from outside sandboxes. Paths are relative to the
// root of the volume, with or without a leading slash. No symlink leads out of the volume. The type
// of errors is [*fs.PathError]. They match fs.ErrNotExist, fs.ErrExist, syscall.ENOSPC and similar
// errors with errors.Is. Volume is safe for concurrent use.
//
// The token with which a Volume accesses the files expires after some days. [Volumes.Open] returns
// a Volume with a new token.
type Volume struct {
	id, name string
	content  *api.VolumeContent
}

// ID returns the id of the volume.
func (v *Volume) ID() string { return v.id }

// Name returns the name of the volume.
func (v *Volume) Name() string { return v.name }

// VolumeFileParams sets how to create a file or directory. The zero value creates missing
// parent directories, replaces an existing file, and leaves mode and owner to the service. On a
// local cloud a replaced file keeps its mode and owner.
type VolumeFileParams struct {
	// Mode has the permission bits as on Unix. UID and GID are the ids of the owner and its
	// group, as sandboxes see them.
	Mode, UID, GID *uint32
	// Exclusive makes the call return fs.ErrExist if the path exists, and fs.ErrNotExist if its
	// parent directory does not exist.
	Exclusive bool
}

func (p *VolumeFileParams) write() *api.VolumeWriteParams {
	p = cmp.Or(p, &VolumeFileParams{})
	return &api.VolumeWriteParams{Mode: p.Mode, UID: p.UID, GID: p.GID, Force: !p.Exclusive}
}

// Read returns the whole content of a file. Use Open to stream it.
func (v *Volume) Read(ctx context.Context, path string) ([]byte, error) {
	r, err := v.Open(ctx, path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, v.failed("read", path, err)
	}
	return data, nil
}

// Open opens a file for reading and streams its content. The caller must close it. ctx also
// limits the reading.
func (v *Volume) Open(ctx context.Context, path string) (io.ReadCloser, error) {
	r, err := v.content.Open(ctx, path)
	return r, v.failed("open", path, err)
}

// Write writes a file. On a local cloud, readers of a file that Write replaces see either the old
// content or the complete new content.
func (v *Volume) Write(ctx context.Context, path string, data []byte, p *VolumeFileParams) error {
	return v.WriteFrom(ctx, path, bytes.NewReader(data), p)
}

// WriteFrom is like Write, but streams the bytes of r; a nil r writes an empty file. While a Read
// of r blocks, WriteFrom behaves like [Files.WriteFrom]: it notices that the volume was deleted,
// and then does not wait for the Read.
func (v *Volume) WriteFrom(ctx context.Context, path string, r io.Reader, p *VolumeFileParams) error {
	if r == nil || bufferedIn(r) >= 0 {
		_, err := v.content.Write(ctx, path, r, p.write())
		return v.failed("write", path, err)
	}
	var attending sync.WaitGroup
	defer attending.Wait()
	life, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s := &source{r: r, length: -1, idle: newIdleTimer(-1, cancel), progress: newProgress(nil)}
	attending.Go(func() { s.attend(life, DefaultIdleTimeout, v.exists, cancel) })
	_, err := v.content.Write(life, path, s, p.write())
	switch own := s.end(); {
	case ctx.Err() != nil:
	case life.Err() != nil:
		err = context.Cause(life)
	case own != nil:
		err = own
	}
	return v.failed("write", path, err)
}

// exists asks the service about the volume.
func (v *Volume) exists(ctx context.Context) error {
	_, err := v.content.Stat(ctx, "/")
	return err
}

// MakeDir creates a directory. An existing directory is an error only with p.Exclusive.
func (v *Volume) MakeDir(ctx context.Context, path string, p *VolumeFileParams) error {
	_, err := v.content.MakeDir(ctx, path, p.write())
	return v.failed("mkdir", path, err)
}

// List returns the entries of a directory.
func (v *Volume) List(ctx context.Context, path string, p *VolumeListParams) ([]VolumeEntry, error) {
	entries, err := v.content.List(ctx, path, (*api.VolumeListParams)(p))
	return allAs(entries, volumeEntryOf), v.failed("list", path, err)
}

// Stat describes the file at a path. It does not follow a symlink at the end of the path.
func (v *Volume) Stat(ctx context.Context, path string) (*VolumeEntry, error) {
	entry, err := v.content.Stat(ctx, path)
	return (*VolumeEntry)(entry), v.failed("stat", path, err)
}

// Exists reports whether a file of any kind is at a path.
func (v *Volume) Exists(ctx context.Context, path string) (bool, error) {
	_, err := v.Stat(ctx, path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// SetAttributes changes the mode and the owner of a file or directory.
func (v *Volume) SetAttributes(ctx context.Context, path string, p *VolumeAttributesParams) error {
	_, err := v.content.SetAttributes(ctx, path, (*api.VolumeAttributesParams)(p))
	return v.failed("chmod", path, err)
}

// Remove removes a file, or a directory with everything in it.
func (v *Volume) Remove(ctx context.Context, path string) error {
	return v.failed("remove", path, v.content.Remove(ctx, path))
}

// failed returns the error of an operation on a path, or nil if err is nil.
func (v *Volume) failed(op, path string, err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*api.Error](err); ok {
		switch {
		case e.Code == "is_a_directory":
			err = fmt.Errorf("%w: %w", syscall.EISDIR, err)
		case e.Code == "not_a_directory":
			err = fmt.Errorf("%w: %w", syscall.ENOTDIR, err)
		case e.StatusCode == http.StatusConflict:
			err = fmt.Errorf("%w: %w", fs.ErrExist, err)
		}
	}
	return &fs.PathError{Op: op, Path: v.name + ":" + path, Err: asSystem(err)}
}
