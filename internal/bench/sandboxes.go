//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/e2bctl/e2bctl/sandbox"
)

// call is a function that performs one measured operation in a sandbox.
type call func(context.Context, *sandbox.Sandbox) error

func runTrue(ctx context.Context, sb *sandbox.Sandbox) error {
	_, err := sb.Commands.Run(ctx, "true", nil)
	return err
}

// created measures the time from the request for a sandbox to the end of its first call. It counts
// neither the pause before the request nor closing the sandbox.
func (b *bench) created(pause time.Duration, do call) measurement {
	return func(ctx context.Context, runs int) (result, error) {
		return repeat(ctx, runs, func(ctx context.Context) (time.Duration, error) {
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return 0, ctx.Err()
			}
			start := time.Now()
			sb, err := b.client.Create(ctx, b.kind...)
			if err != nil {
				return 0, err
			}
			err = do(ctx, sb)
			took := time.Since(start)
			return took, errors.Join(err, sb.Close())
		})
	}
}

// of returns b for sandboxes with more options.
func (b *bench) of(options ...sandbox.CreateOption) *bench {
	other := *b
	other.kind = slices.Concat(b.kind, options)
	return &other
}

// inOne measures calls in one sandbox.
func (b *bench) inOne(do call) measurement {
	return func(ctx context.Context, runs int) (r result, err error) {
		err = b.with(ctx, func(sb *sandbox.Sandbox) (err error) {
			r, err = repeat(ctx, runs, whole(func(ctx context.Context) error { return do(ctx, sb) }))
			return err
		})
		return r, err
	}
}

// with creates a sandbox, calls do with it, and closes it.
func (b *bench) with(ctx context.Context, do func(*sandbox.Sandbox) error) error {
	sb, err := b.client.Create(ctx, b.kind...)
	if err != nil {
		return err
	}
	return errors.Join(do(sb), sb.Close())
}

// crowded measures the time until a call has ended in each of many sandboxes. It creates atOnce
// sandboxes at the same time. All sandboxes exist until the measured time ends. crowded does not
// count the time to close them.
func (b *bench) crowded(atOnce int, do call) measurement {
	return func(ctx context.Context, runs int) (result, error) {
		var r result
		for range runs {
			debug.FreeOSMemory() // the memory that other rows left here does not belong to the sandboxes
			sandboxes := make([]*sandbox.Sandbox, b.crowd)
			start := time.Now()
			failed := tally(each(atOnce, b.crowd, func(i int) (err error) {
				if sandboxes[i], err = b.client.Create(ctx); err != nil {
					return err
				}
				return do(ctx, sandboxes[i])
			}))
			r.took = append(r.took, time.Since(start))
			memory, err := inAll()
			r.notes = []string{failed, fmt.Sprintf("%d MB in all", memory/1e6)}
			if err := errors.Join(err, closeAll(sandboxes)); err != nil {
				return r, err
			}
		}
		slices.Sort(r.took)
		return r, nil
	}
}

// idle measures the memory of the first process of a sandbox that does nothing.
func (b *bench) idle(ctx context.Context, _ int) (result, error) {
	sandboxes := make([]*sandbox.Sandbox, b.crowd/5+1)
	err := errors.Join(each(1, len(sandboxes), func(i int) (err error) {
		sandboxes[i], err = b.client.Create(ctx)
		return err
	})...)
	if err != nil {
		return result{}, errors.Join(err, closeAll(sandboxes))
	}
	var owns, shares int64
	_, daemons, err := family()
	for _, pid := range daemons {
		own, share, readErr := usage(pid)
		owns, shares, err = owns+own, shares+share, errors.Join(err, readErr)
	}
	if err = errors.Join(err, closeAll(sandboxes)); err == nil && len(daemons) == 0 {
		err = errors.New("this isolation has no first process of a sandbox")
	}
	if err != nil {
		return result{}, err
	}
	n := int64(len(daemons))
	return result{size: owns / n, notes: []string{fmt.Sprintf("%.1f MB with its share of the common memory", float64(shares/n)/1e6)}}, nil
}

func closeAll(sandboxes []*sandbox.Sandbox) error {
	return errors.Join(each(len(sandboxes), len(sandboxes), func(i int) error { return sandboxes[i].Close() })...)
}

// stormed measures commands that all run at the same time, distributed over several sandboxes. It
// does not count creating the sandboxes.
func (b *bench) stormed(ctx context.Context, _ int) (r result, err error) {
	sandboxes := make([]*sandbox.Sandbox, max(1, b.crowd/2))
	defer func() { err = errors.Join(err, closeAll(sandboxes)) }()
	if err := errors.Join(each(1, len(sandboxes), func(i int) (err error) {
		sandboxes[i], err = b.client.Create(ctx)
		return err
	})...); err != nil {
		return result{}, err
	}
	return b.storms(func(i int) error { return echo(ctx, sandboxes[i%len(sandboxes)]) })
}

// stormOnHost measures the same number of processes on the host. This is the lower bound for
// [bench.stormed].
func (b *bench) stormOnHost(ctx context.Context, _ int) (result, error) {
	run := bare("/bin/bash", "-c", "echo hello")
	return b.storms(func(int) error { return run(ctx) })
}

// storms makes many calls at the same time, and measures the time until the last call has ended.
func (b *bench) storms(do func(i int) error) (result, error) {
	took := make([]time.Duration, b.storm)
	start := time.Now()
	failed := tally(each(b.storm, b.storm, func(i int) error {
		defer func() { took[i] = time.Since(start) }()
		return do(i)
	}))
	all := time.Since(start)
	slices.Sort(took)
	return result{took: []time.Duration{all}, notes: []string{"half of them in " + format(took[b.storm/2]), failed}}, nil
}

// each calls do for 0 to n-1 and returns the errors. It makes atOnce calls at the same time.
func each(atOnce, n int, do func(i int) error) []error {
	var group errgroup.Group
	var mu sync.Mutex
	var errs []error
	group.SetLimit(atOnce)
	for i := range n {
		group.Go(func() error {
			if err := do(i); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			}
			return nil
		})
	}
	_ = group.Wait() // the errors are in errs
	return errs
}

// tally returns a text with the number of failures, and prints the first failure to stderr.
func tally(errs []error) string {
	if len(errs) > 0 {
		fmt.Fprintln(os.Stderr, "bench: the first of", len(errs), "failures:", errs[0])
	}
	return strconv.Itoa(len(errs)) + " failed"
}

func count(n int, what string) string {
	digits := strconv.Itoa(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits + " " + what
}

// bare returns a function that runs a program on the host, without a sandbox.
func bare(name string, arguments ...string) func(context.Context) error {
	return func(ctx context.Context) error { return exec.CommandContext(ctx, name, arguments...).Run() }
}

// namespaces runs a program in new namespaces of all kinds that a sandbox uses, without any other
// preparation.
var namespaces = calls(func(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, "/bin/true")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET |
			syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS | syscall.CLONE_NEWCGROUP,
	}
	return cmd.Run()
})
