package image

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestDamagedArchives reads archives and layouts that lack a part, or have a damaged one. The error names the part, and
// nothing stays open.
func TestDamagedArchives(t *testing.T) {
	t.Parallel()
	allowed := t.TempDir()
	w := newWorld(t, func(_ *world, o *Options) { o.Archives = []string{allowed} })
	layer := tarOf(t, "a", "1")
	diffID, _, err := v1.SHA256(bytes.NewReader(layer))
	must.Do(t, err)
	config := func(ids ...v1.Hash) string {
		text := ""
		for _, id := range ids {
			text += fmt.Sprintf("%q,", id)
		}
		return fmt.Sprintf(`{"os":"linux","architecture":%q,"rootfs":{"type":"layers","diff_ids":[%s]}}`, platform.Architecture, strings.TrimSuffix(text, ","))
	}
	const manifest = `[{"Config":"c","RepoTags":["x"],"Layers":["l"]}]`
	for name, tt := range map[string]struct {
		files []string
		want  string // text of the error; "": none
	}{
		"whole": {[]string{"manifest.json", manifest, "c", config(diffID), "l", string(layer)}, ""}, "no manifest": {[]string{"c", config(diffID)}, `"manifest.json" is not in the archive`},
		"a manifest that is no JSON": {[]string{"manifest.json", "{"}, "its manifest.json: "}, "no configuration": {[]string{"manifest.json", manifest}, `"c" is not in the archive`},
		"a configuration that is no JSON": {[]string{"manifest.json", manifest, "c", "{"}, "its configuration: "}, "no layer": {[]string{"manifest.json", manifest, "c", config(diffID)}, `"l" is not in the archive`},
		"too few digests": {[]string{"manifest.json", manifest, "c", config(), "l", "1"}, "its manifest has 1 layers, and its configuration 0"}, "another layer": {[]string{"manifest.json", manifest, "c", config(diffID), "l", string(tarOf(t, "a", "2"))}, "not " + diffID.String()},
	} {
		path := filepath.Join(allowed, strings.ReplaceAll(name, " ", "-"))
		must.Do(t, os.WriteFile(path, tarOf(t, tt.files...), 0o600))
		img, err := w.Pull(t.Context(), "docker-archive:"+path, nil, nil)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", name, err, tt.want)
		}
		w.layers.Release(img.Layers...)
		if err == nil {
			f, err := w.findArchive(platform, path)
			if must.Do(t, err); f.blobs[0].digest != diffID.String() || f.blobs[0].size != int64(len(layer)) || !f.local {
				t.Errorf("%s: got the layer %+v", name, f.blobs[0])
			}
			f.close()
			w.empties(t, name)
		}
	}
	img := imageOf(t, layerOf(t, types.OCILayer, "a", "1"))
	for name, tt := range map[string]struct {
		damage func(dir string) error
		tag    string
		want   string
	}{
		"an index that is no JSON": {func(dir string) error { return os.WriteFile(filepath.Join(dir, "index.json"), []byte("{"), 0o600) }, ":latest", "its index.json: "},
		"a large index":            {func(dir string) error { return os.Truncate(filepath.Join(dir, "index.json"), maxManifest+1) }, "", "its index.json has more than 4 MiB"},
		"no manifest":              {func(dir string) error { return os.Remove(filepath.Join(dir, "blobs", "sha256", digestOf(t, img)[7:])) }, ":latest", "no such file"},
		"a damaged manifest": {func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "blobs", "sha256", digestOf(t, img)[7:]), []byte("{}"), 0o600)
		}, "", io.ErrUnexpectedEOF.Error()},
	} {
		dir := filepath.Join(allowed, "layout", strings.ReplaceAll(name, " ", "-"))
		must.Do(t, os.MkdirAll(dir, 0o700))
		writeLayout(t, dir, map[string]v1.Image{"latest": img})
		must.Do(t, tt.damage(dir))
		if _, err := w.Pull(t.Context(), "oci:"+dir+tt.tag, nil, nil); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", name, err, tt.want)
		}
	}
	w.dir = allowed
	if open := w.openFiles(t); len(open) > 0 {
		t.Errorf("still open are %q", open)
	}
	w.empties(t, "damaged")
}

