//go:build linux

package main

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/pinned"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestKeyless runs curl with a key that it does not have. The host has the certificate of
// httptest, which this machine is made to trust, and its proxy connects every name to it.
func TestKeyless(t *testing.T) {
	const key, host = "sk-never-inside", "example.com"
	origin := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "the key is right:", r.Header.Get("Authorization") == "Bearer "+key)
	}))
	defer origin.Close()
	roots := filepath.Join(t.TempDir(), "roots.pem")
	must.Do(t, os.WriteFile(roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: origin.Certificate().Raw}), 0o600))
	t.Setenv("SSL_CERT_FILE", roots)
	proxy := httptest.NewServer(leadTo(t, origin.Listener.Addr().String()))
	defer proxy.Close()
	t.Setenv("HTTPS_PROXY", proxy.URL)
	cloud := sandboxtest.New(t, local.WithWarm(0), local.WithProxyNames())
	if cloud.Isolation() != local.Full {
		pinned.Skip(t, "header rules need the isolation level full, not %s", cloud.Isolation())
	}
	var out strings.Builder
	command := "env | grep -c " + key + "; curl -sS https://" + host + "/; curl -sS https://other.test/ || true"
	must.Do(t, keyless(t.Context(), []sandbox.ClientOption{cloud.Option(), sandbox.WithEnvFile("")}, host, key, command, &out))
	for _, want := range []string{"0\n", "the key is right: true\n", "403"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("got %q, want %q in it", &out, want)
		}
	}
	err := keyless(t.Context(), []sandbox.ClientOption{cloud.Option(), sandbox.WithEnvFile("")}, "203.0.113.1", key, "true", io.Discard)
	if !errors.Is(err, sandbox.ErrInvalidArgument) || strings.Contains(err.Error(), key) {
		t.Errorf("an address: got %v, want sandbox.ErrInvalidArgument without the key", err)
	}
	if err := run(t.Context(), true, "", "true"); err == nil {
		t.Error("no error without a host")
	}
	for one, err := range mustClient(t, cloud).Secrets.List(t.Context(), nil) {
		t.Errorf("left: %v, %v", one, err)
	}
}

func mustClient(t *testing.T, cloud *sandboxtest.Cloud) *sandbox.Client {
	t.Helper()
	client, err := sandbox.NewClient(cloud.Option(), sandbox.WithEnvFile(""))
	must.Do(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// leadTo returns an HTTP proxy that connects every request to one address.
func leadTo(t *testing.T, address string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		far, err := new(net.Dialer).DialContext(context.WithoutCancel(r.Context()), "tcp", address)
		if err != nil {
			t.Error(err)
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
