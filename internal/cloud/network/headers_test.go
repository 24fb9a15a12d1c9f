package network

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

func withHeaders(t *testing.T, r *Rules, hosts ...string) *Rules {
	t.Helper()
	asked := map[string]map[string]string{}
	for _, host := range hosts {
		asked[host] = map[string]string{"X": host}
	}
	with, err := r.WithHeaders(asked)
	must.Do(t, err)
	return with
}

func TestWhichHeaders(t *testing.T) {
	t.Parallel()
	r := withHeaders(t, nil, "API.test", "*.wild.test", "*.deep.wild.test", "exact.wild.test")
	empty, err := r.WithHeaders(map[string]map[string]string{"*.test": {"X": "y"}, "not.test": nil})
	must.Do(t, err)
	for _, tt := range []struct {
		rules      *Rules
		host, want string
	}{
		{r, "api.test", "API.test"},
		{r, "Api.Test.", "API.test"},
		{r, "a.api.test", ""},
		{r, "test", ""},
		{r, "wild.test", ""},
		{r, "notwild.test", ""},
		{r, "a.wild.test", "*.wild.test"},
		{r, "a.b.wild.test", "*.wild.test"},
		{r, "a.deep.wild.test", "*.deep.wild.test"},
		{r, "deep.wild.test", "*.wild.test"},
		{r, "exact.wild.test", "exact.wild.test"},
		{r, "a.exact.wild.test", "*.wild.test"},
		{r, "*.wild.test", ""},
		{r, ".wild.test", ""},
		{r, "a b.wild.test", ""},
		{r, "203.0.113.1", ""},
		{r, "", ""},
		{empty, "a.test", "y"},
		{empty, "not.test", ""},
		{nil, "a.test", ""},
	} {
		got := ""
		if headers := tt.rules.Headers(tt.host); len(headers) > 0 {
			got, _ = headers[0].Value(nil)
		}
		if got != tt.want {
			t.Errorf("%q: got the headers of %q, want %q", tt.host, got, tt.want)
		}
	}
}

// entrance is a Door that records the connections that it receives.
type entrance struct{ said chan string }

func (e entrance) Serve(conn net.Conn) {
	go func() {
		defer conn.Close()
		text := make([]byte, 5)
		_, err := io.ReadFull(conn, text)
		e.said <- fmt.Sprintf("%x %v", text[:1], err)
	}()
}

// TestDoor checks that a connection to a host with header rules goes to the door, for every way in
// which a program can connect. All other connections are passed on unchanged.
func TestDoor(t *testing.T) {
	t.Parallel()
	door, helloFor := entrance{make(chan string, 1)}, hello(t, "api.test")
	d := &Dialer{Resolver: names{"api.test": {"203.0.113.5"}, "other.test": {"203.0.113.6"}}}
	dialled := recording(t, d)
	e := &Egress{Dialer: d, Rules: withHeaders(t, nil, "api.test"), Denials: &Denials{}, Door: door}
	hello := "\x16\x03\x01\x00\x01" // incomplete
	for _, tt := range []struct {
		host string
		port uint16
		door bool
	}{
		{"api.test", 443, true},
		{"API.test.", 443, true},
		{"api.test", 80, false},
		{"api.test", 8443, false},
		{"other.test", 443, false},
		{"203.0.113.5", 443, false},
	} {
		*dialled = nil
		conn, err := e.Dial(t.Context(), tt.host, tt.port)
		must.Do(t, err)
		if tt.door {
			if _, err := io.WriteString(conn, hello); err != nil {
				t.Error(err)
			}
			if got := patience.Receive(t, "what the door reads", door.said); got != "16 <nil>" {
				t.Errorf("%s: the door read %s, want what was sent", tt.host, got)
			}
		}
		if len(*dialled) > 0 == tt.door {
			t.Errorf("%s:%d: dialled %v, want the door %v", tt.host, tt.port, *dialled, tt.door)
		}
		_ = conn.Close()
	}
	near, far := pair(t) // for a program that connects to an address
	if _, err := io.WriteString(near, helloFor); err != nil {
		t.Fatal(err)
	}
	conn, err := e.connect(t.Context(), far, netip.MustParseAddrPort("203.0.113.6:443"))
	must.Do(t, err)
	if got := patience.Receive(t, "what the door reads", door.said); got != "16 <nil>" {
		t.Errorf("by address: the door read %s, want what was sent", got)
	}
	_ = conn.Close()
	closed, err := ParseRules(false, nil, nil)
	must.Do(t, err)
	var denials Denials
	e = &Egress{Dialer: d, Rules: withHeaders(t, closed, "api.test"), Denials: &denials, Door: door}
	_, err = e.Dial(t.Context(), "api.test", 443)
	if _, ok := errors.AsType[*DeniedError](err); !ok || denials.Count() != 1 {
		t.Errorf("headers allow nothing: got %v and %d denials, want one denial", err, denials.Count())
	}
}

