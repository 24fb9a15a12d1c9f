//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/e2bctl/e2bctl/sandbox"
)

// outside is an address that is reserved for documentation. The proxy connects requests for it to
// the origin. service is the origin, too, as hostService of the host.
const (
	outside     = "http://203.0.113.1"
	service     = "http://origin.host.internal:8000/"
	hostService = "origin:8000"
)

// inside measures fetches of a URL. The client is this program, run in a sandbox without proxy settings.
func (b *bench) inside(url string, bytes int64) measurement {
	return func(ctx context.Context, runs int) (r result, err error) {
		err = b.with(ctx, func(sb *sandbox.Sandbox) error {
			if err := bring(ctx, sb); err != nil {
				return err
			}
			said, err := sb.Commands.Run(ctx, fmt.Sprintf("./bench -get %s -runs %d", url, runs), nil)
			if err != nil {
				return err
			}
			r, err = measured(said.Stdout, bytes)
			return err
		})
		return r, err
	}
}

// onHost measures the same client on the host, with these arguments.
func onHost(bytes int64, args ...string) measurement {
	return func(ctx context.Context, runs int) (result, error) {
		program, err := os.Executable()
		if err != nil {
			return result{}, err
		}
		said, err := exec.CommandContext(ctx, program, append(args, "-runs", fmt.Sprint(runs))...).Output()
		if err != nil {
			return result{}, err
		}
		return measured(string(said), bytes)
	}
}

// getAgain is the main function of this program when it runs as the client of [bench.inside]. It
// fetches url several times, each time with a new connection, and prints the duration of each
// fetch.
func getAgain(ctx context.Context, w io.Writer, url, through string, runs int) error {
	transport := &http.Transport{DisableKeepAlives: true}
	if through != "" {
		transport.DialContext = func(ctx context.Context, _, address string) (net.Conn, error) {
			return dialThrough(ctx, through, address)
		}
	}
	r, err := calls(func(ctx context.Context) error {
		_, err := fetch(ctx, &http.Client{Transport: transport}, http.MethodGet, url, nil)
		return err
	})(ctx, runs)
	for _, took := range r.took {
		fmt.Fprintln(w, took)
	}
	return err
}

// measured parses the output of getAgain.
func measured(text string, bytes int64) (result, error) {
	r := result{bytes: bytes}
	for line := range strings.Lines(text) {
		took, err := time.ParseDuration(strings.TrimSpace(line))
		if err != nil {
			return r, err
		}
		r.took = append(r.took, took)
	}
	if len(r.took) == 0 {
		return r, errors.New("the client measured nothing")
	}
	slices.Sort(r.took)
	return r, nil
}

func dialThrough(ctx context.Context, proxy, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", proxy)
	if err != nil {
		return nil, err
	}
	_, err = fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", address, address)
	if err == nil {
		// Nothing is sent after the answer until the next request.
		answer := textproto.NewReader(bufio.NewReader(conn))
		var status string
		if status, err = answer.ReadLine(); err == nil && !strings.HasPrefix(status, "HTTP/1.1 200 ") {
			err = errors.New("the proxy answers " + status)
		}
		if err == nil {
			_, err = answer.ReadMIMEHeader()
		}
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// leadTo returns an HTTP proxy that connects every request to the given address.
func leadTo(address string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		far, err := (&net.Dialer{}).DialContext(r.Context(), "tcp", address)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer far.Close()
		near, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		defer near.Close()
		_, _ = io.WriteString(near, "HTTP/1.1 200 OK\r\n\r\n")
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = io.Copy(far, near)
			_ = far.(*net.TCPConn).CloseWrite()
		}()
		_, _ = io.Copy(near, far)
		_ = near.(*net.TCPConn).CloseWrite()
		<-done
	})
}
