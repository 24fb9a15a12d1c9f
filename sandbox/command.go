package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"connectrpc.com/connect"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/gen/process"
)

// Command is a process in a sandbox, from [Commands.Start] or [Commands.Connect]. Its output is
// read as it arrives, even if the caller does not wait for it, so the process never blocks on a
// missing reader. Only a bounded part of the output is kept. All methods are safe for
// concurrent use.
//
// A pause of the sandbox suspends the command. After the resume, the command continues and this
// handle connects to it again. If requests may resume the sandbox, a waiting call of Wait, or a
// loop over Events, resumes the sandbox. If nothing resumes the sandbox, the error matches both
// [ErrCommandLost] and [ErrGone], with the state [GonePaused].
//
// The local cloud keeps the newest output of each process. So this handle also connects again after
// its connection was cut, for up to 70 seconds, and no output is lost or repeated. If output that was not
// received is no longer kept, the error matches [ErrCommandLost] and is an [*OutputLostError].
// E2B's service keeps no output: a cut connection is [ErrCommandLost], and after a pause
// output may be missing: see [CommandResult].OutputCut.
type Command struct {
	process        *attachment
	tag            string
	own            bool      // this handle started the command
	bound          bool      // the command ends with the context passed to follow
	waiting        *audience // the callers that wait for the command; nil: only the caller of follow waits
	stdin          io.Reader // the standard input of the command; may be nil
	out, errOut    io.Writer // receive the output of the command; may be nil
	stdout, stderr *clip.Output
	backlog        *backlog[CommandEvent] // nil for a command without a handle
	input          chan struct{}          // locked while input is sent; nil: the command takes no input
	abandon        context.CancelCauseFunc
	traced         func(*CommandResult, error) // called at the end of the command, to end its trace; may be nil

	done   chan struct{} // closed when the fields below are set
	result *CommandResult
	err    error
}

func newCommand(a *attachment, tag string, stdout, stderr io.Writer, maxOutput int64) *Command {
	return &Command{
		process: a, tag: tag, out: stdout, errOut: stderr,
		stdout: newOutput(maxOutput), stderr: newOutput(maxOutput),
	}
}

// errDisconnected is returned by calls that wait for a command or terminal, if Disconnect has been
// called.
var errDisconnected = fmt.Errorf("%w: disconnected from it; it may still run", ErrClosed)

// PID returns the command's process id in the sandbox.
func (c *Command) PID() int { return int(c.process.pid) }

// Tag returns the tag with which the command was started or found; empty if there is none.
func (c *Command) Tag() string { return c.tag }

// Offset returns the number of bytes of the command's output before the next byte that this handle
// receives. It counts stdout and stderr together, from the start of the command, and is a
// value for [CommandConnectParams].From. After Wait has returned, all output before Offset has been
// written to Stdout and Stderr. If the service does not keep output, Offset counts the bytes that this
// handle has received.
func (c *Command) Offset() int64 { return c.process.offset.Load() }

// Wait waits for the command's end. It may be called any number of times. If the exit status is not
// 0, the error is an [*ExitError], and the result is complete. With any other error of the command,
// the result contains the output before the error. Such an error may come from the Stdout, Stderr
// or Stdin of the command. These errors are also possible:
//   - [ErrCommandLost]: the connection broke
//   - context.DeadlineExceeded: the command's Timeout has passed
//   - [ErrClosed]: Disconnect, or Close of the sandbox's handle, was called
//
// If ctx ends first, Wait returns the error of ctx and no result, and the command continues.
func (c *Command) Wait(ctx context.Context) (*CommandResult, error) {
	select {
	case <-c.done:
		return c.result, c.err
	default:
	}
	defer c.waiting.join()()
	select {
	case <-c.done:
		return c.result, c.err
	case <-ctx.Done():
		return nil, fmt.Errorf("sandbox: wait for command %d in %s: %w", c.PID(), c.process.sb.ID(), context.Cause(ctx))
	}
}

// Kill kills the command. The error is os.ErrProcessDone if the command has already ended. On the
// local cloud the process has ended when Kill returns; on E2B's service the process may end a
// moment later.
func (c *Command) Kill(ctx context.Context) error { return c.Signal(ctx, os.Kill) }

// Signal sends syscall.SIGTERM or syscall.SIGKILL to the command; the service supports no other
// signals. The error is os.ErrProcessDone if the command has ended.
func (c *Command) Signal(ctx context.Context, signal os.Signal) error {
	wire, err := wireSignal(signal)
	if err != nil {
		return fmt.Errorf("sandbox: signal command %d in %s: %w", c.PID(), c.process.sb.ID(), err)
	}
	return c.act(ctx, "signal", func(ctx context.Context) error { return c.process.signal(ctx, wire) })
}

// SendInput writes data to the command's standard input and returns when all data has been
// accepted. A command from Start needs [CommandParams.Input]. The data of concurrent calls is not
// mixed.
func (c *Command) SendInput(ctx context.Context, data []byte) error {
	return c.withInput(ctx, "send input to", func(ctx context.Context) error {
		_, err := c.process.input(ctx, data, stdinInput)
		return err
	})
}

// CloseStdin closes the command's standard input, after the data of SendInput calls in
// progress.
func (c *Command) CloseStdin(ctx context.Context) error {
	return c.withInput(ctx, "close the input of", c.closeStdin)
}

func (c *Command) closeStdin(ctx context.Context) error {
	if !c.process.sb.closesStdin() {
		return c.process.sb.errCloseStdin()
	}
	return unary(ctx, c.process.user, c.process.sb.processes.CloseStdin, &process.CloseStdinRequest{Process: byPID(c.process.pid)})
}

