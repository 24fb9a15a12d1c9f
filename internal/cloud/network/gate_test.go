package network

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// website answers plain HTTP at every address, and records the requests.
type website struct {
	address string
	mu      sync.Mutex
	asked   []string // requests, as "address method host/path"
}

func newWebsite(t *testing.T) *website {
	t.Helper()
	s := &website{}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.address = server.Listener.Addr().String()
	return s
}

func (s *website) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	s.asked = append(s.asked, strings.TrimSpace(r.Method+" "+r.Host+r.RequestURI+" "+string(body)))
	s.mu.Unlock()
	switch r.Header.Get("Upgrade") {
	case "":
		_, _ = io.WriteString(w, "ok")
	case "websocket": // it reports the text that it hears
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "websocket")
		w.WriteHeader(http.StatusSwitchingProtocols)
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.Copy(conn, buffered)
	default:
		http.Error(w, "upgraded", http.StatusTeapot)
	}
}

func (s *website) connect(ctx context.Context, d *net.Dialer, address string) (net.Conn, error) {
	if err := d.Control("tcp", address, nil); err != nil {
		return nil, err
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", s.address)
}

// ways contains the ways in which programs inside connect to public.test, keyed by name. An answer that does not come
// ends a read.
var ways = map[string]func(t *testing.T, e *Egress) net.Conn{
	"by address": func(t *testing.T, e *Egress) net.Conn {
		client, inside := pair(t)
		ctx, end := context.WithCancel(t.Context())
		var serving sync.WaitGroup
		serving.Go(func() {
			outside, err := e.connect(ctx, inside, netip.MustParseAddrPort("203.0.113.5:80"))
			if err != nil {
				_ = inside.Close()
				return
			}
			join(ctx, outside, inside)
		})
		t.Cleanup(func() { end(); _ = client.Close(); serving.Wait() })
		return client
	},
	"by proxy": func(t *testing.T, e *Egress) net.Conn {
		conn, err := e.Dial(t.Context(), "public.test", 80)
		must.Do(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		must.Do(t, conn.SetReadDeadline(patience.Deadline()))
		return conn
	},
}

// judged contains the requests of a client over one connection, the statuses of the answers, and
// the requests that arrive at the server.
type judged struct {
	requests string
	statuses []int
	asked    []string
}

// TestEachRequestIsJudged checks that each request of a connection is checked, and not only the
// first one, in every form in which a client can send it.
func TestEachRequestIsJudged(t *testing.T) {
	t.Parallel()
	const first, second, other = "GET /1 HTTP/1.1\r\nHost: public.test\r\n\r\n", "GET /2 HTTP/1.1\r\nHost: Public.Test:80\r\n\r\n", "GET /o HTTP/1.1\r\nHost: other.test\r\n\r\n"
	for name, tt := range map[string]judged{
		"the same host":        {first + second, []int{200, 200}, []string{"GET public.test/1", "GET Public.Test:80/2"}},
		"another allowed host": {first + "GET /3 HTTP/1.1\r\nHost: api.public.test\r\n\r\n", []int{200, 200}, []string{"GET public.test/1", "GET api.public.test/3"}},
		"another host":         {first + other, []int{200, 403}, []string{"GET public.test/1"}},
		"and the first again":  {first + other + second, []int{200, 403, 200}, []string{"GET public.test/1", "GET Public.Test:80/2"}},
		"no host":              {first + "GET / HTTP/1.0\r\n\r\n", []int{200, 403}, []string{"GET public.test/1"}},
		"an address":           {first + "GET / HTTP/1.1\r\nHost: 203.0.113.5\r\n\r\n", []int{200, 403}, []string{"GET public.test/1"}},
		"a proxy's request":    {first + "GET http://other.test/ HTTP/1.1\r\nHost: public.test\r\n\r\n", []int{200, 403}, []string{"GET public.test/1"}},
		"CONNECT":              {first + "CONNECT other.test:80 HTTP/1.1\r\nHost: public.test\r\n\r\n", []int{200, 405}, []string{"GET public.test/1"}},
		"a refusal before": {
			"CONNECT public.test:80 HTTP/1.1\r\nHost: public.test\r\n\r\nGET /3 HTTP/1.1\r\nHost: api.public.test\r\n\r\n",
			[]int{405, 200},
			[]string{"GET api.public.test/3"},
		},
		"a tunnel":              {first + "CONNECT public.test:80 HTTP/1.1\r\nHost: public.test\r\n\r\n", []int{200, 405}, []string{"GET public.test/1"}},
		"two hosts":             {first + "GET / HTTP/1.1\r\nHost: public.test\r\nHost: other.test\r\n\r\n", []int{200, 400}, []string{"GET public.test/1"}},
		"an empty line between": {first + "\r\n" + other, []int{200, 400}, []string{"GET public.test/1"}},
		"a name with a user":    {first + "GET / HTTP/1.1\r\nHost: public.test@other.test\r\n\r\n", []int{200, 400}, []string{"GET public.test/1"}},
		"kept by HTTP/1.0": {
			"GET /1 HTTP/1.0\r\nHost: public.test\r\nConnection: keep-alive\r\n\r\n" + other,
			[]int{200, 403},
			[]string{"GET public.test/1"},
		},
		"after a body": {
			"POST /1 HTTP/1.1\r\nHost: public.test\r\nContent-Length: 4\r\n\r\nbody" + other,
			[]int{200, 403},
			[]string{"POST public.test/1 body"},
		},
		"after chunks": {
			"POST /1 HTTP/1.1\r\nHost: public.test\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n" + other,
			[]int{200, 403},
			[]string{"POST public.test/1 body"},
		},
		"a request in a body": {
			fmt.Sprintf("POST /1 HTTP/1.1\r\nHost: public.test\r\nContent-Length: %d\r\n\r\n%s%s", len(other), other, second),
			[]int{200, 200},
			[]string{"POST public.test/1 " + strings.TrimSpace(other), "GET Public.Test:80/2"},
		},
		"a length and chunks": {
			fmt.Sprintf("POST /1 HTTP/1.1\r\nHost: public.test\r\nContent-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n%s", len(other)+5, other),
			[]int{200, 403},
			[]string{"POST public.test/1"},
		},
		"h2c": {
			"GET /1 HTTP/1.1\r\nHost: public.test\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: \r\n\r\n" + other,
			[]int{200, 403},
			[]string{"GET public.test/1"},
		},
		"a choice of upgrades": {
			"GET /1 HTTP/1.1\r\nHost: public.test\r\nConnection: Upgrade\r\nUpgrade: websocket, h2c\r\n\r\n" + other,
			[]int{200, 403},
			[]string{"GET public.test/1"},
		},
		"HTTP/2 at once": {first + "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", []int{200, 505}, []string{"GET public.test/1"}},
	} {
		for by, open := range ways {
			t.Run(name+" "+by, func(t *testing.T) {
				t.Parallel()
				tt.check(t, open)
			})
		}
	}
}

// check sends the requests over one connection to a website whose names are allowed, but not its
// addresses.
func (j judged) check(t *testing.T, open func(*testing.T, *Egress) net.Conn) {
	t.Helper()
	site := newWebsite(t)
	d := &Dialer{Resolver: world}
	recording(t, d)
	connectBy(t, d, site.connect)
	e := &Egress{Dialer: d, Rules: mustRules(t, true, "*.public.test public.test", allTraffic), Denials: &Denials{}}
	conn := open(t, e)
	var sending sync.WaitGroup
	defer sending.Wait()
	sending.Go(func() { _, _ = io.WriteString(conn, j.requests) })
	from := bufio.NewReader(conn)
	for i, want := range j.statuses {
		answer, err := http.ReadResponse(from, nil)
		if err != nil {
			t.Fatalf("answer %d: %v, want status %d", i+1, err, want)
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("answer %d: got status %d, want %d", i+1, answer.StatusCode, want)
		}
	}
	_ = conn.Close()
	if diff := cmp.Diff(j.asked, site.asked); diff != "" {
		t.Errorf("the server was asked (-want +got):\n%s", diff)
	}
	if denied := e.Denials.Count() > 0; denied != slices.Contains(j.statuses, http.StatusForbidden) {
		t.Errorf("got %d denials for the statuses %v", e.Denials.Count(), j.statuses)
	}
}

// TestAskAboutEachRequest checks that a program is asked about the name in each request, or about
// the address for requests without a name.
func TestAskAboutEachRequest(t *testing.T) {
	t.Parallel()
	for by, open := range ways {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			site := newWebsite(t)
			e, _ := askingEgress(t, Policy{}, "", "")
			connectBy(t, e.Dialer, site.connect)
			ctx, end := context.WithCancel(t.Context())
			p := &program{}
			done := make(chan struct{})
			go func() { defer close(done); p.serve(ctx, e.Asks, "public.test:80", "203.0.113.5:80") }()
			defer func() { end(); <-done }()
			conn := open(t, e)
			defer conn.Close()
			from := bufio.NewReader(conn)
			for _, tt := range []struct {
				host   string
				status int
			}{{"203.0.113.5", 200}, {"public.test", 200}, {"other.test", 403}, {"203.0.113.9", 200}} {
				fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", tt.host)
				answer, err := http.ReadResponse(from, nil)
				must.Do(t, err)
				_, _ = io.Copy(io.Discard, answer.Body)
				_ = answer.Body.Close()
				if answer.StatusCode != tt.status {
					t.Errorf("%s: got status %d, want %d", tt.host, answer.StatusCode, tt.status)
				}
			}
			asked := p.hosts()
			slices.Sort(asked)
			if diff := cmp.Diff([]string{"203.0.113.5:80", "other.test:80", "public.test:80"}, asked); diff != "" {
				t.Errorf("asked (-want +got):\n%s", diff)
			}
		})
	}
}

