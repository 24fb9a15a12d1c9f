package network

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

func withRequests(t *testing.T, asked map[string][]Request) *Rules {
	t.Helper()
	r, err := mustRules(t, true, "other.test", allTraffic).WithRequests(asked)
	must.Do(t, err)
	return r
}

// TestRefuseRequest checks which requests the rules for requests allow. A path is allowed only if all
// paths are allowed that a server could read in it.
func TestRefuseRequest(t *testing.T) {
	t.Parallel()
	r := withRequests(t, map[string][]Request{
		"Index.test": {{Methods: []string{"GET"}, Path: "/simple/**"}, {Methods: []string{"POST", "PUT"}, Path: "/api/*/items"}},
		"git.test":   {{Methods: []string{"GET"}, Path: "/own/code.git/info/refs"}, {Methods: []string{"POST"}, Path: "/own/code.git/git-upload-pack"}},
		"*.npm.test": {{Methods: []string{"GET"}, Path: "/@scope**"}, {Methods: []string{"DELETE"}}},
		"one.test":   {{Path: "/a b/é"}},
	})
	for _, request := range []string{
		"GET index.test/simple/", "HEAD INDEX.test./simple/pip/", "GET index.test/simple/a%20b?x=../y", "GET index.test/simple/%70ip", "GET index.test/simple/../simple/pip",
		"GET index.test/simple/pip;v=1", "POST index.test/api/1/items", "PUT index.test/api/x.y/items", "GET index.test/simple/a%2Fb",
		"GET git.test/own/code.git/info/refs?service=git-upload-pack", "POST git.test/own/code.git/git-upload-pack",
		"GET a.npm.test/@scope%2Fname", "GET a.b.npm.test/@scope/name", "DELETE a.npm.test/%2F/anything", "GET free.test/anything%25",
		"OPTIONS one.test/a%20b/%C3%A9", "GET one.test/a b/é",
	} {
		if why := refused(r, request); why != "" {
			t.Errorf("%s: refused: %s", request, why)
		}
	}
	for request, want := range map[string]string{
		"POST index.test/simple/":                                   "do not allow POST /simple/",
		"OPTIONS index.test/simple/":                                "do not allow OPTIONS",
		"GET index.test/simple":                                     "do not allow GET /simple",
		"GET index.test/Simple/":                                    "do not allow",
		"GET index.test/":                                           "do not allow GET /",
		"GET index.test/simple/../legacy/":                          "do not allow GET /legacy/",
		"GET index.test/simple/%2e%2e/legacy/":                      "do not allow GET /legacy/",
		"GET index.test/simple/..%2flegacy/":                        "do not allow GET /legacy/",
		"GET index.test/simple/.%2E/":                               "do not allow GET /",
		"GET index.test/simple/..;x=1/legacy/":                      "do not allow GET /legacy/",
		"GET index.test/simple/..":                                  "do not allow GET /",
		"GET index.test//simple/":                                   "do not allow GET //simple/",
		"GET index.test/x/../simple/":                               "do not allow GET /x/../simple/",
		"GET index.test/simple/../legacy//../simple/a":              "do not allow GET /legacy/simple/a",
		"GET index.test/simple/../x%2f%2F../simple/a":               "do not allow GET /x",
		"GET index.test/simple/../x/;/..;/simple/a":                 "do not allow GET /x",
		"POST index.test/api//items":                                "do not allow POST /api/items",
		"POST index.test/api/a%3Fb/items":                           "do not allow POST /api/a",
		"POST index.test/api/a%23b/items":                           "do not allow POST /api/a",
		"GET index.test/simple/%252e%252e/legacy/":                  "different ways",
		"GET index.test/simple/..%5Clegacy":                         "different ways",
		"GET index.test/simple/..\\legacy":                          "different ways",
		"GET index.test/simple/%00":                                 "different ways",
		"GET index.test/simple/%0d%0aX:y":                           "different ways",
		"GET index.test/simple/%c0%ae%c0%ae/legacy":                 "different ways",
		"POST index.test/api/1/2/items":                             "do not allow",
		"POST index.test/api/1%2F2/items":                           "do not allow",
		"POST index.test/api/1/items/":                              "do not allow",
		"POST index.test/api/1/items;x/../../../simple/a":           "do not allow",
		"GET index.test/api/1/items":                                "do not allow",
		"POST git.test/own/code.git/git-receive-pack":               "do not allow",
		"POST git.test/own/code.git2/git-upload-pack":               "do not allow",
		"GET git.test/own/code.git/info/refs/":                      "do not allow",
		"GET a.npm.test/other":                                      "do not allow",
		"GET one.test/a":                                            "do not allow",
		"GET index.test/simple/" + strings.Repeat("a", maxSentPath): "more than 8192 bytes",
	} {
		if why := refused(r, request); !strings.Contains(why, want) {
			t.Errorf("%s: got %q, want %q", request, why, want)
		}
	}
	for _, header := range []string{"X-HTTP-Method-Override", "x-http-method", "X-Method-Override", "X-Original-URL", "X-Rewrite-URL", "X_HTTP_Method-override"} {
		q := httptest.NewRequest(http.MethodGet, "https://index.test/simple/", nil)
		q.Header.Set(header, "POST")
		if why := r.RefuseRequest("index.test", q); !strings.Contains(why, "could replace") {
			t.Errorf("%s: got %q", header, why)
		}
	}
	if why := r.RefuseRequest("git.test", &http.Request{Method: http.MethodOptions, URL: &url.URL{Path: "*"}}); !strings.Contains(why, "slash") {
		t.Errorf("OPTIONS *: got %q", why)
	}
}

