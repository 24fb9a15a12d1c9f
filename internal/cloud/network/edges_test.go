package network

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// TestNetworksByTheirEdges checks that each network that has its own rule is subject to it from its
// first address to its last, and that the addresses before and after it are not.
func TestNetworksByTheirEdges(t *testing.T) {
	t.Parallel()
	const open = ""
	for _, tt := range []struct{ before, first, last, after, rule, beside, behind string }{
		{"", "0.0.0.0", "0.255.255.255", "1.0.0.0", ruleUnspec, open, open},
		{"9.255.255.255", "10.0.0.0", "10.255.255.255", "11.0.0.0", rulePrivate, open, open},
		{"100.63.255.255", "100.64.0.0", "100.127.255.255", "100.128.0.0", rulePrivate, open, open},
		{"100.100.100.199", "100.100.100.200", "100.100.100.200", "100.100.100.201", ruleMetadata, rulePrivate, rulePrivate},
		{"126.255.255.255", "127.0.0.0", "127.255.255.255", "128.0.0.0", ruleLoopback, open, open},
		{"168.63.129.15", "168.63.129.16", "168.63.129.16", "168.63.129.17", ruleMetadata, open, open},
		{"169.253.255.255", "169.254.0.0", "169.254.255.255", "169.255.0.0", ruleLinkLocal, open, open},
		{"169.254.169.253", "169.254.169.254", "169.254.169.254", "169.254.169.255", ruleMetadata, ruleLinkLocal, ruleLinkLocal},
		{"172.15.255.255", "172.16.0.0", "172.31.255.255", "172.32.0.0", rulePrivate, open, open},
		{"191.255.255.255", "192.0.0.0", "192.0.0.191", "192.0.0.192", rulePrivate, open, ruleMetadata},
		{"192.0.0.192", "192.0.0.193", "192.0.0.255", "192.0.1.0", rulePrivate, ruleMetadata, open},
		{"192.167.255.255", "192.168.0.0", "192.168.255.255", "192.169.0.0", rulePrivate, open, open},
		{"198.17.255.255", "198.18.0.0", "198.19.255.255", "198.20.0.0", rulePrivate, open, open},
		{"223.255.255.255", "224.0.0.0", "239.255.255.255", "240.0.0.0", ruleMulticast, open, rulePrivate},
		{"239.255.255.255", "240.0.0.0", "255.255.255.254", "255.255.255.255", rulePrivate, ruleMulticast, ruleMulticast},
		{"192.0.2.9", "192.0.2.10", "192.0.2.10", "192.0.2.11", ruleOwn, open, open},
		{"2001:db8::f", "2001:db8::10", "2001:db8::10", "2001:db8::11", ruleOwn, open, open},
		{"fbff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "fc00::", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "fe00::", rulePrivate, open, open},
		{"fd00:ec2::253", "fd00:ec2::254", "fd00:ec2::254", "fd00:ec2::255", ruleMetadata, rulePrivate, rulePrivate},
		{"fd20:ce::253", "fd20:ce::254", "fd20:ce::254", "fd20:ce::255", ruleMetadata, rulePrivate, rulePrivate},
		{"fd00:42::41", "fd00:42::42", "fd00:42::42", "fd00:42::43", ruleMetadata, rulePrivate, rulePrivate},
		{"fe7f:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "fe80::", "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "fec0::", ruleLinkLocal, open, rulePrivate},
		{"febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "fec0::", "feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "ff00::", rulePrivate, ruleLinkLocal, ruleMulticast},
		{"feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "ff00::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "", ruleMulticast, rulePrivate, open},
		{"64:ff9b:0:ffff:ffff:ffff:ffff:ffff", "64:ff9b:1:1::", "64:ff9b:1:ffff:ffff:ffff:ffff:ffff", "64:ff9b:2::", rulePrivate, open, open},

		// Networks whose addresses stand for an IPv4 address, here for one that is never reachable.
		{"", "::7f00:0", "::7fff:ffff", "::1:7f00:0", ruleLoopback, open, open},
		{"::a9fd:ffff", "::a9fe:0", "::a9fe:ffff", "::a9ff:0", ruleLinkLocal, open, open},
		{"64:ff9a:ffff:ffff:ffff:ffff:7f00:0", "64:ff9b::7f00:0", "64:ff9b::7fff:ffff", "64:ff9b::1:7f00:0", ruleLoopback, open, open},
		{"64:ff9b:0:ffff:ffff:ffff:7f00:0", "64:ff9b:1::7f00:0", "64:ff9b:1::7fff:ffff", "64:ff9b:1:0:0:1:7f00:0", ruleLoopback, open, rulePrivate},
		{"::fffe:ffff:7f00:0", "::ffff:0:7f00:0", "::ffff:0:7fff:ffff", "::ffff:1:7f00:0", ruleLoopback, open, open},
		{"2001:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "2002:7f00::", "2002:7fff:ffff:ffff:ffff:ffff:ffff:ffff", "2002:8000::", ruleLoopback, open, open},
		{"::ffff:126.255.255.255", "::ffff:127.0.0.0", "::ffff:127.255.255.255", "::ffff:128.0.0.0", ruleLoopback, open, open},
	} {
		d := &Dialer{}
		recording(t, d)
		own, err := d.own()
		must.Do(t, err)
		for address, want := range map[string]string{tt.before: tt.beside, tt.first: tt.rule, tt.last: tt.rule, tt.after: tt.behind} {
			if address == "" {
				continue
			}
			a := netip.MustParseAddr(address)
			if got := (Policy{DenyPrivate: true}).check(a, nil, false, own); got != want {
				t.Errorf("%s without private networks: got %q, want %q", address, got, want)
			}
			if got, internal := Internal(a), want != open && want != ruleOwn; got != internal {
				t.Errorf("%s: got internal %v, want %v", address, got, internal)
			}
			allowing := &Rules{allow: []netip.Prefix{netip.PrefixFrom(a, a.BitLen())}}
			if got := (Policy{NeverPrivate: true}).check(a, allowing, true, own); got != want {
				t.Errorf("%s without private networks for anybody: got %q, want %q", address, got, want)
			}
			if want == rulePrivate {
				want = open
			}
			if got := (Policy{DenyPrivate: true}).check(a, allowing, false, own); got != want {
				t.Errorf("%s, which the rules allow: got %q, want %q", address, got, want)
			}
			if got := (Policy{}).check(a, nil, false, own); got != want {
				t.Errorf("%s: got %q, want %q", address, got, want)
			}
		}
	}
}

// TestRuleBounds checks that each bound of rules allows its value and the value below, and refuses
// the value above.
func TestRuleBounds(t *testing.T) {
	t.Parallel()
	addresses := func(n int) []string {
		var list []string
		for i := range n {
			list = append(list, fmt.Sprintf("203.0.%d.%d", i/256, i%256))
		}
		return list
	}
	name := func(n int) string { // a name of n bytes
		const label = "a23456789."
		return strings.Repeat(label, n/len(label)) + strings.Repeat("b", n%len(label))
	}
	allow := func(entry string) error {
		_, err := ParseRules(true, []string{entry}, []string{allTraffic})
		return err
	}
	headers := func(asked map[string]map[string]string) error {
		_, err := (*Rules)(nil).WithHeaders(asked)
		return err
	}
	many := func(n int, key func(i int) string) map[string]string {
		all := map[string]string{}
		for i := range n {
			all[key(i)] = "value"
		}
		return all
	}
	for what, tt := range map[string]struct {
		bound int
		try   func(n int) error
	}{
		"hosts with headers": {10, func(n int) error {
			asked := map[string]map[string]string{}
			for i := range n {
				asked[fmt.Sprintf("host%d.test", i)] = nil
			}
			return headers(asked)
		}},
		"hosts with requests": {10, func(n int) error {
			asked := map[string][]Request{}
			for i := range n {
				asked[fmt.Sprintf("host%d.test", i)] = []Request{{}}
			}
			_, err := (&Rules{deny: everything}).WithRequests(asked)
			return err
		}},
		"bytes of a host with headers": {128, func(n int) error { return headers(map[string]map[string]string{name(n): nil}) }},
		"headers of a host": {20, func(n int) error {
			return headers(map[string]map[string]string{"a.test": many(n, func(i int) string { return fmt.Sprint("X-", i) })})
		}},
		"bytes of a header's name": {64, func(n int) error {
			return headers(map[string]map[string]string{"a.test": {strings.Repeat("x", n): ""}})
		}},
		"bytes of a header's value": {2048, func(n int) error {
			return headers(map[string]map[string]string{"a.test": {"X": strings.Repeat("x", n)}})
		}},
		"secrets of a host": {32, func(n int) error {
			return headers(map[string]map[string]string{"a.test": {"X": strings.Repeat("${e2b.secrets.a}", n/2), "Y": strings.Repeat("${e2b.secrets.a}", n-n/2)}})
		}},
		"entries that are allowed": {1000, func(n int) error { _, err := ParseRules(true, addresses(n), nil); return err }},
		"entries that are denied":  {1000, func(n int) error { _, err := ParseRules(true, nil, addresses(n)); return err }},
		"name servers":             {10, func(n int) error { _, err := AllowNameServers(nil, addresses(n)); return err }},
		"bytes of a name":          {253, func(n int) error { return allow(name(n)) }},
		"bytes of a label":         {63, func(n int) error { return allow(strings.Repeat("a", n) + ".test") }},
		"bits of an IPv4 network":  {32, func(n int) error { return allow(fmt.Sprintf("203.0.113.0/%d", n)) }},
		"bits of an IPv6 network":  {128, func(n int) error { return allow(fmt.Sprintf("2001:db8::/%d", n)) }},
	} {
		for n := tt.bound - 1; n <= tt.bound+1; n++ {
			err := tt.try(n)
			if _, ok := errors.AsType[*RuleError](err); ok != (n > tt.bound) || (err != nil) != ok {
				t.Errorf("%d %s: got %v, want an error above %d", n, what, err, tt.bound)
			}
		}
	}
	_, err := ParseRules(true, nil, addresses(1002))
	if rule, ok := errors.AsType[*RuleError](err); !ok || rule.Entry != addresses(1002)[1000] {
		t.Errorf("got %v, want the first entry that is too many", err)
	}
}

// TestNetworksAreMasked checks that a network is the same whichever of its addresses names it: a
// network of all addresses denies all traffic.
func TestNetworksAreMasked(t *testing.T) {
	t.Parallel()
	for _, all := range []string{allTraffic, "203.0.113.7/0"} {
		r, err := ParseRules(true, []string{"example.com", "198.51.100.7/24"}, []string{all})
		must.Do(t, err)
		if !r.DenyAll() || !r.allows(netip.MustParseAddr("198.51.100.1")) {
			t.Errorf("%s: got %+v, want all traffic to be denied except for one network and one name", all, r)
		}
	}
}

// TestNameServers checks that name servers are IPv4 addresses that a host can have, and that they are
// allowed if a name is.
func TestNameServers(t *testing.T) {
	t.Parallel()
	for server, valid := range map[string]bool{
		"203.0.113.1": true, "0.0.0.0": false, "::": false, "2001:db8::1": false, "::ffff:203.0.113.1": false, "example.com": false, "": false,
	} {
		_, err := AllowNameServers(nil, []string{"203.0.113.2", server})
		if _, ok := errors.AsType[*RuleError](err); ok == valid || (err != nil) != ok {
			t.Errorf("%q: got %v, want valid %v", server, err, valid)
		}
	}
	servers := []string{"203.0.113.1", "203.0.113.2"}
	for _, tt := range []struct{ allow, want []string }{
		{nil, nil}, {[]string{"10.0.0.0/8", "::1"}, []string{"10.0.0.0/8", "::1"}}, {[]string{"10.0.0.1", "a.test"}, []string{"10.0.0.1", "a.test", "203.0.113.1", "203.0.113.2"}},
	} {
		got, err := AllowNameServers(tt.allow, servers)
		must.Do(t, err)
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", tt.allow, diff)
		}
	}
}

// TestFirstMessageHasADeadline checks that a client has ten seconds for its first message, even if
// it sends the message byte by byte.
func TestFirstMessageHasADeadline(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		port uint16
		drip string
	}{{portHTTP, ""}, {portHTTPS, ""}, {portHTTP, "GET / HTTP"}, {portHTTPS, "\x16\x03\x01\x01\x00\x01"}} {
		synctest.Test(t, func(t *testing.T) {
			near, far := net.Pipe()
			var dripping sync.WaitGroup
			dripping.Go(func() {
				for i := range tt.drip {
					<-time.After(3 * time.Second)
					_, _ = io.WriteString(far, tt.drip[i:i+1])
				}
			})
			start := time.Now()
			_, err := listen(t.Context(), near, tt.port)
			if took := time.Since(start); took != 10*time.Second || err == nil || errors.Is(err, errNoName) {
				t.Errorf("port %d, %q: got %v after %v, want an error after 10s", tt.port, tt.drip, err, took)
			}
			_ = far.Close()
			_ = near.Close()
			dripping.Wait()
		})
	}
}

