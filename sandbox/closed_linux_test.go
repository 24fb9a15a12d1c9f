package sandbox

import (
	"archive/tar"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/fdtest"
	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/must"
)

// wantClosed checks that neither a directory of this machine nor a file in it is open.
func wantClosed(t *testing.T, what, dir string) {
	t.Helper()
	if open := fdtest.Open(t, dir); len(open) > 0 {
		t.Errorf("%s: %q are open", what, open)
	}
}

// TestDirectoriesAreClosed checks that a copy of a directory closes the directory of this machine and its files, whether it
// succeeds or fails.
func TestDirectoriesAreClosed(t *testing.T) {
	t.Parallel()
	for _, fails := range []bool{false, true} {
		status := map[bool]int{false: http.StatusOK, true: http.StatusForbidden}[fails]
		s := newService(t)
		s.files = func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(status)
		}
		s.start = func(_ context.Context, _ *process.StartRequest, stream *startStream) error {
			_ = started(stream, 1)
			var data strings.Builder
			archive := tar.NewWriter(&data)
			_ = archive.WriteHeader(&tar.Header{Name: "f", Size: 1, Mode: 0o644})
			_, _ = archive.Write([]byte("x"))
			_ = archive.Close()
			_ = stdout(stream, []byte(data.String()))
			return ended(stream, map[bool]int32{true: 1}[fails], "exit status")
		}
		up, down := tree(t, map[string]os.FileMode{"a": 0o600, "d/b": 0o600}), t.TempDir()
		sb := s.sandbox()
		kept := &keeper{modes: map[string]uint32{"/": 0o755}, fails: map[bool]string{true: "file"}[fails]}
		lists := listing{"/": {{Name: "f", Type: "file", Size: map[bool]int64{false: 4, true: 5}[fails], Mode: 0o644}}}
		for name, do := range map[string]func(ctx context.Context) error{
			"an upload":                 func(ctx context.Context) error { return sb.Files.UploadDir(ctx, up, "d", nil) },
			"a download":                func(ctx context.Context) error { return sb.Files.DownloadDir(ctx, "d", down, nil) },
			"an upload to a volume":     func(ctx context.Context) error { return kept.open(t).UploadDir(ctx, up, "d", nil) },
			"a download from a volume":  func(ctx context.Context) error { return lists.open(t).DownloadDir(ctx, "/", down, nil) },
			"an upload of a closed one": func(ctx context.Context) error { return closedHandle(t, s).Files.UploadDir(ctx, up, "d", nil) },
		} {
			wantFails := fails || strings.HasSuffix(name, "closed one")
			if err := do(t.Context()); (err != nil) != wantFails {
				t.Errorf("%s: got error %v, want one: %v", name, err, wantFails)
			}
			wantClosed(t, name, up)
			wantClosed(t, name, down)
		}
	}
}

// closedHandle returns a handle that is closed.
func closedHandle(t *testing.T, s *service) *Sandbox {
	t.Helper()
	sb := s.sandbox()
	must.Do(t, sb.Detach())
	must.Do(t, sb.Close())
	return sb
}

// TestSpoiledWheelIsClosed checks that a wheel of the cache whose content is wrong is closed.
func TestSpoiledWheelIsClosed(t *testing.T) {
	t.Parallel()
	c := wheelCache{directory: t.TempDir(), limit: 100}
	sum := sumOf("wheel")
	must.Do(t, c.add([]string{sum}, strings.NewReader("wheel")))
	wantClosed(t, "a wheel that was added", c.directory)
	must.Do(t, os.WriteFile(filepath.Join(c.directory, sum), []byte("whee!"), 0o600))
	if got := cached(t, c, sum); got != "" {
		t.Errorf("got %q, which was spoiled", got)
	}
	wantClosed(t, "a spoiled wheel", c.directory)
}
