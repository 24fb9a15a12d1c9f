//go:build linux

package localtls

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/e2bctl/e2bctl/internal/cloud/connlimit"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const domain = "cloud.test"

// served is a real server behind a listener on both loopback addresses.
type served struct {
	authority *Authority
	port      string
}

func open(t *testing.T, limit int, silence time.Duration) *served {
	t.Helper()
	authority, err := New(domain)
	must.Do(t, err)
	four, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must.Do(t, err)
	_, port, _ := net.SplitHostPort(four.Addr().String())
	bounded := connlimit.New(four.(*net.TCPListener), connlimit.Options{Max: limit, Patience: silence, Logger: slog.New(slog.DiscardHandler)})
	inner := []*connlimit.Listener{bounded}
	if six, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "[::1]:"+port); err == nil {
		inner = append(inner, bounded.Beside(six.(*net.TCPListener)))
	}
	l := Listen(authority.Config(), inner...)
	server := &http.Server{
		ConnContext:       connlimit.ConnContext,
		Protocols:         protocols(true, true, true),
		ReadHeaderTimeout: silence,
		Handler: connlimit.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			connlimit.Admit(r.Context())
			fmt.Fprintf(w, "%s %s tls=%t", r.Proto, r.Host, r.TLS != nil)
		})),
	}
	done := make(chan error)
	go func() { done <- server.Serve(l) }()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	return &served{authority, port}
}

func protocols(one, two, plainTwo bool) *http.Protocols {
	var p http.Protocols
	p.SetHTTP1(one)
	p.SetHTTP2(two)
	p.SetUnencryptedHTTP2(plainTwo)
	return &p
}

// get sends a request to an address of the server, and trusts the server's authority.
func (s *served) get(t *testing.T, address, url string, p *http.Protocols) (string, error) {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.authority.PEM())
	transport := &http.Transport{
		DisableKeepAlives: true, Protocols: p, TLSClientConfig: &tls.Config{RootCAs: roots},
		DialContext: (&fixed{net.JoinHostPort(address, s.port)}).dial,
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	must.Do(t, err)
	res, err := transport.RoundTrip(r)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return string(body), err
}

func TestBothProtocolsOnOnePort(t *testing.T) {
	s := open(t, 100, time.Minute)
	for _, address := range []string{"127.0.0.1", "::1"} {
		for _, tt := range []struct {
			name, url string
			p         *http.Protocols
			want      string
		}{
			{"http/1", "http://api.cloud.test", protocols(true, false, false), "HTTP/1.1 api.cloud.test tls=false"},
			{"http/2", "http://api.cloud.test", protocols(false, false, true), "HTTP/2.0 api.cloud.test tls=false"},
			{"https/1", "https://api.cloud.test", protocols(true, false, false), "HTTP/1.1 api.cloud.test tls=true"},
			{"https/2", "https://3000-abc.cloud.test", protocols(true, true, false), "HTTP/2.0 3000-abc.cloud.test tls=true"},
			{"localhost", "https://49983-abc.localhost", protocols(true, true, false), "HTTP/2.0 49983-abc.localhost tls=true"},
			{"address", "https://127.0.0.1", protocols(true, true, false), "HTTP/2.0 127.0.0.1 tls=true"},
		} {
			t.Run(tt.name+" "+address, func(t *testing.T) {
				if tt.name == "address" {
					tt.url, tt.want = strings.Replace(tt.url, "127.0.0.1", bracketed(address), 1), strings.Replace(tt.want, "127.0.0.1", bracketed(address), 1)
				}
				got, err := s.get(t, address, tt.url, tt.p)
				if got != tt.want || err != nil {
					t.Errorf("got %q and error %v, want %q", got, err, tt.want)
				}
			})
		}
	}
}

func TestForeignNameIsToldWhatIsServed(t *testing.T) {
	s := open(t, 100, time.Minute)
	for _, name := range []string{"example.com", "a.b.cloud.test", "cloud.test.example.com"} {
		_, err := s.get(t, "127.0.0.1", "https://"+name, nil)
		if want := "certificate is valid for localhost, cloud.test, not " + name; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want %q in it", err, want)
		}
	}
}

// TestSilentClients checks that a client that sends nothing, or half of a handshake, does not block
// other clients, and that its connection is closed.
func TestSilentClients(t *testing.T) {
	s := open(t, 4, 3*time.Second) // time for a busy machine to answer the client that is not silent
	var silent []net.Conn
	for i := range 8 { // more than there is room for
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", "127.0.0.1:"+s.port)
		must.Do(t, err)
		defer conn.Close()
		if i%2 == 1 {
			_, _ = conn.Write([]byte{Handshake, 3, 1})
		}
		silent = append(silent, conn)
	}
	if got, err := s.get(t, "127.0.0.1", "https://api.cloud.test", nil); err != nil {
		t.Errorf("beside silent clients: got %q and error %v, want an answer", got, err)
	}
	for i, conn := range silent {
		_ = conn.SetReadDeadline(patience.Deadline())
		_, err := conn.Read(make([]byte, 1))
		if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("silent client %d: got %v, want a closed connection", i, err)
		}
	}
}

// TestCloseEndsWaitingConnections checks that closing the listener closes connections that the
// server has not accepted yet.
func TestCloseEndsWaitingConnections(t *testing.T) {
	authority, err := New(Localhost)
	must.Do(t, err)
	inner, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must.Do(t, err)
	l := Listen(authority.Config(), connlimit.New(inner.(*net.TCPListener), connlimit.Options{Max: 10, Patience: time.Minute, Logger: slog.New(slog.DiscardHandler)}))
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String())
	must.Do(t, err)
	defer conn.Close()
	for range 2 {
		if err := l.Close(); err != nil {
			t.Errorf("Close: got %v, want nil", err)
		}
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("a connection without a byte: got data, want its end")
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept after Close: got %v, want %v", err, net.ErrClosed)
	}
}

func bracketed(address string) string {
	if strings.Contains(address, ":") {
		return "[" + address + "]"
	}
	return address
}