// refused returns the reason why a request such as "GET a.test/b" is refused.
func refused(r *Rules, request string) string {
	method, target, _ := strings.Cut(request, " ")
	host, path, _ := strings.Cut(target, "/")
	u, err := url.ParseRequestURI("/" + path) // as a server reads it
	if err != nil {
		return err.Error()
	}
	return r.RefuseRequest(host, &http.Request{Method: method, URL: u})
}

// TestReadingsAreBounded checks that a path is refused from the first number of readings above the limit.
func TestReadingsAreBounded(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]int{
		"//a/%2Fb/;x/.%2Fb/.%3F":  maxReadings - 1,
		"//..//a%2F..;%2F/a/.%23": maxReadings,
		"//.;%2F/;%2F/./.%23%3F":  maxReadings + 1,
		"//;x/%2Fb//../..%23":     maxReadings + 2,
	} {
		u, err := url.ParseRequestURI(path)
		must.Do(t, err)
		readings, why := readPath(u)
		if want > maxReadings {
			if len(readings) > 0 || !strings.Contains(why, "too many different ways") {
				t.Errorf("%s, which can be read in %d ways: got %d, %q, want a refusal", path, want, len(readings), why)
			}
		} else if len(readings) != want || why != "" {
			t.Errorf("%s: got %d readings, %q, want %d", path, len(readings), why, want)
		}
	}
}

// TestWithRequests checks which rules for requests are invalid.
func TestWithRequests(t *testing.T) {
	t.Parallel()
	valid := Request{Methods: []string{"GET"}, Path: "/"}
	many := func(n int) (all []Request) {
		for range n {
			all = append(all, valid)
		}
		return all
	}
	closed := mustRules(t, true, "", allTraffic)
	for _, path := range []string{"", "/", "/**", "/a/", "/a.b/*/c", "/" + strings.Repeat("a", maxRequestPath-1)} {
		_, err := closed.WithRequests(map[string][]Request{"a.test": {{Path: path}}})
		must.Do(t, err)
	}
	_, err := closed.WithRequests(map[string][]Request{"a.test": many(maxRequests)})
	must.Do(t, err)
	for _, test := range []struct {
		host  string
		rules *Rules
		given []Request
		want  string
	}{
		{"a.test", mustRules(t, true, "", ""), many(1), "denyOut"},
		{"a.test", nil, many(1), "denyOut"},
		{"a.test", mustRules(t, true, allTraffic, allTraffic), many(1), "allowOut to have neither"},
		{"a.test", mustRules(t, true, "::/0", allTraffic), many(1), "allowOut to have neither"},
		{"a.test", mustRules(t, true, "*", allTraffic), many(1), "allowOut to have neither"},
		{"a.test", closed, nil, "empty"},
		{"a.test", closed, many(maxRequests + 1), "50 is the limit"},
		{"8080-i1a2.cloud.test:4000", closed, many(1), "other sandboxes"},
		{"192.0.2.1", closed, many(1), "an address"},
		{"a.test:8443", closed, many(1), "without a scheme and a port"},
		{"*", closed, many(1), "want a name"},
		{"a.test", closed, []Request{{Methods: []string{"get"}}}, `"get" is not one of`},
		{"a.test", closed, []Request{{Methods: []string{"TRACE"}}}, `"TRACE" is not one of`},
		{"a.test", closed, []Request{{Path: "simple/"}}, "begin with a slash"},
		{"a.test", closed, []Request{{Path: "/a?b"}}, "no path pattern"},
		{"a.test", closed, []Request{{Path: "/a%20b"}}, "no path pattern"},
		{"a.test", closed, []Request{{Path: "/a\x00b"}}, "no path pattern"},
		{"a.test", closed, []Request{{Path: "/a/../b"}}, `want "/b"`},
		{"a.test", closed, []Request{{Path: "//a/./"}}, `want "/a/"`},
		{"a.test", closed, []Request{{Path: "/" + strings.Repeat("a", maxRequestPath)}}, "512 is the limit"},
	} {
		_, err := test.rules.WithRequests(map[string][]Request{test.host: test.given})
		if invalid, ok := errors.AsType[*RuleError](err); !ok || !strings.Contains(err.Error(), test.want) || invalid.Entry != test.host {
			t.Errorf("%s %.100v: got error %v, want %q", test.host, test.given, err, test.want)
		}
	}
	if _, err := closed.WithRequests(map[string][]Request{"a.test": many(1), "A.test.": many(1)}); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("a host that is there twice: got error %v", err)
	}
}

