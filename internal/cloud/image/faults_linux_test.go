package image

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/e2bctl/e2bctl/internal/cloud/layers"
	"github.com/e2bctl/e2bctl/internal/cloud/store"
	"github.com/e2bctl/e2bctl/internal/cloud/store/storetest"
	"github.com/e2bctl/e2bctl/internal/must"
)

// empties drops everything that is cached, and checks that no layer is left: nobody holds one any longer.
func (w *world) empties(t *testing.T, what string) {
	t.Helper()
	for _, use := range w.Uses() {
		must.Do(t, use.Drop())
	}
	w.store.Wait()
	if all, err := w.store.Records(store.Layers); err != nil || len(all) > 0 || len(w.Uses()) > 0 {
		t.Errorf("%s: got %d layers (%v) and the uses %v left, want nothing", what, len(all), err, w.Uses())
	}
	w.locks.mu.Lock()
	defer w.locks.mu.Unlock()
	if len(w.locks.all) > 0 || len(w.downloads) > 0 {
		t.Errorf("%s: left are %d locks and %d downloads", what, len(w.locks.all), len(w.downloads))
	}
}

// openFiles returns the paths of the open files below the directory of the store.
func (w *world) openFiles(t *testing.T) (open []string) {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	must.Do(t, err)
	for _, name := range names {
		if to, _ := os.Readlink("/proc/self/fd/" + name.Name()); strings.HasPrefix(to, w.dir+"/") { // another test may have closed it
			open = append(open, to)
		}
	}
	return open
}

// TestDiskFails makes the disk fail at each change of a pull, and at the last ones of a pull whose layers are merged.
// The error comes out, unless only the record of the image is lost. Nobody holds a layer afterwards, no file stays
// open, and the next pull succeeds.
func TestDiskFails(t *testing.T) {
	t.Parallel()
	for what, count := range map[string]int{"two layers": 2, "merged": layers.MaxChain + 1} {
		w := newWorld(t, nil)
		var all []v1.Layer
		for i := range count {
			all = append(all, layerOf(t, types.OCILayer, fmt.Sprint(i), "text"))
		}
		ref := w.push(t, "image", imageOf(t, all...))
		pull := func() error {
			img, err := w.Pull(t.Context(), ref, nil, nil)
			w.layers.Release(img.Layers...)
			return err
		}
		passed := 0
		var changes atomic.Int32
		w.store.Before(func(store.Change) error { changes.Add(1); return nil })
		must.Do(t, pull())
		w.store.Wait()
		last := int(changes.Load())
		w.empties(t, what)
		for n := max(1, last-27/count-2); n <= last; n++ {
			fault := storetest.FailNth(w.store, n)
			err := pull()
			storetest.Mend(w.store)
			if err == nil {
				passed++
			} else if !errors.Is(err, storetest.ErrFault) {
				t.Errorf("%s: at %q: got %v", what, fault.Which(), err)
			}
			w.store.Wait()
			if open := w.openFiles(t); len(open) > 0 {
				t.Errorf("%s: at %q: still open are %q", what, fault.Which(), open)
			}
			if err := pull(); err != nil {
				t.Errorf("%s: after %q: %v", what, fault.Which(), err)
			}
			w.empties(t, fmt.Sprintf("%s, after %q", what, fault.Which()))
		}
		if passed != 1 {
			t.Errorf("%s: with %d of %d failures the pull succeeded, want only the record of the image to be missed", what, passed, last)
		}
	}
}

// rooms records the calls of MakeRoom, and fails one of them.
type rooms struct {
	asked []int64
	fails int // number of the call that fails, counted from 1
}

var errNoRoom = errors.New("no room")

func (r *rooms) make(_ context.Context, bytes int64) error {
	if r.asked = append(r.asked, bytes); len(r.asked) == r.fails {
		return errNoRoom
	}
	return nil
}

