package transfer

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
)

func TestFromHome(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"~": ".", "~/app": "app", "~//etc": "etc", "app/": "app", "/srv/app": "/srv/app", "a//b/../c": "a/c", "~user/x": "~user/x",
	} {
		if got := path.Clean(fromHome(in)); got != want {
			t.Errorf("fromHome(%q) = %q, want %q", in, got, want)
		}
	}
}

// TestModesOfVolumes checks which mode a file gets in a volume, and the modes of a volume's entries.
func TestModesOfVolumes(t *testing.T) {
	t.Parallel()
	var wrote []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		switch name := query.Get("path"); {
		case r.URL.Path == "/volumes":
			fmt.Fprint(w, `[{"volumeID":"v","name":"data"}]`)
		case r.URL.Path == "/volumes/v":
			fmt.Fprint(w, `{"volumeID":"v","name":"data","token":"t"}`)
		case r.Method == http.MethodPut:
			text, _ := io.ReadAll(r.Body)
			wrote = append(wrote, fmt.Sprintf("%s %s %s", name, query.Get("mode"), text))
			w.WriteHeader(http.StatusCreated)
			fmt.Fprint(w, `{"type":"file"}`)
		case name == "/gone":
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"code":"path_not_found","message":"nothing"}`)
		default:
			fmt.Fprintf(w, `{"type":%q,"mode":%d}`, strings.Trim(name, "/"), 0o4755)
		}
	}))
	defer server.Close()
	client, err := sandbox.NewClient(sandbox.WithAPIKey("e2b_00000000"), sandbox.WithAPIURL(server.URL), sandbox.WithVolumeURL(server.URL), sandbox.WithEnvFile(""))
	must.Do(t, err)
	defer client.Close()
	volume, err := client.Volumes.Open(t.Context(), "data")
	must.Do(t, err)
	store := InVolume(volume, "").Store
	for _, mode := range []fs.FileMode{0o644, 0o755, 0o600, 0o100, 0o010, 0o001} {
		must.Do(t, store.Write(t.Context(), fmt.Sprintf("/%o", mode), strings.NewReader("text"), mode, nil))
	}
	if want := []string{"/644  text", "/755 493 text", "/600  text", "/100 493 text", "/10 493 text", "/1 493 text"}; !slices.Equal(wrote, want) {
		t.Errorf("the volume got %q, want %q", wrote, want)
	}
	for kind, want := range map[string]fs.FileMode{"file": 0o755, "directory": fs.ModeDir | 0o755, "symlink": fs.ModeSymlink} {
		if mode, err := store.Mode(t.Context(), "/"+kind); err != nil || mode != want {
			t.Errorf("a %s: got the mode %v, error %v, want %v", kind, mode, err, want)
		}
	}
	_, err = store.Mode(t.Context(), "/gone")
	must.Is(t, err, sandbox.ErrNotFound)
}

// servedVolume returns a volume that has two files of four bytes and a link in each directory, and accepts each file.
func servedVolume(t *testing.T) *sandbox.Volume {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/volumes":
			fmt.Fprint(w, `[{"volumeID":"v","name":"data"}]`)
		case r.URL.Path == "/volumes/v":
			fmt.Fprint(w, `{"volumeID":"v","name":"data","token":"t"}`)
		case r.Method != http.MethodGet:
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(http.StatusCreated)
			fmt.Fprint(w, `{"type":"file"}`)
		case strings.HasSuffix(r.URL.Path, "/dir"):
			fmt.Fprint(w, `[{"name":"a","path":"/a","type":"file","mode":420,"size":4},{"name":"b","path":"/b","type":"file","mode":420,"size":4},
				{"name":"out","path":"/out","type":"symlink","mode":511,"target":"/etc"}]`)
		case strings.HasSuffix(r.URL.Path, "/file"):
			fmt.Fprint(w, "text")
		default:
			fmt.Fprint(w, `{"name":"","path":"/","type":"directory","mode":493}`)
		}
	}))
	t.Cleanup(server.Close)
	client, err := sandbox.NewClient(sandbox.WithAPIKey("e2b_00000000"), sandbox.WithAPIURL(server.URL), sandbox.WithVolumeURL(server.URL), sandbox.WithEnvFile(""))
	must.Do(t, err)
	t.Cleanup(func() { must.Do(t, client.Close()) })
	volume, err := client.Volumes.Open(t.Context(), "data")
	must.Do(t, err)
	return volume
}

// TestBoundsOfVolumes checks that a directory of a volume is bounded in bytes and in files, as the
// copy says.
func TestBoundsOfVolumes(t *testing.T) {
	t.Parallel()
	volume := servedVolume(t)
	for _, tt := range []struct {
		bytes, files int64
		fits         bool
	}{{8, 3, true}, {7, 3, false}, {8, 2, false}} {
		c := &Copy{IO: &cmdutil.IOStreams{Err: io.Discard}, MaxBytes: cmdutil.Size(tt.bytes), MaxFiles: cmdutil.Count(tt.files)}
		err := InVolume(volume, "/").Store.DownloadDir(t.Context(), "/", t.TempDir(), c)
		if errors.Is(err, sandbox.ErrTooLarge) == tt.fits || tt.fits && err != nil {
			t.Errorf("%d bytes and %d files: got %v, want that it fits: %v", tt.bytes, tt.files, err, tt.fits)
		}
	}
}
