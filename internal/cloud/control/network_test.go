package control

import (
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/cloud/network"
	"github.com/e2bctl/e2bctl/internal/must"
)

func rules(t *testing.T, internet bool, allow, deny []string) *network.Rules {
	t.Helper()
	r, err := network.ParseRules(internet, allow, deny)
	must.Do(t, err)
	return r
}

// header returns rules with headers for the host a.b.
func header(headers string) string {
	return `{"rules":{"a.b":[{"transform":{"headers":{` + headers + `}}}]}}`
}

// TestHeaderRules checks that a sandbox that was created with header rules can get other header
// rules, and reports them. A sandbox that was created without them cannot, because its programs
// have no certificate to trust.
func TestHeaderRules(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.must(t, "POST", "/secrets", `{"name":"key","value":"sk-1"}`, 201)
	first := `{"rules":{"API.example.com":[{"transform":{"headers":{"authorization":"Bearer ${e2b.secrets.KEY}"}}}],"*.b.c":[]}}`
	id := s.mustCreate(t, `{"templateID":"base","network":`+first+`}`)
	got := s.fakes.Spec(id).Egress
	if h := got.Headers("api.example.com"); len(h) != 1 || h[0].Name != "Authorization" {
		t.Fatalf("got %+v, want Authorization", h)
	}
	value, err := got.Headers("api.example.com.")[0].Value(func(name string) (string, error) { return "the " + name, nil })
	if value != "Bearer the key" || err != nil {
		t.Errorf("got %q, %v, want Bearer the key", value, err)
	}
	want := map[string]any{
		"api.example.com": []any{map[string]any{"transform": map[string]any{"headers": map[string]any{"authorization": "Bearer ${e2b.secrets.KEY}"}}}},
		"*.b.c":           []any{},
	}
	reported := func() any {
		network, _ := s.must(t, "GET", "/sandboxes/"+id, "", 200)["network"].(map[string]any)
		return network["rules"]
	}
	if diff := cmp.Diff(any(want), reported()); diff != "" {
		t.Errorf("reported (-want +got):\n%s", diff)
	}
	s.must(t, "PUT", "/sandboxes/"+id+"/network", `{}`, 204)
	if h := s.fakes.Fake(id).Rules().Headers("api.example.com"); len(h) > 0 || reported() != nil {
		t.Errorf("after a change without rules: got %+v and %v, want none", h, reported())
	}
	s.must(t, "PUT", "/sandboxes/"+id+"/network", header(`"A":"b"`), 204)
	if h := s.fakes.Fake(id).Rules().Headers("a.b"); len(h) != 1 {
		t.Errorf("after a change: got %+v, want one", h)
	}
	without := s.mustCreate(t, `{"templateID":"base"}`)
	if resp, text := s.do(t, "PUT", "/sandboxes/"+without+"/network", header(`"A":"b"`)); resp.StatusCode != 400 || !strings.Contains(text, "made without rules") {
		t.Errorf("got %d %s, want 400 that says it was made without rules", resp.StatusCode, text)
	}
}

