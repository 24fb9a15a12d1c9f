package network

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"net/url"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestOwnAddressesUnknown checks that nothing is reached, looked up or used as a proxy while the
// addresses of this machine, which a sandbox may not reach, cannot be listed.
func TestOwnAddressesUnknown(t *testing.T) {
	t.Parallel()
	unknown := errors.New("no list")
	services, err := NewServices([]Service{{"self", "self.test:4000"}}, 4000)
	must.Do(t, err)
	e, _ := proxied(t, nil, EgressProxy{Address: "other.test:1080"})
	proxy := e.Rules
	d := &Dialer{
		Resolver: world,
		own:      func() ([]netip.Addr, error) { return nil, unknown },
		connect: func(_ context.Context, nd *net.Dialer, _ string) (net.Conn, error) {
			if nd.Control != nil {
				if err := nd.Control("tcp", "203.0.113.5:4000", nil); err != nil {
					return nil, err
				}
			}
			t.Error("a connection was made")
			return nil, errors.New("connected")
		},
	}
	_, byName := d.dial(t.Context(), nil, false, "public.test", 80)
	_, ofProxy := d.dial(t.Context(), proxy, false, "public.test", 80)
	_, ofService := d.service(t.Context(), services, services.named("self.host.internal"))
	for what, err := range map[string]error{
		"a name": byName, "a name through a proxy": ofProxy, "a service at the cloud's port": ofService, "a proxy": d.CheckProxy(t.Context(), proxy),
	} {
		if !errors.Is(err, unknown) {
			t.Errorf("%s: got %v, want %v", what, err, unknown)
		}
	}
	answer := (&Egress{Dialer: d, Denials: &Denials{}}).Answer(t.Context(), question(t, "public.test", dnsmessage.TypeA))
	if code, addresses := answered(t, answer); code != dnsmessage.RCodeServerFailure || len(addresses) > 0 {
		t.Errorf("a question: got %v and %v, want a failure of the server", code, addresses)
	}
}

// TestProxyNameKnownElsewhere checks that a proxy whose name does not resolve here is allowed if
// the machine has a proxy of its own, which may know the name.
func TestProxyNameKnownElsewhere(t *testing.T) {
	t.Parallel()
	e, _ := proxied(t, nil, EgressProxy{Address: "nowhere.test:1080"})
	if err := e.Dialer.CheckProxy(t.Context(), e.Rules); err == nil {
		t.Error("without a proxy of the machine: got no error")
	}
	e.Dialer.Proxy = func(string) (*url.URL, error) { return nil, nil }
	if err := e.Dialer.CheckProxy(t.Context(), e.Rules); err != nil {
		t.Errorf("with a proxy of the machine: %v", err)
	}
}

// TestHeadersOfAnswers checks which fields an answer takes from the header of its question, and the
// code of each operation.
func TestHeadersOfAnswers(t *testing.T) {
	t.Parallel()
	e := &Egress{Dialer: &Dialer{Resolver: names{"a.test": {"203.0.113.5"}}}, Denials: &Denials{}}
	for operation := range dnsmessage.OpCode(16) {
		for _, recursion := range []bool{false, true} {
			m := dnsmessage.Message{
				Header:    dnsmessage.Header{ID: 7, OpCode: operation, RecursionDesired: recursion, Authoritative: true},
				Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName("a.test."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}},
			}
			query, err := m.Pack()
			must.Do(t, err)
			must.Do(t, m.Unpack(e.Answer(t.Context(), query)))
			want := dnsmessage.Header{ID: 7, Response: true, OpCode: operation, RecursionDesired: recursion, RecursionAvailable: true}
			if operation != 0 {
				want.RCode = dnsmessage.RCodeNotImplemented
			}
			if m.Header != want {
				t.Errorf("operation %d: got %+v, want %+v", operation, m.Header, want)
			}
			m.Response = true
			query, err = m.Pack()
			must.Do(t, err)
			if answer := e.Answer(t.Context(), query); answer != nil {
				t.Errorf("operation %d: got an answer to an answer", operation)
			}
		}
	}
}