// failing is a connection whose writes fail.
type failing struct {
	net.Conn
	closed atomic.Bool
}

func (*failing) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
func (f *failing) Close() error            { f.closed.Store(true); return f.Conn.Close() }

// TestUnusedConnectionsEnd checks that a connection is closed if it does not take the first
// message, or if it leads to a host whose name the client does not show.
func TestUnusedConnectionsEnd(t *testing.T) {
	t.Parallel()
	for _, shown := range []string{"public.test", "other.test"} {
		for _, port := range []uint16{portHTTP, portHTTPS} {
			client, inside := net.Pipe()
			near, far := net.Pipe()
			outside := &failing{Conn: near}
			message := hello(t, shown)
			if port == portHTTP {
				message = "GET / HTTP/1.1\r\nHost: " + shown + "\r\n\r\n"
			}
			go func() { _, _ = io.WriteString(client, message); _, _ = io.Copy(io.Discard, client); _ = client.Close() }()
			d := &Dialer{Resolver: world}
			recording(t, d)
			e := &Egress{Dialer: d, Rules: mustRules(t, true, "public.test", allTraffic), Denials: &Denials{}}
			conn, err := e.admit(t.Context(), inside, "public.test", port, outside)
			if passed := shown == "public.test" && port == portHTTP; (err == nil) != passed {
				t.Errorf("%s on port %d: got %v, want it to pass: %t", shown, port, err, passed)
			}
			if conn != nil {
				_ = conn.Close()
			}
			_ = inside.Close()
			if _, err := far.Read(make([]byte, 1)); err == nil || !outside.closed.Load() {
				t.Errorf("%s on port %d: the connection is open", shown, port)
			}
		}
	}
}

