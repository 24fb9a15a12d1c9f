// Command stream serves a page on which the user enters Python. It runs the code in a new sandbox
// for each run. It sends the output to the page as it arrives, by server-sent events.
//
//	stream -local
//
// Without -local, E2B_API_KEY and the other E2B_ variables name the service to use.
package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
)

//go:embed page.html
var page []byte

func main() {
	here := flag.Bool("local", false, "start a local cloud in this process instead of using a service")
	listen := flag.String("listen", "127.0.0.1:8080", "`address` to show the page at")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", *listen)
	if err == nil {
		fmt.Println("http://" + listener.Addr().String())
		err = serve(ctx, listener, *here)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "stream:", err)
		os.Exit(1)
	}
}

// serve serves until ctx ends. The end of ctx is not an error. serve closes listener.
func serve(ctx context.Context, listener net.Listener, here bool) (err error) {
	defer func() { _ = listener.Close() }() // a started server has already closed it
	var options []sandbox.ClientOption
	if here {
		cloud, err := local.Start(ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, cloud.Close()) }()
		options = append(options, cloud.Option())
	}
	client, err := sandbox.NewClient(options...)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler:           handler(client),
		ReadHeaderTimeout: 10 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return ctx }, // runs end with the program
	}
	stop := context.AfterFunc(ctx, func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		_ = server.Shutdown(last) // Serve returns as soon as this begins
	})
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// handler serves the page and runs the code that the page sends. Pages of other sites cannot
// use it.
func handler(client *sandbox.Client) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(page) // fails if the browser has gone
	})
	mux.HandleFunc("POST /run", func(w http.ResponseWriter, r *http.Request) {
		code, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil {
			http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Accel-Buffering", "no") // otherwise nginx would buffer the output
		e := &events{w: w}
		if err := run(r.Context(), client, string(code), e); err != nil {
			e.send("failed", err.Error())
		}
		e.send("end", "")
	})
	return http.NewCrossOriginProtection().Handler(mux)
}

// run runs code in a new sandbox until the code ends, the browser disconnects, or a minute is
// over.
func run(ctx context.Context, client *sandbox.Client, code string, e *events) (err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	sb, err := client.Create(ctx, sandbox.WithInternet(false))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sb.Close()) }()
	_, err = sb.RunCode(ctx, code, &sandbox.RunCodeParams{
		Stdout:         stream{e, "stdout"},
		Stderr:         stream{e, "stderr"},
		MaxOutputBytes: -1, // the output is not kept here
		OnResult: func(r sandbox.Result) {
			if png := r.PNG(); png != nil {
				e.send("png", png)
			} else {
				e.send("result", r.Text())
			}
		},
	})
	if raised, ok := errors.AsType[*sandbox.ExecutionError](err); ok {
		e.send("error", raised.Traceback)
		return nil
	}
	return err
}

// events sends server-sent events. It is safe for concurrent use.
type events struct {
	mu sync.Mutex
	w  http.ResponseWriter
}

// send sends one event. The data of the event is JSON on one line, because a line break would end
// the data.
func (e *events) send(kind string, data any) {
	text, err := json.Marshal(data)
	if err != nil {
		text = []byte(`"this cannot be shown"`)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, err := fmt.Fprintf(e.w, "event: %s\ndata: %s\n\n", kind, text); err == nil { // otherwise the browser has disconnected, and ctx has ended
		_ = http.NewResponseController(e.w).Flush()
	}
}

// stream sends the bytes written to it as events of one kind.
type stream struct {
	to   *events
	kind string
}

func (s stream) Write(p []byte) (int, error) {
	s.to.send(s.kind, string(p))
	return len(p), nil
}
