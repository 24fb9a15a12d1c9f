package network

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/e2bctl/e2bctl/internal/must"
)

func question(t testing.TB, name string, typ dnsmessage.Type) []byte {
	t.Helper()
	n, err := dnsmessage.NewName(name + ".")
	must.Do(t, err)
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 77, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: n, Type: typ, Class: dnsmessage.ClassINET}},
	}
	data, err := m.Pack()
	must.Do(t, err)
	return data
}

// answered decodes an answer as a client does. It returns the code and the addresses.
func answered(t testing.TB, answer []byte) (dnsmessage.RCode, []string) {
	t.Helper()
	var m dnsmessage.Message
	if err := m.Unpack(answer); err != nil {
		t.Fatalf("%v: %x", err, answer)
	}
	if len(answer) > 512 {
		t.Errorf("got an answer of %d bytes, want at most 512", len(answer))
	}
	if m.ID != 77 || !m.Response || !m.RecursionAvailable {
		t.Errorf("got %+v, want an answer to query 77 with recursion available", m.Header)
	}
	if len(m.Questions) != 1 {
		t.Errorf("got the questions %v, want one", m.Questions)
	}
	var addresses []string
	for _, r := range m.Answers {
		a := r.Body.(*dnsmessage.AResource)
		addresses = append(addresses, netip.AddrFrom4(a.A).String())
		if r.Header.Name != m.Questions[0].Name || r.Header.TTL == 0 {
			t.Errorf("record %+v", r.Header)
		}
	}
	return m.RCode, addresses
}

func ask(t testing.TB, e *Egress, name string, typ dnsmessage.Type) []string {
	t.Helper()
	code, addresses := answered(t, e.Answer(t.Context(), question(t, name, typ)))
	if code != dnsmessage.RCodeSuccess {
		return []string{code.String()}
	}
	return addresses
}

// broken is a resolver that cannot be reached. Its error does not mean that a name does not exist.
type broken struct{}

func (broken) LookupNetIP(ctx context.Context, _, host string) ([]netip.Addr, error) {
	return nil, &net.DNSError{Err: "server misbehaving", Name: host, IsTemporary: true}
}

func TestAnswer(t *testing.T) {
	t.Parallel()
	const none = "RCodeNameError"
	long := strings.Repeat(strings.Repeat("a", 60)+".", 4) + "test"
	many := names{long: nil}
	for i := range 40 {
		many[long] = append(many[long], fmt.Sprintf("203.0.113.%d", i+1))
	}
	tests := []struct {
		name        string
		typ         dnsmessage.Type
		allow, deny string
		resolver    Resolver
		want        []string
	}{
		{name: "public.test", want: []string{"203.0.113.5"}},
		{name: "PUBLIC.test", want: []string{"203.0.113.5"}},
		{name: "public.test", typ: dnsmessage.TypeAAAA},
		{name: "public.test", typ: dnsmessage.TypeHTTPS},
		{name: "public.test", typ: dnsmessage.TypeMX, want: []string{"RCodeNotImplemented"}},
		{name: "1.0.0.127.in-addr.arpa", typ: dnsmessage.TypePTR, want: []string{none}},
		{name: "nosuch.test", want: []string{none}},
		{name: "127.0.0.1", want: []string{none}},
		{name: "bad name.test", want: []string{none}},
		{name: "rebound.test", want: []string{none}},
		{name: "own.test", want: []string{none}},
		{name: "both.test", want: []string{"10.1.2.3", "203.0.113.5"}},
		{name: "both.test", deny: "10.0.0.0/8", want: []string{"203.0.113.5"}},
		{name: "inner.test", deny: "10.0.0.0/8", want: []string{none}},
		{name: "public.test", deny: "0.0.0.0/0", want: []string{none}},
		{name: "public.test", typ: dnsmessage.TypeAAAA, deny: "0.0.0.0/0", want: []string{none}},
		{name: "public.test", typ: dnsmessage.TypeTXT, deny: "0.0.0.0/0", want: []string{none}},
		{name: "public.test", allow: "public.test", deny: "0.0.0.0/0", want: []string{"203.0.113.5"}},
		{name: "other.test", allow: "public.test", deny: "0.0.0.0/0", want: []string{none}},
		{name: "public.test", resolver: broken{}, want: []string{"RCodeServerFailure"}},
		{name: long, resolver: many, want: many[long][:maxAnswers]},
	}
	for _, tt := range tests {
		d := &Dialer{Resolver: world}
		if tt.resolver != nil {
			d.Resolver = tt.resolver
		}
		recording(t, d)
		if tt.typ == 0 {
			tt.typ = dnsmessage.TypeA
		}
		e := &Egress{Dialer: d, Rules: mustRules(t, true, tt.allow, tt.deny), Denials: &Denials{}}
		if diff := cmp.Diff(tt.want, ask(t, e, tt.name, tt.typ)); diff != "" {
			t.Errorf("%.40s %v, deny %q (-want +got):\n%s", tt.name, tt.typ, tt.deny, diff)
		}
	}
}

