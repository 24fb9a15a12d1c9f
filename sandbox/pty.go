package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"sync"
	"time"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/httpwait"
)

// PTY opens terminals in a sandbox. It is safe for concurrent use.
type PTY struct{ sb *Sandbox }

// PTYParams sets the program and the size of a terminal. The zero value runs an interactive
// login shell of the sandbox's default user, 80 columns wide and 24 rows high.
type PTYParams struct {
	// Cols and Rows are the size; 0 means 80 columns or 24 rows.
	Cols, Rows int
	// Command is a shell command line to run; empty means an interactive shell.
	Command string
	// User is the user who runs the command, such as "root"; empty means the default user.
	User string
	// Cwd is the working directory of the command; it must exist. Empty means the default
	// directory.
	Cwd string
	// Envs are environment variables that are added to those of the sandbox. By default TERM is
	// xterm-256color, and LANG and LC_ALL are C.UTF-8.
	Envs map[string]string
	// Tag is a name for the terminal, by which [ByTag] selects it.
	Tag string
	// Timeout limits the running time, like [CommandParams].Timeout.
	Timeout time.Duration
}

// PTYConnectParams sets how to connect to a terminal.
type PTYConnectParams struct {
	// User is the user for the connection; empty means the default user.
	User string
	// From has the meaning of [CommandConnectParams].From. See [Terminal.Offset].
	From *int64
}

// terminalEnvs are variables that programs in a terminal rely on.
var terminalEnvs = map[string]string{"TERM": "xterm-256color", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}

// Open opens a terminal. ctx limits only the time to open the terminal: if ctx ends first, a
// program that may have been started is killed. The terminal lasts until its program ends or Close
// is called.
func (p *PTY) Open(ctx context.Context, params *PTYParams) (*Terminal, error) {
	if params == nil {
		params = &PTYParams{}
	}
	return p.terminal(ctx, "open a terminal", params.Timeout, func(ctx, life context.Context) (*attachment, error) {
		size, err := terminalSize(orDefault(params.Cols, 80), orDefault(params.Rows, 24))
		if err != nil {
			return nil, err
		}
		if params.Timeout < 0 {
			return nil, fmt.Errorf("PTYParams.Timeout is negative: %v", params.Timeout)
		}
		argv := []string{"/bin/bash", "-i", "-l"}
		if params.Command != "" {
			argv = loginShell(params.Command)
		}
		envs := maps.Clone(terminalEnvs)
		maps.Copy(envs, params.Envs)
		return p.sb.startProcess(ctx, life, params.User, &process.StartRequest{
			Process: &process.ProcessConfig{Cmd: argv[0], Args: argv[1:], Envs: envs, Cwd: optional(params.Cwd)},
			Pty:     size, Tag: optional(params.Tag),
		})
	}, true)
}

// Connect returns a handle to a terminal that is already open. ctx limits only the time to connect.
// The output begins at the connection, or at [PTYConnectParams].From. The error is
// an api.ErrNotFound if there is no such process. For a process without a terminal use
// [Commands.Connect].
func (p *PTY) Connect(ctx context.Context, which ProcessSelector, params *PTYConnectParams) (*Terminal, error) {
	if params == nil {
		params = &PTYConnectParams{}
	}
	return p.terminal(ctx, "connect to the terminal of "+which.String(), 0, func(ctx, life context.Context) (*attachment, error) {
		selector, _, err := p.sb.Commands.find(ctx, which)
		if err != nil {
			return nil, err
		}
		return p.sb.connectFrom(ctx, life, params.User, selector, "PTYConnectParams.From", params.From)
	}, false)
}

func (p *PTY) terminal(ctx context.Context, what string, timeout time.Duration, open func(ctx, life context.Context) (*attachment, error), own bool) (*Terminal, error) {
	ctx, opened, err := p.sb.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer opened()
	life, abandon, end, err := p.sb.lifetime(ctx, timeout)
	if err != nil {
		return nil, err
	}
	a, err := open(ctx, life)
	if err != nil {
		defer end()
		return nil, p.sb.failed(ctx, what, err)
	}
	t := &Terminal{process: a, read: a.offset.Load(), own: own, abandon: abandon, waiting: newAudience(), backlog: newBacklog[[]byte](), done: make(chan struct{})}
	t.backlog.take() // output must wait until it is read
	t.write = func(data []byte) (n int, err error) {
		a.await(life, t.waiting)
		err = a.act(life, "write to", func(ctx context.Context) error {
			n, err = a.input(ctx, data, ptyInput)
			return err
		})
		return n, err
	}
	go func() {
		t.err = t.follow(life)
		close(t.done)
		// A Write succeeds if the program received its data before the end.
		t.writing.Lock()
		defer t.writing.Unlock()
		end()
	}()
	return t, nil
}

// Terminal is a program in a terminal of a sandbox, from [PTY.Open] or [PTY.Connect]. The caller
// must read its output, because the program blocks when the buffers are full. All methods are safe
// for concurrent use. Each of several concurrent Reads receives a different part of the output.
//
// A pause of the sandbox suspends the program, like a [Command]; the program continues after the
// resume. Read, Write and Wait then connect to the program again. If the service keeps output, as the
// local cloud does, they also connect again after the connection was cut, and no output is lost.
// Otherwise, the output between a pause and the new connection is lost.
type Terminal struct {
	process *attachment
	backlog *backlog[[]byte]
	waiting *audience
	abandon context.CancelCauseFunc
	own     bool // this handle opened the terminal
	write   func([]byte) (int, error)

	reading sync.Mutex
	read    int64  // the offset of the next byte for Read
	rest    []byte // the bytes that were removed from the backlog but not yet returned by Read

	writing sync.Mutex

	leaving  sync.Once
	leaveErr error

	done chan struct{} // closed when err is set
	err  error
}

