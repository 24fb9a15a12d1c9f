package sandbox

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestDownloadDirDefaults checks the default limits of a download.
func TestDownloadDirDefaults(t *testing.T) {
	t.Parallel()
	claim := func(size int64) func(*tar.Writer) error {
		return func(tw *tar.Writer) error {
			return tw.WriteHeader(&tar.Header{Name: "huge", Typeflag: tar.TypeReg, Size: size})
		}
	}
	entries := func(n int) func(*tar.Writer) error {
		return func(tw *tar.Writer) error {
			for range n {
				if err := tw.WriteHeader(&tar.Header{Name: "pipe", Typeflag: tar.TypeFifo}); err != nil {
					return err
				}
			}
			return tw.Close()
		}
	}
	tests := []struct {
		name   string
		write  func(*tar.Writer) error
		params DownloadDirParams
		want   error
	}{
		{"1 GiB", claim(1 << 30), DownloadDirParams{}, io.ErrUnexpectedEOF}, // which it is not, but allowed
		{"more", claim(1<<30 + 1), DownloadDirParams{}, ErrTooLarge},
		{"more, asked for", claim(1<<30 + 1), DownloadDirParams{MaxBytes: 1<<30 + 1}, io.ErrUnexpectedEOF},
		{"without a bound", claim(1 << 40), DownloadDirParams{MaxBytes: -1}, io.ErrUnexpectedEOF},
		{"100,000 entries", entries(100_000), DownloadDirParams{}, nil},
		{"more entries", entries(100_001), DownloadDirParams{}, ErrTooLarge},
		{"more entries, asked for", entries(100_001), DownloadDirParams{MaxFiles: 100_001}, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r, w := io.Pipe()
			var writing sync.WaitGroup
			writing.Go(func() {
				tw := tar.NewWriter(w)
				w.CloseWithError(test.write(tw)) // no content follows the claimed size
			})
			err := receiveArchive(t.Context(), r, t.TempDir(), &test.params)
			_ = r.Close()
			writing.Wait()
			if !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
}

// No path of a directory is taken for an option.
func TestDirectoryNamedAsAnOption(t *testing.T) {
	t.Parallel()
	s := newService(t)
	var paths []string
	s.files = func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, "[]")
	}
	s.start = func(_ context.Context, r *process.StartRequest, stream *startStream) error {
		for _, path := range r.GetProcess().GetEnvs() {
			paths = append(paths, path)
		}
		return errors.Join(started(stream, 1), ended(stream, 1, "exit status 1"))
	}
	sb := s.sandbox()
	for _, dir := range []string{"-x", "--", "~/-x", "-x/-y"} {
		paths = nil
		for call, err := range map[string]error{
			"UploadDir":   sb.Files.UploadDir(t.Context(), t.TempDir(), dir, nil),
			"DownloadDir": sb.Files.DownloadDir(t.Context(), dir, t.TempDir(), nil),
		} {
			if _, ran := errors.AsType[*ExitError](err); !ran {
				t.Errorf("%s of %s: got %v, want the end of its command", call, dir, err)
			}
		}
		if len(paths) < 2 {
			t.Errorf("%s: got %q, want the paths of both calls", dir, paths)
		}
		for _, path := range paths {
			if !strings.HasPrefix(path, "./") {
				t.Errorf("%s: got %q, want it to begin with ./", dir, path)
			}
		}
	}
}

// TestParametersOfDirectories checks that each parameter of a copy of a directory, and of an archive, has its effect.
func TestParametersOfDirectories(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"a", "excluded"} {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600))
	}
	socket, err := net.Listen("unix", filepath.Join(dir, "socket"))
	must.Do(t, err)
	defer socket.Close()
	var packed bytes.Buffer
	tw := tar.NewWriter(&packed)
	must.Do(t, errors.Join(
		tw.WriteHeader(&tar.Header{Name: "b", Size: 1, Mode: 0o644, Typeflag: tar.TypeReg}), second(io.WriteString(tw, "x")),
		tw.WriteHeader(&tar.Header{Name: "pipe", Typeflag: tar.TypeFifo}), tw.Close(),
	))
	s := newService(t)
	var received, user string
	s.files = func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		received, user = string(body), r.URL.Query().Get("username")
		_, _ = io.WriteString(w, "[]")
	}
	s.start = func(_ context.Context, r *process.StartRequest, stream *startStream) error {
		_ = started(stream, 1)
		if r.GetProcess().GetEnvs()["ARCHIVE"] == "" {
			_ = stdout(stream, packed.Bytes())
		}
		return ended(stream, 0, "exit status 0")
	}
	sb, to := s.sandbox(), t.TempDir()
	var skipped string
	var told int64
	skip, tell := func(name, _ string) { skipped += name }, func(n int64) { told = n }
	var whole bytes.Buffer
	for name, tt := range map[string]struct {
		do      func() error
		skipped string
		sends   bool
	}{
		"UploadDir": {func() error {
			exclude := func(name string, _ fs.DirEntry) bool { return name == "excluded" }
			return sb.Files.UploadDir(t.Context(), dir, "d", &UploadDirParams{User: "me", Exclude: exclude, Skipped: skip, Progress: tell})
		}, "socket", true},
		"DownloadDir": {func() error {
			return sb.Files.DownloadDir(t.Context(), "d", to, &DownloadDirParams{User: "me", Skipped: skip, Progress: tell})
		}, "pipe", false},
		"WriteTar": {func() error {
			return sb.Files.WriteTar(t.Context(), "d", bytes.NewReader(packed.Bytes()), &TarParams{User: "me", Progress: tell})
		}, "", true},
		"ReadTar": {func() error {
			return sb.Files.ReadTar(t.Context(), "d", &whole, &TarParams{User: "me", Progress: tell})
		}, "", false},
	} {
		received, user, skipped, told, s.starter = "", "me", "", 0, ""
		must.Do(t, tt.do())
		size := packed.Len()
		if tt.sends {
			size = len(received)
		}
		if size == 0 || told != int64(size) || skipped != tt.skipped {
			t.Errorf("%s: got %d bytes of %d, without %q, want all without %q", name, told, size, skipped, tt.skipped)
		}
		if user != "me" || s.starter != "me" {
			t.Errorf("%s: got the users %q and %q, want me", name, user, s.starter)
		}
		if strings.Contains(received, "excluded") || tt.sends && !strings.Contains(received, "a") {
			t.Errorf("%s: got the archive %q", name, received)
		}
	}
	if text, err := os.ReadFile(filepath.Join(to, "b")); err != nil || string(text) != "x" || !bytes.Equal(whole.Bytes(), packed.Bytes()) {
		t.Errorf("got the file %q and error %v, and %d bytes of an archive", text, err, whole.Len())
	}
}