// TestAnswersKeepTheRules checks that a program's answer allows only the name. Addresses of the
// name that a rule of the sandbox denies are not connected to, and are counted as denials.
func TestAnswersKeepTheRules(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		defer end()
		for name, tt := range map[string]struct {
			policy Policy
			deny   string
			rule   string // rule of the counted denial; "": none
		}{
			"public.test":  {Policy{}, "10.0.0.0/8", ""},
			"inner.test":   {Policy{}, "10.0.0.0/8", ruleDenied},
			"both.test":    {Policy{DenyPrivate: true}, "", ""},
			"rebound.test": {Policy{}, "", ruleLoopback},
			"own.test":     {Policy{}, "", ruleOwn},
			"other.test":   {Policy{}, "198.51.100.0/24", ruleDenied},
		} {
			e, _ := askingEgress(t, tt.policy, "", tt.deny)
			go (&program{}).serve(ctx, e.Asks, name+":22")
			standIn := netip.MustParseAddr(ask(t, e, name, dnsmessage.TypeA)[0])
			conn, err := e.connect(t.Context(), nil, netip.AddrPortFrom(standIn, 22))
			if got := ruleOf(t, conn, err); got != tt.rule {
				t.Errorf("%s: got the denial %q, want %q", name, got, tt.rule)
			}
			want := uint64(0)
			if tt.rule != "" {
				want = 1
			}
			if got := e.Denials.Count(); uint64(got) != want {
				t.Errorf("%s: got %d denials, want %d", name, got, want)
			}
		}
	})
}

