package sandbox

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/e2bctl/e2bctl/api"
)

// ErrIdle means that no byte of a file moved for [FileParams.IdleTimeout]. It also matches
// [os.ErrDeadlineExceeded].
var ErrIdle = fmt.Errorf("sandbox: the transfer stood still: %w", os.ErrDeadlineExceeded)

// idleTimer ends a transfer if no byte moves while the timer is armed. A new timer is armed.
type idleTimer struct {
	timer *time.Timer // the timer that ends the transfer; nil: there is no limit
	after time.Duration
}

func newIdleTimer(after time.Duration, cancel context.CancelCauseFunc) *idleTimer {
	if after == 0 {
		after = DefaultIdleTimeout
	}
	t := &idleTimer{after: after}
	if after > 0 {
		t.timer = time.AfterFunc(after, func() { cancel(fmt.Errorf("%w: no byte in %v", ErrIdle, after)) })
	}
	return t
}

func (t *idleTimer) arm() {
	if t.timer != nil {
		t.timer.Reset(t.after)
	}
}

func (t *idleTimer) stop() {
	if t.timer != nil {
		t.timer.Stop()
	}
}

// progressInterval is the minimum time between two calls of Progress.
const progressInterval = 100 * time.Millisecond

// progress counts the bytes that transfers move, and reports them.
type progress struct {
	tell func(int64) // receives the number of bytes; nil: nothing is reported

	mu    sync.Mutex
	total int64
	told  time.Time
}

func newProgress(tell func(int64)) *progress { return &progress{tell: tell} }

func (p *progress) add(n int) {
	if p.tell == nil || n == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total += int64(n)
	if now := time.Now(); now.Sub(p.told) >= progressInterval {
		p.told = now
		p.tell(p.total)
	}
}

func (p *progress) finish() {
	if p.tell == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tell(p.total)
}

// fileReader reads the content of a file from the sandbox.
type fileReader struct {
	content  io.Reader
	body     io.ReadCloser
	idle     *idleTimer
	progress *progress
	end      func()
	failed   func(error) error
	finished bool
}

func (r *fileReader) Read(p []byte) (int, error) {
	r.idle.arm()
	n, err := r.content.Read(p)
	r.idle.stop()
	r.progress.add(n)
	switch {
	case err == nil:
	case !errors.Is(err, io.EOF):
		err = r.failed(err)
	case !r.finished:
		r.finished = true
		r.progress.finish()
	}
	return n, err
}

func (r *fileReader) Close() error {
	r.end()
	return r.body.Close()
}

// unexpectedEOF converts io.EOF to [io.ErrUnexpectedEOF], and returns other errors unchanged. It is
// used for errors at the beginning of content, so that missing content differs from empty content.
func unexpectedEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// source is the reader of an upload. The transport may still read from source after the transport
// has returned an answer. By then r and the progress belong to the caller again, so source no
// longer uses them.
type source struct {
	r        io.Reader
	length   int64 // the bytes of r to send; -1 means all until io.EOF
	idle     *idleTimer
	progress *progress

	sent    int64 // the bytes read so far; Read alone uses it
	mu      sync.Mutex
	ended   bool
	reads   int   // the number of reads of r so far
	reading bool  // the last of these reads is in progress
	failed  error // the error of r
}

var errUploadEnded = errors.New("the upload has ended")

func (s *source) Read(p []byte) (int, error) {
	if s.length >= 0 {
		if s.sent == s.length {
			return 0, io.EOF
		}
		p = p[:min(int64(len(p)), s.length-s.sent)]
	}
	going := s.going(func() {
		s.idle.stop()
		s.reads++
		s.reading = true
	})
	if !going {
		return 0, errUploadEnded
	}
	n, err := s.r.Read(p)
	s.sent += int64(n)
	if s.sent < s.length && errors.Is(err, io.EOF) {
		err = fmt.Errorf("%w: it had %d bytes at the start of the upload, and %d now", io.ErrUnexpectedEOF, s.length, s.sent)
	}
	going = s.going(func() {
		s.reading = false
		s.idle.arm()
		s.progress.add(n)
		if err != nil && !errors.Is(err, io.EOF) {
			s.failed = err
		}
	})
	if !going {
		return 0, errUploadEnded
	}
	return n, err
}

