//go:build linux

package envd

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/e2bctl/e2bctl/internal/cloud/child"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/gen/process"
	quoted "github.com/e2bctl/e2bctl/internal/shell"
)

// launch describes a process to start.
type launch struct {
	config *process.ProcessConfig
	tag    *string
	user   *User
	env    []string
	dir    string
	stdin  bool         // stdin is a pipe; otherwise /dev/null
	pty    *process.PTY // size of the terminal; nil: the process has pipes and no terminal
	// terminal opens the terminal of the process.
	terminal func() (controller, tty *os.File, err error)
	// deadline is the time when the process is ended, even if clients are connected. Zero means
	// that there is no deadline.
	deadline time.Time
	memory   *child.Memory
	grace    time.Duration
	id       string // see running
	kept     *budget
}

// running is a process and its output. The process leads a new session, so that a signal
// reaches all of its descendants that did not leave the session.
type running struct {
	pid    uint32
	id     string // names the process even after its pid belongs to another one
	config *process.ProcessConfig
	tag    *string

	group    *child.Group
	output   *output
	sources  []*source
	grace    time.Duration // maximum time that wait reads output after the end while other processes hold it open
	stdin    *input        // the pipe or terminal with the input of the process; nil: no input
	terminal *os.File      // the terminal of the process; nil: the process has pipes
	deadline *time.Timer
	// killed returns the number of processes of the sandbox that have been killed since the
	// start because memory ran out.
	killed func() int
	// starved returns an error if this process was killed because memory ran out.
	starved func(*os.ProcessState) error

	mu        sync.Mutex
	reaped    bool // the leader was reaped; other processes of its session may still run
	signalled bool // a signal was sent: once the leader is reaped, wait does not wait for more output
	expired   bool // the deadline ended the process
	settled   bool // the output is complete, and later output is dropped

	ended chan struct{}                  // closed when the process has ended and end is set
	end   *process.ProcessEvent_EndEvent // exit status of the process, or the signal that ended it
	// retired means that retire was called for the process. It is guarded by the mutex of
	// processes.
	retired bool
	// held means that the process ended by itself while other processes held its output open. held is
	// set before ended is closed.
	held bool
}

type source struct {
	file *os.File
	of   stream
	held bool // reading stopped before the end of the output; set by wait
}

// start starts the process, and subscribes to its output before the process writes any. The
// caller must call wait.
func (l *launch) start() (*running, *subscriber, error) {
	output, first := newOutput(l.kept)
	r := &running{id: l.id, config: l.config, tag: l.tag, output: output, grace: l.grace, ended: make(chan struct{}), starved: l.memory.Watch(), killed: l.memory.Count()}
	stdio, err := l.open(r)
	defer func() {
		for _, f := range stdio {
			f.Close() // the process has its own descriptor
		}
	}()
	if err == nil {
		r.group, err = l.exec(stdio)
	}
	if err != nil {
		r.closeFiles()
		l.kept.leave(output)
		return nil, nil, err
	}
	r.pid = uint32(r.group.PID())
	if !l.deadline.IsZero() {
		r.deadline = time.AfterFunc(time.Until(l.deadline), r.expire)
	}
	return r, first, nil
}

// stdio is the process's side of its standard files. A nil file is /dev/null.
type stdio [3]*os.File

// open opens both sides of the standard files. It stores this process's side in r.
func (l *launch) open(r *running) (stdio, error) {
	var theirs stdio
	if l.pty != nil {
		controller, tty, err := l.openTerminal()
		if err != nil {
			return theirs, err
		}
		r.terminal, r.stdin = controller, newInput(controller)
		r.sources = []*source{{file: controller, of: terminal}}
		return stdio{tty, tty, tty}, nil
	}
	for fd, of := range map[int]stream{1: stdout, 2: stderr} {
		ours, pipe, err := os.Pipe()
		if err != nil {
			return theirs, fmt.Errorf("open a pipe: %w", err)
		}
		r.sources = append(r.sources, &source{file: ours, of: of})
		theirs[fd] = pipe
	}
	if l.stdin {
		pipe, ours, err := os.Pipe()
		if err != nil {
			return theirs, fmt.Errorf("open a pipe: %w", err)
		}
		r.stdin = newInput(ours)
		theirs[0] = pipe
	}
	return theirs, nil
}

