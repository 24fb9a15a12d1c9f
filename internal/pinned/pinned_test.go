package pinned

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// fake returns a set whose command is a shell script, in a cache of the test's own, and the
// file to which the script adds a line at each run. The script runs before first.
func fake(t *testing.T, before string) (Set, string) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("the command is a shell script")
	}
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir()) // macOS derives the cache from it
	runs := filepath.Join(t.TempDir(), "runs")
	return Set{
		Name: "fake", Pins: fstest.MapFS{"pins": {Data: []byte("one")}},
		Commands: [][]string{{"sh", "-c", fmt.Sprintf("echo run >>%q; %s\nmkdir lib && cp pins lib/installed && echo $$ >lib/cached.pyc", runs, before)}},
	}, runs
}

// checkRuns compares how often the command ran.
func checkRuns(t *testing.T, runs string, want int) {
	t.Helper()
	text, err := os.ReadFile(runs)
	if got := strings.Count(string(text), "run"); got != want || err != nil && want > 0 {
		t.Errorf("the command ran %d times, %v, want %d", got, err, want)
	}
}

// ended is a test that records how it ended.
type ended struct {
	testing.TB
	failed, skipped string
	helpers         int // the functions that are marked as helpers
}

func (e *ended) Helper() { e.helpers++ }

func (e *ended) Fatal(arguments ...any) {
	e.failed = fmt.Sprint(arguments...)
	panic(e)
}

func (e *ended) Fatalf(format string, arguments ...any) {
	e.failed = fmt.Sprintf(format, arguments...)
	panic(e)
}

func (e *ended) Skipf(format string, arguments ...any) {
	e.skipped = fmt.Sprintf(format, arguments...)
	panic(e)
}

// end looks the set up in a test, and returns how that ended; nil if it found the set.
func end(t *testing.T, set Set) (found string, e *ended) {
	t.Helper()
	e = &ended{TB: t}
	defer func() {
		if got := recover(); got != nil && got != any(e) {
			panic(got)
		}
	}()
	return set.Find(e), nil
}

// checkMissing checks that a test fails in CI and is skipped elsewhere, with the advice to
// the user.
func checkMissing(t *testing.T, set Set, reason string) {
	t.Helper()
	for _, ci := range []string{"true", ""} {
		t.Setenv("CI", ci)
		_, e := end(t, set)
		if e == nil {
			t.Fatalf("with CI=%q the set was found, want none because: %s", ci, reason)
		}
		got, other := e.failed, e.skipped
		if ci == "" {
			got, other = other, got
		}
		if e.helpers != 2 { // Find and Skip
			t.Errorf("with CI=%q: %d functions are helpers, want 2, so that the test's own line is reported", ci, e.helpers)
		}
		if !strings.Contains(got, "make deps") || !strings.Contains(got, set.Name) || !strings.Contains(got, reason) || other != "" {
			t.Errorf("with CI=%q: got %q and %q, want what to run, the name of the set and %q", ci, got, other, reason)
		}
	}
}

func TestFetchOnce(t *testing.T) {
	set, runs := fake(t, "")
	checkMissing(t, set, "no such file")
	checkRuns(t, runs, 0) // looking it up fetches nothing
	var said strings.Builder
	for range 2 {
		must.Do(t, set.Fetch(t.Context(), &said))
	}
	checkRuns(t, runs, 1)
	if got, want := said.String(), "fetching the packages fake\n"; got != want {
		t.Errorf("Fetch said %q, want %q", got, want)
	}
	if text, err := os.ReadFile(filepath.Join(set.Find(t), "lib", "installed")); err != nil || string(text) != "one" {
		t.Errorf("installed is %q, %v, want what the pins say", text, err)
	}
	lock := filepath.Join(filepath.Dir(set.Find(t)), "lock")
	must.Do(t, os.Remove(lock))
	must.Do(t, set.Fetch(t.Context(), &said))
	if _, err := os.Stat(lock); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v of the lock, want that Fetch does not wait for others if the set is there", err)
	}
	other := set
	other.Pins = fstest.MapFS{"pins": {Data: []byte("two")}}
	checkMissing(t, other, "no such file")
	must.Do(t, other.Fetch(t.Context(), &said))
	checkRuns(t, runs, 2)
	if first, second := set.Find(t), other.Find(t); first == second {
		t.Errorf("other pins are in the same directory %s, want another", first)
	}
}

