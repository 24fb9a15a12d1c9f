package image

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
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/e2bctl/e2bctl/internal/boundjson"
)

// Bounds of archives in the format of docker save.
const (
	maxArchiveEntries = 100_000
	maxArchiveLinks   = 10
)

// openAllowed opens the directory that contains name, among the directories from which images
// may be read.
func (p *Puller) openAllowed(name string) (root *os.Root, rest string, err error) {
	if !filepath.IsAbs(name) {
		return nil, "", fmt.Errorf("%q is not an absolute path", name)
	}
	for _, dir := range p.options.Archives {
		rest, err := filepath.Rel(dir, filepath.Clean(name))
		if err != nil || !filepath.IsLocal(rest) {
			continue
		}
		root, err := os.OpenRoot(dir)
		return root, rest, err
	}
	return nil, "", fmt.Errorf("images may not be read from %s: the local cloud must be started so that it allows this directory", filepath.Dir(name))
}

// openFile opens a regular file.
func openFile(root *os.Root, name string) (*os.File, int64, error) {
	info, err := root.Stat(name)
	if err == nil && !info.Mode().IsRegular() { // opening a pipe could block
		err = &fs.PathError{Op: "open", Path: name, Err: errors.New("it is not a regular file")}
	}
	if err != nil {
		return nil, 0, err
	}
	f, err := root.Open(name)
	return f, info.Size(), err
}

// ociLayout is an OCI layout in a directory.
type ociLayout struct {
	root *os.Root
	dir  string
}

func (p *Puller) findLayout(ctx context.Context, on v1.Platform, reference string) (_ *found, err error) {
	name, tag, _ := strings.Cut(reference, ":")
	root, dir, err := p.openAllowed(name)
	if err != nil {
		return nil, err
	}
	f, err := ociLayout{root, dir}.find(ctx, on, "oci:"+reference, tag)
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	f.local, f.close = true, func() { _ = root.Close() }
	return f, nil
}

