package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime/debug"
	"time"

	"github.com/e2bctl/e2bctl/sandbox"
)

// row is one line of the table.
type row struct {
	name      string
	runs      int
	measure   func(ctx context.Context, runs int) (string, error)
	floor     func(context.Context) (time.Duration, error)
	floorName string
}

const stdoutSize = 64 << 20

func rows(client *sandbox.Client, command string) []row {
	list := []row{
		{name: "create to first command", runs: 20, measure: created(client, runTrue)},
		{name: "create to first Python result", runs: 10, measure: created(client, onePlusOne)},
		{name: `RunCode("1+1")`, runs: 200, measure: inOne(client, onePlusOne)},
		{
			name: `Commands.Run("echo")`, runs: 100, measure: inOne(client, echo),
			floor: bare("/bin/bash", "-c", "echo hello"), floorName: "bash on the host",
		},
		{name: "64 MiB of stdout", runs: 5, measure: stdout(client)},
	}
	if command != "" {
		list = append(list, row{
			name: "e2bctl version", runs: 50,
			measure: timed(bare(command, "version")), floor: bare("/bin/true"), floorName: "/bin/true",
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

// timed prints the median of the whole of what it is given.
func timed(call func(context.Context) (time.Duration, error)) func(context.Context, int) (string, error) {
	return func(ctx context.Context, runs int) (string, error) {
		middle, err := median(ctx, runs, call)
		return format(middle), err
	}
}

// created measures from before a sandbox is created to the end of its first
// call; to close it does not count.
func created(client *sandbox.Client, call func(context.Context, *sandbox.Sandbox) error) func(context.Context, int) (string, error) {
	return timed(func(ctx context.Context) (time.Duration, error) {
		start := time.Now()
		sb, err := client.Create(ctx)
		if err != nil {
			return 0, err
		}
		err = call(ctx, sb)
		took := time.Since(start)
		return took, errors.Join(err, sb.Close())
	})
}

// inOne measures calls in one sandbox.
func inOne(client *sandbox.Client, call func(context.Context, *sandbox.Sandbox) error) func(context.Context, int) (string, error) {
	return func(ctx context.Context, runs int) (_ string, err error) {
		sb, err := client.Create(ctx)
		if err != nil {
			return "", err
		}
		defer func() { err = errors.Join(err, sb.Close()) }()
		return timed(whole(func(ctx context.Context) error { return call(ctx, sb) }))(ctx, runs)
	}
}

// stdout measures how fast a command's output comes, and the most memory that
// this process, which is client and server at once, needs for it.
func stdout(client *sandbox.Client) func(context.Context, int) (string, error) {
	return func(ctx context.Context, runs int) (_ string, err error) {
		sb, err := client.Create(ctx)
		if err != nil {
			return "", err
		}
		defer func() { err = errors.Join(err, sb.Close()) }()
		debug.FreeOSMemory()
		if err := resetPeak(); err != nil {
			return "", err
		}
		middle, err := median(ctx, runs, whole(func(ctx context.Context) error {
			var got counter
			_, err := sb.Commands.Run(ctx, fmt.Sprintf("head -c %d /dev/zero", stdoutSize), &sandbox.CommandParams{Stdout: &got})
			if err == nil && got != stdoutSize {
				err = fmt.Errorf("%d bytes came", got)
			}
			return err
		}))
		if err != nil {
			return "", err
		}
		resident, err := peak()
		return fmt.Sprintf("%.0f MB/s, peak %d MB", stdoutSize/1e6/middle.Seconds(), resident/1e6), err
	}
}

type counter int64

func (c *counter) Write(data []byte) (int, error) {
	*c += counter(len(data))
	return len(data), nil
}

// bare runs a program of the host.
func bare(name string, arguments ...string) func(context.Context) (time.Duration, error) {
	return whole(func(ctx context.Context) error { return exec.CommandContext(ctx, name, arguments...).Run() })
}
