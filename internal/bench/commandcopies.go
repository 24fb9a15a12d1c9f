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

	"github.com/e2bctl/e2bctl/sandbox"
)

// commandRows are the rows of the copies that the command makes, each to a new place.
func (b *bench) commandRows() []row {
	return []row{
		{
			name: "`e2bctl cp`: " + b.megabytes("uploaded to a file"), runs: 2,
			measure: b.commandCopy(b.oneFile, "cp"), floor: b.upload, floorName: "`net/http`, to nowhere",
		},
		{
			name: "`e2bctl sync` of " + count(b.records, "small files"), runs: 2,
			measure: b.commandCopy(smallFiles(b.records), "sync"), floor: copyOnHost(smallFiles(b.records)), floorName: "a pipe of `tar` on the host",
		},
		{
			name: "`e2bctl sync --watch`: from a write to the file inside", runs: 30, measure: b.synced,
			floor: watchOnHost, floorName: "fsnotify on the host",
		},
	}
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

// withSource measures copies of the files that prepare makes in a directory.
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

func (b *bench) commandCopy(prepare func(dir string) (string, error), name string) measurement {
	return func(ctx context.Context, runs int) (result, error) {
		return withSource(prepare, func(_, source string) (r result, err error) {
			err = b.with(ctx, func(sb *sandbox.Sandbox) (err error) {
				n := 0
				r, err = calls(func(ctx context.Context) error {
					n++
					cmd := exec.CommandContext(ctx, b.command, name, "-q", source, sb.ID()+":copy"+strconv.Itoa(n))
					cmd.Env = append(os.Environ(), b.cloud.Env()...)
					if out, err := cmd.CombinedOutput(); err != nil {
						return fmt.Errorf("e2bctl %s: %w: %.500s", name, err, out)
					}
					return nil
				})(ctx, runs)
				return err
			})
			return r, err
		})
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
