//go:build linux

// Package zmq runs the Jupyter kernels of other programs, which use ZeroMQ: it
// finds them, starts them, and implements the link to them.
package zmq

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
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

	"github.com/e2bctl/e2bctl/internal/cloud/child"
	"github.com/e2bctl/e2bctl/internal/cloud/kernel/link"
	"github.com/e2bctl/e2bctl/internal/jupyter"
)

const (
	// nudge is how often a kernel that is starting is asked for its kernel_info.
	// What it sends on iopub before the subscription has reached it is lost, so the
	// request is repeated until its answer shows on iopub too.
	nudge = 250 * time.Millisecond
	// answerTimeout bounds everything that should take no time, so everything but
	// executions. Some kernels leave out the answer, or the status idle after it.
	answerTimeout = 10 * time.Second
	// controlTimeout bounds a message to a kernel that may not be reading.
	controlTimeout = 200 * time.Millisecond
	// drainTimeout bounds the reading of what a dead kernel has sent.
	drainTimeout = 5 * time.Second
)

// Link is the link to a Jupyter kernel: four ZeroMQ connections, on TCP because
// some kernels (Deno's) support nothing else. Every message is signed with a key
// that only the kernel and this process know.
type Link struct {
	spec    *Spec
	environ map[string]string
	dir     string // contains the connection file
	ports   map[string]int
	session string
	key     []byte

	// ctx ends when the process is gone.
	ctx    context.Context //nolint:containedctx // the life of the process, not of a call
	cancel context.CancelFunc

	patience time.Duration // for what should take no time

	// order serialises the handling of messages; it is held while a message is
	// passed on, and taken before mu. It guards the next six fields.
	order sync.Mutex
	take  func(*link.Message) error
	heard bool         // a message arrived on iopub
	info  *link.Info   // what the kernel says about itself
	ready bool         // both of the above, and reported
	talk  *exchanges   // what is being asked
	count messageCount // of the messages that came since

	mu     sync.Mutex
	conns  map[string]*zmtp
	asking jupyter.Header // of the last input_request
}

// exchanges are the requests to the kernel that make up one [Request]: more than
// one if the request has variables of its own.
type exchanges struct {
	id     uint64
	hidden bool // the current exchange is ours, and not shown to anyone
	// unannounced says that no execute_input will come.
	unannounced bool
	header      jupyter.Header
	queue       []func() (hidden bool, header jupyter.Header, err error) // each sends the next one
	replied     bool
	idle        bool
	mark        string          // what output ends with, until it has arrived
	answer      json.RawMessage // to the one that is not hidden
	overtime    *time.Timer
	recounted   bool // missing messages were given more time
}

// jupyterChannels maps channels to the socket types of this end.
var jupyterChannels = map[string]string{
	jupyter.Shell: "DEALER", jupyter.Control: "DEALER", jupyter.Stdin: "DEALER", jupyter.IOPub: "SUB",
}

// Options says how to run a kernel's process.
type Options struct {
	Environ []string
	// Stdio are descriptors 0 to 2 of the process.
	Stdio [3]*os.File
	// Dir is the working directory.
	Dir string
	// Scratch is a directory for connection files.
	Scratch string
	// Credential is the user that the kernel runs as; nil means this process's own.
	Credential *syscall.Credential
	// AnswerTimeout bounds everything that should take no time, so everything but
	// executions. 0 means 10 seconds.
	AnswerTimeout time.Duration
}

// Start starts the process of a kernel and returns the link to it. The caller waits
// for the end of cmd with child.Wait.
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

