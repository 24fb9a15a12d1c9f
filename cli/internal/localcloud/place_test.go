//go:build unix

package localcloud

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/fdtest"
	"github.com/e2bctl/e2bctl/internal/must"
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
