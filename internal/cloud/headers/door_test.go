package headers

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gorilla/websocket"
	"go.uber.org/goleak"
	"golang.org/x/net/http2"

	"github.com/e2bctl/e2bctl/internal/cloud/network"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

func TestMain(m *testing.M) {
	// A server that closes a connection of HTTP/1 waits half a second in it.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

const secret = "sk-never-inside"

// house contains a door, and one server that has the names of all hosts.
type house struct {
	*Door
	t      *testing.T
	server *httptest.Server
	roots  *x509.CertPool // authorities that clients inside trust

	mu      sync.Mutex
	secrets map[string]string
	reached []string // hosts to which the door connected
}

func rules(t *testing.T, headers map[string]map[string]string) *network.Rules {
	t.Helper()
	r, err := network.ParseRules(true, nil, nil)
	if err == nil {
		r, err = r.WithHeaders(headers)
	}
	must.Do(t, err)
	return r
}

// bearer contains the header rules of the tests.
var bearer = map[string]map[string]string{"api.test": {"Authorization": "Bearer ${e2b.secrets.key}"}, "*.wild.test": {"X-Api-Key": "${e2b.secrets.key}"}}

func newHouse(t *testing.T, handler http.HandlerFunc, change ...func(*Options)) *house {
	t.Helper()
	h := &house{t: t, roots: x509.NewCertPool(), secrets: map[string]string{"key": secret}}
	ca, err := NewAuthority("the internet")
	must.Do(t, err)
	h.server = httptest.NewUnstartedServer(handler)
	h.server.EnableHTTP2 = true
	h.server.Config.ErrorLog = silence()
	h.server.TLS = &tls.Config{NextProtos: []string{"h2", "http/1.1"}, GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		return ca.certificate(hello.ServerName)
	}}
	h.server.StartTLS()
	h.server.TLS.Certificates = nil
	authority, err := NewAuthority("i1")
	must.Do(t, err)
	if !h.roots.AppendCertsFromPEM(authority.PEM()) {
		t.Fatal("the authority has no certificate for clients")
	}
	o := Options{Authority: authority, Secret: h.secret, Roots: x509.NewCertPool()}
	o.Roots.AppendCertsFromPEM(ca.PEM())
	for _, c := range change {
		c(&o)
	}
	h.Door = New(o)
	h.Set(rules(t, bearer), h.reach)
	t.Cleanup(func() {
		h.Close()
		h.server.Close()
		if n := len(h.busy); n != 0 {
			t.Errorf("got %d requests counted after the end, want none", n)
		}
		if h.enter() {
			t.Error("a request is let in after the end")
		}
	})
	return h
}

func (h *house) secret(name string) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if value, ok := h.secrets[name]; ok {
		return value, nil
	}
	return "", errors.New("no such secret")
}

func (h *house) reach(ctx context.Context, host string, port uint16) (net.Conn, error) {
	h.mu.Lock()
	h.reached = append(h.reached, fmt.Sprint(host, ":", port))
	h.mu.Unlock()
	return new(net.Dialer).DialContext(ctx, "tcp", h.server.Listener.Addr().String())
}

// dial connects to the door from inside.
func (h *house) dial(context.Context, string, string) (net.Conn, error) {
	near, far := net.Pipe()
	h.Serve(far)
	return near, nil
}

// client returns the HTTP client of a program inside.
func (h *house) client(protocol string) *http.Client {
	transport := &http.Transport{DialContext: h.dial, TLSClientConfig: &tls.Config{RootCAs: h.roots}, Protocols: new(http.Protocols)}
	transport.Protocols.SetHTTP1(protocol == "h1")
	transport.Protocols.SetHTTP2(protocol == "h2")
	h.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// raw sends bytes over TLS with a server name, and returns the complete answer.
func (h *house) raw(name, request string) string {
	h.t.Helper()
	conn, _ := h.dial(h.t.Context(), "", "")
	defer conn.Close()
	secured := tls.Client(conn, &tls.Config{RootCAs: h.roots, ServerName: name})
	if err := secured.HandshakeContext(h.t.Context()); err != nil {
		return err.Error()
	}
	sent := make(chan struct{})
	go func() { defer close(sent); _, _ = io.WriteString(secured, request) }()
	answer, _ := io.ReadAll(secured)
	conn.Close()
	<-sent
	return string(answer)
}

func get(t *testing.T, client *http.Client, url string, header ...string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	must.Do(t, err)
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	res, err := client.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Error(err)
	}
	return res.StatusCode, string(text)
}

