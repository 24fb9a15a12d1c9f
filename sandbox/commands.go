package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/gen/process/processconnect"
)

const (
	// keepalive is how often, in seconds, a silent stream says that it lives:
	// proxies cut streams that do not.
	keepalive = "50"
	// startTimeout bounds how long a command may take to start.
	startTimeout = time.Minute
	// killGrace is how long after the caller's deadline the daemon ends a
	// command by itself, should our kill not reach it.
	killGrace = 2 * time.Second
	// maxEvent bounds one message of the daemon, which sends 32 KiB at a time.
	maxEvent = 4 << 20
	// stdinChunk is what one message of input carries at most.
	stdinChunk = 32 << 10
)

// Commands runs commands in a sandbox. It is safe for concurrent use.
type Commands struct{ sb *Sandbox }

// CommandParams say how to run a command. The zero value runs it as the
// sandbox's default user in its default directory, without input.
type CommandParams struct {
	// User is who runs it, "root" for instance; empty means the default user.
	User string
	// Cwd is the directory to run it in; it must exist. Empty means the default.
	Cwd string
	// Envs are added to the sandbox's environment.
	Envs map[string]string
	// Stdin is its input; nil means none. It is read as long as the command
	// runs; a Read in progress then is not waited for.
	Stdin io.Reader
	// Stdout and Stderr get its output as it comes, from the goroutine that
	// called; an error of theirs ends the command. May be nil.
	Stdout, Stderr io.Writer
	// MaxOutput is how many bytes of each stream the result keeps, half of them
	// from the beginning and half from the end; 0 means [DefaultMaxOutput], less
	// than 0 none.
	MaxOutput int
}

// CommandResult is what a command left.
type CommandResult struct {
	// ExitCode is its exit status; -1 when a signal ended it.
	ExitCode int
	// Status says it in words: "exit status 3", "signal: killed (out of memory: the sandbox's limit is 2 GiB)".
	Status string
	// Stdout and Stderr are the output, as far as it is kept; where bytes were
	// dropped, a line says so.
	Stdout, Stderr string
	// StdoutDropped and StderrDropped count the bytes that are not kept.
	StdoutDropped, StderrDropped int64
}

// ExitError is a command that ran and failed.
type ExitError struct {
	// Result is complete, as of a command that succeeds.
	Result *CommandResult
}

// Error says how it ended, and the last line of its error output.
func (e *ExitError) Error() string {
	status := e.Result.Status
	if status == "" {
		status = fmt.Sprintf("exit status %d", e.Result.ExitCode)
	}
	if last := lastLine(e.Result.Stderr); last != "" {
		return "command failed: " + status + ": " + last
	}
	return "command failed: " + status
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return shorten(s[strings.LastIndexByte(s, '\n')+1:], 256)
}

// Run runs a command with bash, as a login shell does, and waits for its end.
// A status other than 0 is an [*ExitError]; the result is complete then, too.
// With any other error the result has the output that came, or is nil when the
// command did not start. When ctx ends, Run returns at once and the command is
// killed. A command is never started twice.
func (c *Commands) Run(ctx context.Context, command string, p *CommandParams) (*CommandResult, error) {
	if p == nil {
		p = &CommandParams{}
	}
	ctx, end, err := c.sb.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	result, err := c.process(ctx, []string{"/bin/bash", "-l", "-c", command}, p)
	if _, ok := errors.AsType[*ExitError](err); err != nil && !ok {
		err = c.sb.failed(ctx, "run a command", err)
	}
	return result, err
}

// process runs argv, within a call. Errors are as they come, but for
// [*ExitError].
func (c *Commands) process(ctx context.Context, argv []string, p *CommandParams) (*CommandResult, error) {
	running, err := c.start(ctx, argv, p)
	if err != nil {
		return nil, err
	}
	result, err := running.wait(ctx)
	if err == nil && result.ExitCode != 0 {
		err = &ExitError{result}
	}
	return result, err
}

