//go:build linux

package cloud

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/mounts"
	"github.com/e2bctl/e2bctl/internal/cloud/network"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// served is a cloud as a service, with the secrets of its operator.
type served struct {
	*Cloud
	t       *testing.T
	fake    *fakeRoom
	options *Service
	key     string // the API key in the file
	roots   *x509.CertPool
	logged  *safeBuffer
}

type safeBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// newKey returns an API key.
func newKey() string {
	var b [20]byte
	_, _ = rand.Read(b[:])
	return "e2b_" + hex.EncodeToString(b[:])
}

// writeCertificate writes a certificate for 127.0.0.2, and its key. It returns the certificate.
func writeCertificate(t *testing.T, s *Service, name string) *x509.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Do(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), DNSNames: []string{name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 2)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must.Do(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	must.Do(t, err)
	must.Do(t, os.WriteFile(s.CertFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	must.Do(t, os.WriteFile(s.KeyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))
	cert, err := x509.ParseCertificate(der)
	must.Do(t, err)
	return cert
}

// startService starts a service on 127.0.0.2 with TLS, a key in a file, and metrics. change changes
// its options.
func startService(t *testing.T, change func(*Service)) *served {
	t.Helper()
	dir := t.TempDir()
	s := &served{t: t, key: newKey(), roots: x509.NewCertPool(), logged: &safeBuffer{}, options: &Service{
		CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key"), KeyFiles: []string{filepath.Join(dir, "keys")},
		Hosts: []string{"e2b"}, MetricsAddress: "127.0.0.3:0",
	}}
	s.roots.AddCert(writeCertificate(t, s.options, "e2b"))
	must.Do(t, os.WriteFile(s.options.KeyFiles[0], []byte("# the team\n\n"+s.key+"\n"), 0o600))
	if change != nil {
		change(s.options)
	}
	s.Cloud, s.fake = startFake(t, Options{Address: "127.0.0.2:0", Service: s.options, Logger: slog.New(slog.NewJSONHandler(s.logged, nil))})
	t.Cleanup(func() {
		if strings.Contains(s.logged.String(), strings.TrimPrefix(s.key, "e2b_")) {
			t.Errorf("the log has the API key: %s", s.logged)
		}
	})
	return s
}

// asking is a request to a service. header has names and values.
type asking struct {
	method, path, body string
	header             []string
}

func (s *served) ask(q asking) (status int, text string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), q.method, s.URL()+q.path, strings.NewReader(q.body))
	must.Do(s.t, err)
	for i := 0; i < len(q.header); i += 2 {
		if q.header[i] == "Host" {
			r.Host = q.header[i+1]
			continue
		}
		r.Header.Set(q.header[i], q.header[i+1])
	}
	return answerOf(s.t, s.transport(), r)
}

// transport returns a new transport that trusts the service. Its idle connections end with the test.
func (s *served) transport() *http.Transport {
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: s.roots, ServerName: "127.0.0.2"}} //nolint:gosec // the server decides about the version
	s.t.Cleanup(transport.CloseIdleConnections)
	return transport
}

func answerOf(t *testing.T, transport *http.Transport, r *http.Request) (status int, text string) {
	t.Helper()
	res, err := transport.RoundTrip(r)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	must.Do(t, err)
	return res.StatusCode, string(body)
}

// ofMetrics asks the address of the metrics.
func (s *served) ofMetrics(path string) (status int, text string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, "http://"+s.MetricsAddress().String()+path, nil)
	must.Do(s.t, err)
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	return answerOf(s.t, transport, r)
}

// boxAnswer has the tokens in the answer to create.
type boxAnswer struct{ SandboxID, EnvdAccessToken, TrafficAccessToken string }

func (s *served) create(path, body string) boxAnswer {
	s.t.Helper()
	status, text := s.ask(asking{"POST", path, body, []string{"X-Api-Key", s.key}})
	var got boxAnswer
	if err := json.Unmarshal([]byte(text), &got); err != nil || status != http.StatusCreated {
		s.t.Fatalf("create: got %d %s (%v), want 201", status, text, err)
	}
	return got
}