// TestHeaders checks that a host receives the headers of its rule instead of the client's headers,
// and that the client receives the host's answer.
func TestHeaders(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{"h1", "h2"} {
		var got http.Header
		h := newHouse(t, func(w http.ResponseWriter, r *http.Request) {
			got = r.Header
			w.Header().Set("X-Protocol", r.Proto)
			fmt.Fprint(w, r.Host, r.URL)
		})
		client := h.client(protocol)
		status, text := get(t, client, "https://api.test/a?b=c;d", "Authorization", "Bearer dummy", "Authorization", "twice", "X-Forwarded-For", "mine")
		if status != 200 || text != "api.test/a?b=c;d" {
			t.Errorf("%s: got %d %s, want 200 api.test/a?b=c;d", protocol, status, text)
		}
		want := []string{"Bearer " + secret}
		if diff := cmp.Diff(want, got["Authorization"]); diff != "" {
			t.Errorf("%s: Authorization (-want +got):\n%s", protocol, diff)
		}
		if got.Get("X-Forwarded-For") != "mine" || got.Get("X-Api-Key") != "" {
			t.Errorf("%s: got %v, want the client's own headers and nothing of other rules", protocol, got)
		}
		if status, _ := get(t, client, "https://a.b.wild.test/"); status != 200 || got.Get("X-Api-Key") != secret || got.Get("Authorization") != "" {
			t.Errorf("%s: below a pattern: got %d %v, want 200 and X-Api-Key alone", protocol, status, got)
		}
		if diff := cmp.Diff([]string{"api.test:443", "a.b.wild.test:443"}, h.reached); diff != "" {
			t.Errorf("%s: reached (-want +got):\n%s", protocol, diff)
		}
	}
}

// TestMisdirected checks that a request for a host that is not the host of the connection is
// refused, and never forwarded.
func TestMisdirected(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	h := newHouse(t, func(http.ResponseWriter, *http.Request) { requests.Add(1) })
	const end = " HTTP/1.1\r\nConnection: close\r\n"
	for request, want := range map[string]string{
		"GET /" + end + "Host: evil.test\r\n\r\n":                                                           "421",
		"GET /" + end + "Host: a.wild.test\r\n\r\n":                                                         "421",
		"GET /" + end + "Host: api.test:8443\r\n\r\n":                                                       "421",
		"GET /" + end + "Host: api.test@evil.test\r\n\r\n":                                                  "4",
		"GET /" + end + "Host: [::1]\r\n\r\n":                                                               "421",
		"GET https://evil.test/" + end + "Host: api.test\r\n\r\n":                                           "421",
		"GET https://api.test/" + end + "Host: api.test\r\n\r\n":                                            "421",
		"CONNECT evil.test:443" + end + "Host: evil.test:443\r\n\r\n":                                       "405",
		"CONNECT api.test:443" + end + "Host: api.test:443\r\n\r\n":                                         "405",
		"GET /" + end + "\r\n":                                                                              "400",
		"GET / HTTP/1.0\r\n\r\n":                                                                            "421",
		"GET /" + end + "Host: api.test\r\nHost: evil.test\r\n\r\n":                                         "400",
		"GET /" + end + "Host: api.test\r\nAuthorization : a\r\n\r\n":                                       "400",
		"GET /" + end + "Host: api.test\r\nX: a\rb\r\n\r\n":                                                 "400",
		"POST /" + end + "Host: api.test\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab":               "400",
		"POST /" + end + "Host: api.test\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n":          "501",
		"GET /" + end + "Host: api.test\r\nX: " + strings.Repeat("a", maxHead+8<<10) + "\r\n\r\n":           "431",
		"GET /" + end + "Host: api.test\r\n" + strings.Repeat("X: "+strings.Repeat("a", 1<<10)+"\r\n", 300): "431",
	} {
		if got := h.raw("api.test", request); !strings.HasPrefix(got, "HTTP/1.1 "+want) && !strings.HasPrefix(got, "HTTP/1.0 "+want) || strings.Contains(got, secret) {
			t.Errorf("%.80q: got %.100q, want status %s", request, got, want)
		}
	}
	if got := h.raw("evil.test", ""); !strings.Contains(got, "tls") {
		t.Errorf("a name without a rule: got %q, want no connection", got)
	}
	if n := requests.Load(); n > 0 || len(h.reached) > 0 {
		t.Errorf("%d requests were sent on, to %v, want none", n, h.reached)
	}

	// One connection of HTTP/2 is not for another host of the same certificate either.
	client := h.client("h2")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://api.test/", nil)
	must.Do(t, err)
	r.Host = "a.wild.test"
	res, err := client.Do(r)
	must.Do(t, err)
	defer res.Body.Close()
	if res.StatusCode != http.StatusMisdirectedRequest || requests.Load() > 0 {
		t.Errorf("another authority: got %d, want 421", res.StatusCode)
	}
}

