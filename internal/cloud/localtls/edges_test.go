//go:build linux

package localtls

import (
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/connlimit"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestCertificateFields checks each field of the certificates of an authority and of a host.
func TestCertificateFields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		a, err := New(domain)
		must.Do(t, err)
		host, err := a.issue("api.cloud.test", nil)
		must.Do(t, err)
		for _, tt := range []struct {
			cert      *x509.Certificate
			name      string
			until     time.Time
			authority bool
			use       x509.KeyUsage
		}{
			{a.cert, "e2bctl local cloud: cloud.test", begun.Add(authorityLife), true, x509.KeyUsageCertSign},
			{host.Leaf, "", begun.Add(leafLife - time.Hour), false, x509.KeyUsageDigitalSignature},
		} {
			if got := tt.cert.Subject; got.CommonName != tt.name || !slices.Equal(got.Organization, []string{"e2bctl local cloud"}) {
				t.Errorf("got the subject %v, want %q of e2bctl local cloud", got, tt.name)
			}
			if !tt.cert.NotBefore.Equal(begun.Add(-time.Hour)) || !tt.cert.NotAfter.Equal(tt.until) {
				t.Errorf("%q: valid from %v to %v, want from an hour ago to %v", tt.name, tt.cert.NotBefore, tt.cert.NotAfter, tt.until)
			}
			if tt.cert.IsCA != tt.authority || !tt.cert.BasicConstraintsValid || tt.cert.KeyUsage != tt.use || !slices.Equal(tt.cert.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}) {
				t.Errorf("%q: an authority %v, with constraints %v, that may %v and %v", tt.name, tt.cert.IsCA, tt.cert.BasicConstraintsValid, tt.cert.KeyUsage, tt.cert.ExtKeyUsage)
			}
			if tt.cert.SerialNumber.Sign() <= 0 || tt.cert.SerialNumber.BitLen() < 64 {
				t.Errorf("%q: got the number %v", tt.name, tt.cert.SerialNumber)
			}
		}
		if !slices.Equal(host.Leaf.DNSNames, []string{"api.cloud.test"}) || len(host.Leaf.IPAddresses) != 0 || host.PrivateKey != a.leaf {
			t.Errorf("got a certificate for %q and %v", host.Leaf.DNSNames, host.Leaf.IPAddresses)
		}
		if config := a.Config(); config.MinVersion != tls.VersionTLS12 || !slices.Equal(config.NextProtos, []string{"h2", "http/1.1"}) {
			t.Errorf("got the version %x and the protocols %q", config.MinVersion, config.NextProtos)
		}
	})
}

// accepted is a connection that was accepted at an address.
type accepted struct {
	net.Conn
	at net.Addr
}

func (a accepted) LocalAddr() net.Addr { return a.at }

// TestNoName checks the certificate for a client that sends no name: it is for the address of the
// connection, if that is one of loopback.
func TestNoName(t *testing.T) {
	for _, of := range []string{domain, Localhost} {
		a, err := New(of)
		must.Do(t, err)
		names := []string{Localhost}
		if of != Localhost {
			names = append(names, of)
		}
		for at, want := range map[net.Addr]string{
			&net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}: "[127.0.0.2]", &net.TCPAddr{IP: net.IPv6loopback}: "[::1]",
			&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)}: "[]", &net.UnixAddr{Name: "s"}: "[]",
		} {
			cert, err := a.certificate(&tls.ClientHelloInfo{Conn: accepted{nil, at}})
			must.Do(t, err)
			addresses := []string{}
			for _, ip := range cert.Leaf.IPAddresses {
				addresses = append(addresses, ip.String())
			}
			if got := "[" + strings.Join(addresses, " ") + "]"; got != want || !slices.Equal(cert.Leaf.DNSNames, names) {
				t.Errorf("%s at %v: got a certificate for %q and %s, want %q and %s", of, at, cert.Leaf.DNSNames, got, names, want)
			}
		}
	}
}

// TestLeafIsReplacedOnce checks that a leaf is used for two thirds of its lifetime, and then dropped.
func TestLeafIsReplacedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, err := New(domain)
		must.Do(t, err)
		first, err := a.certificate(&tls.ClientHelloInfo{ServerName: domain})
		must.Do(t, err)
		<-time.After(leafLife - time.Hour - leafLife/3 - 1)
		for i, same := range []bool{true, false} {
			now, err := a.certificate(&tls.ClientHelloInfo{ServerName: domain})
			must.Do(t, err)
			if (now == first) != same || len(a.leaves) != 1 || a.recent.Len() != 1 {
				t.Errorf("%d: got the first leaf: %v, of %d and %d", i, now == first, len(a.leaves), a.recent.Len())
			}
			<-time.After(1)
		}
	})
}