// TestServiceAttacker tries everything that somebody without a valid key or token can try, and
// everything that no key permits.
func TestServiceAttacker(t *testing.T) {
	t.Parallel()
	s := startService(t, nil)
	box := s.create("/sandboxes", `{"templateID":"base","timeout":300,"secure":false}`)
	private := s.create("/v2/sandboxes", `{"templateID":"base","timeout":300,"network":{"allowPublicTraffic":false}}`)
	keyed := func(rest ...string) []string { return append([]string{"X-Api-Key", s.key}, rest...) }
	to := func(id, port string, rest ...string) []string {
		return append([]string{"E2b-Sandbox-Id", id, "E2b-Sandbox-Port", port}, rest...)
	}
	const run = `{"code":"1"}`
	for name, q := range map[string]struct {
		asking
		status int
		say    string
	}{
		"no key":                          {asking{"GET", "/v2/sandboxes", "", nil}, 401, "API key is missing"},
		"wrong key":                       {asking{"GET", "/v2/sandboxes", "", []string{"X-Api-Key", newKey()}}, 401, "the files of API keys of this server do not have it"},
		"key of the state":                {asking{"GET", "/v2/sandboxes", "", []string{"X-Api-Key", keyOf(s.store)}}, 401, "Invalid API key"},
		"empty key":                       {asking{"GET", "/v2/sandboxes", "", []string{"X-Api-Key", ""}}, 401, "API key is missing"},
		"wrong host":                      {asking{"GET", "/v2/sandboxes", "", keyed("Host", "evil.example")}, 421, "--host"},
		"name of a private host":          {asking{"GET", "/v2/sandboxes", "", keyed("Host", "metadata.google.internal")}, 421, "--host"},
		"host of the service":             {asking{"GET", "/v2/sandboxes", "", keyed("Host", "E2B:3000")}, 200, box.SandboxID},
		"code without a token":            {asking{"POST", "/execute", run, to(box.SandboxID, "49999")}, 403, "X-Access-Token"},
		"code by name without a token":    {asking{"POST", "/execute", run, []string{"Host", "49999-" + box.SandboxID + ".localhost"}}, 403, "X-Access-Token"},
		"code with another's token":       {asking{"POST", "/execute", run, to(box.SandboxID, "49999", "X-Access-Token", private.EnvdAccessToken)}, 403, "X-Access-Token"},
		"code with another's traffic":     {asking{"POST", "/execute", run, to(box.SandboxID, "49999", "E2b-Traffic-Access-Token", private.TrafficAccessToken)}, 403, "X-Access-Token"},
		"code with an empty token":        {asking{"POST", "/execute", run, to(box.SandboxID, "49999", "X-Access-Token", "")}, 403, "X-Access-Token"},
		"code with a key":                 {asking{"POST", "/execute", run, to(box.SandboxID, "49999", "X-Api-Key", s.key)}, 403, "X-Access-Token"},
		"code with a token in the query":  {asking{"POST", "/execute?token=" + box.EnvdAccessToken, run, to(box.SandboxID, "49999")}, 403, "X-Access-Token"},
		"kernels without a token":         {asking{"GET", "/api/kernels", "", to(box.SandboxID, "8888")}, 403, "X-Access-Token"},
		"kernels with a wrong token":      {asking{"GET", "/api/kernels?token=a", "", to(box.SandboxID, "8888", "Authorization", "token b")}, 403, "X-Access-Token"},
		"private port without a token":    {asking{"GET", "/", "", to(private.SandboxID, "3000")}, 403, "is missing"},
		"private port with a wrong token": {asking{"GET", "/", "", to(private.SandboxID, "3000", "E2b-Traffic-Access-Token", box.TrafficAccessToken)}, 403, "is invalid"},
		"private code, access token only": {asking{"POST", "/execute", run, to(private.SandboxID, "49999", "X-Access-Token", private.EnvdAccessToken)}, 403, "is missing"},
		"reserved path":                   {asking{"POST", "/init", "{}", to(box.SandboxID, "49983", "X-Access-Token", box.EnvdAccessToken)}, 404, ""},
		"new API key":                     {asking{"POST", "/api-keys", `{"name":"mine"}`, keyed()}, 403, "in files"},
		"API key renamed":                 {asking{"PATCH", "/api-keys/00000000-0000-4000-8000-000000000001", `{"name":"mine"}`, keyed()}, 403, "in files"},
		"API key deleted":                 {asking{"DELETE", "/api-keys/00000000-0000-4000-8000-000000000001", "", keyed()}, 403, "in files"},
		"mount of the host":               {asking{"POST", "/v2/sandboxes", `{"templateID":"base","mounts":[{"dir":"/etc","path":"/mnt"}]}`, keyed()}, 403, "use a volume"},
		"metrics from outside":            {asking{"GET", "/metrics", "", keyed()}, 404, ""},
		"readiness from outside":          {asking{"GET", "/readyz", "", nil}, 401, ""},
		"body over its bound":             {asking{"POST", "/v2/sandboxes", strings.Repeat(" ", 16<<20+1), keyed()}, 413, "16 MiB"},
		"body without a key":              {asking{"POST", "/v2/sandboxes", strings.Repeat(" ", 16<<20+1), nil}, 401, ""},

		// What is permitted goes on to the port, which is closed in this sandbox.
		"code with the access token":     {asking{"POST", "/execute", run, to(box.SandboxID, "49999", "X-Access-Token", box.EnvdAccessToken)}, 502, "port is not open"},
		"code with the traffic token":    {asking{"POST", "/contexts", run, to(box.SandboxID, "49999", "E2b-Traffic-Access-Token", box.TrafficAccessToken)}, 502, "port is not open"},
		"preflight of a browser":         {asking{"OPTIONS", "/execute", "", to(box.SandboxID, "49999", "Origin", "https://a.test", "Access-Control-Request-Method", "POST")}, 502, "port is not open"},
		"kernels with the query's token": {asking{"GET", "/api/kernels?token=" + box.EnvdAccessToken, "", to(box.SandboxID, "8888")}, 502, "port is not open"},
		"kernels with an authorization":  {asking{"GET", "/api/kernels", "", to(box.SandboxID, "8888", "Authorization", "Token "+box.EnvdAccessToken)}, 502, "port is not open"},
		"public port":                    {asking{"GET", "/", "", to(box.SandboxID, "3000")}, 502, "port is not open"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := *s
			s.t = t
			if status, text := s.ask(q.asking); status != q.status || !strings.Contains(text, q.say) {
				t.Errorf("got %d %.300s, want %d with %q", status, text, q.status, q.say)
			}
		})
	}
}

