//go:build linux

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/internal/pinned"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// Without internet access there is only the loopback, and programs that try to
// connect get an error at once.
func TestInternetOff(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t, sandbox.WithInternet(false))
	_, err := sb.Packages.Install(t.Context(), []string{"six"}, nil)
	if failed, ok := errors.AsType[*sandbox.InstallError](err); !ok || !failed.Offline || strings.Contains(failed.Stderr, "Retry") {
		t.Errorf("pip: %#v, want a *sandbox.InstallError that is offline and tried once", err)
	}
	if want := "WithInternet"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("pip: %v, want an error with %q", err, want)
	}
	if got := sandboxtest.Run(t, sb, "curl -sS http://example.com"); !strings.Contains(got, "example.com") || !strings.Contains(got, "internet access is off") {
		t.Errorf("curl says %q, want %q in it and %q in it", got, "example.com", "internet access is off")
	}
	for command, want := range map[string]string{
		"curl -sS https://example.com":                             "403",
		"curl -sS --noproxy '*' https://203.0.113.1":               "Failed to connect",
		"curl -sS --noproxy '*' https://example.com":               "Could not resolve host",
		"exec 5<>/dev/tcp/203.0.113.1/22":                          "Connection refused",
		"exec 5<>/dev/udp/203.0.113.1/123; echo x >&5; echo x >&5": "Connection refused",
	} {
		_, err := sb.Commands.Run(t.Context(), command, nil)
		if failed, ok := errors.AsType[*sandbox.ExitError](err); !ok || !strings.Contains(failed.Result.Stderr, want) {
			t.Errorf("%s: %v, want %s", command, err, want)
		}
	}
	const connect = "import socket\ntry:\n    socket.create_connection(('1.1.1.1', 53), 5)\nexcept OSError as e:\n    print('refused', e)"
	if execution, err := sb.RunCode(t.Context(), connect, nil); err != nil || !strings.HasPrefix(execution.Stdout, "refused") {
		t.Errorf("a socket: %q, %v, want %q at its start and no error", execution.Stdout, err, "refused")
	}
}