// TestDamagedAuthority checks each part of the file of an authority. A file that cannot be used is left
// alone, and the error has the remedy.
func TestDamagedAuthority(t *testing.T) {
	good, err := New(domain)
	must.Do(t, err)
	other, err := New(domain)
	must.Do(t, err)
	text, err := good.secret()
	must.Do(t, err)
	key := strings.TrimSuffix(string(text), string(good.PEM()))
	_, signer, err := ed25519.GenerateKey(nil)
	must.Do(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(signer)
	must.Do(t, err)
	block := func(kind, text string) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: []byte(text)}))
	}
	loose := *good.cert
	loose.RawSubject, loose.ExtraExtensions, loose.PermittedDNSDomainsCritical = nil, nil, false
	loosened, err := sign(&loose, nil, good.key.Public(), good.key)
	must.Do(t, err)
	for what, tt := range map[string]struct{ text, want string }{
		"no certificate":             {key, "does not have a key and a certificate"},
		"no key":                     {string(good.PEM()), "does not have a key and a certificate"},
		"a key that is none":         {block("PRIVATE KEY", "x") + string(good.PEM()), "asn1"},
		"a key of another kind":      {block("PRIVATE KEY", string(der)) + string(good.PEM()), "its key is a ed25519"},
		"a certificate that is none": {key + block("CERTIFICATE", "x"), "x509"},
		"another key":                {key + string(other.PEM()), "does not belong to its certificate"},
		"without critical limits":    {key + block("CERTIFICATE", string(loosened)), "not critical"},
	} {
		dir := t.TempDir()
		must.Do(t, os.WriteFile(filepath.Join(dir, keyFile), []byte(tt.text), 0o600))
		a, err := Open(dir, domain)
		if a != nil || err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "remove it") {
			t.Errorf("%s: got error %v, want %q and what to do", what, err, tt.want)
		}
		if left, err := os.ReadFile(filepath.Join(dir, keyFile)); err != nil || string(left) != tt.text {
			t.Errorf("%s: the file was changed, %v", what, err)
		}
	}
}

// TestAuthorityIsNotMade checks the errors of a directory or a domain that no authority can have.
func TestAuthorityIsNotMade(t *testing.T) {
	dir := t.TempDir()
	must.Do(t, os.Mkdir(filepath.Join(dir, keyFile), 0o700))
	for what, tt := range map[string]struct{ dir, domain, want string }{
		"a directory in its place": {dir, domain, "is a directory"},
		"no directory":             {filepath.Join(dir, "gone"), domain, "writing a new certificate authority"},
		"a public suffix":          {t.TempDir(), "co.uk", "is a public suffix"},
	} {
		if a, err := Open(tt.dir, tt.domain); a != nil || err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v and error %v, want %q", what, a, err, tt.want)
		}
	}
	a, err := New(domain)
	must.Do(t, err)
	for what, text := range map[string]string{"no certificate": "-----BEGIN X-----\n-----END X-----\n", "a certificate that is none": "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"} {
		if err := CheckAuthority([]byte(text), domain); err == nil {
			t.Errorf("%s: got no error", what)
		}
	}
	if err := CheckAuthority(a.PEM(), "test"); err == nil || !strings.Contains(err.Error(), "one label") {
		t.Errorf("a domain that cannot be one: got %v", err)
	}
}

// TestWriteFile checks that nothing is left of a file that could not be written, and that a file is
// flushed only if it is there.
func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	failed := errors.New("no name left")
	must.Is(t, writeFile(filepath.Join(dir, "a"), []byte("text"), func(from, _ string) error {
		if text, err := os.ReadFile(from); err != nil || string(text) != "text" {
			t.Errorf("got %q and error %v in the file", text, err)
		}
		return failed
	}), failed)
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("got %v and error %v, want an empty directory", left, err)
	}
	must.Is(t, flush(filepath.Join(dir, "gone")), fs.ErrNotExist)
}

