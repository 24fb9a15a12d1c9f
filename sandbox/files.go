package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"sync"
	"syscall"

	"github.com/e2bctl/e2bctl/api"
)

// Files reads and writes a sandbox's files. Relative paths and "~" start at the
// user's home. Errors are [*fs.PathError]; errors.Is finds fs.ErrNotExist,
// fs.ErrPermission and the like in them. It is safe for concurrent use.
type Files struct{ sb *Sandbox }

// FileParams say for whom a file is read or written.
type FileParams struct {
	// User is whose home relative paths start at, and who owns what is written;
	// empty means the sandbox's default user.
	User string
}

// Read gives the content of a file.
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

// Open opens a file for reading; it is read as it comes, and Close must be
// called. ctx is that of the reading, too.
func (f *Files) Open(ctx context.Context, path string, p *FileParams) (io.ReadCloser, error) {
	ctx, end, err := f.sb.begin(ctx)
	if err != nil {
		return nil, err
	}
	end = sync.OnceFunc(end)
	body, err := f.do(ctx, http.MethodGet, path, p, nil)
	if err != nil {
		defer end()
		return nil, f.failed(ctx, "open", path, err)
	}
	// The handle's Close must not wait for one who has given up reading.
	context.AfterFunc(ctx, end)
	return &fileReader{
		body: body, end: end,
		failed: func(err error) error { return f.failed(ctx, "read", path, err) },
	}, nil
}

// Write writes a file, making it and its directories where they are missing
// and replacing what it holds.
func (f *Files) Write(ctx context.Context, path string, data []byte, p *FileParams) error {
	return f.WriteFrom(ctx, path, bytes.NewReader(data), p)
}

// WriteFrom is Write of what r gives, as it comes. An error of r cuts the
// upload off and is returned.
func (f *Files) WriteFrom(ctx context.Context, path string, r io.Reader, p *FileParams) error {
	ctx, end, err := f.sb.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	body, err := f.do(ctx, http.MethodPost, path, p, r)
	if err != nil {
		return f.failed(ctx, "write", path, err)
	}
	defer body.Close()
	// The answer repeats the path; to read it to its end keeps the connection.
	if _, err := io.Copy(io.Discard, io.LimitReader(body, 64<<10)); err != nil {
		return f.failed(ctx, "write", path, err)
	}
	return nil
}

// do gives the body of the answer.
func (f *Files) do(ctx context.Context, method, path string, p *FileParams, body io.Reader) (io.ReadCloser, error) {
	query := url.Values{"path": {path}}
	if p != nil && p.User != "" {
		query.Set("username", p.User)
	}
	daemon := portClient{f.sb, daemonPort}
	r, err := daemon.request(ctx, method, "/files?"+query.Encode(), body)
	if err != nil {
		return nil, err
	}
	// Compressed, a download would have no length, and end early unnoticed.
	r.Header.Set("Accept-Encoding", "identity")
	if body != nil {
		r.Header.Set("Content-Type", "application/octet-stream")
	}
	response, err := daemon.Do(r)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		defer response.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(response.Body, 64<<10))
		return nil, api.ResponseError(method, "/files", response.StatusCode, response.Header, text)
	}
	return response.Body, nil
}

// failed gives the error of an operation on a path.
func (f *Files) failed(ctx context.Context, op, path string, err error) error {
	err = f.sb.cause(ctx, err)
	if e, ok := errors.AsType[*api.Error](err); ok {
		switch {
		case e.StatusCode == http.StatusInsufficientStorage:
			err = fmt.Errorf("%w: %w", syscall.ENOSPC, err)
		case errors.Is(err, api.ErrNotFound):
			err = fmt.Errorf("%w: %w", fs.ErrNotExist, err)
		case errors.Is(err, api.ErrForbidden):
			err = fmt.Errorf("%w: %w", fs.ErrPermission, err)
		case errors.Is(err, api.ErrInvalidArgument):
			err = fmt.Errorf("%w: %w", fs.ErrInvalid, err)
		}
	}
	return &fs.PathError{Op: op, Path: f.sb.ID() + ":" + path, Err: err}
}

// fileReader is a file that is being read.
type fileReader struct {
	body   io.ReadCloser
	end    func()
	failed func(error) error
}

func (r *fileReader) Read(p []byte) (int, error) {
	n, err := r.body.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = r.failed(err)
	}
	return n, err
}

func (r *fileReader) Close() error {
	r.end()
	return r.body.Close()
}
