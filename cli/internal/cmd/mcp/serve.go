package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"

	"github.com/e2bctl/e2bctl/cli/internal/mcpserver"
	"github.com/e2bctl/e2bctl/internal/cloud/connlimit"
	"github.com/e2bctl/e2bctl/sandbox"
)

// serveStdio serves the client that started the command.
func serveStdio(ctx context.Context, opts *options, server *mcpserver.Server) error {
	if opts.IO.InIsTerminal {
		fmt.Fprintln(opts.Progress, "e2bctl mcp: waiting for a client on stdin. Clients start this command themselves: see e2bctl mcp install --help")
	}
	err := server.Serve(ctx, io.NopCloser(opts.IO.In), nopCloser{opts.IO.Out})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// SyscallConn implements [syscall.Conn], which the server uses to notice that nobody reads its
// output.
func (n nopCloser) SyscallConn() (syscall.RawConn, error) {
	if conn, ok := n.Writer.(syscall.Conn); ok {
		return conn.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

// checkAddress returns an error unless address is a port of the loopback interface.
func checkAddress(address string) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return errors.New("want an IP address and a port, such as 127.0.0.1:8930")
	}
	if !to.Addr().IsLoopback() {
		return errors.New("only this machine may connect: want an address of loopback, such as 127.0.0.1:8930; from another machine, use ssh -L")
	}
	return nil
}

// serveHTTP serves clients over HTTP until ctx ends.
func serveHTTP(ctx context.Context, opts *options, server *mcpserver.Server, id identity) error {
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", opts.HTTP)
	if err != nil {
		return err
	}
	limited := connlimit.New(listener.(*net.TCPListener), connlimit.Options{Max: maxConnections, Patience: strangerPatience, Logger: opts.factory.Logger()})
	service := &http.Server{
		Handler: connlimit.Handler(server.Handler(id.Token)), ConnContext: connlimit.ConnContext,
		ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
	}
	fmt.Fprintf(opts.IO.Err, "e2bctl mcp: at http://%s/mcp, for clients with the header \"Authorization: Bearer TOKEN\"; the token is in %s\n", listener.Addr(), id.path)
	stop := context.AfterFunc(ctx, func() {
		server.Stop()
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), endPatience)
		defer cancel()
		if service.Shutdown(ending) != nil {
			_ = service.Close() // it ends the connections that Shutdown waited for
		}
	})
	defer stop()
	if err := service.Serve(graceful{limited}); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return context.Cause(ctx)
}

// graceful is a listener whose Close leaves accepted connections open, so that the server can
// answer their calls before it ends.
type graceful struct{ *connlimit.Listener }

// Close implements [net.Listener].
func (g graceful) Close() error { return g.TCPListener.Close() }

const (
	// maxConnections bounds the connections of clients.
	maxConnections = 256
	// strangerPatience limits the time that a new connection may take until it has sent a request with
	// the token.
	strangerPatience = 30 * time.Second
)

// endPatience limits how long the end of the server waits for calls.
const endPatience = 2 * time.Second

// forward makes a port of a sandbox reachable at a port of the loopback interface, and returns the
// address of that loopback port. The local cloud's own address would be a name below localhost, and
// only browsers resolve such names.
func forward(ctx context.Context, sb *sandbox.Sandbox, port int) (string, func() error, error) {
	f, err := sb.Forward(ctx, "127.0.0.1:0", port, nil)
	if err != nil {
		return "", nil, err
	}
	return "http://" + f.Addr().String(), f.Close, nil
}

// publicAddress returns the public address of a sandbox's port at the service.
func publicAddress(_ context.Context, sb *sandbox.Sandbox, port int) (string, func() error, error) {
	return sb.URL(port), func() error { return nil }, nil
}
