package interop

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/sandbox"
)

// serving is a running "e2bctl serve" on 127.0.0.2.
type serving struct {
	url, key  string
	authority string // the file of the authority that signed the certificate
	roots     *x509.CertPool
}

// startServer starts "e2bctl serve" with TLS and a key in a file, and ends it after the test.
func startServer(t *testing.T) *serving {
	t.Helper()
	program := ready(t, buildOnce)
	dir := t.TempDir()
	var secret [20]byte
	_, _ = rand.Read(secret[:])
	s := &serving{key: "e2b_" + hex.EncodeToString(secret[:]), authority: filepath.Join(dir, "authority.crt"), roots: x509.NewCertPool()}
	must.Do(t, os.WriteFile(filepath.Join(dir, "keys"), []byte(s.key+"\n"), 0o600))
	s.writeCertificate(t, filepath.Join(dir, "leaf.crt"), filepath.Join(dir, "tls.key"))

	command := exec.Command(program, "serve", "-o", "json", "--address", "127.0.0.2:0", "--ephemeral", "--warm", "0",
		"--tls-cert", filepath.Join(dir, "leaf.crt"), "--tls-key", filepath.Join(dir, "tls.key"), "--keys-file", filepath.Join(dir, "keys"))
	var stderr strings.Builder
	command.Stderr = &stderr
	stdout, err := command.StdoutPipe()
	must.Do(t, err)
	must.Do(t, command.Start())
	t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		if err := command.Wait(); err != nil {
			t.Errorf("e2bctl serve ended: %v, want no error: %s", err, &stderr)
		}
	})
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	if err != nil {
		t.Fatalf("e2bctl serve wrote no line: %v", err)
	}
	var shown struct{ URL string }
	must.Do(t, json.Unmarshal(line, &shown))
	s.url = shown.URL
	return s
}

// writeCertificate writes a certificate for 127.0.0.2 with its key, and the authority that signed
// it: SDKs refuse an authority as the certificate of a server.
func (s *serving) writeCertificate(t *testing.T, certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Do(t, err)
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "for a test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 2)}, NotBefore: authority.NotBefore, NotAfter: authority.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for path, template := range map[string]*x509.Certificate{s.authority: authority, certFile: leaf} {
		der, err := x509.CreateCertificate(rand.Reader, template, authority, key.Public(), key)
		must.Do(t, err)
		must.Do(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
		if template == authority {
			cert, err := x509.ParseCertificate(der)
			must.Do(t, err)
			s.roots.AddCert(cert)
		}
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must.Do(t, err)
	must.Do(t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
}

// TestServe uses a server over TLS, with the official SDK of each generation and with this SDK.
func TestServe(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: s.roots}} //nolint:gosec // the server decides about the version
	defer transport.CloseIdleConnections()
	for _, generation := range []string{"newest", "2.45"} {
		t.Run(generation, func(t *testing.T) {
			interpreter, packages := installPython(t, generation)
			command := exec.CommandContext(patience.Context(t), interpreter, filepath.Join("python", "serve.py"))
			command.Env = append(os.Environ(), "PYTHONPATH="+packages, "PYTHONDONTWRITEBYTECODE=1", "E2B_API_KEY="+s.key, "E2B_API_URL="+s.url, "E2B_SANDBOX_URL="+s.url, "SSL_CERT_FILE="+s.authority)
			if output, err := command.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, output)
			}
		})
	}
	t.Run("e2bctl", func(t *testing.T) {
		client, err := sandbox.NewClient(sandbox.WithAPIKey(sandbox.Key(s.key)), sandbox.WithAPIURL(s.url), sandbox.WithSandboxURL(s.url), sandbox.WithTransport(transport))
		must.Do(t, err)
		defer client.Close()
		sb, err := client.Create(t.Context())
		must.Do(t, err)
		defer func() { must.Do(t, errors.Join(sb.Kill(patience.Context(t)), sb.Close())) }()
		got, err := sb.RunCode(t.Context(), "6 * 7", nil)
		if err != nil || got.Text() != "42" {
			t.Errorf("got %v and error %v, want 42", got, err)
		}
		// Whoever knows only the id can do nothing.
		for _, c := range []struct {
			port, method, path string
			status             int
		}{
			{"49983", "POST", "/process.Process/List", 401},
			{"49983", "GET", "/files?path=/etc/passwd", 401},
			{"49999", "POST", "/execute", 403},
			{"49999", "GET", "/contexts", 403},
			{"8888", "GET", "/api/kernels", 403},
		} {
			r, err := http.NewRequestWithContext(t.Context(), c.method, s.url+c.path, strings.NewReader(`{"code":"1"}`))
			must.Do(t, err)
			r.Header = http.Header{"E2b-Sandbox-Id": {sb.ID()}, "E2b-Sandbox-Port": {c.port}, "Content-Type": {"application/json"}}
			res, err := transport.RoundTrip(r)
			must.Do(t, err)
			text, err := io.ReadAll(res.Body)
			must.Do(t, err)
			_ = res.Body.Close()
			if res.StatusCode != c.status {
				t.Errorf("%s %s at port %s: got %d %s, want %d", c.method, c.path, c.port, res.StatusCode, text, c.status)
			}
		}
	})
}
