//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
)

// commandRows returns the rows about e2bctl. In the rows about copies, each copy has a new
// destination.
func (b *bench) commandRows() []row {
	large, tar := *b, copyOnHost(smallFiles(b.records))
	large.bulk *= 4 // so much that the start of the command does not count
	const tarName = "a pipe of `tar` on the host"
	return []row{
		{
			name: "`e2bctl version`", runs: 50, measure: calls(bare(b.command, "version")),
			floor: calls(bare("/bin/true")), floorName: "`/bin/true`", elsewhere: "267 ms [7]",
		},
		{
			name: "`e2bctl --help`", runs: 50, measure: calls(bare(b.command, "--help")),
			floor: calls(bare("/bin/true")), floorName: "`/bin/true`",
		},
		{
			name: "`e2bctl ls` of " + count(b.records, "sandboxes"), runs: 5, measure: b.listedByCommand,
			floor: b.counted(listed), floorName: "the list in process",
		},
		{
			name: "`e2bctl exec`: `echo`", runs: 50, measure: b.execByCommand,
			floor: b.inOne(execEcho), floorName: "`Commands.Exec` in process",
		},
		{
			name: "`e2bctl cp`: " + large.megabytes("uploaded to a file"), runs: 2,
			measure: large.withRoom((*bench).fileCopy), floor: large.uploadToFile, floorName: overHTTP + ", to a file in memory",
		},
		{
			name: "`e2bctl cp -r` of " + count(b.records, "small files"), runs: 2,
			measure: b.commandCopy(smallFiles(b.records), "cp", "-r"), floor: tar, floorName: tarName,
		},
		{
			name: "`e2bctl sync` of " + count(b.records, "small files"), runs: 2,
			measure: b.commandCopy(smallFiles(b.records), "sync"), floor: tar, floorName: tarName,
		},
		{
			name: "`e2bctl sync --watch`: from a write to the file inside", runs: 30, measure: b.synced,
			floor: watchOnHost, floorName: "fsnotify on the host",
		},
	}
}

// inCloud returns a command that runs e2bctl with the given arguments in the benchmark's cloud.
func (b *bench) inCloud(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, b.command, args...)
	cmd.Env = append(os.Environ(), b.cloud.Env()...)
	return cmd
}

// execByCommand measures commands that e2bctl exec runs in one sandbox.
func (b *bench) execByCommand(ctx context.Context, runs int) (result, error) {
	return b.inOne(func(ctx context.Context, sb *sandbox.Sandbox) error {
		out, err := b.inCloud(ctx, "exec", sb.ID(), "--", "echo", "hello").Output()
		if err == nil && string(out) != "hello\n" {
			err = fmt.Errorf("echo printed %q", out)
		}
		return err
	})(ctx, runs)
}

// oneFile makes a file that the command copies, and returns its path.
func (b *bench) oneFile(dir string) (string, error) {
	name := filepath.Join(dir, "bulk")
	return name, errors.Join(os.WriteFile(name, nil, 0o600), os.Truncate(name, b.bulk))
}

// smallFiles returns a function that makes a directory with n files, and returns its path.
func smallFiles(n int) func(dir string) (string, error) {
	return func(dir string) (string, error) {
		tree := filepath.Join(dir, "tree")
		for i := range n {
			below := filepath.Join(tree, strconv.Itoa(i%100))
			if err := os.MkdirAll(below, 0o700); err != nil {
				return "", err
			}
			if err := os.WriteFile(filepath.Join(below, strconv.Itoa(i)), []byte(strconv.Itoa(i)), 0o600); err != nil {
				return "", err
			}
		}
		return tree, nil
	}
}

// withSource measures copies of the files that prepare creates in a temporary directory.
func withSource(prepare func(dir string) (string, error), measure func(dir, source string) (result, error)) (r result, err error) {
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	source, err := prepare(dir)
	if err != nil {
		return result{}, err
	}
	return measure(dir, source)
}

// withRoom measures in a cloud whose sandboxes have room for a file of bulk bytes.
func (b *bench) withRoom(measure func(*bench) measurement) measurement {
	return func(ctx context.Context, runs int) (_ result, err error) {
		cloud, err := local.Start(ctx, local.WithResources(local.Resources{MemoryBytes: 2<<30 + 2*b.bulk, DiskBytes: 1<<30 + b.bulk}))
		if err != nil {
			return result{}, err
		}
		defer func() { err = errors.Join(err, cloud.Close()) }()
		client, err := sandbox.NewClient(cloud.Option())
		if err != nil {
			return result{}, err
		}
		defer func() { err = errors.Join(err, client.Close()) }()
		other := *b
		other.cloud, other.client = cloud, client
		return measure(&other)(ctx, runs)
	}
}

func (b *bench) fileCopy() measurement { return b.commandCopy(b.oneFile, "cp") }

// commandCopy measures a run of e2bctl with args that copies the files that prepare creates. It
// measures the time and the largest memory of that process.
func (b *bench) commandCopy(prepare func(dir string) (string, error), args ...string) measurement {
	return func(ctx context.Context, runs int) (result, error) {
		return withSource(prepare, func(_, source string) (r result, err error) {
			var most int64
			err = b.with(ctx, func(sb *sandbox.Sandbox) (err error) {
				n := 0
				r, err = repeat(ctx, runs, func(ctx context.Context) (time.Duration, error) {
					n++
					target := "copy" + strconv.Itoa(n)
					start := time.Now()
					had, err := peakOf(b.inCloud(ctx, append(args, "-q", source, sb.ID()+":"+target)...))
					took := time.Since(start)
					most = max(most, had)
					return took, errors.Join(err, sb.Files.Remove(ctx, target, nil))
				})
				return err
			})
			info, statErr := os.Stat(source)
			if err = errors.Join(err, statErr); err == nil && info.Mode().IsRegular() {
				r.bytes = info.Size()
			}
			r.notes = append(r.notes, fmt.Sprintf("e2bctl %d MB", most/1e6))
			return r, err
		})
	}
}

// peakOf runs a process and returns its peak memory, read shortly before its end. It does not use
// the peak that the kernel reports to the parent at the end, because that also includes memory of
// the parent.
func peakOf(cmd *exec.Cmd) (most int64, err error) {
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for look := time.Tick(5 * time.Millisecond); ; {
		select {
		case err := <-ended:
			if err != nil {
				err = fmt.Errorf("%v: %w: %.500s", cmd.Args, err, &stderr)
			}
			return most, err
		case <-look:
			if had, err := peak(strconv.Itoa(cmd.Process.Pid)); err == nil { // it may have ended
				most = had
			}
		}
	}
}

func copyOnHost(prepare func(dir string) (string, error)) measurement {
	return func(ctx context.Context, runs int) (result, error) {
		return withSource(prepare, func(dir, source string) (result, error) {
			n := 0
			return calls(func(ctx context.Context) error {
				n++
				target := filepath.Join(dir, "copy"+strconv.Itoa(n))
				const line = `mkdir "$1" && tar -c -C "${0%/*}" -- "${0##*/}" | tar -x -C "$1"`
				return exec.CommandContext(ctx, "/bin/sh", "-c", line, source, target).Run()
			})(ctx, runs)
		})
	}
}
