//go:build linux

package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	oci "github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/e2bctl/e2bctl/sandbox"
)

// fetchRows returns the rows about sandboxes of an image of a registry, without a template. template
// builds a template with the same shell, and packed packs the large layer.
func (b *bench) fetchRows(template, packed func() (string, error)) []row {
	return []row{
		{
			name: "create to first command, of a kept image of a registry", runs: 20, measure: b.createdFrom,
			floor: b.createdOf(template), floorName: "of a template of its files",
		},
		{
			name: "create of an image that must be fetched, " + (&bench{sizes: sizes{bulk: b.layerSize()}}).megabytes("of Python"), runs: 5, measure: b.fetched(packed, b.createFetched),
			floor: b.fetched(packed, b.downloaded), floorName: "download, `tar -xz` and a sync",
		},
	}
}

// imageRegistry is a registry on this machine. Its layers are files.
type imageRegistry struct {
	*httptest.Server

	shell, packed v1.Layer
	pushed        int
}

// withRegistry starts a registry for the time of use. packed is the name of the file of a layer; ""
// means that images have only a shell.
func (b *bench) withRegistry(ctx context.Context, packed string, use func(r *imageRegistry) (result, error)) (_ result, err error) {
	dir, err := os.MkdirTemp(b.images, "registry-")
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	files, err := bashFiles(ctx)
	if err != nil {
		return result{}, err
	}
	r := &imageRegistry{shell: static.NewLayer(files, oci.OCIUncompressedLayer)}
	if packed != "" {
		if r.packed, err = tarball.LayerFromFile(packed); err != nil {
			return result{}, err
		}
	}
	r.Server = httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0)), registry.WithBlobHandler(registry.NewDiskBlobHandler(dir))))
	defer r.Close()
	return use(r)
}

// push adds an image that the cloud does not have. Because its lowest layer is new, none of its layers
// can be used from another image.
func (r *imageRegistry) push(ctx context.Context) (reference string, err error) {
	r.pushed++
	var lowest bytes.Buffer
	w := tar.NewWriter(&lowest)
	err = w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: fmt.Sprintf("image-%d-%d/", time.Now().UnixNano(), r.pushed), Mode: 0o755})
	if err = errors.Join(err, w.Close()); err != nil {
		return "", err
	}
	all := []v1.Layer{static.NewLayer(lowest.Bytes(), oci.OCIUncompressedLayer), r.shell}
	if r.packed != nil {
		all = append(all, r.packed)
	}
	img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: "linux", Architecture: runtime.GOARCH})
	if err == nil {
		img, err = mutate.AppendLayers(img, all...)
	}
	if err != nil {
		return "", err
	}
	reference = fmt.Sprintf("%s/bench:%d", strings.TrimPrefix(r.URL, "http://"), r.pushed)
	ref, err := name.ParseReference(reference)
	if err != nil {
		return "", err
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	return reference, remote.Write(ref, img, remote.WithTransport(transport), remote.WithContext(ctx))
}

// createdFrom measures the time from the request for a sandbox of an image to the end of its first
// command. The image is fetched before.
func (b *bench) createdFrom(ctx context.Context, runs int) (result, error) {
	return b.withRegistry(ctx, "", func(r *imageRegistry) (result, error) {
		reference, err := r.push(ctx)
		if err != nil {
			return result{}, err
		}
		return b.of(sandbox.WithImage(reference)).created(0, runTrue)(ctx, runs)
	})
}

// fetched measures how long do takes for each of several images, which it adds to the registry.
func (b *bench) fetched(packed func() (string, error), do func(ctx context.Context, r *imageRegistry) (time.Duration, error)) measurement {
	return func(ctx context.Context, runs int) (result, error) {
		file, err := packed()
		if err != nil {
			return result{}, err
		}
		return b.withRegistry(ctx, file, func(r *imageRegistry) (result, error) {
			return repeat(ctx, runs, func(ctx context.Context) (time.Duration, error) { return do(ctx, r) })
		})
	}
}

// createFetched creates a sandbox of an image that the cloud does not have.
func (b *bench) createFetched(ctx context.Context, r *imageRegistry) (time.Duration, error) {
	reference, err := r.push(ctx)
	if err != nil {
		return 0, err
	}
	start := time.Now()
	sb, err := b.client.Create(ctx, sandbox.WithImage(reference))
	took := time.Since(start)
	if err != nil {
		return 0, err
	}
	return took, sb.Close()
}

// downloaded downloads the large layer of an image to a file, and unpacks it.
func (b *bench) downloaded(ctx context.Context, r *imageRegistry) (_ time.Duration, err error) {
	if _, err := r.push(ctx); err != nil {
		return 0, err
	}
	digest, err := r.packed.Digest()
	if err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp(b.images, "files-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	start := time.Now()
	file := filepath.Join(dir, "layer.tar.gz")
	if err := download(ctx, fmt.Sprintf("%s/v2/bench/blobs/%s", r.URL, digest), file); err != nil {
		return 0, err
	}
	if _, err := tarUnpacks(ctx, dir, file); err != nil {
		return 0, err
	}
	took := time.Since(start)
	return took, exec.CommandContext(ctx, "chmod", "-R", "u+rwx", dir).Run()
}

func download(ctx context.Context, url, to string) (err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: got %s", url, answer.Status)
	}
	f, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, answer.Body)
	return errors.Join(err, f.Close())
}