// TestPassOn checks that the bytes that were read to find the name are passed on, even if they are
// not TLS.
func TestPassOn(t *testing.T) {
	t.Parallel()
	origin, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must.Do(t, err)
	defer origin.Close()
	got := make(chan string, 1)
	go func() {
		conn, err := origin.Accept()
		if err != nil {
			got <- err.Error()
			return
		}
		defer conn.Close()
		text, _ := io.ReadAll(conn)
		got <- string(text)
	}()
	d := &Dialer{}
	recording(t, d)
	connectBy(t, d, func(ctx context.Context, _ *net.Dialer, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", origin.Addr().String())
	})
	e := &Egress{Dialer: d, Rules: withHeaders(t, nil, "api.test"), Denials: &Denials{}, Door: entrance{}}
	near, far := pair(t)
	const text = "SSH-2.0-client\r\nand more than the beginning of a handshake"
	if _, err := io.WriteString(near, text); err != nil {
		t.Fatal(err)
	}
	outside, err := e.connect(t.Context(), far, netip.MustParseAddrPort("203.0.113.5:443"))
	must.Do(t, err)
	if err := near.CloseWrite(); err != nil {
		t.Error(err)
	}
	if _, err := io.Copy(outside, far); err != nil {
		t.Error(err)
	}
	_ = outside.Close()
	if got := patience.Receive(t, "what was passed on", got); !strings.HasPrefix(got, text) {
		t.Errorf("got %q, want %q", got, text)
	}
}

// pair returns both ends of a TCP connection. A read of near that waits for too long ends.
func pair(t *testing.T) (near, far *net.TCPConn) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must.Do(t, err)
	defer l.Close()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String())
	must.Do(t, err)
	accepted, err := l.Accept()
	must.Do(t, err)
	t.Cleanup(func() { conn.Close(); accepted.Close() })
	must.Do(t, conn.SetReadDeadline(patience.Deadline()))
	return conn.(*net.TCPConn), accepted.(*net.TCPConn)
}

