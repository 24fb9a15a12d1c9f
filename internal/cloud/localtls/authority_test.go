//go:build linux

package localtls

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/e2bctl/e2bctl/internal/must"
)

// fixed is a dialer that connects to one address for every name.
type fixed struct{ address string }

func (f *fixed) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "tcp", f.address)
}

// verify verifies a leaf in the same way as a client that trusts the authority.
func verify(a *Authority, leaf *x509.Certificate, name string) error {
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	_, err := leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name})
	return err
}

func TestAuthorityIsMadeOnce(t *testing.T) {
	dir := t.TempDir()
	made := make([]*Authority, 8)
	var all sync.WaitGroup
	for i := range made {
		all.Go(func() {
			var err error
			if made[i], err = Open(dir, domain); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, a := range made {
		if a == nil || !a.cert.Equal(made[0].cert) {
			t.Fatal("got two authorities in one directory, want one")
		}
	}
	info, err := os.Stat(filepath.Join(dir, keyFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key: got mode %v and error %v, want %v", info.Mode(), err, os.FileMode(0o600))
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) > 0 {
		t.Errorf("left behind: got %q, want nothing", left)
	}
}

func TestAuthorityThatCannotBeUsed(t *testing.T) {
	good := t.TempDir()
	if _, err := Open(good, domain); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(good, keyFile))
	must.Do(t, err)
	for _, tt := range []struct {
		name, text, domain, want string
		mode                     os.FileMode
	}{
		{"cut off", string(text[:100]), domain, "damaged", 0o600},
		{"empty", "", domain, "damaged", 0o600},
		{"another domain", string(text), "other.test", "not for other.test", 0o600},
		{"open to others", string(text), domain, "can be read by others", 0o640},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), keyFile)
			must.Do(t, os.WriteFile(path, []byte(tt.text), tt.mode))
			_, err := Open(filepath.Dir(path), tt.domain)
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "remove it") {
				t.Errorf("got error %v, want %q and what to do", err, tt.want)
			}
		})
	}
}

// TestNameConstraints checks that the constraints in the authority's own certificate restrict the
// certificates that a thief of its key could sign.
func TestNameConstraints(t *testing.T) {
	a, err := New(domain)
	must.Do(t, err)
	if !a.cert.PermittedDNSDomainsCritical {
		t.Error("the constraints are not critical, want critical")
	}
	for name, want := range map[string]bool{
		"api.cloud.test": true, "3000-abc.cloud.test": true, "api.localhost": true,
		"example.com": false, "cloud.test.example.com": false, "notcloud.test": false,
	} {
		cert, err := a.issue(name, nil)
		must.Do(t, err)
		cert.Leaf.DNSNames = []string{name}
		if !a.serves(name) { // a certificate that a thief of the key would make
			cert = stolen(t, a, name, nil)
		}
		if err := verify(a, cert.Leaf, name); (err == nil) != want {
			t.Errorf("%s: got error %v, want valid %t", name, err, want)
		}
	}
	for address, want := range map[string]bool{"127.0.0.1": true, "127.9.9.9": true, "::1": true, "10.0.0.1": false, "::2": false} {
		if err := verify(a, stolen(t, a, "", net.ParseIP(address)).Leaf, address); (err == nil) != want {
			t.Errorf("%s: got error %v, want valid %t", address, err, want)
		}
	}
}

