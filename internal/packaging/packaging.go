// Package packaging makes the packages of e2bctl. Program image writes the container image: the
// server with the engine of pods, and the program that serves a sandbox from inside. The image has no
// shell and no other program. Program release writes archives and wheels of pip.
package packaging

import (
	"archive/tar"
	"cmp"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
)

// User is the numeric user and group of the server. Kubernetes checks runAsNonRoot only by a number.
const User = "65532:65532"

// Paths in the image. The program of sandboxes is at [guest.Program].
const (
	serverPath       = "/e2bctl"
	certificatesPath = "/etc/ssl/certs/ca-certificates.crt"
	temporaryPath    = "/tmp"
)

// Image is an image for one or more architectures.
type Image struct {
	Name         string   // reference by which a container runtime knows the image once it has imported it
	Servers      []string // files of the server, one for each architecture
	Programs     []string // files of the program of sandboxes, one for each architecture
	Certificates string   // file of the certificate authorities, as PEM
}

// platform has the files of one architecture.
type platform struct{ architecture, server, program string }

// WriteTar writes the image as a tar archive of an OCI image layout. From the same files it always writes
// the same bytes.
func (i Image) WriteTar(w io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "e2bctl-image-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := i.WriteDir(dir); err != nil {
		return err
	}
	archive := tar.NewWriter(w)
	err = filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		return addFile(archive, filepath.ToSlash(name), path, 0o644)
	})
	return errors.Join(err, archive.Close())
}

// WriteDir writes the image as an OCI image layout to an empty directory.
func (i Image) WriteDir(dir string) error {
	index, err := i.index()
	if err != nil {
		return err
	}
	to, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	return to.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"io.containerd.image.name":          i.Name,
		"org.opencontainers.image.ref.name": i.Name,
	}))
}

// Push sends the image to the registry of its name, with the credentials that docker login has stored.
func (i Image) Push(ctx context.Context) error {
	to, err := name.ParseReference(i.Name)
	if err != nil {
		return err
	}
	index, err := i.index()
	if err != nil {
		return err
	}
	return remote.WriteIndex(to, index, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain))
}

// index returns the image for all architectures.
func (i Image) index() (v1.ImageIndex, error) {
	platforms, err := i.platforms()
	if err != nil {
		return nil, err
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range platforms {
		image, err := i.image(p)
		if err != nil {
			return nil, fmt.Errorf("the image for %s: %w", p.architecture, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: p.architecture}},
		})
	}
	return index, nil
}

// platforms sorts the files by their architecture.
func (i Image) platforms() ([]platform, error) {
	servers, err := byArchitecture(i.Servers)
	if err != nil {
		return nil, err
	}
	programs, err := byArchitecture(i.Programs)
	if err != nil {
		return nil, err
	}
	var all []platform
	for architecture, server := range servers {
		program, found := programs[architecture]
		if !found {
			return nil, fmt.Errorf("%s is for %s, and there is no program of sandboxes for it", server, architecture)
		}
		all = append(all, platform{architecture, server, program})
	}
	if len(all) == 0 || len(programs) > len(all) {
		return nil, fmt.Errorf("%d servers and %d programs of sandboxes: want one of each for every architecture", len(servers), len(programs))
	}
	slices.SortFunc(all, func(a, b platform) int { return cmp.Compare(a.architecture, b.architecture) })
	return all, nil
}

// byArchitecture returns the paths of programs by their architecture, as in GOARCH.
func byArchitecture(paths []string) (map[string]string, error) {
	found := map[string]string{}
	for _, path := range paths {
		architecture, err := architectureOf(path)
		if err != nil {
			return nil, err
		}
		if other, twice := found[architecture]; twice {
			return nil, fmt.Errorf("%s and %s are both for %s", other, path, architecture)
		}
		found[architecture] = path
	}
	return found, nil
}

// architectureOf returns the architecture of a program, as in GOARCH. If the program needs shared
// libraries, architectureOf returns an error, because the image has no libraries.
func architectureOf(path string) (string, error) {
	program, err := elf.Open(path)
	if err != nil {
		return "", fmt.Errorf("%s is no program for Linux: %w", path, err)
	}
	defer func() { _ = program.Close() }() // it was only read
	if slices.ContainsFunc(program.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		return "", fmt.Errorf("%s needs libraries, which the image lacks: build it with CGO_ENABLED=0", path)
	}
	switch program.Machine {
	case elf.EM_X86_64:
		return "amd64", nil
	case elf.EM_AARCH64:
		return "arm64", nil
	}
	return "", fmt.Errorf("%s is for %v: want a program for amd64 or arm64", path, program.Machine)
}

// image returns the image for one architecture.
func (i Image) image(p platform) (v1.Image, error) {
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		r, w := io.Pipe()
		go func() { w.CloseWithError(i.writeLayer(w, p)) }()
		return r, nil
	}, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.ConfigFile(image, &v1.ConfigFile{
		OS: "linux", Architecture: p.architecture, RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{
			User: User, Entrypoint: []string{serverPath}, WorkingDir: "/",
			Env: []string{"HOME=" + temporaryPath, "SSL_CERT_FILE=" + certificatesPath},
		},
	})
	if err != nil {
		return nil, err
	}
	return mutate.AppendLayers(image, layer)
}

// writeLayer writes the files of the image.
func (i Image) writeLayer(w io.Writer, p platform) error {
	archive := tar.NewWriter(w)
	for _, file := range []struct {
		path, from string
		mode       int64
	}{
		{guest.Program, p.program, 0o555},
		{serverPath, p.server, 0o555},
		{certificatesPath, i.Certificates, 0o444},
	} {
		if err := addFile(archive, strings.TrimPrefix(file.path, "/"), file.from, file.mode); err != nil {
			return err
		}
	}
	err := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: strings.TrimPrefix(temporaryPath, "/") + "/", Mode: 0o1777})
	return errors.Join(err, archive.Close())
}

// addFile adds a file to an archive. It does not store the time and the owner that the file has on
// this machine.
func addFile(to *tar.Writer, name, path string, mode int64) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if err := to.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: info.Size(), Mode: mode}); err != nil {
		return err
	}
	_, err = io.Copy(to, file)
	return err
}
