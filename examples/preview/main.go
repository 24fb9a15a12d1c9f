// Command preview shows a stranger's web program in the browser, without running it on this
// machine: it copies a directory into a sandbox, starts a server there, and passes the browser's
// requests on to that server.
//
//	preview -local path/to/site
//	preview -local -port 3000 path/to/app node server.js
//
// Without -local, E2B_API_KEY and the other E2B_ variables name the service to use.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
)

const usage = `Usage: preview [flags] DIRECTORY [COMMAND...]

DIRECTORY is copied into a sandbox, and COMMAND runs in it there. It serves HTTP on the port
of -port; by default it is python3 -m http.server, which serves the files.

`

func main() {
	here := flag.Bool("local", false, "start a local cloud in this process instead of using a service")
	listen := flag.String("listen", "127.0.0.1:8080", "`address` to show it at")
	port := flag.Int("port", 8000, "`number` of the port it serves on")
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(), usage)
		flag.PrintDefaults()
	}
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	command := strings.Join(flag.Args()[min(1, flag.NArg()):], " ")
	if command == "" {
		command = fmt.Sprintf("python3 -m http.server %d", *port)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", *listen)
	if err == nil {
		fmt.Println("http://" + listener.Addr().String())
		err = preview(ctx, listener, *here, flag.Arg(0), command, *port, os.Stderr)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "preview:", err)
		os.Exit(1)
	}
}

// preview serves until ctx or the server in the sandbox ends. The end of ctx is not an error.
// preview closes listener.
func preview(ctx context.Context, listener net.Listener, here bool, dir, command string, port int, log io.Writer) (err error) {
	defer func() { _ = listener.Close() }() // a started server has already closed it
	if dir == "" {
		return errors.New("which directory? See -h")
	}
	var options []sandbox.CreateOption
	if here {
		var cloud *local.Cloud
		if cloud, err = local.Start(ctx); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, cloud.Close()) }()
		options = append(options, cloud.Option())
	}
	err = sandbox.Use(ctx, func(ctx context.Context, sb *sandbox.Sandbox) (err error) {
		if err := sb.Files.UploadDir(ctx, dir, "site", nil); err != nil {
			return err
		}
		inside, err := sb.Commands.Start(ctx, command, &sandbox.CommandParams{Cwd: "site", Stdout: log, Stderr: log})
		if err != nil {
			return err
		}
		server := &http.Server{Handler: relay(sb, port), ReadHeaderTimeout: 10 * time.Second}
		defer func() { err = errors.Join(err, server.Close()) }()
		ended := make(chan error, 2)
		go func() { ended <- server.Serve(listener) }()
		go func() {
			result, err := inside.Wait(ctx)
			if err == nil {
				err = errors.New(result.Status)
			}
			ended <- fmt.Errorf("%s ended: %w", command, err)
		}()
		return <-ended
	}, options...)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// relay passes requests on to a port of the sandbox. Until the server in the sandbox has started,
// nothing listens on the port.
func relay(sb *sandbox.Sandbox, port int) http.Handler {
	return &httputil.ReverseProxy{
		Transport: sb.Transport(port),
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = "http", fmt.Sprintf("localhost:%d", port)
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			status := http.StatusBadGateway
			if errors.Is(err, sandbox.ErrPortClosed) {
				status = http.StatusServiceUnavailable
				w.Header().Set("Retry-After", "1")
			}
			http.Error(w, err.Error(), status)
		},
	}
}
