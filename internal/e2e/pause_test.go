//go:build linux

package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/internal/protocol"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// pauseLife is longer than any of these tests takes: their sandboxes are paused by a clock
// that the tests move.
const pauseLife = 20 * time.Minute

// asleep makes a sandbox pause at the end of its lifetime, and wakeful also wake up.
var (
	asleep  = sandbox.Expiry{After: pauseLife, Then: sandbox.ThenPause}
	wakeful = sandbox.Expiry{After: pauseLife, Then: sandbox.ThenPause, Resume: true}
)

// sleeping creates a sandbox that is paused at the end of its lifetime.
func sleeping(t *testing.T, cloud *sandboxtest.Cloud, opts ...sandbox.CreateOption) *sandbox.Sandbox {
	t.Helper()
	return cloud.Create(t, append([]sandbox.CreateOption{sandbox.WithExpiry(asleep)}, opts...)...)
}

// expire lets the lifetimes of a cloud's sandboxes end.
func expire(cloud *sandboxtest.Cloud) { cloud.Advance(pauseLife + time.Second) }

// awaitState waits for the state of a sandbox.
func awaitState(t *testing.T, sb *sandbox.Sandbox, want api.SandboxState) {
	t.Helper()
	patience.Until(t, fmt.Sprintf("%s is %s", sb.ID(), want), func() bool {
		info, err := sb.Info(t.Context())
		return err == nil && info.State == want
	})
}

// TestAutoPauseOfIdleHandle checks that a handle that does nothing lets its sandbox be
// paused, with a kernel's websocket, a command and a terminal open, and finds all of them
// again.
func TestAutoPauseOfIdleHandle(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t, local.WithWarm(0))
	sb := sleeping(t, cloud, sandbox.WithExpiry(wakeful), sandbox.WithEnvs(startsCold))
	sandboxtest.Eval(t, sb, "n = 41")
	command, err := sb.Commands.Start(t.Context(), "echo begun; read line; echo $line; exit 3", &sandbox.CommandParams{Input: true})
	must.Do(t, err)
	terminal, err := sb.PTY.Open(t.Context(), &sandbox.PTYParams{Command: "read line; echo said $line"})
	must.Do(t, err)
	defer terminal.Close()
	expire(cloud)
	awaitState(t, sb, api.StatePaused)
	if got := sandboxtest.Eval(t, sb, "n + 1"); got != "42" {
		t.Errorf("got %s after the pause, want 42", got)
	}
	must.Do(t, command.SendInput(t.Context(), []byte("hello\n")))
	result, err := command.Wait(t.Context())
	if _, exited := errors.AsType[*sandbox.ExitError](err); !exited || result.ExitCode != 3 || result.OutputCut {
		t.Errorf("got %+v, %v, want exit status 3 of a command that was cut", result, err)
	}
	read := make(chan string, 1)
	lines := bufio.NewReader(terminal)
	shown := func() string { line, _ := lines.ReadString('\n'); return line }
	go func() { shown(); read <- shown() }() // the first line is the typed one
	if _, err := io.WriteString(terminal, "terminal\n"); err != nil {
		t.Fatal(err)
	}
	if got := <-read; !strings.Contains(got, "said terminal") {
		t.Errorf("got %q, want what the program says", got)
	}
}

