package image

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	registrytest "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/clienttest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/layer"
	"github.com/e2bctl/e2bctl/internal/cloud/layers"
	"github.com/e2bctl/e2bctl/internal/cloud/store"
	"github.com/e2bctl/e2bctl/internal/must"
)

func TestMain(m *testing.M) {
	unix.Umask(0) // as in the process that unpacks
	goleak.VerifyTestMain(m)
}

// world contains a store, a puller and a registry.
type world struct {
	*Puller
	layers *layers.Set
	store  *store.Store
	dir    string

	registry *httptest.Server
	mu       sync.Mutex
	requests []string // method and path of each request to the registry
	answer   func(w http.ResponseWriter, r *http.Request) (answered bool)
}

// newWorld returns a world. change may change the options of its puller.
func newWorld(t testing.TB, change func(w *world, o *Options)) *world {
	t.Helper()
	return newWorldIn(t, filepath.Join(t.TempDir(), "state"), change)
}

func newWorldIn(t testing.TB, dir string, change func(w *world, o *Options)) *world {
	t.Helper()
	w := &world{dir: dir, store: store.Temporary(dir)}
	t.Cleanup(func() {
		if err := w.store.Close(); err != nil {
			t.Error(err)
		}
	})
	inner := registrytest.New(registrytest.Logger(log.New(io.Discard, "", 0)))
	w.registry = httptest.NewServer(http.HandlerFunc(func(a http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		w.requests = append(w.requests, r.Method+" "+r.URL.Path)
		answer := w.answer
		w.mu.Unlock()
		if answer == nil || !answer(a, r) {
			inner.ServeHTTP(a, r)
		}
	}))
	t.Cleanup(w.registry.Close)
	w.open(t, change)
	return w
}

func (w *world) open(t testing.TB, change func(w *world, o *Options)) {
	t.Helper()
	w.layers = layers.Open(layers.Options{Store: w.store, Sharing: func() layers.Sharing { return sharing{} }})
	o := Options{Store: w.store, Layers: w.layers, Unpack: unpack, Keychain: keychain{}}
	if change != nil {
		change(w, &o)
	}
	p, err := Open(o)
	must.Do(t, err)
	t.Cleanup(p.Close)
	w.Puller = p
}

// host returns the registry's host, as references name it.
func (w *world) host() string { return strings.TrimPrefix(w.registry.URL, "http://") }

// asked returns the requests to the registry since the last call of asked.
func (w *world) asked() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	asked := w.requests
	w.requests = nil
	return asked
}

// blobs returns the paths of requests that fetched a blob.
func blobs(requests []string) (paths []string) {
	for _, r := range requests {
		if strings.HasPrefix(r, "GET ") && strings.Contains(r, "/blobs/") {
			paths = append(paths, r)
		}
	}
	return paths
}

// answers makes the registry answer some requests differently.
func (w *world) answers(answer func(w http.ResponseWriter, r *http.Request) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answer = answer
}

type keychain map[string]authn.AuthConfig

func (k keychain) Resolve(r authn.Resource) (authn.Authenticator, error) {
	if c, found := k[r.RegistryStr()]; found {
		return authn.FromConfig(c), nil
	}
	return authn.Anonymous, nil
}

// sharing implements layers.Sharing in this process. The layers have the form of the room's layers.
type sharing struct{}

func (sharing) Merge(_ context.Context, dirs []string, to string) error {
	var from []*os.File
	for _, dir := range slices.Backward(dirs) {
		f, err := os.Open(filepath.Join(dir, "root"))
		if err != nil {
			return err
		}
		defer f.Close()
		from = append(from, f)
	}
	if err := os.Mkdir(filepath.Join(to, "root"), 0o700); err != nil {
		return err
	}
	f, err := os.Open(filepath.Join(to, "root"))
	if err != nil {
		return err
	}
	defer f.Close()
	return layer.Merge(f, from, false)
}

