//go:build unix

package localcloud

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/fdtest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/privatedir"
)

var testRecord = Record{URL: "http://127.0.0.1:3999", Key: "e2b_key", Isolation: "full", Env: []string{"E2B_API_KEY=e2b_key"}}

// asks are the questions to this binary as a process of another container.
var asks = map[string]func(io.Writer) error{}

// TestMain lets this binary be another process that is the local cloud: a
// process cannot see the lock that it holds itself.
func TestMain(m *testing.M) {
	if asked := asks[os.Getenv("LOCALCLOUD_TEST_ASK")]; asked != nil {
		if err := asked(os.Stdout); err != nil {
			panic(err)
		}
		return
	}
	if len(os.Args) > 2 && os.Args[1] == "local" && os.Args[2] == "up" {
		if err := localUp(os.Args); err != nil {
			panic(err)
		}
		return
	}
	dir := os.Getenv("LOCALCLOUD_TEST_DIR")
	if dir == "" {
		m.Run()
		return
	}
	place := Place{dir: dir}
	release, err := place.Claim()
	if err == nil && os.Getenv("LOCALCLOUD_TEST_PUBLISH") != "" {
		if err = place.Publish(testRecord); err == nil {
			_, err = os.Stat(place.recordFile())
		}
	}
	if err != nil {
		panic(err)
	}
	if os.Getenv("LOCALCLOUD_TEST_STAYS") != "" {
		signal.Ignore(syscall.SIGTERM)
	}
	defer release()
	_, _ = os.Stdout.WriteString("ready\n")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// startOther starts another process that is the local cloud of place; it ends
// with the test or when it is told to.
func startOther(t *testing.T, place Place, env ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(append(os.Environ(), "LOCALCLOUD_TEST_DIR="+place.dir), env...)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	must.Do(t, err)
	stdout, err := cmd.StdoutPipe()
	must.Do(t, err)
	must.Do(t, cmd.Start())
	ended := make(chan struct{})
	t.Cleanup(func() {
		stdin.Close()
		<-ended
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	go func() {
		defer close(ended)
		_ = cmd.Wait() // also after a signal
	}()
	if line != "ready\n" {
		t.Fatalf("the other process says %q (%v), want ready", line, err)
	}
}

func TestNoCloud(t *testing.T) {
	t.Parallel()
	place := Place{dir: t.TempDir()}
	if _, err := place.Read(); !errors.Is(err, ErrNone) {
		t.Errorf("Read: %v, want ErrNone", err)
	}
	if found, err := place.End(t.Context()); found || err != nil {
		t.Errorf("End = %v, %v, want false without an error", found, err)
	}
	// The record of a killed one.
	must.Do(t, place.Publish(testRecord))
	if _, err := place.Read(); !errors.Is(err, ErrNone) {
		t.Errorf("Read of a record without a process: %v, want ErrNone", err)
	}
}

func TestConflictWithoutDomain(t *testing.T) {
	t.Parallel()
	const want = "a local cloud already runs at http://127.0.0.1:3999; end it with e2bctl local down, or start one beside it with a --state-dir and a --port of its own"
	if got := (&ConflictError{URL: "http://127.0.0.1:3999"}).Error(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestRunningCloud(t *testing.T) {
	t.Parallel()
	place := Place{dir: t.TempDir()}
	startOther(t, place, "LOCALCLOUD_TEST_PUBLISH=1")
	got, err := place.Read()
	must.Do(t, err)
	if diff := cmp.Diff(testRecord, got); diff != "" {
		t.Errorf("the record (-want +got):\n%s", diff)
	}
	_, err = place.Claim()
	if conflict, ok := errors.AsType[*ConflictError](err); !ok || conflict.URL != testRecord.URL {
		t.Errorf("Claim: %v, want a conflict with %s", err, testRecord.URL)
	}
	for _, port := range []uint16{0, 3999} {
		got, found, err := place.Background(t.Context(), Settings{Port: port})
		if diff := cmp.Diff(testRecord, got); diff != "" || !found || err != nil {
			t.Errorf("Background on port %d: found %v, %v, the record (-want +got):\n%s", port, found, err, diff)
		}
	}
	for _, other := range []Settings{{Port: 999}, {Domain: "cloud.test"}} {
		_, _, err = place.Background(t.Context(), other)
		if conflict, ok := errors.AsType[*ConflictError](err); !ok || conflict.URL != testRecord.URL {
			t.Errorf("Background of %+v: %v, want a conflict with %s", other, err, testRecord.URL)
		}
	}

	must.Do(t, os.WriteFile(place.recordFile(), []byte("{"), 0o600))
	if _, err := place.Read(); err == nil || !strings.Contains(err.Error(), "is damaged") {
		t.Errorf("Read of a damaged record: %v, want an error that says so", err)
	}

	if found, err := place.End(t.Context()); !found || err != nil {
		t.Fatalf("End = %v, %v, want true without an error", found, err)
	}
	release, err := place.Claim()
	if err != nil {
		t.Fatalf("Claim after End: %v", err)
	}
	if _, err := os.Stat(place.recordFile()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after Claim the old record is still there: %v", err)
	}
	must.Do(t, place.Publish(testRecord))
	release()
	if _, err := os.Stat(place.recordFile()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after the release the record is still there: %v", err)
	}
	if open := fdtest.Open(t, place.dir); len(open) > 0 {
		t.Errorf("%q are open, want none", open)
	}
}

// TestRecordThatCannotBeWritten checks that a record with a time that JSON does not have is an error, and is not written.
func TestRecordThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	place := Place{dir: t.TempDir()}
	if err := place.Publish(Record{Since: time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)}); err == nil {
		t.Error("the year 10000 was written")
	}
	if entries, err := os.ReadDir(place.dir); err != nil || len(entries) > 0 {
		t.Errorf("got %v and error %v, want an empty directory", entries, err)
	}
}

// TestPlaceWithoutALock checks that every function reports that the lock of a place cannot be opened.
func TestPlaceWithoutALock(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	t.Setenv("TMPDIR", t.TempDir())
	good, err := Find()
	must.Do(t, err)
	own := good.beside("/state")
	must.Do(t, os.MkdirAll(filepath.Join(own.dir, "cloud.lock"), 0o700))
	for what, err := range map[string]error{
		"FindFor": second(FindFor("/state")), "FindFree": second(FindFree(t.Context(), "/state")), "Beside": second(good.Beside()),
		"Running": second(Running()), "choose": second(choose(good, own)), "choose own": second(choose(own, good)),
	} {
		if !errors.Is(err, syscall.EISDIR) {
			t.Errorf("%s with a bad place beside: got error %v, want %v", what, err, syscall.EISDIR)
		}
	}
	must.Do(t, os.Remove(filepath.Join(good.dir, "cloud.lock")))
	must.Do(t, os.Mkdir(filepath.Join(good.dir, "cloud.lock"), 0o700))
	_, _, logErr := LogFile("")
	_, _, backgroundErr := good.Background(t.Context(), Settings{})
	for what, err := range map[string]error{
		"Read": second(good.Read()), "Claim": second(good.Claim()), "End": second(good.End(t.Context())), "waitEnded": good.waitEnded(t.Context(), 0),
		"Find": second(Find()), "FindFor": second(FindFor("")), "FindFor state": second(FindFor("/other")), "FindFree": second(FindFree(t.Context(), "/other")),
		"Running": second(Running()), "LogFile": logErr, "Background": backgroundErr,
	} {
		if !errors.Is(err, syscall.EISDIR) {
			t.Errorf("%s: got error %v, want %v", what, err, syscall.EISDIR)
		}
	}
}

// TestOthers checks that only a place that shares its directory has a note about the other container.
func TestOthers(t *testing.T) {
	t.Parallel()
	place := Place{dir: t.TempDir()}
	if note, err := place.Others(), second(place.Read()); note != "" || err != ErrNone { //nolint:errorlint // without a note
		t.Errorf("got the note %q and error %v, want none and %v alone", note, err, ErrNone)
	}
	place.others = "/shared"
	err := second(place.Read())
	must.Is(t, err, ErrNone)
	if note := place.Others(); !strings.HasPrefix(note, "the local cloud in /shared is another container's") || !strings.HasSuffix(err.Error(), "; "+note) {
		t.Errorf("got the note %q and error %v, want the note in the error", note, err)
	}
}

// A cloud that starts or ends holds its place and has no record.
func TestStartingCloud(t *testing.T) {
	t.Parallel()
	place := Place{dir: t.TempDir()}
	startOther(t, place)
	if _, err := place.Read(); !errors.Is(err, ErrNone) {
		t.Errorf("Read: %v, want ErrNone", err)
	}
	_, err := place.Claim()
	if conflict, ok := errors.AsType[*ConflictError](err); !ok || conflict.URL != "" {
		t.Errorf("Claim: %v, want a conflict without an address", err)
	}
	if open := fdtest.Open(t, place.dir); len(open) > 0 {
		t.Errorf("%q are open, want none", open)
	}
	must.Do(t, os.Mkdir(place.recordFile(), 0o700))
	if _, err := place.Read(); !errors.Is(err, syscall.EISDIR) {
		t.Errorf("Read of a directory: %v, want %v", err, syscall.EISDIR)
	}
}

// TestWaitsForACloud checks how long commands wait for a cloud that starts, and for one that does not end.
func TestWaitsForACloud(t *testing.T) {
	t.Parallel()
	none, place := Place{dir: t.TempDir()}, Place{dir: t.TempDir()}
	startOther(t, place, "LOCALCLOUD_TEST_STAYS=1")
	errStop := errors.New("enough")
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		short, cancel := context.WithTimeoutCause(t.Context(), time.Second, errStop)
		defer cancel()
		must.Is(t, second(none.await(short)), ErrNone)
		must.Do(t, none.waitEnded(short, os.Getpid()))
		if took := time.Since(begun); took != 0 {
			t.Errorf("without a cloud it took %v, want no wait", took)
		}
		conflict, ok := errors.AsType[*ConflictError](second(place.await(t.Context())))
		if took := time.Since(begun); !ok || *conflict != (ConflictError{}) || took != startWait {
			t.Errorf("a cloud that starts: got %v after %v, want a conflict after %v", conflict, took, startWait)
		}
		<-short.Done()
		must.Is(t, second(place.await(short)), errStop)
		begun = time.Now()
		found, err := place.End(t.Context())
		if took := time.Since(begun); !found || !errors.Is(err, context.DeadlineExceeded) || took != endWait {
			t.Errorf("the end: found %v, got %v after %v, want a deadline after %v", found, err, took, endWait)
		}
	})
}

func TestFind(t *testing.T) {
	runtime, home := filepath.Join(t.TempDir(), "runtime"), t.TempDir()
	must.Do(t, os.Mkdir(runtime, 0o700))
	t.Setenv("XDG_RUNTIME_DIR", runtime)
	t.Setenv("HOME", home)
	t.Setenv("XDG_CACHE_HOME", "")
	cache, err := os.UserCacheDir()
	must.Do(t, err)
	for _, tt := range []struct {
		mode os.FileMode // of the runtime directory
		base string
	}{
		{0o700, runtime},
		{0o777, cache}, // others could write to it
	} {
		must.Do(t, os.Chmod(runtime, tt.mode))
		place, err := Find()
		must.Do(t, err)
		if want := filepath.Join(tt.base, "e2bctl", "local"); place.dir != want {
			t.Errorf("with a runtime directory of mode %v it is %s, want %s", tt.mode, place.dir, want)
		}
		must.Do(t, os.Chmod(place.dir, 0o770))
		if _, err := Find(); err == nil {
			t.Errorf("%s can be written to by others and is accepted", place.dir)
		}
	}
}

// TestFindAmongTwo checks that a local cloud in the directory for temporary files is found, unless there is one at the
// usual place, and that the usual place is found if the directory for temporary files is not usable.
func TestFindAmongTwo(t *testing.T) {
	runtime, tmp := t.TempDir(), t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", runtime)
	t.Setenv("TMPDIR", tmp)
	usual, err := Find()
	must.Do(t, err)
	own, err := findIn(privatedir.Temporary)
	must.Do(t, err)
	if want := (Place{dir: filepath.Join(runtime, "e2bctl", "local")}); usual != want || filepath.Dir(filepath.Dir(own.dir)) != tmp {
		t.Fatalf("got %v and %v, want %v and a place in %s", usual, own, want, tmp)
	}
	for _, place := range []Place{own, usual} { // the second has precedence
		startOther(t, place)
		if got, err := Find(); err != nil || got != place {
			t.Errorf("got %v and error %v, want %v", got, err, place)
		}
	}
}

// TestFindWithoutDirectories checks that Find needs no directory for temporary files, and that every function reports that
// there is no directory at all.
func TestFindWithoutDirectories(t *testing.T) {
	runtime, here := t.TempDir(), t.TempDir()
	t.Chdir(here)
	t.Setenv("XDG_RUNTIME_DIR", runtime)
	t.Setenv("TMPDIR", filepath.Join(here, "none"))
	if got, err := Find(); err != nil || got.dir != filepath.Join(runtime, "e2bctl", "local") {
		t.Errorf("got %v and error %v, want the place in %s", got, err, runtime)
	}
	t.Setenv("XDG_RUNTIME_DIR", "")
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("HOME", "")
	_, _, logErr := LogFile("")
	for what, err := range map[string]error{
		"Find": second(Find()), "FindFor": second(FindFor("/state")), "FindFree": second(FindFree(t.Context(), "/state")), "Running": second(Running()), "LogFile": logErr,
	} {
		if err == nil || !strings.HasPrefix(err.Error(), "the address and key of a local cloud: no directory can be made: ") {
			t.Errorf("%s: got error %v, want that no directory can be made", what, err)
		}
	}
	if entries, err := os.ReadDir(here); err != nil || len(entries) > 0 {
		t.Errorf("got %v and error %v, want nothing in the current directory", entries, err)
	}
}

// TestLastingDirectories checks the directories for the state and for the authorities, and what is said of others.
func TestLastingDirectories(t *testing.T) {
	state, runtime, file := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "file")
	must.Do(t, os.WriteFile(file, nil, 0o600))
	for name, directory := range map[string]func() (string, string, error){"cloud": StateDir, "tls": AuthorityDir} {
		t.Setenv("XDG_STATE_HOME", state)
		t.Setenv("XDG_RUNTIME_DIR", runtime)
		if dir, note, err := directory(); err != nil || dir != filepath.Join(state, "e2bctl", name) || note != "" {
			t.Errorf("got %q, note %q and error %v, want %s in %s", dir, note, err, name, state)
		}
		t.Setenv("XDG_STATE_HOME", file)
		if dir, note, err := directory(); err != nil || dir != filepath.Join(runtime, "e2bctl", name) || !strings.Contains(note, "XDG_STATE_HOME") {
			t.Errorf("got %q, note %q and error %v, want %s in %s and a note", dir, note, err, name, runtime)
		}
		t.Setenv("XDG_RUNTIME_DIR", "")
		t.Setenv("TMPDIR", file)
		if dir, note, err := directory(); dir != "" || note != "" || err == nil || !strings.Contains(err.Error(), " of a local cloud: no directory can be made: ") {
			t.Errorf("%s: got %q, note %q and error %v, want an error that says what it is for", name, dir, note, err)
		}
	}
}
