package sandbox

import (
	"context"
	"testing"

	"github.com/creack/pty"
	"golang.org/x/term"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

type panickingWriter struct{}

func (panickingWriter) Write([]byte) (int, error) { panic("as a test wants it") }

// A panic in the middle of a session leaves the terminal as it was.
func TestPanicRestoresTheTerminal(t *testing.T) {
	t.Parallel()
	sb := sandboxtest.New(t, local.WithWarm(0)).Create(t)
	keyboard, tty, err := pty.Open()
	must.Do(t, err)
	defer keyboard.Close()
	defer tty.Close()
	before, err := term.GetState(int(tty.Fd()))
	must.Do(t, err)
	session := terminalSession{IO: &cmdutil.IOStreams{In: tty, Out: panickingWriter{}}, Open: func(ctx context.Context, _, _ int) (*sandbox.Terminal, error) {
		return sb.PTY.Open(ctx, &sandbox.PTYParams{Command: "echo hello"})
	}}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("it did not panic")
			}
		}()
		err := session.run(t.Context())
		t.Errorf("it returned %v", err)
	}()
	restored := func(what string) {
		after, err := term.GetState(int(tty.Fd()))
		if err != nil || *after != *before {
			t.Errorf("%s: the terminal is not as it was: %v", what, err)
		}
	}
	restored("a panic of the session")

	restore, err := cmdutil.MakeRaw(tty)
	must.Do(t, err)
	func() {
		defer func() { _ = recover() }()
		defer cmdutil.RestoreInPanic(restore)
		panic("as a test wants it")
	}()
	restored("a panic of another goroutine")
}
