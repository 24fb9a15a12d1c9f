//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
)

// pauseRows are the rows about pausing.
func (b *bench) pauseRows() []row {
	large, files := &bench{sizes: sizes{bulk: 2 * b.bulk}}, b.bulk*100>>8
	of := fmt.Sprintf("%d MiB of written files", files>>20)
	return []row{
		{name: "paused and resumed, a kernel with pandas and " + large.megabytes("in use"), runs: 20, measure: b.frozen(large.bulk)},
		{
			name: "paused to the state directory, one file with " + of, runs: 5, measure: b.saved(1, files),
			floor: copied(1, files), floorName: "`cp -a` and a sync on the host",
		},
		{
			name: "the same in " + count(b.prints/100, "files"), runs: 3, measure: b.saved(b.prints/100, files),
			floor: copied(b.prints/100, files), floorName: "`cp -a` and a sync on the host",
		},
		{name: count(10*b.crowd, "sandboxes paused to files and ") + count(b.crowd, "running: memory of them all"), runs: 1, measure: b.kept},
	}
}

// frozen measures a pause that keeps the memory, together with the resumption. It also reports the
// duration of the first cell after the resumption.
func (b *bench) frozen(size int64) measurement {
	return func(ctx context.Context, runs int) (r result, err error) {
		err = b.with(ctx, func(sb *sandbox.Sandbox) error {
			if _, err := sb.RunCode(ctx, fmt.Sprintf("import pandas; kept = b'x' * %d", size), nil); err != nil {
				return err
			}
			var after time.Duration
			r, err = repeat(ctx, runs, func(ctx context.Context) (time.Duration, error) {
				start := time.Now()
				if err := errors.Join(sb.Pause(ctx, nil), sb.Resume(ctx, nil)); err != nil {
					return 0, err
				}
				took := time.Since(start)
				err := onePlusOne(ctx, sb)
				after += time.Since(start) - took
				return took, err
			})
			r.notes = []string{"the first cell after it " + format(after/time.Duration(runs+1))}
			return err
		})
		return r, err
	}
}

// keeping starts a cloud with a state directory, calls do with a client of the cloud, and then ends
// the cloud and removes the directory.
func keeping(ctx context.Context, do func(*sandbox.Client) error, more ...local.Option) (err error) {
	state, err := os.MkdirTemp("", "e2bctl-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(state)) }()
	cloud, err := local.Start(ctx, append(more, local.WithStateDir(state))...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cloud.Close()) }()
	client, err := sandbox.NewClient(cloud.Option())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	return do(client)
}

// write returns a command line that writes the given number of files, with size bytes in total.
func write(files int, size int64) string {
	return fmt.Sprintf("mkdir -p saved && cd saved && head -c %d /dev/zero | split -a 6 -b %d - part-", size, max(1, size/int64(files)))
}

// saved measures a pause that copies files.
func (b *bench) saved(files int, size int64) measurement {
	return func(ctx context.Context, runs int) (r result, err error) {
		err = keeping(ctx, func(client *sandbox.Client) error {
			other := *b
			other.client = client
			return other.with(ctx, func(sb *sandbox.Sandbox) error {
				if _, err := sb.Commands.Run(ctx, write(files, size), nil); err != nil {
					return err
				}
				r, err = repeat(ctx, runs, func(ctx context.Context) (time.Duration, error) {
					start := time.Now()
					err := sb.Pause(ctx, nil)
					return time.Since(start), errors.Join(err, sb.Resume(ctx, nil))
				})
				return err
			})
		})
		return r, err
	}
}

// copied measures the floor of [bench.saved]: a copy of the same files.
func copied(files int, size int64) measurement {
	return func(ctx context.Context, runs int) (_ result, err error) {
		dir, err := os.MkdirTemp("", "e2bctl-bench-")
		if err != nil {
			return result{}, err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		make := exec.CommandContext(ctx, "/bin/bash", "-c", write(files, size))
		make.Dir = dir
		if err := make.Run(); err != nil {
			return result{}, err
		}
		to := filepath.Join(dir, "copy")
		return repeat(ctx, runs, func(ctx context.Context) (time.Duration, error) {
			start := time.Now()
			if err := exec.CommandContext(ctx, "cp", "-a", filepath.Join(dir, "saved"), to).Run(); err != nil {
				return 0, err
			}
			root, err := os.Open(to)
			if err != nil {
				return 0, err
			}
			err = unix.Syncfs(int(root.Fd()))
			took := time.Since(start)
			return took, errors.Join(err, root.Close(), os.RemoveAll(to))
		})
	}
}

// kept measures the memory of a cloud with b.crowd running sandboxes and ten times as many paused
// sandboxes.
func (b *bench) kept(ctx context.Context, _ int) (r result, err error) {
	// The Python from which a cloud starts kernels loads pandas in the background. Until that
	// is done, it has less memory, in both clouds.
	if err := b.with(ctx, func(sb *sandbox.Sandbox) error { return onePlusOneInPandas(ctx, sb) }); err != nil {
		return r, err
	}
	debug.FreeOSMemory()
	before, err := inAll()
	if err != nil {
		return r, err
	}
	err = keeping(ctx, func(client *sandbox.Client) error {
		paused := errors.Join(each(8, 10*b.crowd, func(int) error {
			sb, err := client.Create(ctx)
			if err != nil {
				return err
			}
			return errors.Join(sb.Pause(ctx, &sandbox.PauseParams{Mode: sandbox.PauseFilesystem}), sb.Detach())
		})...)
		if paused != nil {
			return paused
		}
		sandboxes := make([]*sandbox.Sandbox, b.crowd)
		created := errors.Join(each(8, b.crowd, func(i int) (err error) {
			sandboxes[i], err = client.Create(ctx)
			return err
		})...)
		debug.FreeOSMemory()
		after, err := inAll()
		r.size = after - before
		return errors.Join(created, err, closeAll(sandboxes))
	})
	return r, err
}
