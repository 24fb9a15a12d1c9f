package cmdutil

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// A credential is masked once, and before the first request with it is sent.
func TestMaskingComesFirst(t *testing.T) {
	t.Setenv("GITHUB_ACTIONS", "true")
	var log bytes.Buffer
	f := NewFactory(NewIOStreams(nil, nil, &log), nil)
	f.flags.annotate = true
	m := f.newMasking()
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if log.String() != "::add-mask::se%25cret\n" {
			t.Errorf("a request is sent after %q", &log)
		}
	}))
	defer server.Close()
	defer m.RoundTripper.(*http.Transport).CloseIdleConnections()
	var requests sync.WaitGroup
	for range 20 {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
		must.Do(t, err)
		request.Header.Set(protocol.HeaderAPIKey, "se%cret")
		requests.Go(func() {
			response, err := m.RoundTrip(request)
			if err != nil {
				t.Error(err)
				return
			}
			response.Body.Close()
		})
	}
	requests.Wait()

	log.Reset()
	f.IO.ErrIsFile = true
	f.Mask("other")
	f.IO.ErrIsFile = false
	f.Mask("")
	f.flags.annotate = false
	f.Mask("other")
	if log.Len() > 0 {
		t.Errorf("%q is written to a file, without a secret, or without --annotate", &log)
	}
}
