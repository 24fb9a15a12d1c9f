package sandbox

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/gen/filesystem/filesystemconnect"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

const (
	// DefaultIdleTimeout is the default of [FileParams].IdleTimeout.
	DefaultIdleTimeout = time.Minute
	// parallelWrites is the number of files that [Files.WriteFiles] writes at once.
	parallelWrites = 4
)

// Files works with a sandbox's files. Relative paths and "~" begin at the user's home. New files
// belong to the user. But the service reads and writes with the rights of root, so permissions are
// not enforced. The type of errors is [*fs.PathError]. They match fs.ErrNotExist, fs.ErrExist,
// syscall.ENOSPC and similar errors with errors.Is.
//
// Names may contain any character. Read, Open and the write methods also accept names that are
// not UTF-8. The other calls cannot transmit such names and return fs.ErrInvalid. Files is safe
// for concurrent use.
type Files struct {
	sb  *Sandbox
	rpc filesystemconnect.FilesystemClient
}

// FileParams sets how to read or write a file.
type FileParams struct {
	// User is the owner of written files, and relative paths begin at this user's home. Empty
	// means the sandbox's default user.
	User string
	// Gzip compresses the content in transit. The reader of a file receives the unpacked
	// content, which may have any length. Daemons before 0.5.7 receive uploads uncompressed.
	Gzip bool
	// IdleTimeout ends a transfer with [ErrIdle] if no byte moves for that long. The time that the
	// caller's own reader or writer takes does not count. 0 means [DefaultIdleTimeout]; a negative
	// value means no limit. Only the context limits the time for the whole transfer.
	IdleTimeout time.Duration
	// Progress is called with the number of bytes of content moved so far; nil means no calls. It is
	// called at most ten times a second, one call at a time, and once at the end with the total. A
	// download calls it from within Read. An upload calls it from another goroutine, but never after
	// the upload has returned. Progress must not block.
	Progress func(bytes int64)
	// Metadata contains labels for the written file. They replace the earlier labels of that file. The
	// keys consist of characters that are valid in an HTTP header name, and are stored in lower case.
	// The values are printable ASCII of at most 4 KiB. Labels need envd 0.6.2. Setting Metadata for a
	// read is an error; [Files.Stat] returns the labels.
	Metadata map[string]string
}

func newFiles(sb *Sandbox) *Files { return &Files{sb, newFilesystemClient(sb)} }

// Read returns the whole content of a file. Use Open to stream it.
func (f *Files) Read(ctx context.Context, path string, p *FileParams) ([]byte, error) {
	r, err := f.Open(ctx, path, p)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	return data, nil
}

// ReadText is like Read, but returns a string with the same bytes.
func (f *Files) ReadText(ctx context.Context, path string, p *FileParams) (string, error) {
	data, err := f.Read(ctx, path, p)
	return string(data), err
}

