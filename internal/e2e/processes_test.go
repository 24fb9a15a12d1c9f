//go:build linux

package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// lines returns a writer, and a scanner of the lines written to it.
func lines() (io.Writer, *bufio.Scanner) {
	r, w := io.Pipe()
	return w, bufio.NewScanner(r)
}

func TestStartedCommand(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	out, said := lines()
	command, err := sb.Commands.Start(t.Context(), `while read -r line; do echo "got $line"; done; echo bye >&2; exit 4`, &sandbox.CommandParams{
		Input: true, Tag: "reader", Stdout: out, Envs: map[string]string{"A": "b"}, Cwd: "/tmp", User: "root",
	})
	must.Do(t, err)
	for _, word := range []string{"one", "zwei", "三"} {
		must.Do(t, command.SendInput(t.Context(), []byte(word+"\n")))
		if said.Scan(); said.Text() != "got "+word {
			t.Errorf("said %q to %q: %v, want %q", said.Text(), word, said.Err(), "got "+word)
		}
	}
	list, err := sb.Commands.List(t.Context(), nil)
	if err != nil || len(list) != 1 {
		t.Fatalf("got %+v, %v, want one process and no error", list, err)
	}
	want := []sandbox.ProcessInfo{{PID: command.PID(), Tag: "reader", Cmd: list[0].Cmd, Args: list[0].Args, Envs: map[string]string{"A": "b"}, Cwd: "/tmp"}}
	if diff := cmp.Diff(want, list); diff != "" {
		t.Errorf("processes (-want +got):\n%s", diff)
	}
	if err := command.CloseStdin(t.Context()); err != nil {
		t.Error(err)
	}
	result, err := command.Wait(t.Context())
	if _, ok := errors.AsType[*sandbox.ExitError](err); !ok || result.ExitCode != 4 || result.Stderr != "bye\n" {
		t.Errorf("got %+v, %v, want a *sandbox.ExitError, exit code 4 and stderr %q", result, err, "bye\n")
	}
	if err := command.Kill(t.Context()); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("killed after its end: %v, want os.ErrProcessDone", err)
	}
	if err := sb.Commands.Kill(t.Context(), sandbox.ByPID(command.PID()), nil); !errors.Is(err, api.ErrNotFound) || errors.Is(err, sandbox.ErrGone) {
		t.Errorf("killed by pid after its end: %v, want api.ErrNotFound and not sandbox.ErrGone", err)
	}
}

func TestSignalCommand(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	out, said := lines()
	command, err := sb.Commands.Start(t.Context(), `trap 'echo caught; exit 7' TERM; echo ready; while :; do sleep 0.1; done`, &sandbox.CommandParams{Stdout: out})
	must.Do(t, err)
	said.Scan()
	if err := command.Signal(t.Context(), syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if said.Scan(); said.Text() != "caught" {
		t.Errorf("said %q, want %q", said.Text(), "caught")
	}
	if result, err := command.Wait(t.Context()); err == nil || result.ExitCode != 7 {
		t.Errorf("got %+v, %v, want an error and exit code 7", result, err)
	}

	command, err = sb.Commands.Start(t.Context(), "exec sleep 1000", nil)
	must.Do(t, err)
	if err := command.Kill(t.Context()); err != nil {
		t.Error(err)
	}
	if result, err := command.Wait(t.Context()); err == nil || result.ExitCode != -1 || result.Status != "signal: killed" {
		t.Errorf("got %+v, %v, want an error, exit code %v and status %q", result, err, -1, "signal: killed")
	}

	_, err = sb.Commands.Run(t.Context(), "exec sleep 1000", &sandbox.CommandParams{Timeout: 50 * time.Millisecond})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a command with a timeout: %v, want context.DeadlineExceeded", err)
	}
	patience.Until(t, "nothing runs", func() bool { list, err := sb.Commands.List(t.Context(), nil); return err == nil && len(list) == 0 })
}

