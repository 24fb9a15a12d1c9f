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
	"syscall"
	"time"

	"github.com/e2bctl/e2bctl/api"
)

// VolumeEntry describes a file, a directory or something else in a volume.
type VolumeEntry struct {
	Name string
	Type VolumeEntryType
	// Path is the path from the root of the volume.
	Path string
	Size int64
	// Mode has the permissions as Unix has them, UID and GID the ids that the owner has
	// in sandboxes.
	Mode       uint32
	UID        uint32
	GID        uint32
	AccessedAt time.Time
	ModifiedAt time.Time
	// ChangedAt is the time of the last change of the content or an attribute.
	ChangedAt time.Time
	// Target is the target of a symlink.
	Target string
}

func volumeEntryOf(e api.VolumeEntry) VolumeEntry { return VolumeEntry(e) }

// VolumeEntryType is the type of a volume's entry. A service may use others than the constants
// here.
type VolumeEntryType = api.VolumeEntryType

// The types of entries of a volume.
const (
	VolumeFile      = api.VolumeFile
	VolumeDirectory = api.VolumeDirectory
	VolumeSymlink   = api.VolumeSymlink
	VolumeOther     = api.VolumeOther
)

// VolumeListParams says how deep to list. The zero value lists one level.
type VolumeListParams struct {
	// MaxDepth limits the levels of directories to list. Zero means 1.
	MaxDepth int
}

// VolumeAttributesParams says which attributes to change. A nil one stays as it is.
type VolumeAttributesParams struct {
	// Mode has the permissions as Unix has them, UID and GID the ids that the owner has
	// in sandboxes.
	Mode, UID, GID *uint32
}

// Volume works with the files of a volume, from outside sandboxes. Paths begin at the
// root of the volume, with or without a slash. No symlink leads out of it. Errors are
// [*fs.PathError]; errors.Is finds fs.ErrNotExist, fs.ErrExist, syscall.ENOSPC and the
// like in them. It is safe for concurrent use.
//
// Its access ends after some days; [Volumes.Open] returns the volume with a new one.
type Volume struct {
	id, name string
	content  *api.VolumeContent
}

// ID returns the id of the volume.
func (v *Volume) ID() string { return v.id }

// Name returns the name of the volume.
func (v *Volume) Name() string { return v.name }

// VolumeFileParams says how a file or directory is made. The zero value makes missing
// directories and replaces a file that exists, and leaves mode and owner to the service:
// on a local cloud a file that is replaced keeps them.
type VolumeFileParams struct {
	// Mode has the permissions as Unix has them, UID and GID the ids that the owner has
	// in sandboxes.
	Mode, UID, GID *uint32
	// Exclusive fails with fs.ErrExist if there is something at the path, and with
	// fs.ErrNotExist if its directory does not exist.
	Exclusive bool
}

func (p *VolumeFileParams) write() *api.VolumeWriteParams {
	p = cmp.Or(p, &VolumeFileParams{})
	return &api.VolumeWriteParams{Mode: p.Mode, UID: p.UID, GID: p.GID, Force: !p.Exclusive}
}

// Read returns the whole content of a file; Open streams it.
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

// Open opens a file for reading; its content is streamed, and Close must be called. ctx
// bounds the reading, too.
func (v *Volume) Open(ctx context.Context, path string) (io.ReadCloser, error) {
	r, err := v.content.Open(ctx, path)
	return r, v.failed("open", path, err)
}

// Write writes a file. Where it replaces one on a local cloud, nobody sees a part of it.
func (v *Volume) Write(ctx context.Context, path string, data []byte, p *VolumeFileParams) error {
	return v.WriteFrom(ctx, path, bytes.NewReader(data), p)
}

// WriteFrom is like Write, but streams the bytes of r; a nil r writes an empty file.
func (v *Volume) WriteFrom(ctx context.Context, path string, r io.Reader, p *VolumeFileParams) error {
	_, err := v.content.Write(ctx, path, r, p.write())
	return v.failed("write", path, err)
}

// MakeDir makes a directory; that it exists is an error only if p says so.
func (v *Volume) MakeDir(ctx context.Context, path string, p *VolumeFileParams) error {
	_, err := v.content.MakeDir(ctx, path, p.write())
	return v.failed("mkdir", path, err)
}

// List returns the entries of a directory.
func (v *Volume) List(ctx context.Context, path string, p *VolumeListParams) ([]VolumeEntry, error) {
	entries, err := v.content.List(ctx, path, (*api.VolumeListParams)(p))
	return allAs(entries, volumeEntryOf), v.failed("list", path, err)
}

// Stat describes the file at a path, and does not follow a symlink there.
func (v *Volume) Stat(ctx context.Context, path string) (*VolumeEntry, error) {
	entry, err := v.content.Stat(ctx, path)
	return (*VolumeEntry)(entry), v.failed("stat", path, err)
}

// Exists reports whether there is something at a path.
func (v *Volume) Exists(ctx context.Context, path string) (bool, error) {
	_, err := v.Stat(ctx, path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// SetAttributes changes mode and owner of a file or directory.
func (v *Volume) SetAttributes(ctx context.Context, path string, p *VolumeAttributesParams) error {
	_, err := v.content.SetAttributes(ctx, path, (*api.VolumeAttributesParams)(p))
	return v.failed("chmod", path, err)
}

// Remove removes a file, or a directory with all that is in it.
func (v *Volume) Remove(ctx context.Context, path string) error {
	return v.failed("remove", path, v.content.Remove(ctx, path))
}

// failed returns the error of an operation on a path, nil if it did not fail.
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
