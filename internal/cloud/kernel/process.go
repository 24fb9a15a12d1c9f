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

// process is one life of a kernel.
type process struct {
	kernel  *Kernel
	process *os.Process
	wait    func() error // for the end of process
	link    link.Link
	pipes   [2]*pipe
	ready   chan link.Info
	checked chan []string // the answer to a check
	// untouched tells that the process was forked and has run no code yet. The
	// kernel's loop alone uses it once the process is started.
	untouched bool

	// ctx ends when the process is to die or has died: who waits to deliver
	// its output need not wait any longer.
	ctx    context.Context //nolint:containedctx // it is the life of the process, not of a call
	cancel context.CancelFunc
	// done is closed when the process is gone and all that it said is delivered.
	done chan struct{}
	// starved says whether it was killed for want of memory.
	starved func(*os.ProcessState) error
	err     error // how it ended; valid when done is closed
	// reason is what ends its request when somebody here ended it, zero when it
	// died. Guarded by kernel.mu.
	reason jupyter.ErrorContent
	over   bool // the kernel knows that it ended; guarded by kernel.mu
	// replaced tells that clients need not know of its end. Guarded by kernel.mu.
	replaced bool

	// tail is the end of what was written to descriptors 1 and 2 before the
	// driver was ready: the reason when it never is. Of Jupyter's kernels it is
	// all that goes there: output is what they say. Guarded by kernel.emitting.
	tail    []byte
	running bool // the driver has said ready; guarded by kernel.emitting
}

// pipe is descriptor 1 or 2 of the process, as text.
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
	if k.spec.Jupyter != nil {
		err = p.executeJupyter(environ, stdio)
	} else if k.startsWarm(environ) {
		if err = p.fork(ctx, environ, stdio); err != nil {
			k.spec.Logger.DebugContext(ctx, "kernel starts cold", "error", err)
		}
	}
	if p.process == nil && k.spec.Jupyter == nil {
		err = p.execute(environ, stdio)
	}
	if err != nil {
		return nil, errors.Join(err, p.closePipes())
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	go p.supervise()
	return p, nil
}

// openPipes makes descriptors 0 to 2 of the process. What it returns with an
// error is to be closed as well.
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

// directoryVariable tells the driver where user code works. It is gone by then.
const directoryVariable = "E2BCTL_KERNEL_DIRECTORY"

// execute makes p a process that runs the driver from its beginning.
func (p *process) execute(environ []string, stdio []*os.File) error {
	ours, theirs, err := child.SocketPair()
	if err != nil {
		return err
	}
	defer theirs.Close()
	spec := &p.kernel.spec
	// Without namespaces every process of the machine can read command lines, but not
	// the environment: the directories of the sandbox are named there.
	argv := append(append([]string(nil), spec.Python...), filepath.Base(spec.Driver))
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

// executeJupyter makes p a process of a Jupyter kernel.
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

// supervise reads what the process says until it is gone, and reports its end.
func (p *process) supervise() {
	var readers sync.WaitGroup
	for _, pipe := range p.pipes {
		readers.Go(func() { p.readPipe(pipe) })
	}
	var breach error
	readers.Go(func() {
		if breach = p.link.Receive(p.take); breach != nil {
			p.kill() // what breaks the protocol cannot be spoken to
		}
	})
	err := p.wait()
	p.link.Ended()
	p.killSession()
	// The pipes may be held open by who left the session.
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

// take passes on a message of the process.
func (p *process) take(m *link.Message) error {
	p.kernel.emitting.Lock()
	defer p.kernel.emitting.Unlock()
	p.drain() // what was written before the driver spoke comes first
	return p.kernel.handle(p, m)
}

// lines is the link to the driver: lines of JSON on a socket.
type lines struct{ conn *net.UnixConn }

func (l lines) Send(c *link.Command) error {
	line, err := json.Marshal(c)
	if err != nil {
		return err
	}
	_, err = l.conn.Write(append(line, '\n'))
	return err
}

// ended ends writes with an error and reads after what the socket holds. A
// process that left the session may hold the driver's end: nobody waits for it,
// with the kernel's lock.
func (l lines) Ended() {
	_ = l.conn.SetWriteDeadline(time.Unix(1, 0))
	_ = l.conn.CloseRead()
}

func (l lines) Close() { _ = l.conn.Close() }

func (l lines) Receive(take func(*link.Message) error) error {
	r := bufio.NewReaderSize(l.conn, 128<<10) // a full line of output fits
	for {
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
		if err := take(m); err != nil {
			return err
		}
	}
}

// readLine gives a line without its end; it is valid until the next call.
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

// readPipe passes on what comes through a pipe. It reads under the lock under
// which lines are handled, so that nothing is ever read and not yet delivered
// when a line says that the cell has ended.
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

// drain delivers what the pipes hold now, and no more: a process that writes
// without end must not hold up the rest. kernel.emitting is held.
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

// output delivers text of a pipe. kernel.emitting is held.
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

// interrupt strikes the whole process group: commands of the cell too.
func (p *process) interrupt() {
	if spec := p.kernel.spec.Jupyter; spec != nil && spec.InterruptMode == zmq.InterruptByMessage {
		_ = p.send(&link.Command{Type: "interrupt_request"}) // an error is that of a process that has ended
		return
	}
	_ = unix.Kill(-p.process.Pid, unix.SIGINT)
}

// kill ends the process; done is closed when it is gone.
func (p *process) kill() {
	p.cancel()
	_ = unix.Kill(-p.process.Pid, unix.SIGKILL)
	_ = p.process.Kill()
}

// killSession ends what the process left behind in its session: background
// commands belong to the state that is lost with the kernel.
func (p *process) killSession() {
	session := p.process.Pid
	_ = unix.Kill(-session, unix.SIGKILL)
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range stats {
		stat, err := os.ReadFile(name)
		if err != nil {
			continue // gone meanwhile
		}
		// The name of the program is in parentheses and may hold anything:
		// state, parent, group and session come after the last one.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) < 4 || fields[3] != strconv.Itoa(session) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name))); err == nil {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}

// startTimeout bounds the start of Python: an import that hangs is an error.
const startTimeout = time.Minute

// waitReady returns when the driver takes requests.
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
			err = errors.Join(err, syscall.EADDRINUSE) // as every runtime words it
		}
		return link.Info{}, fmt.Errorf("ended before it was ready: %w\n%s", err, said)
	case <-ctx.Done():
		p.kill()
		<-p.done
		return link.Info{}, fmt.Errorf("not ready: %w", context.Cause(ctx))
	}
}
