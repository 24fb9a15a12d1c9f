//go:build linux

package docker_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/docker"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/docker/dockertest"
	"github.com/e2bctl/e2bctl/internal/must"
)

// digest is the digest of no existing image.
const digest = "sha256:1234567890123456789012345678901234567890123456789012345678901234"

// archiveOf returns an archive for Load, with the name that the engine gives the image, and one
// file of that size.
func archiveOf(e *docker.Engine, digest string, size int) io.Reader {
	tag, labels := e.Name(digest)
	layer := tarOf(map[string][]byte{"file": make([]byte, size)})
	manifest, _ := json.Marshal([]any{map[string]any{"Config": "config.json", "RepoTags": []string{tag}, "Layers": []string{"0.tar"}}})
	config, _ := json.Marshal(map[string]any{
		"os": "linux", "architecture": runtime.GOARCH, "config": map[string]any{"Labels": labels},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}},
	})
	return bytes.NewReader(tarOf(map[string][]byte{"0.tar": layer, "config.json": config, "manifest.json": manifest}))
}

func tarOf(files map[string][]byte) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, text := range files {
		_ = w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))}) // a buffer takes everything
		_, _ = w.Write(text)
	}
	_ = w.Close()
	return b.Bytes()
}

// images are the digests of the images of templates that a daemon has.
func images(t *testing.T, d *dockertest.Daemon) string {
	t.Helper()
	ids := strings.Fields(d.Docker(t, "image", "ls", "--quiet", "--filter", "label=e2bctl.image"))
	if len(ids) == 0 {
		return ""
	}
	return d.Docker(t, append([]string{"image", "inspect", "--format", `{{index .Config.Labels "e2bctl.image"}}`}, ids...)...)
}

// TestLoad: an engine has the images that were loaded, until they are no longer needed or it
// closes, and none of another engine. An image stays while a container uses it or another name
// points to it.
func TestLoad(t *testing.T) {
	t.Parallel()
	d := dockertest.Own(t, t.TempDir())
	kept := open(t, docker.Options{Host: d.Host(), Image: dockertest.Bare, Store: "kept"}).(*docker.Engine)
	passes := open(t, docker.Options{Host: d.Host(), Image: dockertest.Bare}).(*docker.Engine)
	has := func(e *docker.Engine, want bool) {
		t.Helper()
		if got, err := e.Has(t.Context(), digest); got != want || err != nil {
			t.Errorf("got %v, %v, want %v", got, err, want)
		}
	}
	has(kept, false)
	for _, e := range []*docker.Engine{kept, passes} {
		must.Do(t, e.Load(t.Context(), digest, archiveOf(e, digest, 1)))
		has(e, true)
	}
	remove := func(needed bool) {
		t.Helper()
		err := kept.RemoveImages(t.Context(), func(got string) bool {
			if got != digest {
				t.Errorf("asked for %s, want %s", got, digest)
			}
			return needed
		})
		if err != nil {
			t.Error(err)
		}
	}
	remove(true)
	has(kept, true)
	s := start(t, kept, engine.SandboxOptions{Image: &engine.Image{Reference: "the/image", Digest: digest}})
	remove(false)
	has(kept, true)
	must.Do(t, s.Close())
	tag, _ := kept.Name(digest)
	d.Docker(t, "tag", tag, "someones:own")
	remove(false)
	has(kept, false)
	d.Docker(t, "rmi", "someones:own") // fails if it is gone
	has(passes, true)
	if err := passes.Close(); err != nil {
		t.Error(err)
	}
	if got := images(t, d); got != "" {
		t.Errorf("the daemon still has %s", got)
	}
	for what, tt := range map[string]struct {
		archive io.Reader
		want    string
	}{
		"no archive":   {strings.NewReader("nothing of the kind"), "load the image into the daemon at " + d.Host()},
		"another name": {archiveOf(passes, digest, 1), "does not have it"},
	} {
		if err := kept.Load(t.Context(), digest, tt.archive); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", what, err, tt.want)
		}
	}
}

// killing ends a daemon when half of an archive was read.
type killing struct {
	io.Reader
	daemon *dockertest.Daemon
	left   int
}

func (k *killing) Read(p []byte) (int, error) {
	n, err := k.Reader.Read(p[:min(len(p), 32<<10)])
	if k.left -= n; k.left < 0 && k.daemon != nil {
		k.daemon.Kill()
		k.daemon = nil
	}
	return n, err
}

// TestLoadIntoDyingDaemon: the error names the daemon, and the engine can be closed.
func TestLoadIntoDyingDaemon(t *testing.T) {
	t.Parallel()
	d := dockertest.Own(t, t.TempDir())
	e := open(t, docker.Options{Host: d.Host(), Image: dockertest.Bare}).(*docker.Engine)
	err := e.Load(t.Context(), digest, &killing{archiveOf(e, digest, 8<<20), d, 4 << 20})
	if err == nil || !strings.Contains(err.Error(), "load the image into the daemon at "+d.Host()) {
		t.Errorf("got %v, want the daemon in it", err)
	}
}

// TestLoadOntoFullDisk: the daemon says that its disk is full, and has nothing of the image.
func TestLoadOntoFullDisk(t *testing.T) {
	t.Parallel()
	dockertest.Shared(t) // or the test is skipped
	dir := t.TempDir()
	must.Do(t, unix.Mount("none", dir, "tmpfs", 0, "size=48m,mode=700"))
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	d, err := dockertest.Start(t.Context(), dir)
	must.Do(t, err)
	t.Cleanup(d.Stop)
	e := open(t, docker.Options{Host: d.Host(), Image: dockertest.Bare}).(*docker.Engine)
	err = e.Load(t.Context(), digest, archiveOf(e, digest, 64<<20))
	if err == nil || !strings.Contains(err.Error(), "no space left on device") {
		t.Errorf("got %v, want that there is no space", err)
	}
	if has, err := e.Has(t.Context(), digest); has || err != nil {
		t.Errorf("got %v, %v, want nothing of it", has, err)
	}
}
