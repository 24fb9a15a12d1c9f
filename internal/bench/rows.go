package main

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/e2bctl/e2bctl/sandbox"
)

// row is one line of the table.
type row struct {
	name    string
	runs    int
	bytes   int64 // that each run moves; 0 is not about throughput
	measure func(ctx context.Context, runs int) (result, error)
	// floor may be nil; floorName says what it is.
	floor     floor
	floorName string
}

// result is the median, and the most memory that was resident where that was
// measured.
type result struct {
	median time.Duration
	peak   int64
}

// bulk is how much the rows about throughput move.
const bulk = 64 << 20

func rows(client *sandbox.Client, command string) []row {
	list := []row{
		{name: "create to first command", runs: 20, measure: created(client, runTrue)},
		{name: "100 sandboxes in a row", runs: 2, measure: crowd(client, 1)},
		{name: "100 sandboxes at once", runs: 2, measure: crowd(client, 100)},
		{
			name: "create to first Python result", runs: 10, measure: created(client, onePlusOne),
			floor: ipythonStart, floorName: "starting IPython on the host",
		},
		{
			name: `RunCode("1+1")`, runs: 200, measure: inOne(client, onePlusOne),
			floor: ipythonCell, floorName: "IPython over a pipe",
		},
		{
			name: `Commands.Run("echo")`, runs: 100, measure: inOne(client, echo),
			floor: bare("/bin/bash", "-c", "echo hello"), floorName: "bash on the host",
		},
		{
			name: "64 MiB of a command's stdout", runs: 5, bytes: bulk, measure: withPeak(inOne(client, commandOutput)),
			floor: download, floorName: "net/http",
		},
		{
			name: "64 MiB printed by code", runs: 5, bytes: bulk, measure: withPeak(inOne(client, codeOutput)),
			floor: download, floorName: "net/http",
		},
		{
			name: "64 MiB uploaded to a file", runs: 5, bytes: bulk, measure: withPeak(inOne(client, uploadFile)),
			floor: upload, floorName: "net/http, to nowhere",
		},
	}
	if command != "" {
		list = append(list, row{
			name: "e2bctl version", runs: 50,
			measure: func(ctx context.Context, runs int) (result, error) {
				middle, err := bare(command, "version")(ctx, runs)
				return result{median: middle}, err
			},
			floor: bare("/bin/true"), floorName: "/bin/true",
		})
	}
	return list
}

func runTrue(ctx context.Context, sb *sandbox.Sandbox) error {
	_, err := sb.Commands.Run(ctx, "true", nil)
	return err
}

func echo(ctx context.Context, sb *sandbox.Sandbox) error {
	result, err := sb.Commands.Run(ctx, "echo hello", nil)
	if err == nil && result.Stdout != "hello\n" {
		err = fmt.Errorf("echo printed %q", result.Stdout)
	}
	return err
}

func onePlusOne(ctx context.Context, sb *sandbox.Sandbox) error {
	execution, err := sb.RunCode(ctx, "1+1", nil)
	if err == nil && execution.Text() != "2" {
		err = fmt.Errorf("1+1 is %q", execution.Text())
	}
	return err
}

func commandOutput(ctx context.Context, sb *sandbox.Sandbox) error {
	var got counter
	_, err := sb.Commands.Run(ctx, fmt.Sprintf("head -c %d /dev/zero", bulk), &sandbox.CommandParams{Stdout: &got})
	return got.check(err)
}

func codeOutput(ctx context.Context, sb *sandbox.Sandbox) error {
	var got counter
	_, err := sb.RunCode(ctx, fmt.Sprintf("for _ in range(%d): print('x' * 65535)", bulk>>16), &sandbox.RunCodeParams{Stdout: &got})
	return got.check(err)
}

func uploadFile(ctx context.Context, sb *sandbox.Sandbox) error {
	return sb.Files.WriteFrom(ctx, "bulk", zeros(bulk), nil)
}

// created measures from before a sandbox is created to the end of its first
// call; to close it does not count.
func created(client *sandbox.Client, call func(context.Context, *sandbox.Sandbox) error) func(context.Context, int) (result, error) {
	return func(ctx context.Context, runs int) (result, error) {
		middle, err := median(ctx, runs, func(ctx context.Context) (time.Duration, error) {
			start := time.Now()
			sb, err := client.Create(ctx)
			if err != nil {
				return 0, err
			}
			err = call(ctx, sb)
			took := time.Since(start)
			return took, errors.Join(err, sb.Close())
		})
		return result{median: middle}, err
	}
}

// crowd measures until each of 100 sandboxes has run a command, all being there
// by then; so many are created at once. To close them does not count.
func crowd(client *sandbox.Client, atOnce int) func(context.Context, int) (result, error) {
	return func(ctx context.Context, runs int) (result, error) {
		middle, err := median(ctx, runs, func(ctx context.Context) (time.Duration, error) {
			var sandboxes [100]*sandbox.Sandbox
			start := time.Now()
			err := each(atOnce, len(sandboxes), func(i int) (err error) {
				if sandboxes[i], err = client.Create(ctx); err != nil {
					return err
				}
				return runTrue(ctx, sandboxes[i])
			})
			took := time.Since(start)
			return took, errors.Join(err, each(len(sandboxes), len(sandboxes), func(i int) error { return sandboxes[i].Close() }))
		})
		return result{median: middle}, err
	}
}

// each calls do for 0 to n-1, so many at once.
func each(atOnce, n int, do func(i int) error) error {
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i := range n {
		group.Go(func() error { return do(i) })
	}
	return group.Wait()
}

// inOne measures calls in one sandbox.
func inOne(client *sandbox.Client, call func(context.Context, *sandbox.Sandbox) error) func(context.Context, int) (result, error) {
	return func(ctx context.Context, runs int) (_ result, err error) {
		sb, err := client.Create(ctx)
		if err != nil {
			return result{}, err
		}
		defer func() { err = errors.Join(err, sb.Close()) }()
		middle, err := median(ctx, runs, whole(func(ctx context.Context) error { return call(ctx, sb) }))
		return result{median: middle}, err
	}
}

// withPeak also measures the most memory that this process, which is client and
// server at once, needs.
func withPeak(measure func(context.Context, int) (result, error)) func(context.Context, int) (result, error) {
	return func(ctx context.Context, runs int) (result, error) {
		debug.FreeOSMemory()
		if err := resetPeak(); err != nil {
			return result{}, err
		}
		r, err := measure(ctx, runs)
		if err != nil {
			return r, err
		}
		r.peak, err = peak()
		return r, err
	}
}

type counter int64

func (c *counter) Write(data []byte) (int, error) {
	*c += counter(len(data))
	return len(data), nil
}

func (c *counter) check(err error) error {
	if err == nil && *c != bulk {
		err = fmt.Errorf("%d bytes came", *c)
	}
	return err
}