// TestNoCertificateWithoutRule checks that a name without a rule has no certificate, even for a
// client that does not verify it: the door must not receive the client's requests to this name.
func TestNoCertificateWithoutRule(t *testing.T) {
	t.Parallel()
	h := newHouse(t, func(http.ResponseWriter, *http.Request) { t.Error("a request was sent on") })
	for name, fits := range map[string]bool{
		"api.test": true, "API.test": true, "a.wild.test": true,
		"": false, "wild.test": false, "b.api.test": false, "evil.test": false, "api.test.evil": false,
	} {
		conn, _ := h.dial(t.Context(), "", "")
		secured := tls.Client(conn, &tls.Config{InsecureSkipVerify: true, ServerName: name})
		if err := secured.HandshakeContext(t.Context()); (err == nil) != fits {
			t.Errorf("%q: got error %v and %d certificates, want it to be served: %v", name, err, len(secured.ConnectionState().PeerCertificates), fits)
		}
		conn.Close()
	}
}

// TestMethods checks that a method is forwarded only if no host answers it with the request itself.
func TestMethods(t *testing.T) {
	t.Parallel()
	h := newHouse(t, func(w http.ResponseWriter, r *http.Request) { _ = r.Header.Write(w) }) // the answer of TRACE
	for _, protocol := range []string{"h1", "h2"} {
		client := h.client(protocol)
		for method, want := range map[string]int{
			"GET": 200, "HEAD": 200, "POST": 200, "PUT": 200, "PATCH": 200, "DELETE": 200, "OPTIONS": 200,
			"TRACE": 405, "trace": 405, "Trace": 405, "TRACK": 405, "PROPFIND": 405, "get": 405, "X": 405, strings.Repeat("M", 1000): 405,
		} {
			r, err := http.NewRequestWithContext(t.Context(), method, "https://api.test/", strings.NewReader("a body"))
			must.Do(t, err)
			res, err := client.Do(r)
			if err != nil {
				t.Errorf("%s, %.20s: %v", protocol, method, err)
				continue
			}
			text, err := io.ReadAll(res.Body)
			res.Body.Close()
			if err != nil || res.StatusCode != want {
				t.Errorf("%s, %.20s: got %s %s, %v, want %d", protocol, method, res.Status, text, err, want)
			}
			if want != 405 {
				continue
			}
			if allow := res.Header.Get("Allow"); allow != "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS" || len(text) > 512 ||
				strings.Contains(string(text), secret) || !strings.Contains(string(text), fmt.Sprintf("the method %.32q", method)) {
				t.Errorf("%s, %.20s: got %q, Allow: %s, want a short text that names the method, and the others", protocol, method, text, allow)
			}
		}
	}
}

// TestNoSmuggling checks that bytes hidden in a request arrive as its body, and never as another
// request.
func TestNoSmuggling(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var seen []string
	h := newHouse(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, fmt.Sprintf("%s %s %q", r.Method, r.URL.Path, body))
		if r.Header.Get("Authorization") != "Bearer "+secret {
			t.Errorf("%s: got no secret", r.URL.Path)
		}
	})
	hidden := "GET /hidden HTTP/1.1\r\nHost: api.test\r\n\r\n"
	for _, request := range []string{
		"POST /a HTTP/1.1\r\nHost: api.test\r\nConnection: close\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden,
		"POST /b HTTP/1.1\r\nHost: api.test\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n" + fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(hidden), hidden),
		"GET /c HTTP/1.1\r\nHost: api.test\r\nConnection: close\r\nContent-Length: " + fmt.Sprint(len(hidden)) + "\r\n\r\n" + hidden,
	} {
		h.raw("api.test", request)
	}
	h.raw("api.test", "GET /d HTTP/1.1\r\nHost: api.test\r\nConnection: close, authorization\r\n\r\n") // asks for the header to be dropped
	want := []string{`POST /a ""`, fmt.Sprintf("POST /b %q", hidden), fmt.Sprintf("GET /c %q", hidden), `GET /d ""`}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// TestNotSent checks that nothing is sent to a host whose certificate cannot be verified, or that
