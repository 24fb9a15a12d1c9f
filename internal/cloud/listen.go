package cloud

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/e2bctl/e2bctl/internal/cloud/connlimit"
	"github.com/e2bctl/e2bctl/internal/cloud/localtls"
)

// attempts bounds the number of ports to try until one is free on both loopback addresses.
const attempts = 20

// listen listens on the only port of the cloud, for http and https. Without a Service it accepts
// only connections from this machine, because every client that can connect can run programs here.
func listen(ctx context.Context, o Options, config *tls.Config) (net.Listener, *connlimit.Listener, error) {
	limit, err := connections()
	if err != nil {
		return nil, nil, err
	}
	if o.Service != nil {
		return o.Service.listen(ctx, o, limit, config)
	}
	first, second, err := loopback(ctx, cmp.Or(o.Address, "127.0.0.1:0"))
	if err != nil {
		return nil, nil, err
	}
	all := []*connlimit.Listener{limited(first, limit, o)}
	if second != nil {
		all = append(all, all[0].Beside(second))
	}
	return localtls.Listen(config, all...), all[0], nil
}

// limited bounds the connections of a listener.
func limited(inner *net.TCPListener, limit int, o Options) *connlimit.Listener {
	return connlimit.New(inner, connlimit.Options{
		Max: limit, Patience: headerDeadline, Logger: o.Logger, Advice: "; a higher limit of open files (ulimit -n) allows more",
	})
}

// loopback listens on a loopback address. If address is 127.0.0.1 or ::1, loopback also listens on
// the other one of these two, because localhost means both. Otherwise another program could listen on
// the other address, and receive the API keys of clients. If address is neither 127.0.0.1 nor ::1, or
// if the machine does not have the other address, second is nil.
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
			return first, nil, nil // for example, the machine has no IPv6
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
		return nil, fmt.Errorf("%w: a port this low needs root", err)
	}
	return nil, err
}

// newAuthority returns the certificate authority of a cloud, and the files that make clients
// trust it. If o.Authority is set, the authority and these files are stored in a subdirectory of
// o.Authority. Otherwise, the authority is new, and the files are in the directory of the instance.
func newAuthority(o Options, instance string) (_ *localtls.Authority, trust localtls.Trust, err error) {
	dir := instance
	var authority *localtls.Authority
	if o.Authority == "" {
		authority, err = localtls.New(o.Domain)
	} else {
		dir = filepath.Join(o.Authority, o.Domain) // each domain has its own authority, whose certificate names the domain
		if err = os.MkdirAll(dir, 0o700); err == nil {
			authority, err = localtls.Open(dir, o.Domain)
		}
	}
	if err == nil {
		trust, err = authority.WriteTrust(dir)
	}
	if err != nil {
		return nil, trust, fmt.Errorf("https: %w", err)
	}
	return authority, trust, nil
}
