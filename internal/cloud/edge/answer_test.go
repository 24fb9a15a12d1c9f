package edge

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

const sandboxed = "sandbox allow-scripts allow-forms allow-modals allow-downloads allow-popups allow-popups-to-escape-sandbox"

// signedPath is a signed URL of the sandbox whose token is [token].
var signedPath = "/files?path=/a.html&signature=" + sign("/a.html:read::"+token, "")

// fetched is an answer, as a client receives it.
type fetched struct {
	status  int
	header  http.Header
	trailer http.Header
	hints   []int // statuses of the informational answers before it
}

// fetch sends a request to the cloud over HTTP/1 or HTTP/2.
func (c *cloud) fetch(t *testing.T, version int, a ask) fetched {
	t.Helper()
	var got fetched
	ctx := httptrace.WithClientTrace(patience.Context(t), &httptrace.ClientTrace{Got1xxResponse: func(code int, _ textproto.MIMEHeader) error {
		got.hints = append(got.hints, code)
		return nil
	}})
	r, err := http.NewRequestWithContext(ctx, a.method, c.url+a.path, a.body)
	must.Do(t, err)
	for name, value := range a.header {
		r.Header.Set(name, value)
	}
	if a.host != "" {
		r.Host = a.host
	}
	transport := &http.Transport{DisableCompression: true}
	if version == 2 {
		transport = http2Transport()
		transport.DisableCompression = true
	}
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(r)
	must.Do(t, err)
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	if resp.ProtoMajor != version {
		t.Fatalf("got HTTP/%d, want HTTP/%d", resp.ProtoMajor, version)
	}
	got.status, got.header, got.trailer = resp.StatusCode, resp.Header, resp.Trailer
	return got
}