func unpack(_ context.Context, below []string, from io.Reader, dir string) error {
	o := layer.TarOptions{IDs: 1}
	for _, b := range slices.Backward(below) {
		f, err := os.Open(filepath.Join(b, "root"))
		if err != nil {
			return err
		}
		defer f.Close()
		o.Below = append(o.Below, f)
	}
	if err := os.Mkdir(filepath.Join(dir, "root"), 0o700); err != nil {
		return err
	}
	f, err := os.Open(filepath.Join(dir, "root"))
	if err != nil {
		return err
	}
	defer f.Close()
	o.To = f
	return layer.Untar(from, o)
}

// tarOf returns a tar archive. files contains names and contents, alternately.
func tarOf(t testing.TB, files ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := 0; i < len(files); i += 2 {
		must.Do(t, w.WriteHeader(&tar.Header{Name: files[i], Mode: 0o644, Size: int64(len(files[i+1])), ModTime: time.Unix(1e9, 0)}))
		_, err := io.WriteString(w, files[i+1])
		must.Do(t, err)
	}
	must.Do(t, w.Close())
	return b.Bytes()
}

// compressed is a layer with content in any compression, or in none.
type compressed struct {
	v1.Layer
	diffID v1.Hash
}

func (c compressed) DiffID() (v1.Hash, error) { return c.diffID, nil }

func layerOf(t testing.TB, kind types.MediaType, files ...string) v1.Layer {
	t.Helper()
	text := tarOf(t, files...)
	diffID, _, err := v1.SHA256(bytes.NewReader(text))
	must.Do(t, err)
	var b bytes.Buffer
	var w io.WriteCloser
	switch kind {
	case types.OCILayerZStd:
		w, err = zstd.NewWriter(&b)
		must.Do(t, err)
	case types.OCILayer, types.DockerLayer:
		w = gzip.NewWriter(&b)
	default:
		return compressed{static.NewLayer(text, kind), diffID}
	}
	_, err = w.Write(text)
	err = errors.Join(err, w.Close())
	must.Do(t, err)
	return compressed{static.NewLayer(b.Bytes(), kind), diffID}
}

// imageOf returns an image with these layers for this machine.
func imageOf(t testing.TB, layers ...v1.Layer) v1.Image {
	t.Helper()
	img, err := mutate.AppendLayers(empty.Image, layers...)
	must.Do(t, err)
	config, err := img.ConfigFile()
	must.Do(t, err)
	config = config.DeepCopy()
	config.OS, config.Architecture = platform.OS, platform.Architecture
	config.Config = v1.Config{
		Env: []string{"PATH=/bin", "A=b=c"}, User: "33:44", WorkingDir: "/srv", Entrypoint: []string{"/init", "-x"}, Cmd: []string{"run"},
		Shell: []string{"/bin/ash", "-c"}, ExposedPorts: map[string]struct{}{"80/tcp": {}, "53/udp": {}}, Labels: map[string]string{"a": "b"},
	}
	img, err = mutate.ConfigFile(img, config)
	must.Do(t, err)
	return img
}

// push adds an image to the registry.
func (w *world) push(t testing.TB, path string, img v1.Image) (reference string) {
	t.Helper()
	reference = w.host() + "/" + path
	ref, err := name.ParseReference(reference)
	if err == nil {
		err = remote.Write(ref, img, remote.WithTransport(clienttest.New(t).Transport))
	}
	must.Do(t, err)
	w.asked()
	return reference
}

func digestOf(t testing.TB, img v1.Image) string {
	t.Helper()
	d, err := img.Digest()
	must.Do(t, err)
	return d.String()
}

// files returns the files of layers, as a sandbox sees them.
func (w *world) files(t testing.TB, ids []string) (all []string) {
	t.Helper()
	dirs, err := w.layers.Hold(ids...)
	must.Do(t, err)
	defer w.layers.Release(ids...)
	to := filepath.Join(w.dir, "seen-"+rand.Text()) // on the same file system, for links
	err = os.Mkdir(to, 0o700)
	if err == nil {
		err = sharing{}.Merge(t.Context(), dirs, to)
	}
	must.Do(t, err)
	defer os.RemoveAll(to)
	root := filepath.Join(to, "root")
	err = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(name)
		all = append(all, strings.TrimPrefix(name, root+"/")+"="+string(text))
		return err
	})
	must.Do(t, err)
	return all
}

