package sshserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/crypto/ssh"

	"github.com/e2bctl/e2bctl/sandbox"
)

// failed is the exit status of a session whose command could not run, as ssh has it for its own
// failures.
const failed = 255

// session is one command or shell of the client, or its sftp.
type session struct {
	*server
	channel ssh.Channel
	envs    map[string]string
	size    int              // the bytes of envs
	pty     *terminalRequest // nil: without a terminal
	started bool

	mu     sync.Mutex
	pid    int            // the process, once it runs
	resize resize         // nil while no terminal is open
	window *windowRequest // the last size that the client asked for while no terminal was open
}

// resize changes the size of a terminal.
type resize func(ctx context.Context, cols, rows int) error

// terminalRequest is the beginning of a pty-req. The modes of the terminal, which follow, are not
// used: the terminal is the sandbox's.
type terminalRequest struct {
	Term          string
	Cols, Rows    uint32
	Width, Height uint32
	Modes         string
}

type windowRequest struct{ Cols, Rows, Width, Height uint32 }

// session serves a channel of type session.
func (s *server) session(ctx context.Context, offered ssh.NewChannel) {
	channel, requests, err := offered.Accept()
	if err != nil {
		return
	}
	ctx, end := context.WithCancel(ctx)
	c := &session{server: s, channel: channel, envs: map[string]string{}}
	var running sync.WaitGroup
	defer func() {
		end()
		_ = channel.Close()
		running.Wait()
	}()
	for request := range requests { // until the channel is closed by either side
		run, ok := c.handle(ctx, request)
		if request.WantReply {
			_ = request.Reply(ok, nil)
		}
		if run != nil {
			c.started = true
			running.Go(func() { c.finish(run(ctx)) })
		}
	}
}

// handle handles one request, and reports whether it is granted. The function run is nil unless the
// request starts the program of the session.
func (c *session) handle(ctx context.Context, request *ssh.Request) (run func(context.Context) (exit, error), ok bool) {
	switch request.Type {
	case "env":
		return nil, c.setEnv(request.Payload)
	case "pty-req":
		var pty terminalRequest
		if c.started || ssh.Unmarshal(request.Payload, &pty) != nil || len(pty.Term) > maxUser {
			return nil, false
		}
		c.pty = &pty
		return nil, true
	case "window-change":
		return nil, c.changeWindow(ctx, request.Payload)
	case "signal":
		var signal struct{ Name string }
		return nil, ssh.Unmarshal(request.Payload, &signal) == nil && c.signal(ctx, signal.Name)
	case "shell", "exec", "subsystem":
		if c.started {
			return nil, false
		}
		return c.start(request)
	}
	return nil, false // x11-req, auth-agent-req@openssh.com and others
}

// start returns the function that runs the command, shell or subsystem of a request.
func (c *session) start(request *ssh.Request) (run func(context.Context) (exit, error), ok bool) {
	var wanted struct{ Text string }
	if request.Type != "shell" && ssh.Unmarshal(request.Payload, &wanted) != nil {
		return nil, false
	}
	switch {
	case request.Type == "subsystem" && wanted.Text == "sftp":
		return c.sftp, true
	case request.Type == "subsystem":
		return nil, false
	case c.pty != nil:
		return func(ctx context.Context) (exit, error) { return c.terminal(ctx, wanted.Text) }, true
	case request.Type == "shell":
		// A shell without a terminal reads its commands from standard input. The login shell around it has
		// read the profile.
		wanted.Text = "exec bash"
	}
	return func(ctx context.Context) (exit, error) { return c.command(ctx, wanted.Text) }, true
}

// setEnv keeps a variable for the command. The language of the client's machine is refused, because
// sandboxes do not have it, and their programs would warn about that.
func (c *session) setEnv(payload []byte) bool {
	var env struct{ Name, Value string }
	if ssh.Unmarshal(payload, &env) != nil || !isVariable(env.Name) || strings.ContainsRune(env.Value, 0) {
		return false
	}
	size := c.size + len(env.Name) + len(env.Value)
	if env.Name == "LANG" || strings.HasPrefix(env.Name, "LC_") || len(c.envs) == maxEnvs || size > maxEnvBytes {
		return false
	}
	c.envs[env.Name], c.size = env.Value, size
	return true
}

// isVariable reports whether a shell accepts name as the name of a variable.
func isVariable(name string) bool {
	for i, c := range []byte(name) {
		letter := c == '_' || 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && (i == 0 || c < '0' || '9' < c) {
			return false
		}
	}
	return name != ""
}

// exit is the end of a program: the number of a signal, or else a status.
type exit struct{ status, signal int }

// finish reports the end of the session's program, and closes the channel.
func (c *session) finish(e exit, err error) {
	if err != nil {
		fmt.Fprintf(c.channel.Stderr(), "e2bctl: %s\r\n", c.broken(err))
		e = exit{status: failed}
	}
	if name := signalName(e.signal); name != "" {
		_, _ = c.channel.SendRequest("exit-signal", false, ssh.Marshal(struct {
			Name       string
			CoreDumped bool
			Message    string
			Language   string
		}{Name: name}))
	} else {
		_, _ = c.channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{uint32(e.status)}))
	}
	_ = c.channel.Close()
}