// unexecutable is a shell script that reports on stderr why its arguments cannot be executed,
// and exits with 127 or 126. It checks for an empty command itself, because shells disagree
// about it.
const unexecutable = `[ -n "$1" ] || { echo "sh: the command is empty" >&2; exit 127; }; exec "$@"`

// exec starts the command. If the command cannot be executed, exec starts a shell with unexecutable
// instead. So the client receives the exit status of a failed process, and not an error of its
// call.
func (l *launch) exec(files stdio) (*child.Group, error) {
	name, args := l.config.GetCmd(), l.config.GetArgs()
	path := child.LookPath(name, l.env)                         // uses PATH of the process, not of envd
	if path == guest.LoginShell && isMissing(statError(path)) { // an image may have only sh, which accepts the same flags
		name, path = filepath.Base(guest.PlainShell), guest.PlainShell
		if words := wordsOf(args); words != nil && isMissing(statError(path)) {
			name, args = words[0], words[1:]
			path = child.LookPath(name, l.env)
		}
	}
	if path != "" {
		group, err := child.StartGroup(l.command(files, path, append([]string{name}, args...)))
		if err == nil {
			return group, nil
		}
		if !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.ENOEXEC) {
			return nil, l.startError(err)
		}
	}
	group, err := child.StartGroup(l.command(files, guest.PlainShell, append([]string{"sh", "-c", unexecutable, "sh", name}, args...)))
	if err != nil && isMissing(statError(guest.PlainShell)) {
		err = errNoShell
	}
	if err != nil {
		return nil, l.startError(err)
	}
	return group, nil
}

// wordsOf returns the words of a shell's command line. It returns nil if the shell has other flags
// or if the line does not consist only of words. The exec form of a Dockerfile's RUN is sent as
// such a line.
func wordsOf(args []string) []string {
	if len(args) > 0 && args[0] == "-l" {
		args = args[1:]
	}
	if len(args) != 2 || args[0] != "-c" {
		return nil
	}
	words, _ := quoted.Words(args[1])
	return words
}

// errNoShell is the error for a command in a sandbox whose image has no shell.
var errNoShell = errors.New("there is no such program, and its image has neither " + guest.LoginShell + " nor " + guest.PlainShell +
	", which command lines need that are more than a program and its arguments: start a program of the image, or make the image with a shell")

func statError(path string) error {
	_, err := os.Stat(path)
	return err
}

func (l *launch) startError(err error) error {
	return fmt.Errorf("start %s as %s in %s: %w", bounded(l.config.GetCmd()), l.user.Name, bounded(l.dir), err)
}

func (l *launch) command(files stdio, path string, args []string) *exec.Cmd {
	cmd := &exec.Cmd{
		Path: path,
		Args: args,
		Env:  l.env,
		Dir:  l.dir,
		SysProcAttr: &syscall.SysProcAttr{
			Setctty:    l.pty != nil,
			Credential: l.user.Credential,
		},
	}
	if files[0] != nil {
		cmd.Stdin = files[0]
	}
	cmd.Stdout, cmd.Stderr = files[1], files[2]
	return cmd
}

