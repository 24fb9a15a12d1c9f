package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/must"
)

// listing is a service with one volume, whose entries it has by directory.
type listing map[string][]*VolumeEntry

func (l listing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("path")
	switch {
	case r.URL.Path == "/volumes":
		fmt.Fprint(w, `[{"volumeID":"v","name":"data"}]`)
	case r.URL.Path == "/volumes/v":
		fmt.Fprint(w, `{"volumeID":"v","name":"data","token":"t"}`)
	case strings.HasSuffix(r.URL.Path, "/file"):
		fmt.Fprint(w, "text")
	case l[name] != nil:
		var entries []*api.VolumeEntry // whose names of fields are those of the service
		for _, entry := range l[name] {
			entries = append(entries, (*api.VolumeEntry)(entry))
		}
		_ = json.NewEncoder(w).Encode(entries) // the client notices
	default:
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"code":"path_not_found","message":"nothing"}`)
	}
}

func (l listing) open(t *testing.T) *Volume {
	t.Helper()
	return openVolume(t, l)
}

// openVolume opens the volume of a service.
func openVolume(t *testing.T, service http.Handler) *Volume {
	t.Helper()
	server := httptest.NewServer(service)
	t.Cleanup(server.Close)
	client, err := NewClient(WithAPIKey(api.Key("e2b_"+strings.Repeat("0", 40))), WithAPIURL(server.URL), WithVolumeURL(server.URL), WithEnvFile(""))
	must.Do(t, err)
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	volume, err := client.Volumes.Open(t.Context(), "data")
	must.Do(t, err)
	return volume
}

// TestVolumeDownloadDirEndsItsRequest checks that a download that fails here does not wait for the volume.
func TestVolumeDownloadDirEndsItsRequest(t *testing.T) {
	t.Parallel()
	l := listing{"/": {{Name: "a", Type: "file", Size: 4, Mode: 0o644}}}
	volume := openVolume(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/file") {
			l.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Length", "4")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done() // the content never comes
	}))
	err := volume.DownloadDir(t.Context(), "/", t.TempDir(), &VolumeDownloadDirParams{MaxBytes: 1})
	if err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("got error %v, want the bound of bytes", err)
	}
}

// TestVolumeDownloadDirHostile checks that a download writes only into its directory, whatever
// names the service lists, and that its error has the reason.
func TestVolumeDownloadDirHostile(t *testing.T) {
	t.Parallel()
	file := func(name string, size int64) *VolumeEntry {
		return &VolumeEntry{Name: name, Type: "file", Size: size, Mode: 0o644}
	}
	for name, test := range map[string]struct {
		entries []*VolumeEntry
		params  VolumeDownloadDirParams
		want    string // in the error
	}{
		"upwards":         {entries: []*VolumeEntry{file("..", 4)}, want: "not the name of an entry"},
		"a path":          {entries: []*VolumeEntry{file("../x", 4)}, want: "not the name of an entry"},
		"no name":         {entries: []*VolumeEntry{file("", 4)}, want: "not the name of an entry"},
		"too many":        {entries: []*VolumeEntry{file("a", 4), file("b", 4)}, params: VolumeDownloadDirParams{MaxFiles: 1}, want: "MaxFiles"},
		"too large":       {entries: []*VolumeEntry{file("a", 1<<40)}, want: "MaxBytes"},
		"shorter":         {entries: []*VolumeEntry{file("a", 5)}, want: "shorter"},
		"less than 0":     {entries: []*VolumeEntry{file("a", -1)}, want: "negative size"},
		"nested for ever": {entries: []*VolumeEntry{{Name: "d", Type: "directory", Mode: 0o755}}, params: VolumeDownloadDirParams{MaxFiles: 10}, want: "MaxFiles"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			service := listing{"/": test.entries}
			for n := range 20 {
				service["/"+strings.TrimSuffix(strings.Repeat("d/", n+1), "/")] = test.entries
			}
			dir := filepath.Join(t.TempDir(), "to")
			err := service.open(t).DownloadDir(t.Context(), "/", dir, &test.params)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want one that says %q", err, test.want)
			}
			if left, err := filepath.Glob(filepath.Join(filepath.Dir(dir), "*")); err != nil || len(left) > 1 {
				t.Errorf("got %v and error %v, want nothing beside the directory", left, err)
			}
		})
	}
}

func TestVolumeDownloadDir(t *testing.T) {
	t.Parallel()
	service := listing{
		"/d":     {{Name: "a", Type: "file", Size: 4, Mode: 0o640, ModifiedAt: testTime}, {Name: "sub", Type: "directory", Mode: 0o500}, {Name: "pipe", Type: "unknown"}},
		"/d/sub": {{Name: "in", Type: "symlink", Target: "../a"}, {Name: "out", Type: "symlink", Target: "/etc/passwd"}},
	}
	dir := t.TempDir()
	var skipped []string
	var bytes int64
	must.Do(t, service.open(t).DownloadDir(t.Context(), "d", dir, &VolumeDownloadDirParams{
		Skipped:  func(name, _ string) { skipped = append(skipped, name) },
		Progress: func(n int64) { bytes = n },
	}))
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(dir, "sub"), 0o700) }) // so that it can be removed
	var got []string
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if info, err := entry.Info(); err == nil && name != "." {
			got = append(got, info.Mode().String()+" "+name)
		}
		return nil
	})
	must.Do(t, err)
	if diff := cmp.Diff([]string{"-rw-r----- a", "dr-x------ sub", "Lrwxrwxrwx sub/in"}, got); diff != "" {
		t.Errorf("what came (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"sub/out", "pipe"}, skipped); diff != "" {
		t.Errorf("what was left out (-want +got):\n%s", diff)
	}
	if info, err := os.Stat(filepath.Join(dir, "a")); err != nil || !info.ModTime().Equal(testTime) {
		t.Errorf("got %+v and error %v, want a file of %v", info, err, testTime)
	}
	if bytes != 4 {
		t.Errorf("got progress of %d bytes, want 4", bytes)
	}
	if err := service.open(t).DownloadDir(t.Context(), "nothing", filepath.Join(dir, "nothing"), nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of nothing: got error %v, want %v", err, fs.ErrNotExist)
	}
	if _, err := os.Stat(filepath.Join(dir, "nothing")); !errors.Is(err, fs.ErrNotExist) {
		t.Error("a directory was made for nothing")
	}
}
