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

// Wasm is a Python in WebAssembly. It uses the driver's protocol on its standard input and output.
// The first line of its input contains the environment. Later lines contain interrupts, because a
// signal would end the process.
type Wasm struct {
	Command []string     // command that starts the process
	Environ []string     // environment of the command, not of the code
	Places  []string     // directories that code can access, under the same paths
	Check   func() error // returns an error if the command lacks a requirement
}

// startContent is the first line that a Python in WebAssembly receives. It includes the environment
// of the code.
type startContent struct {
	Places    []string `json:"places"`
	Directory string   `json:"directory"`
}

// executeWasm starts the driver in WebAssembly as the process p.
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

// startingLines is a connection to the driver that first sends one line with the configuration of
// the process.
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

// maxEnding bounds the length, in bytes, of the reason for the end of a process.
const maxEnding = 256

// handleEnding records the reason for the end of a Python in WebAssembly. The reason comes in a
// message, because the exit status is always the same.
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

// heedTime is the time in which a Python in WebAssembly must react to an interrupt. After this
// time, the next interrupt ends the process.
const heedTime = time.Second

// endsHeedless is called before the code of r is interrupted. If an earlier interrupt had no effect,
// endsHeedless ends the process: code that caught the earlier interrupt will catch later interrupts
// too, and a loop in JavaScript never receives interrupts. The caller holds kernel.mu.
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

// newNumber returns a random number for a request. The number is random because code may write to
// the connection, and must not be able to write an answer before the request arrives. JSON parsers
// of all languages read the number exactly.
func newNumber() uint64 {
	var number [8]byte
	_, _ = rand.Read(number[:]) // never fails
	return binary.BigEndian.Uint64(number[:])>>11 | 1
}
