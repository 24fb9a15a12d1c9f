//go:build linux

package envd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// maxWaiting bounds the number of bytes that wait for a process to read them. It does not bound
// the size of a single message.
const maxWaiting = 1 << 20

var (
	errStdinClosed = errors.New("stdin not enabled or closed")
	errInputFull   = fmt.Errorf("the process does not read its stdin: the bound of what may wait for it is %d bytes", maxWaiting)
)

// input is the writing end of a process's standard input, or of the process's terminal.
type input struct {
	lock chan struct{} // contains one token, so that there is one writer at a time; waiting for it can end with a context

	mu     sync.Mutex
	file   *os.File
	closed bool

	waiting atomic.Int64 // bytes that wait for the process to read them
}

func newInput(file *os.File) *input {
	in := &input{lock: make(chan struct{}, 1), file: file}
	in.lock <- struct{}{}
	return in
}

// write writes all of data. If the process does not read, it returns when ctx ends. It returns
// [errInputFull] if too many bytes are already waiting.
func (in *input) write(ctx context.Context, data []byte) error {
	size := int64(len(data))
	defer in.waiting.Add(-size)
	if all := in.waiting.Add(size); all > size && all > maxWaiting {
		return errInputFull
	}
	select {
	case <-in.lock:
		defer func() { in.lock <- struct{}{} }()
	case <-ctx.Done():
		return ctx.Err()
	}
	// A previous writer may have set a deadline.
	if err := in.file.SetWriteDeadline(time.Time{}); err != nil {
		return errStdinClosed
	}
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(interrupted)
		_ = in.file.SetWriteDeadline(time.Unix(1, 0))
	})
	_, err := in.file.Write(data)
	if !stop() {
		<-interrupted
		if err != nil {
			return ctx.Err()
		}
	}
	if errors.Is(err, os.ErrClosed) {
		return errStdinClosed
	}
	return err
}

// close closes the input and ends a running write. It is idempotent.
func (in *input) close() error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.closed {
		return nil
	}
	in.closed = true
	return in.file.Close()
}
