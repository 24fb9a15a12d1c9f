package network

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"
)

// This file contains the path of connections that only a name allows. The name in a
// request to a proxy proves nothing: the connection itself has to show the name.

// ruleUnshown denies a connection to a host whose name is allowed.
const ruleUnshown = "the rules allow its name only to connections that show it, as HTTP on port 80 and TLS on port 443 do; allow its address for others"

// showsName reports whether connections to a port show the name of the server.
func showsName(port uint16) bool { return port == portHTTP || port == portHTTPS }

// dialRestricted is Dial for rules that deny all traffic except allowed hosts. host is a
// name or, if literal, an address.
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

// onceShown returns a connection that leads to the name that its other end shows: to
// host, or to another allowed name. ready is connected to host; nil: not connected yet.
func (e *Egress) onceShown(ctx context.Context, host string, port uint16, ready net.Conn) net.Conn {
	ctx, near, far := newDuplex(ctx)
	go func() {
		defer far.Close()
		if outside, err := e.admit(ctx, far, host, port, ready); err == nil { // otherwise the client was told
			join(ctx, outside, far)
		}
	}()
	return near
}

// admit reads the name that a connection from inside shows, and connects it if the name
// is allowed. The connection is meant for host. admit owns ready, which onceShown
// describes.
func (e *Egress) admit(ctx context.Context, inside net.Conn, host string, port uint16, ready net.Conn) (net.Conn, error) {
	heard, problem := listen(ctx, inside, port)
	if ready != nil && problem == nil && normalize(heard.name) == normalize(host) {
		return e.carry(ctx, inside, ready, host, heard)
	}
	if ready != nil {
		_ = ready.Close() // nothing was sent
	}
	return e.admitHeard(ctx, inside, host, port, heard, problem)
}

// admitHeard connects to the name heard from inside. Without one it connects to the
// addresses of host, if they may be reached as such. problem is the error of listen. A
// denied client is told so.
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
		e.Denials.add(Denial{Host: host, Port: port, Rule: e.Rules.denial()})
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

// dialUnshown connects to a host by a connection that does not show its name. At a port where
// no connection does, an answer about the name and the port allows it. Otherwise the addresses of
// the host decide: a program is asked about each that no rule allows.
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
	if err != nil { // only a proxy of the host may know it
		return nil, &DeniedError{Host: host, Rule: ruleUnshown, Err: err}
	}
	permitted := func(netip.Addr) error { return nil } // dial checks each
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

// carry passes the bytes heard from inside on to outside, and returns the connection. If
// they are HTTP, each request is judged.
func (e *Egress) carry(ctx context.Context, inside, outside net.Conn, host string, heard *said) (net.Conn, error) {
	if heard.port == portHTTP && !heard.foreign() {
		if err := inside.SetReadDeadline(time.Time{}); err != nil {
			return nil, errors.Join(err, outside.Close())
		}
		return e.throughGate(ctx, outside, host, heard), nil
	}
	return forward(inside, outside, heard)
}

// forward passes the bytes heard from inside on to outside, and returns outside.
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