// may not be reached. Nothing is sent without the headers of the rule.
func TestNotSent(t *testing.T) {
	t.Parallel()
	answer := func(http.ResponseWriter, *http.Request) { t.Error("a request was sent") }
	strange := newHouse(t, answer, func(o *Options) { o.Roots = x509.NewCertPool() })
	denied := newHouse(t, answer)
	denied.Set(rules(t, bearer), func(_ context.Context, host string, _ uint16) (net.Conn, error) {
		return nil, &network.DeniedError{Host: host, Rule: "a rule"}
	})
	down := newHouse(t, answer)
	down.Set(rules(t, bearer), func(context.Context, string, uint16) (net.Conn, error) { return nil, errors.New("connection refused") })
	deleted := newHouse(t, answer)
	delete(deleted.secrets, "key")
	broken := newHouse(t, answer)
	broken.secrets["key"] = "two\r\nlines"
	for name, tt := range map[string]struct {
		house  *house
		status int
		want   string
	}{
		"unverified": {strange, 502, "certificate"},
		"denied":     {denied, 403, "a rule"},
		"down":       {down, 502, "connection refused"},
		"deleted":    {deleted, 502, "the secret key of the header Authorization: no such secret"},
		"broken":     {broken, 502, "control characters"},
	} {
		for _, protocol := range []string{"h1", "h2"} {
			status, text := get(t, tt.house.client(protocol), "https://api.test/")
			if status != tt.status || !strings.Contains(text, tt.want) || strings.Contains(text, secret) {
				t.Errorf("%s, %s: got %d %s, want %d with %q", name, protocol, status, text, tt.status, tt.want)
			}
		}
	}
}

// TestChangedSecret checks that the next request of an open connection has the new value of an
// updated secret, and that it is refused if the secret was deleted.
func TestChangedSecret(t *testing.T) {
	t.Parallel()
	h := newHouse(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Header.Get("Authorization")) })
	client := h.client("h1")
	for _, value := range []string{"one", "two"} {
		h.mu.Lock()
		h.secrets["key"] = value
		h.mu.Unlock()
		if _, text := get(t, client, "https://api.test/"); text != "Bearer "+value {
			t.Errorf("got %s, want Bearer %s", text, value)
		}
	}
	h.mu.Lock()
	delete(h.secrets, "key")
	h.mu.Unlock()
	if status, text := get(t, client, "https://api.test/"); status != 502 || !strings.Contains(text, "no such secret") {
		t.Errorf("deleted: got %d %s, want 502 that says there is no such secret", status, text)
	}
	h.mu.Lock()
	h.secrets["key"] = "two"
	h.mu.Unlock()
	if len(h.reached) != 1 {
		t.Errorf("got %d connections to the host, want 1", len(h.reached))
	}
	// After new rules, no earlier connection is used.
	h.Set(rules(t, bearer), h.reach)
	if get(t, client, "https://api.test/"); len(h.reached) != 2 {
		t.Errorf("got %d connections to the host after new rules, want 2", len(h.reached))
	}
	h.Set(rules(t, nil), h.reach)
	if status, text := get(t, h.client("h1"), "https://api.test/"); status != 0 {
		t.Errorf("without rules: got %d %s, want no connection", status, text)
	}
}

// TestTrailersOfRules checks that a client's trailer is left out if a rule sets this header, and
// that other trailers are forwarded.
func TestTrailersOfRules(t *testing.T) {
	t.Parallel()
	h := newHouse(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		fmt.Fprintf(w, "%q %q %q", r.Header["X-Key"], r.Trailer["X-Key"], r.Trailer["X-Sent"])
	})
	h.Set(rules(t, map[string]map[string]string{"api.test": {"X-Key": "from the rule"}}), h.reach)
	for _, protocol := range []string{"h1", "h2"} {
		for _, name := range []string{"X-Key", "x-key"} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://api.test/", io.MultiReader(strings.NewReader("body")))
			must.Do(t, err)
			r.Trailer = http.Header{name: {"from inside"}, "X-Sent": {"a trailer"}}
			res, err := h.client(protocol).Do(r)
			must.Do(t, err)
			text, err := io.ReadAll(res.Body)
			if want := `["from the rule"] [] ["a trailer"]`; string(text) != want || err != nil {
				t.Errorf("%s, %s: got %s and error %v, want %s", protocol, name, text, err, want)
			}
			res.Body.Close()
		}
	}
}

