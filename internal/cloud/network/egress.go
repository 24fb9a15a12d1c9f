package network

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"
)

// maxDenials bounds the number of reported denials. Further denials are only counted.
const maxDenials = 100

// A Denial is a host that a sandbox tried to reach or to look up, but may not reach.
type Denial struct {
	Host string
	Port uint16 // 0 for a DNS question
	Rule string
}

// Denials counts the denials of one sandbox. It is safe for concurrent use.
type Denials struct {
	// Tell is called once for each distinct denial, but only for the first hundred, so that a
	// sandbox cannot fill a log.
	Tell func(Denial)
	// TellFailure is called once for each target to which the sandbox's egress proxy does not connect,
	// but only for the first hundred. Programs inside the sandbox do not learn the reason.
	TellFailure func(error)

	mu    sync.Mutex
	count int
	told  map[Denial]bool
	lost  map[string]bool // targets for which TellFailure was called
}

// Count returns the number of denials.
func (d *Denials) Count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.count
}

// Add counts a denial, and calls Tell for it.
func (d *Denials) Add(denial Denial) {
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

// fail reports a failure of the sandbox's egress proxy. It ignores a connection whose client
// has gone.
func (d *Denials) fail(failure *egressProxyError) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lost[failure.target] || len(d.lost) >= maxDenials || d.TellFailure == nil || errors.Is(failure, context.Canceled) {
		return
	}
	if d.lost == nil {
		d.lost = make(map[string]bool)
	}
	d.lost[failure.target] = true
	d.TellFailure(failure)
}

// Egress is the egress path of one sandbox. It makes connections that the sandbox's rules
// allow, and answers DNS questions. It is safe for concurrent use, and need not be closed.
type Egress struct {
	Dialer  *Dialer
	Rules   *Rules
	Denials *Denials
	// Door terminates the TLS of connections to hosts with header rules. It is nil if there are
	// no such rules.
	Door Door
	// Asks contains the questions about hosts that Rules do not name, if Rules require such questions.
	// It is nil if no program can be asked.
	Asks *Asks
	// Ask answers the questions in Asks. It is nil if a program fetches the questions.
	Ask Answer
	// Peers connects to other sandboxes. It is nil if other sandboxes cannot be reached.
	Peers *Peers
	// Services contains the services of this machine that have a name. It is nil if there are none.
	Services *Services
	// Used is called after each connection to one of Services, also if it failed. It may be nil.
	Used func(Use)
	// Listed means that programs in the sandbox have addresses of Services without a DNS question.
	Listed bool
}

// Door terminates the TLS of a connection from a sandbox, and forwards the requests on this
// connection. It owns the connection.
type Door interface {
	Serve(conn net.Conn)
}

// Closed reports whether no host can be reached. If Listed is set, it returns false: programs then
// connect to services without a DNS question, and only a connection that arrives counts as a denial.
func (e *Egress) Closed() bool { return e.Rules.closed() && !e.Listed }

// Dial connects to a TCP port of a host, which is a name or an address. If the host may not be
// reached, the error is a *[DeniedError]. If only the name of the host is allowed, the first bytes
// that are written to the connection must contain an allowed name. The connection then leads to
// this name. If the bytes contain no allowed name, the connection ends. Nothing is sent before an
// allowed name is known.
func (e *Egress) Dial(ctx context.Context, host string, port uint16) (net.Conn, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		host = cmp.Or(e.nameAt(a), host)
	}
	if e.peer(host) && port == e.Peers.Port {
		return e.dialPeer(ctx, host)
	}
	if port == portHTTPS && e.decorates(host) {
		if _, _, err := e.permitName(ctx, host, port); err != nil {
			return nil, e.noted(err, port)
		}
		return e.throughDoor(nil), nil
	}
	if e.Rules.DenyAll() {
		return e.reach(ctx, host, port, e.dialRestricted)
	}
	return e.Reach(ctx, host, port)
}

// Reach connects like Dial, but connects to the host itself even if there are header rules for the
// host. The caller must ensure that the connection is meant for the host.
func (e *Egress) Reach(ctx context.Context, host string, port uint16) (net.Conn, error) {
	return e.reach(ctx, host, port, e.dial)
}

// reach connects with dial, and counts denials.
func (e *Egress) reach(ctx context.Context, host string, port uint16, dial func(ctx context.Context, literal bool, host string, port uint16) (net.Conn, error)) (net.Conn, error) {
	_, err := netip.ParseAddr(host)
	literal := err == nil
	if !literal && !validName(normalize(host)) || port == 0 {
		return nil, fmt.Errorf("network: %.255q, port %d: not an address", host, port)
	}
	if s := e.Services.named(host); s != nil {
		conn, err := e.dialService(ctx, s, port)
		return conn, e.noted(err, port)
	}
	conn, err := dial(ctx, literal, host, port)
	return conn, e.noted(err, port)
}

// nameAt returns the name that resolves to an address only in this sandbox. It returns "" if there is
// no such name.
func (e *Egress) nameAt(a netip.Addr) string {
	if s := e.Services.at(a); s != nil {
		return s.name
	}
	return e.standInFor(a)
}

// noted returns err. If err is a denial, noted counts the denial. If err is a failure of the
// sandbox's egress proxy, noted reports the failure.
func (e *Egress) noted(err error, port uint16) error {
	if denied, ok := errors.AsType[*DeniedError](err); ok {
		e.Denials.Add(Denial{Host: denied.Host, Port: port, Rule: denied.Rule})
	} else if failure, ok := errors.AsType[*egressProxyError](err); ok {
		e.Denials.fail(failure)
	}
	return err
}

