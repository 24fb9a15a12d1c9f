//go:build linux

package room

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/layer"
	"github.com/e2bctl/e2bctl/internal/must"
)

// imageTar returns a layer of an image: each name with its content. Those that end with a
// slash are directories, and with @ the content is the target of a hard link.
func imageTar(t testing.TB, owner int, files ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := 0; i < len(files); i += 2 {
		h := tar.Header{Name: files[i], Mode: 0o4755, Size: int64(len(files[i+1])), Uid: owner, Gid: owner, Typeflag: tar.TypeReg, ModTime: time.Unix(1e9, 0)}
		if strings.HasSuffix(h.Name, "/") {
			h.Typeflag, h.Mode = tar.TypeDir, 0o1777
		}
		if name, is := strings.CutSuffix(h.Name, "@"); is {
			h.Name, h.Typeflag, h.Linkname, h.Size = name, tar.TypeLink, files[i+1], 0
		}
		must.Do(t, w.WriteHeader(&h))
		_, err := io.WriteString(w, files[i+1][:h.Size])
		must.Do(t, err)
	}
	must.Do(t, w.Close())
	return b.Bytes()
}

// TestUnpackTar checks that layers of an image become layers of sandboxes, with the owners
// that a sandbox shows, regardless of the host's names for them.
func TestUnpackTar(t *testing.T) {
	t.Parallel()
	r, _ := newLayeredRoom(t)
	first, second := layerDir(t), layerDir(t)
	must.Do(t, r.UnpackTar(t.Context(), nil, bytes.NewReader(imageTar(t, 33, "home/user/", "", "srv/", "", "srv/kept", "1", "srv/removed", "2", "srv/many", strings.Repeat("x", 5<<20))), first))
	rest := strings.NewReader("what is after the end is read, too")
	must.Do(t, r.UnpackTar(t.Context(), []string{first}, io.MultiReader(bytes.NewReader(imageTar(t, 1<<20, "srv/.wh.removed", "", "srv/added", "3", "srv/linked@", "srv/kept")), rest), second))
	if rest.Len() > 0 {
		t.Errorf("%d bytes were not read", rest.Len())
	}
	s := newSandbox(t, r, engine.SandboxOptions{ID: "above", Layers: []string{first, second}})
	result := sh(t, s, "cd /srv; stat -c '%n %a %u %g %Y' . *; cat kept added; wc -c < many")
	got := result.Output
	want := ". 1777 33 33 1000000000\nadded 755 65534 65534 1000000000\nkept 4755 33 33 1000000000\nlinked 4755 33 33 1000000000\nmany 4755 33 33 1000000000\n13" + "5242880\n"
	if !r.ranged() {
		want = strings.NewReplacer("33 33", "0 0", "755 65534 65534", "4755 0 0").Replace(want)
	}
	if got != want {
		t.Errorf("got\n%+v\nwant\n%s", result, want)
	}
}

// stalled is an archive that blocks until it is closed.
type stalled struct {
	start io.Reader
	ended <-chan struct{}
}

func (s stalled) Read(p []byte) (int, error) {
	if n, err := s.start.Read(p); n > 0 || !errors.Is(err, io.EOF) {
		return n, err
	}
	<-s.ended
	return 0, io.ErrUnexpectedEOF
}

// TestUnpackTarFails checks the errors for a foreign archive, a full disk, layers of another
// kind and an end in the middle.
func TestUnpackTarFails(t *testing.T) {
	t.Parallel()
	r, _ := newLayeredRoom(t)
	good := imageTar(t, 0, "a", strings.Repeat("x", 4<<20))
	for name, tt := range map[string]struct {
		below []string
		text  []byte
		want  string
	}{
		"no tar":         {nil, []byte(strings.Repeat("not a tar", 1000)), "invalid tar header"},
		"cut off":        {nil, good[:len(good)/2], "unexpected EOF"},
		"leads out":      {nil, imageTar(t, 0, "../a", ""), "leads out of the image"},
		"below is gone":  {[]string{"/nowhere/layer"}, good, "/nowhere/layer"},
		"below is other": {[]string{layerDir(t)}, good, layer.ErrDamaged.Error()},
	} {
		dir := layerDir(t)
		if err := r.UnpackTar(t.Context(), tt.below, bytes.NewReader(tt.text), dir); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %s", name, err, tt.want)
		}
		if _, err := layer.Read(dir); err == nil {
			t.Errorf("%s: it is a layer nevertheless", name)
		}
	}
	unread := errors.New("unread")
	if err := r.UnpackTar(t.Context(), nil, io.MultiReader(bytes.NewReader(good[:1<<20]), failing{unread}), layerDir(t)); !errors.Is(err, unread) {
		t.Errorf("got %v, want %v", err, unread)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("stopped")
	ended := make(chan error, 1)
	dir := layerDir(t)
	go func() {
		ended <- r.UnpackTar(ctx, nil, stalled{bytes.NewReader(good[:2<<20]), ctx.Done()}, dir)
	}()
	cancel(stopped)
	if err := <-ended; !errors.Is(err, stopped) {
		t.Errorf("with an ended context: got %v, want %v", err, stopped)
	}
	none := newRoomOn(t, engine.None)
	if err := none.UnpackTar(t.Context(), nil, bytes.NewReader(good), layerDir(t)); !errors.Is(err, &engine.LackError{Feature: engine.Images}) {
		t.Errorf("without namespaces: got %v, want %v", err, &engine.LackError{Feature: engine.Images})
	}
	readyWarm(t, r)
	if r.roster.mu.Lock(); len(r.roster.slots) != 1 {
		t.Errorf("got %d slots in use, want that of the warm sandbox", len(r.roster.slots))
	}
	r.roster.mu.Unlock()
	if !r.ranged() {
		return // this user cannot make a small disk
	}
	small := t.TempDir()
	must.Do(t, unix.Mount("tmpfs", small, "tmpfs", 0, "mode=0700,size=2m"))
	defer unix.Unmount(small, unix.MNT_DETACH)
	dir = filepath.Join(small, "layer")
	must.Do(t, os.Mkdir(dir, 0o700))
	if err := r.UnpackTar(t.Context(), nil, bytes.NewReader(good), dir); err == nil || !strings.Contains(err.Error(), "the disk is full") {
		t.Errorf("a full disk: got %v, want that it is full", err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
