package image

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Keeper is an engine that stores images itself.
type Keeper interface {
	// Architecture returns the processor architecture of the keeper's images, as in GOARCH.
	Architecture() string
	// Has reports whether the keeper has the image with this digest.
	Has(ctx context.Context, digest string) (bool, error)
	// Name returns the name and the labels of the image in the keeper.
	Name(digest string) (tag string, labels map[string]string)
	// Load stores the image from archive, which has the format of docker save.
	Load(ctx context.Context, digest string, archive io.Reader) error
}

// Scratch is the reference of the empty image. No registry has it.
const Scratch = "scratch"

// Give fetches an image and passes it to a keeper, unless the keeper already has it. It works like
// Pull, but stores no layers in this cloud. It verifies each layer before passing it on. It returns
// the configuration of the image. The keeper does not receive this configuration.
func (p *Puller) Give(ctx context.Context, reference string, auth *Auth, to Keeper, progress func(line string)) (Image, error) {
	img, err := p.give(ctx, reference, auth, to, progress)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return Image{}, fmt.Errorf("image %.300s: %w", reference, err)
	}
	img.Reference = reference
	return img, nil
}

func (p *Puller) give(ctx context.Context, reference string, auth *Auth, to Keeper, progress func(line string)) (Image, error) {
	ctx, cancel := context.WithCancel(ctx) // downloads end with this call
	defer cancel()
	f, err := p.findNew(ctx, platformOf(to.Architecture()), reference, auth)
	if err != nil {
		return Image{}, err
	}
	defer f.close()
	one := &pull{Puller: p, found: f, tell: progress}
	img := Image{Digest: f.digest, Config: f.config}
	release, err := p.locks.lock(ctx, "give "+f.digest)
	if err != nil {
		return Image{}, err
	}
	defer release()
	if have, err := to.Has(ctx, f.digest); err != nil {
		return Image{}, err
	} else if have {
		one.progress("%s is %s, which is here already", f.name, f.digest)
		return img, nil
	}
	if err := one.checkSize(ctx, func(blob) bool { return false }, func(context.Context, int64) error { return nil }); err != nil {
		return Image{}, err
	}
	if err := one.stream(ctx, to); err != nil {
		return Image{}, err
	}
	one.progress("%s is %s", f.name, f.digest)
	return img, nil
}

// findNew finds an image that will be read completely, including layers that are already cached.
func (p *Puller) findNew(ctx context.Context, on v1.Platform, reference string, auth *Auth) (*found, error) {
	if reference == Scratch {
		return nothing(on)
	}
	return p.find(ctx, on, reference, auth, nil)
}

// nothing returns the empty image, [Scratch].
func nothing(on v1.Platform) (*found, error) {
	var text bytes.Buffer
	if err := tar.NewWriter(&text).Close(); err != nil {
		return nil, err
	}
	diffID, size, err := v1.SHA256(bytes.NewReader(text.Bytes()))
	if err != nil {
		return nil, err
	}
	f := &found{name: Scratch, platform: on, digest: diffID.String(), local: true, close: func() {}}
	f.open = func(context.Context, int) (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(text.Bytes())), nil
	}
	config := &v1.ConfigFile{OS: on.OS, Architecture: on.Architecture, RootFS: v1.RootFS{Type: "layers", DiffIDs: []v1.Hash{diffID}}}
	return f, f.describe(config, []v1.Descriptor{{Digest: diffID, Size: size}})
}

// errUnread is the error of writing to an archive that the keeper has stopped reading.
var errUnread = errors.New("nobody reads it")

// stream writes the archive of the image while the keeper reads this archive.
func (p *pull) stream(ctx context.Context, to Keeper) (err error) {
	dir, err := p.options.Store.NewDir()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.options.Store.Discard(dir)) }()
	r, w := io.Pipe()
	written := make(chan error, 1)
	go func() {
		err := p.archive(ctx, dir, to, w)
		w.CloseWithError(err)
		written <- err
	}()
	err = to.Load(ctx, p.digest, r)
	r.CloseWithError(errUnread)
	if failed := <-written; failed != nil && !errors.Is(failed, errUnread) { // failed is the cause of the keeper's error
		return failed
	}
	return err
}

// archive writes the image in the format of docker save. Its temporary files are in dir.
func (p *pull) archive(ctx context.Context, dir string, to Keeper, w io.Writer) error {
	tag, labels := to.Name(p.digest)
	out := tar.NewWriter(w)
	manifest := saved{Config: "config.json", RepoTags: []string{tag}}
	config := v1.ConfigFile{OS: p.platform.OS, Architecture: p.platform.Architecture, Config: v1.Config{Labels: labels}, RootFS: v1.RootFS{Type: "layers"}}
	for i, b := range p.blobs {
		name := fmt.Sprintf("%d.tar", i)
		manifest.Layers = append(manifest.Layers, name)
		config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, b.diffID)
		if err := p.archiveLayer(ctx, dir, i, name, out); err != nil {
			if errors.Is(err, errUnread) {
				return err
			}
			return fmt.Errorf("layer %d of %d (%s): %w", i+1, len(p.blobs), b.digest, err)
		}
	}
	for _, file := range []struct {
		name string
		of   any
	}{{manifest.Config, config}, {"manifest.json", []saved{manifest}}} {
		text, err := json.Marshal(file.of)
		if err != nil {
			return err
		}
		if err := out.WriteHeader(&tar.Header{Name: file.name, Mode: 0o644, Size: int64(len(text))}); err != nil {
			return err
		}
		if _, err := out.Write(text); err != nil {
			return err
		}
	}
	return out.Close()
}

// archiveLayer writes a layer after it is complete and verified.
func (p *pull) archiveLayer(ctx context.Context, dir string, i int, name string, out *tar.Writer) (err error) {
	which := fmt.Sprintf("layer %d of %d", i+1, len(p.blobs))
	plain, err := p.plain(ctx, dir, i, which)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, plain.Close(), os.Remove(plain.Name())) }()
	info, err := plain.Stat()
	if err == nil {
		err = out.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: info.Size()})
	}
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, plain); err != nil {
		return err
	}
	p.progress("%s is handed over", which)
	return nil
}

// plain returns a file with the uncompressed, verified content of layer i. The parameter named
// which describes the layer in messages.
func (p *pull) plain(ctx context.Context, dir string, i int, which string) (_ *os.File, err error) {
	from, err := p.fetch(ctx, dir, i, which)
	if err != nil {
		return nil, err
	}
	defer func() {
		from.Close()
		if !p.local {
			err = errors.Join(err, os.Remove(filepath.Join(dir, fmt.Sprint(i))))
		}
	}()
	content, err := decompress(from)
	if err != nil {
		return nil, err
	}
	defer content.Close()
	sum, err := newVerifier(content, p.blobs[i].diffID, p)
	if err != nil {
		return nil, err
	}
	to, err := os.OpenFile(filepath.Join(dir, fmt.Sprintf("%d.tar", i)), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	_, err = io.Copy(to, sum)
	if err == nil {
		err = sum.finish()
	}
	if _, damaged := io.Copy(io.Discard, from); damaged != nil { // damaged is the cause of err
		err = damaged
	}
	if err == nil {
		_, err = to.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, to.Close())
	}
	return to, nil
}
