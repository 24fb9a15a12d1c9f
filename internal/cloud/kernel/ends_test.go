//go:build linux

package kernel

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/child"
	"github.com/e2bctl/e2bctl/internal/cloud/kernel/link"
	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// onSend is a link to a process that calls a function in place of sending, and receives one error.
type onSend struct {
	link.Link
	send    func(*link.Command) error
	breach  error
	ended   bool
	stopped bool // closed
}

func (l *onSend) Send(c *link.Command) error              { return l.send(c) }
func (l *onSend) Receive(func(*link.Message) error) error { return l.breach }
func (l *onSend) Ended()                                  { l.ended = true }
func (l *onSend) Close()                                  { l.stopped = true }

// mortal returns an idle kernel whose process has no equal in the operating system. The end of its context calls killed.
func mortal(t *testing.T, killed func(p *process)) (*Kernel, *Client, *[]Event, *process) {
	t.Helper()
	k, c, events := idle(t)
	k.spec.Logger = slog.New(slog.DiscardHandler)
	p := &process{
		kernel: k, ctx: t.Context(), done: make(chan struct{}), checked: make(chan []string, 1),
		process: &os.Process{Pid: 1 << 30}, // no process has this id
	}
	p.cancel = func() { killed(p) }
	k.proc = p
	return k, c, events, p
}

// locksAreFree fails the test if a lock of k is held.
func locksAreFree(t *testing.T, what string, k *Kernel) {
	t.Helper()
	for name, lock := range map[string]*sync.Mutex{"starting": &k.starting, "emitting": &k.emitting, "mu": &k.mu} {
		if !lock.TryLock() {
			t.Fatalf("%s: the lock %s is kept", what, name)
		}
		lock.Unlock()
	}
}

// TestRequestsWithoutAProcess checks the answer to a request whose kernel is closed, whose process is gone before the
// request reaches it, or does not read, and the state of the kernel afterwards.
func TestRequestsWithoutAProcess(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		prepare func(k *Kernel, p *process)
		want    jupyter.ErrorContent
		state   string
		killed  bool
	}{
		"closed": {func(k *Kernel, _ *process) { k.closed = true }, Ended, jupyter.StateRestarting, false},
		"gone while it is asked": {func(k *Kernel, p *process) {
			p.untouched = true
			close(p.done)
			p.link = &onSend{send: func(*link.Command) error {
				k.proc = nil
				return nil
			}}
		}, Died, jupyter.StateRestarting, false},
		"gone with the request": {func(_ *Kernel, p *process) {
			p.link = &onSend{send: func(*link.Command) error {
				close(p.done)
				return nil
			}}
		}, Died, jupyter.StateIdle, false},
		"it does not read": {func(_ *Kernel, p *process) {
			p.link = &onSend{send: func(*link.Command) error {
				close(p.done)
				return unix.EPIPE
			}}
		}, Died, jupyter.StateIdle, true},
	} {
		killed := false
		k, c, events, p := mortal(t, func(*process) { killed = true })
		r := &Request{Header: jupyter.Header{MsgType: "execute_request"}}
		must.Do(t, c.Submit(r))
		if k.next() != r {
			t.Fatal("the request is not the next one")
		}
		k.state = jupyter.StateRestarting
		test.prepare(k, p)
		soon(t, name, func() { k.serve(r) })
		locksAreFree(t, name, k)
		var replies []string
		for _, e := range *events {
			if e.Channel == jupyter.Shell {
				replies = append(replies, string(e.Content))
			}
		}
		want := `{"ename":"` + test.want.Name + `","evalue":"` + test.want.Value + `","execution_count":0,"status":"error","traceback":[]}`
		if diff := cmp.Diff([]string{want}, replies); diff != "" {
			t.Errorf("%s: replies (-want +got):\n%s", name, diff)
		}
		if k.current != nil || k.activity.IsZero() {
			t.Errorf("%s: the request %p still runs, and the last activity was at %v", name, k.current, k.activity)
		}
		if !r.finished() || k.state != test.state || killed != test.killed {
			t.Errorf("%s: the request has ended: %v, the state is %s, the process was killed: %v, want %s and %v", name, r.finished(), k.state, killed, test.state, test.killed)
		}
	}
}

