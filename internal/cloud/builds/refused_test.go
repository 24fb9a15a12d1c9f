package builds

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/image"
	"github.com/e2bctl/e2bctl/internal/cloud/layers"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle/lifecycletest"
	"github.com/e2bctl/e2bctl/internal/cloud/templates"
	"github.com/e2bctl/e2bctl/internal/must"
)

// withTarget starts a builder whose engines all have one target.
func withTarget(t *testing.T, of func(o *Options) Target) *server {
	t.Helper()
	w := newWorld()
	w.sharing = lifecycletest.Sharing
	return w.serve(t, t.TempDir(), func(o *Options) {
		o.Engine = engine.Room
		target := of(o)
		o.Target = func(context.Context, engine.Name) (Target, error) { return target, nil }
	})
}

// TestImageRefused checks the error for an image that the sandboxes of an engine cannot begin with: it
// has the reason, and the name of a template whose engine can.
func TestImageRefused(t *testing.T) {
	t.Parallel()
	for asked, other := range map[engine.Name]string{"": "base-docker", engine.Room: "base-docker", engine.Docker: "base-room", engine.Wasm: "base-docker"} {
		for _, target := range []Target{{NoImages: "there is no way"}, {Refusal: "there is no way"}, {NoImages: "there is no way", Refusal: "another"}} {
			s := withTarget(t, func(*Options) Target { return target })
			_, err := s.FromImage(t.Context(), asked, " python:3 ")
			got, ok := errors.AsType[*NoImagesError](err)
			want := NoImagesError{Image: "python:3", Engine: asked, Why: "there is no way"}
			if asked == "" {
				want.Engine = engine.Room
			}
			if !ok || *got != want || !errors.Is(err, errors.ErrUnsupported) || errors.Is(err, io.EOF) {
				t.Errorf("%q: got %v, want %+v", asked, err, want)
			}
			if text := fmt.Sprint(err); !strings.HasSuffix(text, other+", too") || !strings.Contains(text, "'python:3'") || !strings.Contains(text, "the engine "+string(want.Engine)) || !strings.Contains(text, want.Why) {
				t.Errorf("%q: got %q, want the image, the engine, the reason and %s", asked, text, other)
			}
		}
	}
}

// TestFetchRefused checks what becomes of the error of a fetch for sandboxes.
func TestFetchRefused(t *testing.T) {
	t.Parallel()
	errNone := errors.New("there is none")
	for what, tt := range map[string]struct {
		fails  error
		env    int // bytes of a variable of the image
		status int // of the FetchError; -1: the error is none
	}{
		"not supported":  {fmt.Errorf("of this machine: %w", errors.ErrUnsupported), 0, -1},
		"refused":        {&transport.Error{StatusCode: http.StatusForbidden}, 0, http.StatusForbidden},
		"of no registry": {errNone, 0, 0},
		"too large":      {nil, maxEnvs, http.StatusBadRequest},
	} {
		images := &fakeImages{all: map[string]image.Image{"x": {Config: image.Config{Env: []string{"A=" + strings.Repeat("x", tt.env)}}}}, fails: tt.fails}
		s := withTarget(t, func(o *Options) Target { images.layers = o.Layers; return Target{Images: images} })
		content, err := s.FromImage(t.Context(), "", "x")
		got, fetch := errors.AsType[*FetchError](err)
		if fetch != (tt.status >= 0) || fetch && got.Status != tt.status {
			t.Errorf("%s: got error %v, want the status %d", what, err, tt.status)
		}
		if tt.fails != nil && !errors.Is(err, tt.fails) || len(content.Layers) > 0 {
			t.Errorf("%s: got %+v and error %v, want %v", what, content, err, tt.fails)
		}
		if err == nil || s.options.Cache.count() != 0 || len(s.fetches) != 0 {
			t.Errorf("%s: got error %v, %d kept images and %d fetches, want an error and none", what, err, s.options.Cache.count(), len(s.fetches))
		}
	}
}

// TestUnanswered checks which errors of a fetch mean that the registry did not answer.
func TestUnanswered(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]bool{
		&net.OpError{Op: "dial", Err: errBroken}: true, io.ErrUnexpectedEOF: true, io.EOF: false, errBroken: false,
		&transport.Error{StatusCode: http.StatusInternalServerError}: true, &transport.Error{StatusCode: http.StatusInternalServerError - 1}: false,
		&transport.Error{StatusCode: http.StatusTooManyRequests}: true, &transport.Error{StatusCode: http.StatusRequestTimeout}: true,
		&transport.Error{StatusCode: http.StatusNotFound}: false,
	} {
		if got := unanswered(fmt.Errorf("fetching: %w", err)); got != want {
			t.Errorf("%#v: got %v, want %v", err, got, want)
		}
	}
}

