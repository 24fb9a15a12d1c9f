package template

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"strconv"
)

// These are mode bits in the positions of Unix.
const (
	unixDir     = 0o040000
	unixFile    = 0o100000
	unixSymlink = 0o120000
	unixSetuid  = 0o4000
	unixSetgid  = 0o2000
	unixSticky  = 0o1000
)

// special maps mode bits of [fs.FileMode] to the corresponding bits of Unix. It contains the bits
// whose positions differ.
var special = map[fs.FileMode]uint32{fs.ModeSetuid: unixSetuid, fs.ModeSetgid: unixSetgid, fs.ModeSticky: unixSticky}

// unixMode converts a mode to the bits of Unix.
func unixMode(mode fs.FileMode) uint32 {
	bits := uint32(mode.Perm())
	switch {
	case mode.IsRegular():
		bits |= unixFile
	case mode.IsDir():
		bits |= unixDir
	case mode&fs.ModeSymlink != 0:
		bits |= unixSymlink
	}
	for of, bit := range special {
		if mode&of != 0 {
			bits |= bit
		}
	}
	return bits
}

// fileMode converts bits of Unix to a mode without the type. It is the inverse of unixMode.
func fileMode(bits uint32) fs.FileMode {
	mode := fs.FileMode(bits) & fs.ModePerm
	for of, bit := range special {
		if bits&bit != 0 {
			mode |= of
		}
	}
	return mode
}

// resolve returns the files in the form in which they are copied. With follow, the targets of
// symlinks replace the symlinks.
func (s *source) resolve(files []file, follow bool) ([]file, error) {
	if !follow {
		return files, nil
	}
	resolved := make([]file, len(files))
	for i, f := range files {
		if f.info.Mode()&fs.ModeSymlink != 0 {
			info, err := s.root.Stat(f.name)
			switch {
			case errors.Is(err, fs.ErrNotExist): // a broken symlink is copied as a symlink
				info = f.info
			case err != nil:
				return nil, fmt.Errorf("follow the symlink %s: %w", f.name, err)
			case !info.Mode().IsRegular():
				return nil, fmt.Errorf("follow the symlink %s: it leads to a directory or to another file that is not a regular one; copy it by its own name", f.name)
			}
			f.info = info
		}
		resolved[i] = f
	}
	return resolved, nil
}

// digest returns the hash that identifies the files of a step. It covers the text of the step, and
// the name, mode, size and content of each file. E2B's newest builders compute the same hash, so
// each builder finds the files that another builder has uploaded. Older builders also include the
// size of directories in the hash.
func (s *source) digest(ctx context.Context, step step, files []file) (string, error) {
	sum := sha256.New()
	_, _ = io.WriteString(sum, "COPY "+step.Args[0]+" "+step.Args[1])
	for _, f := range files {
		if err := ctx.Err(); err != nil {
			return "", context.Cause(ctx)
		}
		if err := s.digestFile(sum, f); err != nil {
			return "", fmt.Errorf("read %s: %w", f.name, err)
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

func (s *source) digestFile(sum hash.Hash, f file) error {
	text := f.packed() + strconv.FormatUint(uint64(unixMode(f.info.Mode())), 10)
	if f.info.IsDir() { // the size of a directory depends on the file system
		_, err := io.WriteString(sum, text)
		return err
	}
	if f.info.Mode()&fs.ModeSymlink != 0 {
		target, err := s.root.Readlink(f.name)
		if err != nil {
			return err
		}
		_, err = io.WriteString(sum, text+strconv.Itoa(len(target))+target)
		return err
	}
	if _, err := io.WriteString(sum, text+strconv.FormatInt(f.info.Size(), 10)); err != nil {
		return err
	}
	return s.copyFile(sum, f)
}

// copyFile writes the content of a file. It returns an error if the size has changed.
func (s *source) copyFile(w io.Writer, f file) error {
	opened, err := s.root.Open(f.name)
	if err != nil {
		return err
	}
	defer opened.Close()
	switch n, err := io.Copy(w, io.LimitReader(opened, f.info.Size()+1)); {
	case err != nil && !errors.Is(err, tar.ErrWriteTooLong):
		return err
	case n != f.info.Size() || err != nil:
		return errors.New("it changed while it was read; build again when nothing writes to it")
	}
	return nil
}

// inode identifies a file that may have several names.
type inode struct{ device, number uint64 }

// spooled is an archive in a temporary file, so that its length is known before the upload.
type spooled struct {
	*os.File

	size int64
}

// Close removes the file.
func (s spooled) Close() error {
	return errors.Join(s.File.Close(), os.Remove(s.Name()))
}

// pack writes an archive of the files.
func (s *source) pack(ctx context.Context, files []file, compressed bool) (_ spooled, err error) {
	to, err := os.CreateTemp("", "e2bctl-template-*.tar")
	if err != nil {
		return spooled{}, err
	}
	archive := spooled{File: to}
	defer func() {
		if err != nil {
			err = errors.Join(err, archive.Close())
		}
	}()
	if err := s.packInto(ctx, to, files, compressed); err != nil {
		return spooled{}, err
	}
	if archive.size, err = to.Seek(0, io.SeekEnd); err != nil {
		return spooled{}, err
	}
	_, err = to.Seek(0, io.SeekStart)
	return archive, err
}

func (s *source) packInto(ctx context.Context, w io.Writer, files []file, compressed bool) error {
	if !compressed {
		return s.tar(ctx, w, files)
	}
	zipped := gzip.NewWriter(w)
	if err := s.tar(ctx, zipped, files); err != nil {
		return err
	}
	return zipped.Close()
}

func (s *source) tar(ctx context.Context, w io.Writer, files []file) error {
	archive := tar.NewWriter(w)
	links := map[inode]string{} // names in the archive of files with several names
	for _, f := range files {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := s.tarFile(archive, f, links); err != nil {
			return fmt.Errorf("pack %s: %w", f.name, err)
		}
	}
	return archive.Close()
}

func (s *source) tarFile(archive *tar.Writer, f file, links map[inode]string) error {
	var target string
	var err error
	if f.info.Mode()&fs.ModeSymlink != 0 {
		if target, err = s.root.Readlink(f.name); err != nil {
			return err
		}
	}
	header, err := tar.FileInfoHeader(f.info, target)
	if err != nil {
		return err
	}
	header.Name = f.packed()
	if f.info.IsDir() {
		header.Name += "/"
	}
	header.Uid, header.Gid, header.Uname, header.Gname = 0, 0, "", "" // the accounts of this machine have no meaning in the sandbox
	if of, several := inodeOf(f.info); several {
		if first, packed := links[of]; packed {
			header.Typeflag, header.Linkname, header.Size = tar.TypeLink, first, 0
			return archive.WriteHeader(header)
		}
		links[of] = header.Name
	}
	if err := archive.WriteHeader(header); err != nil || !f.info.Mode().IsRegular() {
		return err
	}
	return s.copyFile(archive, f)
}