// TestChangedModulesNeedAnotherProcess checks that a forked process with other modules than those of the sandbox is
// replaced before it runs code, and that clients learn nothing about it.
func TestChangedModulesNeedAnotherProcess(t *testing.T) {
	t.Parallel()
	k, _, events, p := mortal(t, func(p *process) {
		go func() {
			for range 100 {
				runtime.Gosched()
			}
			p.kernel.ended(p)
			close(p.done)
		}()
	})
	started := errors.New("the next process")
	k.spec.Environ = func() ([]string, error) { return nil, started }
	p.untouched, p.link = true, &onSend{send: func(*link.Command) error { return nil }}
	p.checked <- []string{"numpy"}
	_, err := k.fresh()
	must.Is(t, err, started)
	locksAreFree(t, "replaced", k)
	if !k.cold || !p.replaced || k.revive || len(*events) > 0 {
		t.Errorf("the next starts cold: %v, the process was replaced: %v, another one starts: %v, events %v", k.cold, p.replaced, k.revive, *events)
	}
	if diff := cmp.Diff(Ended, p.reason); diff != "" {
		t.Errorf("reason (-want +got):\n%s", diff)
	}
}

// TestHowProcessesEnd checks the error and the reason of the end of a process, and that nothing of it is left open.
func TestHowProcessesEnd(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status error // of the process
		memory error
		breach error // of the protocol
		want   string
		reason string
	}{
		"by itself":         {nil, nil, nil, "exit status 0", ""},
		"memory is there":   {&exec.ExitError{ProcessState: &os.ProcessState{}}, nil, nil, "exit status 0", ""},
		"memory ran out":    {&exec.ExitError{ProcessState: &os.ProcessState{}}, child.ErrOutOfMemory, nil, "exit status 0 (out of memory)", "exit status 0 (out of memory)"},
		"it is not known":   {unix.ECHILD, child.ErrOutOfMemory, nil, unix.ECHILD.Error(), ""},
		"against the rules": {nil, nil, errLine, errLine.Error() + "\nexit status 0", ""},
	} {
		var kills int
		k, _, events, p := mortal(t, func(*process) { kills++ })
		l := &onSend{breach: test.breach}
		p.link, p.wait, p.starved = l, func() error { return test.status }, func(*os.ProcessState) error { return test.memory }
		stdio, err := p.openPipes()
		must.Do(t, err)
		for _, f := range stdio {
			must.Do(t, f.Close())
		}
		soon(t, name, p.supervise)
		locksAreFree(t, name, k)
		if p.err == nil || p.err.Error() != test.want || !errors.Is(p.err, test.breach) && test.breach != nil {
			t.Errorf("%s: got error %v, want %s", name, p.err, test.want)
		}
		want := 1 // at the end
		if test.breach != nil {
			want++ // before
		}
		must.Is(t, p.closePipes(), os.ErrClosed)
		if !l.ended || !l.stopped || kills != want || k.proc != nil {
			t.Errorf("%s: the link is told of the end: %v, and closed: %v, and the process was killed %d times, want %d", name, l.ended, l.stopped, kills, want)
		}
		<-p.done
		if len(k.wake) != 1 {
			t.Errorf("%s: the kernel is not woken for the next process", name)
		}
		var status jupyter.StatusContent
		must.Do(t, json.Unmarshal((*events)[0].Content, &status))
		if len(*events) != 1 || status.Reason != test.reason {
			t.Errorf("%s: got the events %+v, want one with the reason %q", name, *events, test.reason)
		}
	}
}

// TestStartsThatFail checks that a start leaves no process if the kernel was closed meanwhile or the process ended, and
// the state of the kernel afterwards.
func TestStartsThatFail(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		command string // after the number of the process is written
		closed  bool
		want    string
	}{
		"closed":        {inPlaceOfDeno, true, ErrClosed.Error()},
		"given up":      {"read -r start; sleep 600", true, "not ready: " + ErrClosed.Error()},
		"not ready":     {"echo reason >&2; exit 3", false, "exit status 3\nreason"},
		"out of bounds": {"echo x; read -r start; sleep 600", false, errLine.Error()},
	} {
		k, _, events := idle(t)
		file := filepath.Join(t.TempDir(), "pid")
		k.spec = Spec{
			Wasm:   &Wasm{Command: []string{"/bin/sh", "-c", "echo $$ >" + file + "\n" + test.command}, Environ: []string{"PATH=" + os.Getenv("PATH")}, Check: func() error { return nil }},
			Logger: slog.New(slog.DiscardHandler), Dir: "/",
		}
		if name == "given up" {
			ended, cancel := context.WithCancel(t.Context())
			k.ctx = ended
			cancel()
		}
		k.spec.Environ = func() ([]string, error) {
			k.mu.Lock()
			defer k.mu.Unlock()
			if k.state != jupyter.StateStarting {
				t.Errorf("%s: the state is %s at the start", name, k.state)
			}
			k.closed = test.closed
			return nil, nil
		}
		var err error
		ctx := patience.Context(t) // an error, not a hang, if nothing else ends the start
		soon(t, name, func() { _, err = k.Start(ctx) })
		locksAreFree(t, name, k)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got error %v, want one with %q", name, err, test.want)
		}
		if text, _ := os.ReadFile(file); len(text) > 0 { // one that is given up may end before it can write
			pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
			must.Do(t, err)
			must.Is(t, unix.Kill(pid, 0), unix.ESRCH)
		}
		if k.proc != nil || k.state != jupyter.StateDead || k.activity.IsZero() || len(*events) > 0 {
			t.Errorf("%s: got the process %p, the state %s and the events %v, want none, dead and none", name, k.proc, k.state, *events)
		}
	}
}

