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
)

// ErrIdle: no byte of a file moved for the time of [FileParams.IdleTimeout]. It
// matches [os.ErrDeadlineExceeded], too.
var ErrIdle = fmt.Errorf("sandbox: the transfer stood still: %w", os.ErrDeadlineExceeded)

// idleTimer ends a transfer that stands still while the timer is armed, as it is
// at first.
type idleTimer struct {
	timer *time.Timer // nil: no bound
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

func (t *idleTimer) rest() {
	if t.timer != nil {
		t.timer.Stop()
	}
}

// progressInterval is the shortest time between two reports of progress.
const progressInterval = 100 * time.Millisecond

// progress counts what transfers move, and reports it.
type progress struct {
	tell func(int64) // nil: not reported

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

// fileReader is a file that is being read.
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
	r.idle.rest()
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

// unexpectedEOF distinguishes content that ends before it began from empty
// content.
func unexpectedEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// source is the reader of an upload. The transport may still be reading after
// it has answered; r and the progress belong to the caller again by then.
type source struct {
	r        io.Reader
	idle     *idleTimer
	progress *progress

	mu     sync.Mutex
	ended  bool
	failed error // that of r
}

var errUploadEnded = errors.New("the upload has ended")

func (s *source) Read(p []byte) (int, error) {
	if !s.going(s.idle.rest) {
		return 0, errUploadEnded
	}
	n, err := s.r.Read(p)
	going := s.going(func() {
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

// going calls do unless the upload has ended.
func (s *source) going(do func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	do()
	return true
}

// end ends the upload, and returns the error of r, if that ended it.
func (s *source) end() error {
	s.going(func() {
		s.ended = true
		s.idle.rest()
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// lengthOf returns how many bytes r will return, or -1 if that is not certain.
func lengthOf(r io.Reader) int64 {
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

// form wraps content in the form that daemons before 0.5.7 require, whose query
// names the file.
func form(content io.Reader) (io.Reader, string) {
	var frame bytes.Buffer
	w := multipart.NewWriter(&frame)
	_, _ = w.CreateFormFile("file", "file") // a buffer takes everything
	head := bytes.Clone(frame.Bytes())
	frame.Reset()
	_ = w.Close()
	return io.MultiReader(bytes.NewReader(head), content, &frame), w.FormDataContentType()
}

// deflater compresses what it reads.
type deflater struct {
	content io.Reader
	z       *gzip.Writer
	chunk   []byte
	packed  bytes.Buffer
	err     error // returned when packed is empty
}

func newDeflater(content io.Reader) *deflater {
	d := &deflater{content: content, chunk: make([]byte, 64<<10)}
	d.z, _ = gzip.NewWriterLevel(&d.packed, gzip.BestSpeed) // a level there is
	return d
}

func (d *deflater) Read(p []byte) (int, error) {
	for d.packed.Len() == 0 {
		if d.err != nil {
			return 0, d.err
		}
		n, err := d.content.Read(d.chunk)
		_, _ = d.z.Write(d.chunk[:n]) // a buffer takes everything
		if errors.Is(err, io.EOF) {
			_ = d.z.Close()
		}
		d.err = err
	}
	return d.packed.Read(p)
}
