//go:build linux

package kernel

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/child"
	"github.com/e2bctl/e2bctl/internal/cloud/kernel/link"
	"github.com/e2bctl/e2bctl/internal/cloud/kernel/zmq"
	"github.com/e2bctl/e2bctl/internal/jupyter"
)

// process is one process of a kernel.
type process struct {
	kernel  *Kernel
	process *os.Process
	wait    func() error // waits for the operating system's process to end
	link    link.Link
	pipes   [2]*pipe
	ready   chan link.Info
	checked chan []string // receives the answer to a check
	// untouched means that the process was forked and has run no code yet. After the start, only the
	// goroutine of Kernel.run uses the field.
	untouched bool

	// ctx ends when the process is about to die or has died. Goroutines that wait to deliver output
	// of the process then stop waiting.
	ctx    context.Context //nolint:containedctx // it is the life of the process, not of a call
	cancel context.CancelFunc
	// done is closed when the process has ended and all of its messages were delivered.
	done chan struct{}
	// starved returns an error if the process was killed because memory ran out.
	starved func(*os.ProcessState) error
	err     error // how the process ended; valid when done is closed
	// reason is set if this package ended the process: it is then the error for the request that runs
	// in the process. If the process died, reason is zero. Guarded by kernel.mu.
	reason jupyter.ErrorContent
	over   bool // the kernel has handled the end of the process; guarded by kernel.mu
	// replaced means that clients are not informed of the end of the process. Guarded by kernel.mu.
	replaced bool

	// tail is the end of the output on descriptors 1 and 2 before the driver was ready. If the driver
	// never becomes ready, tail contains the reason. For a Jupyter kernel, tail is the end of all
	// output on these descriptors, because the output of a cell arrives in messages. Guarded by
	// kernel.emitting.
	tail []byte
	// ending is the reason that the driver sends just before it ends. Guarded by
	// kernel.emitting.
	ending string
	// heedless means that the process was ended because its code ignored an interrupt. Guarded
	// by kernel.mu.
	heedless bool
	running  bool // the driver has reported ready; guarded by kernel.emitting
}

// pipe is descriptor 1 or 2 of the process. It decodes the process's output to text.
type pipe struct {
	name string
	file *os.File
	raw  syscall.RawConn
	buf  []byte
	decoder
}

func startProcess(ctx context.Context, k *Kernel) (_ *process, err error) {
	environ, err := k.spec.Environ()
	if err != nil {
		return nil, err
	}
	python, err := k.spec.python(environ)
	if err != nil {
		return nil, err
	}
	p := &process{kernel: k, ready: make(chan link.Info, 1), checked: make(chan []string, 1), done: make(chan struct{})}
	stdio, err := p.openPipes()
	defer func() {
		for _, f := range stdio {
			f.Close()
		}
	}()
	if err != nil {
		return nil, err
	}
	p.starved = k.spec.Memory.Watch()
	switch {
	case k.spec.Jupyter != nil:
		err = p.executeJupyter(environ, stdio)
	case k.spec.Wasm != nil:
		err = p.executeWasm(environ, stdio)
	default:
		if k.startsWarm(environ) {
			if err = p.fork(ctx, environ, stdio); err != nil {
				k.spec.Logger.DebugContext(ctx, "kernel starts cold", "error", err)
			}
		}
		if p.process == nil {
			err = p.execute(python, environ, stdio)
		}
	}
	if err != nil {
		return nil, errors.Join(err, p.closePipes())
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	go p.supervise()
	return p, nil
}

// openPipes creates descriptors 0 to 2 of the process. The caller must close the returned
// files, even if there is an error.
func (p *process) openPipes() ([]*os.File, error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	stdio := []*os.File{null}
	for i, name := range [...]string{"stdout", "stderr"} {
		r, w, err := os.Pipe()
		if err != nil {
			return stdio, errors.Join(err, p.closePipes())
		}
		stdio = append(stdio, w)
		p.pipes[i] = &pipe{name: name, file: r, buf: make([]byte, 32<<10)}
		if p.pipes[i].raw, err = r.SyscallConn(); err != nil {
			return stdio, errors.Join(err, p.closePipes())
		}
	}
	return stdio, nil
}

func (p *process) closePipes() error {
	var errs []error
	for _, pipe := range p.pipes {
		if pipe != nil {
			errs = append(errs, pipe.file.Close())
		}
	}
	return errors.Join(errs...)
}

// directoryVariable is the environment variable from which the driver gets the working directory of
// user code. The driver removes the variable before user code runs.
const directoryVariable = "E2BCTL_KERNEL_DIRECTORY"

// python returns the beginning of the interpreter's argv. It returns nil for a Jupyter kernel.
func (s *Spec) python(environ []string) ([]string, error) {
	switch {
	case s.Jupyter != nil || s.Wasm != nil:
		return nil, nil
	case len(s.Python) == 0:
		return nil, ErrNoPython
	}
	path := child.LookPath(s.Python[0], environ)
	if path == "" {
		return nil, ErrNotInImage
	}
	return append([]string{path}, s.Python[1:]...), nil
}

// execute starts the driver as the process p.
func (p *process) execute(python, environ []string, stdio []*os.File) error {
	ours, theirs, err := child.SocketPair()
	if err != nil {
		return err
	}
	defer theirs.Close()
	spec := &p.kernel.spec
	// Without namespaces, every process of the machine can read command lines, but not the
	// environment. So the environment contains the paths of the sandbox's directories.
	argv := append(python, filepath.Base(spec.Driver))
	cmd := &exec.Cmd{
		Path: argv[0], Args: argv, Env: append(slices.Clone(environ), directoryVariable+"="+spec.Dir), Dir: filepath.Dir(spec.Driver),
		Stdin: stdio[0], Stdout: stdio[1], Stderr: stdio[2], ExtraFiles: []*os.File{theirs},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Credential: spec.Credential},
	}
	if err := child.Start(cmd); err != nil {
		return errors.Join(err, ours.Close())
	}
	p.link, p.process, p.wait = lines{ours}, cmd.Process, func() error { return child.Wait(cmd) }
	return nil
}

