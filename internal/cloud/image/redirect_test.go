package image

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestRedirectsToPrivateAddresses checks that a registry of the internet cannot redirect to this
// machine or its networks, and that one of these networks can.
func TestRedirectsToPrivateAddresses(t *testing.T) {
	t.Setenv("NO_PROXY", "*")
	var reached atomic.Int32
	here := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	defer here.Close()
	r, err := newRegistries(Options{})
	must.Do(t, err)
	defer r.transport.close()
	get := func(from, to string) error {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, to, http.NoBody)
		must.Do(t, err)
		if from != "" {
			before, err := http.NewRequestWithContext(t.Context(), http.MethodGet, from, http.NoBody)
			must.Do(t, err)
			request.Response = &http.Response{Request: before}
		}
		response, err := r.transport.RoundTrip(request)
		if err == nil {
			err = response.Body.Close()
		}
		return err
	}
	for from, want := range map[string]bool{
		"": true, "http://127.0.0.1:1/": true, "https://10.1.2.3/": true, "https://localhost/": true, "https://[fd00::1]/": true,
		"https://8.8.8.8/": false, "https://[2606:4700::1]/": false,
	} {
		before := reached.Load()
		err := get(from, here.URL)
		if want != (err == nil) || want != (reached.Load() > before) {
			t.Errorf("a redirect from %q: got %v after %d requests, want it to be followed: %v", from, err, reached.Load()-before, want)
		}
		if !want && !strings.Contains(err.Error(), "not on the internet") {
			t.Errorf("a redirect from %q: got %v, want the reason", from, err)
		}
	}
	for _, to := range []string{"https://10.0.0.1:1/", "https://169.254.169.254/", "https://[::ffff:127.0.0.1]:1/", "https://[fe80::1]/", "https://0.0.0.0:1/", "https://[64:ff9b::7f00:1]:1/"} {
		if err := get("https://8.8.8.8/", to); err == nil || !strings.Contains(err.Error(), "not on the internet") {
			t.Errorf("a redirect to %s: got %v, want that it is not on the internet", to, err)
		}
	}
}
