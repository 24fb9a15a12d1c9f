//go:build unix

package localcloud

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/fdtest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// modeFile is the file in a place with the behaviour of this binary as the local cloud in the background.
const modeFile = "mode"

// localUp is the program that startBackground starts: the local cloud of the place with its log.
func localUp(args []string) error {
	place := Place{dir: filepath.Dir(args[slices.Index(args, "--log")+1])}
	mode, err := os.ReadFile(filepath.Join(place.dir, modeFile))
	if err != nil {
		return err
	}
	time.AfterFunc(2*patience.Limit, func() { panic("its test has ended without it") })
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM)
	fmt.Fprintln(os.Stderr, os.Getpid()) // to the log
	switch string(mode) {
	case "tells":
		TellFailure(os.Stdout, "no room")
	case "logs":
		TellFailure(os.Stderr, "local up: no port")
	case "garbles":
		_, err = io.WriteString(os.Stdout, "no JSON\n")
	case "waits":
		<-asked
	case "waits and tells":
		<-asked
		TellFailure(os.Stdout, "too late")
	default:
		err = runUntil(asked, place, args)
	}
	return err
}

// runUntil is the local cloud of place until it is asked to end. Its record contains what it was started with.
func runUntil(asked <-chan os.Signal, place Place, args []string) error {
	release, err := place.Claim()
	if err != nil {
		return err
	}
	defer release()
	session, err := unix.Getsid(0)
	if err != nil {
		return err
	}
	directory, err := os.Getwd()
	if err != nil {
		return err
	}
	record := Record{PID: os.Getpid(), Env: args, State: directory, Isolation: fmt.Sprint("own session: ", session == os.Getpid())}
	if err := errors.Join(place.Publish(record), json.NewEncoder(os.Stdout).Encode(record)); err != nil {
		return err
	}
	<-asked
	signal.Ignore(syscall.SIGPIPE)
	_, err = io.WriteString(os.Stdout, "more\n")
	fmt.Fprintln(os.Stderr, err)
	return nil
}

// inMode returns a place in which a local cloud in the background does as mode says.
func inMode(t *testing.T, mode string) Place {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must.Do(t, err)
	must.Do(t, os.WriteFile(filepath.Join(dir, modeFile), []byte(mode), 0o600))
	return Place{dir: dir}
}

// loggedPID waits until the local cloud in the background has begun. It returns the ID of its process.
func loggedPID(t *testing.T, place Place) (pid int) {
	t.Helper()
	patience.Until(t, "the local cloud has begun", func() bool {
		text, _ := os.ReadFile(place.logFile())
		line, _, whole := strings.Cut(string(text), "\n")
		pid, _ = strconv.Atoi(line)
		return whole
	})
	return pid
}

// checkGone checks that this process has waited for the process pid, and has no file of place open.
func checkGone(t *testing.T, place Place, pid int) {
	t.Helper()
	if _, err := unix.Wait4(pid, nil, unix.WNOHANG, nil); !errors.Is(err, unix.ECHILD) {
		t.Errorf("waiting for process %d: got %v, want %v", pid, err, unix.ECHILD)
	}
	if open := fdtest.Open(t, place.dir); len(open) > 0 {
		t.Errorf("%q are open, want none", open)
	}
}

