package sandbox

import (
	"archive/tar"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/clip"
)

// VolumeUploadDirParams sets how to copy a directory into a volume.
type VolumeUploadDirParams struct {
	// Exclude returns true for an entry that UploadDir must not copy, together with everything below
	// it. The name is the path relative to the directory, with slashes. Exclude may be nil.
	Exclude func(name string, entry fs.DirEntry) bool
	// Skipped is called for each file that cannot be copied: a socket, pipe or device, or a symbolic
	// link, because the API of volumes cannot create symbolic links. Skipped may be nil.
	Skipped func(name, why string)
	// Progress is called with the number of bytes of files sent so far, as often as
	// [FileParams].Progress. Progress may be nil.
	Progress func(bytes int64)
}

// VolumeDownloadDirParams sets how to copy a directory out of a volume.
type VolumeDownloadDirParams struct {
	// MaxBytes and MaxFiles have the meaning of the fields of [DownloadDirParams].
	MaxBytes, MaxFiles int64
	// Skipped is called for each file that is not copied: devices and similar files, and symbolic
	// links that lead, or may lead, out of the directory. name and why come from sandboxes and may
	// contain anything. Skipped may be nil.
	Skipped func(name, why string)
	// Progress is called with the number of bytes of files received so far, as often as
	// [FileParams].Progress. Progress may be nil.
	Progress func(bytes int64)
}

// UploadDir copies the content of a directory of this machine into a directory of the volume. It
// creates dir if it is missing, replaces existing files that have the same name, and keeps other
// files. It preserves modes, except setuid and setgid, but not times. It sends one file after
// another. If a call to the service fails, the files that were sent before remain.
func (v *Volume) UploadDir(ctx context.Context, local, dir string, p *VolumeUploadDirParams) error {
	p = cmp.Or(p, &VolumeUploadDirParams{})
	root, err := os.OpenRoot(local)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // it was only used for reading
	u := volumeUpload{volume: v, root: root, dir: dir, skipped: orNothing(p.Skipped), progress: newProgress(p.Progress)}
	err = fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case p.Exclude == nil || name == "." || !p.Exclude(name, entry):
			return u.add(ctx, name, entry)
		case entry.IsDir():
			return fs.SkipDir
		}
		return nil
	})
	if err == nil {
		err = u.setModes(ctx)
	}
	if err == nil {
		u.progress.finish()
	}
	return err
}

// volumeUpload copies a directory into a volume.
type volumeUpload struct {
	volume   *Volume
	root     *os.Root
	dir      string
	skipped  func(name, why string)
	progress *progress
	// modes contains the final modes of directories that need other modes during the copy.
	modes []dirMode
}

type dirMode struct {
	path string
	mode uint32
}

func (u *volumeUpload) add(ctx context.Context, name string, entry fs.DirEntry) error {
	to := path.Join("/", u.dir, name)
	switch entry.Type() {
	case fs.ModeDir:
		return u.addDir(ctx, name, to, entry)
	case 0:
		return u.addFile(ctx, name, to)
	case fs.ModeSymlink:
		u.skipped(name, "it is a link, which cannot be made in a volume from outside")
	default:
		u.skipped(name, "it is neither a file, a directory nor a link")
	}
	return nil
}

func (u *volumeUpload) addDir(ctx context.Context, name, to string, entry fs.DirEntry) error {
	if to == "/" {
		return nil // every volume has a root
	}
	info, err := entry.Info()
	if err != nil {
		return err
	}
	mode := uint32(info.Mode().Perm())
	open := mode | 0o700 // allows creating files in it
	made, err := u.volume.content.MakeDir(ctx, to, (&VolumeFileParams{Mode: &open}).write())
	if err != nil {
		return u.volume.failed("mkdir", to, err)
	}
	if made.Mode&0o700 != 0o700 { // it existed, with a mode that allows no new files
		if err := u.volume.SetAttributes(ctx, to, &VolumeAttributesParams{Mode: &open}); err != nil {
			return err
		}
		made.Mode = open
	}
	if name != "." && made.Mode&0o777 != mode {
		u.modes = append(u.modes, dirMode{to, mode})
	}
	return nil
}

func (u *volumeUpload) addFile(ctx context.Context, name, to string) error {
	file, err := u.root.Open(filepath.FromSlash(name))
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	content := io.TeeReader(file, counted{io.Discard, u.progress})
	return u.volume.WriteFrom(ctx, to, content, &VolumeFileParams{Mode: new(uint32(info.Mode().Perm()))})
}