// TestHostileSigned checks the answer of a hijacked envd to a signed URL at the shared address.
// Whatever envd sends, at any time, the answer has the policy and only the listed headers.
func TestHostileSigned(t *testing.T) {
	t.Parallel()
	const may = "Accept-Ranges: bytes\r\nLast-Modified: Mon, 02 Jan 2006 15:04:05 GMT\r\nEtag: \"1\"\r\nVary: Accept-Encoding\r\nDate: Mon, 02 Jan 2006 15:04:06 GMT\r\n" +
		"Content-Encoding: gzip\r\nContent-Range: bytes 0-1/2\r\nContent-Disposition: inline\r\nAccess-Control-Allow-Origin: *\r\nAccess-Control-Allow-Methods: GET\r\n" +
		"Access-Control-Allow-Headers: a\r\nAccess-Control-Expose-Headers: b\r\nAccess-Control-Max-Age: 3\r\n"
	const mayNot = "Content-Security-Policy: sandbox allow-same-origin allow-scripts\r\nCONTENT-SECURITY-POLICY: default-src *\r\nContent-Security-Policy-Report-Only: sandbox\r\n" +
		"X-Content-Type-Options: sniff\r\nSet-Cookie: a=b\r\nSet-Cookie: c=d; Path=/\r\nSet-Cookie2: e=f\r\nLocation: /x\r\nRefresh: 0; url=/\r\nLink: </x>; rel=preload\r\n" +
		"Clear-Site-Data: \"*\"\r\nService-Worker-Allowed: /\r\nService-Worker-Navigation-Preload: true\r\nAccess-Control-Allow-Credentials: true\r\nAccess-Control-Allow-Private-Network: true\r\n" +
		"Strict-Transport-Security: max-age=1\r\nAlt-Svc: h3=\":1\"\r\nWww-Authenticate: Basic\r\nProxy-Authenticate: Basic\r\nCross-Origin-Opener-Policy: same-origin\r\nCross-Origin-Resource-Policy: cross-origin\r\n" +
		"Origin-Agent-Cluster: ?0\r\nPermissions-Policy: x=*\r\nFeature-Policy: x\r\nReferrer-Policy: unsafe-url\r\nReport-To: {}\r\nReporting-Endpoints: a=\"/\"\r\nNel: {}\r\nSourcemap: /x\r\nX-Sourcemap: /x\r\n" +
		"No-Vary-Search: params\r\nSpeculation-Rules: \"/x\"\r\nSupports-Loading-Mode: x\r\nCache-Control: public\r\nExpires: Mon, 02 Jan 2036 15:04:05 GMT\r\nAge: 1\r\nPragma: x\r\nX-Frame-Options: DENY\r\n" +
		"Upgrade: h2c\r\nKeep-Alive: timeout=1\r\nX-Anything: x\r\nTrailer:X-Anything\r\nCritical-Ch: x\r\nAccept-Ch: x\r\nSec-Session-Registration: x\r\nSet-Login: logged-in\r\nContent-Location: /x\r\n"
	listed := func() http.Header {
		return http.Header{
			"Accept-Ranges": {"bytes"}, "Last-Modified": {"Mon, 02 Jan 2006 15:04:05 GMT"}, "Etag": {`"1"`}, "Vary": {"Accept-Encoding"}, "Date": {"Mon, 02 Jan 2006 15:04:06 GMT"},
			"Content-Encoding": {"gzip"}, "Content-Range": {"bytes 0-1/2"}, "Content-Disposition": {"inline"}, "Access-Control-Allow-Origin": {"*"}, "Access-Control-Allow-Methods": {"GET"},
			"Access-Control-Allow-Headers": {"a"}, "Access-Control-Expose-Headers": {"b"}, "Access-Control-Max-Age": {"3"},
			"Content-Security-Policy": {sandboxed}, "X-Content-Type-Options": {"nosniff"},
		}
	}
	tests := []struct{ name, before, status, header, body, length, kind string }{
		{"page", "", "200 OK", may + mayNot + "Content-Type: text/html\r\nContent-Length: 2\r\n", "hi", "2", "text/html"},
		{"part", "", "206 Partial Content", may + mayNot + "Content-Type: video/mp4\r\nContent-Length: 2\r\n", "hi", "2", "video/mp4"},
		{"unchanged", "", "304 Not Modified", may + mayNot, "", "", ""},
		{"unauthorized", "", "401 Unauthorized", may + mayNot + "Content-Type: text/html\r\nContent-Length: 2\r\n", "hi", "2", "text/html"},
		{"missing", "", "404 Not Found", may + mayNot + "Content-Type: text/html\r\nContent-Length: 2\r\n", "hi", "2", "text/html"},
		{"broken", "", "500 Internal Server Error", may + mayNot + "Content-Type: text/html\r\nContent-Length: 2\r\n", "hi", "2", "text/html"},
		{"unknown status", "", "999 x", may + mayNot + "Content-Type: text/html\r\nContent-Length: 2\r\n", "hi", "2", "text/html"},
		{"PDF", "", "200 OK", may + "Content-Type: application/pdf\r\nContent-Length: 2\r\n", "hi", "2", "application/pdf"},
		{"two types", "", "200 OK", may + "Content-Type: application/pdf\r\nContent-Type: text/html\r\nContent-Length: 2\r\n", "hi", "2", "application/pdf"},
		{"two types in one", "", "200 OK", may + "Content-Type: application/pdf, text/html\r\nContent-Length: 2\r\n", "hi", "2", "application/octet-stream"},
		{"two types, one of which has a parameter", "", "200 OK", may + "Content-Type: text/plain; charset=utf-8, text/html\r\nContent-Length: 2\r\n", "hi", "2", "application/octet-stream"},
		{"headers in the body", "", "200 OK", may + "Content-Type: Multipart/X-Mixed-Replace; boundary=x\r\nContent-Length: 2\r\n", "hi", "2", "application/octet-stream"},
		{"parts of a file", "", "206 Partial Content", may + "Content-Type: multipart/byteranges; boundary=x\r\nContent-Length: 2\r\n", "hi", "2", "multipart/byteranges; boundary=x"},
		{"no type", "", "200 OK", may + "Content-Length: 6\r\n", "<html>", "6", ""},
		{"hints", "HTTP/1.1 103 Early Hints\r\n" + mayNot + "\r\nHTTP/1.1 102 Processing\r\nSet-Cookie: a=b\r\n\r\nHTTP/1.1 100 Continue\r\nSet-Cookie: a=b\r\n\r\n",
			"200 OK", may + "Content-Type: text/html\r\nContent-Length: 2\r\n", "hi", "2", "text/html"},
		{"trailers", "", "200 OK", may + "Content-Type: text/html\r\nTransfer-Encoding: chunked\r\nTrailer: Set-Cookie, X-Announced\r\n",
			"2\r\nhi\r\n0\r\nX-Announced: 1\r\n" + mayNot + "\r\n", "", "text/html"},
		{"trailers that nothing announced", "", "200 OK", may + "Content-Type: text/html\r\nTransfer-Encoding: chunked\r\n",
			"2\r\nhi\r\n0\r\n" + mayNot + "Content-Type: text/plain\r\n\r\n", "", "text/html"},
	}
	for _, tt := range tests {
		for _, version := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s, HTTP %d", tt.name, version), func(t *testing.T) {
				t.Parallel()
				c := start(t)
				dial, _ := hostile(t, tt.before+"HTTP/1.1 "+tt.status+"\r\n"+tt.header+"\r\n"+tt.body)
				c.Add(Sandbox{ID: id, AccessToken: token, Dial: dial})
				defer c.Remove(id)
				got := c.fetch(t, version, ask{method: "GET", path: signedPath})
				want := listed()
				if tt.kind != "" {
					want.Set("Content-Type", tt.kind)
				}
				if tt.length != "" {
					want.Set("Content-Length", tt.length)
				}
				if diff := cmp.Diff(want, got.header); diff != "" {
					t.Errorf("header (-want +got):\n%s", diff)
				}
				if status := fmt.Sprint(got.status); !strings.HasPrefix(tt.status, status) || len(got.hints) > 0 || len(got.trailer) > 0 {
					t.Errorf("got status %s, %v before it and the trailers %v, want %s and neither", status, got.hints, got.trailer, tt.status)
				}
			})
		}
	}
}