// TestServiceSandboxes checks that a sandbox of a service is secure and reaches no private network,
// whatever was requested.
func TestServiceSandboxes(t *testing.T) {
	t.Parallel()
	s := startService(t, nil)
	box := s.create("/sandboxes", `{"templateID":"base","timeout":300,"secure":false,"network":{"allowOut":["10.0.0.0/8","192.168.1.1","private.test"],"denyOut":["0.0.0.0/0"]}}`)
	options := s.fake.boxes[box.SandboxID].options
	if token := options.Config.AccessToken; token == "" || token != box.EnvdAccessToken || box.TrafficAccessToken == "" {
		t.Errorf("got the access token %q inside and %+v in the answer, want one and the same, and a traffic token", token, box)
	}
	for _, address := range []string{"10.1.2.3", "192.168.1.1", "100.64.0.1", "fd00::1", "169.254.169.254", "127.0.0.2"} {
		_, err := options.Egress.(*network.Egress).Reach(t.Context(), address, 443)
		if _, denied := errors.AsType[*network.DeniedError](err); !denied {
			t.Errorf("%s: got %v, want a denial", address, err)
		}
	}
	if options := s.fake.options; options.Isolation != engine.Full {
		t.Errorf("got isolation %q, want full", options.Isolation)
	}
}