// TestNamesOfSecrets checks that a secret has one name, however a rule writes it, and that this
// name is used to get its value.
func TestNamesOfSecrets(t *testing.T) {
	t.Parallel()
	r, err := (*Rules)(nil).WithHeaders(map[string]map[string]string{"a.test": {"X": "1 ${e2b.secrets.Key_A}${e2b.secrets.key-b} 2", "Y": "${e2b.secrets.KEY_A}"}, "b.test": {"X": "plain"}})
	must.Do(t, err)
	if diff := cmp.Diff([]string{"key-b", "key_a"}, r.Secrets()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	got, err := r.Headers("a.test")[0].Value(func(name string) (string, error) { return "<" + name + ">", nil })
	must.Do(t, err)
	if want := "1 <key_a><key-b> 2"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestRefusedHeaders checks each reason for which header rules are refused, and the rules beside them that
// are valid. No reason contains a value, which may be a secret.
func TestRefusedHeaders(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		host, name, value string
		want              string // "": the rule is valid
	}{
		{"a.test", "X", "${e2b.secrets.a-B_9}}", ""},
		{"a.test", "X", "${e2b.} ${e2b", "placeholder that is not ${e2b.secrets.NAME}"},
		{"a.test", "X", "${e2b", ""},
		{"a.test", "X", "${e2b.secrets.password", "placeholder that is not"},
		{"a.test", "X", "${e2b.secrets.}", "placeholder that is not"},
		{"a.test", "X", "${e2b.secrets.pass word}", "placeholder that is not"},
		{"a.test", "X", "${e2b.password}", "placeholder that is not"},
		{"a.test", "X", "${e2b.identity.tokens.password}", "an IAM token"},
		{"a.test", "X", "${e2b.identity.tokens.password", "placeholder that is not"},
		{"a.test", "X", "password\n", "control characters"},
		{"a.test", "X", strings.Repeat("password", 257), "more than 2048 bytes"},
		{"a.test", "", "x", "is not the name of a header"},
		{"a.test", "X Y", "x", "is not the name of a header"},
		{"a.test", "host", "x", "the header Host belongs to the connection"},
		{"a.test", "TE", "x", "the header Te belongs to the connection"},
		{"203.0.113.1", "X", "x", "headers are for hosts with a name"},
		{"[2001:db8::1]", "X", "x", "headers are for hosts with a name"},
		{"127.1", "X", "x", "headers are for hosts with a name"},
		{"a.test:443", "X", "x", "without a scheme and a port"},
		{"https://a.test", "X", "x", "without a scheme and a port"},
		{"*", "X", "x", "want a name of at most 128 characters"},
		{"a.*", "X", "x", "want a name of at most 128 characters"},
		{"*.*.test", "X", "x", "want a name of at most 128 characters"},
		{"", "X", "x", "want a name of at most 128 characters"},
		{"*.A.test.", "X", "x", ""},
	} {
		_, err := (*Rules)(nil).WithHeaders(map[string]map[string]string{tt.host: {tt.name: tt.value}})
		rule, refused := errors.AsType[*RuleError](err)
		if !refused {
			rule = &RuleError{"rules", tt.host, ""}
		}
		secret := strings.Contains(rule.Reason, "password")
		if refused != (tt.want != "") || rule.List+rule.Entry != "rules"+tt.host || !strings.Contains(rule.Reason, tt.want) || secret {
			t.Errorf("%q, %q: %.40q: got error %v, want %q", tt.host, tt.name, tt.value, err, tt.want)
		}
	}
	for _, twice := range []map[string]map[string]string{{"a.test": nil, "A.test.": nil}, {"a.test": {"X-Y": "", "x-y": ""}}} {
		if _, err := (*Rules)(nil).WithHeaders(twice); err == nil || !strings.Contains(err.Error(), "is there twice") {
			t.Errorf("%v: got error %v", twice, err)
		}
	}
	open := mustRules(t, true, "", "198.51.100.0/24")
	if same, err := open.WithHeaders(nil); err != nil || same != open {
		t.Errorf("without headers: got other rules %v and error %v", same, err)
	}
	if with := withHeaders(t, open, "a.test"); !with.denies(netip.MustParseAddr("198.51.100.1")) || open.Headers("a.test") != nil {
		t.Errorf("got the rules %+v, from %+v", with, open)
	}
	failing := errors.New("no such secret")
	r, err := (*Rules)(nil).WithHeaders(map[string]map[string]string{"a.test": {"X": "a${e2b.secrets.b}"}})
	must.Do(t, err)
	if got, err := r.Headers("a.test")[0].Value(func(string) (string, error) { return "", failing }); got != "" || !errors.Is(err, failing) || !strings.Contains(err.Error(), "the secret b of the header X") {
		t.Errorf("without its secret: got %q and error %v", got, err)
	}
}