// headers counts the final headers of an answer.
type headers struct {
	*httptest.ResponseRecorder
	final int
}

func (h *headers) WriteHeader(status int) {
	if status >= 200 {
		h.final++
	}
	h.ResponseRecorder.WriteHeader(status)
}

// TestSealedOnce checks that an answer has one final header, which follows the rules, whatever
// methods write it.
func TestSealedOnce(t *testing.T) {
	t.Parallel()
	write := func(w http.ResponseWriter) { _, _ = io.WriteString(w, "text") }
	flush := func(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }
	status := func(w http.ResponseWriter) { w.WriteHeader(http.StatusOK) }
	hint := func(w http.ResponseWriter) { w.WriteHeader(http.StatusEarlyHints) }
	for _, of := range []rules{unchanged, varied, confined} {
		for i, steps := range [][]func(http.ResponseWriter){{write, write}, {flush, write, flush}, {status, write, write}, {hint, hint, status, flush, write}, {flush, flush}} {
			h := &headers{ResponseRecorder: httptest.NewRecorder()}
			w := of.enforce(h)
			for _, step := range steps {
				step(w)
			}
			vary, policy := len(h.Header().Values("Vary")), len(h.Header().Values("Content-Security-Policy"))
			if vary != map[rules]int{varied: 1}[of] || policy != map[rules]int{confined: 1}[of] || of != unchanged && h.final != 1 {
				t.Errorf("rules %d, way %d: got %d headers, Vary %d times and a policy %d times", of, i, h.final, vary, policy)
			}
			if of == unchanged {
				continue
			}
			before := h.Header().Clone()
			if of == confined {
				w.Header().Set("Etag", "late") // a map of its own
			}
			w.WriteHeader(http.StatusOK)
			if diff := cmp.Diff(before, h.Header()); diff != "" {
				t.Errorf("rules %d, way %d: the header changed after it was sent (-before +after):\n%s", of, i, diff)
			}
		}
	}
}

