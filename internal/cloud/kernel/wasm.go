//go:build linux

package kernel

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/cloud/child"
	"github.com/e2bctl/e2bctl/internal/cloud/kernel/link"
	"github.com/e2bctl/e2bctl/internal/jupyter"
)

// Wasm is a Python in WebAssembly. It speaks the driver's protocol on its standard input and
// output. It receives its environment in the first line, and interrupts in later ones, because a
// signal would end it.
type Wasm struct {
	Command []string     // starts it
	Environ []string     // the environment of the command, not of the code
	Places  []string     // directories that code sees, under their own paths
	Check   func() error // returns an error if the command lacks something
}

// startContent is the first line for such a process. It includes the environment of the code.
type startContent struct {
	Places    []string `json:"places"`
	Directory string   `json:"directory"`
}

// executeWasm makes p a new process that runs the driver in WebAssembly.
func (p *process) executeWasm(environ []string, stdio []*os.File) error {
	if err := p.kernel.spec.Wasm.Check(); err != nil {
		return err
	}
	ours, theirs, err := child.SocketPair()
	if err != nil {
		return err
	}
	defer theirs.Close()
	spec := &p.kernel.spec
	cmd := &exec.Cmd{
		Path: spec.Wasm.Command[0], Args: spec.Wasm.Command, Env: spec.Wasm.Environ, Dir: "/",
		Stdin: theirs, Stdout: theirs, Stderr: stdio[2],
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Credential: spec.Credential},
	}
	if err := child.Start(cmd); err != nil {
		return errors.Join(err, ours.Close())
	}
	p.process, p.wait = cmd.Process, func() error { return child.Wait(cmd) }
	p.link = &startingLines{lines{ours}, link.Command{
		Type: "start", Env: link.Variables(environ),
		Content: jupyter.Encode(startContent{Places: spec.Wasm.Places, Directory: spec.Dir}),
	}}
	return nil
}

// startingLines is a connection whose first line is the process's configuration.
type startingLines struct {
	lines
	start link.Command
}

func (l *startingLines) Receive(take func(*link.Message) error) error {
	_ = l.conn.SetWriteDeadline(time.Now().Add(startTimeout))
	err := l.Send(&l.start)
	if err == nil {
		err = l.conn.SetWriteDeadline(time.Time{})
	}
	if err != nil {
		return nil //nolint:nilerr // the end of the process explains more
	}
	return l.lines.Receive(take)
}

// maxEnding bounds, in bytes, a process's reason for its end.
const maxEnding = 256

// handleEnding records the reason why a Python in WebAssembly ends, because the process around it
// always ends with the same status.
func (p *process) handleEnding(m *link.Message) error {
	var ending struct {
		Reason string `json:"reason"`
	}
	if err := json.Unmarshal(m.Content, &ending); err != nil {
		return fmt.Errorf("%w: ending: %w", errLine, err)
	}
	p.ending = clip.Text(ending.Reason, maxEnding)
	return nil
}

// heedTime is the time that a Python in WebAssembly has to heed an interrupt before another one
// ends it.
const heedTime = time.Second

// endsHeedless is called before the code of r is interrupted. It ends the process if an earlier
// interrupt had no effect: code that caught it will catch others, and a loop in JavaScript does
// not see them. The caller holds kernel.mu.
func (p *process) endsHeedless(r *Request) bool {
	if r.signalled.IsZero() {
		r.signalled = time.Now()
	}
	p.heedless = time.Since(r.signalled) >= heedTime
	if p.heedless {
		p.kill()
	}
	return p.heedless
}

// newNumber returns the number of a request, which nobody can guess. Code may write to the
// connection, and a message written before a request came must not pass for the answer. The
// number is exact in every language's JSON.
func newNumber() uint64 {
	var number [8]byte
	_, _ = rand.Read(number[:]) // never fails
	return binary.BigEndian.Uint64(number[:])>>11 | 1
}
