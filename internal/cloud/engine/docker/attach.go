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

// attachment is the connection to a container's standard input and output. It keeps the beginning
// and the end of the container's standard error.
type attachment struct {
	hijacked client.HijackedResponse
	output   *io.PipeReader

	mu     sync.Mutex
	stderr *clip.Output
}

// maxStderr bounds the kept bytes of the standard error.
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

// Read reads from the container's standard output.
func (a *attachment) Read(p []byte) (int, error) { return a.output.Read(p) }

// Write writes to the container's standard input.
func (a *attachment) Write(p []byte) (int, error) { return a.hijacked.Conn.Write(p) }

// Close ends the connection, and thereby the container's standard input.
func (a *attachment) Close() error {
	return errors.Join(a.hijacked.Conn.Close(), a.output.Close())
}

// stderrText returns the container's standard error as one line.
func (a *attachment) stderrText() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return strings.Join(strings.Fields(a.stderr.Text()), " ")
}

// errorOutput is the writer that receives the container's standard error.
type errorOutput attachment

func (o *errorOutput) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.stderr.Write(p)
}
