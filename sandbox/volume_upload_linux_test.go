package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/must"
)

// keeper is a service with one volume, which keeps the modes of its entries and notes each change.
// It refuses entries in a directory that is closed for writing, and does not find those below one
// that is closed for searching.
type keeper struct {
	mu    sync.Mutex
	modes map[string]uint32
	did   []string
	fails string // the change that fails
}

func (k *keeper) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	k.mu.Lock()
	defer k.mu.Unlock()
	name, query := r.URL.Query().Get("path"), r.URL.Query()
	if !strings.HasPrefix(r.URL.Path, "/volumecontent") {
		fmt.Fprint(w, map[string]string{"/volumes": `[{"volumeID":"v","name":"data"}]`}[r.URL.Path])
		if r.URL.Path != "/volumes" {
			fmt.Fprint(w, `{"volumeID":"v","name":"data","token":"t"}`)
		}
		return
	}
	for above := filepath.Dir(name); ; above = filepath.Dir(above) {
		if mode, ok := k.modes[above]; ok && mode&0o700 != 0o700 {
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprintf(w, `{"code":"forbidden","message":"%s is closed"}`, above)
			return
		}
		if above == "/" {
			break
		}
	}
	body, _ := io.ReadAll(r.Body)
	asked, err := strconv.ParseUint(query.Get("mode"), 10, 32)
	mode, there := k.modes[name]
	switch what := filepath.Base(r.URL.Path); {
	case r.Method == http.MethodPatch:
		_, _ = fmt.Sscanf(string(body), `{"mode":%d}`, &asked)
		mode = uint32(asked)
		k.did = append(k.did, fmt.Sprintf("mode %s %#o", name, mode))
	case r.Method == http.MethodPut:
		mode = uint32(asked)
		k.did = append(k.did, fmt.Sprintf("file %s %#o %s", name, mode, body))
	case what == "dir" && !there:
		if mode = uint32(asked); err != nil {
			mode = 0o755
		}
		k.did = append(k.did, fmt.Sprintf("dir %s %#o", name, mode))
	}
	if k.fails != "" && strings.HasPrefix(k.did[len(k.did)-1], k.fails) {
		w.WriteHeader(http.StatusInsufficientStorage)
		fmt.Fprint(w, `{"code":"full","message":"the volume is full"}`)
		return
	}
	k.modes[name] = mode
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, `{"name":%q,"path":%q,"type":"directory","mode":%d}`, filepath.Base(name), name, mode)
}

func (k *keeper) open(t *testing.T) *Volume {
	t.Helper()
	server := httptest.NewServer(k)
	t.Cleanup(server.Close)
	client, err := NewClient(WithAPIKey(api.Key("e2b_"+strings.Repeat("0", 40))), WithAPIURL(server.URL), WithVolumeURL(server.URL), WithEnvFile(""))
	must.Do(t, err)
	t.Cleanup(func() { _ = client.Close() })
	volume, err := client.Volumes.Open(t.Context(), "data")
	must.Do(t, err)
	return volume
}

