package image

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/e2bctl/e2bctl/internal/must"
)

// body is a stream that can fail at its end, and notes that it was closed.
type body struct {
	io.Reader
	fails  error
	closed bool
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if errors.Is(err, io.EOF) && b.fails != nil {
		err = b.fails
	}
	return n, err
}

func (b *body) Close() error { b.closed = true; return nil }

var errBroken = errors.New("the connection broke")

// documents is an origin that keeps documents by digest. One that is announced with a negative size breaks off.
type documents map[v1.Hash]string

func (d documents) add(t *testing.T, kind types.MediaType, text string) v1.Descriptor {
	t.Helper()
	sum, size, err := v1.SHA256(strings.NewReader(text))
	must.Do(t, err)
	d[sum] = text
	return v1.Descriptor{MediaType: kind, Digest: sum, Size: size}
}

func (d documents) manifest(_ context.Context, of v1.Descriptor) ([]byte, error) {
	if text, ok := d[of.Digest]; ok {
		return []byte(text), nil
	}
	return nil, os.ErrNotExist
}

func (d documents) blob(ctx context.Context, of v1.Descriptor) (io.ReadCloser, error) {
	text, err := d.manifest(ctx, of)
	b := &body{Reader: bytes.NewReader(text)}
	if of.Size < 0 {
		b.fails = errBroken
	}
	return b, err
}

