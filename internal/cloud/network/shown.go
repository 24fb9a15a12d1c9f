package network

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"
)

// This file implements connections that are only allowed because of a name. The name in a
// request to a proxy proves nothing, so the connection itself must show the name.

// ruleUnshown is the rule that denies a connection because it does not show the allowed name of its
// host.
const ruleUnshown = "the rules allow its name only to connections that show it, as HTTP on port 80 and TLS on port 443 do; allow its address for others"

// showsName reports whether connections to a port show the name of the server.
func showsName(port uint16) bool { return port == portHTTP || port == portHTTPS }

// dialRestricted connects like Dial. It is for rules that deny all traffic except to allowed hosts.
// If literal is set, host is an address. Otherwise, host is a name.
func (e *Egress) dialRestricted(ctx context.Context, literal bool, host string, port uint16) (net.Conn, error) {
	if literal {
		asked, err := e.needsAnswer(host)
		if err != nil {
			return nil, err
		}
		if asked && showsName(port) { // about the name, if the connection shows one
			return e.onceShown(ctx, host, port, nil), nil
		}
		return e.dial(ctx, literal, host, port)
	}
	if !showsName(port) {
		return e.dialUnshown(ctx, host, port)
	}
	rules, named, err := e.permitName(ctx, host, port)
	if err != nil {
		return nil, err
	}
	// The connection is made before the name is shown, so that a failure can be reported.
	conn, err := e.Dialer.dial(ctx, rules, named, host, port)
	if err != nil {
		return nil, err
	}
	return e.onceShown(ctx, host, port, conn), nil
}

// onceShown returns a connection. The first bytes that the caller writes must contain a name: host
// or another allowed name. The connection then leads to this name. ready is an existing connection
// to host. If there is no such connection yet, ready is nil.
func (e *Egress) onceShown(ctx context.Context, host string, port uint16, ready net.Conn) net.Conn {
	ctx, near, far := newDuplex(ctx)
	go func() {
		defer far.Close()
		if outside, err := e.admit(ctx, far, host, port, ready); err == nil { // otherwise, the client has received the reason
			join(ctx, outside, far)
		}
	}()
	return near
}

// admit reads the name in the first bytes of inside, the connection of a client. If the name is
// allowed, admit connects to this name. host is the host to which the client connected. ready is an
// existing connection to host, or nil. admit owns ready.
func (e *Egress) admit(ctx context.Context, inside net.Conn, host string, port uint16, ready net.Conn) (net.Conn, error) {
	heard, problem := listen(ctx, inside, port)
	if ready != nil && problem == nil && normalize(heard.name) == normalize(host) {
		return e.carry(ctx, inside, ready, host, heard)
	}
	if ready != nil {
		_ = ready.Close() // no data was sent
	}
	return e.admitHeard(ctx, inside, host, port, heard, problem)
}

// admitHeard connects to the name in heard. heard and the error problem are the results of listen
// for inside, the connection of a client. If heard has no name, admitHeard connects to an address
// of host that may be reached. If the connection is denied, the client receives the reason.
func (e *Egress) admitHeard(ctx context.Context, inside net.Conn, host string, port uint16, heard *said, problem error) (net.Conn, error) {
	var outside net.Conn
	var err error
	switch {
	case problem == nil && port == portHTTPS && e.decorates(heard.name):
		return e.throughDoor(heard.bytes), inside.SetReadDeadline(time.Time{})
	case problem == nil:
		outside, err = e.Reach(ctx, normalize(heard.name), port)
	case errors.Is(problem, errNoName):
		outside, err = e.dialUnshown(ctx, host, port)
		err = e.noted(err, port)
	default:
		e.Denials.Add(Denial{Host: host, Port: port, Rule: e.Rules.denial()})
		return nil, problem
	}
	if err != nil {
		if denied, ok := errors.AsType[*DeniedError](err); ok {
			heard.refuse(inside, denied)
		}
		return nil, err
	}
	return e.carry(ctx, inside, outside, host, heard)
}

// dialUnshown connects to a host whose name the connection does not show. On a port at which
// connections show no names, it is enough if a program that is asked allows the name and the port.
// On other ports, the addresses of the host decide: the program is asked about each address that no
// rule allows.
func (e *Egress) dialUnshown(ctx context.Context, host string, port uint16) (net.Conn, error) {
	if _, err := netip.ParseAddr(host); err == nil {
		return e.dial(ctx, true, host, port)
	}
	rules, named, err := e.permitName(ctx, host, port)
	if err != nil {
		return nil, err
	}
	if !named && !showsName(port) {
		return e.Dialer.dial(ctx, rules, false, host, port)
	}
	resolving, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	addresses, err := e.Dialer.resolve(resolving, "ip", host)
	if err != nil { // only a proxy may know the name
		return nil, &DeniedError{Host: host, Rule: ruleUnshown, Err: err}
	}
	permitted := func(netip.Addr) error { return nil } // dial checks each address
	return firstOf(addresses[:min(len(addresses), maxAddresses)], permitted, func(a netip.Addr) (net.Conn, error) {
		conn, err := e.dial(ctx, true, a.String(), port)
		if denied, ok := errors.AsType[*DeniedError](err); ok {
			why := DeniedError{Host: host, Address: a, Rule: denied.Rule}
			if why.Rule == e.Rules.denial() {
				why.Rule = ruleUnshown
			}
			return nil, &why
		}
		return conn, err
	})
}

// carry sends to outside the bytes in heard, which were read from the connection inside. carry
// returns the connection that the caller must use instead of outside. If the bytes are HTTP, a gate
// checks each request.
func (e *Egress) carry(ctx context.Context, inside, outside net.Conn, host string, heard *said) (net.Conn, error) {
	if heard.port == portHTTP && !heard.foreign() {
		if err := inside.SetReadDeadline(time.Time{}); err != nil {
			return nil, errors.Join(err, outside.Close())
		}
		return e.throughGate(ctx, outside, host, heard), nil
	}
	return forward(inside, outside, heard)
}

// forward sends to outside the bytes in heard, which were read from the connection inside. It
// returns outside.
func forward(inside, outside net.Conn, heard *said) (net.Conn, error) {
	err := inside.SetReadDeadline(time.Time{})
	if err == nil {
		_, err = outside.Write(heard.bytes)
	}
	if err != nil {
		return nil, errors.Join(err, outside.Close())
	}
	return outside, nil
}