// TestRoom checks that room is made for the layers that are missing, before and after they are written, and that
// without room no layer is held.
func TestRoom(t *testing.T) {
	t.Parallel()
	for fails, want := range [][]int64{{2048 + 2560, 0}, {2048 + 2560}, {2048 + 2560, 0}} {
		r := &rooms{fails: fails}
		w := newWorld(t, func(_ *world, o *Options) { o.MakeRoom = r.make })
		ref := w.push(t, "image", imageOf(t, layerOf(t, types.OCIUncompressedLayer, "a", "1"), layerOf(t, types.OCIUncompressedLayer, "b", strings.Repeat("2", 600))))
		img, err := w.Pull(t.Context(), ref, nil, nil)
		if errors.Is(err, errNoRoom) != (fails > 0) || (err == nil) != (fails == 0) || !slices.Equal(r.asked, want) {
			t.Errorf("call %d fails: got error %v after %v, want %v", fails, err, r.asked, want)
		}
		w.layers.Release(img.Layers...)
		if fails == 0 {
			r.asked = nil
			img, err := w.Pull(t.Context(), ref, nil, nil)
			if must.Do(t, err); !slices.Equal(r.asked, []int64{0}) {
				t.Errorf("when everything is here: asked for %v", r.asked)
			}
			w.layers.Release(img.Layers...)
		}
		w.empties(t, fmt.Sprintf("call %d fails", fails))
	}
}

// TestLimitOfSizes checks the announced sizes of layers, which may be wrong, at the limit.
func TestLimitOfSizes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		sizes []int64
		here  int64 // size of the layer that is here
		room  int64 // -1: no room is asked for
		want  bool
	}{
		{[]int64{60, 40}, 0, 100, true}, {[]int64{60, 41}, 0, -1, false}, {[]int64{101}, 0, -1, false}, {[]int64{60, 41}, 41, 60, true}, {[]int64{1 << 62, 1 << 62, 1 << 62}, 0, -1, false},
		{[]int64{0}, 1, -1, true}, {nil, 1, -1, true},
	} {
		p := &pull{Puller: &Puller{options: Options{MaxBytes: 100}}, found: &found{}}
		for _, size := range tt.sizes {
			p.blobs = append(p.blobs, blob{size: size})
		}
		room := int64(-1)
		err := p.checkSize(t.Context(), func(l blob) bool { return tt.here > 0 && l.size == tt.here }, func(_ context.Context, bytes int64) error { room = bytes; return nil })
		if (err == nil) != tt.want || room != tt.room {
			t.Errorf("%+v: got %v and room for %d", tt, err, room)
		}
	}
	p := &pull{Puller: &Puller{options: Options{MaxBytes: 100}}, found: &found{}}
	for n, want := range []bool{true, true, false} {
		if err := p.count([]int64{60, 40, 1}[n]); (err == nil) != want {
			t.Errorf("unpacked part %d: got %v, want it to be allowed: %v", n, err, want)
		}
	}
}

// TestCacheRecords checks which records of the cache the next server has, and that it holds no layer of the others.
func TestCacheRecords(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	layer, err := w.layers.Make(func(string) error { return nil })
	must.Do(t, err)
	for key, value := range map[string]string{"good": fmt.Sprintf(`{"Layer":%q,"Depth":2,"Used":"2026-01-02T00:00:00Z"}`, layer), "gone": `{"Layer":"gone"}`, "damaged": `{`, "image-x": `{"Image":{"Digest":"x"}}`} {
		_, err := w.store.Put(store.Images, key, []byte(value), "")
		must.Do(t, err)
	}
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	w.open(t, func(_ *world, o *Options) { o.Logger = logger })
	all, err := w.store.Records(store.Images)
	if err != nil || len(all) != 2 || len(w.Uses()) != 2 || strings.Count(log.String(), "fetched again") != 2 {
		t.Errorf("got %d records and %d entries (%v), want 2, and the log %s", len(all), len(w.Uses()), err, &log)
	}
	used := w.Uses()[0]
	if used.Name != "good" || !used.At.Equal(time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)) || !slices.Equal(used.Layers, []string{layer}) {
		t.Errorf("got %+v, want the layer first, as it was used", used)
	}
	w.layers.Sweep()
	began := time.Now().Round(0)
	if id, found := w.cache.get("good"); id != layer || !found || w.Uses()[0].At.Before(began) {
		t.Errorf("got %q, %v, used at %v", id, found, w.Uses()[0].At)
	}
	if id, found := w.cache.get("none"); id != "" || found || w.cache.has("none") || !w.cache.has("good") {
		t.Errorf("got %q and %v of none", id, found)
	}
	w.layers.Release(layer)
	storetest.FailNth(w.store, 1)
	must.Is(t, used.Drop(), storetest.ErrFault)
	storetest.Mend(w.store)
	if !w.cache.has("good") || len(w.left(t)) != 1 {
		t.Error("what could not be dropped is gone")
	}
	must.Do(t, errors.Join(used.Drop(), used.Drop()))
	w.empties(t, "records")
	must.Do(t, w.store.Close())
	log.Reset()
	w.cache.store = w.store
	openCache(Options{Store: w.store, Layers: w.layers, Logger: logger})
	if !strings.Contains(log.String(), "images that cannot be read") {
		t.Errorf("a closed store: got the log %s", &log)
	}
}

