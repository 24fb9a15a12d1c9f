//go:build linux

package inside

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/link"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
	"github.com/e2bctl/e2bctl/internal/cloud/pty"
)

// RefusedError means that the server refused a request of envd.
type RefusedError struct {
	Request string // the request that was refused
	Reason  string
	denied  bool
}

func (e *RefusedError) Error() string { return "room: " + e.Request + ": " + e.Reason }

// Denied reports whether the server refused the request because of a policy. A retry is then useless.
func (e *RefusedError) Denied() bool { return e.denied }

// answer is the result of a request.
type answer struct {
	files *wire.Files
	err   error
}

// DialEgress makes the server connect to host for the sandbox. host is a name or an address. If the
// server refuses, the error is a [*RefusedError].
func (g *Guest) DialEgress(ctx context.Context, host string, port uint16) (net.Conn, error) {
	if host == "" || len(host) > 255 || port == 0 {
		return nil, &RefusedError{Request: connectTo(host[:min(len(host), 255)], port), Reason: "not an address"}
	}
	files, err := g.ask(ctx, connectTo(host, port), wire.Message{Kind: wire.KindEgress, Host: host, Port: port})
	if err != nil {
		return nil, err
	}
	defer files.Close()
	stream, err := files.Take(wire.FileStream)
	if err != nil {
		return nil, err
	}
	return wire.UnixConn(stream)
}

// errNoKernels means that there is no zygote, and that kernels start cold.
var errNoKernels = errors.New("no process to fork kernels from")

// Kernel requests a process that has loaded the modules that kernels commonly load. It returns the
// socket of this process. If the process could not be made, the other end of the socket is closed.
func (g *Guest) Kernel(ctx context.Context) (*os.File, error) {
	if !g.ownLoopback {
		return nil, errNoKernels
	}
	files, err := g.ask(ctx, "fork a kernel", wire.Message{Kind: wire.KindKernel})
	if err != nil {
		return nil, err
	}
	defer files.Close()
	return files.Take(wire.FileKernel)
}

// Terminal opens a pseudo-terminal. The caller must close both files. ctx bounds the wait for the
// terminal. In a restricted sandbox, the server opens the terminal. Programs can then use it as their
// standard files and as /dev/tty, but cannot open it by its own name.
func (g *Guest) Terminal(ctx context.Context) (controller, tty *os.File, err error) {
	if !g.restricted {
		return pty.Open()
	}
	files, err := g.ask(ctx, "open a terminal", wire.Message{Kind: wire.KindTerminal})
	if err != nil {
		return nil, nil, err
	}
	defer files.Close()
	if controller, err = files.Take(wire.FileTerminal); err != nil {
		return nil, nil, err
	}
	if tty, err = files.Take(wire.FileTTY); err != nil {
		controller.Close()
		return nil, nil, err
	}
	return controller, tty, nil
}

func connectTo(host string, port uint16) string {
	return "connect to " + net.JoinHostPort(host, strconv.Itoa(int(port)))
}

// ask sends a request to the server, and returns the files that the server sends in its answer. If
// the server refuses the request, the error is a [*RefusedError].
func (g *Guest) ask(ctx context.Context, request string, m wire.Message) (*wire.Files, error) {
	answered := make(chan answer, 1)
	g.mu.Lock()
	if len(g.pending) >= link.MaxDialling {
		g.mu.Unlock()
		return nil, &RefusedError{Request: request, Reason: fmt.Sprintf("%d connections are being made", link.MaxDialling)}
	}
	g.next++
	m.ID = g.next
	g.pending[m.ID] = answered
	g.mu.Unlock()
	if err := g.control.Send(m); err != nil {
		g.forget(m.ID, answered)
		return nil, fmt.Errorf("room: ask the server: %w", err)
	}
	select {
	case <-ctx.Done():
		g.forget(m.ID, answered)
		return nil, context.Cause(ctx)
	case a := <-answered:
		if refused, ok := errors.AsType[*RefusedError](a.err); ok {
			refused.Request = request
		}
		return a.files, a.err
	}
}

// forget ends the wait for an answer, and closes files that have already arrived.
func (g *Guest) forget(id uint64, answered chan answer) {
	g.mu.Lock()
	_, waiting := g.pending[id]
	delete(g.pending, id)
	g.mu.Unlock()
	if waiting {
		return
	}
	(<-answered).files.Close()
}

// settle passes an answer of the server to the call of ask that waits for it.
func (g *Guest) settle(m wire.Message, files *wire.Files) {
	g.mu.Lock()
	waiting := g.pending[m.ID]
	delete(g.pending, m.ID)
	g.mu.Unlock()
	switch {
	case waiting == nil: // the caller of ask gave up
		files.Close()
	case files.Len() > 0 && m.Error == "":
		waiting <- answer{files: files}
	default:
		files.Close()
		waiting <- answer{err: &RefusedError{Reason: m.Error, denied: m.Denied}}
	}
}