// decorates reports whether requests to a host receive headers, or are checked.
func (e *Egress) decorates(host string) bool { return e.Door != nil && e.Rules.Opens(host) }

// throughDoor returns a connection whose other end is served by the door. read contains the bytes
// that were already read from the client. The door receives these bytes first.
func (e *Egress) throughDoor(read []byte) net.Conn {
	near, far := net.Pipe()
	e.Door.Serve(&replayed{far, read})
	return near
}

// replayed is a connection whose first bytes have been read already, and are read again.
type replayed struct {
	net.Conn
	read []byte
}

func (r *replayed) Read(p []byte) (int, error) {
	if len(r.read) == 0 {
		return r.Conn.Read(p)
	}
	n := copy(p, r.read)
	r.read = r.read[n:]
	return n, nil
}

func (e *Egress) dial(ctx context.Context, literal bool, host string, port uint16) (net.Conn, error) {
	var rules *Rules
	var named bool
	var err error
	if literal {
		rules, err = e.permitAddress(ctx, host, port)
	} else {
		rules, named, err = e.permitName(ctx, host, port)
	}
	if err != nil {
		return nil, err
	}
	return e.Dialer.dial(ctx, rules, named, host, port)
}

// Connect connects to the destination of a connection from inside the sandbox. The destination is
// the local address of this connection. If the destination is denied and the port is that of HTTP
// or HTTPS, the name that the client sends may be allowed. Connect then looks up the name, and
// ignores the address that the sandbox chose. If the name is denied, too, the client receives the
// reason as a page or as a TLS alert.
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
	var heard *said
	var problem error // error of reading the name
	if port == portHTTPS && e.Door != nil {
		if heard, problem = listen(ctx, inside, port); problem == nil && e.decorates(heard.name) {
			return e.throughDoor(heard.bytes), nil
		}
	}
	if s := e.Services.at(address); s != nil {
		return e.pass(ctx, inside, s.name, port, heard)
	}
	if name := e.standInFor(address); name != "" {
		return e.connectName(ctx, inside, name, port, heard, problem)
	}
	proxy, err := e.Dialer.proxyFor(host, port)
	if err != nil {
		return nil, err
	}
	if proxy == nil && !e.Dialer.Policy.DenyPrivate && !e.Rules.restrict() {
		return e.pass(ctx, inside, host, port, heard)
	}
	rule, err := e.judge(address, e.Rules)
	if err != nil {
		return nil, err
	}
	denied := rule == ruleDenied || rule == ruleOff || rule == rulePrivate // a rule that an allowed name overrides
	if !showsName(port) || !denied && (rule != "" || proxy == nil) {
		return e.pass(ctx, inside, host, port, heard)
	}
	if heard == nil {
		heard, problem = listen(ctx, inside, port)
	}
	if denied && e.Rules.DenyAll() {
		return e.admitHeard(ctx, inside, host, port, heard, problem)
	}
	if problem != nil && (denied || !errors.Is(problem, errNoName)) {
		e.Denials.Add(Denial{Host: host, Port: port, Rule: cmp.Or(rule, "no name was sent")})
		return nil, problem
	}
	// The proxy receives the name here, too, unless the rules allow the address itself.
	if problem == nil && !denied && !e.Rules.DenyAll() {
		host = normalize(heard.name)
	}
	outside, err := e.pass(ctx, inside, host, port, heard)
	if why, ok := errors.AsType[*DeniedError](err); ok {
		heard.refuse(inside, why)
	}
	return outside, err
}

// connectName connects a connection from inside the sandbox to a name. The destination of this
// connection is an address that stands for the name. heard and problem are the results of listen.
// They are nil if listen was not called.
func (e *Egress) connectName(ctx context.Context, inside net.Conn, name string, port uint16, heard *said, problem error) (net.Conn, error) {
	switch {
	case !e.Rules.DenyAll():
		return e.pass(ctx, inside, name, port, heard)
	case !showsName(port):
		return e.reach(ctx, name, port, e.dialRestricted)
	case heard == nil:
		heard, problem = listen(ctx, inside, port)
	}
	return e.admitHeard(ctx, inside, name, port, heard, problem)
}

// pass connects to a host, and sends it the bytes in heard, which were already read from inside. If
// heard is nil, no bytes were read. If there are rules for requests to the host, the door checks these,
// even if the connection shows no name or another one.
func (e *Egress) pass(ctx context.Context, inside net.Conn, host string, port uint16, heard *said) (net.Conn, error) {
	if heard != nil && port == portHTTPS && e.Door != nil && e.Rules.Limited(host) {
		return e.throughDoor(heard.bytes), inside.SetReadDeadline(time.Time{})
	}
	outside, err := e.Reach(ctx, host, port)
	if err != nil || heard == nil {
		return outside, err
	}
	return forward(inside, outside, heard)
}

// judge returns the rule that denies an address. It returns "" if no rule denies it.
func (e *Egress) judge(a netip.Addr, rules *Rules) (string, error) {
	own, err := e.Dialer.ownAddresses()
	if err != nil {
		return "", fmt.Errorf("network: list the addresses of this machine: %w", err)
	}
	return e.Dialer.Policy.check(a, rules, false, own), nil
}