// TestAutoPauseOfCallsInFlight checks that calls in flight resume the sandbox and
// continue: code is run once and its output is complete, and a command has its result.
func TestAutoPauseOfCallsInFlight(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t, local.WithWarm(0))
	sb := sleeping(t, cloud, sandbox.WithExpiry(wakeful), sandbox.WithEnvs(startsCold))
	sandboxtest.Eval(t, sb, "n = 0")
	begun := make(chan struct{}, 2)
	code := make(chan error, 1)
	go func() {
		w := &onWrite{do: func() { begun <- struct{}{} }}
		execution, err := sb.RunCode(t.Context(), "n += 1\nimport os, time\nprint('begun', flush=True)\nwhile not os.path.exists('/tmp/go'): time.sleep(0.01)\nfor i in range(100): print(i)\nn", &sandbox.RunCodeParams{Stdout: w})
		if got := strings.Count(w.out.String(), "\n"); err == nil && (got != 101 || execution.Text() != "1") {
			err = fmt.Errorf("got %d lines and %s, want 101 and 1", got, execution.Text())
		}
		code <- err
	}()
	command := make(chan error, 1)
	go func() {
		result, err := sb.Commands.Run(t.Context(), "echo begun; until [ -e /tmp/go ]; do sleep 0.01; done; sleep 0.5; echo ended", &sandbox.CommandParams{Stdout: &onWrite{do: func() { begun <- struct{}{} }}})
		if err == nil && (result.Stdout != "begun\nended\n" || result.OutputCut) {
			err = fmt.Errorf("got %+v, want all of a command that was cut", result)
		}
		command <- err
	}()
	<-begun
	<-begun
	before, err := sb.Info(t.Context())
	must.Do(t, err)
	expire(cloud)
	patience.Until(t, "the calls resumed the sandbox", func() bool {
		info, err := sb.Info(t.Context())
		return err == nil && info.State == api.StateRunning && info.StartedAt.After(before.StartedAt)
	})
	must.Do(t, sb.Files.Write(t.Context(), "/tmp/go", nil, nil))
	if err := <-code; err != nil {
		t.Errorf("code: %v", err)
	}
	if err := <-command; err != nil {
		t.Errorf("command: %v", err)
	}
}

// TestOwnPause checks that calls in flight wait during a pause that the handle requested,
// and continue after Resume.
func TestOwnPause(t *testing.T) {
	t.Parallel()
	sb := sleeping(t, shared(t))
	begun := make(chan struct{}, 1)
	code := make(chan error, 1)
	go func() {
		_, err := sb.RunCode(t.Context(), "import os, time\nprint('begun', flush=True)\nwhile not os.path.exists('/tmp/go'): time.sleep(0.01)", &sandbox.RunCodeParams{Stdout: &onWrite{do: func() { begun <- struct{}{} }}})
		code <- err
	}()
	<-begun
	must.Do(t, sb.Pause(t.Context(), nil))
	_, err := sb.Commands.Run(t.Context(), "true", nil)
	if told, ok := errors.AsType[*sandbox.GoneError](err); !ok || told.State != sandbox.GonePaused {
		t.Errorf("got %v, want that it is paused", err)
	}
	if info, err := sb.Info(t.Context()); err != nil || info.State != api.StatePaused {
		t.Errorf("got %+v, %v, want that it is paused", info, err)
	}
	must.Do(t, sb.Resume(t.Context(), nil))
	sandboxtest.Run(t, sb, "touch /tmp/go")
	if err := <-code; err != nil {
		t.Error(err)
	}
}

// TestCloseOfPausedHandle checks that a handle that created its sandbox kills it at once
// although it is paused, and ends all calls that wait for the end of the pause.
func TestCloseOfPausedHandle(t *testing.T) {
	t.Parallel()
	cloud := shared(t)
	var sb *sandbox.Sandbox
	patience.SoonAfter(t, "Close", 5*time.Second, func() func() { // its own limit is 10 seconds
		sb = sleeping(t, cloud, sandbox.WithExpiry(wakeful))
		begun := make(chan struct{}, 2)
		told := func() *onWrite { return &onWrite{do: func() { begun <- struct{}{} }} }
		ended := make(chan error, 2)
		go func() {
			_, err := sb.RunCode(t.Context(), "import time\nprint('begun', flush=True)\ntime.sleep(600)", &sandbox.RunCodeParams{Stdout: told()})
			ended <- err
		}()
		go func() {
			_, err := sb.Commands.Run(t.Context(), "echo begun; sleep 600", &sandbox.CommandParams{Stdout: told()})
			ended <- err
		}()
		<-begun
		<-begun
		must.Do(t, sb.Pause(t.Context(), nil))
		return func() {
			if err := sb.Close(); err != nil {
				t.Error(err)
			}
			for range 2 {
				if err := patience.Receive(t, "the end of what was paused", ended); !errors.Is(err, sandbox.ErrClosed) {
					t.Errorf("got %v, want %v", err, sandbox.ErrClosed)
				}
			}
		}
	})
	if _, err := client(t, cloud).Info(t.Context(), sb.ID()); !errors.Is(err, sandbox.ErrGone) {
		t.Errorf("got %v, want %v", err, sandbox.ErrGone)
	}
}

