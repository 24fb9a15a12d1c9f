//go:build linux

package main

import (
	"context"
	"errors"
	"iter"
	"os"
	"path/filepath"
	"strconv"

	"github.com/fsnotify/fsnotify"

	"github.com/e2bctl/e2bctl/sandbox"
)

// watched measures the time from writing a file until a watch reports it.
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

// watches writes one new file per run; next returns the name in the next event.
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
