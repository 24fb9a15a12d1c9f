package packaging

import (
	"archive/tar"
	"archive/zip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"
)

// level is the level of compression of packages. Its packages are as small as those of the best level of Go's
// own library, and take a third of the time.
const level = 8

// File is a file of a package.
type File struct {
	Name    string // with slashes
	Content []byte
	Mode    fs.FileMode // 0 means 0644
}

func (f *File) mode() fs.FileMode {
	if f.Mode == 0 {
		return 0o644
	}
	return f.Mode
}

// Archive writes files to a new archive in dir, as a .zip for Windows and a .tar.gz for other
// systems. The same files always make the same archive. It returns the path of the archive.
func Archive(b *Build, dir string, files []File) (string, error) {
	name := fmt.Sprintf("e2bctl_%s_%s_%s", b.Release(), b.System, b.Architecture)
	write, suffix := writeTar, ".tar.gz"
	if b.System == "windows" {
		write, suffix = writeZip, ".zip"
	}
	inside := slices.Clone(files)
	for i := range inside {
		inside[i].Name = name + "/" + inside[i].Name
	}
	to := filepath.Join(dir, name+suffix)
	return to, writeFile(to, func(w io.Writer) error { return write(w, b.Time, inside) })
}

// FilesOf returns all files of a directory, sorted by their names, which begin with below.
func FilesOf(dir fs.FS, below string) ([]File, error) {
	var files []File
	err := fs.WalkDir(dir, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(dir, name)
		files = append(files, File{Name: path.Join(below, name), Content: text})
		return err
	})
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	return files, err
}

// writeFile creates a file. After an error there is no such file.
func writeFile(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := errors.Join(write(f), f.Close()); err != nil {
		return errors.Join(fmt.Errorf("packaging: write %s: %w", path, err), os.Remove(path))
	}
	return nil
}

func writeTar(w io.Writer, at time.Time, files []File) error {
	compressed, err := gzip.NewWriterLevel(w, level)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(compressed)
	for _, f := range files {
		header := &tar.Header{Name: f.Name, Mode: int64(f.mode()), Size: int64(len(f.Content)), ModTime: at, Format: tar.FormatPAX}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(f.Content); err != nil {
			return err
		}
	}
	return errors.Join(archive.Close(), compressed.Close())
}

func writeZip(w io.Writer, at time.Time, files []File) error {
	archive := zip.NewWriter(w)
	archive.RegisterCompressor(zip.Deflate, func(w io.Writer) (io.WriteCloser, error) { return flate.NewWriter(w, level) })
	for _, f := range files {
		header := &zip.FileHeader{Name: f.Name, Method: zip.Deflate, Modified: at}
		header.SetMode(f.mode())
		to, err := archive.CreateHeader(header)
		if err != nil {
			return err
		}
		if _, err := to.Write(f.Content); err != nil {
			return err
		}
	}
	return archive.Close()
}

// WriteChecksums writes the SHA-256 checksums of files to dir/checksums.txt, in the format of
// sha256sum.
func WriteChecksums(dir string, paths []string) error {
	var lines []string
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		sum := sha256.New()
		_, err = io.Copy(sum, f)
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
		lines = append(lines, hex.EncodeToString(sum.Sum(nil))+"  "+filepath.Base(path)+"\n")
	}
	slices.Sort(lines)
	return os.WriteFile(filepath.Join(dir, "checksums.txt"), []byte(strings.Join(lines, "")), 0o644)
}
