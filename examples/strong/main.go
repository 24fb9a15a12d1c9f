// Command strong keeps the memory of a sandbox: a table, a half-trained model, and a process that
// counts. It pauses the sandbox and resumes it, creates two other sandboxes from a snapshot, and
// forks it to continue from one moment in three ways. Finally it resumes the sandbox in another
// cloud after the first cloud has ended. The sandboxes run on gVisor, a kernel in user space. The
// program also shows the facts about this machine's kernel that hostile code can read.
//
//	CGO_ENABLED=0 go run ./examples/strong
//	strong -runsc PATH                           with a gVisor of your own
//
// The first run prepares the machine, as "e2bctl local setup --engine gvisor" does: the go command
// builds runsc, the program of gVisor, which takes some minutes. This program becomes the daemon of
// the sandboxes, inside gVisor, so it is built without C. The Python of the sandboxes needs pandas.
// The Python that "e2bctl local setup" installs includes it.
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

	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
)

func main() {
	runsc := flag.String("runsc", "", "the `program` of gVisor (default the one that the go command builds once)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var err error
	if *runsc == "" {
		*runsc, err = local.SetupGVisor(ctx, os.Stderr, nil)
	}
	if err == nil {
		err = run(ctx, os.Stdout, local.WithRunsc(*runsc))
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "strong:", err)
		os.Exit(1)
	}
}

// run starts a cloud, and after its end a second cloud, which finds the sandbox that the first
// cloud kept.
func run(ctx context.Context, w io.Writer, more ...local.Option) (err error) {
	state, err := os.MkdirTemp("", "strong-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(state)) }()
	options := append(more, local.WithEngine(local.EngineGVisor), local.WithStateDir(state))
	var paused *watched
	err = with(ctx, options, func(client *sandbox.Client) (err error) {
		paused, err = firstCloud(ctx, w, client)
		return err
	})
	if err != nil {
		return err
	}
	return with(ctx, options, func(client *sandbox.Client) error { return secondCloud(ctx, w, client, paused) })
}

// with starts a cloud, calls do with its client, and ends the cloud.
func with(ctx context.Context, options []local.Option, do func(*sandbox.Client) error) (err error) {
	cloud, err := local.Start(ctx, options...)
	if err != nil {
		return err // the error explains how to prepare the machine
	}
	defer func() { err = errors.Join(err, cloud.Close()) }()
	client, err := sandbox.NewClient(cloud.Option())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	return do(client)
}

// firstCloud runs all parts of the example except the last, and leaves a paused sandbox for
// [secondCloud].
func firstCloud(ctx context.Context, w io.Writer, client *sandbox.Client) (_ *watched, err error) {
	took := clock()
	sb, err := client.Create(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, sb.Close()) }() // does nothing after Detach
	source, err := prepare(ctx, sb)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(w, "--- prepared in %s\n%s\n", took(), source)
	for _, do := range []func(context.Context, io.Writer, *sandbox.Client, *watched) error{hostile, pause, snapshot, fork} {
		if err := do(ctx, w, client, source); err != nil {
			return nil, err
		}
	}
	took = clock()
	if err := sb.Pause(ctx, nil); err != nil {
		return nil, err
	}
	fmt.Fprintf(w, "--- paused for another cloud, in %s\n", took())
	return source, sb.Detach()
}

// secondCloud resumes the sandbox of firstCloud.
func secondCloud(ctx context.Context, w io.Writer, client *sandbox.Client, source *watched) (err error) {
	took := clock()
	sb, err := client.Connect(ctx, source.ID()) // Connect resumes it
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sb.Close()) }()
	fmt.Fprintf(w, "--- resumed by it, in %s\n", took())
	source.Sandbox = sb
	if err := source.goesOn(ctx); err != nil {
		return err
	}
	fmt.Fprintf(w, "%s\n=> it goes on where it was, in another cloud\n", source)
	return sb.Kill(ctx)
}

// pause pauses the sandbox and resumes it soon after.
func pause(ctx context.Context, w io.Writer, _ *sandbox.Client, source *watched) error {
	took := clock()
	if err := source.Pause(ctx, nil); err != nil {
		return err
	}
	fmt.Fprintf(w, "--- paused in %s\n", took())
	took = clock()
	if err := source.Resume(ctx, nil); err != nil {
		return err
	}
	fmt.Fprintf(w, "--- resumed in %s\n", took())
	if err := source.goesOn(ctx); err != nil {
		return err
	}
	fmt.Fprintf(w, "%s\n=> it goes on where it was\n", source)
	return nil
}

// snapshot creates two sandboxes from one snapshot. Each changes the table.
func snapshot(ctx context.Context, w io.Writer, client *sandbox.Client, source *watched) (err error) {
	took := clock()
	kept, err := source.Snapshot(ctx, &sandbox.SnapshotParams{Mode: sandbox.SnapshotFull})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Snapshots.Delete(ctx, kept.ID)) }()
	fmt.Fprintf(w, "--- snapshot in %s\n", took())
	for _, half := range []string{"x < 0", "x >= 0"} {
		took := clock()
		sb, err := client.Create(ctx, sandbox.WithTemplate(kept.ID))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, sb.Close()) }()
		one := source.copy(sb)
		fmt.Fprintf(w, "--- a sandbox of it in %s, which keeps the points of %s\n", took(), half)
		if err := one.goesOn(ctx); err != nil {
			return err
		}
		if err := one.change(ctx, fmt.Sprintf("points = points.query(%q)", half)); err != nil {
			return err
		}
		fmt.Fprintln(w, one)
		if one.Points == 0 || one.Points >= source.Points {
			return fmt.Errorf("%d points are left of %d", one.Points, source.Points)
		}
	}
	if err := source.goesOn(ctx); err != nil {
		return err
	}
	fmt.Fprintf(w, "%s\n=> the sandbox itself has all of its points\n", source)
	return nil
}

// fork continues from one moment of the sandbox in three ways.
func fork(ctx context.Context, w io.Writer, _ *sandbox.Client, source *watched) (err error) {
	rates := []float64{0.05, 0.5, 1.5}
	took := clock()
	forks, err := source.Fork(ctx, &sandbox.ForkParams{Count: len(rates)})
	if err != nil {
		return err
	}
	for _, f := range forks {
		defer func() { err = errors.Join(err, f.Sandbox.Close()) }()
	}
	fmt.Fprintf(w, "--- %d forks in %s\n", len(forks), took())
	var best *watched
	var bestRate float64
	for i, f := range forks {
		if f.Err != nil {
			return f.Err
		}
		one := source.copy(f.Sandbox)
		if err := one.goesOn(ctx); err != nil {
			return err
		}
		took := clock()
		if err := one.change(ctx, fmt.Sprintf("fit(%g, 20)", rates[i])); err != nil {
			return err
		}
		fmt.Fprintf(w, "at a rate of %g, 20 steps in %s: %s\n", rates[i], took(), one)
		if best == nil || one.Error < best.Error {
			best, bestRate = one, rates[i]
		}
	}
	if err := source.goesOn(ctx); err != nil {
		return err
	}
	fmt.Fprintf(w, "%s\n=> best is a rate of %g, and the sandbox itself has not moved\n", source, bestRate)
	return nil
}
