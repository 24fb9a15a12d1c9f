package packaging

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/binary"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/e2bctl/e2bctl/internal/must"
)

// program writes the header of a program with segments of the given types, and returns its path.
func program(t *testing.T, machine elf.Machine, segments ...elf.ProgType) string {
	t.Helper()
	header := elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_EXEC), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT), Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: uint16(len(segments)),
	}
	var data bytes.Buffer
	must.Do(t, binary.Write(&data, binary.LittleEndian, header))
	for _, segment := range segments {
		must.Do(t, binary.Write(&data, binary.LittleEndian, elf.Prog64{Type: uint32(segment)}))
	}
	path := filepath.Join(t.TempDir(), "program")
	must.Do(t, os.WriteFile(path, data.Bytes(), 0o600))
	return path
}

func testImage(t *testing.T) Image {
	t.Helper()
	certificates := filepath.Join(t.TempDir(), "ca.crt")
	must.Do(t, os.WriteFile(certificates, []byte("authorities\n"), 0o600))
	return Image{
		Name:         "registry.test/e2bctl:1",
		Servers:      []string{program(t, elf.EM_X86_64, elf.PT_LOAD), program(t, elf.EM_AARCH64)},
		Programs:     []string{program(t, elf.EM_AARCH64), program(t, elf.EM_X86_64)},
		Certificates: certificates,
	}
}

func sumOf(t *testing.T, i Image) (sum [sha256.Size]byte) {
	t.Helper()
	hash := sha256.New()
	must.Do(t, i.WriteTar(hash))
	return [sha256.Size]byte(hash.Sum(nil))
}

// TestReproducible checks that neither times nor the order of files changes the image.
func TestReproducible(t *testing.T) {
	t.Parallel()
	i := testImage(t)
	first := sumOf(t, i)
	must.Do(t, os.Chtimes(i.Servers[0], time.Unix(1, 0), time.Unix(1, 0)))
	slices.Reverse(i.Servers)
	if again := sumOf(t, i); again != first {
		t.Errorf("the same files give %x, and then %x", first, again)
	}
	must.Do(t, os.WriteFile(i.Certificates, []byte("others\n"), 0o600))
	if other := sumOf(t, i); other == first {
		t.Error("other certificates give the same image")
	}
}

// TestLayout reads the image as a container runtime does.
func TestLayout(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	i := testImage(t)
	must.Do(t, i.WriteDir(dir))
	index, err := layout.ImageIndexFromPath(dir)
	must.Do(t, err)
	must.Do(t, validate.Index(index))
	top, err := index.IndexManifest()
	must.Do(t, err)
	if len(top.Manifests) != 1 || top.Manifests[0].Annotations["io.containerd.image.name"] != i.Name {
		t.Fatalf("the layout has %+v", top.Manifests)
	}
	inner, err := index.ImageIndex(top.Manifests[0].Digest)
	must.Do(t, err)
	platforms, err := inner.IndexManifest()
	must.Do(t, err)
	var architectures []string
	for _, m := range platforms.Manifests {
		architectures = append(architectures, m.Platform.Architecture)
		image, err := inner.Image(m.Digest)
		must.Do(t, err)
		checkImage(t, image, m.Platform.Architecture)
	}
	if !slices.Equal(architectures, []string{"amd64", "arm64"}) {
		t.Errorf("it is for %q", architectures)
	}
}

// TestPush pushes the image to a registry, and reads it from there as a node of a cluster does.
func TestPush(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	i := testImage(t)
	i.Name = strings.TrimPrefix(server.URL, "http://") + "/e2bctl:1"
	must.Do(t, i.Push(t.Context()))
	reference, err := name.ParseReference(i.Name)
	must.Do(t, err)
	for _, architecture := range []string{"amd64", "arm64"} {
		image, err := remote.Image(reference, remote.WithPlatform(v1.Platform{OS: "linux", Architecture: architecture}))
		must.Do(t, err)
		checkImage(t, image, architecture)
	}
}

func checkImage(t *testing.T, image v1.Image, architecture string) {
	t.Helper()
	config, err := image.ConfigFile()
	must.Do(t, err)
	if c := config.Config; config.Architecture != architecture || c.User != "65532:65532" || !slices.Equal(c.Entrypoint, []string{"/e2bctl"}) {
		t.Errorf("for %s it is configured as %+v", architecture, config)
	}
	files := map[string]int64{}
	content := mutate.Extract(image)
	defer content.Close()
	for archive := tar.NewReader(content); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must.Do(t, err)
		files[header.Name] = header.Mode
		if !header.ModTime.Equal(time.Unix(0, 0)) || header.Uid != 0 {
			t.Errorf("%s is of %v, and of user %d", header.Name, header.ModTime, header.Uid)
		}
	}
	for name, mode := range map[string]int64{"e2bctl": 0o555, ".e2bctl": 0o555, "etc/ssl/certs/ca-certificates.crt": 0o444, "tmp": 0o1777} {
		if got, found := files[name]; !found || got != mode {
			t.Errorf("%s is there: %v, with mode %o, want %o", name, found, got, mode)
		}
	}
	if len(files) != 4 {
		t.Errorf("it has the files %v", files)
	}
}

// TestRefusals checks that programs that could not run in the image are refused.
func TestRefusals(t *testing.T) {
	t.Parallel()
	amd64, arm64 := program(t, elf.EM_X86_64), program(t, elf.EM_AARCH64)
	for _, test := range []struct {
		servers, programs []string
		want              string
	}{
		{nil, nil, "0 servers"},
		{[]string{amd64}, []string{arm64}, "no program of sandboxes"},
		{[]string{amd64}, []string{amd64, arm64}, "1 servers and 2 programs"},
		{[]string{amd64, amd64}, []string{amd64}, "are both for amd64"},
		{[]string{program(t, elf.EM_X86_64, elf.PT_INTERP)}, []string{amd64}, "CGO_ENABLED=0"},
		{[]string{program(t, elf.EM_RISCV)}, []string{amd64}, "want a program for amd64 or arm64"},
		{[]string{"/dev/null"}, []string{amd64}, "no program for Linux"},
	} {
		err := Image{Servers: test.servers, Programs: test.programs}.WriteTar(io.Discard)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("got %v, want %q", err, test.want)
		}
	}
}
