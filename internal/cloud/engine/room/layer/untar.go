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

// Bounds of a layer of a container image. Untar returns an error for an archive above the bounds,
// such as an untrusted archive with many empty entries, or with sparse files of huge sizes.
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
	// Otherwise, an owner or group outside the range becomes nobody. The kernel also shows such ids as
	// nobody. A file whose owner becomes nobody loses its set-user-ID bit. A file whose group becomes
	// nobody loses its set-group-ID bit.
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
	u := &untar{o: o, buffer: make([]byte, 1<<20), most: maxEntries, left: maxFiles}
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
	most   int       // entries that the archive may have
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
		if n == u.most {
			return fmt.Errorf("%w: it has more than %d entries", ErrImage, u.most)
		}
		if err := u.entry(h, r); err != nil {
			return fmt.Errorf("%w: %.1000q: %w", ErrImage, h.Name, err)
		}
	}
}

// entry applies one entry of the archive to the layer.
func (u *untar) entry(h *tar.Header, r io.Reader) error {
	dir, name, does, err := classify(h)
	switch {
	case err != nil || does == nothing:
		return err
	case does == linkFile: // enters the directory of the target first
		return u.link(dir, name, h.Linkname)
	}
	if err := u.enter(dir); err != nil {
		return err
	}
	switch does {
	case hideAll:
		return u.opaque()
	case hideName:
		return u.remove(name)
	case describeRoot:
		return u.describe(h)
	case makeDirectory:
		return u.directory(name, h)
	case makeRegular:
		return u.regular(name, h, r)
	case makeSymlink:
		return u.special(name, h, func() error { return unix.Symlinkat(h.Linkname, u.fd(), name) })
	case makeFIFO:
		return u.special(name, h, func() error { return unix.Mknodat(u.fd(), name, unix.S_IFIFO|0o600, 0) })
	default: // makeDevice: every sandbox has its own devices, so the name only disappears
		return u.hide(name)
	}
}

// effect is the effect of an entry on the layer.
type effect uint8

const (
	nothing       effect = iota
	hideAll              // hides the content of the entry's directory in the layers below
	hideName             // hides a name in the layers below
	describeRoot         // sets the attributes of the root
	makeDirectory        // makes a directory, or sets its attributes
	makeRegular          // makes a regular file
	makeSymlink          // makes a symbolic link
	makeFIFO             // makes a FIFO
	makeDevice           // makes a device
	linkFile             // makes a hard link
)

// effects contains the effect of each type of entry that makes a file.
var effects = [256]effect{
	tar.TypeDir: makeDirectory, tar.TypeReg: makeRegular, tar.TypeCont: makeRegular, tar.TypeGNUSparse: makeRegular,
	tar.TypeSymlink: makeSymlink, tar.TypeFifo: makeFIFO, tar.TypeChar: makeDevice, tar.TypeBlock: makeDevice, tar.TypeLink: linkFile,
}

// classify returns the directory in which an entry has its effect, the name that it makes or hides
// there, and the effect.
func classify(h *tar.Header) (dir []string, name string, does effect, err error) {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil, "", nothing, nil
	}
	names, err := splitName(h.Name)
	switch {
	case err != nil:
		return nil, "", nothing, err
	case len(names) > 0:
		dir, name = names[:len(names)-1], names[len(names)-1]
	case h.Typeflag == tar.TypeDir:
		return nil, "", describeRoot, nil
	default:
		return nil, "", nothing, errors.New("the root is a directory")
	}
	removed, hides := strings.CutPrefix(name, whiteoutPrefix) // regardless of its type
	switch {
	case slices.ContainsFunc(dir, func(p string) bool { return strings.HasPrefix(p, whiteoutPrefix) }):
		return nil, "", nothing, nil // AUFS's own files
	case name == opaqueName:
		return dir, "", hideAll, nil
	case strings.HasPrefix(name, metaPrefix):
		return nil, "", nothing, nil
	case hides:
		return dir, removed, hideName, nil
	case effects[h.Typeflag] == nothing:
		return nil, "", nothing, fmt.Errorf("entries of type %q are not supported", h.Typeflag)
	}
	return dir, name, effects[h.Typeflag], nil
}

// splitName returns the parts of a name in the image. The name is relative to the root of the
// image, with or without a slash at its beginning.
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