// TestEndsOnRequest checks that a restart and the end of a kernel wait for the end of the process, whose request ends as
// a client asked for, and the state of the kernel afterwards.
func TestEndsOnRequest(t *testing.T) {
	t.Parallel()
	started := errors.New("the next process")
	for name, test := range map[string]struct {
		call   func(k *Kernel) error
		during string // the state
		queued int    // requests that still wait
		want   error
	}{
		"restart": {func(k *Kernel) error { return k.Restart(context.Background()) }, jupyter.StateRestarting, 2, started},
		"close":   {(*Kernel).Close, jupyter.StateBusy, 0, nil},
	} {
		during := ""
		k, c, events, p := mortal(t, func(p *process) {
			during = p.kernel.state
			go func() {
				for range 100 {
					runtime.Gosched()
				}
				p.kernel.ended(p)
				close(p.done)
			}()
		})
		cancelled := false
		k.cancel = func() { cancelled = true }
		k.spec.Environ = func() ([]string, error) { return nil, started }
		all := []*Request{{}, {}, {}}
		for _, r := range all {
			must.Do(t, c.Submit(r))
		}
		running := k.next()
		running.proc, k.state = p, jupyter.StateBusy
		soon(t, name, func() { must.Is(t, test.call(k), test.want) })
		locksAreFree(t, name, k)
		var replies []string
		for _, e := range *events {
			if e.Channel == jupyter.Shell {
				replies = append(replies, string(e.Content))
			}
		}
		if ended := strings.Count(strings.Join(replies, ""), `"`+Ended.Name+`"`); ended != 3-test.queued || len(replies) != ended {
			t.Errorf("%s: got the replies %q, want %d that say so", name, replies, 3-test.queued)
		}
		if during != test.during || k.state != jupyter.StateDead || k.revive {
			t.Errorf("%s: the state was %s and is %s, and another process starts: %v, want %s and dead", name, during, k.state, k.revive, test.during)
		}
		if len(k.queue) != test.queued || k.queueBytes != test.queued*len("{}") {
			t.Errorf("%s: %d requests of %d bytes wait, want %d", name, len(k.queue), k.queueBytes, test.queued)
		}
		if closed := name == "close"; cancelled != closed || k.closed != closed || !running.finished() || all[2].finished() != closed {
			t.Errorf("%s: the kernel is closed: %v, and its requests have ended: %v and %v", name, k.closed, running.finished(), all[2].finished())
		}
	}
}

// TestEndedProcessesLeaveNoFile checks that a process that was started and has ended leaves no open file. It is not parallel,
// because it counts the files of this process.
func TestEndedProcessesLeaveNoFile(t *testing.T) { //nolint:paralleltest // see above
	dir := t.TempDir()
	for name, spec := range map[string]Spec{
		"a driver":       {Python: []string{"sh", "-c", "exec <&3 >&3" + strings.Replace(inPlaceOfDeno, "read -r start", "", 1)}, Driver: filepath.Join(dir, "driver.py")},
		"in WebAssembly": {Wasm: &Wasm{Command: []string{"/bin/sh", "-c", inPlaceOfDeno}, Environ: []string{"PATH=" + os.Getenv("PATH")}, Check: func() error { return nil }}},
	} {
		spec.Dir, spec.Logger = dir, slog.New(slog.DiscardHandler)
		spec.Environ = func() ([]string, error) { return []string{"PATH=" + os.Getenv("PATH")}, nil }
		before := openFiles(t)
		k := New(spec)
		info, err := k.Start(t.Context())
		must.Do(t, err)
		must.Do(t, k.Close())
		if left := openFiles(t) - before; left != 0 || info.Engine != "fake" {
			t.Errorf("%s: %d files are left open by %+v", name, left, info)
		}
	}
}
