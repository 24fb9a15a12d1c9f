package network

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/e2bctl/e2bctl/internal/must"
)

// The tests of this file run before the parallel ones: a mistake that they find at once would make some of
// those wait.

// TestBoundsOfForwarding checks the bounds of the connections over which a proxy and a gate forward
// requests, and that answers are passed on as they are, and at once.
func TestBoundsOfForwarding(t *testing.T) {
	g := &gate{egress: &Egress{Dialer: &Dialer{}, Denials: &Denials{}}, ctx: t.Context()}
	p := NewProxy(nil)
	for name, tt := range map[string]struct {
		of          *httputil.ReverseProxy
		idle, bytes int
		wait        time.Duration
	}{"a proxy": {&p.forward, 32, 0, 0}, "a gate": {g.proxy(true), 4, 1 << 20, time.Second}, "a gate, without names": {g.proxy(false), 4, 1 << 20, time.Second}} {
		out := tt.of.Transport.(*http.Transport)
		if !out.DisableCompression || tt.of.FlushInterval != -1 || tt.of.ErrorLog == nil || tt.of.ErrorLog.Writer() == os.Stderr {
			t.Errorf("%s: changes answers (%v), delays them (%v), or writes to the log", name, !out.DisableCompression, tt.of.FlushInterval)
		}
		if out.MaxIdleConns != tt.idle || out.IdleConnTimeout != 90*time.Second || out.MaxResponseHeaderBytes != int64(tt.bytes) || out.ExpectContinueTimeout != tt.wait {
			t.Errorf("%s: got %d idle connections, %v, %d bytes and %v", name, out.MaxIdleConns, out.IdleConnTimeout, out.MaxResponseHeaderBytes, out.ExpectContinueTimeout)
		}
		if _, err := out.DialContext(t.Context(), "tcp", "public.test"); err == nil {
			t.Errorf("%s: an address without a port was dialled", name)
		}
	}
}

// gated returns the connection of a client through a gate to public.test, and that of the server.
func gated(t *testing.T) (client, server net.Conn) {
	t.Helper()
	servers := make(chan net.Conn, 1)
	d := &Dialer{Resolver: world}
	recording(t, d)
	connectBy(t, d, func(ctx context.Context, _ *net.Dialer, _ string) (net.Conn, error) {
		_, near, far := newDuplex(ctx)
		servers <- far
		return near, nil
	})
	e := &Egress{Dialer: d, Rules: mustRules(t, true, "public.test", allTraffic), Denials: &Denials{}}
	client, err := e.Dial(t.Context(), "public.test", portHTTP)
	must.Do(t, err)
	return client, <-servers
}

// TestGateAddsNothing checks each byte that passes a gate in both directions. Between two requests, a
// client has a minute and a half.
func TestGateAddsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := gated(t)
		defer client.Close()
		defer server.Close()
		for _, tt := range []struct{ sent, answer string }{
			{"OPTIONS * HTTP/1.1\r\nHost: public.test\r\n\r\n", "HTTP/1.1 204 No Content\r\n\r\n"},
			{"GET /a%2Fb?c;d HTTP/1.1\r\nHost: Public.test:80\r\nForwarded: for=me\r\nX-Forwarded-For: me\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>"},
		} {
			go func() { _, _ = io.WriteString(client, tt.sent) }()
			got := make([]byte, len(tt.sent))
			if _, err := io.ReadFull(server, got); err != nil || string(got) != tt.sent {
				t.Fatalf("the server got %q and error %v, want %q", got, err, tt.sent)
			}
			go func() { _, _ = io.WriteString(server, tt.answer) }()
			got = make([]byte, len(tt.answer))
			if _, err := io.ReadFull(client, got); err != nil || string(got) != tt.answer {
				t.Fatalf("the client got %q and error %v, want %q", got, err, tt.answer)
			}
		}
		start := time.Now()
		if _, err := client.Read(make([]byte, 1)); !errors.Is(err, io.EOF) || time.Since(start) != tunnelIdle {
			t.Errorf("got %v after %v, want the end after %v", err, time.Since(start), tunnelIdle)
		}
	})
}

