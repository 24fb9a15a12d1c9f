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
// missing reader. Only a bounded part of the output is kept. All methods are safe for concurrent
// use.
//
// If the sandbox is paused, the command goes on with it. After the sandbox has been resumed, this
// handle connects to the command again. If requests may resume the sandbox, the handle connects as
// soon as Wait or Events waits. Output may be lost then, see [CommandResult].OutputCut. If nothing
// resumes the sandbox, the error matches both [ErrCommandLost] and [ErrGone], and the state is
// [GonePaused].
type Command struct {
	process        *attachment
	tag            string
	own            bool      // started through this handle
	bound          bool      // ends with the call that follows it
	waiting        *audience // nil: the call that follows it waits
	stdin          io.Reader // may be nil
	out, errOut    io.Writer // may be nil
	stdout, stderr *clip.Output
	backlog        *backlog[CommandEvent] // nil for one without a handle
	input          chan struct{}          // held while input is sent; nil: the command takes no input
	abandon        context.CancelCauseFunc
	traced         func(*CommandResult, error) // called at its end; may be nil

	done   chan struct{} // closed when the rest is set
	result *CommandResult
	err    error
}

func newCommand(a *attachment, tag string, stdout, stderr io.Writer, maxOutput int64) *Command {
	return &Command{
		process: a, tag: tag, out: stdout, errOut: stderr,
		stdout: newOutput(maxOutput), stderr: newOutput(maxOutput),
	}
}

// errDisconnected is the error of waiting for a command after Disconnect.
var errDisconnected = fmt.Errorf("%w: disconnected from it; it may still run", ErrClosed)

// PID returns its process id in the sandbox.
func (c *Command) PID() int { return int(c.process.pid) }

// Tag returns the tag it was started with or found by; empty if there is none.
func (c *Command) Tag() string { return c.tag }

// Wait waits for its end. An exit status other than 0 is an [*ExitError]; the
// result is complete then, too. If the command has any other error, the result
// holds the output that had arrived: [ErrCommandLost] if the connection broke,
// context.DeadlineExceeded after its Timeout, [ErrClosed] after Disconnect and
// after Close of the sandbox's handle. If ctx ends before, Wait returns its error
// and no result, and the command continues. Wait may be called any number of
// times.
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

// Kill kills it. If it has ended, the error is os.ErrProcessDone. On the local
// cloud it is gone when Kill returns; on the service that may take a moment
// longer.
func (c *Command) Kill(ctx context.Context) error { return c.Signal(ctx, os.Kill) }

// Signal sends it syscall.SIGTERM or syscall.SIGKILL; the service supports no
// other signals. If it has ended, the error is os.ErrProcessDone.
func (c *Command) Signal(ctx context.Context, signal os.Signal) error {
	wire, err := wireSignal(signal)
	if err != nil {
		return fmt.Errorf("sandbox: signal command %d in %s: %w", c.PID(), c.process.sb.ID(), err)
	}
	return c.act(ctx, "signal", func(ctx context.Context) error { return c.process.signal(ctx, wire) })
}

// SendInput writes to its input and returns when all of data has been taken. A
// command from Start needs [CommandParams.Input]. The data of concurrent calls is
// not mixed.
func (c *Command) SendInput(ctx context.Context, data []byte) error {
	return c.withInput(ctx, "send input to", func(ctx context.Context) error {
		_, err := c.process.input(ctx, data, stdinInput)
		return err
	})
}

// CloseStdin ends its input, after what SendInput is still sending.
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

// Disconnect ends the connection; the command continues, and [Commands.Connect]
// finds it again. Its output in between is lost.
func (c *Command) Disconnect() { c.abandon(errDisconnected) }

// act does something with a command that has not ended.
func (c *Command) act(ctx context.Context, what string, do func(context.Context) error) error {
	select {
	case <-c.done:
		// Another process may have its pid by now.
		if _, exited := errors.AsType[*ExitError](c.err); exited || c.err == nil {
			return fmt.Errorf("sandbox: %s command %d in %s: %w (%w)", what, c.PID(), c.process.sb.ID(), os.ErrProcessDone, api.ErrNotFound)
		}
	default:
	}
	c.process.await(ctx, c.waiting)
	return c.process.act(ctx, what, do)
}

// act makes a call about the process.
func (a *attachment) act(ctx context.Context, what string, do func(context.Context) error) error {
	a.mu.Lock()
	gone := a.gone
	a.mu.Unlock()
	if gone {
		return fmt.Errorf("sandbox: %s command %d in %s: %w (%w)", what, a.pid, a.sb.ID(), os.ErrProcessDone, api.ErrNotFound)
	}
	return a.sb.act(ctx, fmt.Sprintf("%s command %d", what, a.pid), do)
}

// act makes a call about a process.
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

// follow takes the output until the command or life ends. A command is killed in
// the background, unless it ended, if it is bound to life, has used up its time,
// or has output that cannot be delivered.
func (c *Command) follow(life context.Context) (*CommandResult, error) {
	stop := context.AfterFunc(life, c.process.cancel)
	defer stop()
	stdinFailed := make(chan error, 1)
	if c.stdin != nil {
		// Close does not wait for this: a Read cannot be cut off.
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

// feed sends the input to the command until the input or the command ends. It is
// no error if the command does not read it all, just as with a pipe.
func (c *Command) feed(ctx context.Context, failed chan<- error) {
	buffer := make([]byte, inputChunk)
	for {
		n, err := c.stdin.Read(buffer)
		if ctx.Err() != nil {
			return
		}
		if _, err := c.process.input(ctx, buffer[:n], stdinInput); err != nil {
			if answer, ok := errors.AsType[*connect.Error](err); ctx.Err() == nil && (!ok || !connect.IsWireError(answer)) {
				c.process.failInput(err) // nobody knows how much of it the command has
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