// TestNoTypeIsGuessed checks that an answer without a type is not displayed as a page.
func TestNoTypeIsGuessed(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(confined.enforce(w), "<html>")
	}))
	defer server.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
	must.Do(t, err)
	resp, err := server.Client().Do(r)
	must.Do(t, err)
	defer resp.Body.Close()
	if got := resp.Header.Get("Content-Type"); got != "" {
		t.Errorf("got type %q, want none", got)
	}
	checkConfined(t, resp.Header)
}

// TestSignedLeadsNowhere checks that the answer of a hijacked envd to a signed URL neither
// redirects a browser nor makes it leave HTTP.
func TestSignedLeadsNowhere(t *testing.T) {
	t.Parallel()
	const rest = "Location: /sandboxes\r\nSet-Cookie: a=b\r\nContent-Type: text/html\r\nContent-Length: 2\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-Websocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\nhi"
	for _, status := range []int{101, 300, 301, 302, 303, 305, 306, 307, 308, 399} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			c := start(t)
			dial, _ := hostile(t, fmt.Sprintf("HTTP/1.1 %d x\r\n%s", status, rest))
			c.Add(Sandbox{ID: id, AccessToken: token, Dial: dial})
			defer c.Remove(id)
			got := c.fetch(t, 1, ask{method: "GET", path: signedPath, header: map[string]string{
				"Connection": "Upgrade", "Upgrade": "websocket", "Sec-Websocket-Version": "13", "Sec-Websocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
			}})
			if got.status != http.StatusServiceUnavailable || got.header.Get("Location")+got.header.Get("Set-Cookie") != "" {
				t.Errorf("got %+v, want status 503 and nothing of what the sandbox sent", got)
			}
			checkConfined(t, got.header)
		})
	}
}

func checkConfined(t *testing.T, header http.Header) {
	t.Helper()
	want := []string{sandboxed}
	if diff := cmp.Diff(want, header.Values("Content-Security-Policy")); diff != "" || header.Get("X-Content-Type-Options") != "nosniff" || len(header.Values("Content-Type")) > 1 {
		t.Errorf("the header %v is not confined: policy (-want +got):\n%s", header, diff)
	}
}

// TestSignedByEdge checks that the edge's own answers to a signed URL have the policy, too, for
// browsers and for programs.
func TestSignedByEdge(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.Add(Sandbox{ID: id, AccessToken: token, Dial: func(context.Context, int) (net.Conn, error) { return nil, errors.New("no descriptor left") }})
	asleep := Sandbox{ID: otherID, AccessToken: "deadbeef", Dial: serve(t, nil)}
	c.Add(asleep)
	c.Pause(otherID)
	both := by(id, "49983")
	both["Origin"] = "null"
	tests := []struct {
		name string
		ask
		status int
	}{
		{"nobody signed it", ask{path: "/files?signature=v1_x"}, 502},
		{"an empty signature", ask{path: "/files?signature"}, 502},
		{"the sandbox is broken", ask{path: signedPath}, 503},
		{"the sandbox is paused", ask{path: "/files?path=/a&signature=" + sign("/a:read::deadbeef", "")}, 502},
		{"the sandbox is paused, the URL expired", ask{path: "/files?path=/a&signature_expiration=5&signature=" + sign("/a:read::deadbeef", "5")}, 403},
		{"another method", ask{method: "PUT", path: signedPath}, 502},
		{"TRACE", ask{method: "TRACE", path: signedPath}, 502},
		{"a path in code", ask{path: strings.Replace(signedPath, "/files", "/%66iles", 1)}, 503},
		{"by its name", ask{host: "sandbox.cloud.test", path: signedPath}, 503},
		{"a service worker", ask{path: signedPath, header: map[string]string{"Service-Worker": "script"}}, 403},
		{"a service worker, said in another way", ask{path: signedPath, header: map[string]string{"Service-Worker": "x"}}, 403},
		{"a service worker of nobody", ask{path: "/files?signature=v1_x", header: map[string]string{"Service-Worker": "script"}}, 403},
		{"routing headers and an origin", ask{path: signedPath, header: both}, 400},
		{"routing headers and an origin, to write", ask{method: "POST", path: signedPath, header: both}, 400},
		{"routing headers and an origin, of nobody", ask{path: "/files?signature=v1_x", header: both}, 400},
		{"half of the routing headers and an origin", ask{path: signedPath, header: map[string]string{"E2b-Sandbox-Id": id, "Origin": "http://x.example"}}, 400},
		{"routing headers, an origin and a preflight", ask{method: "OPTIONS", path: signedPath, header: map[string]string{
			"E2b-Sandbox-Id": id, "E2b-Sandbox-Port": "1", "Origin": "http://x.example", "Access-Control-Request-Method": "GET",
		}}, 400},
	}
	for _, tt := range tests {
		for _, agent := range []string{firefox, "curl/8"} {
			t.Run(tt.name+" "+agent, func(t *testing.T) {
				t.Parallel()
				header := map[string]string{"User-Agent": agent}
				for name, value := range tt.header {
					header[name] = value
				}
				got := c.fetch(t, 1, ask{method: tt.method, path: tt.path, host: tt.host, header: header})
				if got.status != tt.status {
					t.Errorf("got status %d, want %d", got.status, tt.status)
				}
				checkConfined(t, got.header)
			})
		}
	}
}

