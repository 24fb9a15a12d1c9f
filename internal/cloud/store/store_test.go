package store

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"

	"github.com/e2bctl/e2bctl/internal/must"
)

// variable contains the role of another process of this test binary, followed by the directory.
const variable = "STORE_TEST_ROLE"

var roles = map[string]func(dir string) error{"holder": hold}

func TestMain(m *testing.M) {
	name, dir, found := strings.Cut(os.Getenv(variable), " ")
	if !found {
		goleak.VerifyTestMain(m)
		return
	}
	if err := roles[name](dir); err != nil {
		panic(err)
	}
}

// other returns a command that runs another process of this test binary.
func other(t *testing.T, role, dir string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), variable+"="+role+" "+dir)
	cmd.Stderr = os.Stderr
	return cmd
}

// open opens the store in dir until the test ends.
func open(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(t.Context(), dir)
	must.Do(t, err)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// fill does the same as save, and fails the test after an error.
func fill(t *testing.T, s *Store, text string) string {
	t.Helper()
	dir, err := save(s, text)
	must.Do(t, err)
	return dir
}

func put(t *testing.T, s *Store, table Table, id, value, dir string) string {
	t.Helper()
	to, err := s.Put(table, id, []byte(value), dir)
	must.Do(t, err)
	return to
}

func wantRecords(t *testing.T, s *Store, table Table, want ...Record) {
	t.Helper()
	got, err := s.Records(table)
	must.Do(t, err)
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(Record{}, "Saved")); diff != "" {
		t.Errorf("records of %s (-want +got):\n%s", table, diff)
	}
	for _, record := range got {
		if got, want := record.Saved.IsZero(), record.Dir == ""; got != want {
			t.Errorf("%s: got saved %v with directory %q", record.ID, record.Saved, record.Dir)
		}
	}
}

// wantFiles checks which directories exist: those of records, incomplete ones and those in trash.
func wantFiles(t *testing.T, s *Store, want ...string) {
	t.Helper()
	s.Wait()
	got := []string{}
	for _, parent := range []string{published, staging, trash} {
		names, err := filepath.Glob(filepath.Join(s.path(parent), "*"))
		must.Do(t, err)
		got = append(got, names...)
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("directories (-want +got):\n%s", diff)
	}
}

// descriptors returns the paths of the open files below dir, keyed by descriptor. It finds them only on Linux.
func descriptors(t *testing.T, dir string) map[int]string {
	t.Helper()
	found := map[int]string{}
	names, _ := os.ReadDir("/proc/self/fd")
	for _, name := range names {
		to, _ := os.Readlink("/proc/self/fd/" + name.Name()) // another test may have closed it
		if fd, err := strconv.Atoi(name.Name()); err == nil && strings.HasPrefix(to, dir+string(filepath.Separator)) {
			found[fd] = to
		}
	}
	return found
}

// wantClosed checks that no file below dir is open.
func wantClosed(t *testing.T, dir string) {
	t.Helper()
	if left := descriptors(t, dir); len(left) > 0 {
		t.Errorf("open are still %v", left)
	}
}

// TestStore makes the same calls with a durable and with a temporary store.
func TestStore(t *testing.T) {
	t.Parallel()
	for _, durable := range []bool{false, true} {
		dir := filepath.Join(t.TempDir(), "state")
		s := Temporary(dir)
		if durable {
			s = open(t, dir)
		}
		if got := s.Durable(); got != durable {
			t.Errorf("durable: got %v, want %v", got, durable)
		}
		if got := len(s.Seed()); got != 32 {
			t.Errorf("got a seed of %d bytes, want 32", got)
		}
		wantRecords(t, s, Sandboxes)

		first := put(t, s, Sandboxes, "b", "1", fill(t, s, "first"))
		put(t, s, Sandboxes, "a", "2\n", "")
		wantRecords(t, s, Sandboxes, Record{ID: "a", Value: []byte("2\n")}, Record{ID: "b", Value: []byte("1"), Dir: first})
		if text, err := os.ReadFile(filepath.Join(first, "text")); string(text) != "first" {
			t.Errorf("got %q and error %v, want first", text, err)
		}
		if got := put(t, s, Sandboxes, "b", "3", first); got != first {
			t.Errorf("the same directory: got %s, want %s", got, first)
		}
		wantFiles(t, s, first)
		second := put(t, s, Sandboxes, "b", "4", fill(t, s, "second"))
		wantRecords(t, s, Sandboxes, Record{ID: "a", Value: []byte("2\n")}, Record{ID: "b", Value: []byte("4"), Dir: second})
		wantFiles(t, s, second)
		put(t, s, Sandboxes, "b", "", "")
		wantFiles(t, s)
		wantRecords(t, s, Keys)

		for range 2 { // a record that does not exist is no error
			for _, id := range []string{"a", "b"} {
				if err := s.Delete(Sandboxes, id); err != nil {
					t.Error(err)
				}
			}
		}
		wantRecords(t, s, Sandboxes)

		s.Note(Running, "c", []byte("5"))
		s.Note(Running, "c", []byte("6"))
		wantRecords(t, s, Running, Record{ID: "c", Value: []byte("6")})
		if err := s.Delete(Running, "c"); err != nil {
			t.Error(err)
		}
		wantRecords(t, s, Running)

		unused := fill(t, s, "unused")
		for range 2 {
			if err := s.Discard(unused); err != nil {
				t.Error(err)
			}
		}
		wantFiles(t, s)
		put(t, s, Sandboxes, "d", "", fill(t, s, "left"))
		for range 2 {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
		if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) == durable {
			t.Errorf("after Close: got %v, durable: %v", err, durable)
		}
		if _, err := s.Records(Sandboxes); !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: got %v, want ErrClosed", err)
		}
		if _, err := s.Put(Sandboxes, "a", nil, ""); !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: got %v, want ErrClosed", err)
		}
		s.Note(Running, "a", nil) // is ignored
		if _, err := s.NewDir(); !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: got %v, want ErrClosed", err)
		}
		if err := s.Discard(unused); !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: got %v, want ErrClosed", err)
		}
		wantClosed(t, dir)
	}
}

// TestRestart checks that a store that is opened again has everything that existed before, and
// nothing else.
func TestRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	kept := put(t, s, Sandboxes, "a", "1", fill(t, s, "kept"))
	put(t, s, Keys, "b", "2", "")
	s.Note(Running, "c", []byte("3"))
	fill(t, s, "of no record")
	seed := s.Seed()
	must.Do(t, s.Close())
	must.Do(t, os.MkdirAll(filepath.Join(dir, published, "a.other", "full"), 0o700))

	s = open(t, dir)
	wantRecords(t, s, Sandboxes, Record{ID: "a", Value: []byte("1"), Dir: kept})
	wantRecords(t, s, Keys, Record{ID: "b", Value: []byte("2")})
	wantRecords(t, s, Running, Record{ID: "c", Value: []byte("3")})
	wantFiles(t, s, kept)
	if diff := cmp.Diff(seed, s.Seed()); diff != "" {
		t.Errorf("the seed (-want +got):\n%s", diff)
	}
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("got %v and error %v, want mode 0700", info.Mode(), err)
	}
}

// save returns a directory from NewDir with a file and a tree of directories.
func save(s *Store, text string) (dir string, err error) {
	if dir, err = s.NewDir(); err == nil {
		err = os.WriteFile(filepath.Join(dir, "text"), []byte(text), 0o600)
	}
	if err == nil {
		err = os.MkdirAll(filepath.Join(dir, "deep", "deeper"), 0o700)
	}
	return dir, err
}
