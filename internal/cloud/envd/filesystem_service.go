//go:build linux

package envd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/gen/filesystem"
)

// maxEntries bounds the entries of a listing, which have about 30 MB on the wire.
const maxEntries = 100_000

var errTooManyEntries = fmt.Errorf("too many entries: the bound is %d: list with less depth", maxEntries)

// filesystemService implements filesystem.Filesystem.
type filesystemService struct{ server *Server }

func (s *filesystemService) resolve(ctx context.Context, path string) (string, error) {
	resolved, err := s.server.paths.resolve(path, s.server.userOf(ctx))
	if err != nil {
		return "", connect.NewError(connect.CodeInvalidArgument, err)
	}
	return resolved, nil
}

// entry describes the file at path. Its error is a Connect error.
func (s *filesystemService) entry(path string) (*filesystem.EntryInfo, error) {
	entry, err := s.server.entry(path)
	if isMissing(err) {
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("file not found: %w", err))
	}
	if err != nil {
		return nil, connect.NewError(connect.CodeInternal, fmt.Errorf("error getting file info: %w", err))
	}
	return entry, nil
}

func isMissing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR)
}

// Stat describes the file at a path. It does not follow a symbolic link.
func (s *filesystemService) Stat(ctx context.Context, req *connect.Request[filesystem.StatRequest]) (*connect.Response[filesystem.StatResponse], error) {
	path, err := s.resolve(ctx, req.Msg.GetPath())
	if err != nil {
		return nil, err
	}
	entry, err := s.entry(path)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&filesystem.StatResponse{Entry: entry}), nil
}

// MakeDir creates a directory and its missing parents.
func (s *filesystemService) MakeDir(ctx context.Context, req *connect.Request[filesystem.MakeDirRequest]) (*connect.Response[filesystem.MakeDirResponse], error) {
	path, err := s.resolve(ctx, req.Msg.GetPath())
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(path); err == nil {
		if info.IsDir() {
			return nil, connect.NewError(connect.CodeAlreadyExists, fmt.Errorf("directory already exists: %s", path))
		}
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("path already exists but it is not a directory: %s", path))
	}
	if err := makeDirs(path, s.server.userOf(ctx)); err != nil {
		return nil, connect.NewError(connect.CodeInternal, fmt.Errorf("error creating directory: %w", err))
	}
	entry, err := s.entry(path)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&filesystem.MakeDirResponse{Entry: entry}), nil
}

// Move renames a file or directory. It may replace an existing file.
func (s *filesystemService) Move(ctx context.Context, req *connect.Request[filesystem.MoveRequest]) (*connect.Response[filesystem.MoveResponse], error) {
	source, err := s.resolve(ctx, req.Msg.GetSource())
	if err != nil {
		return nil, err
	}
	destination, err := s.resolve(ctx, req.Msg.GetDestination())
	if err != nil {
		return nil, err
	}
	if _, err := os.Lstat(source); isMissing(err) {
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("source file not found: %w", err))
	}
	if err := makeDirs(filepath.Dir(destination), s.server.userOf(ctx)); err != nil {
		return nil, connect.NewError(connect.CodeInternal, fmt.Errorf("error ensuring directories: %w", err))
	}
	if err := rename(source, destination); err != nil {
		return nil, connect.NewError(connect.CodeInternal, fmt.Errorf("error renaming: %w", err))
	}
	entry, err := s.entry(destination)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&filesystem.MoveResponse{Entry: entry}), nil
}

// rename renames source to destination. If both are names of the same file, the system call
// succeeds without a change. In this case rename removes the source, as mv does.
func rename(source, destination string) error {
	from, err := os.Lstat(source)
	if err != nil {
		return err
	}
	to, err := os.Lstat(destination)
	if err != nil && !isMissing(err) {
		return err // whether both are names of the same file is unknown
	}
	if err != nil || from.IsDir() || !os.SameFile(from, to) {
		return os.Rename(source, destination)
	}
	one, err := sameEntry(source, destination)
	if err != nil || one {
		return err
	}
	return os.Remove(source)
}