func TestTrailers(t *testing.T) {
	t.Parallel()
	h := newHouse(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "X-After")
		w.Header().Set("Content-Length", "4")
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			t.Error(err)
		}
		_, _ = io.WriteString(w, "text")
		w.Header().Set("X-After", "got "+r.Trailer.Get("X-Sent"))
	})
	for _, protocol := range []string{"h1", "h2"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://api.test/", io.MultiReader(strings.NewReader("body")))
		must.Do(t, err)
		r.Trailer = http.Header{"X-Sent": {"a trailer"}}
		res, err := h.client(protocol).Do(r)
		must.Do(t, err)
		text, err := io.ReadAll(res.Body)
		if got := res.Trailer.Get("X-After"); got != "got a trailer" || string(text) != "text" || err != nil {
			t.Errorf("%s: got %q after %q, %v, want the trailers of both", protocol, got, text, err)
		}
		res.Body.Close()
	}
}

func TestWebsocket(t *testing.T) {
	t.Parallel()
	var upgrader websocket.Upgrader
	h := newHouse(t, func(w http.ResponseWriter, r *http.Request) {
		conn, err := upgrader.Upgrade(w, r, http.Header{"X-Seen": {r.Header.Get("Authorization")}})
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		for {
			kind, text, err := conn.ReadMessage()
			if err != nil {
				return
			}
			if err := conn.WriteMessage(kind, text); err != nil {
				t.Error(err)
			}
		}
	})
	dialer := websocket.Dialer{NetDialContext: h.dial, TLSClientConfig: &tls.Config{RootCAs: h.roots}}
	conn, res, err := dialer.DialContext(t.Context(), "wss://api.test/", http.Header{"Authorization": {"dummy"}})
	must.Do(t, err)
	defer conn.Close()
	if got := res.Header.Get("X-Seen"); got != "Bearer "+secret {
		t.Errorf("the host saw %q, want the secret", got)
	}
	for _, text := range []string{"one", strings.Repeat("two", 100_000)} {
		must.Do(t, conn.WriteMessage(websocket.TextMessage, []byte(text)))
		if _, got, err := conn.ReadMessage(); err != nil || string(got) != text {
			t.Errorf("got %.20q, %v, want %.20q", got, err, text)
		}
	}
}

// TestStreams checks that the pieces of an answer arrive one by one, and that its end arrives.
func TestStreams(t *testing.T) {
	t.Parallel()
	next := make(chan struct{})
	begun, gone := make(chan struct{}), make(chan struct{})
	h := newHouse(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/endless" {
			close(begun)
			<-r.Context().Done()
			close(gone)
			return
		}
		for _, piece := range []string{"one\n", "two\n"} {
			_, _ = io.WriteString(w, piece)
			_ = http.NewResponseController(w).Flush()
			<-next
		}
	})
	client := h.client("h1")
	res, err := client.Get("https://api.test/")
	must.Do(t, err)
	defer res.Body.Close()
	lines := bufio.NewReader(res.Body)
	for _, want := range []string{"one\n", "two\n"} {
		if got, err := lines.ReadString('\n'); got != want || err != nil {
			t.Fatalf("got %q, %v, want %q", got, err, want)
		}
		next <- struct{}{}
	}
	ctx, cancel := context.WithCancel(t.Context())
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "https://api.test/endless", nil)
		if res, err := client.Do(r); err == nil {
			res.Body.Close()
			t.Error("there was an answer")
		}
	}()
	<-begun
	cancel()
	<-asked
	<-gone // the host sees that the client has gone
}

// TestSilentConnectionsEnd checks that a connection that stops sending ends, and so does a
// connection that sends its bytes one by one.
func TestSilentConnectionsEnd(t *testing.T) {
	t.Parallel()
	authority, err := NewAuthority("i1")
	must.Do(t, err)
	for _, greeting := range []string{"", "\x16\x03\x01\x02\x00\x01"} {
		synctest.Test(t, func(t *testing.T) {
			d := New(Options{Authority: authority})
			d.Set(rules(t, bearer), nil)
			near, far := net.Pipe()
			d.Serve(far)
			var dripping sync.WaitGroup
			dripping.Go(func() {
				for i := range greeting {
					_, _ = io.WriteString(near, greeting[i:i+1])
					<-time.After(10 * time.Second)
				}
			})
			start := time.Now()
			_, _ = io.Copy(io.Discard, near)
			if took := time.Since(start); took > 30*time.Second {
				t.Errorf("%q: the connection ended after %v, want 30s at most", greeting, took)
			}
			_ = near.Close()
			dripping.Wait()
			d.Close()
		})
	}
}