func (c *Command) withInput(ctx context.Context, what string, do func(context.Context) error) error {
	return c.act(ctx, what, func(ctx context.Context) error {
		if c.input == nil {
			return errors.New("it was started without: set CommandParams.Input")
		}
		select {
		case c.input <- struct{}{}:
			defer func() { <-c.input }()
			return do(ctx)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
}

// Disconnect ends the connection to the command. The command continues, and [Commands.Connect] can
// connect to it again. With [CommandConnectParams].From, the output between the two connections is
// received, too.
func (c *Command) Disconnect() { c.abandon(errDisconnected) }

// act calls do, which sends a request about the command. If the command has ended, act returns an
// error. The parameter what is the name of the action. Errors contain this name.
func (c *Command) act(ctx context.Context, what string, do func(context.Context) error) error {
	select {
	case <-c.done:
		// Another process may have the same pid now.
		if _, exited := errors.AsType[*ExitError](c.err); exited || c.err == nil {
			return fmt.Errorf("sandbox: %s command %d in %s: %w (%w)", what, c.PID(), c.process.sb.ID(), os.ErrProcessDone, api.ErrNotFound)
		}
	default:
	}
	c.process.await(ctx, c.waiting)
	return c.process.act(ctx, what, do)
}

// act calls do, which sends a request about the process. If the process has ended, act returns an
// error. The parameter what is the name of the action. Errors contain this name.
func (a *attachment) act(ctx context.Context, what string, do func(context.Context) error) error {
	a.mu.Lock()
	gone := a.gone
	a.mu.Unlock()
	if gone {
		return fmt.Errorf("sandbox: %s command %d in %s: %w (%w)", what, a.pid, a.sb.ID(), os.ErrProcessDone, api.ErrNotFound)
	}
	return a.sb.act(ctx, fmt.Sprintf("%s command %d", what, a.pid), do)
}

// act calls do, which sends a request about a process. The parameter what is the name of the
// action. Errors contain this name.
func (sb *Sandbox) act(ctx context.Context, what string, do func(context.Context) error) error {
	ctx, end, err := sb.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	if err = do(ctx); err == nil {
		return nil
	}
	err = sb.failed(ctx, what, err)
	if errors.Is(err, api.ErrNotFound) {
		return fmt.Errorf("%w (%w)", err, os.ErrProcessDone)
	}
	return err
}

// follow receives the output until the command or life ends. If the command is bound to life and has
// not ended when follow returns, follow kills it in the background. It also does so if this handle
// started the command, and the Timeout has passed or the output cannot be delivered.
func (c *Command) follow(life context.Context) (*CommandResult, error) {
	stop := context.AfterFunc(life, c.process.cancel)
	defer stop()
	stdinFailed := make(chan error, 1)
	if c.stdin != nil {
		// Close does not wait for feed, because a Read cannot be cancelled.
		fed, ended := context.WithCancel(life)
		defer ended()
		go c.feed(fed, stdinFailed)
	}
	var outputFailed error
	end, err := c.process.followOn(life, c.waiting, func(data *process.ProcessEvent_DataEvent) error {
		outputFailed = c.deliver(life, data)
		return outputFailed
	})
	result := newCommandResult(end)
	result.OutputHeld, result.OutputCut = c.process.outputHeld, c.process.outputCut
	result.Stdout, result.StdoutDropped = c.stdout.Text(), c.stdout.Dropped()
	result.Stderr, result.StderrDropped = c.stderr.Text(), c.stderr.Dropped()
	if end == nil {
		late := errors.Is(life.Err(), context.DeadlineExceeded)
		kill := c.bound || c.own && (late || outputFailed != nil)
		c.process.sb.background(life, func(ctx context.Context) { c.process.leave(ctx, kill) })
		if life.Err() != nil {
			err = context.Cause(life)
		}
		return result, err
	}
	select {
	case err := <-stdinFailed:
		return result, fmt.Errorf("read its input: %w", err)
	default:
	}
	if result.ExitCode != 0 {
		return result, &ExitError{result}
	}
	return result, nil
}

func (c *Command) deliver(life context.Context, data *process.ProcessEvent_DataEvent) error {
	if data.GetPty() != nil {
		return errors.New("it has a terminal: use PTY.Connect")
	}
	if err := output(c.stdout, c.out, data.GetStdout()); err != nil {
		return fmt.Errorf("write its output: %w", err)
	}
	if err := output(c.stderr, c.errOut, data.GetStderr()); err != nil {
		return fmt.Errorf("write its error output: %w", err)
	}
	if n := len(data.GetStdout()) + len(data.GetStderr()); n > 0 && c.backlog != nil {
		c.backlog.push(life, CommandEvent{Stdout: data.GetStdout(), Stderr: data.GetStderr()}, n)
	}
	return nil
}

func output(c *clip.Output, w io.Writer, p []byte) error {
	if len(p) == 0 {
		return nil
	}
	_, _ = c.Write(p)
	if w == nil {
		return nil
	}
	n, err := w.Write(p)
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	return err
}

// feed sends the input to the command until the input or the command ends. A command that ends
// without reading all of the input causes no error, as with a pipe.
func (c *Command) feed(ctx context.Context, failed chan<- error) {
	buffer := make([]byte, inputChunk)
	for {
		n, err := c.stdin.Read(buffer)
		if ctx.Err() != nil {
			return
		}
		if _, err := c.process.input(ctx, buffer[:n], stdinInput); err != nil {
			if answer, ok := errors.AsType[*connect.Error](err); ctx.Err() == nil && (!ok || !connect.IsWireError(answer)) {
				c.process.failInput(err) // how much of the input the command received is unknown
			}
			return
		}
		if err == nil {
			continue
		}
		if err != io.EOF {
			failed <- err
		}
		_ = c.closeStdin(ctx)
		return
	}
}
