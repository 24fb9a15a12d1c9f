package mirror

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/e2bctl/e2bctl/sandbox"
)

// Changes are collected, and sent together when no further change has followed for the duration quiet.
// No change waits longer than mostWait.
const (
	quiet    = 10 * time.Millisecond
	mostWait = 50 * time.Millisecond
)

// Watch makes the destination equal to the source, and does so again whenever the source changes.
// After each time it calls report with the changes. Watch returns when ctx ends, the sandbox ends,
// the directory in the sandbox is gone, or a transfer fails. DryRun must not be set.
func (m *Mirror) Watch(ctx context.Context, report func([]Change) error) (err error) {
	root, err := m.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	local, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, local.Close()) }()
	if !m.Pull {
		if err := m.Sandbox.Files.MakeDir(ctx, m.Dir, &sandbox.PathParams{User: m.User}); err != nil {
			return err
		}
		m.visit = func(dir string) error {
			err := local.Add(filepath.Join(m.Local, filepath.FromSlash(dir)))
			if errors.Is(err, syscall.ENOSPC) {
				err = fmt.Errorf("this user watches as many directories as the system allows: leave some out with --exclude, or raise fs.inotify.max_user_watches: %w", err)
			}
			return err
		}
		defer func() { m.visit = nil }()
	}
	// In both directions the watch in the sandbox also reports the end of the sandbox.
	there, err := m.Sandbox.Files.Watch(ctx, m.Dir, &sandbox.WatchParams{User: m.User, Recursive: m.Pull})
	if err != nil {
		return err
	}
	changed, ended := make(chan struct{}, 1), make(chan error, 1)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		ended <- follow(ctx, there, changed)
	}()
	defer func() {
		err = errors.Join(err, there.Close())
		<-stopped
	}()
	w := &watching{m: m, local: local, ended: ended}
	if m.Pull {
		w.changed = changed
	}
	return w.run(ctx, root, report)
}

// follow sends a value to changed for each change that a watcher in the sandbox reports. It returns
// the reason for the end of the watch.
func follow(ctx context.Context, watcher *sandbox.Watcher, changed chan<- struct{}) error {
	for _, err := range watcher.Events(ctx) {
		if err != nil {
			return err
		}
		select {
		case changed <- struct{}{}:
		default: // one is waiting
		}
	}
	return context.Canceled // it was closed
}

// watching waits for changes of the source. Changes during a transfer remain in the channels, or in
// the system's queue, until the transfer is over.
type watching struct {
	m       *Mirror
	local   *fsnotify.Watcher // watches the directory of this machine; watches no directory with Pull
	changed <-chan struct{}   // receives the changes in the sandbox; nil without Pull
	ended   <-chan error
}

func (w *watching) run(ctx context.Context, root *os.Root, report func([]Change) error) error {
	for {
		changes, err := w.m.pass(ctx, root)
		switch {
		case errors.Is(err, errShrunk): // it has changed, so an event waits
		case err != nil:
			return w.reason(err)
		case len(changes) > 0:
			if err := report(changes); err != nil {
				return err
			}
		}
		if err := w.next(ctx, nil); err != nil {
			return err
		}
		// Changes of one burst are sent together.
		for most := time.Now().Add(mostWait); time.Now().Before(most); {
			err := w.next(ctx, time.After(quiet))
			if errors.Is(err, errQuiet) {
				break
			}
			if err != nil {
				return err
			}
		}
	}
}

var errQuiet = errors.New("nothing changes")

// next waits for a change of the source, or until a value arrives on timeout.
func (w *watching) next(ctx context.Context, timeout <-chan time.Time) error {
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case err := <-w.ended:
			return err
		case <-timeout:
			return errQuiet
		case <-w.changed:
			return nil
		case err := <-w.local.Errors:
			if errors.Is(err, fsnotify.ErrEventOverflow) { // something changed
				return nil
			}
			return err
		case event := <-w.local.Events:
			name, err := filepath.Rel(w.m.Local, event.Name)
			if err != nil || !w.m.here.ignored(filepath.ToSlash(name), false) {
				return err
			}
		}
	}
}

// reason returns err, the error of a transfer. If the transfer failed because the sandbox has
// ended, it returns the reason for the sandbox's end.
func (w *watching) reason(err error) error {
	select {
	case ended := <-w.ended:
		return ended
	default:
		return err
	}
}
