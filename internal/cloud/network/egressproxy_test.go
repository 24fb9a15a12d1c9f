package network

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

const testPassword = "open sesame"

// proxyServer is a SOCKS5 or HTTP proxy. Each target echoes the bytes that it receives.
type proxyServer struct {
	http  bool
	fails string // way in which the proxy fails: "refuse", "lie", "hang" or "close"; "": it works
	asked chan string
}

// startEgressProxy starts a proxy, and returns its port. secure is nil for a proxy without TLS.
func startEgressProxy(t *testing.T, p *proxyServer, secure *tls.Config) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must.Do(t, err)
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	if secure != nil {
		listener = tls.NewListener(listener, secure)
	}
	p.asked = make(chan string, 10)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer conn.Close()
				_ = p.serve(conn) // the client sees the failure
			})
		}
	})
	t.Cleanup(func() { listener.Close(); serving.Wait() })
	return port
}

func (p *proxyServer) serve(conn net.Conn) error {
	switch p.fails {
	case "close":
		return nil
	case "lie":
		_, err := io.WriteString(conn, "SSH-2.0-OpenSSH_9.6\r\n\r\n")
		return errors.Join(err, second(io.Copy(io.Discard, conn)))
	}
	from := bufio.NewReader(conn)
	var err error
	if p.http {
		err = p.serveHTTP(conn, from)
	} else {
		err = p.serveSOCKS(conn, from)
	}
	if err == nil {
		pipe(conn, from)
	}
	return err
}

func second[T any](_ T, err error) error { return err }