// Open opens a file for reading and streams its content. The caller must close it. ctx also
// limits the reading.
func (f *Files) Open(ctx context.Context, path string, p *FileParams) (io.ReadCloser, error) {
	p = cmp.Or(p, &FileParams{})
	if len(p.Metadata) > 0 {
		return nil, f.pathError("open", path, invalid("metadata is written, not asked for: see Stat"))
	}
	ctx, done, err := f.sb.begin(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	end := sync.OnceFunc(func() { cancel(nil); done() })
	idle := newIdleTimer(p.IdleTimeout, cancel)
	fail := func(op string, err error) error { return f.failed(ctx, op, path, err) }
	content, body, err := f.download(ctx, path, p)
	idle.stop()
	if err != nil {
		defer end()
		return nil, fail("open", err)
	}
	// Closing the handle must not wait for a caller that has stopped reading.
	context.AfterFunc(ctx, end)
	return &fileReader{
		content: content, body: body, idle: idle, progress: newProgress(p.Progress), end: end,
		failed: func(err error) error { return fail("read", err) },
	}, nil
}

// preferGzip is the Accept-Encoding of a request for compressed content. The local cloud compresses a
// large file only for a client that prefers gzip to identity by name.
const preferGzip = "gzip, identity;q=0.5"

// download returns the content of a file, and the response body from which the content is read.
func (f *Files) download(ctx context.Context, path string, p *FileParams) (content io.Reader, body io.ReadCloser, err error) {
	encoding := "identity"
	if p.Gzip {
		encoding = preferGzip
	}
	response, err := f.get(ctx, path, p.User, encoding)
	// For an uncompressed answer, the service's daemon first seeks to the end of the file,
	// which fails for files in /proc. For a compressed one it only reads the file.
	if e, ok := errors.AsType[*api.Error](err); ok && !p.Gzip && e.StatusCode == http.StatusInternalServerError && e.Message == "seeker can't seek" {
		response, err = f.get(ctx, path, p.User, preferGzip)
	}
	if err != nil {
		return nil, nil, err
	}
	if !strings.EqualFold(response.Header.Get("Content-Encoding"), "gzip") {
		return response.Body, response.Body, nil
	}
	z, err := gzip.NewReader(response.Body)
	if err != nil {
		return nil, nil, errors.Join(unexpectedEOF(err), response.Body.Close())
	}
	return z, response.Body, nil
}

func (f *Files) get(ctx context.Context, path, user, encoding string) (*http.Response, error) {
	request, err := f.request(ctx, http.MethodGet, path, user, nil)
	if err != nil {
		return nil, err
	}
	// The transport must not choose this, because it does not report the length of content that
	// it unpacks.
	request.Header.Set("Accept-Encoding", encoding)
	return f.do(request)
}

// Write writes a file. It creates the file and its directories if they are missing, and
// replaces the content of an existing file.
//
// If a write fails halfway, because ctx ended or the connection broke, the local cloud keeps the
// old file, or creates none. A snapshot or fork during the write also contains the old file, or
// none. The service's daemon writes the data as it arrives, so a partial write replaces the old
// content. To replace a file atomically on E2B's service, write to another name and then use
// [Files.Rename].
func (f *Files) Write(ctx context.Context, path string, data []byte, p *FileParams) error {
	return f.WriteFrom(ctx, path, bytes.NewReader(data), p)
}

// WriteText is like Write, but takes a string.
func (f *Files) WriteText(ctx context.Context, path, text string, p *FileParams) error {
	return f.WriteFrom(ctx, path, strings.NewReader(text), p)
}

// WriteFrom is like Write, but streams the bytes of r; a nil r writes an empty file. If r returns
// an error, WriteFrom ends the upload and returns the error. The file is then in the state that
// Write describes for a failed write. Of an [*os.File] that is a regular file, WriteFrom sends the
// bytes that the file has at the start; if the file gets shorter meanwhile, the error is
// [io.ErrUnexpectedEOF].
//
// While a Read of r blocks, WriteFrom asks the service every few seconds about the sandbox. When
// the sandbox has ended or is paused, WriteFrom returns [ErrGone]. If ctx ends, or the sandbox ends
// or is paused, during a Read of r, WriteFrom does not wait for the Read. That Read, and a
// goroutine of the upload, continue until the Read returns. WriteFrom never begins another Read
// after it has returned.
func (f *Files) WriteFrom(ctx context.Context, path string, r io.Reader, p *FileParams) error {
	p = cmp.Or(p, &FileParams{})
	progress := newProgress(p.Progress)
	if err := f.write(ctx, path, r, p, progress); err != nil {
		return err
	}
	progress.finish()
	return nil
}

// FileContent is a file for [Files.WriteFiles] to write.
type FileContent struct {
	// Path is the path of the file.
	Path string
	// Content is the content, which is read once; nil means an empty file.
	Content io.Reader
}

// WriteFiles writes many files, four at once and in no particular order. The first error ends the
// other writes and is returned. Complete files stay. Incomplete files are left in the state that
// Write describes. p applies to each file; Progress counts the bytes of all files together.
func (f *Files) WriteFiles(ctx context.Context, files []FileContent, p *FileParams) error {
	p = cmp.Or(p, &FileParams{})
	progress := newProgress(p.Progress)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelWrites)
	for _, file := range files { // after the first error, each further write fails at once
		group.Go(func() error { return f.write(ctx, file.Path, file.Content, p, progress) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	progress.finish()
	return nil
}

func (f *Files) write(ctx context.Context, path string, r io.Reader, p *FileParams, progress *progress) error {
	ctx, end, err := f.sb.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	var attending sync.WaitGroup
	defer attending.Wait()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if r == nil {
		r = strings.NewReader("")
	}
	s := &source{r: r, length: lengthOf(r), idle: newIdleTimer(p.IdleTimeout, cancel), progress: progress}
	if bufferedIn(r) < 0 { // other readers never block
		attending.Go(func() { s.attend(ctx, cmp.Or(p.IdleTimeout, DefaultIdleTimeout), f.sb.ended, cancel) })
	}
	err = f.upload(ctx, path, s, p)
	if own := s.end(); own != nil && ctx.Err() == nil {
		return f.pathError("write", path, own) // for the transport, the caller's error is a broken connection
	}
	if err != nil {
		return f.failed(ctx, "write", path, err)
	}
	return nil
}

func (f *Files) upload(ctx context.Context, path string, s *source, p *FileParams) error {
	length := s.length
	var content io.Reader = s
	contentType, encoding := "application/octet-stream", ""
	switch {
	case f.sb.daemonBefore(0, 5, 7):
		content, contentType = form(s)
		length = -1
	case p.Gzip:
		content, encoding = newDeflater(s), "gzip"
		length = -1
	case length == 0:
		content = http.NoBody
	}
	request, err := f.request(ctx, http.MethodPost, path, p.User, content)
	if err != nil {
		return err
	}
	request.ContentLength = length
	request.Header.Set("Content-Type", contentType)
	if encoding != "" {
		request.Header.Set("Content-Encoding", encoding)
	}
	if err := f.setMetadata(request.Header, p.Metadata); err != nil {
		return err
	}
	response, err := f.do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	// The answer repeats the path. The connection can be reused if the answer is read to its
	// end.
	_, err = io.Copy(io.Discard, io.LimitReader(response.Body, maxAnswer))
	return err
}

// maxAnswer limits the bytes that are read from an answer that is not a file.
const maxAnswer = 64 << 10

func (f *Files) request(ctx context.Context, method, path, user string, body io.Reader) (*http.Request, error) {
	if strings.ContainsRune(path, 0) {
		return nil, invalid("a path has no zero byte")
	}
	query := url.Values{"path": {path}}
	if user != "" {
		query.Set("username", user)
	}
	return portClient{f.sb, protocol.PortEnvd}.request(ctx, method, "/files?"+query.Encode(), body)
}

// do sends a request. It returns an error for any status other than 200.
func (f *Files) do(request *http.Request) (*http.Response, error) {
	response, err := portClient{f.sb, protocol.PortEnvd}.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		defer response.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
		return nil, api.ResponseError(request.Method, "/files", response.StatusCode, response.Header, text)
	}
	return response, nil
}