// TestFetchInterrupted checks that an interrupted set is not found, and is fetched anew.
func TestFetchInterrupted(t *testing.T) {
	gate := filepath.Join(t.TempDir(), "gate")
	set, runs := fake(t, fmt.Sprintf("if [ ! -e %q ]; then mkdir lib; echo >%q; exec sleep 600; fi", gate, gate))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- set.Fetch(ctx, t.Output()) }()
	patience.Until(t, "the command has begun", func() bool {
		_, err := os.Stat(gate)
		return err == nil
	})
	cancel()
	if err := patience.Receive(t, "the end of Fetch", ended); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	checkMissing(t, set, "no such file")
	if err := set.Fetch(t.Context(), t.Output()); err != nil { // mkdir would fail with the remains of the first
		t.Fatal(err)
	}
	checkRuns(t, runs, 2)
	set.Find(t)
}

func TestFetchFails(t *testing.T) {
	set, _ := fake(t, `echo "the index is away, input refused: $PIP_NO_INPUT, home: $HOME" >&2; exit 3`)
	err := set.Fetch(t.Context(), t.Output())
	for _, want := range []string{"fake", "exit status 3", "the index is away, input refused: 1, home: " + os.Getenv("HOME")} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
	checkMissing(t, set, "no such file")
	set.Commands = [][]string{{"no-such-program-of-the-tests"}}
	if err := set.Fetch(t.Context(), t.Output()); err == nil || !strings.Contains(err.Error(), "no-such-program-of-the-tests") {
		t.Errorf("got %v, want the name of the program that is not there", err)
	}
}

// TestDamaged checks that a set with removed or changed files is not used, and is fetched
// again.
func TestDamaged(t *testing.T) {
	set, runs := fake(t, "")
	want := 0
	for reason, damage := range map[string]func(installed string) error{
		"no such file": os.Remove,
		"1 bytes":      func(installed string) error { return os.Truncate(installed, 1) },
		"JSON": func(installed string) error {
			return os.WriteFile(filepath.Join(installed, "../..", complete), nil, 0o600)
		},
	} {
		must.Do(t, set.Fetch(t.Context(), t.Output()))
		want++
		directory, err := set.directory()
		must.Do(t, err)
		must.Do(t, damage(filepath.Join(directory, "lib", "installed")))
		checkMissing(t, set, reason)
	}
	must.Do(t, set.Fetch(t.Context(), t.Output()))
	checkRuns(t, runs, want+1)
	cached := filepath.Join(set.Find(t), "lib", "cached.pyc")
	must.Do(t, os.WriteFile(cached, nil, 0o600))
	if err := check(filepath.Dir(filepath.Dir(cached))); err != nil {
		t.Errorf("got %v after Python wrote what it caches, want no error", err)
	}
}

// TestUnused checks that Fetch removes only incomplete and unused sets, and keeps a set that cannot be examined.
func TestUnused(t *testing.T) {
	set, _ := fake(t, "")
	directory, err := set.directory()
	must.Do(t, err)
	beside := filepath.Dir(directory)
	kept, unused, half, unknown := filepath.Join(beside, "1"), filepath.Join(beside, "2"), filepath.Join(beside, "3"), filepath.Join(beside, "4")
	long := time.Now().Add(-31 * 24 * time.Hour)
	for _, one := range []string{kept, unused, half, unknown} {
		must.Do(t, os.MkdirAll(one, 0o755))
	}
	err = errors.Join(os.WriteFile(filepath.Join(kept, complete), nil, 0o600), os.WriteFile(filepath.Join(unused, complete), nil, 0o600),
		os.Chtimes(filepath.Join(unused, complete), long, long),
		os.Symlink(complete, filepath.Join(unknown, complete)), // a link to itself cannot be examined
		set.Fetch(t.Context(), t.Output()))
	must.Do(t, err)
	lock := filepath.Join(beside, "lock") // another process may hold it
	for one, want := range map[string]bool{kept: true, unused: false, half: false, unknown: true, directory: true, lock: true} {
		if _, err := os.Stat(one); (err == nil) != want {
			t.Errorf("%s is there: %v, want %v", one, err == nil, want)
		}
	}
}

