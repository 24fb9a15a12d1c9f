package image

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/google/go-containerregistry/pkg/authn"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sync/errgroup"

	"github.com/e2bctl/e2bctl/internal/cloud/layers"
	"github.com/e2bctl/e2bctl/internal/cloud/store"
)

const (
	// DefaultMaxBytes is the default maximum size of an unpacked image.
	DefaultMaxBytes = 20 << 30
	// maxDownloads bounds the number of concurrent downloads of layers, for all images
	// together.
	maxDownloads = 4
)

// Options configures a [Puller].
type Options struct {
	Store  *store.Store
	Layers *layers.Set // the layers in Store
	// Unpack unpacks an uncompressed tar as a layer in dir, an empty directory. below are the
	// layers below the new layer, lowest first. Unpack reads tar to its end.
	Unpack func(ctx context.Context, below []string, tar io.Reader, dir string) error
	// Mirrors maps the name of a registry to the http or https URL of its mirror. No request is sent
	// to a registry that has a mirror.
	Mirrors map[string]string
	// Insecure lists the registries, as written in references, that need no valid certificate
	// and may use plain HTTP. Registries on this machine may always use plain HTTP.
	Insecure []string
	// Keychain provides credentials. Nil means the credentials in the user's docker
	// configuration.
	Keychain authn.Keychain
	// Archives lists the directories from which images may be read. References to such images have the
	// forms docker-archive:/PATH[:NAME] and oci:/PATH[:TAG]. If Archives is empty, no reference reads
	// a file of the host. The directories are restricted because everyone with a key can send a
	// reference.
	Archives []string
	MaxBytes int64 // 0: DefaultMaxBytes
	// MakeRoom is called before the given number of bytes are written. It is called with 0
	// after they have been written. It may be nil.
	MakeRoom func(ctx context.Context, bytes int64) error
	Logger   *slog.Logger // nil: no log
}

// Puller pulls images. It is safe for concurrent use. The caller must close it.
type Puller struct {
	options   Options
	cache     *cache
	remote    *registries
	locks     nameLocks
	downloads chan struct{} // has room for maxDownloads
}

// Open returns a Puller, which holds all layers that it has stored. Open must be called before the
// removal of layers that are not held.
func Open(o Options) (*Puller, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Keychain == nil {
		o.Keychain = authn.DefaultKeychain
	}
	if o.MakeRoom == nil {
		o.MakeRoom = func(context.Context, int64) error { return nil }
	}
	o.MaxBytes = cmp.Or(o.MaxBytes, DefaultMaxBytes)
	remote, err := newRegistries(o)
	if err != nil {
		return nil, err
	}
	return &Puller{options: o, cache: openCache(o), remote: remote, downloads: make(chan struct{}, maxDownloads)}, nil
}

// Close closes the connections that are kept for the next image.
func (p *Puller) Close() { p.remote.transport.close() }

// Uses returns the stored layers and images. All of them can be fetched again, so a caller that
// needs room may drop them.
func (p *Puller) Uses() []layers.Use { return p.cache.uses() }

// Pull fetches the layers of an image that are not stored yet. It looks up a tag once, and returns
// the digest in the Image. auth is the login for the registry. If auth is nil, the keychain
// provides one. progress receives a line for each step, one call at a time. It may be nil. If Pull
// fails, complete layers remain stored for the next attempt.
func (p *Puller) Pull(ctx context.Context, reference string, auth *Auth, progress func(line string)) (Image, error) {
	img, err := p.pull(ctx, reference, auth, progress)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return Image{}, fmt.Errorf("image %.300s: %w", reference, err)
	}
	img.Reference = reference
	return img, nil
}

func (p *Puller) pull(ctx context.Context, reference string, auth *Auth, progress func(line string)) (Image, error) {
	ctx, cancel := context.WithCancel(ctx) // downloads end with this call
	defer cancel()
	f, err := p.find(ctx, platform, reference, auth, p.cache)
	if err != nil {
		return Image{}, err
	}
	defer f.close()
	one := &pull{Puller: p, found: f, tell: progress}
	return one.run(ctx)
}

// IsFile reports whether a reference names a file or a directory of this machine.
func IsFile(reference string) bool {
	return strings.HasPrefix(reference, "docker-archive:") || strings.HasPrefix(reference, "oci:")
}

// find looks up an image. known contains the stored images, which need not be fetched again. known
// may be nil.
func (p *Puller) find(ctx context.Context, on v1.Platform, reference string, auth *Auth, known *cache) (*found, error) {
	if path, is := strings.CutPrefix(reference, "docker-archive:"); is {
		return p.findArchive(on, path)
	}
	if path, is := strings.CutPrefix(reference, "oci:"); is {
		return p.findLayout(ctx, on, path)
	}
	return p.remote.find(ctx, on, reference, auth, known)
}

// pull is a running call of Pull whose image has been found.
type pull struct {
	*Puller
	*found

	mu   sync.Mutex
	tell func(line string)
	held []string // layers that are held until the call ends
	used int64    // bytes unpacked so far
}

func (p *pull) run(ctx context.Context) (Image, error) {
	defer func() { p.options.Layers.Release(p.held...) }()
	if err := p.checkSize(ctx, func(l blob) bool { return p.cache.has(l.chain) }, p.options.MakeRoom); err != nil {
		return Image{}, err
	}
	dir, err := p.options.Store.NewDir()
	if err != nil {
		return Image{}, err
	}
	ids, err := p.layers(ctx, dir)
	if err = errors.Join(err, p.options.Store.Discard(dir)); err != nil {
		return Image{}, err
	}
	p.cache.touch(p.found)
	if ids, err = p.chain(ctx, ids); err != nil {
		return Image{}, err
	}
	if err := p.options.MakeRoom(ctx, 0); err != nil {
		p.options.Layers.Release(ids...)
		return Image{}, err
	}
	p.cache.putImage(p.found)
	p.progress("%s is %s", p.name, p.digest)
	return Image{Digest: p.digest, Config: p.config, Layers: ids}, nil
}