// TestTrustFails checks that a file of certificates that cannot be read is an error, so that no program
// loses the certificates that it trusts now.
func TestTrustFails(t *testing.T) {
	a, err := New(domain)
	must.Do(t, err)
	for _, variable := range []string{envBundle, envRequests, envExtra} {
		t.Run(variable, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv(variable, dir)
			if trust, err := a.WriteTrust(dir); trust != (Trust{}) || err == nil || !strings.Contains(err.Error(), "is a directory") {
				t.Errorf("got %v and error %v, want an error of the file", trust, err)
			}
			if left, _ := os.ReadDir(dir); len(left) > 0 {
				t.Errorf("got %v, want nothing written", left)
			}
		})
	}
	if trust, err := a.WriteTrust(filepath.Join(t.TempDir(), "gone")); trust != (Trust{}) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v and error %v, want that of the directory", trust, err)
	}
	trust, err := a.WriteTrust(t.TempDir())
	must.Do(t, err)
	if want := []string{"SSL_CERT_FILE=" + trust.Bundle, "REQUESTS_CA_BUNDLE=" + trust.Requests, "NODE_EXTRA_CA_CERTS=" + trust.Extra}; !slices.Equal(trust.Env(), want) {
		t.Errorf("got %q, want %q", trust.Env(), want)
	}
}

// TestLabels checks the bounds of names, and which error refuses a domain.
func TestLabels(t *testing.T) {
	for label, want := range map[string]bool{
		"09az-x": true, "a": true, strings.Repeat("a", 63): true, strings.Repeat("a", 64): false, "": false, "-a": false, "a-": false,
		"a/": false, "a:a": false, "a`a": false, "a{a": false, "A": false, "ä": false, "a_a": false,
	} {
		if got := isLabel(label); got != want || (CheckHost(label) == nil) != want || (CheckHost("e2b."+label) == nil) != want {
			t.Errorf("%.70q: got %v, and for hosts %v, want %v", label, got, CheckHost(label), want)
		}
	}
	long := strings.Repeat("a23456789.", 18) // 180 bytes
	for domain, want := range map[string]string{
		long + "abcde.xyz": "", long + "abcdef.xyz": "has 190 characters", "10.0.0.1": "is an address", "test": "has one label", "co.uk": "is a public suffix", "A.test": "not a host name",
	} {
		if err := CheckDomain(domain); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", domain, err, want)
		}
	}
}

// TestAcceptGoesOn checks that an error of a listener reaches the server, and that the listener then
// accepts again.
func TestAcceptGoesOn(t *testing.T) {
	a, err := New(Localhost)
	must.Do(t, err)
	inner, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must.Do(t, err)
	must.Do(t, inner.(*net.TCPListener).SetDeadline(time.Unix(1, 0)))
	l := Listen(a.Config(), connlimit.New(inner.(*net.TCPListener), connlimit.Options{Max: 10, Patience: time.Minute, Logger: slog.New(slog.DiscardHandler)}))
	defer l.Close()
	if conn, err := l.Accept(); conn != nil || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %v and error %v, want that of the listener", conn, err)
	}
	must.Do(t, inner.(*net.TCPListener).SetDeadline(time.Time{}))
	for _, first := range []byte{'G', Handshake} {
		client, err := new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String())
		must.Do(t, err)
		_, err = client.Write([]byte{first})
		must.Do(t, err)
		conn, err := l.Accept()
		for errors.Is(err, os.ErrDeadlineExceeded) { // of an attempt before the deadline was removed
			conn, err = l.Accept()
		}
		must.Do(t, err)
		if _, secured := conn.(*tls.Conn); secured != (first == Handshake) {
			t.Errorf("a connection that begins with %#x: got a %T", first, conn)
		}
		_ = conn.Close()
		_ = client.Close()
	}
}

// TestEachConstraint checks each field of a certificate without which a thief of its key could sign for others.
func TestEachConstraint(t *testing.T) {
	good, err := New(domain)
	must.Do(t, err)
	for what, loosen := range map[string]func(*x509.Certificate){
		"an authority":        func(c *x509.Certificate) { c.IsCA = false },
		"valid constraints":   func(c *x509.Certificate) { c.BasicConstraintsValid = false },
		"no path below it":    func(c *x509.Certificate) { c.MaxPathLen = 1 },
		"a limit of its path": func(c *x509.Certificate) { c.MaxPathLenZero = false },
		"known uses only":     func(c *x509.Certificate) { c.UnknownExtKeyUsage = []asn1.ObjectIdentifier{{1, 2, 3}} },
	} {
		cert := *good.cert
		must.Do(t, checkConstraints(&cert, domain))
		if loosen(&cert); checkConstraints(&cert, domain) == nil {
			t.Errorf("%s: a certificate without it is accepted", what)
		}
	}
	for name, want := range map[string]bool{
		Localhost: true, domain: true, "a.localhost": true, "a.cloud.test": true, "a_.localhost": false, ".localhost": false, "-.cloud.test": false, "a.b.cloud.test": false, "": false, "a": false,
	} {
		if good.serves(name) != want {
			t.Errorf("%q: want it served: %v", name, want)
		}
	}
}
