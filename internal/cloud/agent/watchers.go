//go:build linux

package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/e2bctl/e2bctl/internal/gen/filesystem"
)

const (
	maxWatchers = 64
	// maxEvents is how many events a watcher keeps until they are asked for.
	maxEvents = 64 << 10
)

var (
	errTooManyWatchers = fmt.Errorf("too many watchers: the bound is %d", maxWatchers)
	errTooManyEvents   = fmt.Errorf("more than %d events were not asked for: some are lost", maxEvents)
)

// watchers is every watch there is, streamed or polled.
type watchers struct {
	waits  sync.WaitGroup
	closed chan struct{}

	mu     sync.Mutex
	count  int
	polled map[string]*polled
}

// polled keeps the events of a watch for a client that asks.
type polled struct {
	stop context.CancelFunc

	mu     sync.Mutex
	events []*filesystem.FilesystemEvent
	err    error
}

func newWatchers() *watchers {
	return &watchers{closed: make(chan struct{}), polled: make(map[string]*polled)}
}

// enter counts a watch in; its owner calls leave.
func (ws *watchers) enter() error {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	select {
	case <-ws.closed:
		return connect.NewError(connect.CodeUnavailable, errClosed)
	default:
	}
	if ws.count >= maxWatchers {
		return connect.NewError(connect.CodeResourceExhausted, errTooManyWatchers)
	}
	ws.count++
	ws.waits.Add(1)
	return nil
}

func (ws *watchers) leave() {
	ws.mu.Lock()
	ws.count--
	ws.mu.Unlock()
	ws.waits.Done()
}

func (ws *watchers) close() error {
	ws.mu.Lock()
	select {
	case <-ws.closed:
	default:
		close(ws.closed)
	}
	ws.mu.Unlock()
	ws.waits.Wait()
	return nil
}

// run hands events to emit until ctx ends or something fails. idle is called when
// nothing happened for an interval; zero is never.
func (ws *watchers) run(ctx context.Context, w *watch, interval time.Duration, emit func([]*filesystem.FilesystemEvent) error, idle func() error) error {
	var quiet <-chan time.Time
	var timer *time.Timer
	if interval > 0 {
		timer = time.NewTimer(interval)
		defer timer.Stop()
		quiet = timer.C
	}
	for {
		var err error
		select {
		case event, ok := <-w.notify.Events:
			if !ok {
				return connect.NewError(connect.CodeUnavailable, errClosed)
			}
			var events []*filesystem.FilesystemEvent
			events, err = w.handle(event)
			if err == nil {
				err = emit(events)
			} else {
				err = errors.Join(emit(events), connect.NewError(connect.CodeResourceExhausted, err))
			}
		case failure := <-w.notify.Errors:
			return connect.NewError(connect.CodeInternal, fmt.Errorf("watcher error: %w", failure))
		case <-quiet:
			err = idle()
		case <-ctx.Done():
			return contextFailure(ctx)
		case <-ws.closed:
			return connect.NewError(connect.CodeUnavailable, errClosed)
		}
		if err != nil {
			return err
		}
		if timer != nil {
			timer.Reset(interval)
		}
	}
}

// WatchDir streams what changes in a directory.
func (s *filesystemService) WatchDir(ctx context.Context, req *connect.Request[filesystem.WatchDirRequest], stream *connect.ServerStream[filesystem.WatchDirResponse]) error {
	path, err := s.resolve(ctx, req.Msg.GetPath())
	if err != nil {
		return err
	}
	ws := s.agent.watchers
	if err := ws.enter(); err != nil {
		return err
	}
	defer ws.leave()
	w, err := s.agent.newWatch(path, req.Msg)
	if err != nil {
		return err
	}
	defer func() { _ = w.close() }() // nothing is left to lose
	if err := stream.Send(&filesystem.WatchDirResponse{Event: &filesystem.WatchDirResponse_Start{Start: &filesystem.WatchDirResponse_StartEvent{}}}); err != nil {
		return err
	}
	return ws.run(ctx, w, keepaliveInterval(req.Header()), func(events []*filesystem.FilesystemEvent) error {
		for _, event := range events {
			if err := stream.Send(&filesystem.WatchDirResponse{Event: &filesystem.WatchDirResponse_Filesystem{Filesystem: event}}); err != nil {
				return err
			}
		}
		return nil
	}, func() error {
		return stream.Send(&filesystem.WatchDirResponse{Event: &filesystem.WatchDirResponse_Keepalive{Keepalive: &filesystem.WatchDirResponse_KeepAlive{}}})
	})
}

// CreateWatcher keeps what changes in a directory until it is asked for.
func (s *filesystemService) CreateWatcher(ctx context.Context, req *connect.Request[filesystem.CreateWatcherRequest]) (*connect.Response[filesystem.CreateWatcherResponse], error) {
	path, err := s.resolve(ctx, req.Msg.GetPath())
	if err != nil {
		return nil, err
	}
	ws := s.agent.watchers
	if err := ws.enter(); err != nil {
		return nil, err
	}
	w, err := s.agent.newWatch(path, req.Msg)
	if err != nil {
		ws.leave()
		return nil, err
	}
	id := "w" + rand.Text()[:20]
	// It outlives the request.
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	p := &polled{stop: stop}
	ws.mu.Lock()
	ws.polled[id] = p
	ws.mu.Unlock()
	go func() {
		defer ws.leave()
		defer stop()
		err := ws.run(ctx, w, 0, p.keep, nil)
		p.fail(errors.Join(err, w.close()))
		// It counts, with what it kept, until it is removed.
		select {
		case <-ctx.Done():
		case <-ws.closed:
		}
	}()
	return connect.NewResponse(&filesystem.CreateWatcherResponse{WatcherId: id}), nil
}

func (p *polled) keep(events []*filesystem.FilesystemEvent) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.events)+len(events) > maxEvents {
		return connect.NewError(connect.CodeResourceExhausted, errTooManyEvents)
	}
	p.events = append(p.events, events...)
	return nil
}

func (p *polled) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
}

// take returns what came, and after that why no more will.
func (p *polled) take() ([]*filesystem.FilesystemEvent, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.events) == 0 && p.err != nil {
		return nil, p.err
	}
	events := p.events
	p.events = nil
	return events, nil
}

// GetWatcherEvents takes the events that came since the last call.
func (s *filesystemService) GetWatcherEvents(_ context.Context, req *connect.Request[filesystem.GetWatcherEventsRequest]) (*connect.Response[filesystem.GetWatcherEventsResponse], error) {
	id := req.Msg.GetWatcherId()
	ws := s.agent.watchers
	ws.mu.Lock()
	p, ok := ws.polled[id]
	ws.mu.Unlock()
	if !ok {
		return nil, noWatcher(id)
	}
	events, err := p.take()
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&filesystem.GetWatcherEventsResponse{Events: events}), nil
}

// RemoveWatcher ends a watcher and drops its events.
func (s *filesystemService) RemoveWatcher(_ context.Context, req *connect.Request[filesystem.RemoveWatcherRequest]) (*connect.Response[filesystem.RemoveWatcherResponse], error) {
	id := req.Msg.GetWatcherId()
	ws := s.agent.watchers
	ws.mu.Lock()
	p, ok := ws.polled[id]
	delete(ws.polled, id)
	ws.mu.Unlock()
	if !ok {
		return nil, noWatcher(id)
	}
	p.stop()
	return connect.NewResponse(&filesystem.RemoveWatcherResponse{}), nil
}

func noWatcher(id string) error {
	return connect.NewError(connect.CodeNotFound, fmt.Errorf("watcher with id %s not found", bounded(id)))
}
