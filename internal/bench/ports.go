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
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/e2bctl/e2bctl/sandbox"
)

// serve is the main function of this program when the program runs as the server of a row, in a
// sandbox or on the host. serve prints the address on which it listens.
func serve(ctx context.Context, w io.Writer, address string) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	fmt.Fprintln(w, listener.Addr())
	server := &http.Server{Handler: answers(0), ReadHeaderTimeout: time.Minute}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// bring copies the executable of this program into a sandbox, to the path ./bench.
func bring(ctx context.Context, sb *sandbox.Sandbox) error {
	path, err := os.Executable()
	if err != nil {
		return err
	}
	program, err := os.Open(path)
	if err != nil {
		return err
	}
	defer program.Close()
	if err := sb.Files.WriteFrom(ctx, "bench", program, nil); err != nil {
		return err
	}
	_, err = sb.Commands.Run(ctx, "chmod +x bench", nil)
	return err
}

// serverPort and serverAddress are the port and the address of the server in a sandbox.
const (
	serverPort    = 8000
	serverAddress = "127.0.0.1:8000"
)

// withServer calls do with a sandbox in which a server listens on serverPort.
func (b *bench) withServer(ctx context.Context, do func(*sandbox.Sandbox) error) error {
	return b.with(ctx, func(sb *sandbox.Sandbox) error {
		if err := bring(ctx, sb); err != nil {
			return err
		}
		server, err := sb.Commands.Start(ctx, "exec ./bench -serve "+serverAddress, nil)
		if err != nil {
			return err
		}
		for event, err := range server.Events(ctx) {
			if err != nil {
				return err
			}
			if event.Exit != nil {
				return errors.New("the server ended: " + event.Exit.Status)
			}
			if len(event.Stdout) > 0 {
				break // it listens
			}
		}
		return do(sb)
	})
}

// port measures requests to a server in a sandbox.
func (b *bench) port(ctx context.Context, runs int) (r result, err error) {
	err = b.withServer(ctx, func(sb *sandbox.Sandbox) (err error) {
		r, err = requests(ctx, runs, &http.Client{Transport: sb.Transport(serverPort)}, serverAddress)
		return err
	})
	return r, err
}

// forwarded measures connections through [sandbox.Sandbox.Forward], with one request per
// connection.
func (b *bench) forwarded(ctx context.Context, runs int) (r result, err error) {
	err = b.withServer(ctx, func(sb *sandbox.Sandbox) error {
		forwarding, err := sb.Forward(ctx, "127.0.0.1:0", serverPort, nil)
		if err != nil {
			return err
		}
		r, err = requests(ctx, runs, &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, forwarding.Addr().String())
		return errors.Join(err, forwarding.Close())
	})
	return r, err
}

// dialled measures connections through [sandbox.Sandbox.Dial], with one request per connection.
func (b *bench) dialled(ctx context.Context, runs int) (r result, err error) {
	err = b.withServer(ctx, func(sb *sandbox.Sandbox) (err error) {
		transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return sb.Dial(ctx, serverPort) }}
		r, err = requests(ctx, runs, &http.Client{Transport: transport}, serverAddress)
		return err
	})
	return r, err
}

func portOnHost(ctx context.Context, runs int) (result, error) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	path, err := os.Executable()
	if err != nil {
		return result{}, err
	}
	server := exec.CommandContext(ctx, path, "-serve", "127.0.0.1:0")
	out, err := server.StdoutPipe()
	if err == nil {
		err = server.Start()
	}
	if err != nil {
		return result{}, err
	}
	address, err := bufio.NewReader(out).ReadString('\n')
	var r result
	if err == nil {
		r, err = requests(ctx, runs, &http.Client{Transport: &http.Transport{}}, strings.TrimSpace(address))
	}
	end()
	_ = server.Wait() // it was killed
	return r, err
}

func requests(ctx context.Context, runs int, client *http.Client, address string) (result, error) {
	defer client.CloseIdleConnections()
	return calls(func(ctx context.Context) error {
		_, err := fetch(ctx, client, http.MethodGet, "http://"+address+"/", nil)
		return err
	})(ctx, runs)
}
