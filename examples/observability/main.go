// Command observability shows where a job in a sandbox spends its time. It reports its work as
// spans of OpenTelemetry to a collector in this process. The collector prints the spans as a tree.
// The trace continues in the sandbox: the command in the sandbox receives the context of its span.
//
//	observability -local
//
// To send the spans to your own collector, pass the exporter of otlptracehttp.New(ctx) to
// sdktrace.WithBatcher in place of this program's collector, and set OTEL_EXPORTER_OTLP_ENDPOINT to
// its address.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/agent"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/otel"
)

func main() {
	here := flag.Bool("local", false, "start a local cloud in this process instead of using a service")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := observability(ctx, os.Stdout, *here)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "observability:", err)
		os.Exit(1)
	}
}

func observability(ctx context.Context, w io.Writer, here bool) (err error) {
	spans := &collector{}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(spans))
	options := []sandbox.CreateOption{otel.WithTracing(provider, nil)}
	if here {
		var cloud *local.Cloud
		if cloud, err = local.Start(ctx); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, cloud.Close()) }()
		options = append(options, cloud.Option())
	}
	err = sandbox.Use(ctx, func(ctx context.Context, sb *sandbox.Sandbox) error {
		ctx, span := provider.Tracer("example").Start(ctx, "report")
		defer span.End()
		return report(ctx, w, sb, provider)
	}, options...)
	// Spans are sent in the background. Shutdown sends the rest.
	if err := errors.Join(err, provider.Shutdown(context.WithoutCancel(ctx))); err != nil {
		return err
	}
	spans.print(w)
	return nil
}

// report is the job: a command, code, and a run with a tool.
func report(ctx context.Context, w io.Writer, sb *sandbox.Sandbox, provider trace.TracerProvider) (err error) {
	result, err := sb.Commands.Run(ctx, `test -n "$TRACEPARENT" && echo the command knows its trace`, nil)
	if err != nil {
		return err
	}
	fmt.Fprint(w, result.Stdout)
	if _, err := sb.RunCode(ctx, "hours = [3, 5]", nil); err != nil {
		return err
	}
	rate := agent.MustTool("rate", "Returns what an hour costs.", func(context.Context, struct{}) (int, error) { return 40, nil })
	run, err := agent.Begin(ctx, sb, &agent.Params{Tools: []agent.Tool{rate}, Trace: otel.AgentTrace(provider, nil)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, run.Close()) }()
	step, err := run.Exec(ctx, "final_answer(sum(hours) * rate())")
	if err != nil {
		return err
	}
	var costs int
	if err := step.Decode(&costs); err != nil {
		return err
	}
	fmt.Fprintln(w, "=>", costs)
	return nil
}
