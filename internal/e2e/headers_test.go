//go:build linux

package e2e

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/cloud"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/pinned"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// internet is one https server with many names, and the requests that these received.
type internet struct {
	roots *x509.CertPool
	hold  chan chan struct{} // receives a channel that lets a request for /hold continue

	mu   sync.Mutex
	seen map[string]http.Header // by host and path
}

// last returns a host's headers of the last request for a path; nil if there was none.
func (n *internet) last(at string) http.Header {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.seen[at]
}

func (n *internet) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n.mu.Lock()
	n.seen[r.Host+r.URL.Path] = r.Header.Clone()
	n.mu.Unlock()
	if strings.HasPrefix(strings.ToUpper(r.Method), "TRAC") { // TRACE, and IIS's TRACK: echoed, as httpd does
		w.Header().Set("Content-Type", "message/http")
		_ = r.Header.Write(w)
		return
	}
	switch r.URL.Path {
	case "/away":
		http.Redirect(w, r, "https://other.test/landed", http.StatusFound)
	case "/echo":
		_, _ = io.WriteString(w, r.Header.Get("Authorization"))
	case "/hold":
		goOn := make(chan struct{})
		n.hold <- goOn
		<-goOn
	}
	_, _ = io.WriteString(w, "hello\n")
}

// newInternet starts the server, and points the machine's environment there.
func newInternet(t *testing.T) *internet {
	t.Helper()
	n := &internet{roots: x509.NewCertPool(), hold: make(chan chan struct{}), seen: map[string]http.Header{}}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Do(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"api.test", "other.test", "below.wild.test"}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must.Do(t, err)
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	n.roots.AppendCertsFromPEM(text)
	origin := httptest.NewUnstartedServer(n)
	origin.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	origin.Config.ErrorLog = log.New(io.Discard, "", 0)
	origin.EnableHTTP2 = true
	origin.StartTLS()
	t.Cleanup(origin.Close)
	proxy := httptest.NewServer(leadTo(t, origin.Listener.Addr().String()))
	t.Cleanup(proxy.Close)
	t.Setenv("HTTPS_PROXY", proxy.URL)
	return n
}

// keyless starts a cloud whose sandboxes reach the internet, and a client of it.
func keyless(t *testing.T, n *internet, state string) *sandbox.Client {
	t.Helper()
	sandboxtest.New(t, local.WithWarm(0)) // skips on a machine that cannot run one
	c, err := cloud.Start(t.Context(), cloud.Options{Roots: n.roots, ProxyNames: true, State: state, SecretsKey: strings.Repeat("0f", 32)})
	must.Do(t, err)
	client, err := sandbox.NewClient(sandbox.WithEnvFile(""), sandbox.WithAPIKey(api.Key(c.Key())), sandbox.WithAPIURL(c.URL()), sandbox.WithSandboxURL(c.URL()))
	must.Do(t, err)
	t.Cleanup(func() {
		if err := errors.Join(client.Close(), c.Close()); err != nil {
			t.Error(err)
		}
	})
	return client
}

// bearer returns the option that adds a secret to requests to api.test.
func bearer() sandbox.CreateOption {
	return sandbox.WithNetwork(sandbox.Network{Headers: map[string]map[string]string{
		"api.test": {"Authorization": "Bearer " + sandbox.SecretRef("key")}, "*.wild.test": {"X-Api-Key": sandbox.SecretRef("key")},
	}})
}

// newKeyless makes a sandbox that knows the addresses of the internet's hosts.
func newKeyless(t *testing.T, client *sandbox.Client, options ...sandbox.CreateOption) *sandbox.Sandbox {
	t.Helper()
	sb, err := client.Create(t.Context(), append([]sandbox.CreateOption{bearer()}, options...)...)
	if errors.Is(err, api.ErrInvalidArgument) && strings.Contains(err.Error(), "network.rules") {
		pinned.Skip(t, "no header rules here: %v", err)
	}
	must.Do(t, err)
	t.Cleanup(func() {
		if err := sb.Close(); err != nil {
			t.Error(err)
		}
	})
	knowHosts(t, sb)
	return sb
}

func knowHosts(t *testing.T, sb *sandbox.Sandbox) {
	t.Helper()
	result, err := sb.Commands.Run(t.Context(), "echo 203.0.113.5 api.test other.test below.wild.test evil.test >>/etc/hosts", &sandbox.CommandParams{User: "root"})
	if err != nil {
		t.Fatal(err, result)
	}
}