// TestPauseWithoutAutoResume checks that the errors of calls in flight say that the
// sandbox is paused, and that their work continues after a resume.
func TestPauseWithoutAutoResume(t *testing.T) {
	t.Parallel()
	cloud := shared(t)
	sb := sleeping(t, cloud)
	command, err := sb.Commands.Start(t.Context(), "until [ -e /tmp/go ]; do sleep 0.01; done", nil)
	must.Do(t, err)
	waited := make(chan error, 1)
	go func() {
		_, err := command.Wait(t.Context())
		waited <- err
	}()
	watch, err := sb.Files.Watch(t.Context(), "/tmp", nil)
	must.Do(t, err)
	defer watch.Close()
	must.Do(t, client(t, cloud).Pause(t.Context(), sb.ID(), nil))
	paused := func(what string, err error) {
		t.Helper()
		if told, ok := errors.AsType[*sandbox.GoneError](err); !ok || told.State != sandbox.GonePaused {
			t.Errorf("%s: got %v, want that it is paused", what, err)
		}
	}
	err = <-waited
	paused("command", err)
	if !errors.Is(err, sandbox.ErrCommandLost) {
		t.Errorf("got %v, want %v", err, sandbox.ErrCommandLost)
	}
	for _, err := range watch.Events(t.Context()) {
		paused("watch", err)
	}
	must.Do(t, sb.Resume(t.Context(), nil))
	again, err := sb.Commands.Connect(t.Context(), sandbox.ByPID(command.PID()), nil)
	must.Do(t, err)
	sandboxtest.Run(t, sb, "touch /tmp/go")
	if _, err := again.Wait(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestPauseOfPorts checks that servers in a paused sandbox are woken by clients with
// access.
func TestPauseOfPorts(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t, local.WithWarm(0))
	sb := sleeping(t, cloud, sandbox.WithExpiry(wakeful), sandbox.WithPrivateTraffic())
	if _, err := sb.Commands.Start(t.Context(), "exec python3 -m http.server 8000 --directory /usr/share", nil); err != nil {
		t.Fatal(err)
	}
	get := func(port int, path string) (int, error) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, cloud.URL()+path, nil)
		if err != nil {
			return 0, err
		}
		r.Header.Set(protocol.HeaderSandboxID, sb.ID())
		r.Header.Set(protocol.HeaderSandboxPort, strconv.Itoa(port))
		transport := &http.Transport{}
		defer transport.CloseIdleConnections()
		response, err := transport.RoundTrip(r)
		if err != nil {
			return 0, err
		}
		return response.StatusCode, response.Body.Close()
	}
	expire(cloud)
	awaitState(t, sb, api.StatePaused)
	for _, test := range []struct {
		port int
		path string
		want int
	}{{49983, "/health", 502}, {49983, "/metrics", 403}, {8000, "/", 403}} {
		if got, err := get(test.port, test.path); err != nil || got != test.want {
			t.Errorf("port %d%s: got %d, %v, want %d", test.port, test.path, got, err, test.want)
		}
	}
	awaitState(t, sb, api.StatePaused)
	if err := sb.WaitPort(t.Context(), 8000); err != nil {
		t.Error(err)
	}
	awaitState(t, sb, api.StateRunning)
}