// TestCacheEntries checks that a replaced layer is released, that layers come before those below them, that all
// layers of an image have the same time, and which images are known.
func TestCacheEntries(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	makeLayer := func() string {
		id, err := w.layers.Make(func(string) error { return nil })
		must.Do(t, err)
		return id
	}
	for key, depth := range map[string]int{"b": 1, "a": 1, "c": 2, "d": 0} {
		id := makeLayer()
		must.Do(t, w.cache.put(key, depth, id))
		w.layers.Release(id)
	}
	var order []string
	for _, use := range w.Uses() {
		order = append(order, use.Name)
	}
	if !slices.Equal(order, []string{"c", "a", "b", "d"}) {
		t.Errorf("got the order %q, want the highest layers first", order)
	}
	if err := w.cache.put("e", 0, "gone"); !errors.Is(err, layers.ErrGone) || w.cache.has("e") {
		t.Errorf("a layer that is gone: got %v", err)
	}
	failed := makeLayer()
	storetest.FailNth(w.store, 1)
	must.Is(t, w.cache.put("a", 1, failed), storetest.ErrFault)
	storetest.Mend(w.store)
	w.layers.Release(failed)
	again := makeLayer()
	must.Do(t, w.cache.put("a", 1, again))
	w.layers.Release(again)
	if n := len(w.left(t)); n != 4 {
		t.Errorf("got %d layers, want 4: the replaced one and the failed one are released", n)
	}
	f := &found{asked: "sha256:x", digest: "sha256:y", config: Config{User: "u"}, blobs: []blob{{chain: "a", digest: "1"}, {chain: "c", digest: "2"}, {chain: "none"}}}
	began := time.Now().Round(0)
	w.cache.touch(f)
	if a, c, b := w.cache.entries["a"].Used, w.cache.entries["c"].Used, w.cache.entries["b"].Used; !a.Equal(c) || a.Before(began) || !b.Before(a) {
		t.Errorf("got the times %v, %v and %v of another one", a, c, b)
	}
	w.cache.putImage(f)
	if w.cache.image("sha256:x") != nil {
		t.Error("an image is known without one of its layers")
	}
	must.Do(t, w.cache.drop("image-sha256-x"))
	f.blobs = f.blobs[:2]
	w.cache.putImage(f)
	w.cache.entries["image-sha256-x"].Used = time.Time{}
	w.cache.entries["image-sha256-l"] = &entry{Layer: w.cache.entries["a"].Layer}
	got := w.cache.image("sha256:x")
	if got == nil || w.cache.image("sha256:y") != nil {
		t.Fatal("the image is not known under the digest that was asked for, or it is under another one")
	}
	if got.Digest != "sha256:y" || got.Config.User != "u" || !slices.Equal(got.Blobs, []knownBlob{{"a", "1"}, {"c", "2"}}) {
		t.Errorf("got %+v, want the image under the digest that was asked for", got)
	}
	w.cache.entries["image-sha256-x"].Image.Arch = "other"
	if used := w.cache.entries["image-sha256-x"].Used; used.Before(began) {
		t.Errorf("the image was used at %v, want now", used)
	}
	if w.cache.image("sha256:x") != nil || w.cache.image("sha256:l") != nil {
		t.Error("an image of another machine, or a layer, is a known image")
	}
	delete(w.cache.entries, "image-sha256-l")
	before := len(w.Uses())
	w.cache.putImage(&found{})
	w.cache.putImage(f)
	if len(w.Uses()) != before {
		t.Error("an image without a digest was recorded")
	}
	old := time.Now().Add(-time.Hour)
	for i := range maxImages {
		w.cache.entries[fmt.Sprint("image-", i)] = &entry{Image: &known{}, Used: old.Add(time.Duration(i))}
	}
	f.asked = "sha256:z"
	w.cache.putImage(f)
	for key, want := range map[string]bool{"image-0": false, "image-1": false, "image-2": true, "image-sha256-z": true, "a": true} {
		if got := w.cache.has(key); got != want {
			t.Errorf("%s: got %v, want the newest %d images, and all layers", key, got, maxImages)
		}
	}
	w.empties(t, "entries")
}

