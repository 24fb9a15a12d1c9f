//go:build linux

package envd

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// stagedFile contains the content of an upload until the upload is complete. The file has a name
// only if the filesystem requires a name.
type stagedFile struct {
	*os.File
	name string // name of the file; "" if the file has no name
}

// stage creates a staged file in the first of dirs in which this is possible. The caller must close
// the file.
func stage(dirs ...string) (f *stagedFile, err error) {
	for _, dir := range dirs {
		if f, err = stageIn(dir); err == nil {
			break
		}
	}
	return f, err
}

func stageIn(dir string) (*stagedFile, error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o666)
	if err == nil {
		return &stagedFile{File: os.NewFile(uintptr(fd), dir)}, nil
	}
	if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EISDIR) {
		return nil, fmt.Errorf("error opening a temporary file in %s: %w", dir, err)
	}
	f, err := os.OpenFile(filepath.Join(dir, ".upload-"+rand.Text()), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return nil, err
	}
	return &stagedFile{File: f, name: f.Name()}, nil
}

// Close closes the file. If the file was not linked, Close also removes it.
func (s *stagedFile) Close() error {
	err := s.File.Close()
	if s.name != "" {
		err = errors.Join(err, os.Remove(s.name))
	}
	return err
}

// link gives the file the name path. If path already exists, the error is [os.ErrExist]. If path is
// on another mount, the error is [unix.EXDEV].
func (s *stagedFile) link(path string) error {
	if s.name != "" {
		return os.Link(s.name, path)
	}
	self := "/proc/self/fd/" + strconv.Itoa(int(s.Fd()))
	return unix.Linkat(unix.AT_FDCWD, self, unix.AT_FDCWD, path, unix.AT_SYMLINK_FOLLOW)
}

// copyTo copies the content to w.
func (s *stagedFile) copyTo(w io.Writer) error {
	if _, err := s.Seek(0, io.SeekStart); err != nil {
		return err
	}
	_, err := io.Copy(w, s.File)
	return err
}

// stagingFor returns the directories in which to stage a new file for dir. If files of the scratch
// directory can be linked into dir, the scratch directory comes first, because a nameless file in
// dir itself would cause events for watchers of dir. The scratch directory is not the only result,
// because programs may remove it or withdraw its permissions.
func (s *Server) stagingFor(dir string) []string {
	there, err := mountOf(dir)
	if err != nil {
		return []string{dir}
	}
	if here, err := mountOf(s.scratch); err != nil || here != there {
		return []string{dir}
	}
	return []string{s.scratch, dir}
}

// mountOf returns the number of the mount that contains path.
func mountOf(path string) (uint64, error) {
	var stat unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_MNT_ID, &stat); err != nil {
		return 0, err
	}
	if stat.Mask&unix.STATX_MNT_ID == 0 {
		return 0, unix.EOPNOTSUPP
	}
	return stat.Mnt_id, nil
}

// announce causes the events that watchers expect for a file that is created and written at path,
// although the file was linked there. First its attributes change, then its content, then it is
// closed. If another upload has replaced the file meanwhile, the new content is kept. If the file
// no longer exists, watchers only see its creation. The same applies to a file of another user,
// because its times must not be changed.
func announce(path string) {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written
	now, omit := unix.Timespec{Nsec: unix.UTIME_NOW}, unix.Timespec{Nsec: unix.UTIME_OMIT}
	self := "/proc/self/fd/" + strconv.Itoa(fd)
	_ = unix.UtimesNanoAt(unix.AT_FDCWD, self, []unix.Timespec{now, now}, 0)
	_ = unix.UtimesNanoAt(unix.AT_FDCWD, self, []unix.Timespec{omit, now}, 0)
}

// linkTarget follows the links at path, at most 40 like the kernel, and returns the path to which the
// last link leads. If path is not a link, it returns path. If nothing exists at the returned path, a
// program that creates path creates the file there.
func linkTarget(path string) string {
	const most = 40 // links in one chain; the kernel has the same bound
	for range most {
		to, err := os.Readlink(path)
		if err != nil {
			break
		}
		if !filepath.IsAbs(to) {
			to = parent(path) + to
		}
		path = to
	}
	return path
}

// parent returns the directory of an absolute path, with a slash at the end. Unlike [filepath.Dir],
// it does not clean "link/..": this path may lead to another directory than ".".
func parent(path string) string { return path[:strings.LastIndexByte(path, '/')+1] }