// freePorts finds ports that nobody listens on. They are below the range that
// outgoing connections get their ports from: a connection to a port that nobody
// listens on yet could otherwise end up connected to itself.
func freePorts(ctx context.Context, n int) ([]int, error) {
	const low, high, tries = 20000, 32000, 1000
	var ports []int
	var listeners []net.Listener
	defer func() {
		for _, l := range listeners {
			_ = l.Close()
		}
	}()
	var last error
	for range tries {
		if len(ports) == n {
			return ports, nil
		}
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:"+strconv.Itoa(low+mathrand.IntN(high-low)))
		if err != nil {
			last = err
			continue
		}
		listeners = append(listeners, listener)
		ports = append(ports, listener.Addr().(*net.TCPAddr).Port)
	}
	return nil, fmt.Errorf("no free port on 127.0.0.1: %w", last)
}

// Receive connects to the kernel and passes on its messages.
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
				l.Ended() // the others are of no use without this one
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

func (l *Link) readChannel(ctx context.Context, channel string) error {
	conn, err := l.connect(ctx, channel)
	if err != nil {
		return nil // the process has ended or will not become ready; both are noticed elsewhere
	}
	if channel == jupyter.Shell {
		defer l.introduce(ctx)()
	}
	for {
		parts, err := conn.readMessage()
		if errors.Is(err, errZMTP) {
			return fmt.Errorf("%s: %w", channel, err)
		}
		if err != nil {
			return nil
		}
		m, err := l.open(parts)
		if err != nil {
			return fmt.Errorf("%s: %w", channel, err)
		}
		m.Channel = channel
		if err := l.hear(m); err != nil {
			return err
		}
	}
}

// connect tries until the kernel listens, or ctx ends.
func (l *Link) connect(ctx context.Context, channel string) (*zmtp, error) {
	address := "127.0.0.1:" + strconv.Itoa(l.ports[channel])
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for {
		conn, err := l.dial(ctx, address, channel)
		if err == nil {
			return conn, nil
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-ticker.C:
		}
	}
}

