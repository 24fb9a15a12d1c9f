package transfer

import (
	"context"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/e2bctl/e2bctl/internal/shell"
	"github.com/e2bctl/e2bctl/sandbox"
)

// Store is a place for files outside of this machine: a sandbox or a volume.
type Store interface {
	// Mode returns the type and the permissions of the file at a path, following links.
	Mode(ctx context.Context, path string) (fs.FileMode, error)
	// Open opens a file for reading.
	Open(ctx context.Context, path string) (io.ReadCloser, error)
	// Write writes a file and the directories that it needs. The file is executable if mode is
	// executable. progress is called with the number of bytes sent so far; nil means no calls.
	Write(ctx context.Context, path string, r io.Reader, mode fs.FileMode, progress func(bytes int64)) error
	// UploadDir and DownloadDir copy the content of a directory with the settings of c.
	UploadDir(ctx context.Context, local, dir string, c *Copy) error
	DownloadDir(ctx context.Context, dir, local string, c *Copy) error
}

// InSandbox returns the end of a copy for a path of a sandbox. Relative paths, and those
// that begin with ~/, start at the home of user.
func InSandbox(sb *sandbox.Sandbox, user, path string) End {
	return End{Store: &sandboxStore{sb, user}, Path: fromHome(path)}
}

// InVolume returns an End for a path of a volume.
func InVolume(v *sandbox.Volume, path string) End { return End{Store: volumeStore{v}, Path: path} }

// sandboxStore gives access to the files of a sandbox, as one of the users of the sandbox.
type sandboxStore struct {
	sandbox *sandbox.Sandbox
	user    string
}

func (s *sandboxStore) Mode(ctx context.Context, name string) (fs.FileMode, error) {
	params := &sandbox.PathParams{User: s.user}
	info, err := s.sandbox.Files.Stat(ctx, path.Clean(name), params)
	if err == nil && info.Type == sandbox.TypeSymlink {
		info, err = s.sandbox.Files.Stat(ctx, info.SymlinkTarget, params)
	}
	if err != nil {
		return 0, err
	}
	return info.Mode, nil
}

func (s *sandboxStore) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	return s.sandbox.Files.Open(ctx, path.Clean(name), &sandbox.FileParams{User: s.user})
}

func (s *sandboxStore) Write(ctx context.Context, name string, r io.Reader, mode fs.FileMode, progress func(bytes int64)) error {
	name = path.Clean(name)
	if err := s.sandbox.Files.WriteFrom(ctx, name, r, &sandbox.FileParams{User: s.user, Progress: progress}); err != nil {
		return err
	}
	if mode&0o111 == 0 {
		return nil
	}
	_, err := s.sandbox.Commands.Run(ctx, "chmod +x -- "+shell.Quote(name), &sandbox.CommandParams{User: s.user})
	return err
}

func (s *sandboxStore) UploadDir(ctx context.Context, local, dir string, c *Copy) error {
	return s.sandbox.Files.UploadDir(ctx, local, path.Clean(dir), &sandbox.UploadDirParams{
		User: s.user, Skipped: c.skipped, Progress: c.Progress,
	})
}

func (s *sandboxStore) DownloadDir(ctx context.Context, dir, local string, c *Copy) error {
	return s.sandbox.Files.DownloadDir(ctx, path.Clean(dir), local, &sandbox.DownloadDirParams{
		User: s.user, MaxBytes: int64(c.MaxBytes), MaxFiles: int64(c.MaxFiles), Skipped: c.skipped, Progress: c.Progress,
	})
}

// readTar and writeTar copy the content of a directory of a sandbox as a tar stream.
func (s *sandboxStore) readTar(ctx context.Context, dir string, w io.Writer) error {
	return s.sandbox.Files.ReadTar(ctx, path.Clean(dir)+"/.", w, &sandbox.TarParams{User: s.user})
}

func (s *sandboxStore) writeTar(ctx context.Context, dir string, r io.Reader, c *Copy) error {
	return s.sandbox.Files.WriteTar(ctx, path.Clean(dir), r, &sandbox.TarParams{User: s.user, Progress: c.Progress})
}

// fromHome replaces a leading ~ by a relative path, because the file API and a shell that gets the
// path in quotes treat ~ differently. For both, a relative path starts at the user's home
// directory.
func fromHome(name string) string {
	if name == "~" {
		return "."
	}
	if rest, ok := strings.CutPrefix(name, "~/"); ok {
		return "./" + strings.TrimLeft(rest, "/")
	}
	return name
}

// volumeStore gives access to the files of a volume.
type volumeStore struct{ volume *sandbox.Volume }

func (s volumeStore) Mode(ctx context.Context, name string) (fs.FileMode, error) {
	entry, err := s.volume.Stat(ctx, name)
	if err != nil {
		return 0, err
	}
	mode := fs.FileMode(entry.Mode) & fs.ModePerm
	switch entry.Type {
	case sandbox.VolumeDirectory:
		mode |= fs.ModeDir
	case sandbox.VolumeSymlink:
		mode = fs.ModeSymlink // nobody can execute a link itself
	}
	return mode, nil
}

func (s volumeStore) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	return s.volume.Open(ctx, name)
}

func (s volumeStore) Write(ctx context.Context, name string, r io.Reader, mode fs.FileMode, progress func(bytes int64)) error {
	var params *sandbox.VolumeFileParams
	if mode&0o111 != 0 {
		params = &sandbox.VolumeFileParams{Mode: new(uint32(0o755))}
	}
	return s.volume.WriteFrom(ctx, name, Counted(r, progress), params)
}

func (s volumeStore) UploadDir(ctx context.Context, local, dir string, c *Copy) error {
	return s.volume.UploadDir(ctx, local, dir, &sandbox.VolumeUploadDirParams{Skipped: c.skipped, Progress: c.Progress})
}

func (s volumeStore) DownloadDir(ctx context.Context, dir, local string, c *Copy) error {
	return s.volume.DownloadDir(ctx, dir, local, &sandbox.VolumeDownloadDirParams{
		MaxBytes: int64(c.MaxBytes), MaxFiles: int64(c.MaxFiles), Skipped: c.skipped, Progress: c.Progress,
	})
}