// secretValue is the value of the secret key. It is in two parts, so that no source file has it.
const secretValue = "sk-" + "3141592653589793-never-inside"

// withSecret makes a sandbox with the internet, in which a secret has the value secretValue.
func withSecret(t *testing.T) (*internet, *sandbox.Client, *sandbox.Sandbox) {
	t.Helper()
	n := newInternet(t)
	client := keyless(t, n, "")
	_, err := client.Secrets.Create(t.Context(), "key", &sandbox.SecretParams{Value: secretValue})
	must.Do(t, err)
	return n, client, newKeyless(t, client)
}

// putGoClient puts testdata/headers/goclient into the home directory of sb.
func putGoClient(t *testing.T, sb *sandbox.Sandbox) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "goclient")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "main.go")
	build.Dir = "testdata/headers/goclient"
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "HTTPS_PROXY=", "GO111MODULE=off") // it needs no other module
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	text, err := os.ReadFile(program)
	must.Do(t, err)
	must.Do(t, sb.Files.Write(t.Context(), "/home/user/goclient", text, nil))
	sandboxtest.Run(t, sb, "chmod +x goclient")
}

// withPackages begins the command of a client that the image does not have.
const withPackages = "PYTHONPATH=/home/user/lib python3 -c "

// secretClient is a program that asks api.test for path.
type secretClient struct {
	command, path string
	needs         string
	fails         bool // it does not get a real answer
	cleared       bool // also without an environment
}

var secretClients = map[string]secretClient{
	"curl":     {command: "curl -sS -m 30 https://api.test/curl", path: "/curl", needs: "curl", cleared: true},
	"http/1.1": {command: "curl -sS -m 30 --http1.1 https://api.test/h1", path: "/h1", needs: "curl", cleared: true},
	"wget":     {command: "wget -qO- -T 30 https://api.test/wget", path: "/wget", needs: "wget", cleared: true},
	"urllib":   {command: "python3 -c 'import urllib.request as r; print(r.urlopen(\"https://api.test/urllib\").read())'", path: "/urllib", needs: "python3", cleared: true},
	"requests": {command: "python3 -c 'import requests; print(requests.get(\"https://api.test/requests\").text)'", path: "/requests", needs: "python3", cleared: true},
	"httpx":    {command: withPackages + "'import httpx; print(httpx.get(\"https://api.test/httpx\").text)'", path: "/httpx", needs: "python3", cleared: true},
	"aiohttp": {command: withPackages + `'import aiohttp, asyncio
async def main():
    async with aiohttp.ClientSession() as s, s.get("https://api.test/aiohttp") as r: print(await r.text())
asyncio.run(main())'`, path: "/aiohttp", needs: "python3", cleared: true},
	"pip":  {command: "python3 -m pip download --no-deps --retries 0 --disable-pip-version-check --index-url https://api.test/simple nothing", path: "/simple/nothing/", needs: "python3", fails: true, cleared: true},
	"git":  {command: "git ls-remote https://api.test/repo", path: "/repo/info/refs", needs: "git", fails: true, cleared: true},
	"node": {command: `node -e 'fetch("https://api.test/node").then(r => r.text()).then(console.log)'`, path: "/node", needs: "node"},
	"Go":   {command: "./goclient https://api.test/go", path: "/go", needs: "./goclient", cleared: true},
}

// check checks that the host sees the secret, with the environment of sb and without any.
func (c secretClient) check(t *testing.T, n *internet, sb *sandbox.Sandbox) {
	t.Helper()
	commands := map[string]string{"its environment": c.command}
	if c.cleared {
		commands["none"] = `env -i PATH="$PATH" HOME=/home/user ` + strings.Replace(c.command, "PYTHONPATH", "env PYTHONPATH", 1)
	}
	for environment, command := range commands {
		n.mu.Lock()
		delete(n.seen, "api.test"+c.path)
		n.mu.Unlock()
		result, err := sb.Commands.Run(t.Context(), command, nil)
		if err != nil && !c.fails {
			t.Errorf("with %s: %v: %+v", environment, err, result)
		}
		if got := n.last("api.test" + c.path).Get("Authorization"); got != "Bearer "+secretValue {
			t.Errorf("with %s: the host saw %q, want the secret; the program: %v, %+v", environment, got, err, result)
		}
	}
}

