//go:build linux

package treecopy

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Owner is the user and group of a file.
type Owner struct{ UID, GID uint32 }

// Placement selects files of an archive, and describes the path, owner and mode of their copies.
type Placement struct {
	// Source is the path in the archive that is copied, or a pattern. For a pattern, the whole
	// directory above the pattern is copied. "" means every file at the top level of the archive.
	// The archive may then be empty.
	Source string
	// Target is the absolute path of the copy. If it ends in "/" or is a directory, a file is
	// copied into it. If a directory is copied, its contents are copied into Target.
	Target string
	// Owner is the owner of the copies. Nil means the owners in the archive.
	Owner *Owner
	// Mode is the mode of copied files and directories. Nil means the modes in the archive.
	Mode *uint32
	// Parents is the owner of parent directories that are missing and will be created.
	Parents Owner
}

// ArchiveError reports that an archive, or a file in it, cannot be copied.
type ArchiveError struct{ Reason string }

func (e *ArchiveError) Error() string { return e.Reason }

func refuse(format string, args ...any) error {
	return &ArchiveError{fmt.Sprintf(format, args...)}
}

// Place copies the files of a tar archive, which may be compressed with gzip. After an error,
// some files may have been copied.
func Place(archive io.Reader, p Placement) error {
	source, err := begin(p.Source)
	if err != nil {
		return err
	}
	w := placing{Placement: p, source: source, made: map[string]string{}, links: map[string]bool{}}
	plain, err := unzipped(archive)
	if err != nil {
		return unpackable(err)
	}
	for files := tar.NewReader(plain); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return unpackable(err)
		}
		if err := w.placeFile(h, files); err != nil {
			return err
		}
		w.any = true
	}
	switch {
	case p.Source == "": // an empty archive is not an error
	case !w.any:
		return unpackable(errors.New("there is nothing in it"))
	case !w.found:
		return refuse("'%s' is not in the archive", p.Source)
	}
	return w.finish()
}

func unpackable(err error) error {
	return refuse("the archive cannot be unpacked: it must be a whole tar file, gzip or not: %v", err)
}

func unzipped(archive io.Reader) (io.Reader, error) {
	buffered := bufio.NewReaderSize(archive, 64<<10)
	head, _ := buffered.Peek(2) // tar reports any error
	if !bytes.Equal(head, []byte{0x1f, 0x8b}) {
		return buffered, nil
	}
	return gzip.NewReader(buffered)
}

// begin returns the part of source before the first element that contains a pattern. The result is a
// path in the archive. If source contains no pattern, begin returns all of source.
func begin(source string) (string, error) {
	for strings.ContainsAny(source, "*?[") {
		source = path.Dir(source)
	}
	clean := path.Clean(strings.TrimLeft(source, "/"))
	if clean == ".." || strings.HasPrefix(clean, "../") {
		return "", refuse("'%s' leads out of the archive", source)
	}
	return clean, nil
}

// placing is the state of a call of Place.
type placing struct {
	Placement

	source     string
	any, found bool
	first      string            // name of the single file that is copied to the path Target
	made       map[string]string // paths of the copies, keyed by name in the archive; for hard links
	links      map[string]bool   // names in the archive that are symbolic links
	dirs       []placedDir
}

// placedDir is a directory whose mode and time are set at the end. They are not set earlier because
// creating files in the directory changes the time, and some modes would not allow creating files.
type placedDir struct {
	path string
	mode uint32
	at   time.Time
}