func TestPublicCode(t *testing.T) {
	t.Parallel()
	s := startService(t, func(o *Service) { o.PublicCode = true })
	box := s.create("/sandboxes", `{"templateID":"base","timeout":300}`)
	if box.EnvdAccessToken == "" || box.TrafficAccessToken != "" {
		t.Errorf("got %+v, want only an access token", box)
	}
	status, text := s.ask(asking{"POST", "/execute", "{}", []string{"E2b-Sandbox-Id", box.SandboxID, "E2b-Sandbox-Port", "49999"}})
	if status != http.StatusBadGateway {
		t.Errorf("got %d %s, want a request that is not refused", status, text)
	}
}

// TestKeysFileChanges checks that each change of a file of keys takes effect with the next request.
func TestKeysFileChanges(t *testing.T) {
	t.Parallel()
	s := startService(t, nil)
	other, file := newKey(), s.options.KeyFiles[0]
	for _, step := range []struct {
		name   string
		change func() error
		status [2]int // with the first and with the other key
		ready  int
		keys   int // in a list; 0: no key can list
	}{
		{"at first", func() error { return nil }, [2]int{200, 401}, 200, 1},
		{"replaced", func() error { return os.WriteFile(file, []byte(other+"\n"), 0o600) }, [2]int{401, 200}, 200, 1},
		{"both", func() error { return os.WriteFile(file, []byte(other+"\n"+s.key), 0o600) }, [2]int{200, 200}, 200, 2},
		{"a bad line", func() error { return os.WriteFile(file, []byte("e2b_short\n"+s.key), 0o600) }, [2]int{200, 401}, 200, 1},
		{"too large", func() error { return os.WriteFile(file, []byte(s.key+strings.Repeat("\n", 64<<10)), 0o600) }, [2]int{401, 401}, 503, 0},
		{"another file", func() error {
			if err := os.WriteFile(file+".new", []byte(other), 0o600); err != nil {
				return err
			}
			return os.Rename(file+".new", file)
		}, [2]int{401, 200}, 200, 1},
		{"removed", func() error { return os.Remove(file) }, [2]int{401, 401}, 503, 0},
		{"back", func() error { return os.WriteFile(file, []byte(s.key), 0o600) }, [2]int{200, 401}, 200, 1},
	} {
		must.Do(t, step.change())
		for i, key := range []string{s.key, other} {
			status, text := s.ask(asking{"GET", "/api-keys", "", []string{"X-Api-Key", key}})
			if status != step.status[i] {
				t.Errorf("%s, key %d: got %d %s, want %d", step.name, i, status, text, step.status[i])
			}
			if status == http.StatusOK && (strings.Count(text, `"name":"keys"`) != step.keys || strings.Contains(text, key)) {
				t.Errorf("%s: got %s, want %d keys without their values", step.name, text, step.keys)
			}
		}
		if status, text := s.ofMetrics("/readyz"); status != step.ready {
			t.Errorf("%s: got %d %s from /readyz, want %d", step.name, status, text, step.ready)
		}
	}
	if strings.Contains(s.logged.String(), strings.TrimPrefix(other, "e2b_")) || !strings.Contains(s.logged.String(), "line 1") {
		t.Errorf("got the log %s, want one with the bad line's number and without a key", s.logged)
	}
}

// TestCertificateChanges checks that new connections have the certificate that the files have, and
// that files which do not belong together leave the previous one in use.
func TestCertificateChanges(t *testing.T) {
	t.Parallel()
	s := startService(t, nil)
	name := func() string {
		conn, err := tls.Dial("tcp", s.address.String(), &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // the test looks at the certificate
		must.Do(t, err)
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].DNSNames[0]
	}
	if got := name(); got != "e2b" {
		t.Fatalf("got a certificate for %s, want e2b", got)
	}
	writeCertificate(t, s.options, "second.test")
	if got := name(); got != "second.test" {
		t.Errorf("got a certificate for %s, want the new one", got)
	}
	must.Do(t, os.WriteFile(s.options.CertFile, []byte("no certificate"), 0o600))
	if got := name(); got != "second.test" || !strings.Contains(s.logged.String(), "the previous certificate is used") {
		t.Errorf("got a certificate for %s and the log %s, want the previous one and a line about it", got, s.logged)
	}
	must.Do(t, os.Remove(s.options.KeyFile))
	if got := name(); got != "second.test" {
		t.Errorf("got a certificate for %s, want the previous one", got)
	}
	writeCertificate(t, s.options, "third.test")
	if got := name(); got != "third.test" {
		t.Errorf("got a certificate for %s, want the newest one", got)
	}
}