// Commands and terminals are listed and killed alike, by pid and by tag.
func TestKillProcesses(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	out, said := lines()
	const polite = `trap 'echo caught; exit 7' TERM; echo ready; while :; do sleep 0.1; done`
	trapped, err := sb.Commands.Start(t.Context(), polite, &sandbox.CommandParams{Tag: "polite", Stdout: out})
	must.Do(t, err)
	said.Scan()
	if err := sb.Commands.Kill(t.Context(), sandbox.ByTag("polite"), &sandbox.CommandKillParams{Signal: syscall.SIGTERM}); err != nil {
		t.Error(err)
	}
	if said.Scan(); said.Text() != "caught" {
		t.Errorf("said %q", said.Text())
	}
	if result, err := trapped.Wait(t.Context()); err == nil || result.ExitCode != 7 {
		t.Errorf("asked to end: %+v, %v", result, err)
	}
	if err := sb.Commands.Kill(t.Context(), sandbox.ByTag("polite"), nil); !errors.Is(err, api.ErrNotFound) || !errors.Is(err, os.ErrProcessDone) || errors.Is(err, sandbox.ErrGone) {
		t.Errorf("killed by tag after its end: %v", err)
	}

	terminal, err := sb.PTY.Open(t.Context(), &sandbox.PTYParams{Command: "exec sleep 1000", Tag: "worker"})
	must.Do(t, err)
	defer terminal.Close()
	first, err := sb.Commands.Start(t.Context(), "exec sleep 1000", &sandbox.CommandParams{Tag: "worker"})
	must.Do(t, err)
	other, err := sb.Commands.Start(t.Context(), "exec sleep 1000", nil)
	must.Do(t, err)
	list, err := sb.Commands.List(t.Context(), &sandbox.CommandListParams{Tag: "worker"})
	var listed []int
	for _, info := range list {
		listed = append(listed, info.PID)
	}
	slices.Sort(listed)
	if diff := cmp.Diff(slices.Sorted(slices.Values([]int{terminal.PID(), first.PID()})), listed); err != nil || diff != "" {
		t.Errorf("listed by tag, %v (-want +got):\n%s", err, diff)
	}
	if err := sb.Commands.Kill(t.Context(), sandbox.ByTag("worker"), nil); err == nil || !strings.Contains(err.Error(), "2 processes have that tag") {
		t.Errorf("killed one of two: %v", err)
	}
	if err := sb.Commands.Kill(t.Context(), sandbox.ByPID(first.PID()), nil); err != nil {
		t.Error(err)
	}
	if result, err := first.Wait(t.Context()); err == nil || result.Status != "signal: killed" {
		t.Errorf("killed by pid: %+v, %v", result, err)
	}
	again, err := sb.PTY.Connect(t.Context(), sandbox.ByTag("worker"), nil)
	if err != nil || again.PID() != terminal.PID() {
		t.Fatalf("the terminal by its tag: %v, %v", again, err)
	}
	defer again.Close()
	if err := sb.Commands.Kill(t.Context(), sandbox.ByTag("worker"), nil); err != nil {
		t.Error(err)
	}
	for _, handle := range []*sandbox.Terminal{terminal, again} {
		if failed, ok := errors.AsType[*sandbox.ExitError](handle.Wait(t.Context())); !ok || failed.Result.Status != "signal: killed" {
			t.Errorf("the terminal was killed: %v", failed)
		}
	}
	if list, err := sb.Commands.List(t.Context(), nil); err != nil || len(list) != 1 || list[0].PID != other.PID() {
		t.Errorf("what is left: %+v, %v", list, err)
	}
}