// The rules of a sandbox apply to requests with and without a proxy, and change while it
// runs. The cloud connects through a proxy named in the environment, which connects every
// request to one server.
func TestNetworkRules(t *testing.T) {
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "origin of "+r.Host) }))
	defer origin.Close()
	proxy := httptest.NewServer(leadTo(t, origin.Listener.Addr().String()))
	defer proxy.Close()
	t.Setenv("HTTPS_PROXY", proxy.URL)
	cloud := sandboxtest.New(t, local.WithWarm(0), local.WithProxyNames()) // only the proxy can resolve these names
	if got := cloud.Report().Egress; got != "transparent" {
		pinned.Skip(t, "sandboxes reach the network only through the proxy: %s", got)
	}
	sb := cloud.Create(t, sandbox.WithNetwork(sandbox.Network{AllowOut: []string{"*.allowed.test", "203.0.113.0/24"}, DenyOut: []string{sandbox.AllTraffic}}))
	const direct = " --noproxy '*' "
	check := func(when string, want map[string]string) {
		t.Helper()
		for arguments, want := range want {
			result, err := sb.Commands.Run(t.Context(), "curl -sS -m 20 "+arguments, nil)
			if _, failed := errors.AsType[*sandbox.ExitError](err); err != nil && !failed {
				t.Fatal(err)
			}
			said := result.Stdout + result.Stderr
			if want == "reset" && strings.Contains(said, "Failed to connect") {
				continue // the connection was reset before curl looked
			}
			if !strings.Contains(said, want) {
				t.Errorf("%s: curl %s: %q %q, want %q", when, arguments, result.Stdout, result.Stderr, want)
			}
		}
	}
	check("at first", map[string]string{
		"http://a.allowed.test/":            "origin of a.allowed.test",
		"http://203.0.113.7:8080/":          "origin of 203.0.113.7:8080",
		"http://denied.test/":               "no connection to denied.test",
		"http://198.51.100.1/":              "no connection to 198.51.100.1",
		"https://denied.test/":              "403",
		direct + "http://203.0.113.7:8080/": "origin of 203.0.113.7:8080",
		direct + "http://203.0.113.7/":      "origin of 203.0.113.7",
		direct + "--resolve a.allowed.test:80:198.51.100.1 http://a.allowed.test/":    "origin of a.allowed.test",
		direct + "--resolve denied.test:80:198.51.100.1 http://denied.test/":          "no connection to denied.test",
		direct + "--resolve denied.test:443:198.51.100.1 https://denied.test/":        "access denied",
		direct + "--resolve a.allowed.test:80:127.0.0.1 http://a.allowed.test/":       "Failed to connect",
		direct + "--resolve a.allowed.test:80:169.254.169.254 http://a.allowed.test/": "reset",
		direct + "http://198.51.100.1:8080/":                                          "reset",
		direct + "http://denied.test/":                                                "Could not resolve host",
	})
	must.Do(t, sb.SetNetwork(t.Context(), sandbox.Network{DenyOut: []string{sandbox.AllTraffic}}))
	check("closed", map[string]string{
		"http://a.allowed.test/":            "no connection to a.allowed.test",
		direct + "http://203.0.113.7:8080/": "Failed to connect",
	})
	must.Do(t, sb.SetNetwork(t.Context(), sandbox.Network{DenyOut: []string{"203.0.113.0/24"}, DenyPrivate: true}))
	check("open", map[string]string{
		"http://denied.test/":                "origin of denied.test",
		direct + "http://198.51.100.1:8080/": "origin of 198.51.100.1:8080",
		direct + "http://203.0.113.7:8080/":  "reset",
		direct + "http://10.1.2.3:8080/":     "reset",
	})
	info, err := sb.Info(t.Context())
	if err != nil || info.Network == nil {
		t.Fatalf("got %+v, %v, want the rules of the network and no error", info, err)
	}
	if got, want := info.Network.DenyOut, "203.0.113.0/24"; len(got) < 2 || got[0] != want {
		t.Errorf("denied are %q, want %q first", got, want)
	}
	seen := false
	for _, r := range cloud.Requests() {
		seen = seen || r.Method == local.MethodEgress && r.Path == "denied.test" && r.Sandbox == sb.ID()
	}
	if !seen {
		t.Error("the request log has no denial")
	}
	err = sb.SetNetwork(t.Context(), sandbox.Network{AllowOut: []string{"allowed.test"}})
	if want := "deny all traffic first"; !errors.Is(err, api.ErrInvalidArgument) || !strings.Contains(err.Error(), want) {
		t.Errorf("a name without a denial: %v, want api.ErrInvalidArgument and an error with %q", err, want)
	}
}

// A cloud without private networks denies them to every sandbox, and says so.
func TestWithoutPrivateNetworks(t *testing.T) {
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "origin of "+r.Host) }))
	defer origin.Close()
	proxy := httptest.NewServer(leadTo(t, origin.Listener.Addr().String()))
	defer proxy.Close()
	t.Setenv("HTTPS_PROXY", proxy.URL)
	for name, options := range map[string][]local.Option{"with": nil, "without": {local.WithoutPrivateNetworks()}} {
		cloud := sandboxtest.New(t, append(options, local.WithWarm(0))...)
		sb := cloud.Create(t)
		for address, private := range map[string]bool{"10.1.2.3:8080": true, "192.168.7.8:8080": true, "203.0.113.7:8080": false} {
			reached := sandboxtest.Run(t, sb, "curl -s -m 20 http://"+address+" || true") == "origin of "+address
			if want := !private || name == "with"; reached != want {
				t.Errorf("%s private networks, %s is reached: %v, want %v", name, address, reached, want)
			}
		}
		var denied []string
		for _, r := range cloud.Requests() {
			if r.Method == local.MethodEgress && r.Sandbox == sb.ID() && r.Port == 8080 {
				denied = append(denied, r.Path)
			}
		}
		slices.Sort(denied)
		want := map[string][]string{"without": {"10.1.2.3", "192.168.7.8"}}[name]
		if diff := cmp.Diff(want, slices.Compact(denied)); diff != "" {
			t.Errorf("%s private networks, denied (-want +got):\n%s", name, diff)
		}
	}
}

