//go:build linux

package agent

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"
)

var errStdinClosed = errors.New("stdin not enabled or closed")

// input is the writing end of a process's standard input, or of its terminal.
type input struct {
	turn chan struct{} // holds one token: writes do not mix, and wait with a context

	mu     sync.Mutex
	file   *os.File
	closed bool
}

func newInput(file *os.File) *input {
	in := &input{turn: make(chan struct{}, 1), file: file}
	in.turn <- struct{}{}
	return in
}

// write writes all of data, or ends with ctx when the process does not read.
func (in *input) write(ctx context.Context, data []byte) error {
	select {
	case <-in.turn:
		defer func() { in.turn <- struct{}{} }()
	case <-ctx.Done():
		return ctx.Err()
	}
	// The first deadline of a previous writer must not be ours.
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

// close is idempotent and ends a write in progress.
func (in *input) close() error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.closed {
		return nil
	}
	in.closed = true
	return in.file.Close()
}