// stolen returns a leaf for any name or address, signed with the authority's key.
func stolen(t *testing.T, a *Authority, name string, address net.IP) *tls.Certificate {
	t.Helper()
	template := &x509.Certificate{NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	if name != "" {
		template.DNSNames = []string{name}
	} else {
		template.IPAddresses = []net.IP{address}
	}
	der, err := sign(template, a.cert, a.leaf.Public(), a.key)
	must.Do(t, err)
	leaf, err := x509.ParseCertificate(der)
	must.Do(t, err)
	return &tls.Certificate{Leaf: leaf}
}

func TestLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, err := New(domain)
		must.Do(t, err)
		leaf := func(name string) *x509.Certificate {
			cert, err := a.certificate(&tls.ClientHelloInfo{ServerName: name})
			must.Do(t, err)
			return cert.Leaf
		}
		first := leaf("api.cloud.test")
		if life := first.NotAfter.Sub(first.NotBefore); life > 90*24*time.Hour {
			t.Errorf("a leaf lives %v, want at most 90 days", life)
		}
		if !leaf("API.cloud.test.").Equal(first) {
			t.Error("the same name in another spelling: got another leaf, want the same")
		}
		for i := range 2 * maxLeaves {
			leaf(fmt.Sprintf("%d-abc.cloud.test", i+1))
			leaf("api.cloud.test")
		}
		if len(a.leaves) != maxLeaves || a.recent.Len() != maxLeaves {
			t.Errorf("kept %d and %d leaves, want %d", len(a.leaves), a.recent.Len(), maxLeaves)
		}
		if !leaf("api.cloud.test").Equal(first) {
			t.Error("a leaf in use was dropped, want the least recently used")
		}
		time.Sleep(80 * 24 * time.Hour) //nolint:forbidigo // in a bubble, whose clock it moves
		if err := verify(a, leaf("api.cloud.test"), "api.cloud.test"); err != nil || leaf("api.cloud.test").Equal(first) {
			t.Errorf("after 80 days: got the old leaf or error %v, want a new one", err)
		}
	})
}

func TestExpiringAuthorityIsReplaced(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		first, err := Open(dir, domain)
		must.Do(t, err)
		time.Sleep(authorityLife - leafLife/2) //nolint:forbidigo // in a bubble, whose clock it moves
		second, err := Open(dir, domain)
		if err != nil || second.cert.Equal(first.cert) {
			t.Fatalf("got the old authority or error %v, want a new one", err)
		}
		third, err := Open(dir, domain)
		if err != nil || !third.cert.Equal(second.cert) {
			t.Errorf("opened again: got another authority or error %v, want the same", err)
		}
	})
}

func TestCheckDomain(t *testing.T) {
	for _, good := range []string{"localhost", "e2b.localhost", "cloud.test", "a-b.c1.example.com"} {
		if err := CheckDomain(good); err != nil {
			t.Errorf("%s: got %v, want no error", good, err)
		}
	}
	for _, bad := range []string{"", ".", "com", "co.uk", "github.io", "other.ck", "xn--55qx5d.cn", "Cloud.test", "cloud.test.", "cloud.test:80", "127.0.0.1", "*.test", "a..b", "../a.b", "-a.b", strings.Repeat("a.", 100) + "b", strings.Repeat("a", 64) + ".b"} {
		if err := CheckDomain(bad); err == nil {
			t.Errorf("%s: got no error, want one", bad)
		}
	}
}

func TestTrust(t *testing.T) {
	a, err := New(domain)
	must.Do(t, err)
	other, err := New("other.test")
	must.Do(t, err)
	company := filepath.Join(t.TempDir(), "company.pem")
	if err := os.WriteFile(company, other.PEM()[:len(other.PEM())-1], 0o600); err != nil { // no final newline
		t.Fatal(err)
	}
	both := string(other.PEM()) + string(a.PEM())
	dir := t.TempDir()
	for _, tt := range []struct{ name, bundle, requests, extra, wantExtra string }{
		{"what the variables name stays", company, company, company, both},
		{"what one of them names is for its programs", filepath.Join(dir, "gone"), company, "", string(a.PEM())},
		{"a file that is gone", filepath.Join(dir, "gone"), filepath.Join(dir, "gone"), filepath.Join(dir, "gone"), string(a.PEM())},
		{"its own files", filepath.Join(dir, "bundle.pem"), filepath.Join(dir, "requests.pem"), filepath.Join(dir, "extra.pem"), string(a.PEM())},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv(envBundle, tt.bundle)
			t.Setenv(envRequests, tt.requests)
			t.Setenv(envExtra, tt.extra)
			trust, err := a.WriteTrust(dir)
			must.Do(t, err)
			bundle, err := os.ReadFile(trust.Bundle)
			must.Do(t, err)
			if tt.bundle == company && string(bundle) != both || strings.Count(string(bundle), string(a.PEM())) != 1 {
				t.Errorf("the bundle has %d bytes, want the certificates of before and the authority's once", len(bundle))
			}
			requests, err := os.ReadFile(trust.Requests)
			want := string(bundle)
			if tt.requests == company {
				want = both
			}
			if err != nil || string(requests) != want {
				t.Errorf("for requests: got %d bytes and error %v, want %d", len(requests), err, len(want))
			}
			if extra, err := os.ReadFile(trust.Extra); err != nil || string(extra) != tt.wantExtra {
				t.Errorf("extra: got %q and error %v, want %q", extra, err, tt.wantExtra)
			}
			if own, err := os.ReadFile(trust.Authority); err != nil || string(own) != string(a.PEM()) {
				t.Errorf("the authority: got %q and error %v, want %q", own, err, a.PEM())
			}
		})
	}
}

