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

// stagedFile holds the content of an upload until the upload is complete. It has no name,
// unless the filesystem makes no files without one.
type stagedFile struct {
	*os.File
	name string // "" for a file without a name
}

// stage makes a staged file in the first of dirs that allows it. The caller closes it.
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

// Close closes the file, which removes it unless it was linked.
func (s *stagedFile) Close() error {
	err := s.File.Close()
	if s.name != "" {
		err = errors.Join(err, os.Remove(s.name))
	}
	return err
}

// link gives the file the name path. It returns an error that is [os.ErrExist] if path
// exists already, and [unix.EXDEV] if path is on another mount.
func (s *stagedFile) link(path string) error {
	if s.name != "" {
		return os.Link(s.name, path)
	}
	self := "/proc/self/fd/" + strconv.Itoa(int(s.Fd()))
	return unix.Linkat(unix.AT_FDCWD, self, unix.AT_FDCWD, path, unix.AT_SYMLINK_FOLLOW)
}

// copyTo writes the content to w.
func (s *stagedFile) copyTo(w io.Writer) error {
	if _, err := s.Seek(0, io.SeekStart); err != nil {
		return err
	}
	_, err := io.Copy(w, s.File)
	return err
}

// stagingFor returns the directories in which to stage a new file of dir. The scratch
// directory comes first, if its files can be linked into dir: watchers of dir see the
// events of a nameless file in dir itself. Programs may remove the scratch directory, or
// close it.
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

// mountOf returns the number of the mount that has path.
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

// announce makes watchers of a file that was linked to path see it as one that was
// created there and written to: its attributes change, then its content, then it is
// closed. A file that another upload has put there meanwhile keeps its content. If the
// file is gone, or belongs to another user so that this process may not change its times,
// watchers see only its creation.
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

// linkTarget returns the path of the file that a creation through path makes: the end of
// a chain of links, if the last one leads to nothing.
func linkTarget(path string) string {
	const most = 40 // as the kernel
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

// parent returns the directory of an absolute path, with a slash at its end. Unlike
// [filepath.Dir] it leaves "link/.." to the kernel, where it may differ from ".".
func parent(path string) string { return path[:strings.LastIndexByte(path, '/')+1] }