// A proxy on this machine can reach addresses that are forbidden to sandboxes. Names that
// it would read as an address of the machine, and names that only it can resolve, do not
// reach it in any way: through the sandbox's proxy, plain or with CONNECT, or through a
// connection to an allowed address that names another host.
func TestProxyOfTheHost(t *testing.T) {
	secret := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "secret of the host") }))
	defer secret.Close()
	var mu sync.Mutex
	var asked []string
	lead := leadTo(t, secret.Listener.Addr().String()) // as the proxy of any host does for 127.1
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked = append(asked, r.Host)
		mu.Unlock()
		lead.ServeHTTP(w, r)
	}))
	defer proxy.Close()
	t.Setenv("HTTPS_PROXY", proxy.URL)
	cloud := sandboxtest.New(t, local.WithWarm(0))
	if got := cloud.Isolation(); got != local.Full {
		t.Skipf("%s has no network of its own", got)
	}
	sb := cloud.Create(t, sandbox.WithEnvs(startsCold))
	ask := func(to, request string) string {
		t.Helper()
		code := fmt.Sprintf("import socket\ns = socket.create_connection(%s, 60)\ns.sendall(%q.encode())\nprint(s.makefile().read())", to, request)
		execution, err := sb.RunCode(t.Context(), code, nil)
		if err != nil {
			t.Fatalf("%q to %s: %v", request, to, err)
		}
		return execution.Stdout
	}
	const inside, outside = `("127.0.0.1", 3128)`, `("203.0.113.9", 80)`
	for _, host := range []string{"127.1", "2130706433", "0x7f000001", "0177.0.0.1", "0", "2852039166", "10.1", "127.0.0.1.", "nowhere.invalid"} {
		get := "/ HTTP/1.1\r\nConnection: close\r\nHost: " + host + "\r\n\r\n"
		requests := map[string]string{
			"CONNECT " + host + ":80 HTTP/1.1\r\nConnection: close\r\nHost: x\r\n\r\nGET " + get: inside,
			"GET http://" + host + get: inside,
		}
		if cloud.Report().Egress == "transparent" {
			requests["GET "+get] = outside
		}
		for request, to := range requests {
			if got := ask(to, request); !strings.HasPrefix(got, "HTTP/1.1 403") {
				t.Errorf("%q to %s: %q, want %q at its start", request, to, got, "HTTP/1.1 403")
			}
		}
	}
	mu.Lock()
	if len(asked) > 0 {
		t.Errorf("the proxy of the host was asked for %v, want none", asked)
	}
	asked = nil
	mu.Unlock()
	// The same proxy serves allowed addresses.
	if got := ask(inside, "GET http://203.0.113.9/ HTTP/1.1\r\nConnection: close\r\nHost: 203.0.113.9\r\n\r\n"); !strings.Contains(got, "secret of the host") {
		t.Errorf("an address that may be reached: %q, want %q in it", got, "secret of the host")
	}
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(asked, []string{"203.0.113.9:80"}) {
		t.Errorf("asked for %v, want %v", asked, []string{"203.0.113.9:80"})
	}
}

// leadTo returns an HTTP proxy that connects every request to one address.
func leadTo(t *testing.T, address string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			t.Errorf("the proxy was asked to %s %s, want http.MethodConnect", r.Method, r.URL)
			return
		}
		far, err := (&net.Dialer{}).DialContext(r.Context(), "tcp", address)
		if err != nil {
			if r.Context().Err() == nil { // otherwise the client is gone
				t.Error(err)
			}
			return
		}
		defer far.Close()
		near, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer near.Close()
		_, _ = io.WriteString(near, "HTTP/1.1 200 OK\r\n\r\n")
		go func() { _, _ = io.Copy(far, near); _ = far.(*net.TCPConn).CloseWrite() }()
		_, _ = io.Copy(near, far)
	})
}

