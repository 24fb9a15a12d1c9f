package edge

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestIsPublicName(t *testing.T) {
	t.Parallel()
	rt := New(Options{Domain: "cloud.test:4000"})
	for host, want := range map[string]bool{
		"8080-" + id + ".cloud.test": true, "8080-" + id + "-client.cloud.test": true,
		"api.cloud.test": false, "sandbox.cloud.test": false, "cloud.test": false, "localhost": false, "": false,
		"8080-" + id + ".test": false, "8080-" + id + ".x.cloud.test": false, "8080-" + id + ".cloud.test:4000": false,
		"x-" + id + ".cloud.test": false, "8080-.cloud.test": false, "-" + id + ".cloud.test": false, id + ".cloud.test": false,
	} {
		if rt.IsPublicName(host) != want {
			t.Errorf("%q: got %v, want %v", host, !want, want)
		}
	}
	if New(Options{}).IsPublicName("8080-" + id + ".") {
		t.Error("without a domain: there is a public name")
	}
}

// TestServePeer checks that a connection dialled to a name serves only requests for this name, even
// if their headers name another sandbox or the port of another server.
func TestServePeer(t *testing.T) {
	t.Parallel()
	const name, port = "8080-" + id + ".cloud.test", 4000
	api := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "api") })
	rt := New(Options{API: api, Domain: "cloud.test:4000"})
	answer := func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "sandbox "+r.Host+r.URL.Path) }
	dial := serve(t, map[int]http.HandlerFunc{8080: answer, 49983: answer, 49999: answer, 8888: answer, 4000: answer})
	rt.Add(Sandbox{ID: id, Dial: dial})
	rt.Add(Sandbox{ID: otherID, AccessToken: token, TrafficToken: traffic, Dial: dial})
	t.Cleanup(func() { rt.Remove(id); rt.Remove(otherID) })
	tests := []struct {
		dialled, host, path string
		header              map[string]string
		status              int
		text                string
	}{
		{name, name + ":4000", "/x", nil, 200, "sandbox " + name + ":4000/x"},
		{name, "8080-" + strings.ToUpper(id) + ".Cloud.Test.:4000", "/", nil, 200, "sandbox"},
		{name, name + ":4000", "/", by(otherID, "49983"), 200, "sandbox " + name},
		{name, "api.cloud.test:4000", "/sandboxes", nil, 421, messagePeerHost},
		{name, "localhost:4000", "/sandboxes", nil, 421, messagePeerHost},
		{name, "127.0.0.1:4000", "/", by(id, "8080"), 421, messagePeerHost},
		{name, "8080-" + otherID + ".cloud.test:4000", "/", nil, 421, messagePeerHost},
		{name, name, "/", nil, 421, messagePeerHost},
		{name, name + ":4001", "/", nil, 421, messagePeerHost},
		{name, "", "http://" + name + ":4000/", nil, 421, messagePeerHost},
		{"api.cloud.test", "api.cloud.test:4000", "/", nil, 421, messagePeerHost},
		{"4000-" + id + ".cloud.test", "4000-" + id + ".cloud.test:4000", "/", nil, 421, messagePeerHost},
		{"49983-" + id + ".cloud.test", "49983-" + id + ".cloud.test:4000", "/", nil, 403, messagePeerOwn + `","port":49983,"code":403}`},
		{"49999-" + id + ".cloud.test", "49999-" + id + ".cloud.test:4000", "/", nil, 403, messagePeerOwn + `","port":49999,"code":403}`},
		{"8888-" + id + ".cloud.test", "8888-" + id + ".cloud.test:4000", "/", nil, 403, messagePeerOwn + `","port":8888,"code":403}`},
		{"49983-" + otherID + ".cloud.test", "49983-" + otherID + ".cloud.test:4000", "/x", nil, 200, "sandbox"},
		{"49983-" + otherID + ".cloud.test", "49983-" + otherID + ".cloud.test:4000", "/init", nil, 404, messageReserved},
		{"8080-" + otherID + ".cloud.test", "8080-" + otherID + ".cloud.test:4000", "/", nil, 403, messageTrafficMissing},
		{"8080-" + otherID + ".cloud.test", "8080-" + otherID + ".cloud.test:4000", "/", map[string]string{"E2b-Traffic-Access-Token": traffic}, 200, "sandbox"},
		{"8080-gone.cloud.test", "8080-gone.cloud.test:4000", "/", nil, 502, messageNotFound},
	}
	for _, test := range tests {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, test.path, nil)
		if test.host != "" {
			r.Host = test.host
		}
		for header, value := range test.header {
			r.Header.Set(header, value)
		}
		w := httptest.NewRecorder()
		rt.ServePeer(w, r, test.dialled, port)
		if w.Code != test.status || !strings.Contains(w.Body.String(), test.text) {
			t.Errorf("%s at %s: got %d %s, want %d %s", test.host, test.dialled, w.Code, w.Body, test.status, test.text)
		}
	}
}

// TestPeerLoop checks that a program that forwards each request to its own public name is stopped
// by the limit of requests to one sandbox.
func TestPeerLoop(t *testing.T) {
	t.Parallel()
	const name = "8080-" + id + ".cloud.test"
	rt := New(Options{Domain: "cloud.test:4000"})
	again := func(ctx context.Context, w http.ResponseWriter) {
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
		r.Host = name + ":4000"
		rt.ServePeer(w, r, name, 4000)
	}
	rt.Add(Sandbox{ID: id, Dial: serve(t, map[int]http.HandlerFunc{8080: func(w http.ResponseWriter, r *http.Request) { again(r.Context(), w) }})})
	t.Cleanup(func() { rt.Remove(id) })
	w := httptest.NewRecorder()
	again(t.Context(), w)
	if w.Code != http.StatusTooManyRequests {
		t.Errorf("got %d %s, want 429", w.Code, w.Body)
	}
}
