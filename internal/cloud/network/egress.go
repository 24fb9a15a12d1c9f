package network

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
)

// maxDenials bounds the denials that are reported; further ones are only counted.
const maxDenials = 100

// A Denial is something a sandbox tried to reach but may not: a host, or the name
// in a DNS question.
type Denial struct {
	Host string
	Port uint16 // 0 for a DNS question
	Rule string
}

// Denials counts what was denied to one sandbox. It is safe for concurrent use.
type Denials struct {
	// Tell is called once for each distinct denial, and only for the first
	// hundred: a sandbox must not be able to fill a log.
	Tell func(Denial)

	mu    sync.Mutex
	count int
	told  map[Denial]bool
}

// Count returns the number of denials.
func (d *Denials) Count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.count
}

func (d *Denials) add(denial Denial) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.count++
	if d.told[denial] || len(d.told) >= maxDenials || d.Tell == nil {
		return
	}
	if d.told == nil {
		d.told = make(map[Denial]bool)
	}
	d.told[denial] = true
	d.Tell(denial)
}

// Egress is the egress path of one sandbox: it makes connections within the
// sandbox's rules and answers DNS questions. It is safe for concurrent use, and
// need not be closed.
type Egress struct {
	Dialer  *Dialer
	Rules   *Rules
	Denials *Denials
}

// Closed reports whether nothing may be reached.
func (e *Egress) Closed() bool { return e.Rules.closed() }

// Dial connects to a TCP port of a host, which is a name or an address. It returns
// a *[DeniedError] if the host may not be reached.
func (e *Egress) Dial(ctx context.Context, host string, port uint16) (net.Conn, error) {
	_, err := netip.ParseAddr(host)
	literal := err == nil
	if !literal && !validName(normalize(host)) || port == 0 {
		return nil, fmt.Errorf("network: %.255q, port %d: not an address", host, port)
	}
	conn, err := e.dial(ctx, literal, host, port)
	if denied, ok := errors.AsType[*DeniedError](err); ok {
		e.Denials.add(Denial{Host: denied.Host, Port: port, Rule: denied.Rule})
	}
	return conn, err
}

func (e *Egress) dial(ctx context.Context, literal bool, host string, port uint16) (net.Conn, error) {
	if literal {
		return e.Dialer.dial(ctx, e.Rules, false, host, port)
	}
	name := normalize(host)
	if numeric(name) {
		return nil, &DeniedError{Host: host, Rule: ruleNumeric}
	}
	named := e.Rules.named(name)
	if e.Rules.DenyAll() && !named {
		// Looking the name up would tell its owner's name server what the name
		// contains.
		return nil, &DeniedError{Host: host, Rule: e.Rules.denial()}
	}
	return e.Dialer.dial(ctx, e.Rules, named, host, port)
}

// Connect connects to the destination of a connection from inside: its local
// address. If that address is denied and the port is that of HTTP or HTTPS, the
// name that the client sends may be allowed: then the name is resolved again, and
// the address that the sandbox chose is ignored. A client whose name is denied too
// is told so, by a page or by a TLS alert.
func (e *Egress) Connect(ctx context.Context, inside *net.TCPConn) (net.Conn, error) {
	to, err := netip.ParseAddrPort(inside.LocalAddr().String())
	if err != nil {
		return nil, fmt.Errorf("network: %w", err)
	}
	return e.connect(ctx, inside, to)
}

func (e *Egress) connect(ctx context.Context, inside *net.TCPConn, to netip.AddrPort) (net.Conn, error) {
	address, port := to.Addr().Unmap(), to.Port()
	host := address.String()
	proxy, err := e.Dialer.proxyFor(host, port)
	if err != nil {
		return nil, err
	}
	if proxy == nil && !e.Dialer.Policy.DenyPrivate && !e.Rules.restrict() {
		return e.Dial(ctx, host, port)
	}
	rule, err := e.judge(address)
	if err != nil {
		return nil, err
	}
	denied := rule == ruleDenied || rule == ruleOff || rule == rulePrivate // a rule that a name may override
	if port != portHTTP && port != portHTTPS || !denied && (rule != "" || proxy == nil) {
		return e.Dial(ctx, host, port)
	}
	said, err := listen(ctx, inside, port)
	if err != nil && (denied || !errors.Is(err, errNoName)) {
		e.Denials.add(Denial{Host: host, Port: port, Rule: cmp.Or(rule, "no name was sent")})
		return nil, err
	}
	// The proxy is given the name here too, except for an address that is allowed
	// as an address.
	if err == nil && denied == e.Rules.DenyAll() {
		host = normalize(said.name)
	}
	outside, err := e.Dial(ctx, host, port)
	if why, ok := errors.AsType[*DeniedError](err); ok {
		said.refuse(inside, why)
	}
	if err != nil {
		return nil, err
	}
	if _, err := outside.Write(said.bytes); err != nil {
		return nil, errors.Join(err, outside.Close())
	}
	return outside, nil
}

// judge returns the rule that denies an address, or "" if none does.
func (e *Egress) judge(a netip.Addr) (string, error) {
	own, err := e.Dialer.ownAddresses()
	if err != nil {
		return "", fmt.Errorf("network: list the addresses of this machine: %w", err)
	}
	return e.Dialer.Policy.check(a, e.Rules, false, own), nil
}
