package headers

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestUnfit checks why each kind of unfit request is not forwarded.
func TestUnfit(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		method, host string
		url          url.URL
		status       int
		problem      string
	}{
		{"GET", "api.test", url.URL{Path: "/"}, 0, ""},
		{"GET", "API.test:443", url.URL{Path: "/"}, 0, ""},
		{"CONNECT", "api.test", url.URL{Path: "/"}, 405, "CONNECT is for proxies"},
		{"TRACE", "api.test", url.URL{Path: "/"}, 405, `the method "TRACE"`},
		{"GET", "api.test", url.URL{Host: "api.test"}, 421, "an absolute URI"},
		{"GET", "api.test", url.URL{Scheme: "https"}, 421, "an absolute URI"},
		{"GET", "api.test:444", url.URL{Path: "/"}, 421, `the request is for "api.test:444"`},
		{"GET", "other.test", url.URL{Path: "/"}, 421, `the request is for "other.test"`},
	} {
		status, problem := unfit(&http.Request{Method: tt.method, Host: tt.host, URL: &tt.url}, "api.test")
		if status != tt.status || !strings.Contains(problem, tt.problem) || (problem == "") != (status == 0) {
			t.Errorf("%s %v of %s: got %d %q, want %d and %q", tt.method, &tt.url, tt.host, status, problem, tt.status, tt.problem)
		}
	}
}

// TestDialNeedsAPort checks that an address without a port reaches no host.
func TestDialNeedsAPort(t *testing.T) {
	t.Parallel()
	d := New(Options{})
	defer d.Close()
	var reached []string
	d.Set(rules(t, bearer), func(_ context.Context, host string, _ uint16) (net.Conn, error) {
		reached = append(reached, host)
		return nil, net.ErrClosed
	})
	dial := d.current.Load().transport.DialContext
	_, err := dial(t.Context(), "tcp", "api.test")
	if _, ok := errors.AsType[*net.AddrError](err); !ok || len(reached) > 0 {
		t.Errorf("got error %v, and %q was reached, want an error of the address and nothing", err, reached)
	}
	_, err = dial(t.Context(), "tcp", "api.test:443")
	must.Is(t, err, net.ErrClosed)
	if len(reached) != 1 || reached[0] != "api.test" {
		t.Errorf("%q was reached, want api.test", reached)
	}
}

// TestIdleHostConnectionsEnd checks that an unused connection to a host ends after two minutes.
func TestIdleHostConnectionsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		authority, err := NewAuthority("i1")
		must.Do(t, err)
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(authority.PEM())
		d := New(Options{Authority: authority, Roots: roots, Secret: func(string) (string, error) { return secret, nil }})
		ended := make(chan time.Time, 1)
		d.Set(rules(t, bearer), func(context.Context, string, uint16) (net.Conn, error) {
			near, far := net.Pipe()
			host := tls.Server(far, &tls.Config{GetCertificate: d.certificate}) //nolint:gosec // the door's own minimum is in use
			go func() {
				in := bufio.NewReader(host)
				if _, err := http.ReadRequest(in); err != nil {
					t.Error(err)
				}
				_, _ = io.WriteString(host, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				_, _ = io.Copy(io.Discard, in)
				ended <- time.Now()
			}()
			return near, nil
		})
		near, far := net.Pipe()
		d.Serve(far)
		client := tls.Client(near, &tls.Config{RootCAs: roots, ServerName: "api.test"})
		go func() { _, _ = io.WriteString(client, "GET / HTTP/1.1\r\nHost: api.test\r\n\r\n") }()
		res, err := http.ReadResponse(bufio.NewReader(client), nil)
		must.Do(t, err)
		if res.StatusCode != http.StatusOK {
			t.Errorf("got %s, want 200", res.Status)
		}
		begun := time.Now()
		select {
		case at := <-ended:
			if took := at.Sub(begun); took != 2*time.Minute {
				t.Errorf("the connection ended after %v, want two minutes", took)
			}
		case <-time.After(time.Hour):
			t.Error("the connection is open")
		}
		_ = near.Close()
		d.Close()
	})
}
