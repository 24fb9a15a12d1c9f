package sandbox

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/e2bctl/e2bctl/internal/gen/filesystem/filesystemconnect"
)

// TestFilesOfTheServicesDaemon uses answers in which the service's daemon differs
// from ours: the texts are its own.
func TestFilesOfTheServicesDaemon(t *testing.T) {
	t.Parallel()
	content := strings.Repeat("Name:\tbash\n", 1000)
	s := newService(t)
	var asked []string
	s.files = func(w http.ResponseWriter, r *http.Request) {
		coding := r.Header.Get("Accept-Encoding")
		asked = append(asked, coding)
		switch path := r.URL.Query().Get("path"); {
		case path == "/proc/1/broken":
			http.Error(w, "error reading file", http.StatusInternalServerError)
		case path == "/proc/1/never":
			http.Error(w, "seeker can't seek", http.StatusInternalServerError)
		case !strings.HasPrefix(coding, "gzip"):
			http.Error(w, "seeker can't seek", http.StatusInternalServerError)
		default:
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			_, _ = io.WriteString(z, content)
			_ = z.Close()
		}
	}
	s.raw = func(w http.ResponseWriter, r *http.Request) bool {
		switch r.URL.Path {
		case filesystemconnect.FilesystemStatProcedure:
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, `{"code":"internal","message":"error getting file info: lstat /home/user/file/x: not a directory"}`)
		case filesystemconnect.FilesystemWatchDirProcedure:
			const end = `{"error":{"code":"invalid_argument","message":"path /home/user/file not a directory: %!w(\u003cnil\u003e)"}}`
			w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
			_, _ = w.Write(append([]byte{2, 0, 0, 0, byte(len(end))}, end...))
		default:
			return false
		}
		return true
	}
	sb := s.sandbox()

	data, err := sb.Files.Read(t.Context(), "/proc/1/status", nil)
	if err != nil || string(data) != content || strings.Join(asked, " ") != "identity "+preferGzip {
		t.Errorf("Read of /proc: %d bytes of %d, %v, asked for %q", len(data), len(content), err, asked)
	}
	asked = nil
	if data, err := sb.Files.Read(t.Context(), "/proc/1/status", &FileParams{Gzip: true}); err != nil || !bytes.Equal(data, []byte(content)) || len(asked) != 1 {
		t.Errorf("Read of /proc with Gzip: %d bytes, %v, asked for %q", len(data), err, asked)
	}
	for path, want := range map[string]int{"/proc/1/broken": 1, "/proc/1/never": 2} { // requests
		asked = nil
		if _, err := sb.Files.Read(t.Context(), path, nil); err == nil || len(asked) != want {
			t.Errorf("Read of %s: %v, asked %d times, want %d", path, err, len(asked), want)
		}
	}
	if found, err := sb.Files.Exists(t.Context(), "file/x", nil); found || err != nil {
		t.Errorf("Exists below a file: %v, %v", found, err)
	}
	if _, err := sb.Files.Stat(t.Context(), "file/x", nil); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("Stat below a file: %v, want ENOTDIR", err)
	}
	_, err = sb.Files.Watch(t.Context(), "file", nil)
	if path, ok := errors.AsType[*fs.PathError](err); !ok || path.Op != "watch" || !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("Watch of a file: %v, want ENOTDIR", err)
	}
}
