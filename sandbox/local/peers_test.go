//go:build linux

package local_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// fetch asks for URLs as programs do that look names up, and prints a line for each.
const fetch = `
import http.client, socket, ssl, sys
for url in sys.argv[2:]:
    scheme, _, rest = url.partition("://")
    address, _, path = rest.partition("/")
    try:
        if scheme == "https":
            c = http.client.HTTPSConnection(address, context=ssl._create_unverified_context(), timeout=30)
        else:
            c = http.client.HTTPConnection(address, timeout=30)
        c.request("GET", "/" + path, headers={"E2b-Traffic-Access-Token": sys.argv[1]} if sys.argv[1] else {})
        r = c.getresponse()
        print(r.status, r.read().decode().replace("\n", " "))
    except OSError as e:
        print(type(e).__name__, e)
`

// trafficToken returns the traffic token of a sandbox in which a webServer listens on a port.
func trafficToken(t *testing.T, sb *sandbox.Sandbox, port int) string {
	t.Helper()
	response, err := (&http.Client{Transport: sb.Transport(port)}).Get(sb.URL(port))
	must.Do(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	lines := strings.Split(string(body), "\n")
	if err != nil || len(lines) != 5 {
		t.Fatalf("%q, %v, want five lines", body, err)
	}
	return lines[3]
}

// A program in a sandbox reaches another sandbox by the name that Host returns, as a client
// outside does: with the target's traffic token, within its own sandbox's rules, and
// nothing of the machine but that.
func TestPeers(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t, local.WithWarm(0))
	if cloud.Isolation() != "full" {
		t.Skipf("sandboxes of the level %s have no loopback interface of their own, where names of sandboxes lead", cloud.Isolation())
	}
	public := cloud.Create(t)
	listen(t, public, "web.py", webServerAt("127.0.0.1", 8080))
	private := cloud.Create(t, sandbox.WithPrivateTraffic())
	listen(t, private, "web.py", webServerAt("127.0.0.1", 8080))
	token := trafficToken(t, private, 8080)
	_, port, _ := strings.Cut(public.Host(8080), ":")
	ask := func(from *sandbox.Sandbox, token string, urls ...string) []string {
		t.Helper()
		must.Do(t, from.Files.Write(t.Context(), "fetch.py", []byte(fetch), nil))
		return strings.Split(sandboxtest.Run(t, from, fmt.Sprintf("python3 fetch.py '%s' %s", token, strings.Join(urls, " "))), "\n")
	}

	from := cloud.Create(t)
	tests := []struct{ token, url, want string }{
		{"", "http://" + public.Host(8080) + "/x", "200 /x " + public.Host(8080) + " None None None"},
		{"", "https://" + public.Host(8080) + "/x", "200 /x " + public.Host(8080) + " None None None"},
		{"", "http://" + private.Host(8080) + "/x", "403 "},
		{token, "http://" + private.Host(8080) + "/x", "200 /x " + private.Host(8080) + " None " + token},
		{"", "http://" + public.Host(8081) + "/x", "502 "},
		{"", "http://" + public.Host(49983) + "/files?path=/etc/passwd", "401 "},
		{"", "http://api.localhost:" + port + "/sandboxes", "gaierror "},
		{"", "http://127.0.0.1:" + port + "/sandboxes", "403 "},
		{"", "http://localhost:" + port + "/sandboxes", "403 "},
	}
	for _, test := range tests {
		if got := ask(from, test.token, test.url); len(got) != 1 || !strings.HasPrefix(got[0], test.want) {
			t.Errorf("%s: got %q, want %q", test.url, got, test.want)
		}
	}
	// curl looks no name below localhost up.
	if got := sandboxtest.Run(t, from, "curl -sS http://"+public.Host(8080)+"/curl"); !strings.HasPrefix(got, "/curl\n") {
		t.Errorf("curl: got %q", got)
	}

	for name, network := range map[string]sandbox.CreateOption{
		"off":     sandbox.WithInternet(false),
		"denied":  sandbox.WithNetwork(sandbox.Network{DenyOut: []string{sandbox.AllTraffic}}),
		"another": sandbox.WithNetwork(sandbox.Network{DenyOut: []string{sandbox.AllTraffic}, AllowOut: []string{private.Host(8080)}}),
	} {
		from := cloud.Create(t, network)
		if got := sandboxtest.Run(t, from, "curl --noproxy '*' -sS -o /dev/null -w '%{http_code}' http://"+public.Host(8080)+"/; true"); strings.HasPrefix(got, "200") {
			t.Errorf("%s: got %q, want no answer of the other sandbox", name, got)
		}
	}
	allowed := cloud.Create(t, sandbox.WithNetwork(sandbox.Network{
		DenyOut: []string{sandbox.AllTraffic}, AllowOut: []string{public.Host(8080)},
		Headers: map[string]map[string]string{public.Host(8080): {"User-Agent": "of a rule"}},
	}))
	if got := ask(allowed, "", "http://"+public.Host(8080)+"/x"); !strings.HasSuffix(got[0], "None None of a rule") {
		t.Errorf("allowed by its name with the port: got %q, want an answer to a request with the rule's header", got)
	}
}

// TestGVisorPeers checks that sandboxes reach each other through the relay inside, with an
// engine whose sandboxes have no other way out than the server's.
func TestGVisorPeers(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t, gvisorOptions(t)...)
	target, from := cloud.Create(t), cloud.Create(t)
	listen(t, target, "web.py", webServerAt("127.0.0.1", 8080))
	if got := sandboxtest.Run(t, from, "curl -sS http://"+target.Host(8080)+"/curl"); !strings.HasPrefix(got, "/curl\n") {
		t.Errorf("got %q, want the answer of the other sandbox", got)
	}
}
