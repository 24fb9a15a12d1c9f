package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/gen/process"
)

// Commands runs commands in a sandbox. It is safe for concurrent use.
type Commands struct{ sb *Sandbox }

// CommandParams sets how to run a command. The zero value runs it as the
// sandbox's default user in its default directory, without input and without a
// time limit.
type CommandParams struct {
	// User is the user who runs the command, such as "root". Empty means the default user. The
	// default user cannot write to files that code has created, because code runs as root.
	User string
	// Cwd is the working directory of the command; it must exist. Empty means the default
	// directory.
	Cwd string
	// Envs are environment variables that are added to those of the sandbox.
	Envs map[string]string
	// Tag is a name for the command, by which [ByTag] selects it.
	Tag string
	// Timeout limits the running time of the command. When the time has passed, the command is killed,
	// even if this program has ended, and the error is context.DeadlineExceeded. Zero means that only
	// the end of the sandbox limits the time.
	Timeout time.Duration
	// Stdin is the command's standard input. Nil means empty input. Stdin is read until the command
	// ends. The call does not wait for a Read that is still in progress at the command's end.
	Stdin io.Reader
	// Input keeps the standard input open for [Command.SendInput]. It is only for commands from Start.
	// If Input is set, Stdin must be nil.
	Input bool
	// Stdout and Stderr receive the command's output as it arrives. Nil means no writer. A piece of
	// output may end in the middle of a character. An error from one of the writers ends the command.
	// Run calls the writers on the caller's goroutine, and Start on a separate goroutine. The two
	// writers are never called at the same time.
	Stdout, Stderr io.Writer
	// MaxOutputBytes limits the bytes of each stream that the result keeps: half of them from
	// the beginning and half from the end. Zero means [DefaultMaxOutputBytes]; a negative
	// number keeps none.
	MaxOutputBytes int64
}

// CommandConnectParams sets the destination of the output of a connected command.
type CommandConnectParams struct {
	// User is the user for the connection; empty means the default user.
	User string
	// Stdout and Stderr receive the exact bytes of the output as they arrive. Nil means no writer. The
	// two writers are never called at the same time. An error from one of the writers ends the
	// connection, but not the command.
	Stdout, Stderr io.Writer
	// MaxOutputBytes has the meaning of [CommandParams].MaxOutputBytes.
	MaxOutputBytes int64
	// From is the offset of the first byte of output to receive, such as [Command.Offset] of an
	// earlier handle; 0 is the first byte of the process. Nil means the output that the process
	// writes from now on. If output from there on is no longer kept, the error is an
	// [*OutputLostError]. If From is beyond the output so far, Connect returns an error.
	//
	// Only the local cloud keeps output. For other services the error is [errors.ErrUnsupported].
	From *int64
}

// Run runs a command line with bash as a login shell, and waits for its end. A command is never
// started twice. If the exit status is not 0, the error is an [*ExitError], and the result is
// complete. With any other error, the result contains the output before the error, or is nil if the
// command did not start. When ctx ends, Run kills the command and returns at once; it waits only
// for a Write to Stdout or Stderr that is in progress.
//
// A command that leaves processes running must redirect their output: "server >server.log 2>&1 &".
// If these processes still have the command's output open when the command ends, Run waits for them
// on E2B's service. On the local cloud, Run does not wait, and their later output is lost: see
// [CommandResult.OutputHeld].
func (c *Commands) Run(ctx context.Context, command string, p *CommandParams) (*CommandResult, error) {
	return c.runLine(ctx, command, loginShell(command), p)
}

// runOwn runs a command line that this package wrote. It works like Run, except that bash reads no
// files of the user.
func (c *Commands) runOwn(ctx context.Context, line string, p *CommandParams) (*CommandResult, error) {
	return c.runLine(ctx, line, ownShell(line), p)
}

// runLine runs argv. Traces contain the parameter command as the command line.
func (c *Commands) runLine(ctx context.Context, command string, argv []string, p *CommandParams) (*CommandResult, error) {
	if p == nil {
		p = &CommandParams{}
	}
	if p.Input {
		return nil, errors.New("sandbox: run a command: CommandParams.Input is for Start: give it a Stdin")
	}
	ctx, end, err := c.sb.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	ctx, traced := tracingIn(ctx, c.sb.client.trace.Command, c.sb, command)
	result, err := c.run(ctx, argv, p)
	if _, ok := errors.AsType[*ExitError](err); err != nil && !ok {
		err = c.sb.failed(ctx, "run a command", err)
	}
	traced(result, err)
	return result, err
}

// Start starts a command line like Run, and returns as soon as the command runs. ctx limits only
// the start: if ctx ends first, a process that may have been started is killed. After the start,
// the command ends by itself, by Kill, by Timeout or with the sandbox. Closing the sandbox's handle
// does not end the command if the sandbox continues to run. The output of the command is received
// even if the caller does not wait for the command.
func (c *Commands) Start(ctx context.Context, command string, p *CommandParams) (*Command, error) {
	if p == nil {
		p = &CommandParams{}
	}
	ctx, traced := tracingIn(ctx, c.sb.client.trace.Command, c.sb, command)
	started, err := c.handle(ctx, "start a command", p.Timeout, func(ctx, life context.Context) (*Command, error) {
		started, err := c.start(ctx, life, loginShell(command), p)
		if err == nil {
			started.traced = traced
		}
		return started, err
	})
	if err != nil {
		traced(nil, err)
	}
	return started, err
}