// TestFirstMessageIsBounded checks that a first message may have 72 KiB, but not more.
func TestFirstMessageIsBounded(t *testing.T) {
	t.Parallel()
	for size, fits := range map[int]bool{72<<10 - 1: true, 72 << 10: true, 72<<10 + 1: false} {
		const start, rest = "GET / HTTP/1.1\r\nHost: public.test\r\nLong: ", "\r\n\r\n"
		near, far := net.Pipe()
		message := start + strings.Repeat("x", size-len(start)-len(rest)) + rest
		go func() { _, _ = io.WriteString(far, message) }() // until near is closed
		heard, err := listen(t.Context(), near, portHTTP)
		if (err == nil) != fits {
			t.Errorf("%d bytes: got error %v, want them to fit: %t", size, err, fits)
		}
		if fits && string(heard.bytes) != message {
			t.Errorf("%d bytes: got other bytes than were sent", size)
		}
		_ = near.Close()
	}
}

// TestFirstMessageLeavesTheConnection checks that cancelling the connection ends the wait for its
// first message, and that bytes after the message have no deadline.
func TestFirstMessageLeavesTheConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		ctx, end := context.WithCancel(t.Context())
		go end()
		start := time.Now()
		if _, err := listen(ctx, near, portHTTP); err == nil || time.Since(start) != 0 {
			t.Errorf("got error %v after %v, want one at once", err, time.Since(start))
		}
		_ = near.Close()
		_ = far.Close()

		near, far = net.Pipe()
		var writing sync.WaitGroup
		writing.Go(func() {
			_, _ = io.WriteString(far, "GET / HTTP/1.1\r\nHost: public.test\r\n\r\n")
			<-time.After(time.Hour)
			_, _ = io.WriteString(far, "late")
		})
		ctx, end = context.WithCancel(t.Context())
		if _, err := listen(ctx, near, portHTTP); err != nil {
			t.Error(err)
		}
		end() // bounds the first message only
		synctest.Wait()
		late := make([]byte, 4)
		if _, err := io.ReadFull(near, late); err != nil || string(late) != "late" {
			t.Errorf("got %q and error %v an hour later, want what came", late, err)
		}
		_ = near.Close()
		_ = far.Close()
		writing.Wait()
	})
}

