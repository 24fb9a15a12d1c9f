package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/e2bctl/e2bctl/internal/must"
)

// program is a program that answers questions.
type program struct {
	mu    sync.Mutex
	asked []string
}

// serve answers every question until ctx ends. It allows the targets in allow, and denies all
// others. It does not answer questions about hosts that begin with "silent".
func (p *program) serve(ctx context.Context, a *Asks, allow ...string) {
	var last int64
	for ctx.Err() == nil {
		for _, q := range a.Open(ctx, last) {
			last = q.ID
			p.mu.Lock()
			p.asked = append(p.asked, q.String())
			p.mu.Unlock()
			if !strings.HasPrefix(q.Host, "silent") {
				a.Answer(q.ID, slices.Contains(allow, q.String()))
			}
		}
	}
}

// hosts returns the targets of the questions since the last call of hosts.
func (p *program) hosts() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	asked := p.asked
	p.asked = nil
	return asked
}

// lookups is a resolver that records its lookups.
type lookups struct {
	mu    sync.Mutex
	names []string
}

func (l *lookups) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.names = append(l.names, host)
	return world.LookupNetIP(ctx, network, host)
}

func askingEgress(t *testing.T, policy Policy, allow, deny string) (*Egress, *lookups) {
	t.Helper()
	rules, err := mustRules(t, true, allow, "0.0.0.0/0 "+deny).WithAsking()
	must.Do(t, err)
	seen := &lookups{}
	d := &Dialer{Policy: policy, Resolver: seen}
	recording(t, d)
	return &Egress{Dialer: d, Rules: rules, Denials: &Denials{}, Asks: new(Asks)}, seen
}

func ruleOf(t *testing.T, conn net.Conn, err error) string {
	t.Helper()
	if err == nil {
		_ = conn.Close()
		return ""
	}
	denied, ok := errors.AsType[*DeniedError](err)
	if !ok {
		t.Fatalf("got %v, want a denial", err)
	}
	if denied.Host == "" {
		t.Errorf("the denial %v names no host", err)
	}
	return denied.Rule
}

// TestAsk checks that a program is asked once about each host that only the rule about all traffic
// denies, and about no other host. No name is looked up before the answer.
func TestAsk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, seen := askingEgress(t, Policy{}, "api.public.test 203.0.113.64/26", "10.0.0.0/8")
		ctx, end := context.WithCancel(t.Context())
		defer end()
		p := &program{}
		go p.serve(ctx, e.Asks, "public.test:443", "inner.test:443", "rebound.test:443", "198.51.100.7:22", "203.0.113.9:22")
		for _, tt := range []struct {
			host, rule string
			asked      []string
		}{
			{"public.test", "", []string{"public.test:443"}},
			{"public.test", "", nil},
			{"PUBLIC.test.", "", nil},
			{"other.test", ruleRefused, []string{"other.test:443"}},
			{"Other.Test", ruleRefused, nil},
			{"absent.secret.test", ruleRefused, []string{"absent.secret.test:443"}},
			{"api.public.test", "", nil},
			{"203.0.113.70", "", nil},
			{"198.51.100.7", "", []string{"198.51.100.7:22"}},
			{"::ffff:198.51.100.7", "", nil},
			{"198.51.100.8", ruleRefused, []string{"198.51.100.8:22"}},
			{"2001:db8::5", ruleRefused, []string{"[2001:db8::5]:22"}},
			{"10.1.2.3", ruleDenied, nil},
			{"inner.test", ruleDenied, []string{"inner.test:443"}},
			{"127.0.0.1", ruleLoopback, nil},
			{"169.254.169.254", ruleMetadata, nil},
			{"192.0.2.10", ruleOwn, nil},
			{"rebound.test", ruleLoopback, []string{"rebound.test:443"}},
			{"127.1", ruleNumeric, nil},
		} {
			port := uint16(portHTTPS)
			if _, err := netip.ParseAddr(tt.host); err == nil {
				port = 22
			}
			conn, err := e.Dial(t.Context(), tt.host, port)
			if got := ruleOf(t, conn, err); got != tt.rule {
				t.Errorf("%s: got the denial %q, want %q", tt.host, got, tt.rule)
			}
			if diff := cmp.Diff(tt.asked, p.hosts()); diff != "" {
				t.Errorf("%s: asked (-want +got):\n%s", tt.host, diff)
			}
		}
		if slices.Contains(seen.names, "absent.secret.test") || slices.Contains(seen.names, "other.test") {
			t.Errorf("looked up %v, want nothing that was refused", seen.names)
		}
		private, _ := askingEgress(t, Policy{DenyPrivate: true}, "", "")
		private.Asks = e.Asks
		conn, err := private.Dial(t.Context(), "172.16.0.1", 22)
		if got := ruleOf(t, conn, err); got != rulePrivate || p.hosts() != nil {
			t.Errorf("a private address: got %q, want %q without a question", got, rulePrivate)
		}
	})
}

