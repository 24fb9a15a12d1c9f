package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/e2bctl/e2bctl/internal/httpwait"
)

// FileUpload is the address for the archive of a COPY step of a build.
type FileUpload struct {
	// Present reports whether the service has the archive already.
	Present bool `json:"present"`
	// URL is the address to send the archive to. It is signed and valid for a limited time;
	// anybody who has it can use it. It may be empty when Present is true.
	URL string `json:"url"`
	// Headers must be sent with the archive.
	Headers map[string]string `json:"headers"`
}

// FileUpload returns the address for the archive of a COPY step. hash is the step's
// BuildStep.FilesHash, a SHA-256 in hexadecimal digits. The client computes it from the files and
// the arguments of COPY, and the service does not check it. The error is [ErrNotFound] when there
// is no such template.
func (s *TemplateService) FileUpload(ctx context.Context, templateID, hash string) (*FileUpload, error) {
	path, err := objectPath("/templates/", "template", templateID, "/files/")
	if err != nil {
		return nil, err
	}
	if !isHash(hash) {
		return nil, fmt.Errorf("api: the hash of files is not 64 hexadecimal digits: %w", ErrInvalidArgument)
	}
	upload := &FileUpload{}
	if _, err := s.client.do(ctx, call{method: http.MethodGet, path: path + hash}, upload); err != nil {
		return nil, err
	}
	return upload, nil
}

// Upload sends an archive, tar or tar.gz, of exactly size bytes to the address that FileUpload
// returned. It reads the archive while it sends it. It does not send the API key and does not close
// the archive. ctx limits the whole call. The call is never retried.
func (s *TemplateService) Upload(ctx context.Context, to *FileUpload, archive io.Reader, size int64) error {
	at, err := url.Parse(to.URL)
	if err != nil || at.Host == "" || at.Scheme != "https" && at.Scheme != "http" {
		return errors.New("api: the service named no usable address to upload to") // the address is a secret
	}
	body := io.NopCloser(archive)
	if size == 0 {
		body = http.NoBody // any other body without a length would be sent in chunks
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, to.URL, body)
	if err != nil {
		return NewError(http.MethodPut, at.Path, withoutURL(err))
	}
	request.ContentLength = size
	request.Header.Set("User-Agent", s.client.agent)
	for name, value := range to.Headers {
		request.Header.Set(name, value) // the transport leaves out a Content-Length
	}
	start := time.Now()
	// Use the transport itself, which follows no redirects: the address is meant for this
	// request alone.
	response, err := httpwait.Do(s.client.transport.RoundTrip, request, httpwait.Limits{})
	if err != nil {
		return NewError(http.MethodPut, at.Path, withoutURL(err))
	}
	defer response.Body.Close()
	s.client.logger.DebugContext(ctx, "upload", "host", at.Host, "bytes", size, "duration", time.Since(start), "status", response.StatusCode)
	text, _ := io.ReadAll(io.LimitReader(response.Body, maxErrorBody))
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return ResponseError(http.MethodPut, at.Path, response.StatusCode, response.Header, text)
	}
	return nil
}
