package headers

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/cloud/network"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestRequests checks that a request that the rules do not allow is answered without a connection to
// the host, is told, and disturbs no other request of its connection.
func TestRequests(t *testing.T) {
	t.Parallel()
	closed, err := network.ParseRules(true, nil, []string{"0.0.0.0/0"})
	must.Do(t, err)
	rules, err := closed.WithRequests(map[string][]network.Request{"api.test": {{Methods: []string{"GET"}, Path: "/yes/**"}}})
	must.Do(t, err)
	for _, protocol := range []string{"h1", "h2"} {
		var mu sync.Mutex
		var told []network.Denial
		h := newHouse(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Method+" "+r.URL.String()) }, func(o *Options) {
			o.Denied = func(d network.Denial) {
				mu.Lock()
				defer mu.Unlock()
				told = append(told, d)
			}
		})
		h.Set(rules, h.reach)
		client := h.client(protocol)
		refused := func() {
			t.Helper()
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://api.test/yes/", strings.NewReader("body"))
			must.Do(t, err)
			res, err := client.Do(r)
			must.Do(t, err)
			text, _ := io.ReadAll(res.Body)
			_ = res.Body.Close()
			if want := "the rules for this host do not allow POST /yes/"; res.StatusCode != 403 || !strings.Contains(string(text), want) {
				t.Errorf("%s: got %d %s, want 403 and %q", protocol, res.StatusCode, text, want)
			}
		}
		refused()
		if len(h.reached) > 0 {
			t.Errorf("%s: a refused request reached %q", protocol, h.reached)
		}
		var all sync.WaitGroup
		for i := range 100 {
			all.Go(func() {
				if i == 50 {
					refused()
					return
				}
				if status, text := get(t, client, fmt.Sprintf("https://api.test/yes/%d?q", i)); status != 200 || text != fmt.Sprintf("GET /yes/%d?q", i) {
					t.Errorf("%s: got %d %s", protocol, status, text)
				}
			})
		}
		all.Wait()
		want := network.Denial{Host: "api.test", Port: 443, Rule: "the rules for this host do not allow POST /yes/"}
		if diff := cmp.Diff([]network.Denial{want, want}, told); diff != "" {
			t.Errorf("%s: told (-want +got):\n%s", protocol, diff)
		}
		if got := h.raw("other.test", "GET /yes/ HTTP/1.1\r\nHost: other.test\r\n\r\n"); !strings.Contains(got, "internal error") {
			t.Errorf("%s: a host without a rule: got %q, want no certificate", protocol, got)
		}
	}
}

// TestRequestsOfOneConnection checks each request of a connection, and that no upgrade or trailer hides others.
func TestRequestsOfOneConnection(t *testing.T) {
	t.Parallel()
	headersOnly := rules(t, bearer)
	closed, err := network.ParseRules(true, nil, []string{"0.0.0.0/0"})
	must.Do(t, err)
	rules, err := closed.WithRequests(map[string][]network.Request{"api.test": {{Methods: []string{"GET"}, Path: "/yes"}}})
	must.Do(t, err)
	h := newHouse(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, r.URL.Path+" "+r.Header.Get("Upgrade")+fmt.Sprint(r.Trailer))
	}, func(o *Options) { o.Denied = func(network.Denial) {} })
	h.Set(rules, h.reach)
	answer := h.raw("api.test", "GET /yes HTTP/1.1\r\nHost: api.test\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n\r\n"+
		"GET /no HTTP/1.1\r\nHost: api.test\r\n\r\n"+
		"GET /yes HTTP/1.1\r\nHost: api.test\r\nTransfer-Encoding: chunked\r\nTrailer: X-A\r\n\r\n1\r\nb\r\n0\r\nX-A: a\r\nX-Http-Method-Override: DELETE\r\n\r\n"+"GET /yes HTTP/1.1\r\nHost: api.test\r\nConnection: close\r\n\r\n")
	status := regexp.MustCompile(`HTTP/1\.1 (\d+)`)
	var got []string
	for _, found := range status.FindAllStringSubmatch(answer, -1) {
		got = append(got, found[1])
	}
	if diff := cmp.Diff([]string{"200", "403", "200", "200"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s\n%s", diff, answer)
	}
	if strings.Contains(answer, "h2c") || strings.Count(answer, "/yes map[]") != 3 {
		t.Errorf("got %s, want three answers to requests without an upgrade and without trailers", answer)
	}
	// A host that only receives headers is asked for any upgrade. This one speaks HTTP/2, which has none.
	h.Set(headersOnly, h.reach)
	if got := h.raw("api.test", "GET /any HTTP/1.1\r\nHost: api.test\r\nConnection: close, Upgrade\r\nUpgrade: tcp\r\n\r\n"); !strings.Contains(got, `invalid Upgrade request header: ["tcp"]`) {
		t.Errorf("got %s, want that the upgrade was requested", got)
	}
}
