package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
)

// The network rules are sent in the service's form, and nothing is sent when no
// rules are set.
func TestNetwork(t *testing.T) {
	t.Parallel()
	var sent []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		sent = append(sent, r.Method+" "+r.URL.Path+" "+string(body))
		switch r.Method {
		case http.MethodGet:
			_, _ = io.WriteString(w, `{"sandboxID":"i1","network":{"denyOut":["0.0.0.0/0"]}}`)
		case http.MethodPut:
			w.WriteHeader(http.StatusNoContent)
		default:
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, `{"sandboxID":"i1","envdVersion":"0.6.13"}`)
		}
	}))
	defer server.Close()
	c, err := NewClient(WithAPIKey("e2b_0123456789abcdef0123456789abcdef01234567"), WithBaseURL(server.URL), WithEnvFile(""))
	must.Do(t, err)
	rules := Egress{AllowOut: []string{"*.example.com"}, DenyOut: []string{AllTraffic}, DNSServers: []string{"1.1.1.1"}}
	proxied := Egress{EgressProxy: &EgressProxyConfig{Address: "proxy.example.com:1080", Username: "u", Password: "p", TLS: &EgressProxyTLS{Enabled: true, ServerName: "other.example.com", CACert: "c"}}}
	for _, p := range []*CreateParams{{}, {Egress: &rules}, {Egress: &rules, PrivateTraffic: true}, {HTTPSPorts: []int{443}}, {RequestHost: "localhost:${PORT}"}, {Egress: &proxied}} {
		_, err := c.Sandboxes.Create(t.Context(), p)
		must.Do(t, err)
	}
	no := false
	for _, p := range []*NetworkParams{nil, {Egress: rules}, {AllowInternetAccess: &no}} {
		must.Do(t, c.Sandboxes.SetNetwork(t.Context(), "i1", p))
	}
	want := []string{
		`POST /v2/sandboxes {"templateID":"base","timeout":300}`,
		`POST /v2/sandboxes {"templateID":"base","timeout":300,"network":{"allowOut":["*.example.com"],"denyOut":["0.0.0.0/0"],"dnsServers":["1.1.1.1"]}}`,
		`POST /v2/sandboxes {"templateID":"base","timeout":300,"network":{"allowOut":["*.example.com"],"denyOut":["0.0.0.0/0"],"dnsServers":["1.1.1.1"],"allowPublicTraffic":false}}`,
		`POST /v2/sandboxes {"templateID":"base","timeout":300,"network":{"httpsPorts":[443]}}`,
		`POST /v2/sandboxes {"templateID":"base","timeout":300,"network":{"maskRequestHost":"localhost:${PORT}"}}`,
		`POST /v2/sandboxes {"templateID":"base","timeout":300,"network":{"egressProxy":{"address":"proxy.example.com:1080","username":"u","tls":{"enabled":true,"serverName":"other.example.com","caCert":"c"},"password":"p"}}}`,
		`PUT /sandboxes/i1/network {}`,
		`PUT /sandboxes/i1/network {"allowOut":["*.example.com"],"denyOut":["0.0.0.0/0"],"dnsServers":["1.1.1.1"]}`,
		`PUT /sandboxes/i1/network {"allow_internet_access":false}`,
	}
	if diff := cmp.Diff(want, sent); diff != "" {
		t.Errorf("sent (-want +got):\n%s", diff)
	}
	info, err := c.Sandboxes.Get(t.Context(), "i1")
	if err != nil || info.Egress == nil || !cmp.Equal(info.Egress.DenyOut, []string{AllTraffic}) {
		t.Errorf("got %+v, %v, want DenyOut %v and no error", info, err, []string{AllTraffic})
	}
	if err := c.Sandboxes.SetNetwork(t.Context(), "i1/../x", nil); !errors.Is(err, ErrInvalidArgument) {
		t.Errorf("got %v, want ErrInvalidArgument", err)
	}
}

// Rules end in logs and errors of programs: the password of the proxy must not.
func TestEgressHidesThePassword(t *testing.T) {
	t.Parallel()
	const password = "hunter2718"
	proxy := EgressProxyConfig{Address: "proxy.example.com:1080", Username: "u", Password: password}
	for what, value := range map[string]any{"the proxy": proxy, "rules": Egress{EgressProxy: &proxy}, "params": NetworkParams{Egress: Egress{EgressProxy: &proxy}}} {
		encoded, err := json.Marshal(value)
		if err != nil || !strings.Contains(string(encoded), redacted) {
			t.Errorf("%s: got %s, %v, want JSON that shows that there is a password", what, encoded, err)
		}
		for _, shown := range []string{string(encoded), fmt.Sprintf("%+v", value), fmt.Sprintf("%#v", value), fmt.Sprintf("%x", value)} {
			if strings.Contains(shown, password) || strings.Contains(shown, fmt.Sprintf("%x", password)) {
				t.Errorf("%s: the password shows: %s", what, shown)
			}
		}
	}
}