func (p *proxyServer) serveHTTP(conn net.Conn, from *bufio.Reader) error {
	r, err := http.ReadRequest(from)
	if err != nil {
		return err
	}
	if r.Header.Get("Proxy-Authorization") != "Basic "+base64.StdEncoding.EncodeToString([]byte("someone:"+testPassword)) {
		_, err := io.WriteString(conn, "HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
		return errors.Join(err, io.EOF)
	}
	p.asked <- r.Method + " " + r.Host
	switch p.fails {
	case "hang":
		return second(io.Copy(io.Discard, from))
	case "refuse":
		_, err := io.WriteString(conn, "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
		return errors.Join(err, io.EOF)
	}
	return second(io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n"))
}

// serveSOCKS serves a connection as RFC 1928 and RFC 1929 specify.
func (p *proxyServer) serveSOCKS(conn net.Conn, from *bufio.Reader) error {
	text := func() string { // after a byte with its length
		n, _ := from.ReadByte()
		b := make([]byte, n)
		_, _ = io.ReadFull(from, b)
		return string(b)
	}
	version, err := from.ReadByte()
	if methods := text(); err != nil || version != 5 || !strings.Contains(methods, "\x02") {
		_, err := conn.Write([]byte{5, 0xff})
		return errors.Join(err, io.EOF)
	}
	if _, err := conn.Write([]byte{5, 2}); err != nil {
		return err
	}
	_, _ = from.ReadByte()
	if user, password := text(), text(); user != "someone" || password != testPassword {
		_, err := conn.Write([]byte{1, 1})
		return errors.Join(err, io.EOF)
	}
	if _, err := conn.Write([]byte{1, 0}); err != nil {
		return err
	}
	head := make([]byte, 4)
	if _, err := io.ReadFull(from, head); err != nil {
		return err
	}
	var host string
	switch head[3] {
	case 1:
		address := make([]byte, 4)
		_, _ = io.ReadFull(from, address)
		host = netip.AddrFrom4([4]byte(address)).String()
	case 3:
		host = text()
	}
	port := make([]byte, 2)
	if _, err := io.ReadFull(from, port); err != nil {
		return err
	}
	p.asked <- fmt.Sprintf("CONNECT %s:%d", host, int(port[0])<<8|int(port[1]))
	switch p.fails {
	case "hang":
		return second(io.Copy(io.Discard, from))
	case "refuse":
		_, err := conn.Write([]byte{5, 2, 0, 1, 0, 0, 0, 0, 0, 0})
		return errors.Join(err, io.EOF)
	}
	return second(conn.Write([]byte{5, 0, 0, 1, 0, 0, 0, 0, 0, 0}))
}

// certified returns the TLS configuration of a proxy called example.com, and the certificate of its
// authority.
func certified(t *testing.T) (secure *tls.Config, ca string) {
	t.Helper()
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	return &tls.Config{Certificates: server.TLS.Certificates}, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
}

// proxied returns the egress of a sandbox with rules and with a proxy on another machine.
// asked.Sealed contains the password in plain text.
func proxied(t *testing.T, rules *Rules, asked EgressProxy) (*Egress, *[]string) {
	t.Helper()
	with, err := rules.WithProxy(&asked)
	must.Do(t, err)
	d := &Dialer{Resolver: world, Unseal: func(p *EgressProxy) (string, error) { return string(p.Sealed), nil }}
	return &Egress{Dialer: d, Rules: with, Denials: &Denials{}}, recording(t, d)
}

// TestEgressProxy checks that connections go through the sandbox's proxy if the rules allow them.
// The proxy receives an allowed name, or else a checked address. The two directions of a connection
// can end separately.
func TestEgressProxy(t *testing.T) {
	t.Parallel()
	secure, ca := certified(t)
	for name, tt := range map[string]struct {
		http, tls bool
	}{"socks": {false, false}, "socks in TLS": {false, true}, "http": {true, false}, "http in TLS": {true, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &proxyServer{http: tt.http}
			asked := EgressProxy{Username: "someone", Sealed: []byte(testPassword)}
			if tt.tls {
				asked.TLS, asked.ServerName, asked.CACert = true, "example.com", ca
				asked.Address = elsewhere + ":" + startEgressProxy(t, p, secure)
			} else {
				asked.Address = elsewhere + ":" + startEgressProxy(t, p, nil)
			}
			if tt.http {
				asked.Address = "http://" + asked.Address
			}
			for _, c := range []struct {
				allow, deny, host, want string
			}{
				{"", "", "public.test", "CONNECT 203.0.113.5:443"},
				{"", "", "203.0.113.5", "CONNECT 203.0.113.5:443"},
				{"", "198.51.100.0/24", "other.test", ""},
				{"public.test", allTraffic, "PUBLIC.test.", "CONNECT public.test:443"},
				{"public.test", allTraffic, "other.test", ""},
				{"203.0.113.5", allTraffic, "203.0.113.5", "CONNECT 203.0.113.5:443"},
				{"rebound.test", allTraffic, "rebound.test", ""},
				{"localhost", allTraffic, "localhost", ""},
				{"", "", "169.254.169.254", ""},
				{"", "", "own.test", ""},
			} {
				e, dialled := proxied(t, mustRules(t, true, c.allow, c.deny), asked)
				e.Dialer.Resolver = resolverFunc(func(host string) []string {
					if host == "localhost" {
						return []string{"203.0.113.5"}
					}
					return world[host]
				})
				conn, err := e.Reach(t.Context(), c.host, portHTTPS)
				if c.want == "" {
					if _, denied := errors.AsType[*DeniedError](err); !denied || len(p.asked) > 0 {
						t.Errorf("%+v: got %v, and %d questions, want a denial and none", c, err, len(p.asked))
					}
					continue
				}
				if err != nil {
					t.Fatalf("%+v: %v", c, err)
				}
				if got := patience.Receive(t, "the question to the proxy", p.asked); got != c.want {
					t.Errorf("%+v: the proxy was asked %q", c, got)
				}
				_, err = io.WriteString(conn, "ping")
				err = errors.Join(err, conn.(interface{ CloseWrite() error }).CloseWrite())
				got, failed := io.ReadAll(conn)
				if err = errors.Join(err, failed, conn.Close()); err != nil || string(got) != "ping" {
					t.Errorf("%+v: got %q, %v, want what was sent", c, got, err)
				}
				if len(*dialled) > 0 {
					t.Errorf("%+v: dialled %v, want only the proxy", c, *dialled)
				}
			}
		})
	}
}

// TestEgressProxyFails checks that there is no connection if a proxy fails, not even one without
// the proxy. The errors name the proxy, and never contain its password.
func TestEgressProxyFails(t *testing.T) {
	t.Parallel()
	secure, ca := certified(t)
	for _, isHTTP := range []bool{false, true} {
		for fails, tt := range map[string]struct {
			change func(*EgressProxy)
			want   string
		}{
			"refuse":         {nil, map[bool]string{false: "not allowed by ruleset", true: "it answered 403 Forbidden"}[isHTTP]},
			"lie":            {nil, map[bool]string{false: "unexpected protocol version", true: "malformed HTTP"}[isHTTP]},
			"close":          {nil, "connect to "}, // an EOF, or a reset
			"hang":           {nil, "it does not answer"},
			"wrong password": {func(p *EgressProxy) { p.Sealed = []byte(testPassword + "?") }, map[bool]string{false: "authentication failed", true: "407"}[isHTTP]},
			"no password":    {func(p *EgressProxy) { p.Sealed, p.Username = nil, "" }, map[bool]string{false: "no acceptable authentication methods", true: "407"}[isHTTP]},
			"wrong name":     {func(p *EgressProxy) { p.TLS, p.CACert, p.ServerName = true, ca, "other.test" }, "not other.test"},
			"unknown":        {func(p *EgressProxy) { p.TLS, p.ServerName = true, "example.com" }, "certificate"},
		} {
			t.Run(fmt.Sprint(fails, isHTTP), func(t *testing.T) {
				t.Parallel()
				p := &proxyServer{http: isHTTP, fails: fails}
				asked := EgressProxy{Username: "someone", Sealed: []byte(testPassword)}
				if tt.change != nil {
					tt.change(&asked)
				}
				var of *tls.Config
				if asked.TLS {
					of = secure
				}
				asked.Address = elsewhere + ":" + startEgressProxy(t, p, of)
				address := asked.Address
				if isHTTP {
					asked.Address = "http://" + address
				}
				e, dialled := proxied(t, nil, asked)
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				if fails == "hang" {
					go func() { cancel(errors.New("nobody waits: " + <-p.asked)) }()
				}
				_, err := e.Reach(ctx, "public.test", portHTTPS)
				if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "through the egressProxy "+asked.Address+" of the sandbox") {
					t.Errorf("got %v, want %q and the name of the proxy", err, tt.want)
				}
				if err != nil && strings.Contains(err.Error(), "sesame") {
					t.Errorf("%v has the password", err)
				}
				if len(*dialled) > 0 {
					t.Errorf("dialled %v, want nothing but the proxy", *dialled)
				}
			})
		}
	}
}

// TestEgressProxyFailureIsTold checks that a proxy's failure is reported once for each target,
// because programs inside do not learn the reason. A denial, a success, and a connection whose
// client has gone do not count as failures.
func TestEgressProxyFailureIsTold(t *testing.T) {
	t.Parallel()
	p := &proxyServer{http: true, fails: "refuse"}
	asked := EgressProxy{Address: "http://" + elsewhere + ":" + startEgressProxy(t, p, nil), Username: "someone", Sealed: []byte(testPassword)}
	e, _ := proxied(t, mustRules(t, true, "", "198.51.100.0/24"), asked)
	var told []string
	e.Denials.TellFailure = func(err error) { told = append(told, err.Error()) }
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, _ = e.Reach(ended, "203.0.113.5", portHTTP)
	for _, host := range []string{"203.0.113.5", "198.51.100.7", "203.0.113.5", "203.0.113.6"} {
		if conn, err := e.Reach(t.Context(), host, portHTTP); err == nil {
			t.Errorf("%s: a connection %v", host, conn)
		}
	}
	for range 2 * maxDenials {
		e.Denials.fail(&egressProxyError{target: strconv.Itoa(len(told)), err: io.EOF})
	}
	if len(told) != maxDenials {
		t.Errorf("%d failures were told, want %d", len(told), maxDenials)
	}
	if long := (&egressProxyError{err: errors.New(strings.Repeat("x", 1<<20))}).Error(); len(long) > 2000 {
		t.Errorf("a reason has %d bytes, want fewer", len(long))
	}
	for i, target := range []string{"203.0.113.5:80", "203.0.113.6:80"} {
		want := "connect to " + target + " through the egressProxy " + asked.Address + " of the sandbox: it answered 403 Forbidden"
		if told[i] != want {
			t.Errorf("told %q, want %q", told[i], want)
		}
	}
}

// TestEgressProxyAddress checks that the address of a proxy is checked like every destination, at
// the request and at each use, except that the rule about all traffic does not apply.
func TestEgressProxyAddress(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		allow, deny string
		policy      Policy
		host        string
		rule        string // rule that denies the proxy; "": the proxy may be reached
	}{
		{host: "other.test"},
		{allow: "203.0.113.5", deny: allTraffic, host: "other.test"},
		{host: "inner.test"},
		{deny: "10.0.0.0/8", host: "inner.test", rule: ruleDenied},
		{host: "inner.test", policy: Policy{DenyPrivate: true}, rule: rulePrivate},
		{allow: "10.0.0.0/8", policy: Policy{DenyPrivate: true}, host: "inner.test"},
		{host: "127.0.0.1", rule: ruleLoopback},
		{host: "::1", rule: ruleLoopback},
		{host: "rebound.test", rule: ruleLoopback},
		{host: "own.test", rule: ruleOwn},
		{host: "169.254.169.254", rule: ruleMetadata},
	} {
		e, dialled := proxied(t, mustRules(t, true, tt.allow, tt.deny), EgressProxy{Address: net.JoinHostPort(tt.host, "1080")})
		e.Dialer.Policy = tt.policy
		_, used := e.Reach(t.Context(), "203.0.113.5", 22)
		for when, err := range map[string]error{"asked for": e.Dialer.CheckProxy(t.Context(), e.Rules), "used": used} {
			denied, _ := errors.AsType[*DeniedError](err)
			if (denied == nil) != (tt.rule == "") || denied != nil && (denied.Rule != tt.rule || denied.Host != tt.host) {
				t.Errorf("%+v, when it is %s: got %v", tt, when, err)
			}
		}
		if want := tt.rule == ""; (len(*dialled) > 0) != want {
			t.Errorf("%+v: dialled %v", tt, *dialled)
		}
	}
	e, _ := proxied(t, nil, EgressProxy{Address: "nowhere.test:1080"})
	if err := e.Dialer.CheckProxy(t.Context(), e.Rules); err == nil || !strings.Contains(err.Error(), "nowhere.test") {
		t.Errorf("got %v, want that the proxy does not resolve", err)
	}
	if err := e.Dialer.CheckProxy(t.Context(), nil); err != nil {
		t.Errorf("without a proxy: %v", err)
	}
}