// TestServiceTLS checks that a port with TLS speaks nothing else, and no old version of it.
func TestServiceTLS(t *testing.T) {
	t.Parallel()
	s := startService(t, nil)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.address.String()+"/v2/sandboxes", nil)
	must.Do(t, err)
	r.Header.Set("X-Api-Key", s.key)
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	if status, text := answerOf(t, transport, r); status != http.StatusBadRequest || !strings.Contains(text, "HTTPS") {
		t.Errorf("plain HTTP: got %d %s, want 400", status, text)
	}
	_, err = tls.Dial("tcp", s.address.String(), &tls.Config{RootCAs: s.roots, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}) //nolint:gosec // the server must refuse it
	if err == nil {
		t.Error("TLS 1.1: got a connection, want an error")
	}
}

// TestBehindProxy checks that a service behind a proxy speaks plain HTTP, and that its addresses are
// those of the proxy.
func TestBehindProxy(t *testing.T) {
	t.Parallel()
	s := startService(t, func(o *Service) { o.BehindProxy, o.CertFile, o.KeyFile = true, "", "" })
	if !strings.HasPrefix(s.URL(), "http://127.0.0.2:") {
		t.Errorf("got the URL %s, want http", s.URL())
	}
	status, text := s.ask(asking{"GET", "/v2/sandboxes", "", []string{"X-Api-Key", s.key}})
	if status != http.StatusOK {
		t.Errorf("got %d %s, want 200", status, text)
	}
	status, text = s.ask(asking{"POST", "/v3/templates", `{"name":"mine"}`, []string{"X-Api-Key", s.key}})
	var built struct{ TemplateID string }
	if err := json.Unmarshal([]byte(text), &built); err != nil || built.TemplateID == "" {
		t.Fatalf("got %d %s, want a template", status, text)
	}
	files := "/templates/" + built.TemplateID + "/files/" + strings.Repeat("0", 64)
	for proto, want := range map[string]string{"": "http://", "http": "http://", "https": "https://"} {
		_, text := s.ask(asking{"GET", files, "", []string{"X-Api-Key", s.key, "X-Forwarded-Proto", proto, "Host", "e2b"}})
		var link struct{ URL string }
		if err := json.Unmarshal([]byte(text), &link); err != nil || !strings.HasPrefix(link.URL, want+"e2b/") {
			t.Errorf("X-Forwarded-Proto %q: got %s, want an address that begins with %se2b/", proto, text, want)
		}
	}
}

// TestServiceDomain checks which port of the domain clients are told.
func TestServiceDomain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		behind bool
		domain string
		port   int
		hides  bool
	}{{true, "e2b.example.com", 3000, true}, {true, "localhost", 3000, false}, {false, "e2b.example.com", 3000, false}, {false, "e2b.example.com", 443, true}} {
		s := &Service{BehindProxy: c.behind}
		if got := s.hidesPort(c.domain, &net.TCPAddr{Port: c.port}); got != c.hides {
			t.Errorf("%+v: got %v", c, got)
		}
	}
}

