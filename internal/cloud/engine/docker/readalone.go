package docker

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
)

// maxAlone is the maximum number of written files that are read one by one. Each of these files takes
// two requests. If there are more files and the image is small, it is faster to export the whole
// container.
const maxAlone = 200

// readAlone reports whether the written files can be read one by one. It returns false in two cases.
// If a directory of the host or a volume is mounted above a path, the daemon would read another file
// at that path. If two paths are hard links to one file, they would become two files.
func (s *sandbox) readAlone(ctx context.Context, written map[string]bool) (bool, error) {
	if s.handover != nil || len(written) > maxAlone {
		return false, nil
	}
	type looks struct {
		size     int64
		modified time.Time
	}
	seen := map[looks]bool{}
	for name := range written {
		found, err := s.engine.client.ContainerStatPath(ctx, s.name, client.ContainerStatPathOptions{Path: name})
		if errdefs.IsNotFound(err) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("ask for its file %.200q: %w", name, err)
		}
		if found.Stat.Mode.IsDir() {
			continue
		}
		one := looks{found.Stat.Size, found.Stat.Mtime.UTC()}
		if seen[one] {
			return false, nil // two names of one file look like this
		}
		seen[one] = true
	}
	return true, nil
}

// copyEach writes an archive of the written files, requesting each from the daemon.
func (s *sandbox) copyEach(ctx context.Context, to io.Writer, written map[string]bool) error {
	out, left := tar.NewWriter(to), s.limits.DiskBytes
	for _, name := range slices.Sorted(maps.Keys(written)) {
		if err := s.copyOne(ctx, out, name, &left); err != nil {
			return fmt.Errorf("copy its file %.200q: %w", name, err)
		}
	}
	return out.Close()
}

// copyOne copies one file. For a directory, it copies only the entry, and not the content.
func (s *sandbox) copyOne(ctx context.Context, out *tar.Writer, name string, left *int64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // the rest of a directory is not sent
	copied, err := s.engine.client.CopyFromContainer(ctx, s.name, client.CopyFromContainerOptions{SourcePath: name})
	if err != nil {
		return err
	}
	defer copied.Content.Close()
	in := tar.NewReader(copied.Content)
	header, err := in.Next()
	if errors.Is(err, io.EOF) { // a socket, which no archive holds
		return nil
	}
	if err != nil {
		return err
	}
	header.Name = name[1:]
	return addFile(out, header, in, left)
}