// TestDecompress checks that a stream that breaks off is an error, however early, and that short content is not.
func TestDecompress(t *testing.T) {
	t.Parallel()
	broken := errors.New("the connection broke")
	for _, text := range []string{"", "ab", "abcdef"} {
		r, err := decompress(strings.NewReader(text))
		must.Do(t, err)
		if got, err := io.ReadAll(r); err != nil || string(got) != text {
			t.Errorf("got %q and %v, want %q", got, err, text)
		}
		must.Do(t, r.Close())
	}
	if _, err := decompress(&body{Reader: strings.NewReader("ab"), fails: broken}); !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
	if _, err := decompress(strings.NewReader("\x1f\x8bno gzip at all")); err == nil {
		t.Error("got no error of a damaged head")
	}
	sum, err := newVerifier(&body{Reader: strings.NewReader("text"), fails: broken}, v1.Hash{Algorithm: "sha256"}, &pull{Puller: &Puller{options: Options{MaxBytes: 100}}})
	must.Do(t, err)
	if err := sum.finish(); !errors.Is(err, broken) || !errors.Is(sum.failed, broken) {
		t.Errorf("got %v and %v, want %v", err, sum.failed, broken)
	}
	if _, err := newVerifier(nil, v1.Hash{Algorithm: "md5"}, &pull{}); err == nil {
		t.Error("got no error of an unknown digest")
	}
}

// TestGiveRefused checks that a keeper gets no image that is too large or damaged, and that a keeper may stop to read.
func TestGiveRefused(t *testing.T) {
	t.Parallel()
	allowed := t.TempDir()
	w := newWorld(t, func(_ *world, o *Options) { o.Archives, o.MaxBytes = []string{allowed}, 1<<20 })
	large := layerOf(t, types.OCIUncompressedLayer, "a", strings.Repeat("a", 2<<20))
	noGzip := compressed{static.NewLayer([]byte("\x1f\x8bno gzip at all"), types.OCILayer), v1.Hash{Algorithm: "sha256", Hex: strings.Repeat("1", 64)}}
	good := imageOf(t, layerOf(t, types.OCILayer, "a", "1"), layerOf(t, types.OCILayer, "b", "2"))
	writeLayout(t, filepath.Join(allowed, "damaged"), map[string]v1.Image{"latest": good})
	all, err := good.Layers()
	must.Do(t, err)
	digest, err := all[1].Digest()
	must.Do(t, err)
	path := filepath.Join(allowed, "damaged", "blobs", "sha256", digest.Hex)
	text, err := os.ReadFile(path)
	must.Do(t, err)
	text[len(text)-1] ^= 1
	must.Do(t, os.WriteFile(path, text, 0o600))
	enough := errors.New("enough")
	for ref, tt := range map[string]struct {
		stop string // name of the file at which the keeper stops
		want string
	}{
		w.push(t, "large", imageOf(t, large)): {"", "larger than the 1 MiB"}, w.push(t, "no-gzip", imageOf(t, noGzip)): {"", "gzip: invalid header"}, "oci:" + filepath.Join(allowed, "damaged"): {"", "layer 2 of 2 (" + digest.String() + "): its digest is"},
		w.push(t, "first", good): {"0.tar", enough.Error()}, w.push(t, "second", good): {"1.tar", enough.Error()}, w.push(t, "end", good): {"config.json", enough.Error()},
	} {
		k := &stoppingKeeper{at: tt.stop, err: enough}
		_, err := w.Give(t.Context(), ref, nil, k, nil)
		if err == nil || !strings.Contains(err.Error(), tt.want) || errors.Is(err, enough) != (tt.stop != "") {
			t.Errorf("%s: got %v, want %q", ref, err, tt.want)
		}
		if errors.Is(err, errUnread) || k.whole {
			t.Errorf("%s: got %v and a whole archive: %v", ref, err, k.whole)
		}
		if open := w.openFiles(t); len(open) > 0 {
			t.Errorf("%s: still open are %q", ref, open)
		}
		w.left(t)
	}
	w.empties(t, "refused")
}

// stoppingKeeper stops to read an archive at a file.
type stoppingKeeper struct {
	keeper
	at    string
	err   error
	whole bool
}

func (k *stoppingKeeper) Load(_ context.Context, _ string, archive io.Reader) error {
	for r := tar.NewReader(archive); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			k.whole = true
			return nil
		}
		if err != nil {
			return errors.New("exit status 1") // a daemon does not repeat the cause
		}
		if h.Name == k.at {
			return k.err
		}
	}
}

