package edge

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/protocol"
)

const firefox = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"

// TestPages checks that people receive an error as a page and programs as JSON, with the same
// status.
func TestPages(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.Add(Sandbox{ID: id, TrafficToken: traffic, Dial: serve(t, nil)})
	page := func(h map[string]string, more ...string) map[string]string {
		h["User-Agent"], h["Accept"] = firefox, "text/html,application/xhtml+xml,*/*;q=0.8"
		for i := 0; i < len(more); i += 2 {
			h[more[i]] = more[i+1]
		}
		return h
	}
	html := []string{"<!doctype html>", "· sandbox " + id}
	tests := []struct {
		name string
		ask
		status int
		want   []string // texts in the page; empty: the answer is JSON
	}{
		{"unknown sandbox", ask{header: page(by("inobody", "3000"))}, 502, []string{"<title>Sandbox Not Found</title>", "502 Bad Gateway", "The sandbox inobody wasn&#39;t found.", wordings[messageNotFound].hint, "sandbox inobody</small>"}},
		{"closed port", ask{header: page(by(id, "3000"), protocol.HeaderTraffic, traffic)}, 502, append(html, "<h1>Closed Port Error</h1>", "The sandbox "+id+" is running but there&#39;s no service running on port 3000.", "· port 3000")},
		{"port 0", ask{header: page(by(id, "0"), protocol.HeaderTraffic, traffic)}, 502, append(html, "no service running on port 0.", "· port 0")},
		{"token missing", ask{header: page(by(id, "3000"))}, 403, append(html, "<h1>Missing Traffic Access Token</h1>", "The sandbox "+id+" enforces traffic access token. Token header &#34;e2b-traffic-access-token&#34; is missing.")},
		{"token wrong", ask{header: page(by(id, "3000"), protocol.HeaderTraffic, "x")}, 403, append(html, "<h1>Invalid Traffic Access Token</h1>", "is invalid.")},
		{"reserved", ask{path: "/init", header: page(by(id, "49983"))}, 404, []string{"<!doctype html>", "<h1>Endpoint Not Available</h1>", "The endpoint /init is reserved for the E2B control plane and is not reachable through the sandbox URL."}},
		{"foreign host", ask{host: "evil.example", header: page(map[string]string{})}, 421, []string{"<!doctype html>", "<h1>Misdirected Request</h1>", messageHost}},
		{"an older browser", ask{header: page(by("inobody", "3000"), "Accept", "*/*")}, 502, []string{"<!doctype html>"}},
		{"opened from a link", ask{header: page(by("inobody", "3000"), "Sec-Fetch-Mode", "navigate")}, 502, []string{"<!doctype html>"}},
		{"fetch", ask{header: page(by("inobody", "3000"), "Sec-Fetch-Mode", "cors", "Accept", "*/*")}, 502, nil},
		{"image", ask{header: page(by("inobody", "3000"), "Sec-Fetch-Mode", "no-cors")}, 502, nil},
		{"XMLHttpRequest", ask{header: page(by("inobody", "3000"), "X-Requested-With", "XMLHttpRequest")}, 502, nil},
		{"takes JSON", ask{header: page(by("inobody", "3000"), "Accept", "application/JSON, text/html, */*")}, 502, nil},
		{"websocket", ask{header: page(by("inobody", "3000"), "Upgrade", "websocket", "Connection", "Upgrade")}, 502, nil},
		{"curl", ask{header: page(by("inobody", "3000"), "User-Agent", "curl/8.5.0", "Accept", "*/*")}, 502, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.method = "GET"
			resp, body := c.do(t, tt.ask)
			kind := "application/json; charset=utf-8"
			if tt.want != nil {
				kind = "text/html; charset=utf-8"
				if resp.Header.Get("Cache-Control") != "no-store" || resp.Header.Get("Content-Security-Policy") == "" {
					t.Errorf("header %v", resp.Header)
				}
			}
			if resp.StatusCode != tt.status || resp.Header.Get("Content-Type") != kind {
				t.Errorf("%d %s %s, want %d %s", resp.StatusCode, resp.Header.Get("Content-Type"), body, tt.status, kind)
			}
			for _, want := range tt.want {
				if !strings.Contains(body, want) {
					t.Errorf("%q is not in %s", want, body)
				}
			}
		})
	}
	resp, body := c.do(t, ask{method: "HEAD", header: page(by("inobody", "3000"))})
	if resp.StatusCode != 502 || body != "" || resp.ContentLength <= 0 {
		t.Errorf("HEAD: %d, length %d, body %q, want status 502, a length and no body", resp.StatusCode, resp.ContentLength, body)
	}
}

// TestTextOfPages checks that a page contains the limit if it is known, and does not replace braces
// in text from a request.
func TestTextOfPages(t *testing.T) {
	t.Parallel()
	for want, p := range map[string]page{
		"The sandbox i1 has too many concurrent incoming connections (limit: 7).":                                  {Message: messageTooMany, Sandbox: "i1", Limit: 7},
		"The sandbox i1 has too many concurrent incoming connections.":                                             {Message: messageTooMany, Sandbox: "i1"},
		"The endpoint /{port} is reserved for the E2B control plane and is not reachable through the sandbox URL.": {Message: messageReserved, Path: "/{port}"},
		messageBroken: {Message: messageBroken},
	} {
		if got := p.Text(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestPageIsEscaped checks that text from a request never becomes markup of a page.
func TestPageIsEscaped(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	r.Header.Set("User-Agent", firefox)
	w := httptest.NewRecorder()
	writeError(w, r, sandboxError{SandboxID: "<script>", Message: "<b>", Code: 502})
	if body := w.Body.String(); strings.Contains(body, "<script>") || strings.Contains(body, "<b>") {
		t.Errorf("got %q, want no %q in it and no %q in it", body, "<script>", "<b>")
	}
}