// left returns the ids of the stored layers. It fails the test if anything else is left.
func (w *world) left(t testing.TB) (ids []string) {
	t.Helper()
	w.store.Wait()
	all, err := w.store.Records(store.Layers)
	must.Do(t, err)
	for _, r := range all {
		ids = append(ids, r.ID)
	}
	for _, dir := range []string{"new", "trash"} {
		if found, _ := filepath.Glob(filepath.Join(w.dir, dir, "*")); len(found) > 0 {
			t.Errorf("got %q left, want nothing", found)
		}
	}
	return ids
}

// TestPull checks that sandboxes have the files of a registry's image, with any compression, and
// that the image is fetched only once, for any number of callers and images.
func TestPull(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	base := layerOf(t, types.DockerLayer, "etc/a", "1", "etc/b", "2", "bin/x", strings.Repeat("x", 1<<20))
	img := imageOf(t, base, layerOf(t, types.OCILayerZStd, "etc/.wh.a", "", "etc/c", "3"), layerOf(t, types.OCIUncompressedLayer, "etc/b", "4"))
	ref := w.push(t, "some/image:tag", img)
	var lines []string
	got, err := w.Pull(t.Context(), ref, nil, func(line string) { lines = append(lines, line) })
	must.Do(t, err)
	want := Image{Reference: ref, Digest: digestOf(t, img), Layers: got.Layers, Config: Config{
		Env: []string{"PATH=/bin", "A=b=c"}, User: "33:44", Workdir: "/srv", Entrypoint: []string{"/init", "-x"}, Cmd: []string{"run"},
		Shell: []string{"/bin/ash", "-c"}, ExposedPorts: []string{"53/udp", "80/tcp"}, Labels: map[string]string{"a": "b"},
	}}
	if diff := cmp.Diff(want, got); diff != "" || len(got.Layers) != 3 {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"bin/x=" + strings.Repeat("x", 1<<20), "etc/b=4", "etc/c=3"}, w.files(t, got.Layers)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if last := lines[len(lines)-1]; last != ref+" is "+want.Digest || len(lines) != 7 {
		t.Errorf("got progress %q", lines)
	}
	if n := len(blobs(w.asked())); n != 4 {
		t.Errorf("got %d blobs fetched, want 4", n)
	}
	again, err := w.Pull(t.Context(), ref, nil, nil)
	must.Do(t, err)
	if diff := cmp.Diff(got, again); diff != "" {
		t.Errorf("the second time (-first +second):\n%s", diff)
	}
	if asked := w.asked(); slices.ContainsFunc(asked, func(r string) bool { return r != "GET /v2/" && !strings.HasPrefix(r, "HEAD ") }) {
		t.Errorf("the second time %q was asked, want only whether it is the same", asked)
	}
	other := imageOf(t, base, layerOf(t, types.DockerLayer, "other", "5"))
	moved := w.push(t, "some/image:tag", other)
	next, err := w.Pull(t.Context(), moved, nil, nil)
	must.Do(t, err)
	if next.Digest != digestOf(t, other) || next.Layers[0] != got.Layers[0] || len(w.left(t)) != 4 {
		t.Errorf("the tag moved: got %+v, want %s above the layer %s", next, digestOf(t, other), got.Layers[0])
	}
	byDigest, err := w.Pull(t.Context(), w.host()+"/some/image@"+got.Digest, nil, nil)
	if err != nil || !slices.Equal(byDigest.Layers, got.Layers) {
		t.Errorf("got %+v, %v, want the first image", byDigest, err)
	}
	for _, i := range []Image{got, again, next, byDigest} {
		w.layers.Release(i.Layers...)
	}
	if n := len(w.left(t)); n != 4 {
		t.Errorf("got %d layers, want those that are cached", n)
	}
	for _, use := range w.Uses() {
		if err := use.Drop(); err != nil {
			t.Error(err)
		}
	}
	if ids := w.left(t); len(ids) > 0 || len(w.Uses()) > 0 {
		t.Errorf("got %q left, want nothing", ids)
	}
}

