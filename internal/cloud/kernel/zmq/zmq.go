//go:build linux

// Package zmq runs Jupyter kernels that other programs provide and that use ZeroMQ. It finds and
// starts these kernels, and implements the link to them.
package zmq

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/child"
	"github.com/e2bctl/e2bctl/internal/cloud/kernel/link"
	"github.com/e2bctl/e2bctl/internal/jupyter"
)

const (
	// nudge is the time between two requests for the kernel_info of a starting kernel. Messages
	// on iopub are lost until the kernel has received the subscription. So the request is
	// repeated until messages for it also arrive on iopub.
	nudge = 250 * time.Millisecond
	// answerTimeout bounds each operation except executions, because all other operations should
	// take no time. Some kernels do not send the answer, or the status idle after the answer.
	answerTimeout = 10 * time.Second
	// controlTimeout bounds sending a message to a kernel that may not be reading.
	controlTimeout = 200 * time.Millisecond
	// drainTimeout bounds reading the messages of a dead kernel.
	drainTimeout = 5 * time.Second
)

// Link is the link to a Jupyter kernel. It consists of four ZeroMQ connections. They use TCP,
// because some kernels (such as Deno's) support no other transport. Every message is signed with a
// key that only the kernel and this process have.
type Link struct {
	spec    *Spec
	environ map[string]string
	dir     string // directory that contains the connection file
	ports   map[string]int
	session string
	key     []byte

	// ctx ends when the process has ended.
	ctx    context.Context //nolint:containedctx // the life of the process, not of a call
	cancel context.CancelFunc

	patience time.Duration // bounds operations that should take no time

	// order is held while a message is handled and passed on, so that messages are handled one at a
	// time. It is locked before mu. It guards the next six fields.
	order sync.Mutex
	take  func(*link.Message) error
	heard bool         // a message has arrived on iopub
	info  *link.Info   // kernel_info of the kernel
	ready bool         // heard and info are set, and the kernel was reported as ready
	talk  *exchanges   // the exchanges that are running
	count messageCount // counts the messages since the start of talk

	mu     sync.Mutex
	conns  map[string]*zmtp
	asking jupyter.Header // header of the last input_request
}

// jupyterChannels maps channels to the types of this process's sockets.
var jupyterChannels = map[string]string{
	jupyter.Shell: "DEALER", jupyter.Control: "DEALER", jupyter.Stdin: "DEALER", jupyter.IOPub: "SUB",
}

// Options configures the process of a kernel.
type Options struct {
	Environ []string
	// Stdio are descriptors 0 to 2 of the process.
	Stdio [3]*os.File
	// Dir is the working directory.
	Dir string
	// Scratch is a directory for connection files.
	Scratch string
	// Credential is the user of the kernel. nil means the user of this process.
	Credential *syscall.Credential
	// AnswerTimeout bounds each operation except executions, because all other operations should
	// take no time. 0 means 10 seconds.
	AnswerTimeout time.Duration
}

// Start starts the process of a kernel, and returns the link to the kernel. The caller must wait for
// cmd with child.Wait.
func Start(spec *Spec, o Options) (_ *Link, cmd *exec.Cmd, err error) {
	environ := spec.environ(o.Environ)
	l := &Link{
		spec: spec, environ: link.Variables(environ), session: jupyter.NewID(),
		key: []byte(rand.Text()), conns: map[string]*zmtp{}, count: messageCount{}, patience: cmp.Or(o.AnswerTimeout, answerTimeout),
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			l.Close()
		}
	}()
	if l.dir, err = os.MkdirTemp(o.Scratch, "jupyter-"); err != nil {
		return nil, nil, err
	}
	file, err := l.writeConnectionFile(o.Credential)
	if err != nil {
		return nil, nil, err
	}
	argv, err := spec.command(environ, file)
	if err != nil {
		return nil, nil, err
	}
	cmd = &exec.Cmd{
		Path: argv[0], Args: argv, Env: environ, Dir: o.Dir,
		Stdin: o.Stdio[0], Stdout: o.Stdio[1], Stderr: o.Stdio[2],
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Credential: o.Credential},
	}
	return l, cmd, child.Start(cmd)
}

func (l *Link) writeConnectionFile(owner *syscall.Credential) (string, error) {
	ports, err := freePorts(l.ctx, 5)
	if err != nil {
		return "", err
	}
	l.ports = map[string]int{jupyter.Shell: ports[0], jupyter.IOPub: ports[1], jupyter.Stdin: ports[2], jupyter.Control: ports[3]}
	data, err := json.Marshal(map[string]any{
		"transport": "tcp", "ip": "127.0.0.1", "signature_scheme": "hmac-sha256", "key": string(l.key), "kernel_name": l.spec.Name,
		"shell_port": ports[0], "iopub_port": ports[1], "stdin_port": ports[2], "control_port": ports[3], "hb_port": ports[4],
	})
	if err != nil {
		return "", err
	}
	file := filepath.Join(l.dir, "connection.json")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		return "", err
	}
	if owner != nil {
		err = errors.Join(os.Chown(l.dir, int(owner.Uid), int(owner.Gid)), os.Chown(file, int(owner.Uid), int(owner.Gid)))
	}
	return file, err
}

// Receive connects to the kernel, and passes the kernel's messages to take.
func (l *Link) Receive(take func(*link.Message) error) error {
	l.take = take
	ctx, cancel := context.WithCancel(l.ctx)
	defer cancel()
	var readers sync.WaitGroup
	errs := make(chan error, len(jupyterChannels))
	for channel := range jupyterChannels {
		readers.Go(func() {
			err := l.readChannel(ctx, channel)
			if err != nil {
				l.Ended() // the other connections are useless without this one
			}
			errs <- err
		})
	}
	readers.Wait()
	close(errs)
	var all []error
	for err := range errs {
		all = append(all, err)
	}
	return errors.Join(all...)
}

// Ended bounds the time for reading the remaining messages of the kernel.
func (l *Link) Ended() {
	l.cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, conn := range l.conns {
		_ = conn.SetWriteDeadline(time.Unix(1, 0))
		_ = conn.SetReadDeadline(time.Now().Add(drainTimeout))
	}
}

// Close closes the connections and removes the connection file.
func (l *Link) Close() {
	l.cancel()
	l.order.Lock()
	if l.talk != nil {
		l.talk.overtime.Stop()
		l.talk = nil
	}
	l.order.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, conn := range l.conns {
		_ = conn.Close()
	}
	if l.dir != "" {
		_ = os.RemoveAll(l.dir)
	}
}