// setModes sets the modes of directories, the deepest first, because the mode of a directory may
// make the directories below it inaccessible.
func (u *volumeUpload) setModes(ctx context.Context) error {
	for len(u.modes) > 0 {
		last := u.modes[len(u.modes)-1]
		u.modes = u.modes[:len(u.modes)-1]
		if err := u.volume.SetAttributes(ctx, last.path, &VolumeAttributesParams{Mode: &last.mode}); err != nil {
			return err
		}
	}
	return nil
}

// DownloadDir copies the content of a directory of the volume into a directory of this machine. It
// creates local if it is missing, replaces existing files and links that have the same name, and
// keeps other files. It preserves times, symbolic links, and modes except setuid and setgid. Files
// that are created or removed during the copy may be missing.
//
// The content of a volume is not trusted: no name and no link causes a write outside of local,
// and p limits the amount of data.
func (v *Volume) DownloadDir(ctx context.Context, dir, local string, p *VolumeDownloadDirParams) error {
	p = cmp.Or(p, &VolumeDownloadDirParams{})
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r, w := io.Pipe()
	packed := make(chan error, 1)
	d := volumeDownload{volume: v, archive: tar.NewWriter(w), progress: newProgress(p.Progress)}
	go func() {
		err := d.add(ctx, path.Join("/", dir), "")
		if err == nil {
			err = d.archive.Close()
		}
		w.CloseWithError(err)
		packed <- err
	}()
	err := receiveArchive(ctx, r, local, &DownloadDirParams{MaxBytes: p.MaxBytes, MaxFiles: p.MaxFiles, Skipped: p.Skipped})
	r.CloseWithError(errDownloadEnded)
	cancel(errDownloadEnded)
	if packErr := <-packed; packErr != nil && errors.Is(err, packErr) {
		return packErr // returned without the archive's wrapping
	}
	if err != nil {
		return v.failed("download", dir, err)
	}
	d.progress.finish()
	return nil
}

var errDownloadEnded = errors.New("the download has ended")

// volumeDownload packs a directory of a volume into an archive. The archive is then unpacked as
// safely as an archive from a sandbox.
type volumeDownload struct {
	volume   *Volume
	archive  *tar.Writer
	progress *progress
}

// add adds the entries of a directory. within is the directory's name in the archive.
func (d *volumeDownload) add(ctx context.Context, dir, within string) error {
	entries, err := d.volume.List(ctx, dir, nil)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name == "" || e.Name == "." || e.Name == ".." || strings.ContainsRune(e.Name, '/') {
			return fmt.Errorf("sandbox: the service says that %s has %q, which is not the name of an entry", clip.Line(dir, maxVolumePath), clip.Line(e.Name, maxVolumePath))
		}
		at, name := path.Join("/", dir, e.Name), path.Join(within, e.Name)
		if err := d.addEntry(ctx, e, at, name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

const maxVolumePath = 1024

func (d *volumeDownload) addEntry(ctx context.Context, e VolumeEntry, at, name string) error {
	header := &tar.Header{Name: name, Mode: int64(e.Mode & 0o777), ModTime: e.ModifiedAt, Format: tar.FormatPAX}
	switch e.Type {
	case api.VolumeDirectory:
		header.Typeflag, header.Name = tar.TypeDir, name+"/"
		if err := d.archive.WriteHeader(header); err != nil {
			return err
		}
		return d.add(ctx, at, name)
	case api.VolumeSymlink:
		header.Typeflag, header.Linkname = tar.TypeSymlink, e.Target
		return d.archive.WriteHeader(header)
	case api.VolumeFile:
		header.Typeflag, header.Size = tar.TypeReg, e.Size
		return d.addFile(ctx, header, at)
	}
	header.Typeflag = tar.TypeFifo // any kind of file that is not unpacked
	return d.archive.WriteHeader(header)
}

// addFile adds a file to the archive, with the length that the list of the directory reported.
func (d *volumeDownload) addFile(ctx context.Context, header *tar.Header, at string) error {
	r, err := d.volume.Open(ctx, at)
	if err != nil {
		return err
	}
	defer r.Close()
	if err := d.archive.WriteHeader(header); err != nil {
		return err
	}
	_, err = io.CopyN(counted{d.archive, d.progress}, r, header.Size)
	if errors.Is(err, io.EOF) {
		err = errors.New("it became shorter while it was copied: try again")
	}
	return d.volume.failed("read", at, err)
}