// command runs a command line without a terminal. It kills the command if ctx ends.
func (c *session) command(ctx context.Context, line string) (exit, error) {
	command, err := c.Sandbox.Commands.Start(ctx, line, &sandbox.CommandParams{
		User: c.user, Envs: c.envs, Stdin: c.channel, Stdout: c.channel, Stderr: c.channel.Stderr(), MaxOutputBytes: -1,
	})
	if err != nil {
		return exit{}, err
	}
	c.runs(command.PID(), nil)
	return exited(awaitOrKill(ctx, command))
}

// awaitOrKill waits for the end of a command. It kills the command if ctx ends.
func awaitOrKill(ctx context.Context, command *sandbox.Command) error {
	_, err := command.Wait(ctx)
	if ctx.Err() != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTime)
		defer cancel()
		_ = command.Kill(ctx)
		command.Disconnect()
	}
	return err
}

// terminal runs a command line, or a shell if the line is empty, in a terminal.
func (c *session) terminal(ctx context.Context, line string) (exit, error) {
	if c.pty.Term != "" {
		c.envs["TERM"] = c.pty.Term
	}
	c.mu.Lock()
	if c.window != nil { // the client has asked for another size since
		c.pty.Cols, c.pty.Rows = c.window.Cols, c.window.Rows
	}
	c.mu.Unlock()
	terminal, err := c.Sandbox.PTY.Open(ctx, &sandbox.PTYParams{
		Cols: bounded(c.pty.Cols), Rows: bounded(c.pty.Rows), Command: line, User: c.user, Envs: c.envs,
	})
	if err != nil {
		return exit{}, err
	}
	defer func() { _ = terminal.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = terminal.Close() })
	defer stop()
	if window := c.runs(terminal.PID(), terminal.Resize); window != nil {
		_ = terminal.Resize(ctx, bounded(window.Cols), bounded(window.Rows))
	}
	// The typing ends with the channel, which finish closes.
	c.running.Go(func() { _, _ = io.Copy(terminal, c.channel) })
	if _, err := io.Copy(c.channel, terminal); err != nil {
		return exit{}, err
	}
	return exited(terminal.Wait(ctx))
}

// bounded returns a number of columns or rows that a terminal can have. 0 is the usual number.
func bounded(n uint32) int { return int(min(n, 1<<16-1)) }

// runs notes the process of the session, for the requests that change it. It returns the size that
// the client has asked for in the meantime.
func (c *session) runs(pid int, change resize) *windowRequest {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pid, c.resize = pid, change
	return c.window
}

// exited returns the end of a program from the error of its wait.
func exited(err error) (exit, error) {
	ended, ok := errors.AsType[*sandbox.ExitError](err)
	switch {
	case !ok:
		return exit{}, err
	case ended.Result.ExitCode < 0 && ended.Result.Signal == 0:
		return exit{}, err // its end has no number
	}
	return exit{ended.Result.ExitCode, ended.Result.Signal}, nil
}

func (c *session) changeWindow(ctx context.Context, payload []byte) bool {
	var window windowRequest
	if c.pty == nil || ssh.Unmarshal(payload, &window) != nil {
		return false
	}
	c.mu.Lock()
	change := c.resize
	c.window = &window
	c.mu.Unlock()
	return change == nil || change(ctx, bounded(window.Cols), bounded(window.Rows)) == nil
}

// signal sends a signal to the processes of the session's program, by a command, because the
// service itself sends only two signals.
func (c *session) signal(ctx context.Context, name string) bool {
	c.mu.Lock()
	pid := c.pid
	c.mu.Unlock()
	if pid == 0 || name == "" || !slices.Contains(signalNames(), name) {
		return false
	}
	line := fmt.Sprintf("kill -s %[1]s -- -%[2]d 2>/dev/null || kill -s %[1]s -- %[2]d", name, pid)
	_, err := c.Sandbox.Commands.Run(ctx, line, &sandbox.CommandParams{User: c.user})
	return err == nil
}

// signalNames returns the names of signals in SSH, by their numbers in Linux.
func signalNames() []string {
	return []string{
		1: "HUP", 2: "INT", 3: "QUIT", 4: "ILL", 6: "ABRT", 8: "FPE", 9: "KILL", 10: "USR1", 11: "SEGV", 12: "USR2", 13: "PIPE", 14: "ALRM", 15: "TERM",
	}
}

// signalName returns the name of a signal in SSH; one that has none there is called by its number.
// It returns "" for 0, which is no signal.
func signalName(number int) string {
	names := signalNames()
	switch {
	case number <= 0:
		return ""
	case number < len(names) && names[number] != "":
		return names[number]
	}
	return strconv.Itoa(number) + "@e2bctl"
}
