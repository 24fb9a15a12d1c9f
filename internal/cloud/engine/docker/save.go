package docker

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
)

// The files that Save writes: an archive of the written files, and a description.
const (
	savedFiles = "container.tar"
	savedBase  = "container.json"
)

// saved describes the saved files of a container.
type saved struct {
	Image   string   // id of the image on which the files are based
	Name    string   // name of that image, for messages
	Removed []string // paths of the image that the container removed
}

// maxRemoved bounds the total length of the removed paths, in bytes.
const maxRemoved = 2 << 20

// Save copies the files that the container wrote in addition to the files of the image. It does not
// save volumes that the image declares.
func (s *sandbox) Save(ctx context.Context, dir string) error {
	end, err := s.standstill.Turn(ctx)
	if err != nil {
		return fmt.Errorf("docker: save sandbox %s: %w", s.id, err)
	}
	defer end()
	if err := s.save(ctx, dir); err != nil {
		return fmt.Errorf("docker: save sandbox %s: %w", s.id, s.gone(ctx, err))
	}
	return nil
}

// SaveLayer returns an error. See [Engine.CheckLayers] for the reason.
func (s *sandbox) SaveLayer(ctx context.Context, dir string) (func() error, error) {
	return nil, s.engine.CheckLayers(ctx, dir)
}

// SaveMemory returns an error. See [Engine.Report] for the reason.
func (s *sandbox) SaveMemory(context.Context, string) error {
	return fmt.Errorf("docker: save the memory of sandbox %s: %w", s.id, errors.ErrUnsupported)
}

func (s *sandbox) save(ctx context.Context, dir string) error {
	c := s.engine.client
	inspected, err := c.ContainerInspect(ctx, s.name, client.ContainerInspectOptions{})
	if err != nil {
		return err
	}
	base := saved{Image: inspected.Container.Image, Name: inspected.Container.Config.Image}
	diff, err := c.ContainerDiff(ctx, s.name, client.ContainerDiffOptions{})
	if err != nil {
		return fmt.Errorf("ask what it wrote: %w", err)
	}
	written, text := map[string]bool{}, 0
	// The daemon mounts its own files over these, and hides those below.
	for _, own := range []string{"/etc/hosts", "/etc/hostname", "/etc/resolv.conf"} {
		diff.Changes = slices.DeleteFunc(diff.Changes, func(change container.FilesystemChange) bool { return change.Path == own })
	}
	for _, change := range diff.Changes {
		switch {
		case s.isOurs(change.Path):
		case change.Kind == container.ChangeDelete:
			base.Removed = append(base.Removed, change.Path)
			text += len(change.Path)
		default:
			written[change.Path] = true
		}
	}
	if text > maxRemoved {
		return fmt.Errorf("it removed too many files of its image: their names have %d bytes, and %d is the limit", text, maxRemoved)
	}
	description, err := json.Marshal(base)
	if err != nil {
		return err
	}
	if err := s.saveWritten(ctx, filepath.Join(dir, savedFiles), written); err != nil {
		return err
	}
	return writeSynced(filepath.Join(dir, savedBase), func(w io.Writer) error {
		_, err := w.Write(description)
		return err
	})
}

// saveWritten makes the archive of the written files. If there are only a few written files, it
// requests them one by one. Otherwise it exports the whole container and filters the export, because the
// daemon has no request for a selection of files.
func (s *sandbox) saveWritten(ctx context.Context, file string, written map[string]bool) error {
	alone, err := s.readAlone(ctx, written)
	if err != nil {
		return err
	}
	if alone {
		return writeSynced(file, func(w io.Writer) error { return s.copyEach(ctx, w, written) })
	}
	export, err := s.engine.client.ContainerExport(ctx, s.name, client.ContainerExportOptions{})
	if err != nil {
		return fmt.Errorf("export its files: %w", err)
	}
	defer export.Close()
	return writeSynced(file, func(w io.Writer) error { return filter(w, export, written, s.limits.DiskBytes) })
}

// isOurs reports whether a path belongs to the engine and not to the sandbox.
func (s *sandbox) isOurs(name string) bool {
	for _, own := range []string{s.program, "/dev", "/proc", "/sys", "/run/e2b"} {
		if name == own || strings.HasPrefix(name, own+"/") {
			return true
		}
	}
	return false
}

// filter copies those entries of an archive whose paths are in written.
func filter(to io.Writer, from io.Reader, written map[string]bool, limit int64) error {
	out, in := tar.NewWriter(to), tar.NewReader(from)
	for {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			return out.Close()
		}
		if err != nil {
			return fmt.Errorf("read its files: %w", err)
		}
		if !written[path.Join("/", header.Name)] {
			continue
		}
		if err := addFile(out, header, in, &limit); err != nil {
			return err
		}
	}
}

// addFile adds a file to an archive. It skips devices. left is the number of bytes that may still be
// added to the archive.
func addFile(out *tar.Writer, header *tar.Header, content io.Reader, left *int64) error {
	switch header.Typeflag {
	case tar.TypeReg, tar.TypeDir, tar.TypeSymlink, tar.TypeLink, tar.TypeFifo:
	default:
		return nil
	}
	if *left -= header.Size; *left < 0 {
		return errors.New("it wrote more than its limit of disk, which nothing enforces here")
	}
	header.Format = tar.FormatPAX
	if err := out.WriteHeader(header); err != nil {
		return err
	}
	_, err := io.Copy(out, content)
	return err
}

// writeSynced writes a file and syncs it to the disk.
func writeSynced(name string, write func(io.Writer) error) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Sync(), f.Close())
}

// readSaved returns the description of the saved files in dir. It returns an error if the daemon no
// longer has their image.
func (e *Engine) readSaved(ctx context.Context, dir string) (saved, error) {
	data, err := os.ReadFile(filepath.Join(dir, savedBase))
	if err != nil {
		return saved{}, fmt.Errorf("the saved files are not those of a container: %w", err)
	}
	var base saved
	if err := json.Unmarshal(data, &base); err != nil {
		return saved{}, fmt.Errorf("the saved files: %w", err)
	}
	if _, err := e.client.ImageInspect(ctx, base.Image); err != nil {
		if errdefs.IsNotFound(err) {
			err = fmt.Errorf("the daemon no longer has the image %s (%s) that the saved files stand on: load it again, or build the template again", base.Name, base.Image)
		}
		return saved{}, err
	}
	return base, nil
}

// restore puts saved files into a container that has not started. The container's first process
// deletes the removed files.
func (e *Engine) restore(ctx context.Context, id, dir string) error {
	f, err := os.Open(filepath.Join(dir, savedFiles))
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = e.client.CopyToContainer(ctx, id, client.CopyToContainerOptions{DestinationPath: "/", Content: f, AllowOverwriteDirWithFile: true})
	if err != nil {
		return fmt.Errorf("put the saved files into a container: %w", err)
	}
	return nil
}