// TestJoinEndsWithItsContext checks that joined connections end with the context, even while
// nothing is sent.
func TestJoinEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBalance(t)
		client, inside := net.Pipe()
		outside, server := net.Pipe()
		ctx, end := context.WithCancel(t.Context())
		var joined sync.WaitGroup
		joined.Go(func() { join(ctx, b.count(inside), b.count(outside)) })
		synctest.Wait()
		end()
		for _, conn := range []net.Conn{client, server} {
			if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Errorf("got error %v, want the end", err)
			}
			_ = conn.Close()
		}
		joined.Wait()
	})
}

// TestJoinWaitsForBothDirections checks that each direction may continue after the other one has
// ended, and that both connections are closed at the end. It runs before the parallel tests, because
// an open connection would make those wait.
func TestJoinWaitsForBothDirections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, first := range []int{0, 1} {
			_, client, inside := newDuplex(t.Context())
			_, outside, server := newDuplex(t.Context())
			var of [2]balance
			var joined sync.WaitGroup
			joined.Go(func() { join(t.Context(), of[0].count(inside), of[1].count(outside)) })
			ends := []net.Conn{client, server}
			_ = ends[first].(*duplex).CloseWrite()
			synctest.Wait()
			go func() { _, _ = io.WriteString(ends[1-first], "late"); _ = ends[1-first].Close() }()
			if got, err := io.ReadAll(ends[first]); string(got) != "late" || err != nil {
				t.Errorf("end %d: got %q and error %v, want what came late", first, got, err)
			}
			_ = ends[first].Close()
			joined.Wait()
			if a, b := of[0].open.Load(), of[1].open.Load(); a+b > 0 {
				t.Errorf("end %d: after the end, %d and %d connections are open, want none", first, a, b)
			}
		}
	})
}

// TestUnreadableMessageEndsTheConnection checks that a client without an answer still sees the
// end of its connection.
func TestUnreadableMessageEndsTheConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &Dialer{Resolver: world}
		recording(t, d)
		e := &Egress{Dialer: d, Rules: mustRules(t, true, "public.test", allTraffic), Denials: &Denials{}}
		conn, err := e.Dial(t.Context(), "public.test", portHTTP)
		must.Do(t, err)
		defer conn.Close()
		_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost : public.test\r\n\r\n")
		start := time.Now()
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) || time.Since(start) != 0 {
			t.Errorf("got error %v after %v, want the end at once", err, time.Since(start))
		}
	})
}