var _ io.ReadWriteCloser = (*Terminal)(nil)

// PID returns the process id of the program in the sandbox.
func (t *Terminal) PID() int { return int(t.process.pid) }

// Read reads the terminal's output. After the end of the program it returns io.EOF, whatever the
// exit status is. After Close and Disconnect it returns [ErrClosed].
func (t *Terminal) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	t.reading.Lock()
	defer t.reading.Unlock()
	defer t.waiting.join()()
	for ended := false; len(t.rest) == 0; {
		data, ok, _ := t.backlog.pop()
		switch {
		case ok:
			t.rest = data
			continue
		case ended:
			if _, exited := errors.AsType[*ExitError](t.err); exited || t.err == nil {
				return 0, io.EOF
			}
			return 0, t.err
		}
		select {
		case <-t.backlog.news:
		case <-t.done:
			ended = true
		}
	}
	n := copy(p, t.rest)
	t.rest = t.rest[n:]
	t.read += int64(n)
	return n, nil
}

// Offset returns the offset of the next byte that Read returns, for [PTYConnectParams].From. It
// waits for a Read in progress. If the service does not keep output, Offset counts the bytes
// that Read has returned.
func (t *Terminal) Offset() int64 {
	t.reading.Lock()
	defer t.reading.Unlock()
	return t.read
}

// Write sends p as typed input: Ctrl-C is "\x03", Ctrl-D is "\x04". Write returns when the
// terminal has accepted all of p. It blocks while the program does not read.
func (t *Terminal) Write(p []byte) (int, error) {
	t.writing.Lock()
	defer t.writing.Unlock()
	select {
	case <-t.done:
		return 0, fmt.Errorf("sandbox: write to terminal %d in %s: %w", t.PID(), t.process.sb.ID(), io.ErrClosedPipe)
	default:
		return t.write(p)
	}
}

// Resize changes the size of the terminal and notifies its program.
func (t *Terminal) Resize(ctx context.Context, cols, rows int) error {
	return t.process.act(ctx, "resize the terminal of", func(ctx context.Context) error {
		size, err := terminalSize(cols, rows)
		if err != nil {
			return err
		}
		return unary(ctx, t.process.user, t.process.sb.processes.Update, &process.UpdateRequest{Process: byPID(t.process.pid), Pty: size})
	})
}

// Wait waits for the end of the program. Meanwhile another goroutine must call Read. An exit status
// other than 0 is an [*ExitError]; other errors are those of [Command.Wait].
func (t *Terminal) Wait(ctx context.Context) error {
	defer t.waiting.join()()
	select {
	case <-t.done:
		return t.err
	case <-ctx.Done():
		return fmt.Errorf("sandbox: wait for terminal %d in %s: %w", t.PID(), t.process.sb.ID(), context.Cause(ctx))
	}
}

// Disconnect ends the connection to the program. The program continues, even after a later Close,
// and [PTY.Connect] can connect to it again.
func (t *Terminal) Disconnect() { _ = t.leave(false, errDisconnected) }

// Close ends the connection. If this handle opened the terminal and did not only connect to it,
// Close also ends the program. Reads and Writes in progress return. Close takes at most 10 seconds
// and may be called more than once.
func (t *Terminal) Close() error {
	return t.leave(t.own, fmt.Errorf("%w: the terminal", ErrClosed))
}

// leave ends the connection for the given reason; later calls do nothing.
func (t *Terminal) leave(kill bool, reason error) error {
	t.leaving.Do(func() {
		if kill {
			t.leaveErr = t.kill()
		}
		t.abandon(reason)
		<-t.done
	})
	return t.leaveErr
}

func (t *Terminal) kill() error {
	select {
	case <-t.done:
		return nil // the pid may now belong to another process
	default:
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), closeTimeout, httpwait.NewSlowError("the daemon did not answer", closeTimeout))
	defer cancel()
	err := t.process.act(ctx, "kill", func(ctx context.Context) error {
		return t.process.signal(ctx, process.Signal_SIGNAL_SIGKILL)
	})
	if errors.Is(err, api.ErrNotFound) || errors.Is(err, ErrGone) || errors.Is(err, ErrClosed) {
		return nil
	}
	return err
}

// follow receives the terminal's output until the program or life ends.
func (t *Terminal) follow(life context.Context) error {
	stop := context.AfterFunc(life, t.process.cancel)
	defer stop()
	end, err := t.process.followOn(life, t.waiting, func(data *process.ProcessEvent_DataEvent) error {
		if len(data.GetStdout())+len(data.GetStderr()) > 0 {
			return errors.New("it has no terminal: use Commands.Connect")
		}
		if n := len(data.GetPty()); n > 0 {
			t.backlog.push(life, data.GetPty(), n)
		}
		return nil
	})
	switch {
	case end == nil:
		late := errors.Is(life.Err(), context.DeadlineExceeded)
		t.process.sb.background(life, func(ctx context.Context) { t.process.leave(ctx, t.own && late) })
		return t.process.sb.failed(life, fmt.Sprintf("terminal %d", t.PID()), err)
	case end.GetExitCode() != 0:
		return &ExitError{newCommandResult(end)}
	}
	return nil
}

func terminalSize(cols, rows int) (*process.PTY, error) {
	for _, n := range []int{cols, rows} {
		if n < 1 || n > math.MaxUint16 {
			return nil, fmt.Errorf("a terminal cannot have %d columns and %d rows", cols, rows)
		}
	}
	return &process.PTY{Size: &process.PTY_Size{Cols: uint32(cols), Rows: uint32(rows)}}, nil
}

func orDefault(n, fallback int) int {
	if n == 0 {
		return fallback
	}
	return n
}