// executeJupyter starts a Jupyter kernel as the process p.
func (p *process) executeJupyter(environ []string, stdio []*os.File) error {
	spec := &p.kernel.spec
	l, cmd, err := zmq.Start(spec.Jupyter, zmq.Options{
		Environ: environ, Stdio: [3]*os.File(stdio), Dir: spec.Dir,
		Scratch: spec.Scratch, Credential: spec.Credential, AnswerTimeout: spec.AnswerTimeout,
	})
	if err != nil {
		return err
	}
	p.link, p.process, p.wait = l, cmd.Process, func() error { return child.Wait(cmd) }
	return nil
}

// supervise reads the messages and output of the process until the process has ended, and
// reports the end.
func (p *process) supervise() {
	var readers sync.WaitGroup
	for _, pipe := range p.pipes {
		readers.Go(func() { p.readPipe(pipe) })
	}
	var breach error
	readers.Go(func() {
		if breach = p.link.Receive(p.take); breach != nil {
			p.kill() // a process that violates the protocol is unusable
		}
	})
	err := p.wait()
	p.link.Ended()
	p.killSession()
	// A process that left the session may still hold the pipes open.
	p.drainAndClose()
	readers.Wait()
	p.link.Close()
	p.cancel()
	if err == nil {
		err = errors.New("exit status 0")
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		if starved := p.starved(exit.ProcessState); starved != nil {
			err = fmt.Errorf("%w (%w)", err, starved)
		}
	}
	p.err = errors.Join(breach, err)
	p.kernel.ended(p)
	close(p.done)
}

func (p *process) drainAndClose() {
	p.kernel.emitting.Lock()
	p.drain()
	for _, pipe := range p.pipes {
		p.output(pipe, pipe.end())
	}
	p.kernel.emitting.Unlock()
	_ = p.closePipes()
}

func (p *process) send(c *link.Command) error { return p.link.Send(c) }

// take passes a message from the process to the kernel.
func (p *process) take(m *link.Message) error {
	p.kernel.emitting.Lock()
	defer p.kernel.emitting.Unlock()
	if !m.Together {
		p.drain() // earlier output comes first
	}
	return p.kernel.handle(p, m)
}

// lines is the connection to the driver. Both sides send lines of JSON over a socket.
type lines struct{ conn *net.UnixConn }

func (l lines) Send(c *link.Command) error {
	line, err := json.Marshal(c)
	if err != nil {
		return err
	}
	_, err = l.conn.Write(append(line, '\n'))
	return err
}

// Ended makes writes fail, and makes reads end after the bytes that the socket contains. The reason
// is that a process that has left the session may still have the driver's end open. A caller that
// holds the kernel's lock must not wait for such a process.
func (l lines) Ended() {
	_ = l.conn.SetWriteDeadline(time.Unix(1, 0))
	_ = l.conn.CloseRead()
}

func (l lines) Close() { _ = l.conn.Close() }

func (l lines) Receive(take func(*link.Message) error) error {
	r := bufio.NewReaderSize(l.conn, 128<<10) // has room for a full line of output
	for {
		together := bytes.IndexByte(arrived(r), '\n') >= 0
		line, err := readLine(r, link.MaxMessage)
		if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, syscall.ECONNRESET) {
			return nil
		}
		if err != nil {
			return err
		}
		m, err := parseLine(line)
		if err != nil {
			return err
		}
		next := arrived(r)
		m.Together, m.Replied = together, bytes.HasPrefix(next, []byte(`{"type":"reply"`)) && bytes.IndexByte(next, '\n') >= 0
		if err := take(m); err != nil {
			return err
		}
	}
}