// A command outlives its handle; another handle finds it, by pid and by tag.
func TestConnectToCommand(t *testing.T) {
	t.Parallel()
	cloud := shared(t)
	sb := cloud.Create(t)
	first, err := sb.Commands.Start(t.Context(), `until [ -e go ]; do sleep 0.02; done; echo now; exit 5`, &sandbox.CommandParams{Tag: "patient"})
	must.Do(t, err)
	other, err := sandbox.Connect(t.Context(), sb.ID(), cloud.Option())
	must.Do(t, err)
	byPID, err := other.Commands.Connect(t.Context(), sandbox.ByPID(first.PID()), nil)
	must.Do(t, err)
	byTag, err := sb.Commands.Connect(t.Context(), sandbox.ByTag("patient"), nil)
	if err != nil || byTag.PID() != first.PID() {
		t.Fatalf("got %v, want the pid %v and no error", err, first.PID())
	}
	first.Disconnect()
	if _, err := first.Wait(t.Context()); !errors.Is(err, sandbox.ErrClosed) {
		t.Errorf("disconnected: %v, want sandbox.ErrClosed", err)
	}
	if err := other.Close(); err != nil {
		t.Error(err)
	}
	if _, err := byPID.Wait(t.Context()); !errors.Is(err, sandbox.ErrClosed) {
		t.Errorf("closed: %v, want sandbox.ErrClosed", err)
	}
	sandboxtest.Run(t, sb, "touch go")
	if result, err := byTag.Wait(t.Context()); err == nil || result.ExitCode != 5 || result.Stdout != "now\n" {
		t.Errorf("got %+v, %v, want an error, exit code 5 and stdout %q", result, err, "now\n")
	}
	late, err := sb.Commands.Connect(t.Context(), sandbox.ByTag("patient"), nil)
	must.Do(t, err)
	if result, err := late.Wait(t.Context()); err == nil || result.ExitCode != 5 {
		t.Errorf("after the end: %+v, %v, want an error and exit code 5", result, err)
	}
	for _, which := range []sandbox.ProcessSelector{sandbox.ByTag("nobody"), sandbox.ByPID(1 << 30)} {
		if _, err := sb.Commands.Connect(t.Context(), which, nil); !errors.Is(err, api.ErrNotFound) || errors.Is(err, sandbox.ErrGone) {
			t.Errorf("%v: got %v, want api.ErrNotFound and not sandbox.ErrGone", which, err)
		}
	}
}

func TestCommandEvents(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	const size = 8 << 20
	command, err := sb.Commands.Start(t.Context(), fmt.Sprintf("echo err >&2; head -c %d /dev/zero; exit 2", size), nil)
	must.Do(t, err)
	var stdout, dropped int64
	var stderr string
	var exit *sandbox.CommandResult
	for event, err := range command.Events(t.Context()) {
		must.Do(t, err)
		stdout += int64(len(event.Stdout))
		stderr += string(event.Stderr)
		dropped += event.Dropped
		exit = event.Exit
	}
	if exit == nil || exit.ExitCode != 2 || exit.Stderr != "err\n" {
		t.Errorf("got the end %+v, want exit code 2 and stderr %q", exit, "err\n")
	}
	if got := stdout + int64(len(stderr)) + dropped; got != size+4 {
		t.Errorf("got %d bytes (%d of stdout, %q, %d dropped), want %d", got, stdout, stderr, dropped, size+4)
	}
}

