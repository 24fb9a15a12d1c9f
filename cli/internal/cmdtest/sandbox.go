package cmdtest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
)

// Sandbox returns a handle for the sandbox of a service that ends with the test. daemon answers the requests to the
// sandbox.
func Sandbox(t *testing.T, daemon *http.ServeMux) *sandbox.Sandbox {
	t.Helper()
	daemon.HandleFunc("POST /v2/sandboxes", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"sandboxID":"i1","templateID":"t","envdVersion":"0.6.13"}`)
	})
	service := httptest.NewServer(daemon)
	t.Cleanup(service.Close)
	client, err := sandbox.NewClient(sandbox.WithAPIKey("e2b_00"), sandbox.WithAPIURL(service.URL), sandbox.WithSandboxURL(service.URL), sandbox.WithMaxRetries(0), sandbox.WithEnvFile(""))
	must.Do(t, err)
	t.Cleanup(func() { must.Do(t, client.Close()) })
	sb, err := client.Create(t.Context())
	must.Do(t, err)
	t.Cleanup(func() { must.Do(t, sb.Detach()) })
	return sb
}
