package image

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/e2bctl/e2bctl/internal/boundjson"
)

// Bounds of the documents that describe an image.
const (
	maxManifest = 4 << 20 // bytes, as in registries
	maxConfig   = 8 << 20
	maxValues   = 200_000 // maximum number of JSON values in one document
	maxLayers   = 127     // maximum number of layers, as in Docker
	maxIndexes  = 3       // maximum number of indexes nested in each other
)

// found is an image whose layers have not been fetched yet.
type found struct {
	name     string // reference of the image, for messages
	platform v1.Platform
	asked    string // digest that was requested, or to which the tag points; "": none
	digest   string
	config   Config
	blobs    []blob // lowest first
	open     func(ctx context.Context, i int) (io.ReadCloser, error)
	local    bool // open reads a file of this machine
	close    func()
}

// blob is a layer as it is fetched.
type blob struct {
	digest string // digest of the fetched bytes, for messages
	size   int64  // number of the fetched bytes
	diffID v1.Hash
	chain  string // identifies the layer together with the layers below it
}

// origin is a source of images. It verifies digests. It verifies the digest of a blob at the end of
// the blob's stream.
type origin interface {
	manifest(ctx context.Context, d v1.Descriptor) ([]byte, error)
	blob(ctx context.Context, d v1.Descriptor) (io.ReadCloser, error)
}

// platform is the platform of this machine's rooms.
var platform = platformOf(runtime.GOARCH)

func platformOf(architecture string) v1.Platform {
	return v1.Platform{OS: "linux", Architecture: architecture}
}

// resolve follows the descriptor of a reference, through indexes, to the image for a platform.
func resolve(ctx context.Context, on v1.Platform, from origin, name string, root v1.Descriptor, text []byte) (*found, error) {
	f := &found{name: name, platform: on, asked: root.Digest.String(), close: func() {}}
	for depth := 0; ; depth++ {
		kind, err := kindOf(root, text)
		if err != nil {
			return nil, err
		}
		if !kind.IsIndex() {
			break
		}
		if depth == maxIndexes {
			return nil, fmt.Errorf("it is more than %d indexes inside each other", maxIndexes)
		}
		if root, err = choose(on, text); err != nil {
			return nil, err
		}
		if text, err = from.manifest(ctx, root); err != nil {
			return nil, err
		}
	}
	f.digest = root.Digest.String()
	var m v1.Manifest
	if err := boundjson.Unmarshal(text, &m, maxValues, 8); err != nil {
		return nil, fmt.Errorf("its manifest: %w", err)
	}
	config, err := readConfig(ctx, from, m.Config)
	if err != nil {
		return nil, fmt.Errorf("its configuration: %w", err)
	}
	if err := f.describe(config, m.Layers); err != nil {
		return nil, err
	}
	f.open = func(ctx context.Context, i int) (io.ReadCloser, error) { return from.blob(ctx, m.Layers[i]) }
	return f, nil
}

// kindOf returns the media type of a manifest. It looks at the content, because some registries
// report a wrong type.
func kindOf(d v1.Descriptor, text []byte) (types.MediaType, error) {
	if len(text) > maxManifest {
		return "", fmt.Errorf("its manifest has more than %d MiB", maxManifest>>20)
	}
	kind := d.MediaType
	if !kind.IsIndex() && !kind.IsImage() {
		var of struct{ MediaType types.MediaType }
		_ = json.Unmarshal(text, &of) // if this fails, the kind is unknown
		if kind == "" || of.MediaType.IsIndex() || of.MediaType.IsImage() {
			kind = of.MediaType
		}
	}
	if kind.IsIndex() || kind.IsImage() {
		return kind, nil
	}
	return "", fmt.Errorf("it is not a container image of a known format, but %q", kind)
}

// choose returns the descriptor of the image for a platform in an index.
func choose(on v1.Platform, text []byte) (v1.Descriptor, error) {
	var index v1.IndexManifest
	if err := boundjson.Unmarshal(text, &index, maxValues, 8); err != nil {
		return v1.Descriptor{}, fmt.Errorf("its index: %w", err)
	}
	var others []string
	for _, m := range index.Manifests {
		if m.Platform == nil {
			if len(index.Manifests) == 1 {
				return m, nil // the configuration of this image names the platform
			}
			continue
		}
		if m.Platform.OS == on.OS && m.Platform.Architecture == on.Architecture {
			return m, nil
		}
		if m.Platform.OS != "unknown" { // an unknown platform marks the attestation of another image
			others = append(others, m.Platform.String())
		}
	}
	return v1.Descriptor{}, platformError(on, others...)
}