// Sandboxes see nothing of each other: no files, processes, ports or variables.
func TestTwoSandboxes(t *testing.T) {
	t.Parallel()
	cloud := shared(t)
	one, two := cloud.Create(t), cloud.Create(t)
	for _, path := range []string{"/home/user/secret", "/tmp/secret"} {
		must.Do(t, one.Files.Write(t.Context(), path, []byte("secret"), nil))
		if _, err := two.Files.Read(t.Context(), path, nil); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: got %v, want fs.ErrNotExist", path, err)
		}
	}
	sandboxtest.Eval(t, one, "secret = 1")
	if got := sandboxtest.Eval(t, two, "'secret' in globals()"); got != "False" {
		t.Error("a variable is shared")
	}
	sandboxtest.Run(t, one, "nohup python3 -m http.server 3456 --bind 127.0.0.1 >/dev/null 2>&1 & echo")
	const listening = "(echo > /dev/tcp/127.0.0.1/3456) 2>/dev/null && echo open || echo closed"
	patience.Until(t, "the server in one listens", func() bool { return sandboxtest.Run(t, one, listening) == "open" })
	if got := sandboxtest.Run(t, two, listening); got != "closed" {
		t.Errorf("the port of one in two: %s, want %s", got, "closed\n")
	}
	if got := sandboxtest.Run(t, two, `grep -alz '^3456$' /proc/[0-9]*/cmdline 2>/dev/null || true`); got != "" {
		t.Errorf("two sees the processes of one: %s, want nothing", got)
	}
	must.Do(t, one.Close())
	if got := sandboxtest.Run(t, two, "echo lives"); got != "lives" {
		t.Errorf("got %q, want %q", got, "lives\n")
	}
}

// asking is a cloud whose sandboxes reach names that only its proxy can resolve, and the ports of
// hosts that it asked about.
type asking struct {
	*sandboxtest.Cloud

	mu    sync.Mutex
	asked map[string]int
}

func newAsking(t *testing.T) *asking {
	t.Helper()
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "origin of "+r.Host) }))
	t.Cleanup(origin.Close)
	proxy := httptest.NewServer(leadTo(t, origin.Listener.Addr().String()))
	t.Cleanup(proxy.Close)
	t.Setenv("HTTPS_PROXY", proxy.URL)
	a := &asking{Cloud: sandboxtest.New(t, local.WithWarm(0), local.WithProxyNames()), asked: map[string]int{}}
	if got := a.Report().Egress; got != "transparent" {
		pinned.Skip(t, "sandboxes reach the network only through the proxy: %s", got)
	}
	return a
}

// sandbox creates a sandbox that asks about most hosts. The answer is yes for names that begin so
// and for one address. There is none about never.test while the test runs.
func (a *asking) sandbox(t *testing.T) *sandbox.Sandbox {
	t.Helper()
	never := make(chan struct{})
	sb := a.Create(t, sandbox.WithNetwork(sandbox.Network{
		AllowOut: []string{"allowed.test"}, DenyOut: []string{"203.0.113.0/24"},
	}), sandbox.WithAsk(func(_ context.Context, host string, port int) bool {
		a.mu.Lock()
		a.asked[net.JoinHostPort(host, strconv.Itoa(port))]++
		a.mu.Unlock()
		switch host {
		case "panic.test":
			panic("no idea")
		case "never.test":
			<-never
		}
		return strings.HasPrefix(host, "yes") || host == "198.51.100.1"
	}))
	t.Cleanup(func() { close(never) })
	return sb
}

// times returns how often the program was asked about a port of a host.
func (a *asking) times(target string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.asked[target]
}

// targets returns the number of ports of hosts that the program was asked about.
func (a *asking) targets() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.asked)
}

// curls checks what curl prints in sb, by its arguments.
func curls(t *testing.T, sb *sandbox.Sandbox, want map[string]string) {
	t.Helper()
	for arguments, want := range want {
		if got := sandboxtest.Run(t, sb, "curl -sS -m 40 "+arguments+" 2>&1 || true"); !strings.Contains(got, want) {
			t.Errorf("curl %s: got %q, want %q", arguments, got, want)
		}
	}
}