// TestCopyRefused checks the messages for a COPY that has nothing to copy from.
func TestCopyRefused(t *testing.T) {
	t.Parallel()
	s := newWorld().serve(t, t.TempDir())
	hash := strings.Repeat("1", 64)
	must.Do(t, s.Uploads().Add(hash, strings.NewReader("x"), 1))
	s.Uploads().entries[hash].dir = "\x00" // cannot be opened
	for want, step := range map[string]Step{
		"COPY has no filesHash": {},
		"COPY --from=none a: there is no stage of that name before":                         {FromStage: "none"},
		"COPY a: its files were not uploaded, or were removed to make room: build it again": {FilesHash: strings.Repeat("2", 64)},
		"open " + filepath.Join("\x00", archiveName) + ": " + syscall.EINVAL.Error():        {FilesHash: hash},
	} {
		step.Type, step.Args = "COPY", []string{"a", "b"}
		id := s.request(t, "job")
		must.Do(t, s.Start(id.template, id.build, Spec{FromImage: "e2bdev/base", Steps: []Step{step}}))
		if status, _ := s.end(t, id); status.Failure == nil || status.Failure.Step != "1" || status.Failure.Message != want {
			t.Errorf("got %s %+v, want %q", status.Status, status.Failure, want)
		}
	}
}

// TestCheckImageFails checks that the error of an engine is the error of [Builder.CheckImage], and that the
// error for an image has the engine's reason.
func TestCheckImageFails(t *testing.T) {
	t.Parallel()
	s := newWorld().serve(t, t.TempDir(), func(o *Options) {
		o.Engine = engine.Room
		o.Target = func(_ context.Context, name engine.Name) (Target, error) {
			return map[engine.Name]Target{engine.Docker: {}, engine.Room: {NoImages: "no daemon"}}[name], map[engine.Name]error{engine.Wasm: errBroken}[name]
		}
	})
	const refused = "not supported by this local cloud: the image 'python': its engine has none%s, only e2bdev/base and e2bdev/code-interpreter are, which are its built-in templates"
	for name, want := range map[engine.Name]string{"": fmt.Sprintf(refused, " (no daemon)"), engine.Docker: fmt.Sprintf(refused, ""), engine.Wasm: errBroken.Error()} {
		err := s.CheckImage(t.Context(), templates.Build{Content: templates.Content{Engine: name}}, "python")
		if err == nil || err.Error() != want {
			t.Errorf("%q: got %v, want %q", name, err, want)
		}
	}
}

// TestEnginesWithTheirOwnImages checks engines that store images themselves: one that fetches the image
// of each sandbox, and one that may have lost an image since it was fetched.
func TestEnginesWithTheirOwnImages(t *testing.T) {
	t.Parallel()
	s := withTarget(t, func(*Options) Target { return Target{ByReference: true} })
	content, err := s.FromImage(t.Context(), "", " python:3\n")
	want := templates.Content{Engine: engine.Room, Image: &engine.Image{Reference: "python:3"}}
	if diff := cmp.Diff(want, content); err != nil || diff != "" {
		t.Errorf("by reference: got error %v (-want +got):\n%s", err, diff)
	}
	has, fails := true, error(nil)
	images := &fakeImages{all: map[string]image.Image{"python:3": {Digest: "sha256:1"}}}
	s = withTarget(t, func(o *Options) Target {
		images.layers = o.Layers
		return Target{Images: images, Has: func(_ context.Context, digest string) (bool, error) {
			if digest != "sha256:1" {
				t.Errorf("asked for the digest %q", digest)
			}
			return has, fails
		}}
	})
	from := func(pulls int, ok bool) {
		t.Helper()
		images.logins = nil
		content, err := s.FromImage(t.Context(), "", "python:3")
		if (err == nil) != ok || len(images.logins) != pulls {
			t.Errorf("got error %v and %d fetches, want none: %v, and %d", err, len(images.logins), ok, pulls)
		}
		s.Release(content)
	}
	from(1, true)
	from(0, true)
	has = false
	from(1, false) // it is lost again at once
	has, fails = true, errors.New("no daemon")
	from(1, false)
	fails = nil
	from(0, true)
}

// TestFetchAfterTheEnd checks that Close cancels fetches and waits for them, and that none begins
// afterwards.
func TestFetchAfterTheEnd(t *testing.T) {
	t.Parallel()
	s, images := newWorld().withImages(t, map[string]image.Image{"python:3": {Digest: "sha256:1"}})
	images.stop = make(chan struct{}) // stays open
	gone, leave := context.WithCancel(t.Context())
	leave()
	_, err := s.FromImage(gone, "", "python:3")
	must.Is(t, err, context.Canceled)
	fetch := s.fetches[key("sandbox", "image", "python:3", "", "")]
	s.Close()
	if fetch == nil || !errors.Is(fetch.err, ErrClosed) || len(s.fetches) != 0 {
		t.Errorf("got the fetch %+v and %d left, want that it ended with %v", fetch, len(s.fetches), ErrClosed)
	}
	_, err = s.FromImage(t.Context(), "", "python:3")
	must.Is(t, err, ErrClosed)
}