// TestConcurrent checks that callers that need the same layer at the same time share one download.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	var all []v1.Layer
	for i := range 6 {
		all = append(all, layerOf(t, types.OCILayer, fmt.Sprint(i), "text"))
	}
	refs := []string{w.push(t, "one", imageOf(t, all...)), w.push(t, "two", imageOf(t, all[:3]...))}
	var working sync.WaitGroup
	for i := range 12 {
		working.Go(func() {
			img, err := w.Pull(t.Context(), refs[i%2], nil, nil)
			if err != nil {
				t.Error(err)
				return
			}
			if got, want := len(w.files(t, img.Layers)), 6-i%2*3; got != want {
				t.Errorf("got %d files, want %d", got, want)
			}
			w.layers.Release(img.Layers...)
		})
	}
	working.Wait()
	layers := map[string]bool{}
	for _, l := range all {
		d, _ := l.Digest()
		layers["/"+d.String()] = true
	}
	fetched := slices.DeleteFunc(blobs(w.asked()), func(r string) bool { return !layers[r[strings.LastIndex(r, "/"):]] })
	if len(fetched) != 6 || len(w.left(t)) != 6 {
		t.Errorf("got %d layers fetched and %d kept, want 6 of each: %q", len(fetched), len(w.left(t)), fetched)
	}
}