// placeFile copies one file of the archive, if it belongs to the source.
func (w *placing) placeFile(h *tar.Header, content io.Reader) error {
	name := path.Clean(strings.TrimLeft(h.Name, "/"))
	if name == ".." || strings.HasPrefix(name, "../") {
		return refuse("the archive cannot be unpacked: %.200q leads out of it", h.Name)
	}
	for above := path.Dir(name); above != "."; above = path.Dir(above) {
		if w.links[above] {
			return refuse("the archive cannot be unpacked: %.200q is behind a link", h.Name)
		}
	}
	root, inside, ok := w.split(name)
	if !ok {
		return nil
	}
	w.found = true
	to, err := w.destination(root, inside, h.Typeflag == tar.TypeDir)
	if err != nil {
		return err
	}
	w.links[name] = h.Typeflag == tar.TypeSymlink
	if err := w.write(to, h, content); err != nil {
		if _, refused := errors.AsType[*ArchiveError](err); refused {
			return err
		}
		return fmt.Errorf("copying to %s: %w", to, err)
	}
	w.made[name] = to
	return nil
}

// split splits the name of a file in the archive. root is the name of the copied file or directory
// that contains the file. inside is the path in this directory, or "" if the file is root itself.
// If the file does not belong to the source, ok is false.
func (w *placing) split(name string) (root, inside string, ok bool) {
	switch {
	case w.Source == "": // each file at the top level is a root
		root, inside, _ = strings.Cut(name, "/")
		return root, inside, true
	case name == w.source:
		return path.Base(name), "", true
	case w.source == ".":
		return ".", name, true
	}
	inside, ok = strings.CutPrefix(name, w.source+"/")
	return path.Base(w.source), inside, ok
}

// destination returns the path to which a file is copied. It creates missing parent directories of
// the target.
func (w *placing) destination(root, inside string, isDir bool) (string, error) {
	target := path.Clean(w.Target)
	if inside != "" || isDir {
		return path.Join(target, inside), w.parents(target)
	}
	info, err := os.Stat(target)
	if strings.HasSuffix(w.Target, "/") || err == nil && info.IsDir() {
		return path.Join(target, root), w.parents(target)
	}
	if w.first == "" {
		w.first = root
	}
	if w.first != root {
		return "", refuse("several files are copied, so the target must be a directory, or end in /")
	}
	return target, w.parents(path.Dir(target))
}

// parents creates the missing directories of a path.
func (w *placing) parents(dir string) error {
	_, err := MakeDirs(dir, w.Parents)
	return err
}

func (w *placing) write(to string, h *tar.Header, content io.Reader) error {
	if h.Typeflag == tar.TypeDir {
		return w.dir(to, h)
	}
	if err := w.within(path.Dir(to)); err != nil {
		return err
	}
	if err := makeWay(to); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeReg:
		return w.file(to, h, content)
	case tar.TypeSymlink:
		if err := os.Symlink(h.Linkname, to); err != nil {
			return err
		}
		return w.setOwner(to, h)
	case tar.TypeLink:
		of, ok := w.made[path.Clean(strings.TrimLeft(h.Linkname, "/"))]
		if !ok {
			return refuse("the archive cannot be unpacked: %.200q is a hard link to %.200q, which is not copied", h.Name, h.Linkname)
		}
		return os.Link(of, to)
	}
	return refuse("the archive cannot be unpacked: %.200q is neither a file nor a directory nor a link", h.Name)
}

// within creates the directory dir of a file if the archive does not contain this directory. It
// also creates the parents of dir.
func (w *placing) within(dir string) error {
	owner := w.Parents
	if w.Owner != nil {
		owner = *w.Owner
	}
	_, err := MakeDirs(dir, owner)
	return err
}

// makeWay removes an existing file at the path of a new file. If there is a directory at this path,
// it returns an error.
func makeWay(to string) error {
	info, err := os.Lstat(to)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.IsDir():
		return errors.New("there is a directory in its place")
	}
	return os.Remove(to)
}