// TestGatePasses checks that a websocket passes the gate, and so does the answer to a client that
// has closed its sending half.
func TestGatePasses(t *testing.T) {
	t.Parallel()
	for by, open := range ways {
		for name, tt := range map[string]struct{ request, after, want string }{
			"a websocket":         {"GET / HTTP/1.1\r\nHost: public.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", "hello", "hello"},
			"a client that ended": {"GET / HTTP/1.1\r\nHost: public.test\r\n\r\n", "", "ok"},
		} {
			t.Run(name+" "+by, func(t *testing.T) {
				t.Parallel()
				site := newWebsite(t)
				d := &Dialer{Resolver: world}
				recording(t, d)
				connectBy(t, d, site.connect)
				conn := open(t, &Egress{Dialer: d, Rules: mustRules(t, true, "public.test", allTraffic), Denials: &Denials{}})
				_, _ = io.WriteString(conn, tt.request)
				from := bufio.NewReader(conn)
				answer, err := http.ReadResponse(from, nil)
				must.Do(t, err)
				defer answer.Body.Close()
				_, _ = io.WriteString(conn, tt.after)
				_ = conn.(interface{ CloseWrite() error }).CloseWrite()
				got, err := io.ReadAll(io.MultiReader(answer.Body, from))
				if string(got) != tt.want || err != nil {
					t.Errorf("got %q, %v, want %q and no error", got, err, tt.want)
				}
			})
		}
	}
}

// TestUpstreamEndsWithClient checks that the connection to a server ends with the client's
// connection, even if later requests could use it.
func TestUpstreamEndsWithClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		conn, server := gated(t)
		defer server.Close()
		fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: public.test\r\n\r\n")
		if _, err := http.ReadRequest(bufio.NewReader(server)); err != nil {
			t.Fatal(err)
		}
		go fmt.Fprint(server, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		must.Do(t, err)
		_ = answer.Body.Close()
		synctest.Wait() // the gate keeps the connection
		start := time.Now()
		_ = conn.Close()
		_, err = server.Read(make([]byte, 1))
		if took := time.Since(start); !errors.Is(err, io.EOF) || took != 0 {
			t.Errorf("the server read %v after %v, want the end at once", err, took)
		}
	})
}