// arrived returns the bytes that r has read and not yet returned.
func arrived(r *bufio.Reader) []byte {
	data, _ := r.Peek(r.Buffered())
	return data
}

// readLine returns a line without the newline. The line is valid until the next call.
func readLine(r *bufio.Reader, limit int) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if err == nil && line == nil {
			return part, nil
		}
		line = append(line, part...)
		switch {
		case len(line) > limit:
			return nil, fmt.Errorf("%w: longer than %d bytes", errLine, limit)
		case err == nil:
			return line, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}

// readPipe delivers the output from a pipe. It reads while it holds the lock that is also held
// while a line of the driver is handled. So when a line reports the end of the cell, all output
// that was read has been delivered.
func (p *process) readPipe(pipe *pipe) {
	for ended := false; !ended; {
		err := pipe.raw.Read(func(fd uintptr) bool {
			p.kernel.emitting.Lock()
			defer p.kernel.emitting.Unlock()
			n, err := unix.Read(int(fd), pipe.buf)
			if errors.Is(err, unix.EAGAIN) {
				return false
			}
			if errors.Is(err, unix.EINTR) {
				return true
			}
			ended = n <= 0
			if n > 0 {
				p.output(pipe, pipe.decode(pipe.buf[:n]))
			}
			return true
		})
		ended = ended || err != nil
	}
}

// drain delivers only the current content of the pipes. It does not go on until the pipes are empty,
// because a process may write endlessly. The caller holds kernel.emitting.
func (p *process) drain() {
	for _, pipe := range p.pipes {
		_ = pipe.raw.Control(func(fd uintptr) {
			waiting, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ)
			for err == nil && waiting > 0 {
				var n int
				n, err = unix.Read(int(fd), pipe.buf[:min(waiting, len(pipe.buf))])
				if n <= 0 {
					return
				}
				waiting -= n
				p.output(pipe, pipe.decode(pipe.buf[:n]))
			}
		})
	}
}

// output delivers text from a pipe. The caller holds kernel.emitting.
func (p *process) output(pipe *pipe, text string) {
	if text == "" {
		return
	}
	if !p.running || p.kernel.spec.Jupyter != nil {
		p.tail = append(p.tail, text...)
		p.tail = p.tail[max(0, len(p.tail)-4096):]
		return
	}
	p.kernel.emit(p.ctx, "stream", jupyter.Encode(jupyter.StreamContent{Name: pipe.name, Text: text}))
}

// announced is the maximum number of interrupts of a request that are sent to the driver. Further
// interrupts are not sent to the driver, so that no caller blocks if the driver does not read.
const announced = 16

// interrupt signals the whole process group, including commands of the cell. number counts the
// interrupts of the running request, including this interrupt.
func (p *process) interrupt(number uint64) {
	jupyter := p.kernel.spec.Jupyter
	if p.kernel.spec.Wasm != nil || jupyter != nil && jupyter.InterruptMode == zmq.InterruptByMessage {
		_ = p.send(&link.Command{Type: "interrupt_request"}) // fails if the process has ended
		return
	}
	_ = unix.Kill(-p.process.Pid, unix.SIGINT)
	if jupyter == nil && number <= announced {
		_ = p.send(&link.Command{Type: "interrupt_request", Seq: number})
	}
}

// kill kills the process. It does not wait: done is closed when the process has ended.
func (p *process) kill() {
	p.cancel()
	_ = unix.Kill(-p.process.Pid, unix.SIGKILL)
	_ = p.process.Kill()
}

// killSession kills the remaining processes of the session, such as background commands. These
// processes are part of the state that is lost with the kernel.
func (p *process) killSession() {
	session := p.process.Pid
	_ = unix.Kill(-session, unix.SIGKILL)
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range stats {
		stat, err := os.ReadFile(name)
		if err != nil {
			continue // the process has ended meanwhile
		}
		// The program's name is in parentheses and may contain any character. So state, parent,
		// group and session are read after the last parenthesis.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) < 4 || fields[3] != strconv.Itoa(session) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name))); err == nil {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}

// startTimeout bounds the start of Python. So an import that hangs leads to an error.
const startTimeout = time.Minute

// waitReady waits until the driver accepts requests.
func (p *process) waitReady(ctx context.Context) (link.Info, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	select {
	case info := <-p.ready:
		return info, nil
	case <-p.done:
		p.kernel.emitting.Lock()
		defer p.kernel.emitting.Unlock()
		err, said := p.err, strings.TrimSpace(string(p.tail))
		if p.kernel.spec.Jupyter != nil && strings.Contains(strings.ToLower(said), syscall.EADDRINUSE.Error()) {
			err = errors.Join(err, syscall.EADDRINUSE) // every Jupyter kernel uses these words
		}
		return link.Info{}, fmt.Errorf("ended before it was ready: %w\n%s", err, said)
	case <-ctx.Done():
		p.kill()
		<-p.done
		return link.Info{}, fmt.Errorf("not ready: %w", context.Cause(ctx))
	}
}
