//go:build linux

package envd

import (
	"errors"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/pty"
	"github.com/e2bctl/e2bctl/internal/gen/filesystem"
	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// TestResultsOfEndedProcesses checks for how long the result of a process stays, how many results do,
// and that a process whose pid another one already has does not take that away.
func TestResultsOfEndedProcesses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ps := newProcesses(nil, slog.New(slog.DiscardHandler))
		output, _ := newOutput(ps.kept)
		old, next := &running{pid: 7, output: output, end: &process.ProcessEvent_EndEvent{ExitCode: 3}}, &running{pid: 7}
		ps.live[7] = next
		ps.retire(old, false)
		if ps.live[7] != next {
			t.Error("the process that has the pid now cannot be found")
		}
		time.Sleep(retention) //nolint:forbidigo // in a bubble, whose clock it moves
		if got, err := ps.findRetired(byPid(7)); err != nil || got.end.GetExitCode() != 3 {
			t.Errorf("after %v: got %+v and error %v, want the result", retention, got, err)
		}
		time.Sleep(time.Nanosecond) //nolint:forbidigo // in a bubble, whose clock it moves
		if got, err := ps.findRetired(byPid(7)); err == nil {
			t.Errorf("later: got %+v, want none", got)
		}
		for pid := range uint32(maxRetired + 5) {
			ps.retire(&running{pid: pid, output: output, end: old.end}, false)
		}
		if len(ps.retired) != maxRetired || ps.retired[0].pid != 5 {
			t.Errorf("got %d results from that of %d on, want the newest %d", len(ps.retired), ps.retired[0].pid, maxRetired)
		}
	})
}

// TestPidInUseAgain checks that a pid names the process that has it now, not an ended one.
func TestPidInUseAgain(t *testing.T) {
	t.Parallel()
	d := serve(t)
	first := d.run(t, shell("true"))
	ps := d.server.processes
	output, _ := newOutput(newBudget())
	ps.mu.Lock()
	for pid := range uint32(5000) { // one of them is the next
		ps.retired = append(ps.retired, retired{was: &running{output: output}, pid: first.pid + 1 + pid, at: time.Now()})
	}
	ps.mu.Unlock()
	s, pid := d.begin(t, connect.NewRequest(shell("sleep 60")))
	defer s.Close()
	if got, err := ps.findRetired(byPid(pid)); err == nil {
		t.Errorf("got %+v for a process that runs", got)
	}
}

// TestTerminalThatFails checks that neither side of a terminal that cannot be used stays open.
func TestTerminalThatFails(t *testing.T) {
	t.Parallel()
	for _, broken := range []string{"controller", "tty"} {
		controller, tty, err := pty.Open()
		must.Do(t, err)
		l := &launch{
			user: &User{}, pty: &process.PTY{Size: &process.PTY_Size{Cols: 1, Rows: 1}},
			terminal: func() (*os.File, *os.File, error) { return controller, tty, nil },
		}
		if broken == "controller" {
			must.Do(t, controller.Close())
		} else {
			must.Do(t, tty.Close())
			l.user.Credential = &syscall.Credential{} // so that the terminal is given to the user
		}
		if _, _, err := l.openTerminal(); err == nil {
			t.Errorf("the %s is closed: got no error", broken)
		}
		for name, side := range map[string]*os.File{"controller": controller, "tty": tty} {
			if _, err := side.Stat(); !errors.Is(err, os.ErrClosed) {
				t.Errorf("the %s is closed: the %s: got error %v, want it to be closed", broken, name, err)
			}
		}
	}
}

// TestFindKept checks that an id alone selects a process, whatever the selector says, and that a selector
// without an id never selects an ended process whose pid another one has.
func TestFindKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ps := newProcesses(nil, slog.New(slog.DiscardHandler))
		output, _ := newOutput(ps.kept)
		runs := &running{pid: 7, id: "runs", output: output}
		ps.live[7] = runs
		replaced := &running{pid: 7, id: "replaced", output: output}
		ended := &running{pid: 8, id: "ended", output: output}
		nameless := &running{pid: 9, output: output}
		for _, r := range []*running{replaced, ended, nameless} {
			ps.retire(r, false)
		}
		ps.retired[0].replaced = true
		check := func(s *process.ProcessSelector, id string, want *running) {
			t.Helper()
			if got, err := ps.findKept(s, id); got != want || (err == nil) != (want != nil) {
				t.Errorf("%v and id %q: got %+v and error %v, want %+v", s, id, got, err, want)
			}
		}
		check(byPid(8), "runs", runs)
		check(byPid(7), "replaced", replaced)
		check(byPid(7), "ended", ended)
		check(&process.ProcessSelector{}, "ended", ended)
		check(byPid(7), "another", nil)
		check(byPid(9), "another", nil)
		check(byPid(7), "", runs)
		check(byPid(8), "", ended)
		check(byPid(9), "", nameless)
		delete(ps.live, 7)
		check(byPid(7), "", nil)
		time.Sleep(keptFor) //nolint:forbidigo // in a bubble, whose clock it moves
		check(byPid(7), "ended", ended)
		check(byPid(8), "", ended)
		time.Sleep(time.Nanosecond) //nolint:forbidigo // in a bubble, whose clock it moves
		check(byPid(7), "ended", nil)
		check(byPid(8), "", nil)
	})
}

