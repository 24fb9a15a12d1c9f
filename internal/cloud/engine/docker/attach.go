package docker

import (
	"errors"
	"io"
	"strings"
	"sync"

	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/client"

	"github.com/e2bctl/e2bctl/internal/clip"
)

// attachment is the connection to the standard files of a container: written to its input,
// read from its output. What it writes to its standard error is kept.
type attachment struct {
	hijacked client.HijackedResponse
	output   *io.PipeReader

	mu     sync.Mutex
	stderr *clip.Output
}

// maxStderr bounds what is kept of the standard error.
const maxStderr = 2 << 10

func newAttachment(hijacked client.HijackedResponse) *attachment {
	r, w := io.Pipe()
	a := &attachment{hijacked: hijacked, output: r, stderr: clip.NewOutput(maxStderr)}
	go func() {
		_, err := stdcopy.StdCopy(w, (*errorOutput)(a), hijacked.Reader)
		w.CloseWithError(err) // nil: EOF
	}()
	return a
}

// Read reads what the container writes to its standard output.
func (a *attachment) Read(p []byte) (int, error) { return a.output.Read(p) }

// Write writes to the container's standard input.
func (a *attachment) Write(p []byte) (int, error) { return a.hijacked.Conn.Write(p) }

// Close ends the connection, and with it the container's input.
func (a *attachment) Close() error {
	return errors.Join(a.hijacked.Conn.Close(), a.output.Close())
}

// said returns what the container wrote to its standard error, in one line.
func (a *attachment) said() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return strings.Join(strings.Fields(a.stderr.Text()), " ")
}

// errorOutput takes what the container writes to its standard error.
type errorOutput attachment

func (o *errorOutput) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.stderr.Write(p)
}
