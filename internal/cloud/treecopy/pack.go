//go:build linux

package treecopy

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Find returns the files that an absolute path or pattern names. As in Docker, a pattern that
// matches no files is no error. Find follows symbolic links that the path or pattern names.
func Find(source string) ([]string, error) {
	clean := path.Clean("/" + source)
	found := []string{clean}
	if strings.ContainsAny(clean, "*?[") {
		var err error
		if found, err = filepath.Glob(clean); err != nil {
			return nil, refuse("'%s' is no pattern: %v", source, err)
		}
	}
	for _, name := range found {
		if _, err := os.Stat(name); err != nil {
			return nil, refuse("'%s' is not there: %v", source, errors.Unwrap(err))
		}
	}
	return found, nil
}

// Pack writes an archive of the files that [Find] found. In the archive, each file is at the top
// level, and its name is the last element of its path. Directories are packed with all their
// contents except sockets, pipes and devices.
func Pack(w io.Writer, found []string) error {
	p := packing{to: tar.NewWriter(w), links: map[inode]string{}}
	for _, name := range found {
		if err := p.root(name); err != nil {
			return err
		}
	}
	return p.to.Close()
}

// packing is the state of a call of Pack.
type packing struct {
	to    *tar.Writer
	links map[inode]string // for files with several links: their names in the archive
}

// machine lists directories whose contents belong to the machine, and not to the root file system
// of the sandbox.
var machine = []string{"/dev", "/proc", "/run", "/sys"}

type inode struct{ dev, ino uint64 }

// root packs the file to which a path leads.
func (p *packing) root(name string) error {
	real, err := filepath.EvalSymlinks(name)
	if err != nil {
		return err
	}
	top := path.Base(name)
	if top == "/" {
		top = "root"
	}
	return filepath.WalkDir(real, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return fmt.Errorf("%s: its id is not known", file)
		}
		err = p.packFile(file, path.Join(top, strings.TrimPrefix(file, real)), info, stat)
		if err == nil && file != real && slices.Contains(machine, file) {
			return fs.SkipDir
		}
		return err
	})
}

// packFile packs one file.
func (p *packing) packFile(file, name string, info fs.FileInfo, stat *syscall.Stat_t) error {
	if info.Mode()&(fs.ModeSocket|fs.ModeDevice|fs.ModeNamedPipe) != 0 {
		return nil
	}
	target := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		var err error
		if target, err = os.Readlink(file); err != nil {
			return err
		}
	}
	h, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return err
	}
	h.Name, h.Format, h.Uname, h.Gname = name, tar.FormatPAX, "", ""
	if info.IsDir() {
		h.Name += "/"
	}
	if !info.Mode().IsRegular() {
		return p.to.WriteHeader(h)
	}
	if stat.Nlink > 1 {
		of := inode{uint64(stat.Dev), stat.Ino}
		if first, ok := p.links[of]; ok {
			h.Typeflag, h.Linkname, h.Size = tar.TypeLink, first, 0
			return p.to.WriteHeader(h)
		}
		p.links[of] = name
	}
	return p.content(file, h)
}

func (p *packing) content(file string, h *tar.Header) error {
	from, err := os.OpenFile(file, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer from.Close()
	var capability [64]byte // its size is 24 bytes
	if n, err := unix.Fgetxattr(int(from.Fd()), capabilityName, capability[:]); err == nil && n > 0 {
		h.PAXRecords = map[string]string{capabilityRecord: string(capability[:n])}
	}
	if err := p.to.WriteHeader(h); err != nil {
		return err
	}
	if _, err := io.CopyN(p.to, from, h.Size); err != nil {
		return fmt.Errorf("reading %s: %w", file, err)
	}
	return nil
}