// TestResolve follows descriptors through indexes, up to the limit, and reads no document of a wrong kind or size.
func TestResolve(t *testing.T) {
	t.Parallel()
	on := v1.Platform{OS: "linux", Architecture: "amd64"}
	d := documents{}
	hash := "sha256:" + strings.Repeat("1", 64)
	configText := fmt.Sprintf(`{"os":"linux","architecture":"amd64","config":{"User":"u"},"rootfs":{"type":"layers","diff_ids":[%q]}}`, hash)
	config := d.add(t, types.DockerConfigJSON, configText)
	manifestOf := func(config v1.Descriptor) v1.Descriptor {
		return d.add(t, types.DockerManifestSchema2, fmt.Sprintf(`{"schemaVersion":2,"config":{"mediaType":%q,"digest":%q,"size":%d},"layers":[{"mediaType":%q,"digest":%q,"size":5}]}`,
			config.MediaType, config.Digest, config.Size, types.DockerLayer, hash))
	}
	image := manifestOf(config)
	index := func(platform string, of v1.Descriptor) v1.Descriptor {
		return d.add(t, types.OCIImageIndex, fmt.Sprintf(`{"schemaVersion":2,"manifests":[{"mediaType":%q,"digest":%q,"size":%d%s}]}`, of.MediaType, of.Digest, of.Size, platform))
	}
	const amd64 = `,"platform":{"os":"linux","architecture":"amd64"}`
	nested := []v1.Descriptor{image}
	for range maxIndexes + 1 {
		nested = append(nested, index(amd64, nested[len(nested)-1]))
	}
	large, wrong, breaks := config, config, config
	breaks.Size = -1
	large.Size, wrong.MediaType = maxConfig+1, "text/plain"
	gone := v1.Descriptor{MediaType: types.DockerManifestSchema2, Digest: v1.Hash{Algorithm: "sha256", Hex: strings.Repeat("9", 64)}}
	untyped, lying := image, image
	untyped.MediaType, lying.MediaType = "", "application/octet-stream"
	typed := d.add(t, "", strings.Replace(d[image.Digest], "{", fmt.Sprintf(`{"mediaType":%q,`, types.OCIManifestSchema1), 1))
	lyingTyped := typed
	lyingTyped.MediaType = "application/octet-stream"
	lyingIndex := d.add(t, "", strings.Replace(d[nested[1].Digest], "{", fmt.Sprintf(`{"mediaType":%q,`, types.OCIImageIndex), 1))
	lyingIndex.MediaType = "application/octet-stream"
	other := v1.Descriptor{MediaType: "text/plain", Digest: image.Digest}
	for name, tt := range map[string]struct {
		root v1.Descriptor
		want string // text of the error
	}{
		"an image": {image, ""}, "an index": {nested[1], ""}, "as many indexes as allowed": {nested[maxIndexes], ""}, "one index more": {nested[maxIndexes+1], "more than 3 indexes"},
		"one image without a platform": {index("", image), ""}, "no such platform": {index(`,"platform":{"os":"linux","architecture":"arm"}`, image), "it is for linux/arm, and sandboxes here are linux/amd64"},
		"no such system": {index(`,"platform":{"os":"windows","architecture":"amd64"}`, image), "it is for windows/amd64"}, "only an attestation": {index(`,"platform":{"os":"unknown","architecture":"unknown"}`, image), "no image for linux/amd64"},
		"a manifest that is gone": {index(amd64, gone), os.ErrNotExist.Error()}, "a large configuration": {manifestOf(large), "its configuration: it has more than 8 MiB"},
		"another configuration": {manifestOf(wrong), "something else"}, "a configuration that is gone": {manifestOf(v1.Descriptor{MediaType: types.OCIConfigJSON, Digest: gone.Digest}), "its configuration: " + os.ErrNotExist.Error()},
		"a type in the manifest": {typed, ""}, "a wrong type": {lyingTyped, ""}, "no type": {untyped, "it is not a container image of a known format"}, "an unknown type": {lying, "but \"application/octet-stream\""}, "a text": {other, `but "text/plain"`},
		"a manifest that is no JSON": {d.add(t, types.OCIManifestSchema1, "{"), "its manifest: "}, "an index that is no JSON": {d.add(t, types.OCIImageIndex, "{"), "its index: "},
		"a configuration that breaks off": {manifestOf(breaks), "its configuration: " + errBroken.Error()}, "an index of a wrong type": {lyingIndex, ""},
		"a configuration that is no JSON": {manifestOf(d.add(t, types.OCIConfigJSON, "{")), "its configuration: "},
		"as large as allowed":             {d.add(t, types.OCIManifestSchema1, strings.Repeat(" ", maxManifest-2)+"{}"), "its configuration: "},
		"too large":                       {d.add(t, types.OCIManifestSchema1, strings.Repeat(" ", maxManifest-1)+"{}"), "its manifest has more than 4 MiB"},
	} {
		f, err := resolve(t.Context(), on, d, name, tt.root, []byte(d[tt.root.Digest]))
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", name, err, tt.want)
		}
		if err != nil || name == "a type in the manifest" || name == "a wrong type" {
			continue
		}
		got := []any{f.name, f.digest, f.asked, f.config.User, f.platform.Architecture, f.blobs[0].size}
		if diff := cmp.Diff([]any{name, image.Digest.String(), tt.root.Digest.String(), "u", "amd64", int64(5)}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestLimitsOfConfigurations checks a configuration of the largest size, and one that is a byte longer.
func TestLimitsOfConfigurations(t *testing.T) {
	t.Parallel()
	for size, want := range map[int]bool{maxConfig: true, maxConfig + 1: false} {
		if _, err := parseConfig([]byte("{}" + strings.Repeat(" ", size-2))); (err == nil) != want {
			t.Errorf("%d bytes: got %v, want it to be read: %v", size, err, want)
		}
		d := documents{}
		of := d.add(t, types.OCIConfigJSON, "{}")
		of.Size = int64(size)
		if _, err := readConfig(t.Context(), d, of); (err == nil) != want {
			t.Errorf("announced with %d bytes: got %v, want it to be read: %v", size, err, want)
		}
	}
}

// TestWhole checks that a stream ends only after its size and digest were verified, and that each refused
// document is closed.
func TestWhole(t *testing.T) {
	t.Parallel()
	const text = "some text"
	right, size, err := v1.SHA256(strings.NewReader(text))
	must.Do(t, err)
	broken := errBroken
	for name, tt := range map[string]struct {
		size  int64
		want  v1.Hash
		limit int64
		fails error
		err   string
	}{
		"right": {size, right, size, nil, ""}, "larger than the limit": {size, right, size - 1, nil, "has more than 8 bytes"}, "longer": {size - 1, right, size, nil, "longer than it was said to be"},
		"shorter": {size + 1, right, size + 1, nil, io.ErrUnexpectedEOF.Error()}, "another digest": {size, v1.Hash{Algorithm: "sha256", Hex: strings.Repeat("0", 64)}, size, nil, "its digest is " + right.String()},
		"an unknown digest": {size, v1.Hash{Algorithm: "md5", Hex: "00"}, size, nil, "md5"}, "broken": {size, right, size, broken, broken.Error()},
	} {
		b := &body{Reader: strings.NewReader(text), fails: tt.fails}
		got, err := readVerified(b, v1.Descriptor{Size: tt.size, Digest: tt.want}, tt.limit)
		if (err == nil) != (tt.err == "") || !strings.Contains(fmt.Sprint(err), tt.err) || tt.err == "" && string(got) != text {
			t.Errorf("%s: got %q and %v, want %q", name, got, err, tt.err)
		}
		if !b.closed {
			t.Errorf("%s: it is still open", name)
		}
	}
}

// TestIndexOfArchive checks which entries of a tar are parts, and where links in it lead.
func TestIndexOfArchive(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	w := tar.NewWriter(&text)
	for _, h := range []tar.Header{
		{Name: "dir/", Typeflag: tar.TypeDir}, {Name: "./dir/file", Typeflag: tar.TypeReg, Size: 3}, {Name: "other/symlink", Typeflag: tar.TypeSymlink, Linkname: "../dir/file"},
		{Name: "other/hardlink", Typeflag: tar.TypeLink, Linkname: "dir/file"}, {Name: "pipe", Typeflag: tar.TypeFifo}, {Name: "../up", Typeflag: tar.TypeReg},
	} {
		must.Do(t, w.WriteHeader(&h))
		_, err := io.WriteString(w, "abc"[:h.Size])
		must.Do(t, err)
	}
	must.Do(t, w.Close())
	path := filepath.Join(t.TempDir(), "tar")
	must.Do(t, os.WriteFile(path, text.Bytes(), 0o600))
	for before, want := range map[int]bool{0: true, maxArchiveEntries - 4: true, maxArchiveEntries - 3: false} {
		file, err := os.Open(path)
		must.Do(t, err)
		a := &archive{file: file, parts: make(map[string]part, before)}
		for i := range before {
			a.parts[fmt.Sprint(i)] = part{}
		}
		if err := a.index(); (err == nil) != want {
			t.Errorf("after %d files: got %v, want it to be read: %v", before, err, want)
		}
		if before == 0 {
			for name, want := range map[string]string{"dir/file": "abc", "other/symlink": "abc", "other/hardlink": "abc", "dir": "", "pipe": "", "none": ""} {
				if got, err := a.read(name, 3); string(got) != want || (err == nil) != (want != "") {
					t.Errorf("%s: got %q and %v, want %q", name, got, err, want)
				}
			}
			if _, err := a.read("dir/file", 2); err == nil {
				t.Error("a file of 3 bytes was read with a limit of 2")
			}
		}
		must.Do(t, file.Close())
	}
	if err := (&archive{file: nil, parts: nil}).index(); err == nil {
		t.Error("got no error of a file that cannot be read")
	}
}

// TestPick checks which image of an archive a name means.
func TestPick(t *testing.T) {
	t.Parallel()
	one, two := saved{Config: "1", RepoTags: []string{"a:1", "b"}}, saved{Config: "2", RepoTags: []string{"c"}}
	for _, tt := range []struct {
		all       []saved
		tag, want string
	}{
		{[]saved{one}, "", "1"}, {[]saved{one, two}, "b", "1"}, {[]saved{one, two}, "c", "2"}, {[]saved{one}, "c", ""}, {[]saved{one, two}, "", ""}, {nil, "", ""},
	} {
		if got, err := pick(tt.all, tt.tag); got.Config != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("%d images, %q: got %+v and %v, want %q", len(tt.all), tt.tag, got, err, tt.want)
		}
	}
}

// TestExplain checks which errors of a registry have a remedy, and which have a status.
func TestExplain(t *testing.T) {
	t.Parallel()
	ref, err := name.ParseReference("registry.test/image:1")
	must.Do(t, err)
	must.Do(t, explain(ref, nil))
	plain := errors.New("something else")
	for want, err := range map[string]error{
		"docker login registry.test": &transport.Error{StatusCode: http.StatusUnauthorized}, "or has no such image": &transport.Error{StatusCode: http.StatusForbidden},
		"registry.test does not have it": &transport.Error{StatusCode: http.StatusNotFound}, "--registry-mirror": &net.OpError{Op: "dial", Err: plain},
	} {
		got := explain(ref, fmt.Errorf("wrapped: %w", err))
		if !strings.Contains(got.Error(), want) || !errors.Is(got, err) {
			t.Errorf("%v: got %v, want %q in it", err, got, want)
		}
		refused, _ := errors.AsType[*transport.Error](err)
		if status := StatusOf(got); refused != nil && status != refused.StatusCode || refused == nil && status != 0 {
			t.Errorf("%v: got the status %d", got, status)
		}
	}
	for _, err := range []error{plain, &transport.Error{StatusCode: http.StatusInternalServerError}} {
		if got := explain(ref, err); !errors.Is(got, err) || got.Error() != err.Error() {
			t.Errorf("got %v, want %v as it is", got, err)
		}
	}
}

// TestTexts checks small texts of messages and the fields of a configuration.
func TestTexts(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0 bytes", 1<<20 - 1: "1048575 bytes", 1 << 20: "1.0 MiB", 3 << 19: "1.5 MiB"} {
		if got := bytesText(n); got != want {
			t.Errorf("%d: got %q, want %q", n, got, want)
		}
	}
	on := v1.Platform{OS: "linux", Architecture: "amd64"}
	var others []string
	for i := range 30 {
		others = append(others, fmt.Sprint("linux/", i))
	}
	if got := platformError(on, others...).Error(); !strings.Contains(got, "linux/19, and") || strings.Contains(got, "linux/20") {
		t.Errorf("got %q, want the first 20", got)
	}
	for reference, want := range map[string]bool{"docker-archive:/a": true, "oci:/a": true, "docker.io/a": false, "oci": false} {
		if got := IsFile(reference); got != want {
			t.Errorf("%s: got %v, want %v", reference, got, want)
		}
	}
	known := &known{Digest: "d", Config: Config{User: "u"}, Blobs: []knownBlob{{Chain: "c", Digest: "b"}}}
	f := known.found("name", "asked")
	f.close()
	if diff := cmp.Diff([]string{"name", "asked", "d", "u", "c", "b"}, []string{f.name, f.asked, f.digest, f.config.User, f.blobs[0].chain, f.blobs[0].digest}); diff != "" {
		t.Errorf("a known image (-want +got):\n%s", diff)
	}
	if _, err := f.open(t.Context(), 0); err == nil || !strings.Contains(err.Error(), "try again") {
		t.Errorf("a layer that was removed: got %v", err)
	}
}