// TestAskBeforeLookup checks that a DNS question causes neither a question nor a lookup. Its answer
// is an address that stands for the name, and a connection to this address causes a question about
// the name and the port.
func TestAskBeforeLookup(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, seen := askingEgress(t, Policy{}, "api.public.test", "10.0.0.0/8")
		for _, typ := range []dnsmessage.Type{dnsmessage.TypeAAAA, dnsmessage.TypeTXT, dnsmessage.TypePTR} {
			ask(t, e, "public.test", typ)
		}
		standIns := map[string]string{}
		for _, name := range []string{"Public.TEST", "inner.test", "absent.secret.test", "public.test"} {
			standIns[normalize(name)] = ask(t, e, name, dnsmessage.TypeA)[0]
		}
		if diff := cmp.Diff(map[string]string{"public.test": "198.18.0.1", "inner.test": "198.18.0.2", "absent.secret.test": "198.18.0.3"}, standIns); diff != "" {
			t.Errorf("answered (-want +got):\n%s", diff)
		}
		if len(seen.names) > 0 || len(e.Asks.targets) > 0 {
			t.Errorf("looked up %v and asked about %v, want neither", seen.names, e.Asks.targets)
		}
		if diff := cmp.Diff([]string{"203.0.113.6"}, ask(t, e, "api.public.test", dnsmessage.TypeA)); diff != "" {
			t.Errorf("an allowed name (-want +got):\n%s", diff)
		}
		ctx, end := context.WithCancel(t.Context())
		defer end()
		p := &program{}
		go p.serve(ctx, e.Asks, "public.test:22", "inner.test:22")
		for _, tt := range []struct {
			to, rule string
			asked    []string
		}{
			{"198.18.0.1:22", "", []string{"public.test:22"}},
			{"198.18.0.1:2222", ruleRefused, []string{"public.test:2222"}},
			{"198.18.0.1:22", "", nil},
			{"198.18.0.2:22", ruleDenied, []string{"inner.test:22"}},
			{"198.18.0.3:22", ruleRefused, []string{"absent.secret.test:22"}},
			{"198.18.0.4:22", ruleForgotten, nil},
		} {
			to := netip.MustParseAddrPort(tt.to)
			for how, connect := range map[string]func() (net.Conn, error){
				"connected": func() (net.Conn, error) { return e.connect(t.Context(), nil, to) },
				"dialled":   func() (net.Conn, error) { return e.Dial(t.Context(), to.Addr().String(), to.Port()) },
			} {
				conn, err := connect()
				if got := ruleOf(t, conn, err); got != tt.rule {
					t.Errorf("%s %s: got the denial %q, want %q", tt.to, how, got, tt.rule)
				}
			}
			if diff := cmp.Diff(tt.asked, p.hosts()); diff != "" {
				t.Errorf("%s: asked (-want +got):\n%s", tt.to, diff)
			}
		}
		if slices.Contains(seen.names, "absent.secret.test") {
			t.Errorf("looked up %v, want nothing that was refused", seen.names)
		}

		// An address that a program has kept means the same name under other rules.
		for rules, want := range map[*Rules]string{nil: "", mustRules(t, false, "", ""): ruleOff, mustRules(t, true, "api.public.test", allTraffic): ruleDenied} {
			other := *e
			other.Rules = rules
			conn, err := other.connect(t.Context(), nil, netip.MustParseAddrPort("198.18.0.1:25"))
			if got := ruleOf(t, conn, err); got != want || p.hosts() != nil {
				t.Errorf("under other rules: got the denial %q, want %q without a question", got, want)
			}
		}
	})
}

// TestStandIns checks that the number of addresses in use is bounded, and that an address stands
// for another name only after all other addresses were used.
func TestStandIns(t *testing.T) {
	t.Parallel()
	var s standIns
	first := s.address("0.test")
	used := map[netip.Addr]bool{}
	for i := range standInCount {
		a := s.address(fmt.Sprint(i, ".test"))
		if used[a] || !standInNetwork.Contains(a) {
			t.Fatalf("name %d has the address %v, want an unused one of %v", i, a, standInNetwork)
		}
		used[a] = true
	}
	if n := len(s.names); n != maxStandIns || len(s.addresses) != n {
		t.Errorf("%d addresses of %d names are known, want %d", n, len(s.addresses), maxStandIns)
	}
	if got := s.name(first); got != "" {
		t.Errorf("the first address stands for %q, want nothing", got)
	}
	last := fmt.Sprint(standInCount-1, ".test")
	if got := s.name(s.address(last)); got != last {
		t.Errorf("the address of %s stands for %q", last, got)
	}
	if got := s.address("next.test"); got != first {
		t.Errorf("after all addresses comes %v, want the first, %v", got, first)
	}
}