// TestCloseEndsConnections checks that closing a door ends its connections at once, and also
// connections that arrive later.
func TestCloseEndsConnections(t *testing.T) {
	t.Parallel()
	authority, err := NewAuthority("i1")
	must.Do(t, err)
	synctest.Test(t, func(t *testing.T) {
		d := New(Options{Authority: authority})
		d.Set(rules(t, bearer), nil)
		start := time.Now()
		before, inside := net.Pipe()
		d.Serve(inside)
		synctest.Wait()
		d.Close()
		after, late := net.Pipe()
		d.Serve(late)
		for name, conn := range map[string]net.Conn{"before": before, "after": after} {
			if _, err := conn.Read(make([]byte, 1)); err == nil || time.Since(start) != 0 {
				t.Errorf("a connection of %s the end: got %v after %v, want it to end at once", name, err, time.Since(start))
			}
			_ = conn.Close()
		}
	})
}

// TestNoConnectionsAreLeft checks that no connection to a host is left open after the rules are
// replaced or the door is closed.
func TestNoConnectionsAreLeft(t *testing.T) {
	t.Parallel()
	replace := func(h *house) { h.Set(rules(t, bearer), h.reach) }
	nothing := func(*house) {}
	for name, tt := range map[string]struct{ during, after func(*house) }{
		"replaced": {nothing, replace}, "replaced under way": {replace, nothing}, "closed": {nothing, func(h *house) { h.Close() }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var h *house
			h = newHouse(t, func(http.ResponseWriter, *http.Request) { tt.during(h) })
			ended := make(chan struct{})
			h.Set(rules(t, bearer), func(ctx context.Context, host string, port uint16) (net.Conn, error) {
				conn, err := h.reach(ctx, host, port)
				return &noticed{conn, sync.OnceFunc(func() { close(ended) })}, err
			})
			if status, text := get(t, h.client("h1"), "https://api.test/"); status != http.StatusOK {
				t.Fatalf("got %d %s", status, text)
			}
			tt.after(h)
			if !soon(t, func() { <-ended }) {
				t.Error("the connection to the host is left open")
			}
		})
	}
}

// inside returns a door that reaches no host, and the TLS connection of a program to it.
func inside(t *testing.T, reach Reach) (d *Door, client *tls.Conn) {
	t.Helper()
	authority, err := NewAuthority("i1")
	must.Do(t, err)
	d = New(Options{Authority: authority, Secret: func(string) (string, error) { return secret, nil }})
	d.Set(rules(t, bearer), reach)
	near, far := net.Pipe()
	d.Serve(far)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority.PEM())
	return d, tls.Client(near, &tls.Config{RootCAs: roots, ServerName: "api.test"})
}

// TestIdleConnectionsEnd checks that a connection may wait two minutes after an answer for the next
// request, and half a minute for the rest of the request's head.
func TestIdleConnectionsEnd(t *testing.T) {
	t.Parallel()
	for next, want := range map[string]time.Duration{"": 2 * time.Minute, "GET / HTTP/1.1\r\nHost: api": 30 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			d, client := inside(t, func(context.Context, string, uint16) (net.Conn, error) { return nil, errors.New("refused") })
			go func() { _, _ = io.WriteString(client, "GET / HTTP/1.1\r\nHost: api.test\r\n\r\n"+next) }()
			in := bufio.NewReader(client)
			res, err := http.ReadResponse(in, nil)
			must.Do(t, err)
			if text, err := io.ReadAll(res.Body); res.StatusCode != http.StatusBadGateway || err != nil {
				t.Errorf("got %s %s and error %v, want 502", res.Status, text, err)
			}
			begun := time.Now()
			_, _ = io.Copy(io.Discard, in)
			if took := time.Since(begun); took < want || took > want+time.Second {
				t.Errorf("%q: the connection ended after %v, want %v", next, took, want)
			}
			_ = client.NetConn().Close()
			d.Close()
		})
	}
}