func (l ociLayout) find(ctx context.Context, on v1.Platform, name, tag string) (*found, error) {
	f, size, err := openFile(l.root, filepath.Join(l.dir, "index.json"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if size > maxManifest {
		return nil, fmt.Errorf("its index.json has more than %d MiB", maxManifest>>20)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxManifest))
	if err != nil {
		return nil, err
	}
	root := v1.Descriptor{MediaType: types.OCIImageIndex}
	if tag != "" {
		if root, err = tagged(text, tag); err != nil {
			return nil, err
		}
		if text, err = l.manifest(ctx, root); err != nil {
			return nil, err
		}
	}
	found, err := resolve(ctx, on, l, name, root, text)
	if found != nil {
		found.asked = "" // an image from a file is looked up each time
	}
	return found, err
}

// tagged returns the descriptor of a tag in an index.json.
func tagged(text []byte, tag string) (v1.Descriptor, error) {
	var index v1.IndexManifest
	if err := boundjson.Unmarshal(text, &index, maxValues, 8); err != nil {
		return v1.Descriptor{}, fmt.Errorf("its index.json: %w", err)
	}
	const refName = "org.opencontainers.image.ref.name"
	var tags []string
	for _, m := range index.Manifests {
		if m.Annotations[refName] == tag {
			return m, nil
		}
		tags = append(tags, m.Annotations[refName])
	}
	return v1.Descriptor{}, fmt.Errorf("it has no tag %q, only %q", tag, tags)
}

func (l ociLayout) manifest(ctx context.Context, d v1.Descriptor) ([]byte, error) {
	f, _, err := openFile(l.root, l.name(d.Digest))
	if err != nil {
		return nil, err
	}
	return readVerified(f, d, maxManifest)
}

func (l ociLayout) blob(_ context.Context, d v1.Descriptor) (io.ReadCloser, error) {
	f, _, err := openFile(l.root, l.name(d.Digest))
	if err != nil {
		return nil, err
	}
	return newWhole(f, d.Size, d.Digest)
}

func (l ociLayout) name(h v1.Hash) string { return filepath.Join(l.dir, "blobs", h.Algorithm, h.Hex) }

// archive is an archive in the format of docker save. Files are read directly from the tar.
type archive struct {
	file  *os.File
	parts map[string]part
}

// part is a file in an archive, or a link to one.
type part struct {
	at, size int64
	link     string
}

// saved describes one image of an archive, in the archive's format.
type saved struct {
	Config   string
	RepoTags []string
	Layers   []string
}

func (p *Puller) findArchive(on v1.Platform, reference string) (*found, error) {
	name, tag, _ := strings.Cut(reference, ":")
	root, rest, err := p.openAllowed(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	file, _, err := openFile(root, rest)
	if err != nil {
		return nil, err
	}
	a := &archive{file: file, parts: map[string]part{}}
	f, err := a.find(on, "docker-archive:"+reference, tag)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return f, nil
}

func (a *archive) find(on v1.Platform, name, tag string) (*found, error) {
	if err := a.index(); err != nil {
		return nil, fmt.Errorf("it is not an archive of docker save: %w", err)
	}
	text, err := a.read("manifest.json", maxManifest)
	if err != nil {
		return nil, fmt.Errorf("it is not an archive of docker save: %w", err)
	}
	var all []saved
	if err := boundjson.Unmarshal(text, &all, maxValues, 3); err != nil {
		return nil, fmt.Errorf("its manifest.json: %w", err)
	}
	image, err := pick(all, tag)
	if err != nil {
		return nil, err
	}
	if text, err = a.read(image.Config, maxConfig); err != nil {
		return nil, err
	}
	config, err := parseConfig(text)
	if err != nil {
		return nil, fmt.Errorf("its configuration: %w", err)
	}
	digest, _, err := v1.SHA256(strings.NewReader(string(text)))
	if err != nil {
		return nil, err
	}
	f := &found{name: name, platform: on, digest: digest.String(), local: true, close: func() { a.file.Close() }}
	descriptors := make([]v1.Descriptor, len(image.Layers))
	for i, l := range image.Layers {
		one, err := a.part(l)
		if err != nil {
			return nil, err
		}
		descriptors[i].Size = one.size
		if i < len(config.RootFS.DiffIDs) {
			descriptors[i].Digest = config.RootFS.DiffIDs[i]
		}
	}
	f.open = func(_ context.Context, i int) (io.ReadCloser, error) {
		one, err := a.part(image.Layers[i])
		return io.NopCloser(io.NewSectionReader(a.file, one.at, one.size)), err
	}
	return f, f.describe(config, descriptors)
}

// pick returns the image called tag. If tag is "", it returns the only image.
func pick(all []saved, tag string) (saved, error) {
	var tags []string
	for _, s := range all {
		if tag == "" && len(all) == 1 || slices.Contains(s.RepoTags, tag) {
			return s, nil
		}
		tags = append(tags, s.RepoTags...)
	}
	if tag == "" {
		return saved{}, fmt.Errorf("it has %d images: name one of %q after the path and a colon", len(all), tags)
	}
	return saved{}, fmt.Errorf("it has no image %q, only %q", tag, tags)
}

// index records the positions of the files in the archive.
func (a *archive) index() error {
	r := tar.NewReader(a.file)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil && !errors.Is(err, tar.ErrInsecurePath) {
			return err
		}
		if len(a.parts) == maxArchiveEntries {
			return fmt.Errorf("it has more than %d files", maxArchiveEntries)
		}
		at, err := a.file.Seek(0, io.SeekCurrent) // tar.Reader does not read ahead
		if err != nil {
			return err
		}
		one := part{at: at, size: h.Size}
		switch h.Typeflag {
		case tar.TypeReg:
		case tar.TypeSymlink: // older archives store a layer once, with links to it
			one.link = path.Join(path.Dir(path.Clean(h.Name)), h.Linkname)
		case tar.TypeLink:
			one.link = path.Clean(h.Linkname)
		default:
			continue
		}
		a.parts[path.Clean(h.Name)] = one
	}
}

// part returns the position of a file in the archive.
func (a *archive) part(name string) (part, error) {
	at := path.Clean(name)
	for range maxArchiveLinks {
		one, found := a.parts[at]
		if !found {
			break
		}
		if one.link == "" {
			return one, nil
		}
		at = one.link
	}
	return part{}, fmt.Errorf("the file %.300q is not in the archive", name)
}

func (a *archive) read(name string, limit int64) ([]byte, error) {
	one, err := a.part(name)
	if err != nil {
		return nil, err
	}
	if one.size > limit {
		return nil, fmt.Errorf("the file %.300q has more than %d MiB", name, limit>>20)
	}
	return io.ReadAll(io.NewSectionReader(a.file, one.at, one.size))
}
