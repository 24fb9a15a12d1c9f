// Command quickstart does one real job in a sandbox: it reads the packages of this
// machine's Go installation, makes Python in a sandbox analyse and plot them, and gets
// back typed values and a picture.
//
//	quickstart -local          in a local cloud, started in this process
//	quickstart                 on the service named by the E2B_ variables (E2B_API_KEY …)
package main

import (
	"context"
	"embed"
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
	"github.com/e2bctl/e2bctl/sandbox/agent"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/state"
)

//go:generate sh -c "cd wheels && go run ."

//go:embed snippets/*.py wheels/*.whl
var files embed.FS

// summary is the content of the Python variable summary after the snippet called summary has run.
type summary struct {
	Packages     int     `py:"packages"`
	Lines        int     `py:"lines"`
	Median       float64 `py:"median"`
	MostImported []struct {
		Name  string `py:"name"`
		Count int    `py:"count"`
	} `py:"most_imported"`
}

func main() {
	here := flag.Bool("local", false, "start a local cloud in this process instead of using a service")
	out := flag.String("out", ".", "`directory` to save the picture in")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout, *here, *out)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

// run connects to a service or starts a local one, does the job and cleans up.
func run(ctx context.Context, w io.Writer, here bool, out string) (err error) {
	do := &steps{w: w, since: time.Now()}
	var options []sandbox.CreateOption
	if here {
		var cloud *local.Cloud
		if cloud, err = local.Start(ctx); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, cloud.Close()) }()
		options = append(options, cloud.Option())
		do.done("started a local cloud (isolation: %s)", cloud.Isolation())
	}
	sb, err := sandbox.Create(ctx, options...)
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, sb.Close())
		do.done("closed the sandbox")
	}()
	do.done("created sandbox %s", sb.ID())
	return job(ctx, do, sb, out)
}

func job(ctx context.Context, do *steps, sb *sandbox.Sandbox, out string) (err error) {
	packages, err := standardLibrary(ctx)
	if err != nil {
		return err
	}
	do.done("read %d packages of the Go installation", len(packages))

	if err := install(ctx, do, sb); err != nil {
		return err
	}

	// The list becomes the variable packages in the sandbox.
	values := state.New()
	if err := values.Set("packages", packages); err != nil {
		return err
	}
	run, err := agent.Begin(ctx, sb, &agent.Params{State: values})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, run.Close()) }()
	do.done("sent them as state")

	for _, name := range []string{"summary", "rank"} {
		if _, err := sb.RunCode(ctx, snippet(name), &sandbox.RunCodeParams{Stdout: do.output()}); err != nil {
			return err
		}
		do.done("ran snippets/%s.py", name)
	}

	var found summary
	var top []string
	if err := get(ctx, run, "summary", &found); err != nil {
		return err
	}
	if err := get(ctx, run, "top", &top); err != nil {
		return err
	}
	do.done("got back: %d packages, half of them under %.0f lines; highest rank: %s",
		found.Packages, found.Median, strings.Join(top, ", "))

	return plot(ctx, do, sb, out)
}

// get decodes a variable of the sandbox into a Go value.
func get(ctx context.Context, run *agent.Run, name string, into any) error {
	value, err := run.Get(ctx, name)
	if err != nil {
		return err
	}
	return value.Decode(into)
}

func snippet(name string) string {
	content, err := files.ReadFile("snippets/" + name + ".py")
	if err != nil {
		panic(err) // the snippet is embedded
	}
	return string(content)
}
