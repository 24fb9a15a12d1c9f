//go:build linux

package kernel

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/child"
	"github.com/e2bctl/e2bctl/internal/cloud/kernel/link"
	"github.com/e2bctl/e2bctl/internal/cloud/kernel/zmq"
	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestInterruptedRequestIsNotSent checks that a request that was interrupted while its process started never
// reaches the process, and that it fails with a KeyboardInterrupt.
func TestInterruptedRequestIsNotSent(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"execute_request", "complete_request", "inspect_request"} {
		k, c, events := idle(t)
		k.spec.Logger = slog.New(slog.DiscardHandler)
		var sent []string
		k.proc = &process{kernel: k, link: sentTo{sent: &sent}, ctx: t.Context(), done: make(chan struct{})}
		close(k.proc.done) // the end of a request that is sent
		r := &Request{Header: jupyter.Header{MsgType: kind}}
		must.Do(t, c.Submit(r))
		if k.next() != r {
			t.Fatal("the request is not the next one")
		}
		k.Interrupt()
		k.serve(r)
		if len(sent) > 0 || !r.finished() || k.current != nil {
			t.Errorf("%s: the process received %q, and the request has ended: %v, want nothing and true", kind, sent, r.finished())
		}
		reply := ""
		for _, e := range *events {
			if strings.HasSuffix(e.Type, "_reply") {
				reply += string(e.Content)
			}
		}
		if strings.Count(reply, "KeyboardInterrupt") == 0 {
			t.Errorf("%s: got the reply %q, want a KeyboardInterrupt", kind, reply)
		}
	}
}

// TestKernelStartsOnceForEachRequest checks that a process that ended by itself has one successor: later a kernel
// that cannot start tries once for each request.
func TestKernelStartsOnceForEachRequest(t *testing.T) {
	t.Parallel()
	starts := make(chan struct{}, 100)
	k := New(Spec{Logger: slog.New(slog.DiscardHandler), Environ: func() ([]string, error) {
		starts <- struct{}{}
		return nil, errors.New("no environment")
	}})
	defer k.Close()
	c := k.Attach(func(context.Context, Event) {})
	defer c.Close()
	k.mu.Lock()
	k.revive = true
	k.mu.Unlock()
	for i, want := range []int{2, 1, 1} { // the first time, the successor too
		r := &Request{Header: jupyter.NewHeader("execute_request", "test", "test")}
		must.Do(t, c.Submit(r))
		<-r.Done()
		if got := len(starts); got != want {
			t.Errorf("request %d: the kernel was started %d times, want %d", i, got, want)
		}
		for range len(starts) {
			<-starts
		}
	}
}

// TestFirstMessagesAreLimited checks that a connection has a limit of time only while the first messages are
// exchanged, and that these end with their context.
func TestFirstMessagesAreLimited(t *testing.T) {
	t.Parallel()
	for what, limit := range map[string]time.Duration{"answers": 0, "is silent": time.Minute, "is given up": time.Second} {
		synctest.Test(t, func(t *testing.T) {
			ours, theirs := net.Pipe()
			defer ours.Close()
			defer theirs.Close()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if what == "is given up" {
				time.AfterFunc(limit, cancel)
			}
			if what == "answers" {
				go func() { _, _ = theirs.Write([]byte("x")) }()
			}
			begun := time.Now()
			read := func() error { _, err := ours.Read(make([]byte, 1)); return err }
			err := within(ctx, ours, time.Minute, read)
			if took := time.Since(begun); took != limit || errors.Is(err, os.ErrDeadlineExceeded) != (limit > 0) {
				t.Errorf("a process that %s: got error %v after %v, want it after %v", what, err, took, limit)
			}
			if limit > 0 {
				return
			}
			time.AfterFunc(time.Hour, func() { _, _ = theirs.Write([]byte("x")) })
			must.Do(t, read())
		})
	}
}

// TestChangesOfAForkedProcess checks the answer about changed modules, and that a process that ended has none.
func TestChangesOfAForkedProcess(t *testing.T) {
	t.Parallel()
	of := func() *process {
		return &process{link: sentTo{sent: new([]string)}, checked: make(chan []string, 1), done: make(chan struct{})}
	}
	p := of()
	answer := func(text string) {
		t.Helper()
		must.Do(t, p.handleChecked(&link.Message{Content: json.RawMessage(text)}))
	}
	answer(`{"changed":["numpy"]}`)
	answer(`{"changed":["pandas"]}`) // nobody asked: it is ignored
	if got := p.changes(); !slices.Equal(got, []string{"numpy"}) {
		t.Errorf("got %q, want the changed module", got)
	}
	p = of()
	answer(`{}`)
	if got := p.changes(); got != nil {
		t.Errorf("got %q, want nothing", got)
	}
	p = of()
	close(p.done)
	if got := p.changes(); got != nil {
		t.Errorf("of a process that ended: got %q, want nothing", got)
	}
	must.Is(t, p.handleChecked(&link.Message{Content: json.RawMessage(`[]`)}), errLine)
}