// TestNetworkErrors checks that an invalid rule is refused by name, when a sandbox is created and
// later.
func TestNetworkErrors(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.mustCreate(t, `{"templateID":"base"}`)
	tests := []struct{ network, want string }{
		{`{"denyOut":["0.0.0.0"]}`, `denyOut has "0.0.0.0": want an address or a network`},
		{`{"denyOut":["example.com"]}`, `denyOut has "example.com": want an address or a network`},
		{`{"denyOut":["10.0.0.0/33"]}`, `denyOut has "10.0.0.0/33"`},
		{`{"denyOut":["::ffff:10.0.0.0/104"]}`, `denyOut has "::ffff:10.0.0.0/104"`},
		{`{"denyOut":"10.0.0.0/8"}`, `denyOut must be an array, not string`},
		{`{"allowOut":["example.com"]}`, `allowOut has "example.com": a name needs denyOut to have 0.0.0.0/0: deny all traffic first`},
		{`{"allowOut":["example.com"],"denyOut":["10.0.0.0/8"]}`, `deny all traffic first`},
		{`{"allowOut":["*"]}`, `deny all traffic first`},
		{`{"allowOut":["1.2.3"],"denyOut":["0.0.0.0/0"]}`, `allowOut has "1.2.3": want an address`},
		{`{"allowOut":["0.0.0.0"],"denyOut":["0.0.0.0/0"]}`, `allowOut has "0.0.0.0": want an address`},
		{`{"allowOut":["https://example.com"],"denyOut":["0.0.0.0/0"]}`, `allowOut has "https://example.com": want an address`},
		{`{"allowOut":["a.*.example.com"],"denyOut":["0.0.0.0/0"]}`, `allowOut has "a.*.example.com"`},
		{`{"allowOut":[""],"denyOut":["0.0.0.0/0"]}`, `allowOut has ""`},
		{`{"denyOut":[` + strings.Repeat(`"10.0.0.1",`, 1000) + `"10.0.0.1"]}`, `more than 1000 entries`},
		{`{"dnsServers":["example.com"]}`, `dnsServers has "example.com": want at most 10 IPv4 addresses`},
		{`{"dnsServers":["::1"]}`, `dnsServers has "::1"`},
		{`{"dnsServers":["1.1.1.0/24"]}`, `dnsServers has "1.1.1.0/24"`},
		{`{"dnsServers":[` + strings.Repeat(`"1.1.1.1",`, 10) + `"1.1.1.1"]}`, `at most 10`},
		{`{"rules":{"10.0.0.1":[]}}`, `rules has "10.0.0.1": headers are for hosts with a name`},
		{`{"rules":{"[::1]":[]}}`, `rules has "[::1]": headers are for hosts with a name`},
		{`{"rules":{"127.1":[]}}`, `rules has "127.1": headers are for hosts with a name`},
		{`{"rules":{"*.0x7f":[]}}`, `rules has "*.0x7f": headers are for hosts with a name`},
		{`{"rules":{"example.com:443":[]}}`, `without a scheme and a port`},
		{`{"rules":{"https://example.com":[]}}`, `without a scheme and a port`},
		{`{"rules":{"*":[]}}`, `rules has "*": want a name`},
		{`{"rules":{"a.*.com":[]}}`, `rules has "a.*.com": want a name`},
		{`{"rules":{"":[]}}`, `rules has "": want a name`},
		{`{"rules":{"` + strings.Repeat("a.", 64) + `a":[]}}`, `at most 128 characters`},
		{`{"rules":{"Example.com":[],"example.com":[]}}`, `rules has a host twice`},
		{`{"rules":{"example.com.":[],"example.com":[]}}`, `it is there twice`},
		{`{"rules":{"a.b":[{},{}]}}`, `rules has 2 rules for "a.b": a host has one`},
		{`{"rules":{"a.b":{}}}`, `must be an array, not object`},
		{header(`"Host":"c"`), `the header Host belongs to the connection`},
		{header(`"transfer-encoding":"c"`), `the header Transfer-Encoding belongs to the connection`},
		{header(`"A b":"c"`), `"A b" is not the name of a header`},
		{header(`":authority":"c"`), `":authority" is not the name of a header`},
		{header(`"` + strings.Repeat("a", 65) + `":"c"`), `at most 64 characters`},
		{header(`"A":"c","a":"d"`), `the header A is there twice`},
		{header(`"A":"b\r\nEvil: c"`), `the value of the header A has more than 2048 bytes, or line breaks`},
		{header(`"A":"` + strings.Repeat("v", 2049) + `"`), `more than 2048 bytes`},
		{header(`"A":"${e2b.secrets.}"`), `a placeholder that is not ${e2b.secrets.NAME}`},
		{header(`"A":"${e2b.secrets.a"`), `a placeholder that is not ${e2b.secrets.NAME}`},
		{header(`"A":"${e2b.other}"`), `a placeholder that is not ${e2b.secrets.NAME}`},
		{header(`"A":"${e2b.identity.tokens.aws}"`), `has an IAM token (${e2b.identity.tokens.…}), which this local cloud does not support`},
		{header(`"A":"${e2b.secrets.nothing}"`), `rules name the secret "nothing", which does not exist`},
		{`{"egressProxy":{"address":"example.com"}}`, `egressProxy has "example.com": the address must be host:port`},
		{`{"egressProxy":{"address":"a.test:1080","password":"p"}}`, `egressProxy has "a.test:1080": a password needs a username`},
		{`{"egressProxy":{"address":"a.test:1080","username":"u","password":"` + strings.Repeat("p", 256) + `"}}`, `egressProxy.password has more than 255 bytes`},
		{`{"egressProxy":{"address":"a.test:1080","tls":{"enabled":false,"serverName":"a"}}}`, `tls has serverName or caCert, and enabled is false`},
		{`{"egressProxy":"a.test:1080"}`, `egressProxy must be an object, not string`},
	}
	for _, tt := range tests {
		for _, prefix := range []string{"network.", ""} {
			method, path, body := "POST", "/v2/sandboxes", `{"templateID":"base","network":`+tt.network+`}`
			if prefix == "" {
				method, path, body = "PUT", "/sandboxes/"+id+"/network", tt.network
			}
			resp, text := s.do(t, method, path, body)
			if resp.StatusCode != 400 || !strings.Contains(strings.ReplaceAll(text, `\"`, `"`), tt.want) {
				t.Errorf("%s %.100s: %d %s, want %s", method, body, resp.StatusCode, text, tt.want)
			}
		}
	}
	if got := s.fakes.Fake(id).Rules(); got != nil {
		t.Errorf("a refused change was made: %+v, want none", got)
	}
	if resp, text := s.do(t, "PUT", "/sandboxes/"+strings.Repeat("x", 21)+"/network", `{}`); resp.StatusCode != 404 {
		t.Errorf("got %d %s, want 404", resp.StatusCode, text)
	}
}