// TestSignedPreflight checks that the edge allows pages to use a signed URL, except with headers
// that route the request to another sandbox or authorize it.
func TestSignedPreflight(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.Add(Sandbox{ID: id, AccessToken: token, Dial: func(context.Context, int) (net.Conn, error) {
		t.Error("the sandbox was asked")
		return nil, ErrGone
	}})
	c.Pause(id)
	for asked, allowed := range map[string]string{
		"":                                    "",
		"content-type,range":                  "content-type, range",
		"e2b-sandbox-id,e2b-sandbox-port":     "",
		"range, E2B-Sandbox-ID ,x-trace":      "range, x-trace",
		"*,e2b-sandbox-id":                    "",
		"authorization,x-access-token,cookie": "",
		"e2b-traffic-access-token,x-api-key":  "",
	} {
		header := map[string]string{"Origin": "null", "Access-Control-Request-Method": "GET", "Access-Control-Request-Private-Network": "true"}
		if asked != "" {
			header["Access-Control-Request-Headers"] = asked
		}
		got := c.fetch(t, 1, ask{method: "OPTIONS", path: signedPath, header: header})
		want := http.Header{
			"Access-Control-Allow-Origin": {"*"}, "Access-Control-Allow-Methods": {"GET, POST"}, "Access-Control-Max-Age": {"7200"},
			"Vary":                    {"Origin, Access-Control-Request-Method, Access-Control-Request-Headers"},
			"Content-Security-Policy": {sandboxed}, "X-Content-Type-Options": {"nosniff"},
		}
		if allowed != "" {
			want.Set("Access-Control-Allow-Headers", allowed)
		}
		got.header.Del("Date")
		if diff := cmp.Diff(want, got.header); got.status != http.StatusNoContent || diff != "" {
			t.Errorf("%q: got status %d, want 204; header (-want +got):\n%s", asked, got.status, diff)
		}
	}
}

