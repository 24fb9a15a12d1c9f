// Command cluster works in a sandbox of a Kubernetes cluster. It contains nothing about Kubernetes: the
// same program uses E2B's service, or the local cloud of one machine. The first line puts a server into
// the cluster, and the others lead to it:
//
//	e2bctl serve --manifests --program-image REGISTRY/e2bctl:1 | kubectl apply -f -
//	kubectl -n e2bctl port-forward service/e2bctl 3000 &
//	export E2B_API_URL=http://localhost:3000 E2B_SANDBOX_URL=http://localhost:3000
//	export E2B_API_KEY=$(kubectl -n e2bctl get secret e2bctl-keys -o jsonpath='{.data.keys}' | base64 -d)
//	cluster
//
// With -local, the program starts a local cloud in its own process instead.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
)

func main() {
	here := flag.Bool("local", false, "start a local cloud in this process instead of using a service")
	template := flag.String("template", "", "`name` of the template; without it, the server's default")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout, *here, *template)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

// run creates a sandbox, works in it, and ends it, even if the work fails.
func run(ctx context.Context, w io.Writer, here bool, template string) (err error) {
	options := []sandbox.CreateOption{
		sandbox.WithTemplate(template),
		sandbox.WithMetadata(map[string]string{"job": "squares"}), // an annotation of the pod's Sandbox in the cluster
	}
	if here {
		cloud, err := local.Start(ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, cloud.Close()) }()
		options = append(options, cloud.Option())
	}
	began := time.Now()
	err = sandbox.Use(ctx, func(ctx context.Context, sb *sandbox.Sandbox) error {
		fmt.Fprintf(w, "created sandbox %s in %v\n", sb.ID(), time.Since(began).Round(time.Millisecond))
		return work(ctx, w, sb)
	}, options...)
	if err == nil {
		fmt.Fprintln(w, "ended the sandbox")
	}
	return err
}

// squares reads numbers from a file, and writes their squares to another one.
const squares = `
numbers = [int(line) for line in open("/tmp/numbers")]
with open("/tmp/squares", "w") as out:
    print(*(n * n for n in numbers), sep="\n", file=out)
sum(n * n for n in numbers)
`

func work(ctx context.Context, w io.Writer, sb *sandbox.Sandbox) error {
	info, err := sb.Info(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "it is %s, with %d processors and %d MiB of memory, for the job %s\n",
		info.State, info.CPUs, info.MemoryBytes>>20, info.Metadata["job"])

	uname, err := sb.Commands.Run(ctx, "uname -sr", nil)
	if err != nil {
		return err
	}
	fmt.Fprint(w, "its kernel is ", uname.Stdout)

	if err := sb.Files.WriteText(ctx, "/tmp/numbers", "2\n3\n6\n", nil); err != nil {
		return err
	}
	execution, err := sb.RunCode(ctx, squares, nil)
	if err != nil {
		return err
	}
	text, err := sb.Files.ReadText(ctx, "/tmp/squares", nil)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "the squares %s have the sum %s\n", strings.Join(strings.Fields(text), ", "), execution.Text())
	return nil
}