// TestNetworkUpdate checks that an update replaces all rules for outgoing connections, and does not
// change rules for incoming ones.
func TestNetworkUpdate(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.mustCreate(t, `{"templateID":"base","allow_internet_access":false,"network":{"allowOut":["203.0.113.0/24"],"maskRequestHost":"localhost:${PORT}"}}`)
	if want := rules(t, false, []string{"203.0.113.0/24"}, nil); !reflect.DeepEqual(s.fakes.Spec(id).Egress, want) {
		t.Errorf("created with %+v, want %+v", s.fakes.Spec(id).Egress, want)
	}
	for _, tt := range []struct {
		body    string
		want    *network.Rules
		network map[string]any
	}{
		{`{"allowOut":["Example.COM.","*.example.org"],"denyOut":["0.0.0.0/0"]}`, rules(t, true, []string{"example.com", "*.example.org"}, []string{"0.0.0.0/0"}),
			map[string]any{"allowOut": []any{"Example.COM.", "*.example.org"}, "denyOut": []any{"0.0.0.0/0"}}},
		{`{"allowOut":["example.com"],"denyOut":["0.0.0.0/0"],"dnsServers":["1.1.1.1"]}`, rules(t, true, []string{"example.com", "1.1.1.1"}, []string{"0.0.0.0/0"}),
			map[string]any{"allowOut": []any{"example.com"}, "denyOut": []any{"0.0.0.0/0"}, "dnsServers": []any{"1.1.1.1"}}},
		{`{"denyOut":["0.0.0.0/0"],"dnsServers":["1.1.1.1"]}`, rules(t, true, nil, []string{"0.0.0.0/0"}), map[string]any{"denyOut": []any{"0.0.0.0/0"}, "dnsServers": []any{"1.1.1.1"}}},
		{`{"denyOut":["10.0.0.0/8"],"rules":{},"egressProxy":null}`, rules(t, true, nil, []string{"10.0.0.0/8"}), map[string]any{"denyOut": []any{"10.0.0.0/8"}}},
		{`{"allow_internet_access":false}`, rules(t, false, nil, nil), map[string]any{}},
		{`{}`, rules(t, true, nil, nil), map[string]any{}},
	} {
		resp, text := s.do(t, "PUT", "/sandboxes/"+id+"/network", tt.body)
		if resp.StatusCode != 204 || text != "" {
			t.Errorf("%s: got %d %s, want status 204 and no body", tt.body, resp.StatusCode, text)
		}
		if got := s.fakes.Fake(id).Rules(); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: got %+v, want %+v", tt.body, got, tt.want)
		}
		tt.network["maskRequestHost"] = "localhost:${PORT}"
		got := s.must(t, "GET", "/sandboxes/"+id, "", 200)
		if diff := cmp.Diff(tt.network, got["network"]); diff != "" {
			t.Errorf("%s: reported (-want +got):\n%s", tt.body, diff)
		}
		if got["allowInternetAccess"] != false {
			t.Errorf("%s: allowInternetAccess is %v, want false", tt.body, got["allowInternetAccess"])
		}
	}
}

// late is a body that calls a function before each read.
type late struct {
	io.Reader
	before func()
}

func (l *late) Read(p []byte) (int, error) {
	l.before()
	return l.Reader.Read(p)
}

// TestNetworkUpdateOfWhatEnds checks that a request about a sandbox that ends while the request
// arrives is answered with status 404 and the reason for the end.
func TestNetworkUpdateOfWhatEnds(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.mustCreate(t, `{"templateID":"base"}`)
	kill := sync.OnceFunc(func() { s.must(t, "DELETE", "/sandboxes/"+id, "", 204) })
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPut, "/sandboxes/"+id+"/network", &late{strings.NewReader(`{}`), kill})
	r.Header.Set("X-API-KEY", testKey)
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	if w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), "killed by request") {
		t.Errorf("got %d %s, want status http.StatusNotFound and %q in it", w.Code, w.Body, "killed by request")
	}
}