// tidyKeeper is a keeper that looks at the files of the server while it reads the end of an archive.
type tidyKeeper struct {
	keeper
	left func() []string
	seen []string
	has  error
}

func (k *tidyKeeper) Has(ctx context.Context, digest string) (bool, error) {
	if k.has != nil {
		return false, k.has
	}
	return k.keeper.Has(ctx, digest)
}

func (k *tidyKeeper) Load(_ context.Context, _ string, archive io.Reader) error {
	for r := tar.NewReader(archive); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if h.Name == "config.json" {
			k.seen = k.left()
		}
	}
}

// TestGiveIsTidy checks that the files of a layer are removed and closed when it is handed over, and which errors
// of the keeper, of the disk and of the caller come out.
func TestGiveIsTidy(t *testing.T) {
	t.Parallel()
	allowed := t.TempDir()
	w := newWorld(t, func(_ *world, o *Options) { o.Archives = []string{allowed} })
	img := imageOf(t, layerOf(t, types.OCILayer, "a", "1"), layerOf(t, types.OCILayerZStd, "b", "2"))
	writeArchive(t, filepath.Join(allowed, "one.tar"), map[string]v1.Image{"localhost:1/one:latest": img})
	left := func() []string {
		files, err := filepath.Glob(filepath.Join(w.dir, "new", "*", "*"))
		must.Do(t, err)
		return append(files, w.openFiles(t)...)
	}
	for _, ref := range []string{w.push(t, "image", img), "docker-archive:" + filepath.Join(allowed, "one.tar")} {
		k := &tidyKeeper{left: left, seen: []string{"not asked"}}
		_, err := w.Give(t.Context(), ref, nil, k, nil)
		must.Do(t, err)
		if len(k.seen) > 0 {
			t.Errorf("%s: after all layers were handed over there are still %q", ref, k.seen)
		}
		broken := errors.New("broken")
		_, err = w.Give(t.Context(), ref, nil, &tidyKeeper{has: broken}, nil)
		must.Is(t, err, broken)
		storetest.FailNth(w.store, 1)
		_, err = w.Give(t.Context(), ref, nil, &keeper{}, nil)
		storetest.Mend(w.store)
		must.Is(t, err, storetest.ErrFault)
	}
	gone := errors.New("the caller is gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	_, err := w.Give(ctx, w.host()+"/image", nil, &keeper{}, nil)
	must.Is(t, err, gone)
	w.left(t)
	w.empties(t, "given")
}

// TestNameLocks checks that a cancelled wait for a lock leaves nothing behind, and that locks of other names are free.
func TestNameLocks(t *testing.T) {
	t.Parallel()
	var locks nameLocks
	release, err := locks.lock(t.Context(), "a")
	must.Do(t, err)
	other, err := locks.lock(t.Context(), "b")
	must.Do(t, err)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := locks.lock(ended, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that the lock is held", err)
	}
	if locks.all["a"].users != 1 {
		t.Errorf("got %d users, want only the holder", locks.all["a"].users)
	}
	release()
	other()
	if len(locks.all) > 0 {
		t.Errorf("%d locks are left, want none", len(locks.all))
	}
}