// TestGivenUpWaiting checks that a cancelled call does not wait until another call has ended its work on the same image
// or layer.
func TestGivenUpWaiting(t *testing.T) {
	t.Parallel()
	allowed := t.TempDir()
	w := newWorld(t, func(_ *world, o *Options) { o.Archives = []string{allowed} })
	var all []v1.Layer
	for i := range 13 {
		all = append(all, layerOf(t, types.OCILayer, fmt.Sprint(i), "text"))
	}
	path := filepath.Join(allowed, "many.tar")
	writeArchive(t, path, map[string]v1.Image{"localhost:1/many:latest": imageOf(t, all...)})
	f, err := w.findArchive(platform, path)
	must.Do(t, err)
	f.close()
	gone := errors.New("the caller is gone")
	ref := "docker-archive:" + path
	for name, call := range map[string]func(ctx context.Context) error{
		"give " + f.digest: func(ctx context.Context) error { _, err := w.Give(ctx, ref, nil, &keeper{}, nil); return err },
		f.blobs[0].chain:   func(ctx context.Context) error { _, err := w.Pull(ctx, ref, nil, nil); return err },
		mergedPrefix + f.blobs[12].chain: func(ctx context.Context) error {
			one := &pull{Puller: w.Puller, found: f}
			_, err := one.chain(ctx, make([]string, 13))
			if errors.Is(err, context.Canceled) {
				err = context.Cause(ctx)
			}
			return err
		},
	} {
		release, err := w.locks.lock(t.Context(), name)
		must.Do(t, err)
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(gone)
		if err := call(ctx); !errors.Is(err, gone) {
			t.Errorf("%s: got %v, want %v", name, err, gone)
		}
		release()
	}
	w.empties(t, "given up")
}

// TestManifestOfAnIndex checks that a manifest that the registry no longer has is an error, and that mirrors with and
// without TLS are accepted.
func TestManifestOfAnIndex(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	img := imageOf(t, layerOf(t, types.OCILayer, "a", "1"))
	index := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &platform}})
	text, err := index.RawManifest()
	must.Do(t, err)
	w.answers(func(a http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/v2/") {
			return false
		}
		if !strings.HasSuffix(r.URL.Path, "/manifests/latest") && !strings.HasSuffix(r.URL.Path, "/manifests/"+mustDigest(index)) {
			http.NotFound(a, r)
			return true
		}
		a.Header().Set("Content-Type", string(types.OCIImageIndex))
		a.Header().Set("Docker-Content-Digest", mustDigest(index))
		a.Header().Set("Content-Length", fmt.Sprint(len(text)))
		if r.Method == http.MethodGet {
			_, _ = a.Write(text)
		}
		return true
	})
	if _, err := w.Pull(t.Context(), w.host()+"/index", nil, nil); err == nil || !strings.Contains(err.Error(), "does not have it") {
		t.Errorf("got %v, want that the manifest is missing", err)
	}
	for mirror, want := range map[string]bool{"https://mirror.test/a": true, "http://mirror.test": true, "http://[::1": false, "//mirror.test": false, "https:": false} {
		p, err := Open(Options{Store: w.store, Layers: w.layers, Mirrors: map[string]string{"docker.io": mirror}})
		if (err == nil) != want {
			t.Errorf("the mirror %s: got %v, want it to be accepted: %v", mirror, err, want)
		}
		if err == nil {
			p.Close()
		}
	}
}

func mustDigest(index v1.ImageIndex) string {
	d, err := index.Digest()
	if err != nil {
		return err.Error()
	}
	return d.String()
}

// TestWhoRedirects checks which requests follow a redirect of a host on the internet.
func TestWhoRedirects(t *testing.T) {
	t.Parallel()
	request := func(to string) *http.Request {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, to, http.NoBody)
		must.Do(t, err)
		return r
	}
	r := request("https://9.9.9.9/")
	r.Response = &http.Response{}
	if redirectedByInternet(request("https://9.9.9.9/")) || redirectedByInternet(r) {
		t.Error("a request that follows no redirect follows one of the internet")
	}
	for from, want := range map[string]bool{"https://9.9.9.9/other": false, "https://10.0.0.1/": false, "https://localhost/": false, "https://no-such-host.invalid/": false} {
		r.Response.Request = request(from)
		if got := redirectedByInternet(r); got != want {
			t.Errorf("from %s: got %v, want %v", from, got, want)
		}
	}
}

// TestCancelledTooLate checks that a call succeeds if it is cancelled after its last step. The caller then holds the layers.
func TestCancelledTooLate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	ref := w.push(t, "image", imageOf(t, layerOf(t, types.OCILayer, "a", "1")))
	for what, call := range map[string]func(ctx context.Context, progress func(string)) (Image, error){
		"pull": func(ctx context.Context, progress func(string)) (Image, error) {
			return w.Pull(ctx, ref, nil, progress)
		},
		"give": func(ctx context.Context, progress func(string)) (Image, error) {
			return w.Give(ctx, ref, nil, &keeper{}, progress)
		},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		img, err := call(ctx, func(line string) {
			if strings.HasPrefix(line, ref+" is ") {
				cancel()
			}
		})
		if err != nil || ctx.Err() == nil || len(img.Layers) != map[string]int{"pull": 1, "give": 0}[what] {
			t.Errorf("%s: got %+v and error %v, cancelled: %v", what, img, err, ctx.Err())
		}
		cancel()
		w.layers.Release(img.Layers...)
	}
	w.empties(t, "too late")
}