// TestHeadOfLaterRequestIsBounded checks that a later request has no larger head than the first one.
func TestHeadOfLaterRequestIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := gated(t)
		defer client.Close()
		defer server.Close()
		go func() {
			_, _ = io.WriteString(client, "GET / HTTP/1.1\r\nHost: public.test\r\n\r\nGET / HTTP/1.1\r\nHost: public.test\r\nLong: "+strings.Repeat("x", 2*maxPeek)+"\r\n\r\n")
		}()
		at := bufio.NewReader(server)
		_, err := http.ReadRequest(at)
		must.Do(t, err)
		go func() { _, _ = io.WriteString(server, "HTTP/1.1 204 No Content\r\n\r\n") }()
		from := bufio.NewReader(client)
		for _, want := range []int{http.StatusNoContent, http.StatusRequestHeaderFieldsTooLarge} {
			answer, err := http.ReadResponse(from, nil)
			must.Do(t, err)
			if answer.StatusCode != want {
				t.Errorf("got %s, want %d", answer.Status, want)
			}
			_ = answer.Body.Close()
		}
		_ = client.Close()
		<-time.After(time.Second) // a server that refuses a head waits for its client to read the answer
	})
}

// ending is a connection that remembers which halves were closed.
type ending struct {
	net.Conn
	err    error // of CloseWrite
	closed string
}

func (e *ending) Write(p []byte) (int, error) { return len(p), nil }
func (e *ending) CloseWrite() error           { e.closed += "half "; return e.err }
func (e *ending) Close() error                { e.closed += "all "; return nil }

// TestPipe checks what is closed at the end of a copy: the whole connection if data is missing, or if
// it has no halves.
func TestPipe(t *testing.T) {
	whole, broken := strings.NewReader("text"), io.MultiReader(strings.NewReader("te"), &failedReader{})
	for name, tt := range map[string]struct {
		from io.Reader
		err  error
		want string
	}{"whole": {whole, nil, "half "}, "broken off": {broken, nil, "all "}, "no half": {whole, errors.ErrUnsupported, "half all "}} {
		to := &ending{err: tt.err}
		pipe(to, tt.from)
		if to.closed != tt.want {
			t.Errorf("%s: closed %q, want %q", name, to.closed, tt.want)
		}
		far := &ending{err: tt.err}
		half := (&bound{far, func() bool { return true }}).CloseWrite()
		if far.closed != "half " || !errors.Is(half, tt.err) {
			t.Errorf("%s, of a gate: closed %q with error %v", name, far.closed, half)
		}
	}
	only := &ending{}
	pipe(struct{ net.Conn }{only}, whole)
	if only.closed != "all " {
		t.Errorf("without halves: closed %q, want all", only.closed)
	}
	must.Is(t, (&bound{struct{ net.Conn }{only}, nil}).CloseWrite(), errors.ErrUnsupported)
}

// failedReader is a reader that fails.
type failedReader struct{}

