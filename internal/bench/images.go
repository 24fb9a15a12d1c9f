//go:build linux

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	oci "github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/template"
)

// imageRows returns the rows about limits and container images, which need isolation full. The image contains the bash of this machine,
// which is also the shell of sandboxes without an image.
func (b *bench) imageRows() []row {
	of := sync.OnceValues(func() (string, error) { return b.buildImage(context.Background()) })
	packed := sync.OnceValues(func() (string, error) { return b.packPython(context.Background()) })
	const builtIn = "of the built-in template"
	limited := b.of(sandbox.WithResources(sandbox.Resources{DiskBytes: 256 << 20}))
	return append([]row{
		{
			name: "create to first Python result, with other limits than warm sandboxes", runs: 4, measure: limited.created(b.pause, onePlusOne),
			floor: b.created(b.pause, onePlusOne), floorName: "with their limits",
		},
		{
			name: "create to first command, of an unpacked image", runs: 20, measure: b.createdOf(of),
			floor: b.createdOf(nil), floorName: builtIn,
		},
		{
			name: count(b.imageCrowd(), "sandboxes of one image, each after a command: memory of one"), runs: 1, measure: b.memoryOf(of),
			floor: b.memoryOf(nil), floorName: builtIn,
		},
		{
			name: "a layer of an image unpacked, " + (&bench{sizes: sizes{bulk: b.layerSize()}}).megabytes("of Python"), runs: 5, measure: b.unpacked(packed, roomUnpacks),
			floor: b.unpacked(packed, tarUnpacks), floorName: "`tar -xz` and a sync",
		},
	}, b.fetchRows(of, packed)...)
}

// buildImage builds a template from an image, and returns the template's name.
func (b *bench) buildImage(ctx context.Context) (string, error) {
	files, err := bashFiles(ctx)
	if err != nil {
		return "", err
	}
	image, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: "linux", Architecture: runtime.GOARCH})
	if err == nil {
		image, err = mutate.AppendLayers(image, static.NewLayer(files, oci.OCIUncompressedLayer))
	}
	if err != nil {
		return "", err
	}
	tag, err := name.NewTag("bench:latest")
	if err != nil {
		return "", err
	}
	path := filepath.Join(b.images, "image.tar")
	if err := tarball.WriteToFile(path, tag, image); err != nil {
		return "", err
	}
	built, err := template.Build(ctx, b.client.Templates, "bench-image", template.FromImage("docker-archive:"+path, nil), nil)
	if err != nil {
		return "", err
	}
	return built.Name, nil
}

// bashFiles returns a layer with bash and the libraries that it is linked to.
func bashFiles(ctx context.Context) ([]byte, error) {
	const bash = "/bin/bash"
	linked, err := exec.CommandContext(ctx, "ldd", bash).Output()
	if err != nil {
		return nil, fmt.Errorf("ldd %s: %w", bash, err)
	}
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	for _, path := range append(strings.Fields(string(linked)), bash) {
		if !filepath.IsAbs(path) {
			continue
		}
		content, err := os.ReadFile(path)
		if err == nil {
			err = w.WriteHeader(&tar.Header{Name: path[1:], Size: int64(len(content)), Mode: 0o755})
		}
		if err == nil {
			_, err = w.Write(content)
		}
		if err != nil {
			return nil, err
		}
	}
	return layer.Bytes(), w.Close()
}

// createOf creates a sandbox of a template. A nil template means the built-in template.
func (b *bench) createOf(ctx context.Context, template func() (string, error)) (*sandbox.Sandbox, error) {
	if template == nil {
		return b.client.Create(ctx)
	}
	name, err := template()
	if err != nil {
		return nil, err
	}
	return b.client.Create(ctx, sandbox.WithTemplate(name))
}

// createdOf measures the time from the request for a sandbox of a template to the end of its
// first command.
func (b *bench) createdOf(template func() (string, error)) measurement {
	return func(ctx context.Context, runs int) (result, error) {
		return repeat(ctx, runs, func(ctx context.Context) (time.Duration, error) {
			start := time.Now()
			sb, err := b.createOf(ctx, template)
			if err != nil {
				return 0, err
			}
			err = runTrue(ctx, sb)
			took := time.Since(start)
			return took, errors.Join(err, sb.Close())
		})
	}
}

// imageCrowd returns the number of sandboxes of one image whose memory is measured.
func (b *bench) imageCrowd() int { return max(1, b.crowd/5) }

