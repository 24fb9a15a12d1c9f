package edge

import (
	"context"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/protocol"
)

// request makes a router answer one request, and checks that the request leaves nothing behind.
func request(t *testing.T, rt *Router, method, path string, header map[string]string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), method, "http://localhost"+path, nil)
	for name, value := range header {
		r.Header.Set(name, value)
	}
	rt.ServeHTTP(w, r)
	settled(t, rt)
	return w
}

// TestPortsAndTokens checks which ports require the traffic token: all except envd's, even those
// without a server.
func TestPortsAndTokens(t *testing.T) {
	t.Parallel()
	say := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "inside") }
	dial := serve(t, map[int]http.HandlerFunc{protocol.PortEnvd: say, protocol.PortInterpreter: say, protocol.PortJupyter: say, 3000: say, 65535: say})
	inner := dial
	dial = func(ctx context.Context, port int) (net.Conn, error) {
		if port < 1 || port > 65535 {
			t.Errorf("port %d was dialled, which no server can have", port)
		}
		return inner(ctx, port)
	}
	rt := New(Options{})
	rt.pauses = nil
	rt.Add(Sandbox{ID: id, TrafficToken: traffic, Dial: dial})
	rt.Add(Sandbox{ID: otherID, Dial: dial})
	t.Cleanup(func() { rt.Remove(id); rt.Remove(otherID) })
	for port, open := range map[string]int{"49983": 200, "49999": 200, "8888": 200, "3000": 200, "65535": 200, "4000": 502, "0": 502, "65536": 502} {
		for given, refused := range map[string]int{"": 403, "wrong": 403, traffic[1:]: 403, traffic + "0": 403, traffic: open} {
			want := open
			if port != "49983" {
				want = refused
			}
			for sandbox, want := range map[string]int{id: want, otherID: open} {
				header := by(sandbox, port)
				if given != "" {
					header[protocol.HeaderTraffic] = given
				}
				w := request(t, rt, "GET", "/", header)
				if body := w.Body.String(); w.Code != want || (body == "inside") != (want == 200) {
					t.Errorf("port %s of %s with token %q: got %d %s, want %d", port, sandbox, given, w.Code, body, want)
				}
			}
		}
	}
}

// TestStartsLeave checks that a request that starts a process has left its place when it is answered, and
// also when it fails.
func TestStartsLeave(t *testing.T) {
	t.Parallel()
	rt := New(Options{})
	rt.pauses = nil
	say := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "started") }
	rt.Add(Sandbox{ID: id, Dial: serve(t, map[int]http.HandlerFunc{protocol.PortEnvd: say})})
	rt.Add(Sandbox{ID: otherID, Dial: serve(t, nil)})
	t.Cleanup(func() { rt.Remove(id); rt.Remove(otherID) })
	for sandbox, want := range map[string]int{id: 200, otherID: 502} {
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost"+startPath, nil)
		for name, value := range by(sandbox, "49983") {
			r.Header.Set(name, value)
		}
		if rt.ServeHTTP(w, r); w.Code != want {
			t.Errorf("got %d, want %d", w.Code, want)
		}
		if places, all := rt.proxy.Transport.(roundTripper).starts.places, int64(startsPerProcessor*runtime.GOMAXPROCS(0)); !places.TryAcquire(all) {
			t.Errorf("after the answer %d, not all places are free", want)
		} else {
			places.Release(all)
		}
	}
	settled(t, rt)
}

// TestPublicPorts checks which ports of a sandbox with public ports require a token, and which
// tokens and requests open them.
func TestPublicPorts(t *testing.T) {
	t.Parallel()
	say := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "inside") }
	rt := New(Options{})
	rt.Add(Sandbox{ID: id, TrafficToken: traffic, AccessToken: token, PublicPorts: true, Dial: serve(t, map[int]http.HandlerFunc{
		protocol.PortEnvd: say, protocol.PortInterpreter: say, protocol.PortJupyter: say, 3000: say,
	})})
	t.Cleanup(func() { rt.Remove(id) })
	preflight := map[string]string{"Origin": "https://example.com", "Access-Control-Request-Method": "POST"}
	for what, tt := range map[string]struct {
		method, query        string
		header               map[string]string
		interpreter, jupyter int
	}{
		"nothing":             {"GET", "", nil, 403, 403},
		"a wrong token":       {"GET", "", map[string]string{protocol.HeaderAccess: token[1:]}, 403, 403},
		"an empty token":      {"GET", "?token=", map[string]string{protocol.HeaderAccess: "", protocol.HeaderTraffic: "", "Authorization": "token "}, 403, 403},
		"the traffic token":   {"GET", "", map[string]string{protocol.HeaderTraffic: traffic}, 200, 200},
		"the access token":    {"GET", "", map[string]string{protocol.HeaderAccess: token}, 200, 200},
		"it as the traffic's": {"GET", "", map[string]string{protocol.HeaderTraffic: token}, 403, 403},
		"it in the query":     {"GET", "?token=" + token, nil, 403, 200},
		"it as a token":       {"GET", "", map[string]string{"Authorization": "Token " + token}, 403, 200},
		"it as a bearer":      {"GET", "", map[string]string{"Authorization": "bearer " + token}, 403, 200},
		"it as a password":    {"GET", "", map[string]string{"Authorization": "Basic " + token}, 403, 403},
		"a preflight":         {"OPTIONS", "", preflight, 200, 200},
		"no preflight":        {"OPTIONS", "", nil, 403, 403},
	} {
		for port, want := range map[string]int{"49983": 200, "49999": tt.interpreter, "8888": tt.jupyter, "3000": 200} {
			header := by(id, port)
			maps.Copy(header, tt.header)
			if w := request(t, rt, tt.method, "/"+tt.query, header); w.Code != want {
				t.Errorf("port %s with %s: got %d %s, want %d", port, what, w.Code, w.Body, want)
			}
		}
	}
}