// When the sandbox ends while commands run, each of them returns an error that
// says so.
func TestCommandsOfASandboxThatGoes(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	command, err := sb.Commands.Start(t.Context(), "exec sleep 1000", nil)
	must.Do(t, err)
	terminal, err := sb.PTY.Open(t.Context(), nil)
	must.Do(t, err)
	must.Do(t, sb.Kill(t.Context()))
	if _, err := command.Wait(t.Context()); !errors.Is(err, sandbox.ErrGone) {
		t.Errorf("Wait: %v, want sandbox.ErrGone", err)
	}
	if _, err := io.ReadAll(terminal); !errors.Is(err, sandbox.ErrGone) {
		t.Errorf("Read: %v, want sandbox.ErrGone", err)
	}
	if err := terminal.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

func TestManyCommands(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	var running sync.WaitGroup
	for i := range 200 {
		running.Go(func() {
			want := fmt.Sprintln(i)
			if result, err := sb.Commands.Run(t.Context(), "echo "+want, nil); err != nil || result.Stdout != want {
				t.Errorf("%d: got %v, want stdout %v and no error", i, err, want)
			}
		})
	}
	running.Wait()
}

// shown reads from a terminal until it has shown text.
func shown(t *testing.T, terminal *sandbox.Terminal, text string) {
	t.Helper()
	late := time.AfterFunc(patience.Limit, terminal.Disconnect)
	defer late.Stop()
	var all []byte
	buffer := make([]byte, 1024)
	for !strings.Contains(string(all), text) {
		n, err := terminal.Read(buffer)
		if all = append(all, buffer[:n]...); err != nil {
			t.Fatalf("%q was not shown, but %q: %v", text, all, err)
		}
	}
}

func typed(t *testing.T, terminal io.Writer, text string) {
	t.Helper()
	_, err := io.WriteString(terminal, text)
	must.Do(t, err)
}

func TestTerminal(t *testing.T) {
	t.Parallel()
	t.Run("full", func(t *testing.T) {
		t.Parallel()
		useTerminal(t, shared(t).Create(t))
	})
	t.Run("restricted", func(t *testing.T) {
		t.Parallel()
		useTerminal(t, sandboxtest.New(t, local.WithIsolation(local.Restricted)).Create(t))
	})
}

func useTerminal(t *testing.T, sb *sandbox.Sandbox) {
	t.Helper()
	terminal, err := sb.PTY.Open(t.Context(), &sandbox.PTYParams{Cols: 100, Rows: 30, Envs: map[string]string{"A": "b"}, Cwd: "/tmp"})
	must.Do(t, err)
	// The terminal also shows the typed text: the answers must not look like
	// the questions.
	typed(t, terminal, "echo $(stty size)-$A-$TERM-$PWD\n")
	shown(t, terminal, "30 100-b-xterm-256color-/tmp")
	if err := terminal.Resize(t.Context(), 132, 50); err != nil {
		t.Error(err)
	}
	typed(t, terminal, "echo $(stty size)\n")
	shown(t, terminal, "50 132")
	// The process that Ctrl-C will end prints this, so it is running by then.
	typed(t, terminal, "sh -c 'echo $((6*7))ready; exec sleep 1000'\n")
	shown(t, terminal, "42ready")
	typed(t, terminal, "\x03")
	typed(t, terminal, "echo $((6*7))again\n")
	shown(t, terminal, "42again")

	// The shell outlives the handle, and keeps its variables.
	typed(t, terminal, "kept=K$((1+1)); echo $kept\n")
	shown(t, terminal, "K2")
	terminal.Disconnect()
	if err := terminal.Close(); err != nil {
		t.Error(err)
	}
	again, err := sb.PTY.Connect(t.Context(), sandbox.ByPID(terminal.PID()), nil)
	must.Do(t, err)
	typed(t, again, "echo still-$kept; exit 6\n")
	shown(t, again, "still-K2")
	if _, err := io.Copy(io.Discard, again); err != nil {
		t.Error(err)
	}
	failed, ok := errors.AsType[*sandbox.ExitError](again.Wait(t.Context()))
	if !ok || failed.Result.ExitCode != 6 {
		t.Errorf("Wait: %v, want a *sandbox.ExitError and exit code 6", failed)
	}
	for _, which := range []sandbox.ProcessSelector{sandbox.ByPID(1 << 30), sandbox.ByTag("nobody")} {
		if _, err := sb.PTY.Connect(t.Context(), which, nil); !errors.Is(err, api.ErrNotFound) || errors.Is(err, sandbox.ErrGone) {
			t.Errorf("no such terminal: %v: %v, want api.ErrNotFound and not sandbox.ErrGone", which, err)
		}
	}
}

// TestTerminalNobodyReads checks that a terminal that no client reads blocks its program,
// not the sandbox, and that closing the terminal ends the program.
func TestTerminalNobodyReads(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	terminal, err := sb.PTY.Open(t.Context(), &sandbox.PTYParams{Command: "exec yes"})
	must.Do(t, err)
	shown(t, terminal, "y\r\ny\r\n")
	if err := terminal.Close(); err != nil {
		t.Error(err)
	}
	patience.Until(t, "nothing runs", func() bool { list, err := sb.Commands.List(t.Context(), nil); return err == nil && len(list) == 0 })
}
