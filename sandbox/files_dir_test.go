package sandbox

import (
	"archive/tar"
	"errors"
	"io"
	"sync"
	"testing"
)

// What a download may copy unless it was given other limits.
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