// TestCloseWaits checks that Close returns when no goroutine of the door is running, and so not
// before the last request has ended. The test runs before the parallel ones, because these wait in real time
// for a door that does not close.
func TestCloseWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reached, release := make(chan struct{}), make(chan struct{})
		d, client := inside(t, func(context.Context, string, uint16) (net.Conn, error) {
			close(reached)
			<-release
			return nil, errors.New("refused")
		})
		served := make(chan struct{})
		d.running.Go(func() { <-served }) // another part that runs
		go func() { _, _ = io.WriteString(client, "GET / HTTP/1.1\r\nHost: api.test\r\n\r\n") }()
		go func() { _, _ = io.Copy(io.Discard, client) }()
		<-reached
		closed := make(chan struct{})
		go func() { defer close(closed); d.Close() }()
		synctest.Wait()
		select {
		case <-closed:
			t.Error("it is closed while something of it runs")
		default:
		}
		close(release)
		close(served)
		<-closed
		_ = client.NetConn().Close()
	})
}

// TestWaitForOthersEnds checks that a request no longer waits for others to end when its client has
// gone away, and that it is not sent.
func TestWaitForOthersEnds(t *testing.T) {
	t.Parallel()
	h := newHouse(t, func(http.ResponseWriter, *http.Request) { t.Error("a request was sent") })
	for range maxRequests {
		select {
		case h.busy <- struct{}{}:
		default:
			t.Fatalf("there is room for %d requests, want %d", len(h.busy), maxRequests)
		}
	}
	ctx, leave := context.WithCancel(t.Context())
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "https://api.test/", nil)
	r.TLS.ServerName = "api.test"
	w := httptest.NewRecorder()
	ended := make(chan struct{})
	go func() { defer close(ended); h.serve(w, r) }()
	leave()
	patience.Receive(t, "the end of the request", ended)
	if w.Body.Len() > 0 {
		t.Errorf("got %d %s, want no answer", w.Code, w.Body)
	}
	for range maxRequests {
		<-h.busy
	}
}

// TestNothingIsAdded checks that a host receives the client's request with the headers of its rule,
// and nothing else.
func TestNothingIsAdded(t *testing.T) {
	t.Parallel()
	var got http.Header
	h := newHouse(t, func(_ http.ResponseWriter, r *http.Request) { got = r.Header })
	own := http.Header{"Forwarded": {"for=a"}, "X-Forwarded-For": {"b"}, "X-Forwarded-Host": {"c"}, "X-Forwarded-Proto": {"d"}, "Accept-Encoding": {"br"}, "User-Agent": {"mine"}, "X-Own": {"e", "f"}}
	for _, sent := range []http.Header{{}, own} {
		var request strings.Builder
		request.WriteString("GET / HTTP/1.1\r\nHost: api.test\r\nConnection: close\r\n")
		must.Do(t, sent.Write(&request))
		if answer := h.raw("api.test", request.String()+"\r\n"); !strings.HasPrefix(answer, "HTTP/1.1 200") {
			t.Fatalf("got %q", answer)
		}
		want := sent.Clone()
		want["Authorization"] = []string{"Bearer " + secret}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the host received (-want +got):\n%s", diff)
		}
	}
}

// TestUnfitEndsConnection checks that a request that must not be forwarded is answered, and that
// its connection then ends.
func TestUnfitEndsConnection(t *testing.T) {
	t.Parallel()
	h := newHouse(t, func(http.ResponseWriter, *http.Request) { t.Error("a request was sent") })
	for _, request := range []string{"TRACE / HTTP/1.1\r\nHost: api.test\r\n\r\n", "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n"} {
		if got := h.raw("api.test", request+request); strings.Count(got, "HTTP/1.1 4") != 1 || !strings.Contains(got, "\r\nConnection: close\r\n") {
			t.Errorf("%q, twice: got %q, want one answer, and the end", request, got)
		}
	}
}

// TestLengthOfHead checks that the answer to HEAD has the length of the answer to GET, with
// trailers or without.
func TestLengthOfHead(t *testing.T) {
	t.Parallel()
	h := newHouse(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "4")
		if r.URL.Path == "/trailers" {
			w.Header().Set("Trailer", "X-After")
		}
	})
	for _, protocol := range []string{"h1", "h2"} {
		for _, path := range []string{"/", "/trailers"} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodHead, "https://api.test"+path, nil)
			must.Do(t, err)
			res, err := h.client(protocol).Do(r)
			must.Do(t, err)
			res.Body.Close()
			if res.ContentLength != 4 {
				t.Errorf("%s, %s: got the length %d, want 4", protocol, path, res.ContentLength)
			}
		}
	}
}