// TestSecretsStayOutside checks that clients of all kinds, unmodified, use a secret that they never
// see: with the environment of the sandbox, through its proxy, and without any. While a request
// with the secret is on its way, nothing inside has it.
func TestSecretsStayOutside(t *testing.T) {
	packages := ""
	if os.Geteuid() == 0 { // an ordinary user's run installs nothing
		_, packages = headerClients.FindPython(t)
	}
	began := time.Now()
	n, _, sb := withSecret(t)
	if packages != "" {
		must.Do(t, sb.Files.UploadDir(t.Context(), packages, "/home/user/lib", nil))
	}
	putGoClient(t, sb)
	for name, c := range secretClients {
		t.Run(name, func(t *testing.T) {
			if packages == "" && strings.Contains(c.command, withPackages) {
				t.Skipf("%s is not installed for an ordinary user's run", name)
			}
			if _, err := sb.Commands.Run(t.Context(), "command -v "+c.needs, nil); err != nil {
				pinned.Skip(t, "sandboxes have no %s", c.needs)
			}
			c.check(t, n, sb)
		})
	}
	for name, command := range map[string]string{
		"curl":     "curl -sS https://api.test/hold",
		"requests": "python3 -c 'import requests; requests.get(\"https://api.test/hold\", timeout=100)'",
		"node":     `node -e 'fetch("https://api.test/hold")'`,
		"Go":       "./goclient https://api.test/hold",
	} {
		started, err := sb.Commands.Start(t.Context(), command, &sandbox.CommandParams{Envs: map[string]string{"MARK": "a-mark-that-is-found"}})
		must.Do(t, err)
		goOn := <-n.hold
		files, memory := searchInside(t, sb, began, secretValue), searchMemory(t, sb, secretValue)
		if files != "" || memory != "" {
			t.Errorf("%s: the secret is in %s%s", name, files, memory)
		}
		if name == "curl" && os.Geteuid() == 0 && searchMemory(t, sb, "a-mark-that-is-found") == "" {
			t.Errorf("%s: the search of the memory does not find what is there", name)
		}
		close(goOn)
		if _, err := started.Wait(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSecretsReachNoOtherHost(t *testing.T) {
	n, _, sb := withSecret(t)
	sandboxtest.Run(t, sb, `curl -sS -m 30 -k -H "Authorization: dummy" https://other.test/direct; curl -sS -m 30 -k -L https://api.test/away; curl -sS -m 30 -k --noproxy '*' https://other.test/transparent; curl -sS -m 30 https://below.wild.test/below`)
	for _, at := range []string{"other.test/direct", "other.test/landed", "other.test/transparent"} {
		got := n.last(at)
		if got == nil || strings.Contains(fmt.Sprint(got), secretValue) {
			t.Errorf("%s: saw %v, want a request without the secret", at, got)
		}
	}
	if got := n.last("below.wild.test/below"); got.Get("X-Api-Key") != secretValue || got.Get("Authorization") != "" {
		t.Errorf("below a pattern: saw %v, want X-Api-Key alone", got)
	}
	for _, trick := range []string{"-H 'Host: other.test' https://api.test/trick", "-H 'Host: api.test' https://other.test/trick"} {
		answer := sandboxtest.Run(t, sb, "curl -sS -k -m 30 -w '%{http_code}' "+trick)
		if strings.HasPrefix(trick, "-H 'Host: other") && !strings.HasSuffix(answer, "421") {
			t.Errorf("curl %s: got %s, want 421", trick, answer)
		}
	}
	if strings.Contains(fmt.Sprint(n.last("other.test/trick"), n.last("api.test/trick")), secretValue) {
		t.Error("a host that was named by another one's connection saw the secret")
	}
}

// TestSecretsEchoed checks that requests whose method makes any host repeat the headers are not
// sent to a host with a rule. A host that repeats them on its own reveals the secret, as the
// documentation says.
func TestSecretsEchoed(t *testing.T) {
	n, _, sb := withSecret(t)
	for _, version := range []string{"--http1.1", "--http2", "--noproxy '*'"} {
		for _, method := range []string{"TRACE", "trace", "Trace", "TRACK"} {
			command := fmt.Sprintf("curl -sS -m 30 -w '%%{http_code}' %s -X %s https://api.test/trace", version, method)
			if got := sandboxtest.Run(t, sb, command); strings.Contains(got, secretValue) || !strings.HasSuffix(got, "405") || n.last("api.test/trace") != nil {
				t.Errorf("%s: got %s, want 405 and nothing sent to the host", command, got)
			}
		}
	}
	if got := sandboxtest.Run(t, sb, "curl -sS -m 30 -k -X TRACE -H 'A: mine' https://other.test/trace"); !strings.Contains(got, "A: mine") {
		t.Errorf("TRACE to a host without a rule: got %s, want the request", got)
	}
	if got := sandboxtest.Run(t, sb, "curl -sS https://api.test/echo"); got != "Bearer "+secretValue+"hello" {
		t.Errorf("a host that echoes: got %q", got)
	}
}

// TestSecretDeleted checks that requests which need a secret fail with the reason once it is deleted.
func TestSecretDeleted(t *testing.T) {
	n, client, sb := withSecret(t)
	must.Do(t, client.Secrets.Delete(t.Context(), "key"))
	if got := sandboxtest.Run(t, sb, "curl -sS -w '%{http_code}' https://api.test/gone"); !strings.HasSuffix(got, "502") || !strings.Contains(got, "the secret key") || n.last("api.test/gone") != nil {
		t.Errorf("without the secret: got %s, want 502 that names it", got)
	}
}

// Each sandbox has an authority of its own, which is in no copy of its files: a sandbox made
// from these has another one. A sandbox without rules has none.
func TestAuthorities(t *testing.T) {
	n := newInternet(t)
	client := keyless(t, n, filepath.Join(t.TempDir(), "state"))
	if _, err := client.Secrets.Create(t.Context(), "key", &sandbox.SecretParams{Value: "sk-1"}); err != nil {
		t.Fatal(err)
	}
	sb := newKeyless(t, client)
	const fetch, authority = "curl -sS -m 30 https://api.test/", "cat /run/e2bctl/authority.pem"
	check := func(what string, sb *sandbox.Sandbox) string {
		t.Helper()
		knowHosts(t, sb) // each start forgets them
		if got := sandboxtest.Run(t, sb, fetch); got != "hello" {
			t.Errorf("%s: got %q, want hello", what, got)
		}
		sandboxtest.Run(t, sb, "env -i PATH=$PATH python3 -c 'import requests; requests.get(\"https://api.test/\")'")
		return sandboxtest.Run(t, sb, authority)
	}
	first := check("at first", sb)
	for command, want := range map[string]string{
		"rm -f /etc/ssl/certs/ca-certificates.crt": "busy",
		"umount /run/e2bctl":                       "",
		"echo x >/run/e2bctl/authority.pem":        "Read-only",
	} {
		_, err := sb.Commands.Run(t.Context(), command, &sandbox.CommandParams{User: "root"})
		if failed, ok := errors.AsType[*sandbox.ExitError](err); !ok || !strings.Contains(failed.Result.Stderr, want) {
			t.Errorf("%s: got %v, want a failure with %q", command, err, want)
		}
	}

	// The rules change while it runs.
	set := func(headers map[string]map[string]string) {
		t.Helper()
		must.Do(t, sb.SetNetwork(t.Context(), sandbox.Network{Headers: headers}))
	}
	set(nil)
	if _, err := sb.Commands.Run(t.Context(), fetch, nil); err == nil {
		t.Error("without rules: the certificate of the host is trusted, so it was not the host's own")
	}
	set(map[string]map[string]string{"api.test": {"X-New": "literal"}})
	if sandboxtest.Run(t, sb, fetch+"new"); n.last("api.test/new").Get("X-New") != "literal" || n.last("api.test/new").Get("Authorization") != "" {
		t.Errorf("other rules: the host saw %v, want X-New alone", n.last("api.test/new"))
	}
	set(map[string]map[string]string{"api.test": {"Authorization": "Bearer " + sandbox.SecretRef("key")}})
	info, err := sb.Info(t.Context())
	if err != nil || info.Network == nil || len(info.Network.Headers["api.test"]) != 1 {
		t.Errorf("got %+v, %v, want the rules as they were set", info, err)
	}

	// A pause keeps the authority with the memory. Without the memory there is a new one.
	must.Do(t, errors.Join(sb.Pause(t.Context(), nil), sb.Resume(t.Context(), nil)))
	if got := check("after a pause with memory", sb); got != first {
		t.Error("a pause with memory changed the authority")
	}
	snapshot, err := sb.Snapshot(t.Context(), nil)
	must.Do(t, err)
	child, err := client.Create(t.Context(), bearer(), sandbox.WithTemplate(snapshot.ID))
	must.Do(t, err)
	if got := check("a child", child); got == first || !strings.HasPrefix(got, "-----BEGIN CERTIFICATE") {
		t.Errorf("a child has the authority %q, want one of its own", got)
	}
	plain, err := client.Create(t.Context(), sandbox.WithTemplate(snapshot.ID))
	must.Do(t, err)
	if got := sandboxtest.Run(t, plain, "ls -A /run/e2bctl 2>/dev/null; grep -c /run/e2bctl /proc/self/mounts; env | grep -c /run/e2bctl; true"); got != "0\n0" {
		t.Errorf("a child without rules: got %q, want no file, mount or variable of an authority", got)
	}
	if err := plain.SetNetwork(t.Context(), sandbox.Network{Headers: map[string]map[string]string{"api.test": {"A": "b"}}}); !errors.Is(err, api.ErrInvalidArgument) {
		t.Errorf("rules for one that was made without: got %v, want api.ErrInvalidArgument", err)
	}
	if err := errors.Join(plain.Close(), child.Close()); err != nil {
		t.Error(err)
	}
	must.Do(t, errors.Join(sb.Pause(t.Context(), &sandbox.PauseParams{Mode: sandbox.PauseFilesystem}), sb.Resume(t.Context(), nil)))
	if got := check("after a pause without memory", sb); got == first {
		t.Error("a pause without memory kept the authority")
	}
}

// searchInside returns the files of a sandbox that contain a text, and the processes in
// whose memory a root of the sandbox finds it. Files that have not changed since a time are
// left out: the image has many thousands of files.
func searchInside(t *testing.T, sb *sandbox.Sandbox, since time.Time, text string) string {
	t.Helper()
	half := len(text) / 2
	code := fmt.Sprintf(`import os, stat
since = %d
text = (%q + %q).encode()
mine = str(os.getpid())
for base in ("/home", "/tmp", "/run", "/etc", "/var", "/root", "/dev/shm", "/code"):
    for dir, _, names in os.walk(base):
        for name in names:
            path = os.path.join(dir, name)
            try:
                info = os.stat(path)
                if info.st_ctime < since or not stat.S_ISREG(info.st_mode): continue
                if text in open(path, "rb").read(): print(path)
            except OSError: pass
for pid in os.listdir("/proc"):
    if not pid.isdigit() or pid == mine: continue
    for name in ("environ", "cmdline"):
        try:
            if text in open(f"/proc/{pid}/{name}", "rb").read(): print(pid, name)
        except OSError: pass
    try:
        with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
            for line in maps:
                place, access = line.split()[:2]
                if access.startswith("---"): continue # reserved: gigabytes that nothing has used
                begin, end = (int(x, 16) for x in place.split("-"))
                try:
                    memory.seek(begin)
                    if text in memory.read(min(end - begin, 64 << 20)): print(pid, line)
                except (OSError, OverflowError, ValueError): pass
    except OSError: pass`, since.Unix()-1, text[:half], text[half:])
	must.Do(t, sb.Files.Write(t.Context(), "/tmp/search.py", []byte(code), nil))
	result, err := sb.Commands.Run(t.Context(), "python3 /tmp/search.py", &sandbox.CommandParams{User: "root"})
	if err != nil {
		t.Fatal(err, result)
	}
	return result.Stdout
}

// searchMemory returns the processes of a sandbox whose memory contains a text, as the host
// sees them.
func searchMemory(t *testing.T, sb *sandbox.Sandbox, text string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		return "" // only root may do this; searchInside has searched
	}
	var found []string
	namespace := ""
	environs, err := filepath.Glob("/proc/[0-9]*/environ")
	must.Do(t, err)
	for _, path := range environs {
		environ, err := os.ReadFile(path)
		if err == nil && bytes.Contains(environ, []byte("E2B_SANDBOX_ID="+sb.ID()+"\x00")) {
			namespace, _ = os.Readlink(filepath.Join(filepath.Dir(path), "ns/pid"))
		}
	}
	if namespace == "" {
		t.Fatal("no process of the sandbox was found")
	}
	for _, path := range environs {
		dir := filepath.Dir(path)
		if in, _ := os.Readlink(filepath.Join(dir, "ns/pid")); in == namespace && memoryHas(t, dir, []byte(text)) {
			found = append(found, dir)
		}
	}
	return strings.Join(found, " ")
}

func memoryHas(t *testing.T, process string, text []byte) bool {
	t.Helper()
	maps, err := os.ReadFile(filepath.Join(process, "maps"))
	if err != nil {
		return false // it has ended
	}
	memory, err := os.Open(filepath.Join(process, "mem"))
	if err != nil {
		return false
	}
	defer memory.Close()
	part := make([]byte, 16<<20)
	for line := range strings.Lines(string(maps)) {
		var begin, end int64
		if _, err := fmt.Sscanf(line, "%x-%x rw", &begin, &end); err != nil {
			continue // only writable memory
		}
		for at := begin; at < end; at += int64(len(part)) - 256 {
			n, err := memory.ReadAt(part[:min(int64(len(part)), end-at)], at)
			if bytes.Contains(part[:n], text) {
				return true
			}
			if err != nil {
				break
			}
		}
	}
	return false
}

// TestRequestRules checks from inside a sandbox which requests reach a host with rules for requests.
// Refused ones are in the log, and the description of the sandbox has the rules.
func TestRequestRules(t *testing.T) {
	n := newInternet(t)
	only := sandbox.Network{
		DenyOut: []string{sandbox.AllTraffic}, AllowOut: []string{"other.test"},
		Requests: map[string][]sandbox.RequestRule{"api.test": {{Methods: []string{"GET"}, Path: "/simple/**"}}},
	}
	client := keyless(t, n, "")
	sb := newKeyless(t, client, sandbox.WithNetwork(only))
	curl := func(arguments, want string) {
		t.Helper()
		for _, direct := range []string{"", "--noproxy '*' "} {
			got := sandboxtest.Run(t, sb, "curl -sS -m 30 "+direct+arguments+" 2>&1; true")
			if strings.HasPrefix(want, "not ") == strings.Contains(got, strings.TrimPrefix(want, "not ")) {
				t.Errorf("curl %s%s: got %q, want %s", direct, arguments, got, want)
			}
		}
	}
	curl("https://api.test/simple/pip/", "hello")
	curl("-I https://api.test/simple/pip/", "HTTP/2 200")
	curl("--http1.1 'https://api.test/simple/a?q=1'", "hello")
	curl("-k https://other.test/", "hello")
	curl("-d x https://api.test/simple/", "do not allow POST /simple/")
	curl("https://api.test/legacy/", "do not allow GET /legacy/")
	curl("--path-as-is https://api.test/simple/%2e%2e/legacy", "do not allow GET /legacy")
	curl("-H 'X-HTTP-Method-Override: DELETE' https://api.test/simple/", "could replace the method")
	curl("http://api.test/simple/", "only https on port 443")
	curl("-k https://203.0.113.5/simple/", "not hello")
	curl("-k --connect-to evil.test:443:api.test:443 https://evil.test/", "not hello")
	if seen := n.last("api.test/legacy"); seen != nil || n.last("api.test/simple/") != nil {
		t.Error("a refused request reached its host")
	}
	const rule = "the rules for this host do not allow POST /simple/"
	told := false
	for entry, err := range sb.Logs(t.Context(), nil) {
		must.Do(t, err)
		told = told || entry.Fields["rule"] == rule
	}
	info, err := sb.Info(t.Context())
	must.Do(t, err)
	if diff := cmp.Diff(only.Requests, info.Network.Requests); diff != "" || !told {
		t.Errorf("the log has the refusal: %v; rules (-want +got):\n%s", told, diff)
	}
	// The rules change while it runs, for its connections that are open, too.
	only.Requests = map[string][]sandbox.RequestRule{"api.test": {{Path: "/legacy/"}}}
	must.Do(t, sb.SetNetwork(t.Context(), only))
	curl("-d x https://api.test/legacy/", "hello")
	curl("https://api.test/simple/", "do not allow GET /simple/")
	only.Requests["api.test"] = nil
	if err := sb.SetNetwork(t.Context(), only); !errors.Is(err, api.ErrInvalidArgument) || !strings.Contains(err.Error(), "empty") {
		t.Errorf("an empty list of requests: got error %v", err)
	}
}
