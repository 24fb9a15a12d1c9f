package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/cli/internal/localcloud"
	"github.com/e2bctl/e2bctl/internal/cloud/store"
	"github.com/e2bctl/e2bctl/internal/must"
)

// kept is a record of a state directory, with a file of some MiB.
type kept struct {
	table store.Table
	id    string
	value string
	mib   int
	file  string
}

// fill adds records to a state directory, and returns its open store.
func fill(t *testing.T, dir string, all ...kept) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), dir)
	must.Do(t, err)
	for _, k := range all {
		files, err := s.NewDir()
		must.Do(t, err)
		must.Do(t, os.WriteFile(filepath.Join(files, k.file), make([]byte, k.mib<<20), 0o600))
		_, err = s.Put(k.table, k.id, []byte(k.value), files)
		must.Do(t, err)
	}
	return s
}

// TestCheckState checks the report about a state directory with nothing, with one of each, and with more, and while a
// process uses it.
func TestCheckState(t *testing.T) {
	fresh(t)
	t.Setenv("XDG_STATE_HOME", filepath.Join(t.TempDir(), "state"))
	want := func(what string, c check) {
		t.Helper()
		c.Name = "state"
		if got := checkState(t.Context()); got != c {
			t.Errorf("%s: got %+v, want %+v", what, got, c)
		}
	}
	dir, _, err := localcloud.StateDir()
	must.Do(t, err)
	want("empty", check{Status: checkOK, Detail: dir + ": 0 sandboxes, 0 KiB"})
	s := fill(t, dir,
		kept{store.Sandboxes, "i1", "{}", 1, "file"},
		kept{store.Layers, "l1", "{}", 2, "file"}, kept{store.Templates, "t1", `{"layer":"l1"}`, 0, "file"},
		kept{store.Layers, "l2", "{}", 3, "file"}, kept{store.Uploads, "u1", "{}", 4, "file"},
		kept{store.Volumes, "v1", "{}", 5, "image"},
	)
	inUse := fmt.Sprintf("; in use by process %d", os.Getpid())
	want("in use", check{Status: checkOK, Detail: dir + ": 1 sandbox, 1 MiB; snapshots and templates, 5 MiB; cached for builds, 4 MiB; 1 volume with a quota, 5 MiB" + inUse})
	must.Do(t, s.Close())
	want("one of each", check{Status: checkOK, Detail: dir + ": 1 sandbox, 1 MiB; snapshots and templates, 2 MiB; cached for builds, 7 MiB; 1 volume with a quota, 5 MiB"})
	must.Do(t, fill(t, dir, kept{store.Sandboxes, "i2", "{}", 1, "file"}).Close())
	want("two sandboxes", check{Status: checkOK, Detail: dir + ": 2 sandboxes, 2 MiB; snapshots and templates, 2 MiB; cached for builds, 7 MiB; 1 volume with a quota, 5 MiB"})
}

// TestStateThatDoesNotLast checks that the report says so, and that the directory of a running local cloud is reported
// in place of that of the next one.
func TestStateThatDoesNotLast(t *testing.T) {
	fresh(t)
	t.Chdir(t.TempDir())                     // the state directory "" would be this one
	t.Setenv("XDG_STATE_HOME", "/proc/self") // where nobody can make a directory
	dir, note, err := localcloud.StateDir()
	must.Do(t, err)
	other := t.TempDir()
	for _, tt := range []struct{ running, want, hint string }{{"", dir, note}, {dir, dir, note}, {other, other, ""}} {
		end := startCloud(t, localcloud.Record{URL: "http://127.0.0.1:1", State: tt.running})
		status := checkOK
		if tt.hint != "" {
			status = checkWarning
		}
		if got, want := checkState(t.Context()), (check{"state", status, tt.want + ": 0 sandboxes, 0 KiB", tt.hint}); got != want {
			t.Errorf("a cloud with %q: got %+v, want %+v", tt.running, got, want)
		}
		end()
	}
	file := filepath.Join(other, "file")
	must.Do(t, os.WriteFile(file, nil, 0o600))
	startCloud(t, localcloud.Record{URL: "http://127.0.0.1:1", State: file})
	if got := checkState(t.Context()); got.Status != checkFailed || !strings.Contains(got.Detail, file) || !strings.HasPrefix(got.Hint, "e2bctl local up --state-dir names another directory") {
		t.Errorf("a file as the directory: got %+v", got)
	}
}

// TestNoStateDir checks the report about a machine without a place for a state directory.
func TestNoStateDir(t *testing.T) {
	fresh(t)
	t.Chdir(t.TempDir())
	for _, name := range []string{"XDG_STATE_HOME", "XDG_RUNTIME_DIR", "TMPDIR"} {
		t.Setenv(name, "/proc/self") // where nobody can make a directory
	}
	if got := checkState(t.Context()); got.Status != checkFailed || !strings.HasPrefix(got.Detail, "the state directory of a local cloud: ") {
		t.Errorf("got %+v", got)
	}
}