// going calls do if the upload has not ended. It reports whether it called do.
func (s *source) going(do func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	do()
	return true
}

// end ends the upload. It returns the error of r if that error ended the upload.
func (s *source) end() error {
	s.going(func() {
		s.ended = true
		s.idle.stop()
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// askInterval is the interval at which an upload asks the service about its destination while the
// reader of the upload returns nothing.
const askInterval = 2 * time.Second

// attend asks about the destination of the upload every askInterval while one Read of r lasts,
// because the transport notices nothing until that Read returns. The upload ends when the
// destination no longer exists. It also ends when the service has not answered for the duration
// limit. A negative limit means no limit.
func (s *source) attend(ctx context.Context, limit time.Duration, ask func(context.Context) error, cancel context.CancelCauseFunc) {
	tick := time.NewTicker(askInterval)
	defer tick.Stop()
	var answered time.Time
	for last := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if read := s.silent(); read == 0 || read != last {
			last, answered = read, time.Now()
			continue
		}
		asked, end := context.WithTimeout(ctx, stateTimeout)
		err := ask(asked)
		end()
		e, ok := errors.AsType[*api.Error](err)
		switch {
		case errors.Is(err, ErrGone), errors.Is(err, api.ErrNotFound), errors.Is(err, api.ErrNothingListens):
			cancel(uncancelled(err))
			return
		case !ok || e.StatusCode != 0:
			answered = time.Now()
		case limit >= 0 && time.Since(answered) >= limit:
			cancel(uncancelled(err))
			return
		}
	}
}

// silent returns the number of the call of r.Read that is in progress, or 0 if there is none.
func (s *source) silent() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.reading {
		return 0
	}
	return s.reads
}

// minFileLength is the length below which the length of a file is not announced. Short files gain
// nothing by it, and files of Linux's sysfs have fewer bytes than their size.
const minFileLength = 1 << 20

// lengthOf returns the number of bytes to announce for r, or -1 if the number is unknown. A service
// that knows the number refuses at once what does not fit on its disk.
func lengthOf(r io.Reader) int64 {
	if n := bufferedIn(r); n >= 0 {
		return n
	}
	file, ok := r.(*os.File)
	if !ok {
		return -1
	}
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return -1
	}
	offset, err := file.Seek(0, io.SeekCurrent)
	if n := info.Size() - offset; err == nil && n >= minFileLength {
		return n
	}
	return -1
}

// bufferedIn returns the number of bytes that r has in memory, or -1 if r is of a type that may
// block.
func bufferedIn(r io.Reader) int64 {
	switch r := r.(type) {
	case *bytes.Reader:
		return int64(r.Len())
	case *strings.Reader:
		return int64(r.Len())
	case *bytes.Buffer:
		return int64(r.Len())
	}
	return -1
}

// form wraps content in the multipart form that daemons before 0.5.7 require. The query of the
// request names the file.
func form(content io.Reader) (io.Reader, string) {
	var frame bytes.Buffer
	w := multipart.NewWriter(&frame)
	_, _ = w.CreateFormFile("file", "file") // writing to a buffer cannot fail
	head := bytes.Clone(frame.Bytes())
	frame.Reset()
	_ = w.Close()
	return io.MultiReader(bytes.NewReader(head), content, &frame), w.FormDataContentType()
}

// deflater compresses the bytes of its reader.
type deflater struct {
	content io.Reader
	z       *gzip.Writer
	chunk   []byte
	packed  bytes.Buffer
	err     error // the error that is returned when packed is empty
}

func newDeflater(content io.Reader) *deflater {
	d := &deflater{content: content, chunk: make([]byte, 64<<10)}
	d.z, _ = gzip.NewWriterLevel(&d.packed, gzip.BestSpeed) // the level is valid
	return d
}

func (d *deflater) Read(p []byte) (int, error) {
	for d.packed.Len() == 0 {
		if d.err != nil {
			return 0, d.err
		}
		n, err := d.content.Read(d.chunk)
		_, _ = d.z.Write(d.chunk[:n]) // writing to a buffer cannot fail
		if errors.Is(err, io.EOF) {
			_ = d.z.Close()
		}
		d.err = err
	}
	return d.packed.Read(p)
}
