package cmdutil

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
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

// inner is a transport that answers nothing.
type inner struct{ requests int }

func (i *inner) RoundTrip(*http.Request) (*http.Response, error) {
	i.requests++
	return nil, errors.ErrUnsupported
}

// TestEachSecretIsMasked checks that each header with a secret is masked once, that a request does not wait for another
// one, and that the transport keeps as many connections as that of the SDK.
func TestEachSecretIsMasked(t *testing.T) {
	t.Parallel()
	m := NewFactory(NewIOStreams(nil, nil, nil), nil).newMasking()
	if transport := m.RoundTripper.(*http.Transport); transport.MaxIdleConns != 512 || transport.MaxIdleConnsPerHost != 512 {
		t.Errorf("%d connections are kept, %d to one host; want 512", transport.MaxIdleConns, transport.MaxIdleConnsPerHost)
	}
	var masked []string
	to := &inner{}
	m.RoundTripper, m.mask = to, func(secret string) { masked = append(masked, secret) }
	for range 2 {
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		for _, header := range []string{protocol.HeaderAPIKey, protocol.HeaderAccess, protocol.HeaderTraffic, "X-Other"} {
			request.Header.Set(header, "secret of "+header)
		}
		_, err := m.RoundTrip(request)
		must.Is(t, err, errors.ErrUnsupported)
		if !m.mu.TryLock() {
			t.Fatal("a request keeps the lock")
		}
		m.mu.Unlock()
	}
	want := []string{"secret of " + protocol.HeaderAPIKey, "secret of " + protocol.HeaderAccess, "secret of " + protocol.HeaderTraffic}
	if !slices.Equal(masked, want) || to.requests != 2 {
		t.Errorf("masked %q, and sent %d requests; want %q and 2", masked, to.requests, want)
	}
}
