package cli

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// packTree writes the content of root as a tar stream: directories, files and
// symbolic links, with modes and times and without owners, which mean nothing
// in a sandbox. What is none of these (a socket, a device) is named to skipped.
func packTree(ctx context.Context, w io.Writer, root *os.Root, skipped func(name, why string)) error {
	tw := tar.NewWriter(w)
	err := fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if name == "." {
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		header := &tar.Header{Name: name, Mode: int64(info.Mode().Perm()), ModTime: info.ModTime(), Format: tar.FormatPAX}
		switch info.Mode().Type() {
		case fs.ModeDir:
			header.Typeflag, header.Name = tar.TypeDir, name+"/"
		case fs.ModeSymlink:
			header.Typeflag = tar.TypeSymlink
			if header.Linkname, err = root.Readlink(filepath.FromSlash(name)); err != nil {
				return err
			}
			header.Linkname = filepath.ToSlash(header.Linkname)
		case 0:
			return packFile(tw, root, header)
		default:
			skipped(name, "it is neither a file, a directory nor a link")
			return nil
		}
		return tw.WriteHeader(header)
	})
	if err != nil {
		return err
	}
	return tw.Close()
}

func packFile(tw *tar.Writer, root *os.Root, header *tar.Header) error {
	file, err := root.Open(filepath.FromSlash(header.Name))
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat() // the size of what was opened, not of what was listed
	if err != nil {
		return err
	}
	header.Typeflag, header.Size = tar.TypeReg, info.Size()
	if err := tw.WriteHeader(header); err != nil {
		return err
	}
	// A file that grows is sent as long as it was; one that shrinks is an error.
	_, err = io.CopyN(tw, file, header.Size)
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%s became shorter while it was read", header.Name)
	}
	return err
}

// unpackTree writes the tar stream r, which a sandbox made and which may
// therefore hold anything, into root. Nothing is written outside of root: names
// that leave it are an error, and links that do are named to skipped, as are
// devices and the like. Modes lose their setuid and setgid bits.
func unpackTree(ctx context.Context, r io.Reader, root *os.Root, skipped func(name, why string)) error {
	tr := tar.NewReader(r)
	for {
		header, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading the archive: %w", err)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		name := filepath.FromSlash(path.Clean(header.Name))
		if name == "." {
			continue
		}
		if !filepath.IsLocal(name) {
			return fmt.Errorf("the archive names %q, which is outside of the target", header.Name)
		}
		if err := unpackEntry(tr, root, name, header, skipped); err != nil {
			return err
		}
	}
}

func unpackEntry(tr *tar.Reader, root *os.Root, name string, header *tar.Header, skipped func(name, why string)) error {
	mode := fs.FileMode(header.Mode).Perm()
	if header.Typeflag == tar.TypeDir {
		// Owner's bits are needed to write into it.
		return root.MkdirAll(name, mode|0o700)
	}
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	switch header.Typeflag {
	case tar.TypeReg:
		return unpackFile(tr, root, name, mode, header)
	case tar.TypeSymlink:
		target := filepath.FromSlash(header.Linkname)
		if filepath.IsAbs(target) || !filepath.IsLocal(filepath.Join(filepath.Dir(name), target)) || behindLink(root, name) {
			skipped(header.Name, "it is a link to "+header.Linkname+", outside of the target")
			return nil
		}
		return replace(root, name, func() error { return root.Symlink(target, name) })
	case tar.TypeLink:
		target := filepath.FromSlash(path.Clean(header.Linkname))
		if !filepath.IsLocal(target) {
			return fmt.Errorf("the archive links %q to %q, which is outside of the target", header.Name, header.Linkname)
		}
		return replace(root, name, func() error { return root.Link(target, name) })
	}
	skipped(header.Name, "it is neither a file, a directory nor a link")
	return nil
}

// behindLink says that a directory on the way to name is a link. Then where a
// link at name leads cannot be read off its path.
func behindLink(root *os.Root, name string) bool {
	for dir := filepath.Dir(name); dir != "."; dir = filepath.Dir(dir) {
		if info, err := root.Lstat(dir); err != nil || !info.IsDir() {
			return true
		}
	}
	return false
}

func unpackFile(tr *tar.Reader, root *os.Root, name string, mode fs.FileMode, header *tar.Header) error {
	var file *os.File
	// Created anew: opening what is there could follow a link or write into
	// every name of a hard link.
	err := replace(root, name, func() (err error) {
		file, err = root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
		return err
	})
	if err != nil {
		return err
	}
	_, err = io.Copy(file, tr)
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return root.Chtimes(name, header.ModTime, header.ModTime)
}

// replace runs create, once more after removing what stands in its way.
func replace(root *os.Root, name string, create func() error) error {
	err := create()
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := root.Remove(name); err != nil {
		return err
	}
	return create()
}

// remotePath makes a path on a sandbox's command line one that its file API and
// its shell understand alike: relative paths start at the user's home there.
func remotePath(name string) string {
	if name == "~" {
		return "."
	}
	if rest, ok := strings.CutPrefix(name, "~/"); ok {
		return path.Clean("./" + strings.TrimLeft(rest, "/"))
	}
	return path.Clean(name)
}
