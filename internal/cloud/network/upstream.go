package network

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"time"

	"golang.org/x/net/http/httpproxy"
)

// EnvironmentProxy returns a function that returns the proxy for an address, from the variables
// HTTPS_PROXY and NO_PROXY of this process. It reads the variables immediately. If there is no
// proxy, EnvironmentProxy returns nil. Connections to any port use the proxy, with CONNECT.
func EnvironmentProxy() func(address string) (*url.URL, error) {
	environment := httpproxy.FromEnvironment()
	if environment.HTTPSProxy == "" {
		return nil
	}
	proxyFor := environment.ProxyFunc()
	return func(address string) (*url.URL, error) { return proxyFor(&url.URL{Scheme: "https", Host: address}) }
}

// proxyFor returns the proxy for a host and port. It returns nil if there is none.
func (d *Dialer) proxyFor(host string, port uint16) (*url.URL, error) {
	if d.Proxy == nil {
		return nil, nil
	}
	proxy, err := d.Proxy(net.JoinHostPort(host, strconv.Itoa(int(port))))
	if err != nil {
		return nil, fmt.Errorf("network: the proxy of this machine's environment: %s", redacted(err))
	}
	return proxy, nil
}

// redacted returns the text of an error about a proxy's address. It removes the address, which
// may contain a password.
func redacted(err error) string {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err.Error()
	}
	return "its address is not a URL"
}

// addressThroughProxy connects to an address through an HTTP proxy, within a time limit.
func (d *Dialer) addressThroughProxy(ctx context.Context, proxy *url.URL, address netip.AddrPort, limit time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	conn, err := d.throughProxy(ctx, proxy, address.String(), anywhere)
	if errors.Is(err, errAnswered) {
		return nil, fmt.Errorf("%w; it was asked for an address: if it filters by name, start the cloud with local.WithProxyNames", err)
	}
	return conn, err
}

// errAnswered reports that a proxy refused a connection. In the text of the whole error, the status
// of the proxy's answer follows.
var errAnswered = errors.New("it answered")

// anywhere accepts any address for a proxy.
func anywhere(netip.Addr) error { return nil }

// throughProxy connects to address through an HTTP proxy. It uses only those addresses of the proxy
// that the function at accepts.
func (d *Dialer) throughProxy(ctx context.Context, proxy *url.URL, address string, at func(netip.Addr) error) (_ net.Conn, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("network: connect to %.255s through the proxy %s of this machine's environment: %w", address, proxy.Host, err)
		}
	}()
	port := proxy.Port()
	switch {
	case proxy.Scheme != "http" && proxy.Scheme != "https":
		return nil, fmt.Errorf("proxies of the kind %q are not supported: only http and https are", proxy.Scheme)
	case port == "" && proxy.Scheme == "https":
		port = "443"
	case port == "":
		port = "80"
	}
	conn, err := d.attempt(ctx, net.JoinHostPort(proxy.Hostname(), port), at)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer func() {
		if !stop() && err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			_ = conn.Close()
		}
	}()
	if proxy.Scheme == "https" {
		conn = tls.Client(conn, &tls.Config{ServerName: proxy.Hostname(), MinVersion: tls.VersionTLS12})
	}
	return conn, askHTTP(conn, address, proxy.User)
}

// askHTTP requests from an HTTP proxy a connection to address. A nil user means that the proxy
// needs no login.
func askHTTP(conn net.Conn, address string, user *url.Userinfo) error {
	request := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: address}, Host: address, Header: http.Header{}}
	if user != nil {
		password, _ := user.Password()
		request.Header.Set("Proxy-Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user.Username()+":"+password)))
	}
	if err := request.Write(conn); err != nil {
		return err
	}
	// The answer is read byte by byte, because the bytes after the answer belong to the
	// connection.
	answer, err := http.ReadResponse(bufio.NewReaderSize(oneByte{io.LimitReader(conn, maxPeek)}, 16), request)
	if err != nil {
		return err
	}
	defer answer.Body.Close() // a successful CONNECT has no body
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%w %.100s", errAnswered, answer.Status)
	}
	return nil
}

// oneByte reads one byte at a time.
type oneByte struct{ io.Reader }

func (r oneByte) Read(p []byte) (int, error) { return r.Reader.Read(p[:min(len(p), 1)]) }