// TestManyLayers checks that an image with more layers than a sandbox can have gets a single merged
// layer, which is stored.
func TestManyLayers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	var all []v1.Layer
	for i := range layers.MaxChain + 3 {
		all = append(all, layerOf(t, types.OCILayer, fmt.Sprint(i), "text", fmt.Sprintf(".wh.%d", i-1), ""))
	}
	ref := w.push(t, "many", imageOf(t, all...))
	first, err := w.Pull(t.Context(), ref, nil, nil)
	must.Do(t, err)
	second, err := w.Pull(t.Context(), ref, nil, nil)
	must.Do(t, err)
	if len(first.Layers) != 1 || !slices.Equal(first.Layers, second.Layers) {
		t.Errorf("got %q, then %q, want one layer twice", first.Layers, second.Layers)
	}
	if diff := cmp.Diff([]string{fmt.Sprintf("%d=text", layers.MaxChain+2)}, w.files(t, first.Layers)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestReopened checks that a store that is opened again still has the layers.
func TestReopened(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	dir := t.TempDir()
	for n := range 2 {
		durable, err := store.Open(t.Context(), dir)
		must.Do(t, err)
		w.store, w.dir = durable, dir
		w.open(t, nil)
		w.layers.Sweep()
		ref := w.host() + "/image"
		if n == 0 {
			ref = w.push(t, "image", imageOf(t, layerOf(t, types.OCILayer, "a", "1")))
		}
		img, err := w.Pull(t.Context(), ref, nil, nil)
		must.Do(t, err)
		if got := w.files(t, img.Layers); !slices.Equal(got, []string{"a=1"}) {
			t.Errorf("got %q", got)
		}
		if got := len(blobs(w.asked())); got != 2-2*n {
			t.Errorf("start %d: got %d blobs fetched, want %d", n, got, 2-2*n)
		}
		if err := durable.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestDamaged checks that bytes with a wrong digest are not used, and that nothing of them is left,
// even if only the last byte of the last layer is wrong.
func TestDamaged(t *testing.T) {
	t.Parallel()
	base := layerOf(t, types.OCILayer, "a", strings.Repeat("a", 100_000))
	plain := layerOf(t, types.OCIUncompressedLayer, "b", strings.Repeat("b", 100_000))
	last, err := plain.Digest()
	must.Do(t, err)
	text := tarOf(t, "b", strings.Repeat("b", 100_000))
	changed := bytes.Clone(text)
	changed[len(changed)-1] ^= 1 // in the end of a tar, which is never read
	lying := compressed{plain, v1.Hash{Algorithm: "sha256", Hex: strings.Repeat("0", 64)}}
	for name, tt := range map[string]struct {
		image v1.Image
		body  []byte // content of the last layer; nil: the right content
		want  string
	}{
		"the same size, other bytes":   {imageOf(t, base, plain), changed, "error verifying sha256 checksum"},
		"cut off":                      {imageOf(t, base, plain), text[:50_000], "error verifying sha256 checksum"},
		"longer":                       {imageOf(t, base, plain), append(bytes.Clone(text), 0), "longer than it was said to be"},
		"missing":                      {imageOf(t, base, plain), []byte{}, "does not have it"},
		"a configuration that lies":    {imageOf(t, base, lying), nil, "its digest is " + last.String()},
		"no tar":                       {imageOf(t, base, compressed{static.NewLayer([]byte("text"), types.OCIUncompressedLayer), last}), nil, "layer 2 of 2"},
		"to be fetched elsewhere":      {imageOf(t, base, layerOf(t, types.OCIRestrictedLayer, "a", "1")), nil, "not supported"},
		"no layer":                     {imageOf(t, base, layerOf(t, types.MediaType("text/plain"), "a", "1")), nil, "not supported"},
		"no layers":                    {imageOf(t), nil, "no files"},
		"more layers than supported":   {imageOf(t, slices.Repeat([]v1.Layer{base}, maxLayers+1)...), nil, "more than 127"},
		"no configuration of an image": {mutate.ConfigMediaType(imageOf(t, base), "text/plain"), nil, "something else than a container image"},
	} {
		w := newWorld(t, nil)
		ref := w.push(t, "image", tt.image)
		w.answers(func(a http.ResponseWriter, r *http.Request) bool {
			if tt.body == nil || !strings.HasSuffix(r.URL.Path, last.String()) {
				return false
			}
			if len(tt.body) == 0 {
				http.NotFound(a, r)
			} else {
				_, _ = a.Write(tt.body)
			}
			return true
		})
		_, err := w.Pull(t.Context(), ref, nil, nil)
		if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), ref) {
			t.Errorf("%s: got %v, want %s", name, err, tt.want)
		}
		if ids := w.left(t); len(ids) > 1 {
			t.Errorf("%s: got %d layers left, want at most the first, which is whole", name, len(ids))
		}
	}
}

// TestTooLarge checks that neither the announced size of an image nor its unpacked size may exceed
// the limit. A program that unpacks reports only that it failed.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(_ *world, o *Options) {
		o.MaxBytes = 1 << 20
		o.Unpack = func(ctx context.Context, below []string, tar io.Reader, dir string) error {
			if unpack(ctx, below, tar, dir) != nil {
				return errors.New("exit status 1")
			}
			return nil
		}
	})
	for name, l := range map[string]v1.Layer{
		"as it is fetched": layerOf(t, types.OCIUncompressedLayer, "a", strings.Repeat("a", 2<<20)),
		"unpacked":         layerOf(t, types.OCILayer, "a", strings.Repeat("a", 2<<20)),
	} {
		_, err := w.Pull(t.Context(), w.push(t, "image", imageOf(t, l)), nil, nil)
		if err == nil || !strings.Contains(err.Error(), "larger than the 1 MiB") {
			t.Errorf("%s: got %v, want that it is too large", name, err)
		}
	}
	if ids := w.left(t); len(ids) > 0 {
		t.Errorf("got %d layers left, want none", len(ids))
	}
}