// wait returns when the process has ended and its output has been published. If other processes
// hold the output open, wait publishes the output that arrives within grace. After a signal, wait
// does not wait for these processes. The caller must then call finish, and after that linger.
// finish informs the subscribers.
func (r *running) wait() {
	var copies sync.WaitGroup
	for _, s := range r.sources {
		copies.Go(func() { s.held = r.output.copyFrom(s.file, s.of) })
	}
	err := r.group.Wait()
	state := r.group.State()
	r.end = endOf(state, err)
	if err := r.starved(state); err != nil {
		r.end.Error = proto.String(r.end.GetStatus() + " (" + err.Error() + ")")
	}
	close(r.ended)
	r.mu.Lock()
	r.reaped = true
	if r.signalled {
		r.stopReading(longAgo)
	} else {
		r.stopReading(time.Now().Add(r.grace))
	}
	r.mu.Unlock()
	copies.Wait()
	if r.deadline != nil {
		r.deadline.Stop()
	}
	held := slices.ContainsFunc(r.sources, func(s *source) bool { return s.held })
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held = held && !r.signalled // after a signal, the others may be about to end, too
}

// linger reads and drops further output while other processes hold the output open. So these
// processes do not block, and do not die of SIGPIPE. When all of them have closed the output, or
// the process is abandoned, linger closes everything and returns.
func (r *running) linger() {
	var copies sync.WaitGroup
	r.mu.Lock()
	r.settled = true
	for _, s := range r.sources {
		if s.held && !r.output.isAbandoned() {
			_ = s.file.SetReadDeadline(time.Time{}) // a failure appears when reading
			copies.Go(func() { r.output.copyFrom(s.file, s.of) })
		}
	}
	r.mu.Unlock()
	if r.terminal == nil && r.stdin != nil {
		_ = r.stdin.close() // nothing can send input now; only the descriptor is left
	}
	copies.Wait()
	r.closeFiles()
	_ = r.group.Close() // only a descriptor: no data is lost
}

// finish informs the subscribers of the end. For a while it keeps the output for a client that
// connects again.
func (r *running) finish() {
	o := r.output // all that the timer refers to
	o.end()
	if o.isAbandoned() {
		o.kept.budget.leave(o)
		return
	}
	time.AfterFunc(keptFor, func() { o.kept.budget.leave(o) })
}

func endOf(state *os.ProcessState, err error) *process.ProcessEvent_EndEvent {
	if state == nil {
		return &process.ProcessEvent_EndEvent{ExitCode: -1, Status: "unknown", Error: proto.String(err.Error())}
	}
	end := &process.ProcessEvent_EndEvent{
		ExitCode: int32(state.ExitCode()),
		Exited:   state.Exited(),
		Status:   state.String(),
	}
	if !state.Success() {
		end.Error = proto.String(end.Status)
	}
	return end
}

func (r *running) closeFiles() {
	for _, s := range r.sources {
		s.file.Close()
	}
	if r.stdin != nil {
		_ = r.stdin.close() // a terminal's input was closed above
	}
}

// signal sends sig to the first process group of the session. The group may outlive its leader.
func (r *running) signal(sig unix.Signal) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.signalled {
		r.signalled = true
		close(r.output.impatient)
	}
	err := r.group.Signal(sig)
	if r.reaped && !r.settled {
		r.stopReading(longAgo)
	}
	if errors.Is(err, unix.ESRCH) {
		return nil // the process has ended, but this is not recorded yet
	}
	return err
}

// longAgo is a deadline that has already passed.
var longAgo = time.Unix(1, 0)

// stopReading makes the goroutines that copy output end at the given time. Before they end, they
// publish everything that is in the pipes.
func (r *running) stopReading(at time.Time) {
	for _, s := range r.sources {
		_ = s.file.SetReadDeadline(at) // fails if closed, that is, already ended
	}
}

func (r *running) expire() {
	r.mu.Lock()
	r.expired = true
	r.mu.Unlock()
	_ = r.signal(unix.SIGKILL)
}

func (r *running) hasExpired() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.expired
}

// abandon kills all processes of the process's group, and does not inform the subscribers. It must
// be called only once.
func (r *running) abandon() {
	close(r.output.abandoned)
	_ = r.signal(unix.SIGKILL)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopReading(longAgo) // ends reading even if a process left the group
}