func (*failedReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// TestSplit checks which addresses have a host and a port.
func TestSplit(t *testing.T) {
	for address, want := range map[string]uint16{"a.test:1": 1, "[::1]:65535": 65535, "a.test:0": 0, "a.test:65536": 0, ":1": 0, "a.test": 0, "a.test:": 0, "a.test:x": 0} {
		host, port, err := split(address)
		if port != want || (err == nil) != (want != 0) || (host != "") != (want != 0) {
			t.Errorf("%q: got %q, %d and error %v, want the port %d", address, host, port, err, want)
		}
	}
}

// undenied is an error that says that nothing was denied.
type undenied struct{ error }

func (undenied) Denied() bool { return false }

// TestRefusals checks the answer to a request or a connection that leads nowhere.
func TestRefusals(t *testing.T) {
	denied := &DeniedError{Host: "denied.test", Rule: ruleDenied}
	for name, tt := range map[string]struct {
		err    error
		status int
	}{"denied": {denied, 403}, "not denied": {undenied{errors.New("x")}, 502}, "failed": {errors.New(strings.Repeat("x", 1000)), 502}} {
		w := httptest.NewRecorder()
		refuse(w, strings.Repeat("h", 300), tt.err)
		if w.Code != tt.status || w.Body.Len() > 800 {
			t.Errorf("%s: got %d, with %d bytes, want %d", name, w.Code, w.Body.Len(), tt.status)
		}
	}
	for _, tt := range []struct {
		of   said
		why  error
		want string
	}{
		{said{port: portHTTP}, denied, "no connection to denied.test: "},
		{said{port: portHTTP, name: "a.test"}, denied, "no connection to a.test: "},
		{said{port: portHTTP, name: "a.test"}, io.EOF, "no connection to a.test: EOF"},
		{said{port: portHTTP}, io.EOF, "no connection to : EOF"},
		{said{port: portHTTPS, name: "a.test"}, denied, string(accessDenied)},
	} {
		_, near, far := newDuplex(t.Context())
		go func() { defer far.Close(); tt.of.refuse(far, tt.why) }()
		got, err := io.ReadAll(near)
		if err != nil || !strings.Contains(string(got), tt.want) {
			t.Errorf("%+v: got %q and error %v, want %q", tt.of, got, err, tt.want)
		}
		_ = near.Close()
	}
}

// TestMachineProxies checks at which port a proxy of the machine is reached, with TLS or without, and
// which errors do not show its address.
func TestMachineProxies(t *testing.T) {
	for text, want := range map[string]struct {
		address string
		secured bool
	}{
		"http://proxy.test": {"proxy.test:80", false}, "https://proxy.test": {"proxy.test:443", true},
		"http://proxy.test:8080": {"proxy.test:8080", false}, "https://[::1]:8443": {"[::1]:8443", true},
	} {
		proxy, err := url.Parse(text)
		must.Do(t, err)
		var at string
		first := make(chan byte, 1)
		d := &Dialer{}
		connectBy(t, d, func(_ context.Context, _ *net.Dialer, address string) (net.Conn, error) {
			at = address
			near, far := net.Pipe()
			go func() { b := make([]byte, 1); _, _ = far.Read(b); first <- b[0]; _ = far.Close() }()
			return near, nil
		})
		if _, err := d.throughProxy(t.Context(), proxy, "a.test:1", anywhere); err == nil {
			t.Errorf("%s: got no error", text)
		}
		if secured := <-first == recordHandshake; at != want.address || secured != want.secured {
			t.Errorf("%s: connected to %s, with TLS: %v", text, at, secured)
		}
	}
	for want, err := range map[string]error{"its address is not a URL": errors.New("http://me:sesame@proxy.test"), "it is wrong": &url.Error{URL: "http://me:sesame@proxy.test", Err: errors.New("it is wrong")}} {
		d := &Dialer{Resolver: world, Proxy: func(string) (*url.URL, error) { return nil, err }}
		if conn, got := d.dial(t.Context(), nil, false, "public.test", 443); conn != nil || got == nil || strings.Contains(got.Error(), "sesame") || !strings.Contains(got.Error(), "the proxy of this machine's environment: "+want) {
			t.Errorf("got %v and error %v, want %q and not the address", conn, got, want)
		}
	}
}

// TestAnswerEnds checks that the context of a question ends with its answer.
func TestAnswerEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var of context.Context
		rule, err := new(Asks).Allow(t.Context(), Target{"a.test", 443}, func(ctx context.Context, _ Target) bool { of = ctx; return true })
		synctest.Wait()
		if rule != "" || err != nil || of.Err() == nil {
			t.Errorf("got %q, %v, and the context %v, want it to be over", rule, err, of.Err())
		}
	})
}

// TestForeignClasses checks that only questions of the class of the internet are answered.
func TestForeignClasses(t *testing.T) {
	e := &Egress{Dialer: &Dialer{Resolver: names{"a.test": {"203.0.113.5"}}}, Denials: &Denials{}}
	for class, want := range map[dnsmessage.Class]dnsmessage.RCode{dnsmessage.ClassINET: dnsmessage.RCodeSuccess, dnsmessage.ClassCHAOS: dnsmessage.RCodeFormatError, dnsmessage.ClassANY: dnsmessage.RCodeFormatError} {
		m := dnsmessage.Message{Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName("a.test."), Type: dnsmessage.TypeA, Class: class}}}
		query, err := m.Pack()
		must.Do(t, err)
		must.Do(t, m.Unpack(e.Answer(t.Context(), query)))
		if m.RCode != want || (len(m.Answers) > 0) != (want == dnsmessage.RCodeSuccess) {
			t.Errorf("%v: got %v and %v, want %v", class, m.RCode, m.Answers, want)
		}
		for _, a := range m.Answers {
			if a.Header.TTL != 30 || a.Header.Class != dnsmessage.ClassINET || a.Header.Name.String() != "a.test." {
				t.Errorf("got the answer %+v", a.Header)
			}
		}
	}
	if got := e.Answer(t.Context(), []byte("x")); got != nil {
		t.Errorf("half a head: got %x, want no answer", got)
	}
}

// TestDuplexAddresses checks that a connection in memory has addresses, and that both deadlines apply.
func TestDuplexAddresses(t *testing.T) {
	_, near, far := newDuplex(t.Context())
	if near.LocalAddr() == nil || near.RemoteAddr() == nil {
		t.Error("it has no address")
	}
	must.Do(t, near.SetDeadline(time.Unix(1, 0)))
	_, readErr := near.Read(make([]byte, 1))
	_, writeErr := near.Write([]byte("x"))
	must.Is(t, readErr, os.ErrDeadlineExceeded)
	must.Is(t, writeErr, os.ErrDeadlineExceeded)
	_ = far.Close()
	must.Do(t, near.SetDeadline(time.Time{}))
	_ = near.Close()
}
