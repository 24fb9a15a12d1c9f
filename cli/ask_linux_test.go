package cli

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// asking is a local cloud that asks on a terminal, whose sandboxes reach one server by any name.
type asking struct {
	*person
	home string
	env  []string
}

func newAsking(t *testing.T) *asking {
	t.Helper()
	sandboxtest.New(t, local.WithWarm(0)) // skips on a machine that cannot run a local cloud
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "origin of "+r.Host) }))
	t.Cleanup(origin.Close)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { tunnel(w, r, origin.Listener.Addr().String()) }))
	t.Cleanup(proxy.Close)
	cache, err := os.UserCacheDir()
	must.Do(t, err)
	a := &asking{home: t.TempDir()}
	must.Do(t, os.Chmod(a.home, 0o700)) //nolint:gosec // a directory needs the bit for its owner
	a.env = append(os.Environ(), "HOME="+a.home, "XDG_RUNTIME_DIR="+a.home, "XDG_STATE_HOME="+a.home, "XDG_CACHE_HOME="+cache, "HTTPS_PROXY="+proxy.URL, "E2BCTL_LOCAL=1")
	a.person = inTerminal(t, a.home, a.env, "local", "up", "--ask", "--proxy-names", "--warm", "0")
	a.sees("Ctrl-C ends it")
	return a
}

// tunnel leads a CONNECT request to a server, whatever it names.
func tunnel(w http.ResponseWriter, r *http.Request, address string) {
	far, err := (&net.Dialer{}).DialContext(r.Context(), "tcp", address)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer far.Close()
	near, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer near.Close()
	_, _ = io.WriteString(near, "HTTP/1.1 200 OK\r\n\r\n")
	go func() { _, _ = io.Copy(far, near); _ = far.(*net.TCPConn).CloseWrite() }()
	_, _ = io.Copy(near, far)
}

// e2bctl runs a command and returns its output.
func (a *asking) e2bctl(args ...string) string {
	a.t.Helper()
	cmd := exec.CommandContext(a.t.Context(), "e2bctl", args...)
	cmd.Env, cmd.Dir = a.env, a.home
	out, err := cmd.Output()
	if err != nil {
		a.t.Errorf("e2bctl %q: %v; the screen: %q", args, err, a.shown())
	}
	return strings.TrimSpace(string(out))
}

// reaches has a sandbox ask a host for a page. The page, or the refusal, is sent.
func (a *asking) reaches(id, host string) <-chan string {
	page := make(chan string, 1)
	go func() { page <- a.e2bctl("exec", id, "curl -sS -m 60 http://"+host+"/ 2>&1 || true") }()
	return page
}

// gets checks a page.
func (a *asking) gets(page <-chan string, want string) {
	a.t.Helper()
	if got := <-page; !strings.Contains(got, want) {
		a.t.Errorf("the sandbox got %q, want %q", got, want)
	}
}

// answers types a line when the question on the screen has stood there long enough to be read.
func (a *asking) answers(line string) {
	a.t.Helper()
	shown := time.Now()
	patience.Until(a.t, "the question can have been read", func() bool { return time.Since(shown) > time.Second/2 })
	a.types(line + "\r")
}

func (a *asking) questions() int { return strings.Count(a.shown(), "wants to reach") }

// TestAsk checks that there is one question for each host, that the answers yes, no and always
// take effect, and that a second question waits for the answer to the first.
func TestAsk(t *testing.T) {
	t.Parallel()
	a := newAsking(t)
	id := a.e2bctl("create", "-q")
	for _, test := range []struct{ host, typed, want string }{
		{"yes.test", "y", "origin of yes.test"}, {"no.test", "", "said no"}, {"other.test", "maybe", "said no"}, {"always.test", "a", "origin of always.test"},
	} {
		page := a.reaches(id, test.host)
		a.sees("sandbox " + id + " wants to reach " + test.host + ":80: allow? [y]es / [N]o / [a]lways ")
		a.answers(test.typed)
		a.gets(page, test.want)
	}
	a.gets(a.reaches(id, "yes.test"), "origin of yes.test")
	a.gets(a.reaches(id, "no.test"), "said no")
	other := a.reaches(id, "yes.test:8080")
	a.sees("wants to reach yes.test:8080")
	a.answers("n")
	a.gets(other, "said no")
	if n := a.questions(); n != 5 {
		t.Errorf("%d questions were asked, want one for each host and port", n)
	}

	one, two := a.reaches(id, "one.test"), a.reaches(id, "two.test")
	patience.Until(t, "the next question", func() bool { return a.questions() == 6 })
	a.answers("y")
	patience.Until(t, "the last question", func() bool { return a.questions() == 7 })
	a.answers("y")
	a.gets(one, "origin of one.test")
	a.gets(two, "origin of two.test")
	if got := a.e2bctl("local", "status", "--jq", ".[].ask"); got != "true" {
		t.Errorf("local status says %q about its questions", got)
	}
	a.always(id)
	a.types("\x03")
	a.ends(0)
}

// always checks that an answer holds for other sandboxes until it is taken back.
func (a *asking) always(id string) {
	t := a.t
	t.Helper()
	if got := a.e2bctl("local", "ask", "ls", "-o", "name"); got != "always.test:80" {
		t.Errorf("always allowed is %q, want always.test:80", got)
	}
	info, err := os.Stat(filepath.Join(a.home, "e2bctl", "cloud", "allowed-hosts.json"))
	must.Do(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("others can read the list: %v", info.Mode())
	}
	before := a.questions()
	second := a.e2bctl("create", "-q")
	a.gets(a.reaches(second, "always.test"), "origin of always.test")
	if n := a.questions(); n != before {
		t.Errorf("%d questions were asked, want %d", n, before)
	}
	port := a.reaches(second, "always.test:8080")
	a.sees("sandbox " + second + " wants to reach always.test:8080")
	a.answers("n")
	a.gets(port, "said no")
	if got := a.e2bctl("local", "ask", "forget", "ALWAYS.test:80", "--jq", `.[] | "\(.host) \(.port)"`); got != "always.test 80" {
		t.Errorf("forgotten is %q, want always.test and port 80", got)
	}
	third := a.e2bctl("create", "-q")
	page := a.reaches(third, "always.test")
	a.sees("sandbox " + third + " wants to reach always.test")
	a.answers("n")
	a.gets(page, "said no")
	a.gets(a.reaches(id, "always.test"), "origin of always.test") // for its life
	offline := a.e2bctl("create", "-q", "--no-internet")
	a.gets(a.reaches(offline, "offline.test"), "internet access is off")
}