// TestStalled checks that a pull from a registry that stalls ends when its caller cancels it.
func TestStalled(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	ref := w.push(t, "image", imageOf(t, layerOf(t, types.OCIUncompressedLayer, "a", strings.Repeat("a", 1<<20))))
	for _, stalled := range []struct{ method, part string }{{"HEAD", "/manifests/"}, {"GET", "/manifests/"}, {"GET", "/blobs/"}} {
		ctx, cancel := context.WithCancelCause(t.Context())
		stop := errors.New("stop")
		w.answers(func(a http.ResponseWriter, r *http.Request) bool {
			if r.Method != stalled.method || !strings.Contains(r.URL.Path, stalled.part) {
				return false
			}
			if stalled.method == "GET" { // to HEAD this would be a whole answer, which another request could follow
				a.Header().Set("Content-Length", "1050112")
				a.Header().Set("Content-Type", string(types.OCIManifestSchema1))
				a.WriteHeader(http.StatusOK)
				_ = http.NewResponseController(a).Flush()
			}
			cancel(stop)
			<-r.Context().Done()
			return true
		})
		if _, err := w.Pull(ctx, ref, nil, nil); !errors.Is(err, stop) {
			t.Errorf("%s %s: got %v, want %v", stalled.method, stalled.part, err, stop)
		}
	}
	if ids := w.left(t); len(ids) > 0 {
		t.Errorf("got %d layers left, want none", len(ids))
	}
}

// TestCredentials checks that private registries receive the login of the keychain or of the call,
// and that hosts to which they redirect do not.
func TestCredentials(t *testing.T) {
	t.Parallel()
	var elsewhere []string
	var mu sync.Mutex
	w := newWorld(t, nil)
	ref := w.push(t, "image", imageOf(t, layerOf(t, types.OCILayer, "a", "1")))
	other := httptest.NewServer(http.HandlerFunc(func(a http.ResponseWriter, r *http.Request) {
		mu.Lock()
		elsewhere = append(elsewhere, r.Header.Get("Authorization"))
		mu.Unlock()
		r.URL.Path = strings.TrimPrefix(r.URL.Path, "/elsewhere")
		r.SetBasicAuth("somebody", "secret")
		w.registry.Config.Handler.ServeHTTP(a, r)
	}))
	t.Cleanup(other.Close)
	u, err := url.Parse(other.URL)
	must.Do(t, err)
	w.answers(func(a http.ResponseWriter, r *http.Request) bool {
		user, password, _ := r.BasicAuth()
		if user != "somebody" || password != "secret" {
			a.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			http.Error(a, "{}", http.StatusUnauthorized)
			return true
		}
		if r.Host == w.host() && strings.Contains(r.URL.Path, "/blobs/") {
			http.Redirect(a, r, "http://localhost:"+u.Port()+"/elsewhere"+r.URL.Path, http.StatusTemporaryRedirect)
			return true
		}
		return false
	})
	for name, tt := range map[string]struct {
		keychain keychain
		auth     *Auth
		fails    bool
	}{
		"none":            {nil, nil, true},
		"of another":      {keychain{"localhost:1": {Username: "somebody", Password: "secret"}}, nil, true},
		"wrong":           {keychain{w.host(): {Username: "somebody", Password: "secret"}}, &Auth{"somebody", "wrong"}, true},
		"of the keychain": {keychain{w.host(): {Username: "somebody", Password: "secret"}}, nil, false},
		"of the call":     {nil, &Auth{"somebody", "secret"}, false},
	} {
		w.open(t, func(_ *world, o *Options) { o.Keychain = tt.keychain })
		_, err := w.Pull(t.Context(), ref, tt.auth, nil)
		if tt.fails && (err == nil || !strings.Contains(err.Error(), "docker login "+w.host())) {
			t.Errorf("%s: got %v, want how to log in", name, err)
		}
		if !tt.fails && err != nil {
			t.Errorf("%s: got %v", name, err)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error %v has the password", name, err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if len(elsewhere) == 0 || strings.Join(elsewhere, "") != "" {
		t.Errorf("elsewhere got the credentials %q, want no such header", elsewhere)
	}
}

// TestMirrors checks that an image is looked up only in the mirror of its registry, below the
// mirror's path.
func TestMirrors(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world, o *Options) {
		o.Mirrors = map[string]string{"docker.io": w.registry.URL + "/hub/", "localhost:1": w.registry.URL}
	})
	w.push(t, "hub/library/python:3.10", imageOf(t, layerOf(t, types.OCILayer, "a", "python")))
	w.push(t, "some/image", imageOf(t, layerOf(t, types.OCILayer, "a", "other")))
	for ref, want := range map[string]string{"python:3.10": "python", "docker.io/library/python:3.10": "python", "localhost:1/some/image": "other"} {
		img, err := w.Pull(t.Context(), ref, nil, nil)
		if err != nil || !slices.Equal(w.files(t, img.Layers), []string{"a=" + want}) {
			t.Errorf("%s: got %+v, %v, want %s", ref, img, err, want)
		}
	}
	for ref, want := range map[string]string{"python:4": "does not have it", "UPPER": "could not parse", "": "could not parse", "a@sha256:1": "could not parse", "localhost:2/a": "cannot be reached; e2bctl local up --registry-mirror names another place"} {
		if _, err := w.Pull(t.Context(), ref, nil, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", ref, err, want)
		}
	}
	for _, mirrors := range []map[string]string{{"docker.io": "localhost:5000"}, {"docker.io": "ftp://localhost"}, {"docker.io": "http://a:b@localhost"}, {"a b": "http://localhost"}} {
		if _, err := Open(Options{Store: w.store, Layers: w.layers, Mirrors: mirrors}); err == nil {
			t.Errorf("%q: got no error", mirrors)
		}
	}
}

