package code

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/creack/pty"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/term"

	"github.com/e2bctl/e2bctl/cli/internal/cmdtest"
	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// leftBehind are terminals with a read that has no answer. As in the command, the end of the process closes them.
var leftBehind []*os.File

// TestPasswordOnATerminal checks that a terminal does not show the answer to a question for a password, and that it shows
// what is typed again afterwards, even if nobody has answered.
func TestPasswordOnATerminal(t *testing.T) {
	t.Parallel()
	keyboard, tty, err := pty.Open()
	must.Do(t, err)
	screen, watched := new(cmdtest.Output), make(chan struct{})
	go func() {
		defer close(watched)
		for part := make([]byte, 100); !strings.HasSuffix(screen.String(), "[end]"); {
			n, err := keyboard.Read(part)
			_, _ = screen.Write(part[:n])
			if err != nil {
				return
			}
		}
	}()
	leftBehind = append(leftBehind, tty)
	t.Cleanup(func() {
		_, err := io.WriteString(tty, "[end]")
		must.Do(t, err)
		<-watched
		must.Do(t, keyboard.Close())
	})
	before, err := term.GetState(int(tty.Fd()))
	must.Do(t, err)
	state := func() string {
		t.Helper()
		now, err := term.GetState(int(tty.Fd()))
		must.Do(t, err)
		return cmp.Diff(fmt.Sprint(*before), fmt.Sprint(*now))
	}
	o := runOptions{kernelOptions: kernelOptions{IO: cmdutil.NewIOStreams(tty, nil, tty)}}
	o.IO.InIsTerminal = true
	answer := o.answer()
	type answered struct {
		text string
		err  error
	}
	answers := make(chan answered, 1)
	ask := func(ctx context.Context) {
		text, err := answer(ctx, "password? ", true)
		answers <- answered{text, err}
	}
	shown := func(mark string) string { // the screen until a mark that is written now
		t.Helper()
		_, err := io.WriteString(tty, mark)
		must.Do(t, err)
		patience.Until(t, mark+" is shown", func() bool { return strings.HasSuffix(screen.String(), mark) })
		return screen.String()
	}
	go ask(patience.Context(t))
	patience.Until(t, "nothing typed is shown", func() bool { return state() != "" })
	_, err = io.WriteString(keyboard, "secret\n")
	must.Do(t, err)
	if got := patience.Receive(t, "the answer", answers); got != (answered{"secret", nil}) {
		t.Errorf("got %+v", got)
	}
	if got := shown("[1]"); got != "password? \r\n[1]" || state() != "" {
		t.Errorf("the screen has %q, and the terminal (-before +after):\n%s", got, state())
	}
	ctx, cancel := context.WithCancelCause(patience.Context(t))
	go ask(ctx)
	patience.Until(t, "nothing typed is shown", func() bool { return state() != "" })
	cancel(errInterrupted)
	got, after := patience.Receive(t, "the answer", answers), state()
	_, err = io.WriteString(keyboard, "late\n") // the read that was left behind ends
	must.Do(t, err)
	if !errors.Is(got.err, errInterrupted) || after != "" {
		t.Fatalf("nobody answered: got %+v, and the terminal (-before +after):\n%s", got, after)
	}
	patience.Until(t, "what is typed is shown", func() bool { return screen.String() == "password? \r\n[1]password? \r\nlate\r\n" })
}

// TestPasswordOfAFile checks the answer to a question for a password where standard input is a pipe, or no terminal at all.
func TestPasswordOfAFile(t *testing.T) {
	t.Parallel()
	in, writer, err := os.Pipe()
	must.Do(t, err)
	defer in.Close()
	_, err = io.WriteString(writer, "secret\n")
	must.Do(t, errors.Join(err, writer.Close()))
	var errs bytes.Buffer
	o := runOptions{kernelOptions: kernelOptions{IO: cmdutil.NewIOStreams(in, nil, &errs)}}
	if got, err := o.answer()(t.Context(), "password? ", true); got != "secret" || err != nil || errs.String() != "password? " {
		t.Errorf("a pipe: got %q, error %v and the messages %q", got, err, &errs)
	}
	o.IO.InIsTerminal = true
	if got, err := o.answer()(t.Context(), "", true); got != "" || err == nil || errs.String() != "password? " {
		t.Errorf("no terminal: got %q, error %v and the messages %q", got, err, &errs)
	}
}