func (w *placing) file(to string, h *tar.Header, content io.Reader) (err error) {
	file, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	written := &sparse{to: file}
	if err := written.fill(content); err != nil {
		if errors.Is(written.err, unix.ENOSPC) || errors.Is(written.err, unix.EDQUOT) {
			return refuse("the archive cannot be unpacked: the disk of the sandbox is full; its limit is --disk of e2bctl local up, or DiskBytes of local.Resources")
		}
		if written.err != nil {
			return refuse("the archive cannot be unpacked: %v", written.err)
		}
		return unpackable(err)
	}
	if err := w.setOwner(to, h); err != nil {
		return err
	}
	if err := unix.Fchmod(int(file.Fd()), w.mode(h)); err != nil {
		return err
	}
	if capability, ok := h.PAXRecords[capabilityRecord]; ok {
		if err := unix.Fsetxattr(int(file.Fd()), capabilityName, []byte(capability), 0); err != nil {
			return fmt.Errorf("setting the capabilities of the file: %w", err)
		}
	}
	return os.Chtimes(to, time.Time{}, h.ModTime)
}

// Names of the attribute that contains a file's capabilities.
const (
	capabilityName   = "security.capability"
	capabilityRecord = "SCHILY.xattr." + capabilityName
)

// dir creates a directory. As in Docker, an existing directory receives the owner and the mode
// in the archive. If the target itself exists, or if to is a link to a directory, dir
// changes nothing.
func (w *placing) dir(to string, h *tar.Header) error {
	info, err := os.Stat(to)
	switch {
	case err == nil && !info.IsDir():
		return errors.New("there is something in the place of a directory")
	case err == nil && (to == path.Clean(w.Target) || isLink(to)):
		return nil
	case err != nil:
		if err := errors.Join(w.within(path.Dir(to)), os.Mkdir(to, 0o700)); err != nil {
			return err
		}
	}
	if err := w.setOwner(to, h); err != nil {
		return err
	}
	w.dirs = append(w.dirs, placedDir{to, w.mode(h), h.ModTime})
	return nil
}

// mode returns the mode of the copy of a file: w.Mode, or else the mode in the archive.
func (w *placing) mode(h *tar.Header) uint32 {
	mode := uint32(h.Mode)
	if w.Mode != nil {
		mode = *w.Mode
	}
	return mode & 0o7777
}

func isLink(name string) bool {
	info, err := os.Lstat(name)
	return err == nil && info.Mode()&fs.ModeSymlink != 0
}

func (w *placing) setOwner(to string, h *tar.Header) error {
	owner := Owner{uint32(h.Uid), uint32(h.Gid)}
	if w.Owner != nil {
		owner = *w.Owner
	}
	return chown(to, owner)
}

// chown changes the owner of a file, unless the file already has this owner. In a sandbox with only
// one id, the owner cannot be changed, and no change is necessary.
func chown(to string, owner Owner) error {
	var now unix.Stat_t
	if err := unix.Lstat(to, &now); err == nil && now.Uid == owner.UID && now.Gid == owner.GID {
		return nil
	}
	return os.Lchown(to, int(owner.UID), int(owner.GID))
}

// finish sets the modes and times of directories, beginning with the innermost ones.
func (w *placing) finish() error {
	for _, d := range slices.Backward(w.dirs) {
		if err := unix.Chmod(d.path, d.mode); err != nil {
			return fmt.Errorf("set the mode of %s: %w", d.path, err)
		}
		if err := os.Chtimes(d.path, time.Time{}, d.at); err != nil {
			return err
		}
	}
	return nil
}

// MakeDirs creates the missing directories of a path. The new directories belong to owner. made is
// false if no directory was missing.
func MakeDirs(dir string, owner Owner) (made bool, err error) {
	info, err := os.Stat(dir)
	switch {
	case err == nil && info.IsDir():
		return false, nil
	case err == nil || errors.Is(err, unix.ENOTDIR):
		return false, fmt.Errorf("%s is no directory", dir)
	case !errors.Is(err, fs.ErrNotExist):
		return false, err
	}
	if _, err := MakeDirs(path.Dir(dir), owner); err != nil {
		return false, err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return false, err
	}
	return true, chown(dir, owner)
}