// TestInsecure checks that only the registries in Insecure and this machine may be used without
// TLS, even after a redirect. Certificates are verified, except those of registries in Insecure.
func TestInsecure(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(_ *world, o *Options) { o.Insecure = []string{"10.1.2.3:5000"} })
	for _, u := range []string{"http://10.1.2.3/v2/", "http://192.168.1.1:5000/v2/", "http://registry.local/v2/", "http://10.1.2.4:5000/v2/"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, u, nil)
		must.Do(t, err)
		if a, err := w.remote.transport.RoundTrip(r); err == nil || !strings.Contains(err.Error(), "no HTTPS") {
			t.Errorf("%s: got %v, %v, want that it is not allowed", u, a, err)
		}
	}
	secure := httptest.NewUnstartedServer(w.registry.Config.Handler)
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	t.Cleanup(secure.Close)
	w.push(t, "image", imageOf(t, layerOf(t, types.OCILayer, "a", "1")))
	host := strings.TrimPrefix(secure.URL, "https://")
	if _, err := w.Pull(t.Context(), host+"/image", nil, nil); err == nil {
		t.Error("got no error from one with a certificate of nobody")
	}
	w.open(t, func(_ *world, o *Options) { o.Insecure = []string{host} })
	if _, err := w.Pull(t.Context(), host+"/image", nil, nil); err != nil {
		t.Errorf("named: got %v", err)
	}
}

// TestLayersOfSandboxes checks how many layers the sandboxes of an image have, that all layers of the image
// are used at the same time, and that nobody holds them afterwards.
func TestLayersOfSandboxes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	var all []v1.Layer
	for i := range layers.MaxChain + 1 {
		all = append(all, layerOf(t, types.OCILayer, fmt.Sprint(i), "text"))
	}
	for n, want := range map[int]int{layers.MaxChain: layers.MaxChain, layers.MaxChain + 1: 1} {
		ref := w.push(t, fmt.Sprint("image", n), imageOf(t, all[:n]...))
		for range 2 { // from the registry, and from the cache
			before := time.Now().Round(0)
			img, err := w.Pull(t.Context(), ref, nil, nil)
			must.Do(t, err)
			if len(img.Layers) != want {
				t.Errorf("an image of %d layers: got %d, want %d", n, len(img.Layers), want)
			}
			times := map[time.Time]bool{}
			for _, use := range w.Uses() {
				if single := len(use.Layers) > 0 && !strings.HasPrefix(use.Name, mergedPrefix); single && !use.At.Before(before) {
					times[use.At] = true
				}
			}
			if len(times) != 1 {
				t.Errorf("an image of %d layers: they are used at %v, want one time", n, times)
			}
			w.layers.Release(img.Layers...)
		}
	}
	w.empties(t, "an image of many layers")
}
