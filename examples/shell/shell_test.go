//go:build unix

package main

import (
	"bufio"
	"errors"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"
	"golang.org/x/term"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// TestShell acts as a person at a terminal: it types, makes the window larger, and
// leaves.
func TestShell(t *testing.T) {
	cloud := sandboxtest.New(t, local.WithWarm(0))
	cloud.Setenv(t)
	person, tty, err := pty.Open()
	must.Do(t, err)
	defer person.Close()
	defer tty.Close()
	must.Do(t, pty.Setsize(person, &pty.Winsize{Cols: 91, Rows: 31}))
	before, err := term.GetState(int(tty.Fd()))
	must.Do(t, err)
	ended := make(chan error, 1)
	go func() { ended <- open(t.Context(), false, "", tty) }()
	shown := bufio.NewReader(person)
	say := func(line string) {
		t.Helper()
		_, err := io.WriteString(person, line+"\n")
		must.Do(t, err)
	}
	// The typed text is shown as well, so it must not contain the expected text.
	expect := func(text string) {
		t.Helper()
		var seen strings.Builder
		for !strings.Contains(seen.String(), text) {
			b, err := shown.ReadByte()
			if err != nil {
				t.Fatalf("%v after %q", err, seen.String())
			}
			seen.WriteByte(b)
		}
	}
	if _, err := shown.ReadByte(); err != nil { // the shell is ready when its prompt begins
		t.Fatal(err)
	}
	say(`echo "in a $(uname)," $(stty size)`)
	expect("in a Linux, 31 91")

	must.Do(t, pty.Setsize(person, &pty.Winsize{Cols: 120, Rows: 40}))
	say(`until [ "$(stty size)" = "40 120" ]; do sleep 0.01; done; echo "now $(stty size)"`)
	must.Do(t, syscall.Kill(os.Getpid(), syscall.SIGWINCH))
	expect("now 40 120")

	say("exit 7")
	failed, ok := errors.AsType[*sandbox.ExitError](<-ended)
	if !ok || failed.Result.ExitCode != 7 {
		t.Errorf("its end: %+v", failed)
	}
	after, err := term.GetState(int(tty.Fd()))
	if err != nil || *after != *before {
		t.Errorf("the terminal is not as it was: %v", err)
	}
}

func TestShellNeedsTerminal(t *testing.T) {
	file, err := os.Open(os.DevNull)
	must.Do(t, err)
	defer file.Close()
	if err := open(t.Context(), true, "", file); err == nil || !strings.Contains(err.Error(), "needs a terminal") {
		t.Error(err)
	}
}