// TestServiceRefusals checks that a service does not start where it would be open, and that the
// error contains the remedy.
func TestServiceRefusals(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		must.Do(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	secret := newKey()[:30]
	good := write("good", newKey())
	for name, c := range map[string]struct {
		options Options
		want    string
	}{
		"no TLS":          {Options{Service: &Service{KeyFiles: []string{good}}}, "--behind-proxy"},
		"half of TLS":     {Options{Service: &Service{CertFile: good, KeyFiles: []string{good}}}, "give both"},
		"TLS twice":       {Options{Service: &Service{BehindProxy: true, CertFile: good, KeyFile: good, KeyFiles: []string{good}}}, "leave out --behind-proxy"},
		"no certificate":  {Options{Service: &Service{CertFile: good, KeyFile: good, KeyFiles: []string{good}}}, "the files of TLS"},
		"no keys":         {Options{Service: &Service{BehindProxy: true}}, "--keys-file"},
		"missing keys":    {Options{Service: &Service{BehindProxy: true, KeyFiles: []string{filepath.Join(dir, "none")}}}, "no such file"},
		"empty keys":      {Options{Service: &Service{BehindProxy: true, KeyFiles: []string{write("empty", "# none\n")}}}, "openssl rand"},
		"weak key":        {Options{Service: &Service{BehindProxy: true, KeyFiles: []string{write("weak", "\n"+secret)}}}, "line 2"},
		"bad host":        {Options{Service: &Service{BehindProxy: true, KeyFiles: []string{good}, Hosts: []string{"e2b:3000"}}}, "without a port"},
		"weak isolation":  {Options{Isolation: engine.Restricted, Service: &Service{BehindProxy: true, KeyFiles: []string{good}}}, "leave out --isolation"},
		"mounts":          {Options{Mounts: []mounts.Mount{{Dir: dir, Path: "/mnt"}}, Service: &Service{BehindProxy: true, KeyFiles: []string{good}}}, "use volumes"},
		"allowed mounts":  {Options{AllowMounts: []mounts.Allowed{{Dir: dir}}, Service: &Service{BehindProxy: true, KeyFiles: []string{good}}}, "use volumes"},
		"address of none": {Options{Address: "192.0.2.1:0", Service: &Service{BehindProxy: true, KeyFiles: []string{good}}}, "listen tcp 192.0.2.1:0"},
		"metrics of none": {Options{Service: &Service{BehindProxy: true, KeyFiles: []string{good}, MetricsAddress: "192.0.2.1:0"}}, "metrics: listen tcp"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := c.options
			o.Dir = t.TempDir()
			c2, err := start(t.Context(), o, map[engine.Name]opener{engine.Room: func(context.Context, *Cloud, string) (engine.Engine, error) {
				return nil, errors.New("it was opened")
			}})
			if err == nil {
				must.Do(t, c2.Close())
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), secret) {
				t.Errorf("got %v, want an error with %q and without a key", err, c.want)
			}
			if left, _ := filepath.Glob(filepath.Join(o.Dir, "*")); len(left) > 0 {
				t.Errorf("left %v", left)
			}
		})
	}
}

// weakRoom is an engine that isolates less than fully.
type weakRoom struct{ *fakeRoom }

func (weakRoom) Report() engine.Report {
	return engine.Report{Engine: engine.Wasm, Isolation: engine.Restricted, IsolationNote: "the kernel refuses namespaces"}
}

// TestServiceWeakEngine checks that a template does not bring a weak engine into a service.
func TestServiceWeakEngine(t *testing.T) {
	t.Parallel()
	s := startService(t, nil)
	fake := &fakeRoom{name: engine.Wasm, ended: make(chan struct{}), boxes: map[string]*fakeSandbox{}}
	s.engines.all[engine.Wasm] = &lazyEngine{open: func(context.Context) (engine.Engine, error) { return weakRoom{fake}, nil }}
	_, err := s.engines.get(t.Context(), engine.Wasm)
	if err == nil || !strings.Contains(err.Error(), "the kernel refuses namespaces") || !fake.closed {
		t.Errorf("got %v and closed %v, want a refusal with the reason, and a closed engine", err, fake.closed)
	}
}