// TestBackground checks the arguments, the session and the directory of a local cloud in the background, that it is
// found and ended, and that nothing of it stays open here.
func TestBackground(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		settings Settings
		args     []string // after those that are always there
	}{
		"all": {
			Settings{Port: 3999, Domain: "cloud.test", State: "/state", Ephemeral: true, Engine: "room", Idle: 90 * time.Second, Flags: []string{"--ask", "-v"}},
			[]string{"--domain", "cloud.test", "--state-dir", "/state", "--ephemeral", "--engine", "room", "--idle", "1m30s", "--ask", "-v"},
		},
		"none": {Settings{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			place := inMode(t, "runs")
			ctx, cancel := context.WithCancel(t.Context())
			record, found, err := place.Background(ctx, tt.settings)
			cancel() // which ends the start, and not the cloud
			must.Do(t, err)
			pid := record.PID
			port := strconv.Itoa(int(tt.settings.Port))
			want := Record{
				Env: append([]string{os.Args[0], "local", "up", "--output", "json", "--port", port, "--log", place.logFile()}, tt.args...),
				PID: pid, State: place.dir, Isolation: "own session: true",
			}
			if diff := cmp.Diff(want, record); found || diff != "" {
				t.Errorf("found %v, the record (-want +got):\n%s", found, diff)
			}
			again, found, err := place.Background(t.Context(), Settings{})
			if diff := cmp.Diff(want, again); !found || err != nil || diff != "" {
				t.Errorf("the second time: found %v, %v, the record (-want +got):\n%s", found, err, diff)
			}
			if found, err := place.End(t.Context()); !found || err != nil {
				t.Errorf("End = %v, %v, want true without an error", found, err)
			}
			process, err := os.FindProcess(pid)
			must.Do(t, err)
			if state, err := process.Wait(); err != nil || !state.Success() {
				t.Errorf("the cloud ended with %v, %v, want success", state, err)
			}
			if log, err := os.ReadFile(place.logFile()); err != nil || !strings.Contains(string(log), "broken pipe") {
				t.Errorf("got the log %q, %v, want that nobody reads the output of the cloud", log, err)
			}
			checkGone(t, place, pid)
		})
	}
}

// TestBackgroundThatFails checks that the reason of a start that fails is reported, and that nothing of it is left.
func TestBackgroundThatFails(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]string{
		"tells": "starting a local cloud in the background: no room", "logs": "starting a local cloud in the background: no port",
		"garbles": "reading the address and key of the local cloud: invalid character",
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			place := inMode(t, mode)
			record, found, err := place.Background(t.Context(), Settings{})
			if diff := cmp.Diff(Record{}, record); found || diff != "" || err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("found %v, got error %v, want %q; the record (-want +got):\n%s", found, err, want, diff)
			}
			pid := loggedPID(t, place)
			checkGone(t, place, pid)
		})
	}
}

// TestBackgroundMeanwhile checks that a start that fails finds the cloud that another command started meanwhile, and
// that a start that was cancelled does not.
func TestBackgroundMeanwhile(t *testing.T) {
	t.Parallel()
	errStop := errors.New("enough")
	for mode, want := range map[string]error{"waits and tells": nil, "waits": errStop} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			place := inMode(t, mode)
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			type result struct {
				record Record
				found  bool
				err    error
			}
			results := make(chan result, 1)
			go func() {
				record, found, err := place.Background(ctx, Settings{})
				results <- result{record, found, err}
			}()
			pid := loggedPID(t, place)
			startOther(t, place, "LOCALCLOUD_TEST_PUBLISH=1")
			wanted := testRecord
			if want != nil {
				cancel(want)
				wanted = Record{}
			} else {
				must.Do(t, syscall.Kill(pid, syscall.SIGTERM))
			}
			got := patience.Receive(t, "the end of the start", results)
			if diff := cmp.Diff(wanted, got.record); diff != "" || got.found != (want == nil) || !errors.Is(got.err, want) {
				t.Errorf("found %v, got error %v, want %v; the record (-want +got):\n%s", got.found, got.err, want, diff)
			}
			checkGone(t, place, pid)
		})
	}
}

// TestBackgroundThatCannotStart checks that a program which the system does not start, and a log that cannot be
// written, are errors with the system's reason.
func TestBackgroundThatCannotStart(t *testing.T) {
	t.Parallel()
	place := Place{dir: t.TempDir()}
	_, err := place.startBackground(t.Context(), Settings{Flags: []string{"--a\x00b"}})
	if !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), "starting a local cloud in the background: ") {
		t.Errorf("got error %v, want %v", err, syscall.EINVAL)
	}
	if open := fdtest.Open(t, place.dir); len(open) > 0 {
		t.Errorf("%q are open, want none", open)
	}
	must.Do(t, os.Remove(place.logFile()))
	must.Do(t, os.Mkdir(place.logFile(), 0o700))
	must.Is(t, second(place.startBackground(t.Context(), Settings{})), syscall.EISDIR)
}