// TestScratch checks that a build from the empty image has one layer, unpacked from an empty archive,
// and that its failure is that of the build.
func TestScratch(t *testing.T) {
	t.Parallel()
	broken := error(nil)
	s := withTarget(t, func(*Options) Target {
		return Target{Images: &fakeImages{}, Unpack: func(_ context.Context, below []string, archive io.Reader, dir string) error {
			if _, err := tar.NewReader(archive).Next(); !errors.Is(err, io.EOF) || len(below) > 0 {
				t.Errorf("got an archive with %v above %q, want an empty one above nothing", err, below)
			}
			return errors.Join(broken, os.WriteFile(filepath.Join(dir, "files"), nil, 0o600))
		}}
	})
	build, log := s.built(t, "job", Spec{FromImage: image.Scratch})
	if len(build.Layers) != 1 || build.Image == nil || build.Image.Reference != image.Scratch || !strings.Contains(log, "[base] FROM scratch") {
		t.Errorf("got %+v, want one layer of scratch:\n%s", build.Content, log)
	}
	broken = errors.New("the disk is broken")
	id := s.request(t, "next")
	must.Do(t, s.Start(id.template, id.build, Spec{FromImage: image.Scratch}))
	if status, _ := s.end(t, id); status.Failure == nil || status.Failure.Step != stepBase || status.Failure.Message != broken.Error() {
		t.Errorf("got %s %+v, want %v", status.Status, status.Failure, broken)
	}
}

// TestBaseFails checks that a build fails if the contents of its built-in template cannot be named.
func TestBaseFails(t *testing.T) {
	t.Parallel()
	broken := errors.New("the base is broken")
	s := withTarget(t, func(*Options) Target {
		return Target{Base: func(context.Context) (string, error) { return "", broken }}
	})
	id := s.request(t, "job")
	s.begin(t, id, "print")
	if status, _ := s.end(t, id); status.Failure == nil || status.Failure.Step != stepBase || status.Failure.Message != broken.Error() {
		t.Errorf("got %s %+v, want %v", status.Status, status.Failure, broken)
	}
}

// TestImagesWithinTheBound checks that images are dropped only if they take one byte more than they may, and
// that kept images of elsewhere count, too.
func TestImagesWithinTheBound(t *testing.T) {
	t.Parallel()
	s := newWorld().serve(t, t.TempDir())
	layer := func() string {
		id, err := s.layers.Add(func(dir string, share bool) (bool, error) {
			return share, os.WriteFile(filepath.Join(dir, "files"), make([]byte, 1<<19), 0o600)
		})
		must.Do(t, err)
		return id
	}
	image, kept, dropped := layer(), layer(), false
	must.Do(t, s.options.Cache.putLookedUp("image", templates.Content{Layers: []string{image}}, time.Now()))
	s.layers.Release(image)
	s.options.KeptImages = func() []layers.Use {
		if dropped {
			return nil
		}
		return []layers.Use{{Name: "kept", Layers: []string{kept}, Drop: func() error { dropped = true; s.layers.Release(kept); return nil }}}
	}
	space, err := s.Space(t.Context())
	must.Do(t, err)
	if want := (Space{Bytes: space.Bytes, Cap: DefaultCap, Cache: Taken{Count: 2, Bytes: space.Bytes}}); space != want || space.Bytes < 1<<20 {
		t.Errorf("got %+v, want %+v", space, want)
	}
	for _, tt := range []struct {
		cap    int64
		images int
	}{{space.Bytes + 1, 2}, {space.Bytes, 2}, {space.Bytes - 1, 1}, {space.Bytes / 2, 1}, {space.Bytes/2 - 1, 0}} {
		s.options.ImageCap = tt.cap
		must.Do(t, s.trimImages(t.Context(), ""))
		if got := len(s.cached()); got != tt.images {
			t.Errorf("with a bound of %d: got %d images of %d bytes in all, want %d", tt.cap, got, space.Bytes, tt.images)
		}
	}
}

