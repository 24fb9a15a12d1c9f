//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/gen/process/processconnect"
	"github.com/e2bctl/e2bctl/sandbox"
)

func echo(ctx context.Context, sb *sandbox.Sandbox) error {
	result, err := sb.Commands.Run(ctx, "echo hello", nil)
	if err == nil && result.Stdout != "hello\n" {
		err = fmt.Errorf("echo printed %q", result.Stdout)
	}
	return err
}

func execEcho(ctx context.Context, sb *sandbox.Sandbox) error {
	result, err := sb.Commands.Exec(ctx, "echo", []string{"hello"}, nil)
	if err == nil && result.Stdout != "hello\n" {
		err = fmt.Errorf("echo printed %q", result.Stdout)
	}
	return err
}

// echoRow returns the row for a command of a user who has a .bashrc. A shell in the sandbox expands
// the text bashrc to the content of that file.
func (b *bench) echoRow(what, bashrc string) row {
	return row{
		name: "`Commands.Run(\"echo\")` with " + what, runs: 100,
		measure: func(ctx context.Context, runs int) (r result, err error) {
			err = b.with(ctx, func(sb *sandbox.Sandbox) (err error) {
				write := "cat >~/.bashrc <<END\n" + bashrc + "\nEND"
				if _, err := sb.Commands.Run(ctx, write, nil); err != nil {
					return err
				}
				r, err = repeat(ctx, runs, whole(func(ctx context.Context) error { return echo(ctx, sb) }))
				return err
			})
			return r, err
		},
		floor: b.inOne(echo), floorName: "without",
	}
}

// daemon is a fake service with one sandbox. For every command it sends the output hello at once,
// and runs nothing.
type daemon struct {
	processconnect.UnimplementedProcessHandler
}

func (daemon) Start(_ context.Context, _ *connect.Request[process.StartRequest], stream *connect.ServerStream[process.StartResponse]) error {
	for _, event := range []*process.ProcessEvent{
		{Event: &process.ProcessEvent_Start{Start: &process.ProcessEvent_StartEvent{Pid: 1}}},
		{Event: &process.ProcessEvent_Data{Data: &process.ProcessEvent_DataEvent{Output: &process.ProcessEvent_DataEvent_Stdout{Stdout: []byte("hello\n")}}}},
		{Event: &process.ProcessEvent_End{End: &process.ProcessEvent_EndEvent{Exited: true, Status: "exit status 0"}}},
	} {
		if err := stream.Send(&process.StartResponse{Event: event}); err != nil {
			return err
		}
	}
	return nil
}

// clientEcho measures the client's cost of a command, without the cost of running it. The service
// is in this process, so the result includes the cost of the service's side.
func clientEcho(ctx context.Context, runs int) (_ result, err error) {
	mux := http.NewServeMux()
	mux.Handle(processconnect.NewProcessHandler(daemon{}))
	mux.HandleFunc("POST /sandboxes/{id}/connect", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"sandboxID":%q,"templateID":"t","envdVersion":"0.6.13"}`, r.PathValue("id"))
	})
	mux.HandleFunc("POST /sandboxes/{id}/timeout", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	server := httptest.NewServer(mux)
	defer server.Close()
	sb, err := sandbox.Connect(ctx, "i0000000000", sandbox.WithEnvFile(""), sandbox.WithAPIKey("e2b_00000000"), sandbox.WithAPIURL(server.URL), sandbox.WithSandboxURL(server.URL))
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, sb.Close()) }()
	return repeat(ctx, runs, whole(func(ctx context.Context) error { return echo(ctx, sb) }))
}

// plainEcho measures a plain HTTP request with an answer of the same size as in clientEcho.
func plainEcho(ctx context.Context, runs int) (result, error) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello\n") }))
	defer server.Close()
	return calls(func(ctx context.Context) error {
		_, err := fetch(ctx, server.Client(), http.MethodPost, server.URL, strings.NewReader("echo hello"))
		return err
	})(ctx, runs)
}

// waiting is a command that prints a line when it starts, and then sleeps.
const waiting = "echo; exec sleep 1000"

func (b *bench) cancelled(ctx context.Context, runs int) (r result, err error) {
	err = b.with(ctx, func(sb *sandbox.Sandbox) (err error) {
		r, err = cancels(ctx, runs, func(ctx context.Context, stdout io.Writer) error {
			_, err := sb.Commands.Run(ctx, waiting, &sandbox.CommandParams{Stdout: stdout})
			if errors.Is(err, context.Canceled) {
				return nil
			}
			return fmt.Errorf("a command that was cancelled: %w", err)
		})
		return err
	})
	return r, err
}

func cancelOnHost(ctx context.Context, runs int) (result, error) {
	return cancels(ctx, runs, func(ctx context.Context, stdout io.Writer) error {
		cmd := exec.CommandContext(ctx, "/bin/bash", "-c", waiting)
		cmd.Stdout = stdout
		if err := cmd.Run(); ctx.Err() == nil {
			return fmt.Errorf("it ended by itself: %w", err)
		}
		return nil
	})
}

// cancels measures the time from cancelling a running command to its return.
func cancels(ctx context.Context, runs int, run func(context.Context, io.Writer) error) (result, error) {
	return repeat(ctx, runs, func(ctx context.Context) (time.Duration, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		var start time.Time
		err := run(ctx, writerFunc(func() {
			start = time.Now()
			cancel()
		}))
		return time.Since(start), err
	})
}

// writerFunc is called for each write.
type writerFunc func()

func (f writerFunc) Write(p []byte) (int, error) {
	f()
	return len(p), nil
}