// TestCheckAuthority checks that CheckAuthority accepts only a certificate with all restrictions,
// in a file without other contents.
func TestCheckAuthority(t *testing.T) {
	good, err := New(domain)
	must.Do(t, err)
	for _, tt := range []struct {
		name   string
		loosen func(*x509.Certificate)
		want   string
	}{
		{"as it is made", func(*x509.Certificate) {}, ""},
		{"no limits", func(c *x509.Certificate) { c.PermittedDNSDomains, c.PermittedIPRanges = nil, nil }, "not for cloud.test"},
		{"one more domain", func(c *x509.Certificate) { c.PermittedDNSDomains = append(c.PermittedDNSDomains, "example.com") }, "may certify"},
		{"all below a suffix", func(c *x509.Certificate) { c.PermittedDNSDomains = []string{Localhost, "test"} }, "not for cloud.test"},
		{"subdomains only", func(c *x509.Certificate) { c.PermittedDNSDomains = []string{Localhost, ".cloud.test"} }, "not for cloud.test"},
		{"not critical", func(c *x509.Certificate) { c.PermittedDNSDomainsCritical = false }, "critical"},
		{"every address", func(c *x509.Certificate) { c.PermittedIPRanges = nil }, "addresses"},
		{"a wider network", func(c *x509.Certificate) {
			c.PermittedIPRanges = []*net.IPNet{{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}, loopback[1]}
		}, "addresses"},
		{"authorities below it", func(c *x509.Certificate) { c.MaxPathLenZero, c.MaxPathLen = false, -1 }, "other authorities"},
		{"no authority", func(c *x509.Certificate) { c.IsCA, c.MaxPathLenZero, c.MaxPathLen = false, false, -1 }, "none of an authority"},
		{"every use", func(c *x509.Certificate) { c.ExtKeyUsage = nil }, "others than servers"},
		{"programs, too", func(c *x509.Certificate) { c.ExtKeyUsage = append(c.ExtKeyUsage, x509.ExtKeyUsageCodeSigning) }, "others than servers"},
		{"revocations, too", func(c *x509.Certificate) { c.KeyUsage |= x509.KeyUsageCRLSign }, "others than servers"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			template := *good.cert
			template.RawSubject, template.ExtraExtensions = nil, nil
			tt.loosen(&template)
			der, err := sign(&template, nil, good.key.Public(), good.key)
			must.Do(t, err)
			err = CheckAuthority(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), domain)
			if (tt.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got error %v, want %q in it", err, tt.want)
			}
		})
	}
	text := string(good.PEM())
	for name, wrong := range map[string]string{"two": text + text, "text before": "x\n" + text, "text behind": text + "x", "none": "", "half": text[:60]} {
		if err := CheckAuthority([]byte(wrong), domain); err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
	if err := CheckAuthority([]byte(text), "other.test"); err == nil {
		t.Error("of another domain: got no error")
	}
}