// TestServiceMetrics checks the metrics, which must be well-formed and must not have ids of
// sandboxes.
func TestServiceMetrics(t *testing.T) {
	t.Parallel()
	s := startService(t, nil)
	box := s.create("/v2/sandboxes", `{"templateID":"base","timeout":300}`)
	s.ask(asking{"GET", "/health", "", []string{"E2b-Sandbox-Id", box.SandboxID, "E2b-Sandbox-Port", "49983"}})
	s.ask(asking{"GET", "/x", "", []string{"E2b-Sandbox-Id", box.SandboxID, "E2b-Sandbox-Port", "3000"}})
	s.ask(asking{"GET", "/nowhere/" + box.SandboxID, "", nil})
	status, text := s.ofMetrics("/metrics")
	if status != http.StatusOK || strings.Contains(text, box.SandboxID) {
		t.Fatalf("got %d and %s, want metrics without ids", status, text)
	}
	for _, want := range []string{
		`e2bctl_sandboxes{state="running"} 1`, `e2bctl_sandboxes_max 100`, `e2bctl_api_keys 1`,
		`e2bctl_requests_total{operation="CreateSandbox",code="2xx"} 1`, `e2bctl_requests_total{operation="sandbox-envd",code="2xx"} 1`,
		`e2bctl_requests_total{operation="sandbox-port",code="5xx"} 1`, `e2bctl_requests_total{operation="other",code="4xx"} 1`,
		`e2bctl_request_duration_seconds_bucket{operation="CreateSandbox",le="+Inf"} 1`, `e2bctl_request_duration_seconds_count{operation="CreateSandbox"} 1`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("got %s, want the line %s", text, want)
		}
	}
	line := regexp.MustCompile(`^(# (HELP [a-z0-9_]+ .+|TYPE [a-z0-9_]+ (gauge|counter|histogram))|[a-z0-9_]+(\{[a-z]+="[^"\\]*"(,[a-z]+="[^"\\]*")*\})? [0-9.e+-]+)$`)
	for one := range strings.Lines(text) {
		if !line.MatchString(strings.TrimSuffix(one, "\n")) {
			t.Errorf("the line %q is not in the format of Prometheus", one)
		}
	}
	if status, _ := s.ofMetrics("/v2/sandboxes"); status != http.StatusNotFound {
		t.Errorf("got %d for the API at the address of the metrics, want 404", status)
	}
}

// TestIdleServiceConnections opens ten thousand connections that send nothing, and more that begin
// and do not go on. A client with a key is answered beside them, and they all end.
func TestIdleServiceConnections(t *testing.T) {
	t.Parallel()
	s := startService(t, nil)
	half, err := tls.Dial("tcp", s.address.String(), &tls.Config{RootCAs: s.roots, ServerName: "127.0.0.2"}) //nolint:gosec // the server decides about the version
	must.Do(t, err)
	defer half.Close()
	_, err = io.WriteString(half, "POST /v2/sandboxes HTTP/1.1\r\nHost: e2b\r\nX-Slow: ")
	must.Do(t, err)
	limit := s.limit.Max()
	held := make([]net.Conn, limit+100)
	defer func() {
		for _, conn := range held {
			if conn != nil {
				_ = conn.Close()
			}
		}
	}()
	for i := range 10_000 {
		conn, err := net.Dial("tcp", s.address.String())
		must.Do(t, err)
		if i%3 == 0 {
			_, _ = conn.Write([]byte{0x16, 3, 1}) // the beginning of a handshake
		}
		if old := held[i%len(held)]; old != nil {
			_ = old.Close()
		}
		held[i%len(held)] = conn
	}
	if status, text := s.ask(asking{"GET", "/v2/sandboxes", "", []string{"X-Api-Key", s.key}}); status != http.StatusOK {
		t.Errorf("got %d %s beside idle connections, want 200", status, text)
	}
	if open := s.limit.Count(); open > limit {
		t.Errorf("got %d open connections, want at most %d", open, limit)
	}
	for _, conn := range append(held[:min(len(held), 3)], half) {
		_ = conn.SetReadDeadline(patience.Deadline()) // the server ends it much earlier
		_, err := io.Copy(io.Discard, conn)
		if failed, ok := errors.AsType[net.Error](err); ok && failed.Timeout() {
			t.Error("a connection that does not go on was not closed")
		}
	}
}