// TestAskWithoutAnswer checks questions without an answer. If no program fetches a question, it
// ends soon, and is asked again for the next request. If a program has fetched it and does not
// answer in time, the host stays denied.
func TestAskWithoutAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, _ := askingEgress(t, Policy{}, "", "")
		took := func(host string) (string, time.Duration) {
			start := time.Now()
			conn, err := e.Dial(t.Context(), host, portHTTPS)
			return ruleOf(t, conn, err), time.Since(start)
		}
		if rule, d := took("public.test"); rule != ruleNobody || d != takeTimeout {
			t.Errorf("without a program: got %q after %v, want %q after %v", rule, d, ruleNobody, takeTimeout)
		}
		go e.Asks.Open(t.Context(), 0) // the program has gone when the answer arrives
		synctest.Wait()
		if rule, d := took("public.test"); rule != ruleNobody || d != takeTimeout {
			t.Errorf("with a program that went: got %q after %v, want %q after %v", rule, d, ruleNobody, takeTimeout)
		}
		ctx, end := context.WithCancel(t.Context())
		defer end()
		p := &program{}
		go p.serve(ctx, e.Asks, "public.test:443")
		if rule, _ := took("public.test"); rule != "" {
			t.Errorf("with a program: got %q, want none", rule)
		}
		for _, want := range []time.Duration{askTimeout, 0} {
			if rule, d := took("silent.test"); rule != ruleSilent || d != want {
				t.Errorf("without an answer: got %q after %v, want %q after %v", rule, d, ruleSilent, want)
			}
		}
		if e.Asks.Answer(e.Asks.last, true) {
			t.Error("a question that is over can be answered")
		}
		given, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := e.Dial(given, "silent2.test", 22); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the end of the context", err)
		}
	})
}

// TestAskMany checks that several connections to one host wait for one answer, and that the number
// of questions is bounded.
func TestAskMany(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := new(Asks)
		rules := make(chan string, 200)
		for range 100 {
			go func() { rule, _ := a.Allow(t.Context(), Target{"one.test", 443}, nil); rules <- rule }()
		}
		synctest.Wait()
		open := a.Open(t.Context(), 0)
		if len(open) != 1 {
			t.Fatalf("got the questions %v, want one", open)
		}
		a.Answer(open[0].ID, true)
		for range 100 {
			if rule := <-rules; rule != "" {
				t.Errorf("got %q, want none", rule)
			}
		}
		for i := range maxOpenAsks {
			go func() { rule, _ := a.Allow(t.Context(), Target{fmt.Sprint(i, ".test"), 443}, nil); rules <- rule }()
		}
		synctest.Wait()
		if rule, err := a.Allow(t.Context(), Target{"more.test", 443}, nil); rule != ruleManyOpen || err != nil {
			t.Errorf("got %q, %v, want %q", rule, err, ruleManyOpen)
		}
		open = a.Open(t.Context(), open[0].ID)
		if len(open) != maxOpenAsks || !slices.IsSortedFunc(open, func(a, b Question) int { return int(a.ID - b.ID) }) {
			t.Errorf("got %v, want %d in order", open, maxOpenAsks)
		}
		for _, q := range open {
			a.Answer(q.ID, false)
			if rule := <-rules; rule != ruleRefused {
				t.Errorf("got %q, want %q", rule, ruleRefused)
			}
		}
		for i := len(a.targets); i < maxAsks; i++ {
			q, _ := a.question(Target{"many.test", uint16(i)}, nil)
			a.Answer(q.ID, false)
		}
		if rule, _ := a.Allow(t.Context(), Target{"last.test", 443}, nil); rule != ruleManyAsked {
			t.Errorf("got %q, want %q", rule, ruleManyAsked)
		}
		if rule, _ := a.Allow(t.Context(), Target{"one.test", 443}, nil); rule != "" {
			t.Errorf("what was answered: got %q, want none", rule)
		}
	})
}

