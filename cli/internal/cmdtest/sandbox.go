package cmdtest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/pipetest"
	"github.com/e2bctl/e2bctl/sandbox"
)

// Sandbox returns a handle for the sandbox of a service that ends with the test. daemon answers the requests to the
// sandbox.
func Sandbox(t *testing.T, daemon *http.ServeMux) *sandbox.Sandbox {
	t.Helper()
	service := httptest.NewServer(withSandbox(daemon))
	t.Cleanup(service.Close)
	return create(t, service.URL)
}

// PipedSandbox is like Sandbox, for a bubble of testing/synctest: the connections are pipes.
func PipedSandbox(t *testing.T, daemon *http.ServeMux) *sandbox.Sandbox {
	t.Helper()
	return create(t, "http://service.invalid", sandbox.WithTransport(pipetest.Serve(t, withSandbox(daemon))))
}

// withSandbox makes a daemon also the service that has its sandbox.
func withSandbox(daemon *http.ServeMux) *http.ServeMux {
	daemon.HandleFunc("POST /v2/sandboxes", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"sandboxID":"i1","templateID":"t","envdVersion":"0.6.13"}`)
	})
	return daemon
}

func create(t *testing.T, url string, more ...sandbox.ClientOption) *sandbox.Sandbox {
	t.Helper()
	client, err := sandbox.NewClient(append([]sandbox.ClientOption{
		sandbox.WithAPIKey("e2b_00"), sandbox.WithAPIURL(url), sandbox.WithSandboxURL(url), sandbox.WithMaxRetries(0), sandbox.WithEnvFile(""),
	}, more...)...)
	must.Do(t, err)
	t.Cleanup(func() { must.Do(t, client.Close()) })
	sb, err := client.Create(t.Context())
	must.Do(t, err)
	t.Cleanup(func() { must.Do(t, sb.Detach()) })
	return sb
}