// checkSize returns an error if the compressed layers of the image exceed the limit. Otherwise
// it makes room for the missing layers.
func (p *pull) checkSize(ctx context.Context, here func(l blob) bool, makeRoom func(ctx context.Context, bytes int64) error) error {
	var fetch int64
	for _, l := range p.blobs {
		if !here(l) {
			fetch += min(l.size, p.options.MaxBytes+1-fetch)
		}
	}
	if fetch > p.options.MaxBytes {
		return p.tooLarge()
	}
	if fetch == 0 {
		return nil
	}
	return makeRoom(ctx, fetch)
}

func (p *pull) tooLarge() error {
	return fmt.Errorf("it is larger than the %d MiB that an image may be", p.options.MaxBytes>>20)
}

func (p *pull) progress(format string, a ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tell != nil {
		p.tell(fmt.Sprintf(format, a...))
	}
}

// holdUntilEnd records a layer to release when the call ends.
func (p *pull) holdUntilEnd(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = append(p.held, id)
}

// layers creates the missing layers, with temporary files in dir. It returns all layers, lowest
// first. They are held until the call ends.
func (p *pull) layers(ctx context.Context, dir string) (ids []string, err error) {
	g, ctx := errgroup.WithContext(ctx)
	ids = make([]string, len(p.blobs))
	var below chan struct{} // closed when ids contains all layers below
	for i := range p.blobs {
		wait, done := below, make(chan struct{})
		below = done
		g.Go(func() error {
			id, err := p.layer(ctx, dir, i, func() ([]string, error) {
				if wait == nil {
					return nil, nil
				}
				select {
				case <-wait:
					return ids[:i], nil
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			})
			if err != nil {
				return err
			}
			ids[i] = id
			if wait != nil { // the layers below must be in ids before this layer is
				select {
				case <-wait:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			close(done)
			return nil
		})
	}
	return ids, g.Wait()
}

// layer returns one layer. If several calls need the same layer, one call creates it and the others
// wait. A call that has the lock of a layer waits only for layers below that layer. So there can be
// no circle of calls that wait for each other.
func (p *pull) layer(ctx context.Context, dir string, i int, below func() ([]string, error)) (id string, err error) {
	l := p.blobs[i]
	release, err := p.locks.lock(ctx, l.chain)
	if err != nil {
		return "", err
	}
	defer release()
	which := fmt.Sprintf("layer %d of %d", i+1, len(p.blobs))
	if id, found := p.cache.get(l.chain); found {
		p.holdUntilEnd(id)
		p.progress("%s is here already", which)
		return id, nil
	}
	from, err := p.fetch(ctx, dir, i, which)
	if err != nil {
		return "", fmt.Errorf("%s (%s): %w", which, l.digest, err)
	}
	defer from.Close()
	ids, err := below()
	if err != nil {
		return "", err
	}
	if id, err = p.unpack(ctx, l, ids, from); err != nil {
		return "", fmt.Errorf("%s (%s): %w", which, l.digest, err)
	}
	p.holdUntilEnd(id)
	p.progress("%s is unpacked", which)
	return id, p.cache.put(l.chain, i, id)
}

// unpack creates a layer above the layers below, from a stream.
func (p *pull) unpack(ctx context.Context, l blob, below []string, from io.Reader) (id string, err error) {
	dirs, err := p.options.Layers.Hold(below...)
	if err != nil {
		return "", err
	}
	defer p.options.Layers.Release(below...)
	return p.options.Layers.Make(func(dir string) error {
		err := p.fill(ctx, l, dirs, from, dir)
		if _, damaged := io.Copy(io.Discard, from); damaged != nil { // damaged is the cause of err
			err = damaged
		}
		return err
	})
}

// fill decompresses a stream and unpacks it into the directory of a layer.
func (p *pull) fill(ctx context.Context, l blob, below []string, from io.Reader, dir string) error {
	plain, err := decompress(from)
	if err != nil {
		return err
	}
	defer plain.Close()
	sum, err := newVerifier(plain, l.diffID, p)
	if err != nil {
		return err
	}
	err = p.options.Unpack(ctx, below, sum, dir)
	if sum.failed != nil { // err is a consequence
		return sum.failed
	}
	if err != nil {
		return err
	}
	return sum.finish()
}

// chain returns the layers for sandboxes. It merges the layers of an image with many layers
// into one, which is stored, too. The caller holds the returned layers.
func (p *pull) chain(ctx context.Context, ids []string) ([]string, error) {
	if len(ids) <= layers.MaxChain {
		_, err := p.options.Layers.Hold(ids...)
		return ids, err
	}
	merged := mergedPrefix + p.blobs[len(p.blobs)-1].chain
	release, err := p.locks.lock(ctx, merged)
	if err != nil {
		return nil, err
	}
	defer release()
	if id, found := p.cache.get(merged); found {
		return []string{id}, nil
	}
	p.progress("%d layers become one", len(ids))
	top := ids[len(ids)-1]
	if _, err := p.options.Layers.Hold(top); err != nil {
		return nil, err
	}
	chain, err := p.options.Layers.Chain(ctx, slices.Clone(ids[:len(ids)-1]), top)
	if err != nil {
		return nil, err
	}
	if err := p.cache.put(merged, len(ids), chain[0]); err != nil {
		p.options.Layers.Release(chain...)
		return nil, err
	}
	return chain, nil
}
