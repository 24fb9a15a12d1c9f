package sandbox

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"time"
)

// FS returns the files below root as an [fs.FS], with the methods of [fs.StatFS], [fs.ReadDirFS],
// [fs.ReadFileFS], [fs.SubFS] and [fs.ReadLinkFS]. ctx limits all calls of the returned value.
// Symbolic links are followed, even if they lead out of root, as with [os.DirFS]. ReadLink returns
// the final target of a link. Every call is a request to the sandbox: to walk a large tree use
// [Files.List] instead.
func (f *Files) FS(ctx context.Context, root string) fs.FS {
	return &fileSystem{ctx, f, root}
}

type fileSystem struct {
	ctx   context.Context //nolint:containedctx // methods of an fs.FS take none
	files *Files
	root  string
}

var (
	_ fs.StatFS     = (*fileSystem)(nil)
	_ fs.ReadDirFS  = (*fileSystem)(nil)
	_ fs.ReadFileFS = (*fileSystem)(nil)
	_ fs.SubFS      = (*fileSystem)(nil)
	_ fs.ReadLinkFS = (*fileSystem)(nil)
)

// pathOf returns the sandbox's path for a name.
func (s *fileSystem) pathOf(op, name string) (string, error) {
	if !fs.ValidPath(name) {
		return "", &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	return path.Join(cmp.Or(s.root, "."), name), nil
}

// withName replaces the sandbox's path in an error with the caller's name.
func withName(op, name string, err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err
	}
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// stat describes a file and follows symbolic links.
func (s *fileSystem) stat(op, name string) (*fsEntry, error) {
	info, err := s.lstat(op, name)
	if err != nil || info.about.Type != TypeSymlink {
		return info, err
	}
	target, err := s.files.Stat(s.ctx, info.about.SymlinkTarget, nil)
	if err == nil && target.Type == TypeSymlink {
		err = fs.ErrNotExist // the target of a broken link is the link itself
	}
	if err != nil {
		return nil, withName(op, name, err)
	}
	return &fsEntry{info.name, target}, nil
}

func (s *fileSystem) lstat(op, name string) (*fsEntry, error) {
	at, err := s.pathOf(op, name)
	if err != nil {
		return nil, err
	}
	info, err := s.files.Stat(s.ctx, at, nil)
	if err != nil {
		return nil, withName(op, name, err)
	}
	return &fsEntry{path.Base(name), info}, nil
}

// Open opens a file or directory.
func (s *fileSystem) Open(name string) (fs.File, error) {
	info, err := s.stat("open", name)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return &openDir{system: s, name: name, info: info}, nil
	}
	content, err := s.files.Open(s.ctx, path.Join(cmp.Or(s.root, "."), name), nil)
	if err != nil {
		return nil, withName("open", name, err)
	}
	return &openFile{content, name, info}, nil
}

// Stat describes a file and follows symbolic links.
func (s *fileSystem) Stat(name string) (fs.FileInfo, error) {
	info, err := s.stat("stat", name)
	if err != nil {
		return nil, err
	}
	return info, nil
}

// Lstat describes a file and does not follow a symbolic link at the end of the name.
func (s *fileSystem) Lstat(name string) (fs.FileInfo, error) {
	info, err := s.lstat("lstat", name)
	if err != nil {
		return nil, err
	}
	return info, nil
}

// ReadLink returns the final target of a symbolic link.
func (s *fileSystem) ReadLink(name string) (string, error) {
	info, err := s.lstat("readlink", name)
	switch {
	case err != nil:
		return "", err
	case info.about.Type != TypeSymlink:
		return "", &fs.PathError{Op: "readlink", Path: name, Err: fs.ErrInvalid}
	}
	return info.about.SymlinkTarget, nil
}

// ReadFile reads a file.
func (s *fileSystem) ReadFile(name string) ([]byte, error) {
	at, err := s.pathOf("readfile", name)
	if err != nil {
		return nil, err
	}
	data, err := s.files.Read(s.ctx, at, nil)
	return data, withName("readfile", name, err)
}

// ReadDir lists a directory.
func (s *fileSystem) ReadDir(name string) ([]fs.DirEntry, error) {
	at, err := s.pathOf("readdir", name)
	if err != nil {
		return nil, err
	}
	infos, err := s.files.List(s.ctx, at, nil)
	if err != nil {
		return nil, withName("readdir", name, err)
	}
	entries := make([]fs.DirEntry, len(infos))
	for i, info := range infos {
		entries[i] = fs.FileInfoToDirEntry(&fsEntry{info.Name, &info})
	}
	return entries, nil
}

// Sub returns the files below a directory.
func (s *fileSystem) Sub(name string) (fs.FS, error) {
	at, err := s.pathOf("sub", name)
	if err != nil {
		return nil, err
	}
	return &fileSystem{s.ctx, s.files, at}, nil
}

// fsEntry is a file's description under the caller's name.
type fsEntry struct {
	name  string
	about *FileInfo
}

func (e *fsEntry) Name() string       { return e.name }
func (e *fsEntry) Size() int64        { return e.about.Size }
func (e *fsEntry) Mode() fs.FileMode  { return e.about.Mode }
func (e *fsEntry) ModTime() time.Time { return e.about.ModTime }
func (e *fsEntry) IsDir() bool        { return e.about.Mode.IsDir() }

// Sys returns the [*FileInfo].
func (e *fsEntry) Sys() any { return e.about }

// openFile is a file that is open for reading.
type openFile struct {
	content io.ReadCloser
	name    string
	info    *fsEntry
}

func (f *openFile) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f *openFile) Close() error               { return f.content.Close() }

func (f *openFile) Read(p []byte) (int, error) {
	n, err := f.content.Read(p)
	if err == nil || errors.Is(err, io.EOF) {
		return n, err
	}
	return n, withName("read", f.name, err)
}

// openDir is an open directory. The first read lists it.
type openDir struct {
	system *fileSystem
	name   string
	info   *fsEntry
	listed bool
	rest   []fs.DirEntry
}

func (d *openDir) Stat() (fs.FileInfo, error) { return d.info, nil }
func (d *openDir) Close() error               { return nil }

func (d *openDir) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: d.name, Err: errors.New("is a directory")}
}

// ReadDir returns the next n entries, or all remaining ones if n is not positive.
func (d *openDir) ReadDir(n int) ([]fs.DirEntry, error) {
	if !d.listed {
		entries, err := d.system.ReadDir(d.name)
		if err != nil {
			return nil, err
		}
		d.rest, d.listed = entries, true
	}
	if n > 0 && len(d.rest) == 0 {
		return nil, io.EOF
	}
	if n <= 0 || n > len(d.rest) {
		n = len(d.rest)
	}
	entries := d.rest[:n:n]
	d.rest = d.rest[n:]
	return entries, nil
}