// sameEntry reports whether two paths are the same entry of the same directory. A directory may
// have several paths.
func sameEntry(a, b string) (bool, error) {
	if filepath.Base(a) != filepath.Base(b) {
		return false, nil
	}
	here, err := os.Stat(parent(a))
	if err != nil {
		return false, err
	}
	there, err := os.Stat(parent(b))
	return os.SameFile(here, there), err
}

// Remove removes a file or a directory with its contents. It succeeds if the path does not
// exist.
func (s *filesystemService) Remove(ctx context.Context, req *connect.Request[filesystem.RemoveRequest]) (*connect.Response[filesystem.RemoveResponse], error) {
	path, err := s.resolve(ctx, req.Msg.GetPath())
	if err != nil {
		return nil, err
	}
	if err := os.RemoveAll(path); err != nil {
		return nil, connect.NewError(connect.CodeInternal, fmt.Errorf("error removing file or directory: %w", err))
	}
	return connect.NewResponse(&filesystem.RemoveResponse{}), nil
}

// ListDir lists a directory down to a depth. Every directory comes before its contents.
func (s *filesystemService) ListDir(ctx context.Context, req *connect.Request[filesystem.ListDirRequest]) (*connect.Response[filesystem.ListDirResponse], error) {
	path, err := s.resolve(ctx, req.Msg.GetPath())
	if err != nil {
		return nil, err
	}
	root, err := directory(path)
	if err != nil {
		return nil, err
	}
	found, err := readDir(root)
	if err != nil {
		return nil, connect.NewError(connect.CodeInternal, fmt.Errorf("error reading directory: %w", err))
	}
	l := listing{server: s.server}
	if err := l.add(ctx, root, path, found, max(1, req.Msg.GetDepth())); err != nil {
		return nil, err
	}
	return connect.NewResponse(&filesystem.ListDirResponse{Entries: l.entries}), nil
}

type listing struct {
	server  *Server
	entries []*filesystem.EntryInfo
}

// add adds the entries of dir, and everything below them, to the listing. path is the path by which
// the client refers to dir. Entries that cannot be read or no longer exist are left out.
func (l *listing) add(ctx context.Context, dir, path string, found []fs.DirEntry, depth uint32) error {
	for _, d := range found {
		if ctx.Err() != nil {
			return contextFailure(ctx)
		}
		if len(l.entries) == maxEntries {
			return connect.NewError(connect.CodeResourceExhausted, errTooManyEntries)
		}
		at, name := filepath.Join(dir, d.Name()), filepath.Join(path, d.Name())
		entry := l.server.entryIfAny(at)
		if entry == nil {
			continue
		}
		entry.Path = text(name)
		l.entries = append(l.entries, entry)
		if !d.IsDir() || depth == 1 {
			continue
		}
		below, err := readDir(at)
		if err != nil {
			continue
		}
		if err := l.add(ctx, at, name, below, depth-1); err != nil {
			return err
		}
	}
	return nil
}

// readDir returns the entries of dir in order of name. It returns at most one entry more than a
// listing may have, because memory must not contain all entries of a directory with millions of
// files.
func readDir(dir string) ([]fs.DirEntry, error) {
	f, err := openDir(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	list, err := f.ReadDir(maxEntries + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	slices.SortFunc(list, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return list, nil
}

// directory returns the directory to which path leads, or a Connect error.
func directory(path string) (string, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, unix.ELOOP):
		return "", connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("cyclic symlink: %w", err))
	case isMissing(err):
		return "", connect.NewError(connect.CodeNotFound, fmt.Errorf("path not found: %w", err))
	case err != nil:
		return "", connect.NewError(connect.CodeInternal, fmt.Errorf("error getting file info: %w", err))
	case !info.IsDir():
		return "", connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("path is not a directory: %s", path))
	}
	root, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", connect.NewError(connect.CodeInternal, fmt.Errorf("error resolving symlink: %w", err))
	}
	return root, nil
}
