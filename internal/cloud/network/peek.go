package network

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
)

// Ports at which the client sends the first message of a connection. This message contains the name
// of the server.
const (
	portHTTP  = 80
	portHTTPS = 443
)

const (
	// peekTimeout bounds the time until a client's first message. maxPeek bounds the bytes of
	// this message.
	peekTimeout = 10 * time.Second
	maxPeek     = 72 << 10 // size of the largest ClientHello, including the headers of its TLS records
)

// said contains the first bytes from a client.
type said struct {
	name  string // name of the server; "": no name
	bytes []byte // the bytes that were read, to pass on to the server
	port  uint16
}

// errNoName is returned if the first message has no name, or if its protocol has no names. Another
// error is returned for a malformed message of the expected protocol, because a server may still
// find a name in it.
var errNoName = errors.New("network: the client sent no name")

// listen reads from a connection until the name of the server has arrived. This is the server name
// of a TLS connection, or the Host of an HTTP request.
func listen(ctx context.Context, conn net.Conn, port uint16) (*said, error) {
	s := &said{port: port}
	stop, err := listenFor(ctx, conn)
	if err != nil {
		return s, err
	}
	defer stop()
	var read bytes.Buffer
	from := io.TeeReader(io.LimitReader(conn, maxPeek), &read)
	if port == portHTTPS {
		s.name, err = serverName(ctx, from)
	} else {
		s.name, err = hostHeader(from)
	}
	s.bytes = read.Bytes()
	if err != nil && s.foreign() {
		err = errNoName
	}
	if err == nil {
		err = conn.SetReadDeadline(time.Time{})
	}
	return s, err
}

// listenFor bounds the reads from a connection until stop is called. The bounds are ctx and
// peekTimeout.
func listenFor(ctx context.Context, conn net.Conn) (stop func() bool, err error) {
	if err := conn.SetReadDeadline(time.Now().Add(peekTimeout)); err != nil {
		return nil, err
	}
	return context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) }), nil
}

// recordHandshake is the first byte of every ClientHello.
const recordHandshake = 22

// foreign reports whether it is certain that the client does not use the protocol of the port.
func (s *said) foreign() bool {
	if s.port == portHTTPS {
		return len(s.bytes) > 0 && s.bytes[0] != recordHandshake
	}
	line, _, whole := bytes.Cut(s.bytes, []byte("\n"))
	line = bytes.TrimSuffix(line, []byte("\r"))
	return whole && len(line) > 0 && !bytes.Contains(bytes.ToUpper(line), []byte("HTTP/"))
}

// serverName returns the server name in a ClientHello.
func serverName(ctx context.Context, from io.Reader) (string, error) {
	var hello *tls.ClientHelloInfo
	enough := errors.New("the name has come")
	err := tls.Server(deafConn{from}, &tls.Config{
		GetConfigForClient: func(i *tls.ClientHelloInfo) (*tls.Config, error) {
			hello = i
			return nil, enough
		},
	}).HandshakeContext(ctx)
	if hello == nil {
		return "", fmt.Errorf("network: read the start of TLS: %w", err)
	}
	if hello.ServerName == "" {
		return "", errNoName
	}
	return hello.ServerName, nil
}

// hostHeader returns the Host in the head of an HTTP request.
func hostHeader(from io.Reader) (string, error) {
	r, err := http.ReadRequest(bufio.NewReader(from))
	if err != nil {
		return "", fmt.Errorf("network: read the start of HTTP: %w", err)
	}
	for field := range r.Header {
		if !httpguts.ValidHeaderFieldName(field) {
			return "", fmt.Errorf("network: read the start of HTTP: %.100q is not the name of a header", field)
		}
	}
	return hostOf(r)
}

// hostOf returns the host name of a request. If the request has no host name, the error is
// errNoName.
func hostOf(r *http.Request) (string, error) {
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil || host == "" {
		return "", errNoName
	}
	return host, nil
}

// deafConn is a connection that can only be read. It drops written bytes.
type deafConn struct{ io.Reader }

func (deafConn) Write(p []byte) (int, error)      { return len(p), nil }
func (deafConn) Close() error                     { return nil }
func (deafConn) LocalAddr() net.Addr              { return nil }
func (deafConn) RemoteAddr() net.Addr             { return nil }
func (deafConn) SetDeadline(time.Time) error      { return nil }
func (deafConn) SetReadDeadline(time.Time) error  { return nil }
func (deafConn) SetWriteDeadline(time.Time) error { return nil }

// accessDenied is the access_denied alert of TLS.
var accessDenied = []byte{21, 3, 3, 0, 2, 2, 49}

// refuse sends the reason to a client in the client's protocol, and gives the client a moment to
// read it.
func (s *said) refuse(conn net.Conn, why error) {
	answer := accessDenied
	if s.port == portHTTP {
		host := s.name
		if denied, ok := errors.AsType[*DeniedError](why); ok && host == "" {
			host = denied.Host
		}
		text := fmt.Sprintf("no connection to %.255s: %s\n", host, why.Error())
		answer = fmt.Appendf(nil, "HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
	}
	_ = conn.SetDeadline(time.Now().Add(time.Second)) // fails only if the client has gone
	if _, err := conn.Write(answer); err != nil {
		return
	}
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	_, _ = io.CopyN(io.Discard, conn, maxPeek)
}