// TestPut checks that Put changes a request as a rule requires, or answers it.
func TestPut(t *testing.T) {
	t.Parallel()
	known := func(name string) (string, error) {
		if name != "key" {
			return "", errors.New("no such secret")
		}
		return secret, nil
	}
	rule := func(headers map[string]string) []network.Header {
		return rules(t, map[string]map[string]string{"api.test": headers}).Headers("api.test")
	}
	own := http.Header{"Authorization": {"mine", "twice"}, "X-Own": {"a"}}
	for name, tt := range map[string]struct {
		method string
		rule   []network.Header
		status int // status of the answer; 0: Put does not answer
		text   string
		want   http.Header
	}{
		"no rule":           {"GET", nil, 0, "", own},
		"no rule, a method": {"TRACE", nil, 0, "", own},
		"a rule":            {"POST", rule(bearer["api.test"]), 0, "", http.Header{"Authorization": {"Bearer " + secret}, "X-Own": {"a"}}},
		"a method":          {"TRACE", rule(bearer["api.test"]), 405, "TRACE", own},
		"no such secret":    {"GET", rule(map[string]string{"Authorization": "${e2b.secrets.other}"}), 502, "no such secret", own},
	} {
		r := httptest.NewRequestWithContext(t.Context(), tt.method, "http://api.test/", nil)
		r.Header, r.Trailer = own.Clone(), own.Clone()
		w := httptest.NewRecorder()
		sent := Put(w, r, "api.test", tt.rule, known)
		status := w.Code
		if sent && w.Body.Len() == 0 {
			status = 0
		}
		if sent != (status == 0) || status != tt.status || !strings.Contains(w.Body.String(), tt.text) {
			t.Errorf("%s: got it sent %v, or %d %s, want %d %s", name, sent, w.Code, w.Body, tt.status, tt.text)
		}
		if diff := cmp.Diff(tt.want, r.Header); diff != "" {
			t.Errorf("%s: headers (-want +got):\n%s", name, diff)
		}
		if _, kept := r.Trailer["Authorization"]; kept != (tt.status != 0 || tt.rule == nil) || len(r.Trailer["X-Own"]) != 1 {
			t.Errorf("%s: got the trailers %v, want none of the rule's names", name, r.Trailer)
		}
	}
}

// TestStreamsAreBounded checks that an HTTP/2 connection has a bounded number of requests at once.
func TestStreamsAreBounded(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	conn, _ := h.dial(t.Context(), "", "")
	defer conn.Close()
	secured := tls.Client(conn, &tls.Config{RootCAs: h.roots, ServerName: "api.test", NextProtos: []string{"h2"}})
	if _, err := io.WriteString(secured, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	framer := http2.NewFramer(secured, secured)
	go func() { _ = framer.WriteSettings() }()
	frame, err := framer.ReadFrame()
	must.Do(t, err)
	settings, ok := frame.(*http2.SettingsFrame)
	if !ok {
		t.Fatalf("got %v, want the settings", frame)
	}
	if streams, ok := settings.Value(http2.SettingMaxConcurrentStreams); !ok || streams != maxStreams {
		t.Errorf("got %d requests at once (%v), want %d", streams, ok, maxStreams)
	}
	if set := h.Door.server.HTTP2.MaxConcurrentStreams; set != maxStreams { // not only by default
		t.Errorf("the server is set to %d requests at once, want %d", set, maxStreams)
	}
}

// TestLargeAnswerHead checks that the head of an answer may have a megabyte.
func TestLargeAnswerHead(t *testing.T) {
	t.Parallel()
	h := newHouse(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Large", strings.Repeat("a", int(r.ContentLength)))
	})
	for size, want := range map[int]int{maxAnswer - 4<<10: http.StatusOK, maxAnswer + 16<<10: http.StatusBadGateway} {
		answer := h.raw("api.test", fmt.Sprintf("POST / HTTP/1.1\r\nHost: api.test\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", size, strings.Repeat("b", size)))
		if !strings.HasPrefix(answer, fmt.Sprintf("HTTP/1.1 %d", want)) {
			t.Errorf("a header of %d bytes: got %.100q, want status %d", size, answer, want)
		}
	}
}

// noticed is a connection that reports its end.
type noticed struct {
	net.Conn
	ends func()
}

func (c *noticed) Close() error {
	c.ends()
	return c.Conn.Close()
}