// command is a process of the sandbox whose stream is ours.
type command struct {
	sb             *Sandbox
	user           string
	pid            uint32
	params         *CommandParams
	stream         *connect.ServerStreamForClient[process.StartResponse]
	cancel         context.CancelFunc // of the stream
	stdout, stderr *capture
}

// start starts argv and waits until it runs. When ctx ends first, what may
// have been started is killed in the background.
func (c *Commands) start(ctx context.Context, argv []string, p *CommandParams) (*command, error) {
	if p.Stdin != nil && olderThan(c.sb.remote.EnvdVersion, 0, 5, 2) {
		return nil, fmt.Errorf("the sandbox's daemon %s cannot close a command's input: rebuild the template", c.sb.remote.EnvdVersion)
	}
	stdin := p.Stdin != nil
	request := connect.NewRequest(&process.StartRequest{
		Process: &process.ProcessConfig{Cmd: argv[0], Args: argv[1:], Envs: p.Envs},
		Stdin:   &stdin,
	})
	if p.Cwd != "" {
		request.Msg.Process.Cwd = &p.Cwd
	}
	asUser(request.Header(), p.User)
	request.Header().Set("Keepalive-Ping-Interval", keepalive)

	// The stream outlives ctx: only its first message tells what to kill.
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	if deadline, ok := ctx.Deadline(); ok {
		life, cancel = context.WithDeadline(life, deadline.Add(killGrace))
	}
	running := &command{
		sb: c.sb, user: p.User, params: p, cancel: cancel,
		stdout: newCapture(p.MaxOutput), stderr: newCapture(p.MaxOutput),
	}
	started := make(chan error, 1)
	c.sb.running.Go(func() { started <- running.open(life, request) })
	timeout := time.NewTimer(startTimeout)
	defer timeout.Stop()
	var err error
	select {
	case err = <-started:
		if err != nil {
			cancel()
			return nil, err
		}
		return running, nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-timeout.C:
		err = fmt.Errorf("the daemon did not start it in %v: %w", startTimeout, context.DeadlineExceeded)
	}
	c.sb.background(ctx, func(ctx context.Context) {
		defer cancel()
		stop := context.AfterFunc(ctx, cancel)
		defer stop()
		if <-started == nil {
			running.kill(ctx)
			_ = running.stream.Close()
		}
	})
	return nil, err
}

// open sends the request, once, and reads the first message.
func (r *command) open(ctx context.Context, request *connect.Request[process.StartRequest]) error {
	stream, err := r.sb.processes.Start(ctx, request)
	if err != nil {
		return err
	}
	r.stream = stream
	if !stream.Receive() {
		_ = stream.Close()
		if err := stream.Err(); err != nil {
			return err
		}
		return errStreamCut
	}
	start := stream.Msg().GetEvent().GetStart()
	if start == nil {
		_ = stream.Close()
		return errors.New("the daemon's first word is not that the command started")
	}
	r.pid = start.GetPid()
	return nil
}

// wait reads the stream to its end. Unless the command ended, it is killed in
// the background.
func (r *command) wait(ctx context.Context) (*CommandResult, error) {
	stop := context.AfterFunc(ctx, r.cancel)
	defer stop()
	stdinFailed := make(chan error, 1)
	if r.params.Stdin != nil {
		// Not counted among what Close waits for: a Read cannot be cut off.
		life, ended := context.WithCancel(ctx)
		defer ended()
		go r.feed(life, stdinFailed)
	}
	end, err := r.read()
	result := &CommandResult{
		ExitCode: int(end.GetExitCode()), Status: cmp.Or(end.GetError(), end.GetStatus()),
		Stdout: r.stdout.text(), StdoutDropped: r.stdout.dropped(),
		Stderr: r.stderr.text(), StderrDropped: r.stderr.dropped(),
	}
	if end == nil {
		result.ExitCode = -1
		r.cancel()
		r.sb.background(ctx, func(ctx context.Context) {
			r.kill(ctx)
			_ = r.stream.Close()
		})
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return result, err
	}
	_ = r.stream.Close()
	r.cancel()
	select {
	case err := <-stdinFailed:
		return result, fmt.Errorf("read its input: %w", err)
	default:
		return result, nil
	}
}

