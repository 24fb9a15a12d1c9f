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
	// DefaultIdleTimeout is how long a transfer may stand still unless
	// [FileParams] say otherwise.
	DefaultIdleTimeout = time.Minute
	// parallelWrites is how many files [Files.WriteFiles] writes at a time.
	parallelWrites = 4
)

// Files are a sandbox's files. Relative paths and "~" start at the user's home.
// What is made belongs to the user, but nothing is refused to one: the service
// reads and writes with root's rights. Errors are [*fs.PathError]; errors.Is
// finds fs.ErrNotExist, fs.ErrExist, syscall.ENOSPC and the like in them.
//
// Names may hold any character. Read, Open and the writes take names that are
// not UTF-8, too; the other calls cannot carry these and refuse them with
// fs.ErrInvalid. It is safe for concurrent use.
type Files struct {
	sb  *Sandbox
	rpc filesystemconnect.FilesystemClient
}

// FileParams say how a file is read or written.
type FileParams struct {
	// User is whose home relative paths start at, and who owns what is written;
	// empty means the sandbox's default user.
	User string
	// Gzip compresses the content on its way. The reader of a file gets what it
	// unpacks to, however much that is. Daemons before 0.5.7 get it as it is.
	Gzip bool
	// IdleTimeout ends a transfer with [ErrIdle] when no byte moves for that
	// long; time that the caller's own reader or writer takes does not count. 0
	// means [DefaultIdleTimeout], less than 0 no bound. How long the whole may
	// take is the context's business.
	IdleTimeout time.Duration
	// Progress is told how many bytes of content were moved so far: at most ten
	// times a second, one call at a time, and in the end once with all of them.
	// A download calls it from within Read, an upload from another goroutine,
	// never after the call has returned. It must not block. May be nil.
	Progress func(bytes int64)
	// Metadata are labels of what is written, in place of those it had: keys in
	// the letters of an HTTP header, kept in lower case, and printable ASCII
	// values, 4 KiB at most. They need a daemon of 0.6.2. To read with any is an
	// error; [Files.Stat] gives them.
	Metadata map[string]string
}

func newFiles(sb *Sandbox) *Files { return &Files{sb, newFilesystemClient(sb)} }

// Read gives the content of a file, however long that is; Open reads as it comes.
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

// ReadText is Read as a string, byte for byte.
func (f *Files) ReadText(ctx context.Context, path string, p *FileParams) (string, error) {
	data, err := f.Read(ctx, path, p)
	return string(data), err
}

// Open opens a file for reading; it is read as it comes, and Close must be
// called. ctx is that of the reading, too.
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
	idle.rest()
	if err != nil {
		defer end()
		return nil, fail("open", err)
	}
	// The handle's Close must not wait for one who has given up reading.
	context.AfterFunc(ctx, end)
	return &fileReader{
		content: content, body: body, idle: idle, progress: newProgress(p.Progress), end: end,
		failed: func(err error) error { return fail("read", err) },
	}, nil
}

// download gives the content of a file and the body that it comes in.
func (f *Files) download(ctx context.Context, path string, p *FileParams) (content io.Reader, body io.ReadCloser, err error) {
	encoding := "identity"
	if p.Gzip {
		encoding = "gzip"
	}
	response, err := f.get(ctx, path, p.User, encoding)
	// The service's daemon asks for the end of a file before it sends it as it is, and
	// those of /proc have none that it could ask for. Compressed it just reads them.
	if e, ok := errors.AsType[*api.Error](err); ok && !p.Gzip && e.StatusCode == http.StatusInternalServerError && e.Message == "seeker can't seek" {
		response, err = f.get(ctx, path, p.User, "gzip")
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
	// Never left to the transport, which does not report the length of what it unpacks.
	request.Header.Set("Accept-Encoding", encoding)
	return f.do(request)
}

// Write writes a file, making it and its directories where they are missing
// and replacing what it holds.
//
// A write that fails on its way, because ctx ended or the connection broke, leaves the
// old file in place on the local cloud. The service's daemon writes as the data
// arrives: there the part that arrived stays, under the name of the file and in place
// of what it held. To replace a file whole there, write to another name and then use
// [Files.Rename].
func (f *Files) Write(ctx context.Context, path string, data []byte, p *FileParams) error {
	return f.WriteFrom(ctx, path, bytes.NewReader(data), p)
}

// WriteText is Write of a string.
func (f *Files) WriteText(ctx context.Context, path, text string, p *FileParams) error {
	return f.WriteFrom(ctx, path, strings.NewReader(text), p)
}

// WriteFrom is Write of what r gives, as it comes; nil gives nothing. An error of r
// cuts the upload off, as Write says, and is returned. r is not read after the return, but a Read in
// progress then is not waited for.
func (f *Files) WriteFrom(ctx context.Context, path string, r io.Reader, p *FileParams) error {
	p = cmp.Or(p, &FileParams{})
	progress := newProgress(p.Progress)
	if err := f.write(ctx, path, r, p, progress); err != nil {
		return err
	}
	progress.finish()
	return nil
}

// FileContent is a file to write.
type FileContent struct {
	// Path is where it belongs.
	Path string
	// Content is read once; nil means that the file is empty.
	Content io.Reader
}

// WriteFiles writes many files, four at a time and in no order. The first
// failure is returned and ends the others: files that were complete by then
// stay, and those that were being written are as Write says. p holds for each of them; Progress counts them together.
func (f *Files) WriteFiles(ctx context.Context, files []FileContent, p *FileParams) error {
	p = cmp.Or(p, &FileParams{})
	progress := newProgress(p.Progress)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelWrites)
	for _, file := range files { // after the first failure each says so at once
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
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if r == nil {
		r = strings.NewReader("")
	}
	s := &source{r: r, idle: newIdleTimer(p.IdleTimeout, cancel), progress: progress}
	defer s.end()
	if err := f.upload(ctx, path, s, p); err != nil {
		return f.failed(ctx, "write", path, err)
	}
	return nil
}

func (f *Files) upload(ctx context.Context, path string, s *source, p *FileParams) error {
	length := lengthOf(s.r)
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
	// The answer repeats the path; to read it to its end keeps the connection.
	_, err = io.Copy(io.Discard, io.LimitReader(response.Body, maxAnswer))
	return err
}

// maxAnswer is enough of an answer that is no file.
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

// do sends a request; an answer but 200 is an error.
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
