//go:build linux

package layer

import (
	"archive/tar"
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Bounds of a layer of a container image. They stop an untrusted archive with many empty entries,
// or with sparse files of huge sizes.
const (
	maxEntries = 2 << 20
	maxFiles   = 64 << 30 // bytes in all files of one layer, holes included
	maxPath    = 4095     // the kernel's own bound
	maxName    = 255      // the bound of file systems
	maxNested  = 256      // directories inside each other
)

// Names of whiteouts in container images: a prefix before the name of a removed file, and a name
// that removes the lower content of a directory.
const (
	whiteoutPrefix = ".wh."
	metaPrefix     = whiteoutPrefix + whiteoutPrefix
	opaqueName     = metaPrefix + ".opq"
)

// ErrImage means that a layer of a container image cannot be unpacked.
var ErrImage = errors.New("the layer of the image cannot be used")

// TarOptions configure the unpacking of a layer of a container image.
type TarOptions struct {
	// Below are the directories of the layers below, highest first. They must be on the same mount
	// as To, because Untar may make hard links to their files in To.
	Below []*os.File
	// To is an empty directory.
	To *os.File
	// IDs is the number of ids, which start at 0. If it is 1, all files belong to this process's user.
	// Otherwise, an owner or group outside the range becomes nobody, as the kernel shows such ids, and
	// the file loses its set-user-ID or set-group-ID bit.
	IDs int
}

// Untar unpacks a layer of a container image, an uncompressed tar, into o.To, in the format of a
// layer's directory. It reads the archive to the end. If it fails, some of the files may have been
// made.
//
// Untar applies the archive above the layers in o.Below. A directory that the archive does not list
// keeps its attributes. A name below a symbolic link is resolved inside the image. Hard links can
// refer to files of the layers below. Devices are left out. Of extended attributes, Untar keeps
// only the attributes of users and the capabilities of programs.
func Untar(r io.Reader, o TarOptions) error {
	u := &untar{o: o, buffer: make([]byte, 1<<20), left: maxFiles}
	defer u.close()
	if err := u.openRoot(); err != nil {
		return err
	}
	if err := u.entries(tar.NewReader(bufio.NewReaderSize(r, 1<<20))); err != nil {
		return err
	}
	if err := u.leave(0); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, r)
	return err
}

type untar struct {
	o      TarOptions
	path   []*nested // open directories, from the root to the current one
	left   int64     // bytes that the files of the layer may still take
	buffer []byte
}

func (u *untar) entries(r *tar.Reader) error {
	for n := 0; ; n++ {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil && !errors.Is(err, tar.ErrInsecurePath) {
			return fmt.Errorf("%w: entry %d: %w", ErrImage, n+1, err)
		}
		if n == maxEntries {
			return fmt.Errorf("%w: it has more than %d entries", ErrImage, maxEntries)
		}
		if err := u.entry(h, r); err != nil {
			return fmt.Errorf("%w: %.1000q: %w", ErrImage, h.Name, err)
		}
	}
}

// entry handles one entry of the archive.
func (u *untar) entry(h *tar.Header, r io.Reader) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	names, err := splitName(h.Name)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		if h.Typeflag != tar.TypeDir {
			return errors.New("the root is a directory")
		}
		if err := u.leave(1); err != nil {
			return err
		}
		return u.describe(h)
	}
	parents, name := names[:len(names)-1], names[len(names)-1]
	if slices.ContainsFunc(parents, func(p string) bool { return strings.HasPrefix(p, whiteoutPrefix) }) {
		return nil // AUFS's own files
	}
	switch {
	case name == opaqueName:
		return u.opaque(parents)
	case strings.HasPrefix(name, metaPrefix):
		return nil
	case strings.HasPrefix(name, whiteoutPrefix): // regardless of its type
		return u.remove(parents, strings.TrimPrefix(name, whiteoutPrefix))
	case h.Typeflag == tar.TypeLink:
		return u.link(parents, name, h.Linkname)
	}
	if err := u.enter(parents); err != nil {
		return err
	}
	return u.make(name, h, r)
}

// make makes an entry in the current directory.
func (u *untar) make(name string, h *tar.Header, r io.Reader) error {
	switch h.Typeflag {
	case tar.TypeDir:
		return u.directory(name, h)
	case tar.TypeReg, tar.TypeCont, tar.TypeGNUSparse:
		return u.regular(name, h, r)
	case tar.TypeSymlink:
		return u.special(name, h, func() error { return unix.Symlinkat(h.Linkname, u.fd(), name) })
	case tar.TypeFifo:
		return u.special(name, h, func() error { return unix.Mknodat(u.fd(), name, unix.S_IFIFO|0o600, 0) })
	case tar.TypeChar, tar.TypeBlock: // every sandbox has its own devices
		if _, err := u.clear(name); err != nil {
			return err
		}
		return u.whiteout(name)
	}
	return fmt.Errorf("entries of type %q are not supported", h.Typeflag)
}

// splitName returns the parts of a name in the image, which starts at the root with or without a
// slash.
func splitName(name string) (parts []string, err error) {
	if len(name) > maxPath {
		return nil, unix.ENAMETOOLONG
	}
	for part := range strings.SplitSeq(name, "/") {
		switch {
		case part == "" || part == ".":
		case part != "..":
			if len(part) > maxName {
				return nil, unix.ENAMETOOLONG
			}
			parts = append(parts, part)
		case len(parts) == 0:
			return nil, errors.New("the name leads out of the image")
		default:
			parts = parts[:len(parts)-1]
		}
	}
	return parts, nil
}