// read gives the end of the command, or nil and why there is none.
func (r *command) read() (*process.ProcessEvent_EndEvent, error) {
	var end *process.ProcessEvent_EndEvent
	for r.stream.Receive() {
		event := r.stream.Msg().GetEvent()
		if e := event.GetEnd(); e != nil {
			end = e
		}
		data := event.GetData()
		if data == nil {
			continue
		}
		if err := output(r.stdout, r.params.Stdout, data.GetStdout()); err != nil {
			return nil, fmt.Errorf("write its output: %w", err)
		}
		if err := output(r.stderr, r.params.Stderr, data.GetStderr()); err != nil {
			return nil, fmt.Errorf("write its error output: %w", err)
		}
	}
	if end != nil {
		return end, nil
	}
	if err := r.stream.Err(); connect.IsWireError(err) || errors.Is(err, ErrGone) {
		return nil, err
	}
	return nil, errStreamCut
}

func output(c *capture, w io.Writer, p []byte) error {
	if len(p) == 0 {
		return nil
	}
	c.write(p)
	if w == nil {
		return nil
	}
	n, err := w.Write(p)
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	return err
}

// feed carries the input to the command until it or the command ends. That the
// command does not want it is not an error, as it is none in a pipe.
func (r *command) feed(ctx context.Context, failed chan<- error) {
	buffer := make([]byte, stdinChunk)
	for {
		n, err := r.params.Stdin.Read(buffer)
		if ctx.Err() != nil {
			return
		}
		if n > 0 {
			request := connect.NewRequest(&process.SendInputRequest{
				Process: r.selector(), Input: &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: buffer[:n]}},
			})
			asUser(request.Header(), r.user)
			if _, err := r.sb.processes.SendInput(ctx, request); err != nil {
				return
			}
		}
		if err == nil {
			continue
		}
		if err != io.EOF {
			failed <- err
		}
		request := connect.NewRequest(&process.CloseStdinRequest{Process: r.selector()})
		asUser(request.Header(), r.user)
		_, _ = r.sb.processes.CloseStdin(ctx, request)
		return
	}
}

// kill ends the command, whatever ctx of the call has come to.
func (r *command) kill(ctx context.Context) {
	request := connect.NewRequest(&process.SendSignalRequest{Process: r.selector(), Signal: process.Signal_SIGNAL_SIGKILL})
	asUser(request.Header(), r.user)
	_, err := r.sb.processes.SendSignal(ctx, request)
	if err != nil && connect.CodeOf(err) != connect.CodeNotFound && !errors.Is(err, ErrGone) {
		r.sb.client.api.Logger().WarnContext(ctx, "a command that was given up may still run", "sandbox", r.sb.ID(), "pid", r.pid, "error", err)
	}
}

func (r *command) selector() *process.ProcessSelector {
	return &process.ProcessSelector{Selector: &process.ProcessSelector_Pid{Pid: r.pid}}
}

// asUser says who does it; the password is not looked at.
func asUser(h http.Header, user string) {
	if user != "" {
		r := http.Request{Header: h}
		r.SetBasicAuth(user, "")
	}
}

func newProcessClient(sb *Sandbox) processconnect.ProcessClient {
	return processconnect.NewProcessClient(rpcClient{portClient{sb, daemonPort}}, sb.baseURL(daemonPort),
		connect.WithInterceptors(sb.client.interceptors...), connect.WithReadMaxBytes(maxEvent))
}

// olderThan compares a version of the daemon; one that is not understood is
// taken to be new.
func olderThan(version string, major, minor, patch int) bool {
	var a, b, c int
	if n, _ := fmt.Sscanf(version, "%d.%d.%d", &a, &b, &c); n < 3 {
		return false
	}
	if a != major {
		return a < major
	}
	if b != minor {
		return b < minor
	}
	return c < patch
}
