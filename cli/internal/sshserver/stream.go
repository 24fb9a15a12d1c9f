package sshserver

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"sync"
)

// Bounds of the bytes of a file that are kept because the requests of a client come in another order
// than the bytes. Reads are out of order by as many as the server answers at once, and writes by as
// many as a client sends before it waits for the first answer.
const (
	behind = 1 << 20
	window = 4 << 20
)

// reader makes reads at offsets from a stream. Reads that follow each other need one stream, even if
// they are a little out of order. Any other read begins a stream at its offset.
type reader struct {
	open    func(offset int64) (io.ReadCloser, error)
	refused func(error) error // the error for the client
	closed  func()            // called by Close

	mu     sync.Mutex
	stream io.ReadCloser
	kept   []byte // the bytes before next
	next   int64  // the offset of the next byte of stream
	err    error  // the end of stream
}

func (r *reader) ReadAt(p []byte, offset int64) (n int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stream == nil || offset < r.next-int64(len(r.kept)) || offset > r.next+behind {
		if err := r.seek(offset); err != nil {
			return 0, r.refused(err)
		}
	}
	for n < len(p) {
		if at := offset + int64(n); at < r.next {
			n += copy(p[n:], r.kept[int64(len(r.kept))-(r.next-at):])
			continue
		}
		if errors.Is(r.err, io.EOF) {
			return n, io.EOF
		}
		if r.err != nil {
			return n, r.refused(r.err)
		}
		r.more()
	}
	return n, nil
}

func (r *reader) seek(offset int64) error {
	r.end()
	stream, err := r.open(offset)
	if err != nil {
		return err
	}
	r.stream, r.next, r.kept, r.err = stream, offset, r.kept[:0], nil
	return nil
}

// more reads some bytes of the stream.
func (r *reader) more() {
	const piece = 64 << 10
	if len(r.kept) > 2*behind {
		r.kept = r.kept[:copy(r.kept, r.kept[len(r.kept)-behind:])]
	}
	r.kept = slices.Grow(r.kept, piece)
	n, err := r.stream.Read(r.kept[len(r.kept) : len(r.kept)+piece])
	r.kept, r.next, r.err = r.kept[:len(r.kept)+n], r.next+int64(n), err
}

// end ends the stream. Its error is of no interest: what was read has been answered.
func (r *reader) end() {
	if r.stream != nil {
		_ = r.stream.Close()
		r.stream = nil
	}
}

// Close closes the file. The library calls it once, when no read is in progress.
func (r *reader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end()
	r.closed()
	return nil
}

// upload is a stream of bytes into a file.
type upload struct {
	*io.PipeWriter
	cancel context.CancelFunc
	done   chan error
}

// newUpload calls write, which writes what it reads to a file.
func newUpload(life context.Context, write func(context.Context, io.Reader) error) *upload {
	ctx, cancel := context.WithCancel(life)
	r, w := io.Pipe()
	u := &upload{w, cancel, make(chan error, 1)}
	go func() {
		err := write(ctx, r)
		if err == nil {
			_ = r.CloseWithError(io.ErrClosedPipe)
		} else {
			_ = r.CloseWithError(err)
		}
		u.done <- err
	}()
	return u
}

// end waits until everything is written. With a reason, it breaks the upload off.
func (u *upload) end(reason error) error {
	if reason != nil {
		u.cancel()
	}
	_ = u.CloseWithError(reason)
	err := <-u.done
	u.cancel()
	return err
}

// writer makes a stream from writes at offsets. Writes that follow each other need one stream, even
// if they are a little out of order. Any other write begins a stream at its offset.
type writer struct {
	open func(offset int64, truncated bool) *upload
	// first is the offset before which nothing may be written: the end of a file to which the client
	// appends. Clients that leave it to the server to know this offset are refused, because several of
	// their writes arrive in no order.
	first int64

	mu     sync.Mutex
	upload *upload // nil: the next write begins one
	next   int64   // the offset of the next byte of upload
	early  map[int64][]byte
	held   int // the bytes in early
	err    error
	after  []func(context.Context) error
}

// WriteAt writes p, or keeps a copy until the bytes before it have come.
func (w *writer) WriteAt(p []byte, offset int64) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil && w.overlaps(offset, len(p)) {
		w.err = w.writeEarly()
	}
	switch {
	case w.err != nil:
		return 0, w.err
	case offset < w.first:
		w.err = errors.ErrUnsupported
	case w.upload != nil && offset == w.next:
		w.err = w.put(p, offset)
	case w.held+len(p) <= window && offset > w.next:
		if w.early == nil {
			w.early = map[int64][]byte{}
		}
		w.early[offset] = bytes.Clone(p)
		w.held += len(p)
	default:
		if w.err = w.writeEarly(); w.err == nil {
			w.err = w.put(p, offset)
		}
	}
	for w.err == nil && w.upload != nil && w.early[w.next] != nil {
		w.err = w.putEarly(w.next)
	}
	if w.err != nil {
		return 0, w.err
	}
	return len(p), nil
}

// overlaps reports whether a write would change bytes that are kept.
func (w *writer) overlaps(offset int64, length int) bool {
	for at, kept := range w.early {
		if offset < at+int64(len(kept)) && at < offset+int64(length) {
			return true
		}
	}
	return false
}

// put writes p at offset. It begins another stream if that is not the next byte of the present one.
func (w *writer) put(p []byte, offset int64) error {
	if w.upload != nil && offset != w.next {
		if err := w.endUpload(nil); err != nil {
			return err
		}
	}
	if w.upload == nil {
		w.upload = w.open(offset, false)
	}
	n, err := w.upload.Write(p)
	w.next = offset + int64(n)
	return err
}

func (w *writer) putEarly(offset int64) error {
	p := w.early[offset]
	delete(w.early, offset)
	w.held -= len(p)
	return w.put(p, offset)
}

// writeEarly writes everything that was kept.
func (w *writer) writeEarly() error {
	for _, offset := range slices.Sorted(maps.Keys(w.early)) {
		if err := w.putEarly(offset); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) endUpload(reason error) error {
	if w.upload == nil {
		return nil
	}
	err := w.upload.end(reason)
	w.upload = nil
	return err
}

// flush writes everything that has come, and returns when the file has it.
func (w *writer) flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = w.writeEarly()
	}
	if w.err == nil {
		w.err = w.endUpload(nil)
	}
	return w.err
}

// atEnd makes close call change.
func (w *writer) atEnd(change func(context.Context) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.after = append(w.after, change)
}

// TransferError breaks the upload off: the client left before its end.
func (w *writer) TransferError(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
}

// close ends the upload. If it is complete, close then makes the changes that waited for it.
func (w *writer) close(ctx context.Context) error {
	err := w.flush()
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		_ = w.endUpload(err)
		return err
	}
	for _, change := range w.after {
		if err := change(ctx); err != nil {
			return err
		}
	}
	return nil
}