func platformError(on v1.Platform, others ...string) error {
	if len(others) == 0 {
		return fmt.Errorf("it has no image for %s", on)
	}
	return fmt.Errorf("it is for %s, and sandboxes here are %s", strings.Join(slices.Compact(others[:min(len(others), 20)]), ", "), on)
}

func readConfig(ctx context.Context, from origin, d v1.Descriptor) (*v1.ConfigFile, error) {
	if d.Size > maxConfig {
		return nil, fmt.Errorf("it has more than %d MiB", maxConfig>>20)
	}
	if !d.MediaType.IsConfig() {
		return nil, fmt.Errorf("it is %q: this is something else than a container image", d.MediaType)
	}
	r, err := from.blob(ctx, d)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(r, maxConfig+1))
	if err = errors.Join(err, r.Close()); err != nil {
		return nil, err
	}
	return parseConfig(text)
}

func parseConfig(text []byte) (*v1.ConfigFile, error) {
	if len(text) > maxConfig {
		return nil, fmt.Errorf("it has more than %d MiB", maxConfig>>20)
	}
	var c v1.ConfigFile
	return &c, boundjson.Unmarshal(text, &c, maxValues, 8)
}

// describe sets the fields of f from the image's configuration and the descriptors of its
// layers.
func (f *found) describe(c *v1.ConfigFile, descriptors []v1.Descriptor) error {
	if is := (v1.Platform{OS: c.OS, Architecture: c.Architecture}); !is.Equals(f.platform) {
		return platformError(f.platform, is.String())
	}
	switch n := len(descriptors); {
	case n != len(c.RootFS.DiffIDs):
		return fmt.Errorf("its manifest has %d layers, and its configuration %d", n, len(c.RootFS.DiffIDs))
	case n > maxLayers:
		return fmt.Errorf("it has %d layers: more than %d are not supported", n, maxLayers)
	case n == 0:
		return errors.New("it has no layers, so no files")
	}
	f.config = configOf(c.Config)
	chain := ""
	for i, d := range descriptors {
		if len(d.URLs) > 0 || d.MediaType != "" && !d.MediaType.IsDistributable() {
			return fmt.Errorf("its layer %d is to be fetched elsewhere (%s), which is not supported", i+1, d.MediaType)
		}
		if d.MediaType != "" && !d.MediaType.IsLayer() {
			return fmt.Errorf("its layer %d is %q, which is not supported", i+1, d.MediaType)
		}
		diffID := c.RootFS.DiffIDs[i]
		if diffID.Algorithm != "sha256" {
			return fmt.Errorf("its layer %d has a digest of the kind %q, which is not supported", i+1, diffID.Algorithm)
		}
		if chain == "" {
			chain = diffID.Hex
		} else {
			sum, _, err := v1.SHA256(strings.NewReader("sha256:" + chain + " " + diffID.String()))
			if err != nil {
				return err
			}
			chain = sum.Hex
		}
		f.blobs = append(f.blobs, blob{digest: d.Digest.String(), size: max(d.Size, 0), diffID: diffID, chain: chain})
	}
	return nil
}

// fetch returns layer i in the form in which the source stores it, which may be compressed. It
// first writes a layer of a registry to a file in dir. So layers are downloaded while others are
// unpacked, and no incomplete layer is unpacked. The parameter named which describes the layer in
// messages.
func (p *pull) fetch(ctx context.Context, dir string, i int, which string) (_ io.ReadCloser, err error) {
	if p.local {
		return p.open(ctx, i)
	}
	select {
	case p.downloads <- struct{}{}:
		defer func() { <-p.downloads }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	p.progress("%s: fetching %s", which, bytesText(p.blobs[i].size))
	from, err := p.open(ctx, i)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	to, err := os.OpenFile(filepath.Join(dir, fmt.Sprint(i)), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	_, err = io.Copy(to, from)
	if err == nil {
		_, err = to.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, to.Close())
	}
	return to, nil
}

func bytesText(n int64) string {
	if n < 1<<20 {
		return fmt.Sprintf("%d bytes", n)
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}

// readVerified reads a small document and verifies its digest.
func readVerified(r io.ReadCloser, d v1.Descriptor, limit int64) ([]byte, error) {
	if d.Size > limit {
		return nil, errors.Join(fmt.Errorf("%s has more than %d bytes", d.Digest, limit), r.Close())
	}
	w, err := newWhole(r, d.Size, d.Digest)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	var text bytes.Buffer
	_, err = text.ReadFrom(w)
	return text.Bytes(), err
}