// TestSilentProxyIsGivenUp checks that a cancelled dial ends at once, with its connection, if the
// proxy does not answer.
func TestSilentProxyIsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		d := &Dialer{}
		connectBy(t, d, func(context.Context, *net.Dialer, string) (net.Conn, error) {
			near, far := net.Pipe()
			go func() {
				_, _ = bufio.NewReader(far).ReadString('\n')
				end()
				_, _ = io.Copy(io.Discard, far)
				_ = far.Close()
			}()
			return near, nil
		})
		start := time.Now()
		_, err := d.throughProxy(ctx, &url.URL{Scheme: "http", Host: "proxy.test:1"}, "a.test:1", anywhere)
		if err == nil || time.Since(start) != 0 {
			t.Errorf("got error %v after %v, want one at once", err, time.Since(start))
		}
	})
}

// TestAddressesAreBounded checks that only the first eight addresses of a name are tried, IPv4
// addresses first.
func TestAddressesAreBounded(t *testing.T) {
	t.Parallel()
	all := []string{"2001:db8::5"}
	for i := range 9 {
		all = append(all, fmt.Sprintf("203.0.113.%d", i+1))
	}
	d := &Dialer{Resolver: names{"many.test": all}}
	var tried []string
	connectBy(t, d, func(_ context.Context, _ *net.Dialer, address string) (net.Conn, error) {
		tried = append(tried, strings.TrimSuffix(address, ":443"))
		return nil, io.ErrUnexpectedEOF
	})
	if _, err := dial(t, d, "many.test", 443); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got error %v, want that of the connections", err)
	}
	if diff := cmp.Diff(all[1:9], tried); diff != "" {
		t.Errorf("tried (-want +got):\n%s", diff)
	}
}

func TestIsHere(t *testing.T) {
	t.Parallel()
	own := []netip.Addr{netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("fe80::10")}
	for address, want := range map[string]bool{
		"127.0.0.1": true, "::ffff:127.0.0.1": true, "0.0.0.0": true, "::ffff:0.0.0.0": true, "192.0.2.10": true, "::ffff:192.0.2.10": true,
		"fe80::10%eth0": true, "192.0.2.11": false, "::ffff:192.0.2.11": false, "fe80::11%eth0": false,
	} {
		if got := isHere(netip.MustParseAddr(address), own); got != want {
			t.Errorf("%s: got %t, want %t", address, got, want)
		}
	}
}

// noDeadline is a connection that ignores deadlines.
type noDeadline struct{ net.Conn }

func (noDeadline) SetDeadline(time.Time) error { return nil }

// TestProxyThatAnswersTooLate checks that no connection through a proxy is returned after the
// context has ended, because the deadline of that connection has passed. A refusal keeps its reason.
func TestProxyThatAnswersTooLate(t *testing.T) {
	t.Parallel()
	late := errors.New("too late")
	for status, want := range map[string]error{"200 OK": late, "403 Forbidden": errAnswered} {
		must.Is(t, answersLate(t, status, late), want)
	}
}

// answersLate returns the error of a connection through a proxy that answers just after the context has
// ended because of late.
func answersLate(t *testing.T, status string, late error) error {
	t.Helper()
	ctx, end := context.WithCancelCause(t.Context())
	d := &Dialer{}
	closed := make(chan error, 1)
	connectBy(t, d, func(context.Context, *net.Dialer, string) (net.Conn, error) {
		near, far := net.Pipe()
		go func() {
			_, _ = http.ReadRequest(bufio.NewReader(far))
			end(late)
			_, _ = io.WriteString(far, "HTTP/1.1 "+status+"\r\nContent-Length: 0\r\n\r\n")
			_, err := far.Read(make([]byte, 1))
			closed <- err
		}()
		return noDeadline{near}, nil
	})
	_, err := d.throughProxy(ctx, &url.URL{Scheme: "http", Host: "proxy.test:1"}, "a.test:1", anywhere)
	must.Is(t, patience.Receive(t, "the end of the connection", closed), io.EOF)
	return err
}
