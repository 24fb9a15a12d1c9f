package headers

import (
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestCertificates checks that an authority's certificate signs only certificates of hosts, and
// that each of these is for one host and for servers only.
func TestCertificates(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		a, err := NewAuthority("i1")
		must.Do(t, err)
		<-time.After(24 * time.Hour)
		made := time.Now()
		leaf, err := a.certificate("api.test")
		must.Do(t, err)
		root, host := a.cert, leaf.Leaf
		if !root.IsCA || root.MaxPathLen != 0 || !root.MaxPathLenZero || root.KeyUsage != x509.KeyUsageCertSign {
			t.Errorf("got an authority that may %v, with a path of %d (%v), want one that signs hosts alone", root.KeyUsage, root.MaxPathLen, root.MaxPathLenZero)
		}
		if host.IsCA || host.KeyUsage != x509.KeyUsageDigitalSignature || !slices.Equal(host.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}) {
			t.Errorf("got a certificate of a host that may %v, %v (authority: %v), want that of a server", host.KeyUsage, host.ExtKeyUsage, host.IsCA)
		}
		if !slices.Equal(host.DNSNames, []string{"api.test"}) || len(host.IPAddresses)+len(host.EmailAddresses)+len(host.URIs) > 0 {
			t.Errorf("got a certificate for %v, want api.test alone", host.DNSNames)
		}
		if root.Subject.CommonName != "e2bctl sandbox i1" {
			t.Errorf("got the authority %q, want it to name its sandbox", root.Subject.CommonName)
		}
		if a.key.Equal(a.leaf) {
			t.Error("hosts have the key of the authority")
		}
		for _, tt := range []struct {
			what         string
			cert         *x509.Certificate
			begun, ended time.Time
		}{
			{"authority", root, begun.Add(-time.Hour), begun.Add(10 * 365 * 24 * time.Hour)},
			{"host", host, made.Add(-time.Hour), made.Add(30 * 24 * time.Hour)},
		} {
			if !tt.cert.NotBefore.Equal(tt.begun) || !tt.cert.NotAfter.Equal(tt.ended) {
				t.Errorf("%s: got it valid from %v to %v, want from %v to %v", tt.what, tt.cert.NotBefore, tt.cert.NotAfter, tt.begun, tt.ended)
			}
			if tt.cert.SerialNumber.Sign() <= 0 || tt.cert.SerialNumber.BitLen() < 64 {
				t.Errorf("%s: got the number %v, want one that nobody guesses", tt.what, tt.cert.SerialNumber)
			}
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(a.PEM())
		for name, want := range map[string]bool{"api.test": true, "b.api.test": false, "test": false} {
			if _, err := host.Verify(x509.VerifyOptions{DNSName: name, Roots: roots}); (err == nil) != want {
				t.Errorf("%s: got error %v, want it valid: %v", name, err, want)
			}
		}
	})
}

// TestNoCertificate checks that a name for which no certificate can be made is named in the error, and leaves
// nothing behind.
func TestNoCertificate(t *testing.T) {
	t.Parallel()
	a, err := NewAuthority("i1")
	must.Do(t, err)
	if made, err := a.certificate("ü.test"); made != nil || err == nil || !strings.Contains(err.Error(), "ü.test") {
		t.Errorf("got %v and error %v, want an error with the name", made, err)
	}
	if len(a.leaves) > 0 {
		t.Errorf("got %d certificates kept, want none", len(a.leaves))
	}
}

// TestLeavesAreKept checks that a host's certificate is used for half of its lifetime, and that the
// number of kept certificates is bounded.
func TestLeavesAreKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, err := NewAuthority("i1")
		must.Do(t, err)
		serial := func(host string) string {
			t.Helper()
			made, err := a.certificate(host)
			must.Do(t, err)
			return made.Leaf.SerialNumber.String()
		}
		first := serial("api.test")
		if other := serial("b.test"); other == first {
			t.Error("two hosts have one certificate")
		}
		for i, wait := range []time.Duration{0, 15*24*time.Hour - time.Second, time.Second} {
			<-time.After(wait)
			if same := serial("api.test") == first; same != (i < 2) {
				t.Errorf("%d: got the same certificate: %v, want that until its half is over", i, same)
			}
		}
		for i := range maxLeaves + 10 {
			serial(fmt.Sprint(i, ".test"))
			if len(a.leaves) > maxLeaves {
				t.Fatalf("got %d certificates kept, want %d at most", len(a.leaves), maxLeaves)
			}
		}
	})
}