// TestLengthOfAForm checks that only the first file of a form may be as long as the form: a second one
// is not refused for the room that the form would take.
func TestLengthOfAForm(t *testing.T) {
	t.Parallel()
	d := serve(t)
	target := &fileTarget{user: d.server.users.fallback, length: 1 << 62}
	if _, err := d.server.receiveFile(strings.NewReader("x"), target, "a", nil); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("the first file: got error %v, want %v", err, syscall.ENOSPC)
	}
	if file, err := d.server.receiveFile(strings.NewReader("x"), target, "b", nil); err != nil || file.Name != "b" {
		t.Errorf("the second file: got %+v and error %v, want it to be stored", file, err)
	}
}

// TestRefusedWatchers checks that a watcher that cannot be made takes no place.
func TestRefusedWatchers(t *testing.T) {
	t.Parallel()
	d := serve(t)
	for range maxWatchers + 1 {
		if _, err := d.files().CreateWatcher(t.Context(), connect.NewRequest(&filesystem.CreateWatcherRequest{Path: "none"})); connect.CodeOf(err) != connect.CodeNotFound {
			t.Fatalf("got error %v, want one of a directory that is not there", err)
		}
	}
}

// TestKeptEventsGo checks that events that were not fetched are kept no longer than their watcher.
func TestKeptEventsGo(t *testing.T) {
	t.Parallel()
	d := serve(t)
	made, err := d.files().CreateWatcher(t.Context(), connect.NewRequest(&filesystem.CreateWatcherRequest{Path: "."}))
	must.Do(t, err)
	put(t, d.home+"/a", "")
	patience.Until(t, "an event to be kept", func() bool { return d.server.watchers.kept.Load() > 0 })
	_, err = d.files().RemoveWatcher(t.Context(), connect.NewRequest(&filesystem.RemoveWatcherRequest{WatcherId: made.Msg.GetWatcherId()}))
	must.Do(t, err)
	patience.Until(t, "no event to be kept", func() bool { return d.server.watchers.kept.Load() == 0 })
}

// TestWatchIsBounded checks the bounds of the directories and of the remembered files of a watch, and
// that it forgets files below a directory that has moved.
func TestWatchIsBounded(t *testing.T) {
	t.Parallel()
	d := serve(t)
	w, err := d.server.newWatch(d.home, &filesystem.WatchDirRequest{Path: d.home, Recursive: true})
	must.Do(t, err)
	defer func() { must.Do(t, w.close()) }()
	must.Do(t, os.MkdirAll(d.home+"/a/b", 0o700))
	put(t, d.home+"/a/file", "")
	must.Do(t, w.add(d.home+"/a", nil))
	w.reported[d.home+"/a/file"] = inode{}
	w.forget(d.home+"/a", true)
	if len(w.dirs)+len(w.reported) > 0 || len(w.notify.dirs) != 1 {
		t.Errorf("after the move of a directory: %v, %v and %v are known, want the root alone", w.dirs, w.reported, w.notify.dirs)
	}
	for n := range maxReported {
		w.reported[strconv.Itoa(n)] = inode{}
	}
	must.Do(t, w.created(d.home+"/a", func(string, filesystem.EventType) error { return nil }))
	if len(w.reported) != 2 {
		t.Errorf("%d files are remembered, want the newest", len(w.reported))
	}
	for before, want := range map[int]error{maxWatchedDirs - 1: nil, maxWatchedDirs: errTooManyDirs} {
		clear(w.dirs)
		for n := range before {
			w.dirs[strconv.Itoa(n)] = true
		}
		if err := w.add(d.home+"/a/b", nil); !errors.Is(err, want) {
			t.Errorf("one directory after %d: got error %v, want %v", before, err, want)
		}
	}
}

// TestSizeOfATerminal checks which size a terminal gets, and that without a size it keeps the one that it has.
func TestSizeOfATerminal(t *testing.T) {
	t.Parallel()
	controller, tty, err := pty.Open()
	must.Do(t, err)
	defer func() { must.Do(t, errors.Join(tty.Close(), controller.Close())) }()
	for _, tt := range []struct {
		size *process.PTY_Size
		want [2]uint16
	}{
		{&process.PTY_Size{Rows: 24, Cols: 80}, [2]uint16{24, 80}}, {nil, [2]uint16{24, 80}}, {&process.PTY_Size{Rows: 65535, Cols: 65536}, [2]uint16{65535, 65535}},
		{&process.PTY_Size{Rows: 1 << 31, Cols: 1}, [2]uint16{65535, 1}}, {&process.PTY_Size{}, [2]uint16{0, 0}},
	} {
		must.Do(t, resizeTerminal(controller, tt.size))
		got, err := unix.IoctlGetWinsize(int(tty.Fd()), unix.TIOCGWINSZ)
		if err != nil || got.Row != tt.want[0] || got.Col != tt.want[1] {
			t.Errorf("%v: got %+v and error %v, want %d rows and %d columns", tt.size, got, err, tt.want[0], tt.want[1])
		}
	}
}