// TestEndsOfALink checks which ends of a connection to a process are ends, and which violate the protocol.
func TestEndsOfALink(t *testing.T) {
	t.Parallel()
	for what, test := range map[string]struct {
		end  func(ours *net.UnixConn, theirs *os.File) error
		want error
	}{
		"closed":                {func(_ *net.UnixConn, theirs *os.File) error { return theirs.Close() }, nil},
		"closed here":           {func(ours *net.UnixConn, _ *os.File) error { return ours.Close() }, nil},
		"closed with a command": {func(ours *net.UnixConn, theirs *os.File) error { return closeUnread(ours, theirs) }, nil},
		"closed within a line":  {func(_ *net.UnixConn, theirs *os.File) error { return closeAfter(theirs, "{") }, nil},
		"closed after a line": {func(_ *net.UnixConn, theirs *os.File) error {
			return closeAfter(theirs, `{"type":"a","content":{}}`+"\n")
		}, io.ErrShortWrite},
		"a line without meaning": {func(_ *net.UnixConn, theirs *os.File) error { return closeAfter(theirs, "text\n") }, errLine},
	} {
		ours, theirs, err := child.SocketPair()
		must.Do(t, err)
		must.Do(t, test.end(ours, theirs))
		err = lines{ours}.Receive(func(*link.Message) error { return io.ErrShortWrite })
		if !errors.Is(err, test.want) {
			t.Errorf("%s: got error %v, want %v", what, err, test.want)
		}
		ours.Close()
		theirs.Close()
	}
}

// closeUnread closes a connection whose other side has sent something that is not read: it is reset.
func closeUnread(ours *net.UnixConn, theirs *os.File) error {
	if _, err := io.WriteString(ours, "{}\n"); err != nil {
		return err
	}
	return theirs.Close()
}

func closeAfter(f *os.File, text string) error {
	if _, err := io.WriteString(f, text); err != nil {
		return err
	}
	return f.Close()
}

// TestFailedStartsLeaveNoFile checks that a process that cannot be started leaves no open file. It is not parallel,
// because it counts the files of this process.
func TestFailedStartsLeaveNoFile(t *testing.T) { //nolint:paralleltest // see above
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	must.Do(t, os.WriteFile(program, []byte("no program"), 0o755))
	for name, spec := range map[string]Spec{
		"no environment": {Environ: func() ([]string, error) { return nil, errors.New("no environment") }},
		"no program":     {Python: []string{program}},
		"no directory":   {Python: []string{"sh"}, Driver: filepath.Join(dir, "none", "driver.py")},
		"no kernel":      {Jupyter: &zmq.Spec{Name: "none", Argv: []string{program}}, Scratch: dir},
	} {
		spec.Dir, spec.Logger = dir, slog.New(slog.DiscardHandler)
		if spec.Environ == nil {
			spec.Environ = func() ([]string, error) { return os.Environ(), nil }
		}
		k, _, _ := idle(t)
		k.spec = spec
		before := openFiles(t)
		if p, err := startProcess(t.Context(), k); err == nil {
			p.kill()
			<-p.done
			t.Errorf("%s: got a process, want an error", name)
		}
		if left := openFiles(t) - before; left != 0 {
			t.Errorf("%s: %d files are left open", name, left)
		}
	}
}

// TestNoFilesAreFree checks that a process that lacks any of its five files is not started, and
// that the files that it got are closed. It is not parallel, because it bounds the files of this process.
func TestNoFilesAreFree(t *testing.T) { //nolint:paralleltest // see above
	var own unix.Rlimit
	must.Do(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &own))
	for free := range 6 {
		before := openFiles(t)
		taken := make([]*os.File, 0, free)
		for range free {
			f, err := os.Open(os.DevNull)
			must.Do(t, err)
			taken = append(taken, f)
		}
		last, err := os.Open(os.DevNull) // all descriptors below this one are in use
		must.Do(t, err)
		bound := own
		bound.Cur = uint64(last.Fd())
		for _, f := range append(taken, last) {
			must.Do(t, f.Close())
		}
		must.Do(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &bound))
		p := &process{}
		stdio, err := p.openPipes()
		must.Do(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &own))
		for _, f := range stdio {
			must.Do(t, f.Close())
		}
		if free == 5 {
			must.Do(t, errors.Join(err, p.closePipes()))
		} else {
			must.Is(t, err, unix.EMFILE)
		}
		if left := openFiles(t) - before; left != 0 {
			t.Errorf("with %d files: %d are left open", free, left)
		}
	}
}

// TestCloseWaitsForAStart checks that Close does not return while a process is being started.
func TestCloseWaitsForAStart(t *testing.T) {
	t.Parallel()
	entered, release := make(chan struct{}), make(chan struct{})
	failed := errors.New("no environment")
	k := New(Spec{Logger: slog.New(slog.DiscardHandler), Environ: func() ([]string, error) {
		close(entered)
		<-release
		return nil, failed
	}})
	var ended atomic.Bool
	started, closed := make(chan error, 1), make(chan struct{})
	go func() {
		_, err := k.Start(t.Context())
		started <- err
	}()
	<-entered
	go func() {
		defer close(closed)
		k.Close()
		if !ended.Load() {
			t.Error("Close returned before the start had ended")
		}
	}()
	k.loop.Wait() // then Close waits for nothing else
	for range 1000 {
		runtime.Gosched()
	}
	ended.Store(true)
	close(release)
	must.Is(t, <-started, failed)
	<-closed
}

func openFiles(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	must.Do(t, err)
	return len(all)
}