func (l *Link) dial(ctx context.Context, address, channel string) (*zmtp, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	// All sockets have the same identity: a kernel sends its questions on stdin to
	// the identity that made the request on shell.
	z, err := openZMTP(conn, jupyterChannels[channel], l.session)
	if err == nil && channel == jupyter.IOPub {
		err = z.writeMessage([]byte{1}) // subscribe to everything
	}
	if !stop() || err != nil {
		conn.Close()
		return nil, errors.Join(err, ctx.Err())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns[channel] = z
	if l.ctx.Err() != nil { // Ended was called before
		_ = conn.SetReadDeadline(time.Now())
	}
	return z, nil
}

// introduce asks the kernel for its kernel_info until it is ready. The function
// that it returns stops that.
func (l *Link) introduce(ctx context.Context) func() {
	ctx, cancel := context.WithCancel(ctx)
	var asking sync.WaitGroup
	asking.Go(func() {
		ticker := time.NewTicker(nudge)
		defer ticker.Stop()
		for {
			l.order.Lock()
			ready := l.ready
			l.order.Unlock()
			header := jupyter.NewHeader("kernel_info_request", l.session, "e2b")
			if ready || l.write(jupyter.Shell, &jupyter.Message{Header: header}) != nil {
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
		}
	})
	return func() {
		cancel()
		asking.Wait()
	}
}

const delimiter = "<IDS|MSG>"

func (l *Link) sign(parts [][]byte) []byte {
	mac := hmac.New(sha256.New, l.key)
	for _, part := range parts {
		mac.Write(part)
	}
	return hex.AppendEncode(nil, mac.Sum(nil))
}

// write sends a message on a channel.
func (l *Link) write(channel string, m *jupyter.Message) error {
	header, err := json.Marshal(m.Header)
	if err != nil {
		return err
	}
	parent := []byte("{}")
	if m.Parent != (jupyter.Header{}) {
		if parent, err = json.Marshal(m.Parent); err != nil {
			return err
		}
	}
	content := []byte(m.Content)
	if len(content) == 0 {
		content = []byte("{}")
	}
	signed := [][]byte{header, parent, []byte("{}"), content}
	parts := slices.Concat([][]byte{[]byte(delimiter), l.sign(signed)}, signed, m.Buffers)
	l.mu.Lock()
	conn := l.conns[channel]
	l.mu.Unlock()
	if conn == nil {
		return fmt.Errorf("zmq: no connection to the %s channel", channel)
	}
	if channel == jupyter.Control {
		_ = conn.SetWriteDeadline(time.Now().Add(controlTimeout))
	}
	return conn.writeMessage(parts...)
}

// open reads a message of the kernel and checks its signature.
func (l *Link) open(parts [][]byte) (*jupyter.Message, error) {
	at := slices.IndexFunc(parts, func(part []byte) bool { return string(part) == delimiter })
	if at < 0 || len(parts) < at+6 {
		return nil, fmt.Errorf("%w: a message of %d parts", errZMTP, len(parts))
	}
	parts = parts[at+1:]
	signed := parts[1:5]
	if !hmac.Equal(parts[0], l.sign(signed)) {
		return nil, fmt.Errorf("%w: a message with a wrong signature", errZMTP)
	}
	m := &jupyter.Message{Content: signed[3], Buffers: parts[5:]}
	if len(m.Buffers) == 0 {
		m.Buffers = nil
	}
	err := json.Unmarshal(signed[0], &m.Header)
	if err == nil {
		err = json.Unmarshal(signed[1], &m.Parent)
	}
	if err == nil && (!json.Valid(m.Content) || m.Content[0] != '{') {
		err = errors.New("content that is not an object")
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %.40q: %w", errZMTP, m.Header.MsgType, err)
	}
	return m, nil
}

// hear handles a message of the kernel.
func (l *Link) hear(m *jupyter.Message) error {
	l.order.Lock()
	defer l.order.Unlock()
	if !l.ready {
		return l.hearFirst(m)
	}
	l.count.note(m.Header.MsgID)
	switch m.Channel {
	case jupyter.Shell:
		if l.talk != nil && m.Parent.MsgID == l.talk.header.MsgID {
			l.talk.replied = true
			if !l.talk.hidden {
				l.talk.answer = m.Content
			} else if failed(m.Content) {
				l.talk.mark = "" // it is not going to come
			}
			l.talk.overtime.Reset(l.patience)
			return l.proceed()
		}
	case jupyter.Stdin:
		if m.Header.MsgType == "input_request" {
			l.mu.Lock()
			l.asking = m.Header
			l.mu.Unlock()
			return l.take(&link.Message{Type: m.Header.MsgType, Content: m.Content, Seq: 1})
		}
	case jupyter.IOPub:
		return l.hearOutput(m)
	}
	return nil
}

// hearFirst waits for an answer on shell and for a message on iopub: after both,
// nothing is lost.
func (l *Link) hearFirst(m *jupyter.Message) error {
	l.heard = l.heard || m.Channel == jupyter.IOPub
	if m.Header.MsgType == "kernel_info_reply" {
		var names struct {
			Implementation string `json:"implementation"`
			Version        string `json:"implementation_version"`
		}
		_ = json.Unmarshal(m.Content, &names) // only used for the log
		l.info = &link.Info{Engine: names.Implementation, Version: names.Version, KernelInfo: m.Content}
	}
	if !l.heard || l.info == nil {
		return nil
	}
	l.ready = true
	return l.take(&link.Message{Type: "ready", Content: jupyter.Encode(l.info)})
}

func (l *Link) hearOutput(m *jupyter.Message) error {
	ours := l.talk != nil && m.Parent.MsgID == l.talk.header.MsgID
	switch {
	case m.Header.MsgType == "status":
		if !ours {
			return nil
		}
		var status jupyter.StatusContent
		_ = json.Unmarshal(m.Content, &status) // a status that cannot be read does not matter
		switch status.ExecutionState {
		case jupyter.StateIdle:
			l.talk.idle = true
			l.talk.overtime.Reset(l.patience) // an interrupt makes kernels forget the reply
			return l.proceed()
		case jupyter.StateBusy:
			if l.talk.unannounced {
				return l.take(&link.Message{Type: "armed"})
			}
		}
		return nil
	case m.Header.MsgType == markType && l.talk != nil && l.talk.mark != "":
		if isMark(m.Content, l.talk.mark) {
			l.talk.mark = ""
			return l.proceed()
		}
		return nil
	case !passed[m.Header.MsgType]:
		return nil
	case ours && l.talk.hidden && (m.Header.MsgType == "execute_input" || m.Header.MsgType == "error"):
		return nil // everything else belongs to earlier requests, and is late
	}
	return l.take(&link.Message{Type: m.Header.MsgType, Content: m.Content, Buffers: m.Buffers})
}

// passed are the iopub messages that are passed on to clients.
var passed = map[string]bool{
	"execute_input": true, "stream": true, "display_data": true, "update_display_data": true, "clear_output": true,
	"execute_result": true, "error": true, "comm_open": true, "comm_msg": true, "comm_close": true,
}

// proceed starts the next exchange when this one is over. order is held.
func (l *Link) proceed() error {
	t := l.talk
	isRequest := strings.HasSuffix(t.header.MsgType, "_request")
	if !t.idle || isRequest && !t.replied || t.mark != "" {
		return nil
	}
	t.overtime.Stop()
	lost := l.count.lost()
	if lost > 0 && !t.recounted && t.header.MsgType == "kernel_info_request" {
		t.recounted = true // it may still be in transit on another channel
		t.queue = append(t.queue, l.barrier)
	}
	if len(t.queue) > 0 {
		return l.ask(t)
	}
	l.talk = nil
	if lost > 0 {
		notice := jupyter.StreamContent{Name: "stderr", Text: fmt.Sprintf(
			"[%d messages of the kernel are missing: it drops what is not read in time]\n", lost)}
		if err := l.take(&link.Message{Type: "stream", Content: jupyter.Encode(notice)}); err != nil {
			return err
		}
	}
	if t.answer == nil {
		t.answer = json.RawMessage(`{"status":"ok"}`)
	}
	return l.take(&link.Message{Type: "reply", ID: t.id, Content: t.answer})
}

// ask begins the next exchange. order is held.
func (l *Link) ask(t *exchanges) (err error) {
	t.replied, t.idle = false, false
	next := t.queue[0]
	t.queue = t.queue[1:]
	t.hidden, t.header, err = next()
	if t.header.MsgType == "execute_request" && !t.hidden {
		t.overtime.Stop()
	} else {
		t.overtime.Reset(l.patience)
	}
	return err
}

// late is called when an answer does not come in time.
func (l *Link) late(t *exchanges) {
	l.order.Lock()
	defer l.order.Unlock()
	if l.talk != t {
		return
	}
	if !t.replied && !t.hidden {
		answer := errorReply("TimeoutError", fmt.Sprintf("the kernel %s did not answer %s within %v", l.spec.Name, t.header.MsgType, l.patience))
		_ = l.refuse(t, answer) // fails only when the process is gone
		return
	}
	t.replied, t.idle, t.mark = true, true, ""
	_ = l.proceed() // fails only when the process is gone
}

func errorReply(name, value string) json.RawMessage {
	return jupyter.Encode(map[string]any{"status": "error", "ename": name, "evalue": value, "traceback": []string{}, "execution_count": 0})
}

// answered are the shell requests that kernels answer.
var answered = map[string]bool{
	"execute_request": true, "complete_request": true, "inspect_request": true, "is_complete_request": true,
	"history_request": true, "comm_info_request": true, "comm_open": true, "comm_msg": true, "comm_close": true,
}

// Send sends the kernel a command.
func (l *Link) Send(c *link.Command) error {
	switch c.Type {
	case "input_reply":
		l.mu.Lock()
		parent := l.asking
		l.mu.Unlock()
		value := c.Value
		if c.EOF {
			value = "\x04" // end of file as terminals send it, which is also Jupyter's convention
		}
		return l.write(jupyter.Stdin, &jupyter.Message{
			Header: jupyter.NewHeader(c.Type, l.session, "e2b"), Parent: parent, Content: jupyter.Encode(jupyter.InputReply{Value: value}),
		})
	case "interrupt_request":
		return l.write(jupyter.Control, &jupyter.Message{Header: jupyter.NewHeader(c.Type, l.session, "e2b")})
	}
	return l.sendRequest(c)
}

func (l *Link) sendRequest(c *link.Command) error {
	l.order.Lock()
	defer l.order.Unlock()
	t := &exchanges{id: c.ID, header: jupyter.Header{MsgType: c.Type}, unannounced: c.Type != "execute_request"}
	t.overtime = time.AfterFunc(l.patience, func() { l.late(t) })
	l.talk, l.count = t, messageCount{}
	if !answered[c.Type] {
		return l.refuse(t, errorReply("NotImplementedError", fmt.Sprintf("%.40q is not supported", c.Type)))
	}
	before, after, err := assignments(l.spec.Language, c.Env, l.environ)
	if err != nil {
		return l.refuse(t, errorReply("NotImplementedError", err.Error()))
	}
	content := c.Content
	if c.Type == "execute_request" {
		if content, t.unannounced, err = unstopped(content); err != nil {
			return err
		}
	}
	silent := func(code string) func() (bool, jupyter.Header, error) {
		return func() (bool, jupyter.Header, error) { return l.askSilent(code) }
	}
	if before != "" {
		t.queue = append(t.queue, silent(before))
	}
	t.queue = append(t.queue, func() (bool, jupyter.Header, error) {
		header := jupyter.NewHeader(c.Type, l.session, "e2b")
		return false, header, l.write(jupyter.Shell, &jupyter.Message{Header: header, Content: content, Buffers: c.Buffers})
	})
	if c.Type == "execute_request" && l.info.Engine == denoEngine {
		t.queue = append(t.queue, func() (bool, jupyter.Header, error) { return l.askMark(t) })
	}
	if after != "" {
		t.queue = append(t.queue, silent(after))
	}
	if c.Type == "execute_request" {
		t.queue = append(t.queue, l.barrier)
	}
	return l.ask(t)
}

func (l *Link) askSilent(code string) (hidden bool, header jupyter.Header, err error) {
	return l.askHidden("execute_request", jupyter.ExecuteRequest{Code: code, Silent: true, UserExpressions: map[string]string{}})
}

func (l *Link) askHidden(msgType string, content any) (hidden bool, header jupyter.Header, err error) {
	header = jupyter.NewHeader(msgType, l.session, "e2b")
	return true, header, l.write(jupyter.Shell, &jupyter.Message{Header: header, Content: jupyter.Encode(content)})
}

// refuse answers a request in place of the kernel. order is held.
func (l *Link) refuse(t *exchanges, answer json.RawMessage) error {
	t.replied, t.idle, t.answer = true, true, answer
	if t.header.MsgType == "execute_request" {
		if err := l.take(&link.Message{Type: "error", Content: answer}); err != nil {
			return err
		}
	}
	return l.proceed()
}

// unstopped returns the content of an execute_request without stop_on_error. The
// [Kernel] has the queue and decides which requests an error aborts; kernels would
// sometimes also abort the request that comes right after the error.
func unstopped(content json.RawMessage) (_ json.RawMessage, silent bool, err error) {
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(content, &fields); err != nil {
		return nil, false, err
	}
	silent = string(fields["silent"]) == "true"
	fields["stop_on_error"] = json.RawMessage("false")
	content, err = json.Marshal(fields)
	return content, silent, err
}

// Ended lets what the kernel has sent be read, but bounds how long that may take.
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
