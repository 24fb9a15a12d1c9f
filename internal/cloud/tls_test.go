//go:build linux

package cloud

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// secure returns a client that trusts the cloud's certificates by the bundle, and that connects to
// the cloud for every name.
func secure(t *testing.T, c *Cloud) *http.Client {
	t.Helper()
	bundle, err := os.ReadFile(c.Trust().Bundle)
	must.Do(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	transport := &http.Transport{
		ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: roots},
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, c.address.String())
		},
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func ask(t *testing.T, client *http.Client, method, url, key, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	must.Do(t, err)
	r.Header.Set("X-Api-Key", key)
	res, err := client.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	must.Do(t, err)
	return res.StatusCode, string(text)
}

// TestDomainIsEnough checks that a client that knows only the domain can reach the API, and the
// sandbox by the domain in the API's answer.
func TestDomainIsEnough(t *testing.T) {
	t.Parallel()
	for _, domain := range []string{"", "e2b.localhost", "cloud.test"} {
		t.Run(domain, func(t *testing.T) {
			t.Parallel()
			c, _ := startFake(t, Options{Domain: domain})
			client := secure(t, c)
			status, text := ask(t, client, "POST", "https://api."+c.Domain()+"/sandboxes", c.Key(), `{"templateID":"base","timeout":60}`)
			var created struct{ SandboxID, Domain string }
			if err := json.Unmarshal([]byte(text), &created); err != nil || status != 201 {
				t.Fatalf("create: got %d %s, want 201", status, text)
			}
			if created.Domain != c.Domain() {
				t.Errorf("the answer's domain: got %q, want %q", created.Domain, c.Domain())
			}
			status, text = ask(t, client, "GET", "https://49983-"+created.SandboxID+"."+created.Domain+"/health", "", "")
			if want := created.SandboxID + "/health"; status != 200 || text != want {
				t.Errorf("the sandbox: got %d %s, want 200 %s", status, text, want)
			}
		})
	}
}

func TestBothLoopbackAddresses(t *testing.T) {
	t.Parallel()
	c, _ := startFake(t, Options{})
	port := strconv.Itoa(c.address.(*net.TCPAddr).Port)
	other, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", "[::1]:"+port)
	if err != nil {
		if l, listenErr := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "[::1]:0"); listenErr == nil {
			_ = l.Close()
			t.Errorf("::1: got %v, want a connection", err)
		}
		return
	}
	_ = other.Close()
}

// TestPortTakenOnTheOtherAddress checks that the cloud does not use a port on which another program
// listens on ::1, because clients of localhost would send their keys there.
func TestPortTakenOnTheOtherAddress(t *testing.T) {
	t.Parallel()
	var port string
	var err error
	for range 20 { // another test may have the same port of 127.0.0.1
		taken, listenErr := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "[::1]:0")
		if listenErr != nil {
			t.Skip("this machine has no ::1")
		}
		defer taken.Close()
		_, port, _ = net.SplitHostPort(taken.Addr().String())
		if _, _, err = loopback(t.Context(), "127.0.0.1:"+port); err == nil || strings.Contains(err.Error(), "[::1]") {
			break
		}
	}
	if err == nil || !strings.Contains(err.Error(), "[::1]:"+port) || !strings.Contains(err.Error(), "both ports must be free") {
		t.Errorf("got %v, want an error that names [::1]:%s", err, port)
	}
}

func TestAuthorityIsKept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var certificates []string
	for range 2 {
		c, _ := startFake(t, Options{Authority: dir})
		text, err := os.ReadFile(c.Trust().Authority)
		must.Do(t, err)
		certificates = append(certificates, string(text))
		must.Do(t, c.Close())
		if _, err := os.Stat(c.Trust().Bundle); err != nil {
			t.Errorf("after Close: got %v, want the bundle, which shells still name", err)
		}
	}
	if certificates[0] != certificates[1] {
		t.Error("a second start made another authority, want the same")
	}
	ephemeral, _ := startFake(t, Options{})
	if text, err := os.ReadFile(ephemeral.Trust().Authority); err != nil || slices.Contains(certificates, string(text)) {
		t.Errorf("without a directory: got the authority of another cloud or %v, want its own", err)
	}
	if found, _ := filepath.Glob(filepath.Join(filepath.Dir(ephemeral.Trust().Authority), "*authority*")); len(found) > 0 {
		t.Errorf("an ephemeral cloud wrote its key: %q", found)
	}
}

func TestUnusableDomain(t *testing.T) {
	t.Parallel()
	_, err := start(t.Context(), Options{Domain: "com"}, nil)
	if err == nil || !strings.Contains(err.Error(), `"com"`) {
		t.Errorf("got %v, want an error that names the domain", err)
	}
}
