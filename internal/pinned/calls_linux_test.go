package pinned

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/lockedfile"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/calltest"
	"github.com/e2bctl/e2bctl/internal/fdtest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// checkWhole checks that a set is complete, with these files alone in the list of its files.
func checkWhole(t *testing.T, directory string, files map[string]string) {
	t.Helper()
	must.Do(t, check(directory))
	got := map[string]string{}
	for name := range files {
		text, err := os.ReadFile(filepath.Join(directory, name))
		must.Do(t, err)
		got[name] = string(text)
	}
	if diff := cmp.Diff(files, got); diff != "" {
		t.Errorf("the files (-want +got):\n%s", diff)
	}
	list, err := os.ReadFile(filepath.Join(directory, complete))
	must.Do(t, err)
	if diff := cmp.Diff(`{"pins":3,"sub/more":4}`, string(list)); diff != "" {
		t.Errorf("the list of the files (-want +got):\n%s", diff)
	}
}

// TestFailedCalls checks that a set is whole after Fetch, or not used after an error of Fetch, whichever
// system call fails.
func TestFailedCalls(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	files := map[string]string{"pins": "one", "sub/more": "four"}
	set := Set{Name: "fake", Pins: fstest.MapFS{"pins": {Data: []byte(files["pins"])}, "sub/more": {Data: []byte(files["sub/more"])}}}
	directory, err := set.directory()
	must.Do(t, err)
	unused := filepath.Join(filepath.Dir(directory), "unused")
	for name, number := range map[string]uint32{
		"openat": unix.SYS_OPENAT, "unlinkat": unix.SYS_UNLINKAT, "mkdirat": unix.SYS_MKDIRAT,
		"newfstatat": unix.SYS_NEWFSTATAT, "getdents64": unix.SYS_GETDENTS64,
	} {
		errs := 0
		for n, failed := 1, true; failed; n++ {
			must.Do(t, errors.Join(os.RemoveAll(directory), os.MkdirAll(filepath.Join(unused, "sub"), 0o755), os.MkdirAll(directory, 0o755)))
			must.Do(t, os.WriteFile(filepath.Join(directory, "rest"), nil, 0o600))
			failed, err = calltest.FailNth(t, number, n, unix.EIO, func() error { return set.Fetch(t.Context(), io.Discard) })
			if open := fdtest.Open(t, filepath.Dir(directory)); len(open) > 0 {
				t.Fatalf("%s %d: %q are open, want none", name, n, open)
			}
			_, left := os.Stat(unused)
			_, rest := os.Stat(filepath.Join(directory, "rest"))
			switch {
			case err == nil:
				checkWhole(t, directory, files)
				if left == nil && name != "newfstatat" || rest == nil { // a set that cannot be examined is kept
					t.Errorf("%s %d: got no error, and the unused set is there: %v, the rest of this one: %v", name, n, left == nil, rest == nil)
				}
			case check(directory) == nil:
				t.Errorf("%s %d: the set can be used after %v", name, n, err)
			default:
				errs++
			}
		}
		if errs == 0 {
			t.Errorf("%s: no call that fails is an error of Fetch", name)
		}
	}
}

// TestFetchMeanwhile checks that Fetch keeps a set that another process has fetched while Fetch waited for its lock.
func TestFetchMeanwhile(t *testing.T) {
	set, runs := fake(t, "")
	directory, err := set.directory()
	must.Do(t, err)
	lock := filepath.Join(filepath.Dir(directory), "lock")
	must.Do(t, os.MkdirAll(directory, 0o755))
	unlock, err := lockedfile.MutexAt(lock).Lock()
	must.Do(t, err)
	ended := make(chan error, 1)
	go func() { ended <- set.Fetch(t.Context(), io.Discard) }()
	patience.Until(t, "Fetch waits for the lock", func() bool { return len(fdtest.Open(t, lock)) == 2 })
	must.Do(t, writeComplete(directory))
	unlock()
	must.Do(t, patience.Receive(t, "the end of Fetch", ended))
	checkRuns(t, runs, 0)
}