func TestInvalidEgressProxy(t *testing.T) {
	t.Parallel()
	_, ca := certified(t)
	long := strings.Repeat("a", 256)
	for want, asked := range map[string]EgressProxy{
		"egressProxy has \"\": the address must be host:port":                     {},
		"egressProxy has \"proxy.test\": the address must be host:port":           {Address: "proxy.test"},
		"egressProxy has \"proxy.test:0\": the address must be host:port":         {Address: "proxy.test:0"},
		"egressProxy has \"127.1:1080\": the address must be host:port":           {Address: "127.1:1080"},
		"egressProxy has \"https://proxy.test:1\": the address must be host:port": {Address: "https://proxy.test:1"},
		"egressProxy has \"…@proxy.test:1080\": the address must be host:port":    {Address: "me:secret@proxy.test:1080"},
		"egressProxy has \"…@proxy.test:1081\": the address must be host:port":    {Address: "socks5://me:a@secret@proxy.test:1081"},
		"the username has more than 255 bytes":                                    {Address: "proxy.test:1080", Username: long},
		"a password needs a username":                                             {Address: "proxy.test:1080", Sealed: []byte("p")},
		"tls has serverName or caCert, and enabled is false":                      {Address: "proxy.test:1080", CACert: ca},
		"tls.serverName has at most 253 characters":                               {Address: "proxy.test:1080", TLS: true, ServerName: long[:254]},
		"egressProxy has \"a b:1080\": the address must be host:port":             {Address: "a b:1080"},
		"and enabled is false":          {Address: "proxy.test:1080", ServerName: "a.test"},
		"tls.caCert has no certificate": {Address: "proxy.test:1080", TLS: true, CACert: "none"},
		"tls.caCert 8192 bytes":         {Address: "proxy.test:1080", TLS: true, CACert: ca + strings.Repeat("\n", 8<<10)},
	} {
		_, err := (*Rules)(nil).WithProxy(&asked)
		if invalid, ok := errors.AsType[*RuleError](err); !ok || invalid.List != "egressProxy" || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%+v: got %v, want %q", asked, err, want)
		}
	}
	_, err := (*Rules)(nil).WithProxy(&EgressProxy{Address: "proxy.test:1080", Username: long[:255], TLS: true, ServerName: long[:253], CACert: ca + strings.Repeat("\n", 8<<10-len(ca))})
	must.Do(t, err)
	if got, err := (*Rules)(nil).WithProxy(nil); got != nil || err != nil {
		t.Errorf("no proxy: got %v, %v", got, err)
	}
}

// TestSealedUnder checks that a sealed password is bound to the proxy that may receive it.
func TestSealedUnder(t *testing.T) {
	t.Parallel()
	base := EgressProxy{Address: "a:1", Username: "u", Sealed: []byte("1")}
	same := base
	same.Sealed = []byte("2")
	if diff := cmp.Diff(base.SealedUnder(), same.SealedUnder()); diff != "" {
		t.Error(diff)
	}
	for i, other := range []EgressProxy{{Address: "b:1", Username: "u"}, {Address: "a:1", Username: "v"}, {Address: "a:1", Username: "u", TLS: true}, {Address: "a:1", Username: "u", ServerName: "s"}, {Address: "a:1", Username: "u", CACert: "c"}} {
		if other.SealedUnder() == base.SealedUnder() {
			t.Error(strconv.Itoa(i) + ": the same as for another proxy")
		}
	}
}
