package sandbox

import (
	"context"
	"errors"
	"io"
	"os"

	detach "github.com/moby/term"
	"golang.org/x/term"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/sandbox"
)

// runTerminal runs line in a terminal of the sandbox. The terminal of this process shows the
// sandbox's terminal and sends all keys to it, so that Ctrl-C reaches the program in the sandbox.
// If the status of the line is not 0 it returns a cmdutil.RemoteStatus.
func runTerminal(ctx context.Context, ios *cmdutil.IOStreams, sb *sandbox.Sandbox, line string, process processFlags) error {
	session := terminalSession{IO: ios, Open: func(ctx context.Context, cols, rows int) (*sandbox.Terminal, error) {
		return sb.PTY.Open(ctx, &sandbox.PTYParams{
			Cols: cols, Rows: rows, Command: line, User: process.User, Cwd: process.Cwd, Envs: process.Envs,
		})
	}}
	return session.run(ctx)
}

// terminalSession shows a terminal of a sandbox in the terminal of this process, and sends the keys
// of this process's terminal to it.
type terminalSession struct {
	IO *cmdutil.IOStreams
	// Open opens the terminal. A size of 0 means that the terminal of this process reports no size.
	Open func(ctx context.Context, cols, rows int) (*sandbox.Terminal, error)
	// DetachKeys are the keys that end the session. If there are none, all keys go to the sandbox.
	DetachKeys []byte
	// Keep leaves the program running if the session ends before it.
	Keep bool
}

// errLeft is the error of a session that the user left before its program ended.
var errLeft = errors.New("the terminal was left")

// run runs the session until the program ends, the user leaves the session, or ctx ends. If the
// status of the program is not 0 it returns a cmdutil.RemoteStatus.
func (s *terminalSession) run(ctx context.Context) (err error) {
	keyboard, ok := s.IO.In.(*os.File)
	if !ok {
		return errors.New("standard input is not a terminal")
	}
	screen := cmdutil.ScreenOf(keyboard)
	cols, rows, err := term.GetSize(int(screen.Fd()))
	if err != nil || cols < 1 || rows < 1 {
		cols, rows = 0, 0 // a terminal without a size gets the default one
	}
	terminal, err := s.Open(ctx, cols, rows)
	if err != nil {
		return &cmdutil.OwnError{Err: err, Running: true}
	}
	defer cmdutil.Closing(terminal, &err)
	if s.Keep {
		defer terminal.Disconnect()
	}
	restore, err := cmdutil.MakeRaw(keyboard)
	if err != nil {
		return err
	}
	defer func() { err = cmdutil.KeepStatus(err, restore()) }()

	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	stop := context.AfterFunc(ctx, func() {
		_ = restore() // now, because the remaining steps may take longer than the process lives
		s.leave(terminal)
	})
	defer stop()
	go func() {
		defer cmdutil.RestoreInPanic(restore)
		followSize(ctx, screen, terminal)
	}()
	go func() { // until the process ends: this read cannot be cancelled
		defer cmdutil.RestoreInPanic(restore)
		end(s.typeInto(terminal, keyboard))
	}()
	return s.show(ctx, terminal)
}

func (s *terminalSession) leave(terminal *sandbox.Terminal) {
	if s.Keep {
		terminal.Disconnect()
	}
	_ = terminal.Close() // its error is that of the call in run
}

// typeInto copies keys from keyboard to terminal. It returns the reason for the end of the copying:
// the detach keys, the end of the keyboard's input, or a failure.
func (s *terminalSession) typeInto(terminal io.Writer, keyboard io.Reader) error {
	_, err := io.Copy(terminal, detach.NewEscapeProxy(keyboard, s.DetachKeys))
	if _, isDetached := errors.AsType[detach.EscapeError](err); err == nil || isDetached {
		return errLeft
	}
	return &cmdutil.OwnError{Err: err, Running: true}
}

// show copies the output of the terminal to the screen, and returns the outcome of the session.
func (s *terminalSession) show(ctx context.Context, terminal *sandbox.Terminal) error {
	_, shown := io.Copy(s.IO.Out, terminal)
	if shown != nil && s.IO.OutIsTerminal {
		_, _ = io.WriteString(s.IO.Out, ordinaryScreen)
	}
	if shown != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if shown != nil {
		return &cmdutil.OwnError{Err: shown, Running: true}
	}
	err := terminal.Wait(context.WithoutCancel(ctx)) // it has ended
	if exit, ok := errors.AsType[*sandbox.ExitError](err); ok {
		return cmdutil.RemoteStatus(cmdutil.ExitStatus(exit.Result))
	}
	if err != nil {
		return &cmdutil.OwnError{Err: err, Running: true}
	}
	return nil
}

// ordinaryScreen undoes the changes that an abandoned program, such as an editor, made to the
// screen: the alternate screen, the modes for the mouse, pasted text and the cursor keys, a hidden
// cursor, and colors.
const ordinaryScreen = "\x1b[?1047l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1004l\x1b[?1006l\x1b[?2004l\x1b[?1l\x1b>\x1b[?25h\x1b[0m"