// TestVary checks that any answer to a request that headers routed lists these headers for caches,
// and is otherwise unchanged. Other answers are not changed at all.
func TestVary(t *testing.T) {
	t.Parallel()
	const hint = "HTTP/1.1 103 Early Hints\r\nLink: </x>; rel=preload\r\n\r\n"
	const answer = "HTTP/1.1 200 OK\r\nDate: Mon, 02 Jan 2006 15:04:06 GMT\r\nVary: Accept\r\nContent-Security-Policy: default-src *\r\nSet-Cookie: a=b\r\nService-Worker-Allowed: /\r\nContent-Type: text/javascript\r\nContent-Length: 2\r\n\r\nhi"
	worker := by(id, "3000")
	worker["Service-Worker"] = "script"
	signature := by(id, "49983")
	program := by(id, "3000")
	program["Origin"] = "http://x.example"
	const routed = "E2b-Sandbox-Id, E2b-Sandbox-Port"
	tests := []struct {
		name string
		ask
		status int
		vary   []string
	}{
		{"by header", ask{header: by(id, "3000")}, 200, []string{"Accept", routed}},
		{"a service worker of a program", ask{header: worker}, 200, []string{"Accept", routed}},
		{"a signature, and no origin", ask{path: signedPath, header: signature}, 200, []string{"Accept", routed}},
		{"an origin, and no signature", ask{path: "/files", header: program}, 200, []string{"Accept", routed}},
		{"a signature of the program's own", ask{path: "/f?signature=x", header: program}, 200, []string{"Accept", routed}},
		{"by host", ask{host: "3000-" + id + ".cloud.test"}, 200, []string{"Accept"}},
		{"by host, with a signature", ask{host: "49983-" + id + ".localhost", path: signedPath, header: map[string]string{"Service-Worker": "script", "Origin": "null", "E2b-Sandbox-Id": id}}, 200, []string{"Accept"}},
		{"refused", ask{header: by("I_1", "3000")}, 400, []string{routed}},
		{"half", ask{header: map[string]string{"E2b-Sandbox-Id": id}}, 400, []string{routed}},
		{"unknown", ask{header: by("inobody", "3000")}, 502, []string{routed}},
		{"reserved", ask{path: "/init", header: by(id, "49983")}, 404, []string{routed}},
		{"the API", ask{}, 200, nil},
	}
	for _, tt := range tests {
		for _, version := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s, HTTP %d", tt.name, version), func(t *testing.T) {
				t.Parallel()
				c := start(t)
				dial, _ := hostile(t, hint+answer)
				c.Add(Sandbox{ID: id, AccessToken: token, Dial: dial})
				defer c.Remove(id)
				got := c.fetch(t, version, tt.ask)
				if diff := cmp.Diff(tt.vary, got.header.Values("Vary")); got.status != tt.status || diff != "" {
					t.Errorf("got status %d, want %d; Vary (-want +got):\n%s", got.status, tt.status, diff)
				}
				if len(tt.vary) == 0 || tt.status != 200 {
					return
				}
				got.header.Del("Vary")
				want := http.Header{
					"Date": {"Mon, 02 Jan 2006 15:04:06 GMT"}, "Content-Security-Policy": {"default-src *"}, "Set-Cookie": {"a=b"},
					"Service-Worker-Allowed": {"/"}, "Content-Type": {"text/javascript"}, "Content-Length": {"2"},
				}
				if diff := cmp.Diff(want, got.header); diff != "" || len(got.hints) != 1 {
					t.Errorf("got %v before it, want one hint; header (-want +got):\n%s", got.hints, diff)
				}
			})
		}
	}
}

// TestTargetWithoutPath checks that a request target that leads to a path, but has none itself, is
// refused for every destination, because it would evade every list of paths.
func TestTargetWithoutPath(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.Add(Sandbox{ID: id, Dial: serve(t, map[int]http.HandlerFunc{
		protocol.PortEnvd: func(_ http.ResponseWriter, r *http.Request) { t.Errorf("inside came %s", r.RequestURI) },
	})})
	for _, target := range []string{"http:http://127.0.0.1/init", "http:init", "x:http://127.0.0.1/init", "http:files?signature=v1_x"} {
		for _, header := range []string{
			"Host: 127.0.0.1\r\nE2b-Sandbox-Id: " + id + "\r\nE2b-Sandbox-Port: 49983\r\n",
			"Host: 49983-" + id + ".localhost\r\n",
			"Host: localhost\r\n",
		} {
			conn := c.dial(t)
			fmt.Fprintf(conn, "POST %s HTTP/1.1\r\n%sContent-Length: 0\r\nConnection: close\r\n\r\n", target, header)
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil || resp.StatusCode != http.StatusBadRequest {
				t.Errorf("%s with %q: got %v, %v, want status 400", target, header, resp, err)
			}
			_ = conn.Close()
		}
	}
	r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
	r.URL.Opaque = "//x/init" // no other form of it passes the HTTP servers
	if to := find(r, ""); to.kind != refused || to.status != http.StatusBadRequest {
		t.Errorf("got %+v, want status 400", to)
	}
}