// TestDeniedNamesStayHere checks that denied names are not looked up, because a name can contain a
// secret.
func TestDeniedNamesStayHere(t *testing.T) {
	t.Parallel()
	d := &Dialer{Resolver: resolverFunc(func(host string) []string { t.Errorf("asked for %s", host); return nil })}
	recording(t, d)
	e := &Egress{Dialer: d, Rules: mustRules(t, true, "public.test", "0.0.0.0/0"), Denials: &Denials{}}
	ask(t, e, "secret.evil.test", dnsmessage.TypeA)
	if _, err := e.Dial(t.Context(), "secret.evil.test", 443); err == nil {
		t.Error("it is reachable")
	}
	if e.Denials.Count() != 2 {
		t.Errorf("%d denials, want 2", e.Denials.Count())
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add(question(f, "public.test", dnsmessage.TypeA))
	f.Add(question(f, "rebound.test", dnsmessage.TypeA))
	f.Add(question(f, "public.test", dnsmessage.TypeMX))
	f.Add([]byte{0, 77, 0x78, 0, 0, 1, 0, 0, 0, 0, 0, 0})
	f.Add(make([]byte, 12))
	f.Fuzz(func(t *testing.T, query []byte) {
		d := &Dialer{Resolver: world}
		recording(t, d)
		answer := (&Egress{Dialer: d, Denials: &Denials{}}).Answer(t.Context(), query)
		if answer == nil {
			return
		}
		var m dnsmessage.Message
		if err := m.Unpack(answer); err != nil || len(answer) > 512 {
			t.Errorf("got %d bytes, %v, want a message of at most 512: %x", len(answer), err, answer)
		}
		if id := uint16(query[0])<<8 | uint16(query[1]); !m.Response || m.ID != id {
			t.Errorf("got %+v, want an answer to query %d", m.Header, id)
		}
		for _, r := range m.Answers {
			if a := netip.AddrFrom4(r.Body.(*dnsmessage.AResource).A); a.IsLoopback() {
				t.Errorf("answer %v", a)
			}
		}
	})
}

// TestOneQuestion checks that a query without exactly one question is malformed.
func TestOneQuestion(t *testing.T) {
	t.Parallel()
	e := &Egress{Dialer: &Dialer{Resolver: names{"a.test": {"203.0.113.5"}}}, Denials: &Denials{}}
	one := dnsmessage.Question{Name: dnsmessage.MustNewName("a.test."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}
	for n, want := range []dnsmessage.RCode{dnsmessage.RCodeFormatError, dnsmessage.RCodeSuccess, dnsmessage.RCodeFormatError} {
		m := dnsmessage.Message{Header: dnsmessage.Header{ID: 77}}
		for range n {
			m.Questions = append(m.Questions, one)
		}
		query, err := m.Pack()
		must.Do(t, err)
		must.Do(t, m.Unpack(e.Answer(t.Context(), query)))
		if m.RCode != want {
			t.Errorf("%d questions: got %v, want %v", n, m.RCode, want)
		}
	}
}