// TestReservedRoutes checks that no spelling of envd's routes for the control plane is forwarded to
// envd, not even with envd's token. On other ports, these paths are forwarded.
func TestReservedRoutes(t *testing.T) {
	t.Parallel()
	say := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "inside") }
	rt := New(Options{})
	rt.Add(Sandbox{ID: id, AccessToken: token, Dial: serve(t, map[int]http.HandlerFunc{protocol.PortEnvd: say, 3000: say})})
	t.Cleanup(func() { rt.Remove(id) })
	for _, route := range []string{"/init", "/upgrade", "/freeze", "/unfreeze", "/collapse", "/fsfreeze", "/fsthaw"} {
		for _, path := range []string{route, route + "/", "/" + route, "/x/.." + route, "/." + route, route + "?a=b", strings.Replace(route, "f", "%66", 1)} {
			for port, want := range map[string]int{"49983": 404, "3000": 200} {
				header := by(id, port)
				header[protocol.HeaderAccess] = token
				if w := request(t, rt, "POST", path, header); w.Code != want {
					t.Errorf("%s on port %s: got %d %s, want %d", path, port, w.Code, w.Body, want)
				}
			}
		}
		header := by(id, "49983")
		if w := request(t, rt, "GET", route+"x", header); w.Code != 200 {
			t.Errorf("%sx: got %d %s, want 200", route, w.Code, w.Body)
		}
	}
}

// TestClassOf checks which requests to the sandbox's own ports belong to the owner: those with the
// token of the port, or all of them if the port requires no token.
func TestClassOf(t *testing.T) {
	t.Parallel()
	for _, own := range []string{"", token} {
		for _, private := range []string{"", traffic} {
			u := newSleeper(Sandbox{ID: id, AccessToken: own, TrafficToken: private}, nil)
			for _, port := range []int{protocol.PortEnvd, protocol.PortInterpreter, protocol.PortJupyter, 3000, 1, 65535} {
				for _, sent := range []string{"", "wrong", token} {
					r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
					r.Header.Set(protocol.HeaderAccess, sent)
					want := ofStrangers
					switch {
					case !protocol.OwnPort(port):
						want = toPrograms
					case private != "" && port != protocol.PortEnvd, own == "", sent == own:
						want = ofOwner
					}
					if got := u.classOf(r, port); got != want {
						t.Errorf("port %d with the token %q (tokens: %q, %q): got class %d, want %d", port, sent, own, private, got, want)
					}
				}
			}
			u.close()
		}
	}
}

// TestCountersReturnToZero checks that each class admits as many requests as its limit, and that
// ended and refused requests are no longer counted.
func TestCountersReturnToZero(t *testing.T) {
	t.Parallel()
	u := newSleeper(Sandbox{ID: id}, nil)
	t.Cleanup(u.close)
	for k := range classes {
		for range 2 {
			var ends []func()
			for range k.limit() + 3 {
				if done, ok := u.admit(k); ok {
					ends = append(ends, done)
				}
			}
			if len(ends) != k.limit() {
				t.Errorf("class %d: got %d admitted, want %d", k, len(ends), k.limit())
			}
			for _, done := range ends {
				done()
			}
			if n := u.admissions[k].inFlight.Load(); n != 0 {
				t.Errorf("class %d: got %d in flight, want none", k, n)
			}
		}
	}
}

// TestCountersOfASleeper checks that a request is counted for its sandbox until it ends, even if
// it wakes a sandbox that the router did not know.
func TestCountersOfASleeper(t *testing.T) {
	t.Parallel()
	var rt *Router
	var during int64
	sb := Sandbox{ID: id, Dial: serve(t, map[int]http.HandlerFunc{3000: func(http.ResponseWriter, *http.Request) {
		during = rt.lookup(id).admissions[toPrograms].inFlight.Load()
	}})}
	rt = New(Options{
		Asleep: func(string) []Sandbox { return []Sandbox{sb} },
		Wake:   func(context.Context, string) error { rt.Add(sb); return nil },
	})
	t.Cleanup(func() { rt.Remove(id) })
	for _, state := range []string{"asleep", "awake"} {
		if w := request(t, rt, "GET", "/", by(id, "3000")); w.Code != 200 || during != 1 {
			t.Errorf("%s: got %d %s and %d in flight meanwhile, want 200 and 1", state, w.Code, w.Body, during)
		}
	}
}