// TestAskFunction checks that a function can answer instead of a program, and that the host is
// denied if the function does not answer in time.
func TestAskFunction(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := new(Asks)
		answer := func(ctx context.Context, to Target) bool {
			if to.Host == "silent.test" {
				<-ctx.Done()
			}
			return to.Host != "no.test"
		}
		for host, want := range map[string]string{"yes.test": "", "no.test": ruleRefused, "silent.test": ruleSilent} {
			begin := time.Now()
			rule, err := a.Allow(t.Context(), Target{host, 443}, answer)
			must.Do(t, err)
			if took := time.Since(begin); rule != want || (took > 0) != (host == "silent.test") {
				t.Errorf("%s: got %q after %v, want %q", host, rule, took, want)
			}
		}
	})
}

// TestAskingOtherwise checks that AskingOtherwise requires an answer for hosts that the rules allow
// without naming them. Hosts that the rules deny stay denied.
func TestAskingOtherwise(t *testing.T) {
	t.Parallel()
	parse := func(internet bool, deny ...string) *Rules {
		rules, err := ParseRules(internet, []string{"192.0.2.1"}, deny)
		must.Do(t, err)
		return rules
	}
	for name, rules := range map[string]*Rules{"none": nil, "some": parse(true, "198.51.100.0/24")} {
		if asking := rules.AskingOtherwise(); !asking.Asks() || !asking.DenyAll() || rules.Asks() {
			t.Errorf("%s: nobody is asked", name)
		}
	}
	// What was denied before stays denied, whatever the answer.
	if !parse(true, "198.51.100.0/24").AskingOtherwise().lifted().denies(netip.MustParseAddr("198.51.100.1")) {
		t.Error("an answer opens a network that the rules deny")
	}
	for name, rules := range map[string]*Rules{"off": parse(false), "all": parse(true, allTraffic)} {
		if rules.AskingOtherwise() != rules {
			t.Errorf("%s: the rules changed, though their owner denies all other hosts", name)
		}
	}
}

// TestAskAboutConnections checks the question about a connection to an address: it is about the
// name that the client sends, or else about the address.
func TestAskAboutConnections(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		to, sent string
		asked    []string
		ok       bool
	}{
		{"198.51.100.7:80", "GET / HTTP/1.1\r\nHost: Public.test\r\n\r\n", []string{"public.test:80"}, true},
		{"198.51.100.7:80", "GET / HTTP/1.1\r\nHost: other.test\r\n\r\n", []string{"other.test:80"}, false},
		{"198.51.100.7:80", "GET / HTTP/1.0\r\n\r\n", []string{"198.51.100.7:80"}, true},
		{"198.51.100.7:22", "", []string{"198.51.100.7:22"}, true},
		{"198.51.100.8:22", "", []string{"198.51.100.8:22"}, false},
		{"127.0.0.1:80", "", nil, false},
	} {
		e, _ := askingEgress(t, Policy{}, "", "")
		ctx, end := context.WithCancel(t.Context())
		p := &program{}
		done := make(chan struct{})
		go func() {
			defer close(done)
			p.serve(ctx, e.Asks, "public.test:80", "198.51.100.7:80", "198.51.100.7:22")
		}()
		client, inside := pair(t)
		if _, err := client.Write([]byte(tt.sent)); err != nil {
			t.Fatal(err)
		}
		conn, err := e.connect(t.Context(), inside, netip.MustParseAddrPort(tt.to))
		denied, _ := errors.AsType[*DeniedError](err)
		if got := denied == nil; got != tt.ok {
			t.Errorf("%s %q: got %v, want ok %t", tt.to, tt.sent, err, tt.ok)
		}
		if conn != nil {
			_ = conn.Close()
		}
		if diff := cmp.Diff(tt.asked, p.hosts()); diff != "" {
			t.Errorf("%s %q: asked (-want +got):\n%s", tt.to, tt.sent, diff)
		}
		end()
		<-done
	}
}

func TestAskingNeedsDenial(t *testing.T) {
	t.Parallel()
	_, err := mustRules(t, true, "", "10.0.0.0/8").WithAsking()
	if e, ok := errors.AsType[*RuleError](err); !ok || e.List != "ask" {
		t.Errorf("got %v, want an error about ask", err)
	}
	rules, err := mustRules(t, false, "", "").WithAsking()
	if err != nil || rules.closed() {
		t.Errorf("got closed %t, %v, want open rules", rules.closed(), err)
	}
	e := &Egress{Dialer: &Dialer{Resolver: world}, Rules: rules, Denials: &Denials{}} // no program can be asked
	conn, err := e.Dial(t.Context(), "public.test", 22)
	if got := ruleOf(t, conn, err); got != ruleOff {
		t.Errorf("got %q, want %q", got, ruleOff)
	}
}
