//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/fsnotify/fsnotify"

	"github.com/e2bctl/e2bctl/sandbox"
)

// watched measures the time from writing a file until a watcher reports the file.
func (b *bench) watched(ctx context.Context, runs int) (r result, err error) {
	err = b.with(ctx, func(sb *sandbox.Sandbox) error {
		if err := sb.Files.MakeDir(ctx, "watched", nil); err != nil {
			return err
		}
		watcher, err := sb.Files.Watch(ctx, "watched", nil)
		if err != nil {
			return err
		}
		next, stop := iter.Pull2(watcher.Events(ctx))
		r, err = watches(ctx, runs,
			func(name string) error { return sb.Files.Write(ctx, "watched/"+name, []byte("x"), nil) },
			func() (string, error) {
				event, err, ok := next()
				if !ok {
					err = errors.New("the watch ended")
				}
				return event.Name, err
			})
		stop()
		return errors.Join(err, watcher.Close())
	})
	return r, err
}

// synced measures the time from writing a file on the host until `e2bctl sync --watch` has copied
// it to a sandbox and a watcher in that sandbox has reported it.
func (b *bench) synced(ctx context.Context, runs int) (r result, err error) {
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	err = b.with(ctx, func(sb *sandbox.Sandbox) (err error) {
		if err := sb.Files.MakeDir(ctx, "synced", nil); err != nil {
			return err
		}
		end, err := b.startSync(ctx, dir, sb.ID()+":synced")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, end()) }()
		watcher, err := sb.Files.Watch(ctx, "synced", nil)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, watcher.Close()) }()
		next, stop := iter.Pull2(watcher.Events(ctx))
		defer stop()
		r, err = watches(ctx, runs,
			func(name string) error { return os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600) },
			func() (string, error) {
				event, err, ok := next()
				if !ok {
					err = errors.New("the watch ended")
				}
				return event.Name, err
			})
		return err
	})
	return r, err
}

// startSync starts `e2bctl sync --watch`, and returns as soon as that process watches dir. end ends
// the process.
func (b *bench) startSync(ctx context.Context, dir, to string) (end func() error, err error) {
	cmd := exec.CommandContext(ctx, b.command, "sync", "--watch", dir, to)
	cmd.Env = append(os.Environ(), b.cloud.Env()...)
	notes, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	if line, err := bufio.NewReader(notes).ReadString('\n'); err != nil {
		return nil, errors.Join(fmt.Errorf("e2bctl sync --watch: %w: %q", err, line), cmd.Process.Kill(), cmd.Wait())
	}
	return func() error {
		err := cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
		return err
	}, nil
}

func watchOnHost(ctx context.Context, runs int) (_ result, err error) {
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, watcher.Close()) }()
	if err := watcher.Add(dir); err != nil {
		return result{}, err
	}
	return watches(ctx, runs,
		func(name string) error { return os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600) },
		func() (string, error) {
			select {
			case event := <-watcher.Events:
				return filepath.Base(event.Name), nil
			case err := <-watcher.Errors:
				return "", err
			}
		})
}

// watches calls write with a new file name in each run, and measures the time until next returns
// that name. next returns the name in the next event.
func watches(ctx context.Context, runs int, write func(name string) error, next func() (string, error)) (result, error) {
	n := 0
	return calls(func(context.Context) error {
		n++
		file := strconv.Itoa(n)
		if err := write(file); err != nil {
			return err
		}
		for {
			if name, err := next(); err != nil || name == file {
				return err
			}
		}
	})(ctx, runs)
}
