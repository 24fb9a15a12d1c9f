package sandbox

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/e2bctl/e2bctl/internal/gen/process"
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
