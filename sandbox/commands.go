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
	// User is the user to run it as, "root" for instance; empty means the default
	// user, who cannot write to the files that code has made: code runs as root.
	User string
	// Cwd is the directory to run it in; it must exist. Empty means the default.
	Cwd string
	// Envs are added to the sandbox's environment.
	Envs map[string]string
	// Tag is a name by which the command can be found again: see [ByTag].
	Tag string
	// Timeout limits the time that it runs. Then it is killed, even if this program no
	// longer runs, and the error is context.DeadlineExceeded. Zero means that it may
	// run as long as the sandbox does.
	Timeout time.Duration
	// Stdin is its input; nil means none. It is read as long as the command runs; a
	// Read that is in progress at its end is not waited for.
	Stdin io.Reader
	// Input keeps the input of a command from Start open for [Command.SendInput]. It
	// excludes Stdin.
	Input bool
	// Stdout and Stderr receive its output as it arrives, in pieces that may end in
	// the middle of a character; an error that they return ends the command. Run
	// calls them on the caller's goroutine, Start on a goroutine of its own, never
	// both at once. May be nil.
	Stdout, Stderr io.Writer
	// MaxOutputBytes limits the bytes of each stream that the result keeps, half of them from
	// the beginning and half from the end. Zero means [DefaultMaxOutputBytes]; a negative
	// number keeps none.
	MaxOutputBytes int64
}

// CommandConnectParams sets where the output of a command that was connected to
// goes.
type CommandConnectParams struct {
	// User is the user in whose name to connect; empty means the default user.
	User string
	// Stdout and Stderr receive the output as it arrives, in bytes, one call at a
	// time; an error that they return ends the connection, not the command. May be
	// nil.
	Stdout, Stderr io.Writer
	// MaxOutputBytes is as in [CommandParams].
	MaxOutputBytes int64
}

// Run runs a command with bash, as a login shell does, and waits for its end. An
// exit status other than 0 is an [*ExitError]; the result is complete then, too.
// With any other error the result holds the output that had arrived, or is nil if
// the command did not start. When ctx ends, the command is killed and Run returns
// at once, except that it waits for a Write to Stdout or Stderr that is in
// progress. A command is never started twice.
//
// A command that leaves processes behind has to redirect their output: "server >server.log 2>&1
// &". If they still hold the command's output, then on the service Run waits for them, and on the
// local cloud their later output is lost: see [CommandResult.OutputHeld].
func (c *Commands) Run(ctx context.Context, command string, p *CommandParams) (*CommandResult, error) {
	return c.runLine(ctx, command, loginShell(command), p)
}

// runOwn runs a line of this package as Run does, and reads no file of the user's.
func (c *Commands) runOwn(ctx context.Context, line string, p *CommandParams) (*CommandResult, error) {
	return c.runLine(ctx, line, ownShell(line), p)
}

// runLine runs argv, which runs the line command.
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

// Start starts a command as Run does and returns as soon as it runs. ctx bounds only the start: if
// it ends before, a process that may have been started is killed. Afterwards the command ends by
// itself, by Kill, by Timeout or with the sandbox; Close of a sandbox that stays leaves it
// running. Its output is taken whether or not the caller waits for it.
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

// Connect returns a handle to a running process, started by this program or
// another; ctx bounds only the connecting. Its output begins now: nothing earlier
// is repeated. Of a process that ended at most 30 seconds ago there is the result, without
// output; later, and where the daemon is older than 0.6.12, there is no such process,
// and the error is an api.ErrNotFound. For a process with a terminal use [PTY.Connect].
func (c *Commands) Connect(ctx context.Context, which ProcessSelector, p *CommandConnectParams) (*Command, error) {
	if p == nil {
		p = &CommandConnectParams{}
	}
	return c.handle(ctx, "connect to "+which.String(), 0, func(ctx, life context.Context) (*Command, error) {
		selector, tag, err := c.find(ctx, which)
		if err != nil {
			return nil, err
		}
		a, err := c.sb.connectProcess(ctx, life, p.User, selector)
		if err != nil {
			return nil, err
		}
		command := newCommand(a, tag, p.Stdout, p.Stderr, p.MaxOutputBytes)
		command.input = make(chan struct{}, 1)
		return command, nil
	})
}

// loginShell returns the arguments that run a shell command line.
func loginShell(command string) []string { return []string{"/bin/bash", "-l", "-c", command} }

// ownShell returns the arguments that run a line of this package, by a bash that reads no file
// and takes no functions from its environment (-p): what a user's .bashrc does or prints must
// not change the outcome.
func ownShell(line string) []string { return []string{"/bin/bash", "-p", "-c", line} }

// run runs argv to its end, during a call; the command ends with the call. Errors
// are returned as they are, except for [*ExitError].
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

// start starts argv, waiting until ctx or life ends.
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

// optional returns nil for an empty string.
func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// handle returns a command that outlives the call that started it.
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