// Before a host is reached that no rule names, the program is asked, once: with the proxy,
// by the name that a client sends, and before a name is looked up.
func TestAsk(t *testing.T) {
	a := newAsking(t)
	sb := a.sandbox(t)
	const direct = " --noproxy '*' "
	want := map[string]string{
		"http://allowed.test/":               "origin of allowed.test",
		"http://yes.test/":                   "origin of yes.test",
		"http://YES.test./":                  "origin of YES.test",
		"http://no.test/":                    "said no",
		"http://panic.test/":                 "said no",
		"http://203.0.113.7/":                "denied by the sandbox's network rules",
		"http://169.254.169.254/":            "cloud metadata",
		direct + "http://198.51.100.1:8080/": "origin of 198.51.100.1:8080",
		direct + "http://lookup.test/":       "said no",
		direct + "http://yes3.test/":         "origin of yes3.test",
		direct + "http://yes3.test:8080/":    "origin of yes3.test:8080",
		direct + "--resolve yes2.test:80:198.51.100.2 http://yes2.test/": "origin of yes2.test",
		direct + "--resolve no2.test:80:198.51.100.2 http://no2.test/":   "said no",
	}
	curls(t, sb, want)
	curls(t, sb, want) // the program is not asked again
	sandboxtest.Run(t, sb, "for i in $(seq 20); do curl -sS http://yes$i.many.test/ http://yes.many.test/ & done; wait")
	for _, target := range []string{"yes.test:80", "no.test:80", "panic.test:80", "198.51.100.1:8080", "lookup.test:80", "yes2.test:80", "yes3.test:80", "yes3.test:8080", "no2.test:80", "yes.many.test:80", "yes1.many.test:80", "yes20.many.test:80"} {
		if n := a.times(target); n != 1 {
			t.Errorf("asked about %s %d times, want 1", target, n)
		}
	}
	if n := a.targets(); n != 9+21 {
		t.Errorf("asked about %d ports of hosts, want 30", n)
	}
}

// TestAskAgain checks that an answer holds over pauses, and that a copy asks again.
func TestAskAgain(t *testing.T) {
	a := newAsking(t)
	sb := a.sandbox(t)
	answers := map[string]string{"http://yes.test/": "origin of yes.test", "http://no.test/": "said no"}
	curls(t, sb, answers)
	for _, p := range []*sandbox.PauseParams{nil, {Mode: sandbox.PauseFilesystem}} {
		must.Do(t, errors.Join(sb.Pause(t.Context(), p), sb.Resume(t.Context(), nil)))
		curls(t, sb, answers)
	}
	if yes, no, all := a.times("yes.test:80"), a.times("no.test:80"), a.targets(); yes != 1 || no != 1 || all != 2 {
		t.Errorf("after pauses: asked %d and %d times, and about %d targets, want once about each of 2", yes, no, all)
	}
	forks, err := sb.Fork(t.Context(), nil)
	if err != nil || forks[0].Err != nil {
		t.Fatal(err, forks)
	}
	defer forks[0].Sandbox.Close()
	curls(t, forks[0].Sandbox, map[string]string{"http://yes.test/": "origin of yes.test"})
	if n := a.times("yes.test:80"); n != 2 {
		t.Errorf("with a copy: asked %d times, want 2", n)
	}
}

// TestAskNobody checks that a function that never returns does not block Detach, and that
// without a handle the answer is no.
func TestAskNobody(t *testing.T) {
	a := newAsking(t)
	sb := a.sandbox(t)
	curls(t, sb, map[string]string{"http://yes.test/": "origin of yes.test"})
	second, err := sandbox.Connect(t.Context(), sb.ID(), a.Option())
	must.Do(t, err)
	defer second.Close()
	_, err = sb.Commands.Start(t.Context(), "curl -s http://never.test/", nil)
	must.Do(t, err)
	patience.Until(t, "the question that gets no answer is asked", func() bool { return a.times("never.test:80") == 1 })
	if err := sb.Detach(); err != nil {
		t.Error(err)
	}
	curls(t, second, map[string]string{"http://nobody.test/": "none is connected", "http://yes.test/": "origin of yes.test"})
	denied := false
	for entry, err := range second.Logs(t.Context(), nil) {
		must.Do(t, err)
		denied = denied || entry.Fields["host"] == "nobody.test" && strings.Contains(entry.Fields["rule"], "none is connected")
	}
	if !denied {
		t.Error("the sandbox's log does not say what was denied")
	}
	if err := second.Kill(t.Context()); err != nil {
		t.Error(err)
	}
}
