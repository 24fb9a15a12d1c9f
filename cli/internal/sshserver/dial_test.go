package sshserver

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/sandbox"
)

// neverStarts is a service with one sandbox, in which the start of a process does not end before the test.
type neverStarts struct{ entered, over chan struct{} }

func (n neverStarts) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Path, "/process.Process/Start") {
		n.entered <- struct{}{}
		select {
		case <-n.over:
		case <-r.Context().Done():
		}
		return nil, io.ErrUnexpectedEOF
	}
	body := io.NopCloser(strings.NewReader(`{"sandboxID":"i1234567890","templateID":"base","envdVersion":"0.4.0"}`))
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: body, Request: r}, nil
}

// TestConnectionInProgress checks that the server does not wait for a connection to a port that is being made
// when its client goes.
func TestConnectionInProgress(t *testing.T) {
	t.Parallel()
	service := neverStarts{make(chan struct{}, 8), make(chan struct{})}
	client, err := sandbox.NewClient(sandbox.WithAPIKey("e2b_00000000"), sandbox.WithAPIURL("http://api.invalid"), sandbox.WithSandboxURL("http://sandbox.invalid"),
		sandbox.WithTransport(service), sandbox.WithEnvFile(""))
	must.Do(t, err)
	defer func() { must.Do(t, client.Close()) }()
	sb, err := client.Connect(t.Context(), "i1234567890")
	must.Do(t, err)
	defer func() { must.Do(t, sb.Close()) }()
	defer close(service.over)
	patience.Soon(t, "the server ends", 5*time.Second, func() {
		s := connect(t, sb, "user", nil)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = s.Dial("tcp", "localhost:80") // it fails
		}()
		patience.Receive(t, "the start of a process", service.entered)
		must.Do(t, s.near.Close())
		s.done <- patience.Receive(t, "the end of the server", s.done)
		patience.Receive(t, "the end of the call", ended)
	})
}
