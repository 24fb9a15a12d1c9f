//go:build linux

package instance

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/must"
)

// tree lists what is in a directory, with the content of its files.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	got := map[string]string{}
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		content := entry.Type().String()
		if entry.Type().IsRegular() {
			data, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			content += string(data)
		}
		got[name] = content
		return nil
	})
	must.Do(t, err)
	return got
}

// text returns the text of a lock file.
func text(spec Spec) string {
	data, err := json.Marshal(spec)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// places are the directories of a test: the instance of this process in own, another one in old,
// and a bystander's directory beside both.
type places struct{ parent, own, old, bystander string }

// lockFile is the lock file of the instance in old.
type lockFile struct {
	write func(t *testing.T, p places, lock string)
	stale bool
}

func regular(t *testing.T, lock, content string) {
	t.Helper()
	must.Do(t, os.WriteFile(lock, []byte(content), 0o600))
}

var lockFiles = map[string]lockFile{
	"stale": {func(t *testing.T, p places, lock string) { regular(t, lock, text(Spec{Dir: p.old})) }, true},
	"in use": {func(t *testing.T, p places, _ string) {
		f, err := Lock(Spec{Dir: p.old})
		must.Do(t, err)
		t.Cleanup(func() { f.Close() })
	}, false},
	"none":    {func(*testing.T, places, string) {}, false},
	"empty":   {func(t *testing.T, _ places, lock string) { regular(t, lock, "") }, false},
	"garbage": {func(t *testing.T, _ places, lock string) { regular(t, lock, "garbage") }, false},
	"half understood": {func(t *testing.T, p places, lock string) {
		regular(t, lock, strings.Replace(text(Spec{Dir: p.old}), `"groups":null`, `"groups":7`, 1))
	}, false},
	"names nothing":             {func(t *testing.T, _ places, lock string) { regular(t, lock, "{}") }, false},
	"names another directory":   {func(t *testing.T, p places, lock string) { regular(t, lock, text(Spec{Dir: p.bystander})) }, false},
	"names the parent":          {func(t *testing.T, p places, lock string) { regular(t, lock, text(Spec{Dir: p.parent})) }, false},
	"names this instance's own": {func(t *testing.T, p places, lock string) { regular(t, lock, text(Spec{Dir: p.own})) }, false},
	"is this instance's own": {func(t *testing.T, p places, _ string) {
		regular(t, filepath.Join(p.own, lockName), text(Spec{Dir: p.own}))
	}, false},
	"a directory": {func(t *testing.T, _ places, lock string) {
		must.Do(t, os.Mkdir(lock, 0o700))
	}, false},
	"a link": {func(t *testing.T, p places, lock string) {
		elsewhere := filepath.Join(p.bystander, "text")
		regular(t, elsewhere, text(Spec{Dir: p.old}))
		must.Do(t, os.Symlink(elsewhere, lock))
	}, false},
	"a FIFO without a writer": {func(t *testing.T, _ places, lock string) { must.Do(t, unix.Mkfifo(lock, 0o600)) }, false},
	"a FIFO": {func(t *testing.T, p places, lock string) {
		must.Do(t, unix.Mkfifo(lock, 0o600))
		writer, err := os.OpenFile(lock, os.O_RDWR, 0)
		must.Do(t, err)
		t.Cleanup(func() { writer.Close() })
		content := make([]byte, maxSpec) // so much that a reader would not wait for more
		for i := range content {
			content[i] = ' '
		}
		copy(content, text(Spec{Dir: p.old}))
		_, err = writer.Write(content)
		must.Do(t, err)
	}, false},
	// The whole instance is in another place, which only a link beside this one names.
	"in a directory that is a link": {func(t *testing.T, p places, _ string) {
		link := filepath.Join(p.parent, "cloud-link")
		regular(t, filepath.Join(p.bystander, lockName), text(Spec{Dir: link}))
		must.Do(t, os.Symlink(p.bystander, link))
	}, false},
}

// TestReapStale checks that an instance is removed only if its lock file is of the user,
// names the directory it is in, and is free. All others stay as they are.
func TestReapStale(t *testing.T) {
	t.Parallel()
	for name, l := range lockFiles {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l.check(t)
		})
	}
	if os.Geteuid() != 0 {
		return
	}
	t.Run("another user's", func(t *testing.T) {
		t.Parallel()
		lockFile{func(t *testing.T, p places, lock string) {
			regular(t, lock, text(Spec{Dir: p.old}))
			must.Do(t, os.Chown(lock, 1, 1))
		}, false}.check(t)
	})
}

// check checks that the instance in old is removed if the file is stale, and nothing else.
func (l lockFile) check(t *testing.T) {
	t.Helper()
	base := t.TempDir()
	p := places{parent: filepath.Join(base, "run")}
	p.own, p.old = filepath.Join(p.parent, "cloud-own"), filepath.Join(p.parent, "cloud-old")
	p.bystander = filepath.Join(base, "bystander")
	for _, dir := range []string{p.own, p.old, p.bystander} {
		must.Do(t, errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "file"), []byte("kept"), 0o600)))
	}
	l.write(t, p, filepath.Join(p.old, lockName))
	want := tree(t, base)
	if err := ReapStale(t.Context(), p.own); err != nil {
		t.Error(err)
	}
	if l.stale {
		for _, gone := range []string{p.old, filepath.Join(p.old, "file"), filepath.Join(p.old, lockName)} {
			delete(want, gone)
		}
	}
	if diff := cmp.Diff(want, tree(t, base)); diff != "" {
		t.Errorf("what there is (-want +got):\n%s", diff)
	}
}

// TestReapStaleBesideThatDirectory checks that the name of the directory is no pattern: files
// beside another directory, which a pattern would match, stay.
func TestReapStaleBesideThatDirectory(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"run[12]", "run?", "run*", "run[", `run\1`} {
		base := t.TempDir()
		stale, other := filepath.Join(base, name, "cloud-old"), filepath.Join(base, "run1", "cloud-old")
		for _, dir := range []string{stale, other} {
			must.Do(t, errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, lockName), []byte(text(Spec{Dir: dir})), 0o600)))
		}
		if err := ReapStale(t.Context(), filepath.Join(base, name, "cloud-own")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Lstat(stale); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: got error %v, want the stale instance to be gone", name, err)
		}
		if _, err := os.Lstat(other); err != nil {
			t.Errorf("%s: the instance beside another directory: %v", name, err)
		}
	}
}

// TestCleanKeepsTheLock checks that an instance that could not be cleaned up is recognised
// again, and that one that is gone is no error.
func TestCleanKeepsTheLock(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f, err := Lock(Spec{Dir: dir})
	must.Do(t, err)
	must.Do(t, f.Close())
	if err := (Spec{Dir: dir, Roots: dir + "/."}).Clean(t.Context()); err == nil {
		t.Error("no error for a directory that cannot be removed")
	}
	if _, err := os.Lstat(filepath.Join(dir, lockName)); err != nil {
		t.Errorf("the lock: %v", err)
	}
	roots := t.TempDir()
	if err := (Spec{Dir: filepath.Join(dir, "gone"), Roots: roots}).Clean(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(roots); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got error %v, want the directory of sandboxes to be gone", err)
	}
}