// TestRequestsOfHost checks that a host with rules for requests is allowed, and reached by https alone.
func TestRequestsOfHost(t *testing.T) {
	t.Parallel()
	d := &Dialer{Resolver: world}
	dialled := recording(t, d)
	rules := withRequests(t, map[string][]Request{"*.public.test": {{Path: "/a"}}})
	e := &Egress{Dialer: d, Rules: rules, Denials: &Denials{}, Door: entrance{make(chan string, 1)}}
	if got := ask(t, e, "api.public.test", dnsmessage.TypeA); len(got) != 1 || got[0] != "203.0.113.6" {
		t.Errorf("the name has the addresses %q", got)
	}
	for _, port := range []uint16{portHTTP, 8443} {
		_, err := e.Dial(t.Context(), "api.public.test", port)
		if denied, ok := errors.AsType[*DeniedError](err); !ok || denied.Rule != ruleRequests {
			t.Errorf("port %d: got error %v", port, err)
		}
	}
	conn, err := e.Dial(t.Context(), "api.public.test", portHTTPS)
	must.Do(t, err)
	_ = conn.Close()
	if _, err := e.Dial(t.Context(), "203.0.113.6", portHTTP); err == nil {
		t.Error("the address of the host was reached")
	}
	if _, err := e.Dial(t.Context(), "public.test", portHTTPS); err == nil {
		t.Error("a host without a rule was reached")
	}
	if len(*dialled) > 0 {
		t.Errorf("the addresses %q were dialled", *dialled)
	}
	if rules.closed() || !rules.Opens("api.public.test") || rules.Opens("public.test") {
		t.Error("the rules open other hosts than those with requests")
	}
}

// TestRequestsOfService checks that a connection to a service of this machine with rules for requests
// leads to the door, also if it shows no name, and that it is refused without a door.
func TestRequestsOfService(t *testing.T) {
	t.Parallel()
	services, err := NewServices([]Service{{"api:443", "127.0.0.1:1"}}, 2)
	must.Do(t, err)
	rules, err := mustRules(t, true, "api.host.internal", allTraffic).WithRequests(map[string][]Request{"api.host.internal": {{Path: "/a"}}})
	must.Do(t, err)
	for _, first := range []string{"GET / HTTP/1.1\r\n\r\n", hello(t, ""), hello(t, "other.test")} {
		door := entrance{make(chan string, 1)}
		e := &Egress{Dialer: &Dialer{}, Rules: rules, Denials: &Denials{}, Door: door, Services: services}
		client, inside := pair(t)
		_, err := client.Write([]byte(first))
		must.Do(t, err)
		outside, err := e.connect(t.Context(), inside, netip.AddrPortFrom(services.all[0].inside, portHTTPS))
		must.Do(t, err)
		if got, want := patience.Receive(t, "what the door reads", door.said), fmt.Sprintf("%x <nil>", first[:1]); got != want {
			t.Errorf("the door read %q, want %q", got, want)
		}
		_ = outside.Close()
		e.Door = nil
		if _, err := e.Reach(t.Context(), "api.host.internal", portHTTPS); err == nil || !strings.Contains(err.Error(), ruleRequests) {
			t.Errorf("without a door: got error %v", err)
		}
	}
}
