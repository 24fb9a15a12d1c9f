package cloud

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/e2bctl/e2bctl/internal/cloud/connlimit"
	"github.com/e2bctl/e2bctl/internal/cloud/tlsdoor"
)

// attempts bounds the search for a port that is free on both loopback addresses.
const attempts = 20

// listen opens the only port, for http and https. It accepts connections from this
// machine alone, because anyone who reaches it can run programs here.
func listen(ctx context.Context, o Options, authority *tlsdoor.Authority) (*tlsdoor.Listener, error) {
	limit, err := connections()
	if err != nil {
		return nil, err
	}
	first, second, err := loopback(ctx, cmp.Or(o.Address, "127.0.0.1:0"))
	if err != nil {
		return nil, fmt.Errorf("cloud: %w", err)
	}
	all := []*connlimit.Listener{connlimit.New(first, connlimit.Options{Max: limit, Patience: headerDeadline, Logger: o.Logger})}
	if second != nil {
		all = append(all, all[0].Beside(second))
	}
	return tlsdoor.Listen(authority.Config(), all...), nil
}

// loopback listens on address. Because localhost is both 127.0.0.1 and ::1, it listens
// on the other of the two as well: otherwise another program could take the port
// there, and receive the keys of clients. second is nil if there is no such address.
func loopback(ctx context.Context, address string) (first, second *net.TCPListener, err error) {
	for range attempts {
		if first, err = listenTCP(ctx, address); err != nil {
			return nil, nil, err
		}
		at := first.Addr().(*net.TCPAddr)
		if !at.IP.IsLoopback() {
			return nil, nil, errors.Join(fmt.Errorf("listen on %s: only a loopback address may be served", at), first.Close())
		}
		other, ok := map[string]string{"127.0.0.1": "::1", "::1": "127.0.0.1"}[at.IP.String()]
		if !ok {
			return first, nil, nil
		}
		second, err = listenTCP(ctx, net.JoinHostPort(other, strconv.Itoa(at.Port)))
		switch {
		case err == nil:
			return first, second, nil
		case lacksAddress(err):
			return first, nil, nil // a machine without IPv6, for example
		}
		_ = first.Close()
		if _, port, _ := net.SplitHostPort(address); port != "0" {
			return nil, nil, fmt.Errorf("%w: localhost is both %s and %s, and both ports must be free", err, at.IP, other)
		}
	}
	return nil, nil, err
}

func listenTCP(ctx context.Context, address string) (*net.TCPListener, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	switch {
	case err == nil:
		return listener.(*net.TCPListener), nil
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("%w: %s listens there", err, cmp.Or(listenerOn(address), "another program"))
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("%w: so low a port takes root", err)
	}
	return nil, err
}

// newAuthority returns the authority for o, and the files that make clients trust it.
// The authority is in o's directory for it, or in the directory of this cloud.
func newAuthority(o Options, instance string) (_ *tlsdoor.Authority, trust tlsdoor.Trust, err error) {
	dir := instance
	var authority *tlsdoor.Authority
	if o.Authority == "" {
		authority, err = tlsdoor.New(o.Domain)
	} else {
		dir = filepath.Join(o.Authority, o.Domain) // one for each domain: the certificate names it
		if err = os.MkdirAll(dir, 0o700); err == nil {
			authority, err = tlsdoor.Open(dir, o.Domain)
		}
	}
	if err == nil {
		trust, err = authority.WriteTrust(dir)
	}
	if err != nil {
		return nil, trust, fmt.Errorf("cloud: https: %w", err)
	}
	return authority, trust, nil
}