// tree makes files, and directories whose names end in a slash, with their modes.
func tree(t *testing.T, modes map[string]os.FileMode) string {
	t.Helper()
	dir := t.TempDir()
	for name := range modes {
		at := filepath.Join(dir, name)
		must.Do(t, os.MkdirAll(filepath.Dir(at), 0o755))
		if strings.HasSuffix(name, "/") {
			must.Do(t, os.MkdirAll(at, 0o755))
		} else if err := os.WriteFile(at, []byte(filepath.Base(name)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, mode := range modes {
		must.Do(t, os.Chmod(filepath.Join(dir, name), mode))
	}
	return dir
}

// Everything of a directory comes into a volume with its mode, also below a directory that is
// closed there or here; its own modes are set when all is in it.
func TestVolumeUploadDir(t *testing.T) {
	t.Parallel()
	local := tree(t, map[string]os.FileMode{"a": 0o640, "closed/b": 0o755, "closed/in/c": 0o600, "out/d": 0o644, "e": 0o644, "empty/": 0o711})
	for name, mode := range map[string]os.FileMode{"closed/in": 0o500, "closed": 0o500} {
		must.Do(t, os.Chmod(filepath.Join(local, name), mode))
		t.Cleanup(func() { _ = os.Chmod(filepath.Join(local, name), 0o700) }) // so that it can be removed
	}
	must.Do(t, errors.Join(os.Symlink("a", filepath.Join(local, "link")), syscall.Mkfifo(filepath.Join(local, "pipe"), 0o600)))
	below := []string{
		"file to/a 0640 a", "dir to/closed 0700", "file to/closed/b 0755 b", "dir to/closed/in 0700", "file to/closed/in/c 0600 c",
		"dir to/empty 0711", "mode to/closed/in 0500", "mode to/closed 0500",
	}
	for name, tt := range map[string]struct {
		to     string
		before map[string]uint32
		want   []string // operations before those in below
	}{
		"a new directory":    {"to", nil, []string{"dir /to 0755"}},
		"one that is there":  {"/to/", map[string]uint32{"/to": 0o777}, nil},
		"one that is closed": {"to", map[string]uint32{"/to": 0o555}, []string{"mode /to 0755"}},
		"the root":           {"/", nil, nil},
	} {
		k := &keeper{modes: map[string]uint32{}}
		for name, mode := range tt.before {
			k.modes[name] = mode
		}
		prefix := "/to/"
		if tt.to == "/" {
			prefix = "/"
		}
		want := slices.Clone(tt.want)
		for _, did := range below {
			want = append(want, strings.Replace(did, "to/", prefix, 1))
		}
		var skipped []string
		var told int64
		err := k.open(t).UploadDir(t.Context(), local, tt.to, &VolumeUploadDirParams{
			Exclude:  func(name string, _ fs.DirEntry) bool { return name == "out" || name == "e" },
			Skipped:  func(name, why string) { skipped = append(skipped, name+": "+why) },
			Progress: func(n int64) { told = n },
		})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(want, k.did); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if len(skipped) != 2 || !strings.HasPrefix(skipped[0], "link: it is a link") || !strings.HasPrefix(skipped[1], "pipe: it is neither") {
			t.Errorf("%s: skipped %q, want the link and the pipe", name, skipped)
		}
		if told != 3 {
			t.Errorf("%s: told %d bytes, want 3", name, told)
		}
	}
}

// An upload into a volume ends with the first error, and with its context.
func TestVolumeUploadDirFails(t *testing.T) {
	t.Parallel()
	local := tree(t, map[string]os.FileMode{"a": 0o640, "b/c": 0o644, "d": 0o644})
	must.Do(t, os.Chmod(filepath.Join(local, "b"), 0o500))
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(local, "b"), 0o700) }) // so that it can be removed
	whole := []string{"dir /to 0755", "file /to/a 0640 a", "dir /to/b 0700", "file /to/b/c 0644 c", "file /to/d 0644 d", "mode /to/b 0500"}
	for n, change := range whole {
		k := &keeper{modes: map[string]uint32{}, fails: change}
		err := k.open(t).UploadDir(t.Context(), local, "to", nil)
		if _, ok := errors.AsType[*fs.PathError](err); !ok || !strings.Contains(err.Error(), "full") {
			t.Errorf("%q fails: got %v, want that the volume is full", change, err)
		}
		if diff := cmp.Diff(whole[:n+1], k.did); diff != "" {
			t.Errorf("%q fails (-want +got):\n%s", change, diff)
		}
	}
	cause := errors.New("enough")
	ctx, end := context.WithCancelCause(t.Context())
	k := &keeper{modes: map[string]uint32{}}
	err := k.open(t).UploadDir(ctx, local, "to", &VolumeUploadDirParams{Exclude: func(name string, _ fs.DirEntry) bool { end(cause); return true }})
	if !errors.Is(err, cause) || len(k.did) != 1 {
		t.Errorf("got %v and %q, want the cause, and nothing after that", err, k.did)
	}
}

// TestVolumeDownloadDirOfWhatGoes checks that an entry that has gone since it was listed is left
// out of a download, and that files keep their times.
func TestVolumeDownloadDirOfWhatGoes(t *testing.T) {
	t.Parallel()
	when := time.Date(2020, 2, 3, 4, 5, 6, 0, time.UTC)
	service := listing{"/": {
		{Name: "a", Type: "file", Size: 4, Mode: 0o644, ModifiedAt: when},
		{Name: "gone", Type: "directory", Mode: 0o755, ModifiedAt: when},
		{Name: "z", Type: "file", Size: 4, Mode: 0o4755, ModifiedAt: when},
	}}
	dir := t.TempDir()
	must.Do(t, service.open(t).DownloadDir(t.Context(), "", dir, nil))
	for name, mode := range map[string]os.FileMode{"a": 0o644, "z": 0o755} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode() != mode || !info.ModTime().Equal(when) {
			t.Errorf("%s: got %v and error %v, want it as it was", name, info, err)
		}
	}
}

// A directory that is closed in the volume as it is here is opened, and closed again.
func TestVolumeUploadDirIntoAClosedOne(t *testing.T) {
	t.Parallel()
	local := tree(t, map[string]os.FileMode{"closed/a": 0o640})
	must.Do(t, os.Chmod(filepath.Join(local, "closed"), 0o500))
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(local, "closed"), 0o700) }) // so that it can be removed
	k := &keeper{modes: map[string]uint32{"/closed": 0o500}}
	must.Do(t, k.open(t).UploadDir(t.Context(), local, "/", nil))
	if diff := cmp.Diff([]string{"mode /closed 0700", "file /closed/a 0640 a", "mode /closed 0500"}, k.did); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