// TestUseIsNoted checks that a set that a test finds counts as used now, and not as used long ago.
func TestUseIsNoted(t *testing.T) {
	set, _ := fake(t, "")
	must.Do(t, set.Fetch(t.Context(), t.Output()))
	directory, err := set.directory()
	must.Do(t, err)
	long := time.Now().Add(-31 * 24 * time.Hour)
	must.Do(t, os.Chtimes(filepath.Join(directory, complete), long, long))
	set.Find(t)
	if since, unused := used.Unused(directory); unused || !since.After(long.Add(time.Hour)) {
		t.Errorf("got %v, %v after Find, want a use after %v", since, unused, long)
	}
}

// TestFoundOnce checks that a process checks a set that it has found no second time.
func TestFoundOnce(t *testing.T) {
	set, _ := fake(t, "")
	must.Do(t, set.Fetch(t.Context(), t.Output()))
	directory := set.Find(t)
	must.Do(t, os.RemoveAll(directory))
	if again, e := end(t, set); again != directory || e != nil {
		t.Errorf("got %q, %+v at the second time, want %s", again, e, directory)
	}
}

// TestKinds checks the name, the pins and the commands of each kind of set. No command may run
// code of a package or accept a package without its digest.
func TestKinds(t *testing.T) {
	t.Parallel()
	pins := fstest.MapFS{"pins": {Data: []byte("one")}}
	for _, test := range []struct {
		set         Set
		program     string
		needsPython bool
		flags       []string
	}{
		{Python("a", pins), Interpreter, true, []string{"install", "--require-hashes", "--only-binary=:all:", "--no-deps", "lib"}},
		{Wheels("a", pins), Interpreter, true, []string{"download", "--require-hashes", "--only-binary=:all:", "--no-deps", "wheels"}},
		{NPM("a", pins), "npm", false, []string{"ci", "--ignore-scripts"}},
	} {
		if len(test.set.Commands) != 1 {
			t.Fatalf("got the commands %q, want one", test.set.Commands)
		}
		command := test.set.Commands[0]
		if diff := cmp.Diff(Set{Name: "a", Pins: pins, Commands: [][]string{command}}, test.set); diff != "" {
			t.Errorf("%q (-want +got):\n%s", command, diff)
		}
		if got := test.set.needsPython(); command[0] != test.program || got != test.needsPython {
			t.Errorf("%q: needs Python: %v, want %s and %v", command, got, test.program, test.needsPython)
		}
		for _, flag := range test.flags {
			if !slices.Contains(command, flag) {
				t.Errorf("got %q, want %s in it", command, flag)
			}
		}
	}
}

// TestNoFolder checks that a folder whose name is no path is refused.
func TestNoFolder(t *testing.T) {
	t.Parallel()
	defer func() {
		if recover() == nil {
			t.Error("got a folder called ../a, want a panic")
		}
	}()
	Folder(fstest.MapFS{}, "../a")
}

func TestProgram(t *testing.T) {
	t.Setenv("CI", "true")
	e := &ended{TB: t}
	func() {
		defer func() { _ = recover() }()
		Program(e, "no-such-program-of-the-tests", "its-package")
	}()
	for _, want := range []string{"no-such-program-of-the-tests", "its-package", "make deps"} {
		if !strings.Contains(e.failed, want) {
			t.Errorf("got %q, want %q in it", e.failed, want)
		}
	}
	if e.helpers != 2 { // Program and Skip
		t.Errorf("%d functions are helpers, want 2", e.helpers)
	}
}
