package sandbox

import (
	"bytes"
	"io"
	"net/http"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// A 502 that does not come from the router is returned whole, whatever its
// length.
func TestTransportOwn502(t *testing.T) {
	t.Parallel()
	want := bytes.Repeat([]byte("bad gateway "), 20<<10)
	s := newService(t)
	s.execute = func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("E2b-Traffic-Access-Token") != "traffictoken" || r.UserAgent() == "" {
			t.Errorf("header %v", r.Header)
		}
		w.WriteHeader(http.StatusBadGateway)
		_, _ = w.Write(want)
	}
	sb := s.sandbox()
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost:49999/execute", nil)
	response, err := sb.Transport(49999).RoundTrip(r)
	must.Do(t, err)
	defer response.Body.Close()
	if got, err := io.ReadAll(response.Body); response.StatusCode != http.StatusBadGateway || !bytes.Equal(got, want) {
		t.Errorf("%s, %d bytes, %v", response.Status, len(got), err)
	}
}

// TestCloseWithAnUnreadAnswer checks that closing a handle does not wait for a caller that has stopped reading.
func TestCloseWithAnUnreadAnswer(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.execute = func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "first")
		must.Do(t, http.NewResponseController(w).Flush())
		<-r.Context().Done()
	}
	sb := s.sandbox()
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost:49999/execute", nil)
	response, err := sb.Transport(49999).RoundTrip(r)
	must.Do(t, err)
	must.Do(t, sb.Close())
	must.Do(t, response.Body.Close())
}

func TestURL(t *testing.T) {
	t.Setenv("E2B_SANDBOX_URL", "")
	s := newService(t)
	if got := s.sandbox().URL(3000); got != "http://3000-"+testID+".test.invalid" {
		t.Errorf("with a sandbox URL: %s", got)
	}
	c, err := NewClient(WithAPIKey(testKey), WithAPIURL(s.url), WithDomain("test.invalid"), WithEnvFile(""))
	must.Do(t, err)
	defer c.Close()
	sb, err := c.Connect(t.Context(), testID)
	must.Do(t, err)
	defer sb.Detach()
	if got := sb.URL(3000); got != "https://3000-"+testID+".test.invalid" {
		t.Errorf("without: %s", got)
	}
}