// TestTrimmedImages checks which images are dropped: the least recently used first, until those layers
// that no cached step needs are within the bound. A layer that two images share counts once, and until
// both are dropped. The newest image stays.
func TestTrimmedImages(t *testing.T) {
	t.Parallel()
	const half = 1 << 19 // of the size of a layer
	for _, tt := range []struct {
		cap    int64 // in halves of a layer
		newest string
		step   string // the image whose own layer a cached step has
		want   string // the images that stay
	}{
		{9, "", "", "i1 i2 i3"}, {7, "", "", "i2 i3"}, {5, "", "", "i3"}, {5, "i2", "", "i2"}, {1, "i3", "", "i3"}, {1, "", "", ""},
		{7, "", "i1", "i1 i2 i3"}, {5, "", "i1", "i3"}, {3, "", "i2", "i3"}, {1, "", "i3", "i3"},
	} {
		w := newWorld()
		s := w.serve(t, t.TempDir(), func(o *Options) { o.ImageCap = tt.cap * half })
		layer := func() string {
			id, err := s.layers.Add(func(dir string, share bool) (bool, error) {
				return share, os.WriteFile(filepath.Join(dir, "files"), make([]byte, 2*half), 0o600)
			})
			must.Do(t, err)
			return id
		}
		shared := layer()
		all := map[string][]string{"i1": {layer(), shared}, "i2": {layer(), shared}, "i3": {layer()}}
		for name, used := range map[string]int64{"i1": 1, "i2": 2, "i3": 3} {
			must.Do(t, s.options.Cache.putLookedUp(name, templates.Content{Layers: all[name]}, time.Now()))
			s.options.Cache.entries[name].Used = time.Unix(used, 0)
		}
		if tt.step != "" {
			must.Do(t, s.options.Cache.put("step", templates.Content{Layers: all[tt.step][:1]}))
			s.options.Cache.entries["step"].Used = time.Unix(0, 0)
		}
		s.layers.Release(shared, all["i1"][0], all["i2"][0], all["i3"][0])
		must.Do(t, s.trimImages(t.Context(), tt.newest))
		images, steps := s.options.Cache.split()
		var got []string
		for _, one := range images {
			got = append(got, one.Name)
		}
		slices.Sort(got)
		if strings.Join(got, " ") != tt.want || len(steps) == 0 != (tt.step == "") {
			t.Errorf("%+v: got %q and %d steps", tt, got, len(steps))
		}
	}
}

// TestEachPartOfAStepFails makes each launch of a sandbox, and each request for a build to a sandbox,
// fail in turn, for every kind of step. The build fails in that step with the reason, nothing of it is
// left, and the same build then succeeds.
func TestEachPartOfAStepFails(t *testing.T) {
	t.Parallel()
	hash := strings.Repeat("1", 64)
	spec := Spec{
		FromImage: "small", Start: "print started", Ready: "print ready",
		Stages: []Stage{{Name: "build", FromImage: "go", Steps: []Step{{Type: "WORKDIR", Args: []string{"/made"}}}}},
		Steps: []Step{
			{Type: "USER", Args: []string{"made", "true"}}, {Type: "WORKDIR", Args: []string{"/new"}}, {Type: "COPY", Args: []string{"a", "b", "", ""}, FilesHash: hash},
			{Type: "COPY", Args: []string{"/a", "/b", "", ""}, FromStage: "build"}, {Type: "RUN", Args: []string{"print"}}, {Type: "ENV", Args: []string{"A", "1"}},
		},
	}
	for what, want := range map[string][]string{
		"launch":  {"build/1", "1", "2", "3", "4", "4", "5", stepFinalize},
		"request": {"build/1", "1", "2", "3", "4", "4"},
	} {
		for n, step := range append(want, "") {
			w := newWorld()
			images := &fakeImages{all: map[string]image.Image{"go": {Digest: "sha256:1"}, "small": {Digest: "sha256:2"}}}
			s := w.serve(t, t.TempDir(), func(o *Options) {
				images.layers = o.Layers
				o.Target = func(context.Context, engine.Name) (Target, error) { return Target{Images: images}, nil }
				o.Launch = func(ctx context.Context, spec lifecycle.Spec) (Sandbox, error) {
					if w.fail("launch") {
						return nil, errors.New("the disk is full")
					}
					return w.launch(ctx, spec)
				}
			})
			must.Do(t, s.Uploads().Add(hash, strings.NewReader("first"), 5))
			id := s.request(t, "job")
			w.left = map[string]int{what: n + 1}
			must.Do(t, s.Start(id.template, id.build, spec))
			status, log := s.end(t, id)
			switch {
			case step == "" && status.Failure != nil:
				t.Errorf("%s, all succeed: got %+v\n%s", what, status.Failure, log)
			case step != "" && (status.Failure == nil || status.Failure.Step != step || !strings.Contains(status.Failure.Message, "the disk is full")):
				t.Errorf("%s %d: got %s %+v, want a failure of step %s\n%s", what, n+1, status.Status, status.Failure, step, log)
			}
			w.left = nil
			s.built(t, "job", spec)
		}
	}
}