// Connect returns a handle to a running process that any program may have started. ctx limits only
// the time to connect. The output begins at the connection, or at [CommandConnectParams].From. If the
// process ended at most 30 seconds ago, the handle returns the result of the process without
// output. If it ended earlier, or the daemon is older than 0.6.12, the error is api.ErrNotFound.
// For a process with a terminal use [PTY.Connect].
func (c *Commands) Connect(ctx context.Context, which ProcessSelector, p *CommandConnectParams) (*Command, error) {
	if p == nil {
		p = &CommandConnectParams{}
	}
	return c.handle(ctx, "connect to "+which.String(), 0, func(ctx, life context.Context) (*Command, error) {
		selector, tag, err := c.find(ctx, which)
		if err != nil {
			return nil, err
		}
		a, err := c.sb.connectFrom(ctx, life, p.User, selector, "CommandConnectParams.From", p.From)
		if err != nil {
			return nil, err
		}
		command := newCommand(a, tag, p.Stdout, p.Stderr, p.MaxOutputBytes)
		command.input = make(chan struct{}, 1)
		return command, nil
	})
}

// loginShell returns the arguments that run a command line in a login shell.
func loginShell(command string) []string { return []string{"/bin/bash", "-l", "-c", command} }

// ownShell returns the arguments that run a command line which this package wrote. They start bash
// with -p. Such a bash reads no files, and imports no functions from its environment, so a user's
// .bashrc cannot change the outcome.
func ownShell(line string) []string { return []string{"/bin/bash", "-p", "-c", line} }

// run runs argv to its end. The command ends when ctx ends. If the exit status is not 0, the error
// is an [*ExitError]. run returns any other error unchanged.
func (c *Commands) run(ctx context.Context, argv []string, p *CommandParams) (*CommandResult, error) {
	ctx, release := limited(ctx, p.Timeout)
	defer release()
	command, err := c.start(ctx, ctx, argv, p)
	if err != nil {
		return nil, err
	}
	command.bound = true
	return command.follow(ctx)
}

// start starts argv. It waits for the start until ctx or life ends.
func (c *Commands) start(ctx, life context.Context, argv []string, p *CommandParams) (*Command, error) {
	switch {
	case p.Timeout < 0:
		return nil, fmt.Errorf("CommandParams.Timeout is negative: %v", p.Timeout)
	case p.Input && p.Stdin != nil:
		return nil, errors.New("CommandParams has both Stdin and Input: choose one")
	case p.Stdin != nil && !c.sb.closesStdin():
		return nil, c.sb.errCloseStdin()
	}
	stdin := p.Input || p.Stdin != nil
	request := &process.StartRequest{
		Process: &process.ProcessConfig{Cmd: argv[0], Args: argv[1:], Envs: c.sb.client.trace.envs(ctx, p.Envs), Cwd: optional(p.Cwd)},
		Tag:     optional(p.Tag),
		Stdin:   &stdin,
	}
	a, err := c.sb.startProcess(ctx, life, p.User, request)
	if err != nil {
		return nil, err
	}
	command := newCommand(a, p.Tag, p.Stdout, p.Stderr, p.MaxOutputBytes)
	command.own, command.stdin = true, p.Stdin
	if p.Input {
		command.input = make(chan struct{}, 1)
	}
	return command, nil
}

// optional returns a pointer to s, or nil if s is empty.
func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// handle calls the function open to start a command or connect to it. It then follows the command
// in a separate goroutine. The command outlives the call of handle.
func (c *Commands) handle(ctx context.Context, what string, timeout time.Duration, open func(ctx, life context.Context) (*Command, error)) (*Command, error) {
	ctx, opened, err := c.sb.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer opened()
	life, abandon, end, err := c.sb.lifetime(ctx, timeout)
	if err != nil {
		return nil, err
	}
	command, err := open(ctx, life)
	if err != nil {
		defer end()
		return nil, c.sb.failed(ctx, what, err)
	}
	command.abandon, command.backlog, command.done = abandon, newBacklog[CommandEvent](), make(chan struct{})
	command.waiting = newAudience()
	go func() {
		defer end()
		defer close(command.done)
		command.result, command.err = command.follow(life)
		if _, ok := errors.AsType[*ExitError](command.err); command.err != nil && !ok {
			command.err = c.sb.failed(life, fmt.Sprintf("command %d", command.PID()), command.err)
		}
		if command.traced != nil {
			command.traced(command.result, command.err)
		}
	}()
	return command, nil
}

// closesStdin reports whether envd can end the input of a command.
func (sb *Sandbox) closesStdin() bool { return !olderThan(sb.remote.EnvdVersion, 0, 5, 2) }

func (sb *Sandbox) errCloseStdin() error {
	return fmt.Errorf("the sandbox's daemon %s cannot close a command's input: rebuild the template", clip.Text(sb.remote.EnvdVersion, 32))
}
