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

	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// TestShell acts as a person at a terminal: it types, makes the window larger, and
// leaves.
func TestShell(t *testing.T) {
	cloud := sandboxtest.New(t)
	cloud.Setenv(t)
	person, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer person.Close()
	defer tty.Close()
	if err := pty.Setsize(person, &pty.Winsize{Cols: 91, Rows: 31}); err != nil {
		t.Fatal(err)
	}
	before, err := term.GetState(int(tty.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- open(t.Context(), false, "", tty) }()
	shown := bufio.NewReader(person)
	say := func(line string) {
		t.Helper()
		if _, err := io.WriteString(person, line+"\n"); err != nil {
			t.Fatal(err)
		}
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

	if err := pty.Setsize(person, &pty.Winsize{Cols: 120, Rows: 40}); err != nil {
		t.Fatal(err)
	}
	say(`until [ "$(stty size)" = "40 120" ]; do sleep 0.01; done; echo "now $(stty size)"`)
	if err := syscall.Kill(os.Getpid(), syscall.SIGWINCH); err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := open(t.Context(), true, "", file); err == nil || !strings.Contains(err.Error(), "needs a terminal") {
		t.Error(err)
	}
}