// memoryOf measures the additional memory for each of several sandboxes of a template.
func (b *bench) memoryOf(template func() (string, error)) measurement {
	return func(ctx context.Context, _ int) (result, error) {
		count := b.imageCrowd()
		first, err := b.createOf(ctx, template) // the shared memory exists from here on
		if err != nil {
			return result{}, err
		}
		all := []*sandbox.Sandbox{first}
		debug.FreeOSMemory()
		before, err := inAll()
		for len(all) <= count && err == nil {
			var sb *sandbox.Sandbox
			if sb, err = b.createOf(ctx, template); err == nil {
				all = append(all, sb)
				err = runTrue(ctx, sb)
			}
		}
		debug.FreeOSMemory()
		after, readErr := inAll()
		err = errors.Join(err, readErr, closeAll(all))
		return result{size: max((after-before)/int64(count), 1), notes: []string{fmt.Sprintf("%.1f MB in all", float64(after-before)/1e6)}}, err
	}
}

// unpacks is a function that unpacks a packed layer into a directory and returns the time that this
// took.
type unpacks func(ctx context.Context, dir, packed string) (time.Duration, error)

// unpacked measures how long a packed layer takes to be unpacked.
func (b *bench) unpacked(packed func() (string, error), do unpacks) measurement {
	return func(ctx context.Context, runs int) (result, error) {
		file, err := packed()
		if err != nil {
			return result{}, err
		}
		return repeat(ctx, runs, func(ctx context.Context) (time.Duration, error) {
			to, err := os.MkdirTemp(b.images, "files-")
			if err != nil {
				return 0, err
			}
			took, err := do(ctx, to, file)
			return took, errors.Join(err, exec.CommandContext(ctx, "chmod", "-R", "u+rwx", to).Run(), os.RemoveAll(to))
		})
	}
}

func tarUnpacks(ctx context.Context, dir, packed string) (time.Duration, error) {
	start := time.Now()
	err := exec.CommandContext(ctx, "sh", "-c", `tar -xzf "$1" -C "$2" && sync -f "$2"`, "sh", packed, dir).Run()
	return time.Since(start), err
}

// roomUnpacks unpacks a layer in the same way as the pull of an image does.
func roomUnpacks(ctx context.Context, dir, packed string) (_ time.Duration, err error) {
	own, to := filepath.Join(dir, "room"), filepath.Join(dir, "layer")
	if err := errors.Join(os.Mkdir(own, 0o700), os.Mkdir(to, 0o700)); err != nil {
		return 0, err
	}
	r, err := room.Start(ctx, room.Options{Dir: own, Isolation: engine.Full})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	f, err := os.Open(packed)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	start := time.Now()
	plain, err := gzip.NewReader(f)
	if err == nil {
		err = r.UnpackTar(ctx, nil, plain, to)
	}
	return time.Since(start), err
}

// layerSize returns the size of the files of the unpacked layer, in bytes.
func (b *bench) layerSize() int64 { return b.bulk / 4 }

// packPython packs files of the Python of sandboxes into an archive, and returns its name.
func (b *bench) packPython(ctx context.Context) (string, error) {
	python, err := local.FindPython(ctx)
	if err != nil {
		return "", err
	}
	where, err := exec.CommandContext(ctx, python.Path, "-c", "import sysconfig; print(sysconfig.get_path('stdlib')); print(sysconfig.get_path('purelib'))").Output()
	if err != nil {
		return "", fmt.Errorf("ask %s where its packages are: %w", python.Path, err)
	}
	name := filepath.Join(b.images, "layer.tar.gz")
	f, err := os.Create(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	packed := gzip.NewWriter(f)
	w := tar.NewWriter(packed)
	left := b.layerSize()
	for _, dir := range strings.Fields(string(where)) {
		err = errors.Join(err, pack(w, dir, &left))
	}
	return name, errors.Join(err, w.Close(), packed.Close())
}

// pack adds the files of a directory to w until it has added *left bytes. It subtracts the added
// bytes from *left.
func pack(w *tar.Writer, dir string, left *int64) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if *left <= 0 {
			return fs.SkipAll
		}
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		f, err := os.Open(path)
		if errors.Is(err, fs.ErrPermission) {
			return nil
		}
		if err != nil {
			return err
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return err
		}
		*left -= info.Size()
		if err := w.WriteHeader(&tar.Header{Name: strings.TrimPrefix(path, "/"), Size: info.Size(), Mode: 0o644, ModTime: info.ModTime()}); err != nil {
			return err
		}
		_, err = io.Copy(w, io.LimitReader(f, info.Size()))
		return err
	})
}
