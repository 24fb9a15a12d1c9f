package store

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/calltest"
)

// watched lists the system calls that change files.
var watched = []uint32{
	unix.SYS_WRITE, unix.SYS_PWRITE64, unix.SYS_FTRUNCATE, unix.SYS_FALLOCATE, unix.SYS_FSYNC, unix.SYS_FDATASYNC, unix.SYS_MKDIR,
	unix.SYS_MKDIRAT, unix.SYS_RENAME, unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_UNLINK, unix.SYS_UNLINKAT, unix.SYS_RMDIR,
	unix.SYS_FCHMODAT, unix.SYS_CHMOD, unix.SYS_SYMLINK, unix.SYS_LINK,
}

// write is a system call that is about to change a file.
type write struct {
	number uint32
	file   string // path of the file to which the descriptor leads; "": the call has no descriptor
}

// watchWrites makes the kernel stop this thread at each system call that changes files, until see
// returns. see itself must not make such calls.
func watchWrites(see func(write)) error {
	_, err := calltest.Watch(watched, func(c calltest.Call) (fails unix.Errno, last bool) {
		file, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", int32(c.Arguments[0])))
		see(write{c.Number, file})
		return 0, false
	})
	return err
}

// skipUnwatched skips the test if its process could not be watched.
func skipUnwatched(t *testing.T, stderr string) {
	t.Helper()
	if strings.Contains(stderr, calltest.ErrUnwatched.Error()) && os.Getenv("CI") != "true" {
		t.Skipf("this machine lets no process watch its own calls: %s", stderr)
	}
}

func init() { roles["flushed"] = beWatched }

// names maps the system calls to names for TestFlushed. There, the name of the changed file follows
// the name of the call.
var names = map[uint32]string{
	unix.SYS_FSYNC: "flush", unix.SYS_FDATASYNC: "flush", unix.SYS_PWRITE64: "write", unix.SYS_FTRUNCATE: "write",
	unix.SYS_RENAME: "rename", unix.SYS_RENAMEAT: "rename", unix.SYS_UNLINKAT: "remove", unix.SYS_RMDIR: "remove",
}

// beWatched creates a store, puts a record with a directory twice, and deletes the record. It
// writes the changes of files to its output.
func beWatched(dir string) error {
	runtime.GOMAXPROCS(4)
	runtime.LockOSThread()
	var mu sync.Mutex
	var did []string
	err := watchWrites(func(w write) {
		name, known := names[w.number]
		if !known {
			return
		}
		if name == "flush" || name == "write" {
			of, _ := filepath.Rel(filepath.Dir(dir), w.file)
			_, in, below := strings.Cut(of, "/")
			if in, _, _ = strings.Cut(in, "/"); !below {
				in = "state"
			}
			name += " " + in
		}
		mu.Lock()
		did = append(did, name)
		mu.Unlock()
	})
	if err != nil {
		return err
	}
	var s *Store
	var first, second string
	for _, step := range []func() error{
		func() (err error) { s, err = Open(context.Background(), dir); return err },
		func() (err error) { first, err = save(s, "first"); return err },
		func() (err error) { second, err = save(s, "second"); return err },
		func() error { _, err := s.Put(Sandboxes, "a", nil, first); return err },
		func() error { _, err := s.Put(Sandboxes, "a", nil, second); return err },
		func() error { return s.Delete(Sandboxes, "a") },
	} {
		if err := step(); err != nil {
			return err
		}
		mu.Lock()
		line := strings.Join(slices.Compact(did), ", ")
		did = nil
		mu.Unlock()
		fmt.Fprintln(os.Stdout, line)
	}
	return s.Close()
}

// TestFlushed checks the order of flushes, which determines the state after a power failure. A new
// database is flushed before it is renamed, and its name before it is used. The files of a record
// are flushed before the record is written, and the record before its old files are removed.
func TestFlushed(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	cmd := other(t, "flushed", dir)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	output, err := cmd.Output()
	skipUnwatched(t, stderr.String())
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	const (
		publish = "flush new, rename, flush files"
		commit  = "write store.db, flush store.db, write store.db, flush store.db"
		remove  = "rename" // moves to trash; the rest is removed in the background
		note    = "remove" // for a note that does not exist
	)
	made := "write lock, remove" + strings.Repeat(", write store.db.new, flush store.db.new", 4) + ", rename, flush state"
	want := []string{
		made + ", " + publish + ", remove", // of the rehearsal
		"", "",                             // nothing waits for files that no record names
		publish + ", " + commit,
		publish + ", " + commit + ", " + remove,
		note + ", " + commit + ", " + remove,
	}
	if diff := cmp.Diff(want, strings.Split(strings.TrimSpace(string(output)), "\n")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
