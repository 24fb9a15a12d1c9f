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
)

// onSend is a link to a process that calls a function for what it is to send, and receives one error.
type onSend struct {
	link.Link
	send    func() error
	breach  error
	ended   bool
	stopped bool // closed
}

func (l *onSend) Send(*link.Command) error                { return l.send() }
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
			p.link = &onSend{send: func() error {
				k.proc = nil
				return nil
			}}
		}, Died, jupyter.StateRestarting, false},
		"gone with the request": {func(_ *Kernel, p *process) {
			p.link = &onSend{send: func() error {
				close(p.done)
				return nil
			}}
		}, Died, jupyter.StateIdle, false},
		"it does not read": {func(_ *Kernel, p *process) {
			p.link = &onSend{send: func() error {
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
				var reply jupyter.ExecuteReply
				must.Do(t, json.Unmarshal(e.Content, &reply))
				replies = append(replies, reply.Name)
			}
		}
		if diff := cmp.Diff([]string{test.want.Name}, replies); diff != "" {
			t.Errorf("%s: replies (-want +got):\n%s", name, diff)
		}
		if !r.finished() || k.current != nil || k.state != test.state || killed != test.killed || k.activity.IsZero() {
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
	p.untouched, p.link = true, &onSend{send: func() error { return nil }}
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
		"not ready":     {"echo reason >&2; exit 3", false, "exit status 3\nreason"},
		"out of bounds": {"echo x; read -r start; sleep 600", false, errLine.Error()},
	} {
		k, _, events := idle(t)
		file := filepath.Join(t.TempDir(), "pid")
		k.spec = Spec{
			Wasm:   &Wasm{Command: []string{"/bin/sh", "-c", "echo $$ >" + file + "\n" + test.command}, Environ: []string{"PATH=" + os.Getenv("PATH")}, Check: func() error { return nil }},
			Logger: slog.New(slog.DiscardHandler), Dir: "/",
		}
		k.spec.Environ = func() ([]string, error) {
			k.mu.Lock()
			defer k.mu.Unlock()
			k.closed = test.closed
			return nil, nil
		}
		var err error
		soon(t, name, func() { _, err = k.Start(context.WithoutCancel(t.Context())) })
		locksAreFree(t, name, k)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got error %v, want one with %q", name, err, test.want)
		}
		text, err := os.ReadFile(file)
		must.Do(t, err)
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		must.Do(t, err)
		must.Is(t, unix.Kill(pid, 0), unix.ESRCH)
		if k.proc != nil || k.state != jupyter.StateDead || k.activity.IsZero() || len(*events) > 0 {
			t.Errorf("%s: got the process %p, the state %s and the events %v, want none, dead and none", name, k.proc, k.state, *events)
		}
	}
}
