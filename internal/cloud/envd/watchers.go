//go:build linux

package envd

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/e2bctl/e2bctl/internal/gen/filesystem"
)

const (
	maxWatchers = 64
	// maxKept bounds the bytes of events that all watchers together keep for clients.
	maxKept = 16 << 20
	// abandoned is the time without a poll after which a watcher may be removed to make room
	// for another watcher.
	abandoned = 10 * time.Minute
)

var (
	errTooManyWatchers = fmt.Errorf("too many watchers: the bound is %d", maxWatchers)
	errTooManyEvents   = fmt.Errorf("more than %d bytes of events were not fetched in time: some are lost", maxKept)
)

// watchers contains every watch, streamed or polled.
type watchers struct {
	waits sync.WaitGroup
	life  context.Context //nolint:containedctx // life of polled watches, which outlive requests
	end   context.CancelFunc

	mu     sync.Mutex
	count  int
	polled map[string]*polled

	kept atomic.Int64 // bytes of the events that all polled watches keep
}

// polled keeps the events of a watch until a client fetches them.
type polled struct {
	all   *watchers
	watch *watch
	stop  context.CancelFunc

	mu     sync.Mutex
	events []*filesystem.FilesystemEvent
	size   int64 // bytes of the events, as counted in kept
	asked  time.Time
	err    error
}

func newWatchers() *watchers {
	life, end := context.WithCancel(context.Background())
	return &watchers{life: life, end: end, polled: make(map[string]*polled)}
}

// enter reserves a place for a watch. A streamed watch releases the place with leave, and a polled
// watch with drop.
func (ws *watchers) enter() error {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.life.Err() != nil {
		return connect.NewError(connect.CodeUnavailable, errClosed)
	}
	if ws.count >= maxWatchers && !ws.evict() {
		return connect.NewError(connect.CodeResourceExhausted, errTooManyWatchers)
	}
	ws.count++
	ws.waits.Add(1)
	return nil
}

// evict removes the watcher with the oldest last poll, if that poll is older than abandoned. The
// client of that watcher has probably gone. There is no other sign that a client has gone.
func (ws *watchers) evict() bool {
	var oldest string
	since := time.Now().Add(-abandoned)
	for id, p := range ws.polled {
		p.mu.Lock()
		if p.asked.Before(since) {
			oldest, since = id, p.asked
		}
		p.mu.Unlock()
	}
	if oldest == "" {
		return false
	}
	ws.drop(oldest)
	return true
}

// drop ends a polled watcher and frees its place. The caller must hold mu.
func (ws *watchers) drop(id string) {
	p := ws.polled[id]
	delete(ws.polled, id)
	ws.count--
	p.stop()
}

func (ws *watchers) leave() {
	ws.mu.Lock()
	ws.count--
	ws.mu.Unlock()
	ws.waits.Done()
}

func (ws *watchers) close() error {
	ws.mu.Lock() // every watch has either entered by now, or sees the end
	ws.end()
	ws.mu.Unlock()
	ws.waits.Wait()
	return nil
}

// run passes events to emit until ctx ends or an error occurs. It calls idle whenever there was no
// event for interval. If interval is 0, run never calls idle.
func (ws *watchers) run(ctx context.Context, w *watch, interval time.Duration, emit func(*filesystem.FilesystemEvent) error, idle func() error) error {
	defer context.AfterFunc(ctx, w.notify.interrupt)()
	defer context.AfterFunc(ws.life, w.notify.interrupt)()
	for {
		if err := w.notify.setDeadline(interval); err != nil {
			return connect.NewError(connect.CodeInternal, fmt.Errorf("watcher error: %w", err))
		}
		// From here on, a stop interrupts the wait.
		switch {
		case ws.life.Err() != nil:
			return connect.NewError(connect.CodeUnavailable, errClosed)
		case ctx.Err() != nil:
			return contextFailure(ctx)
		}
		var failed error
		err := w.notify.wait(func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			var n int
			n, failed = w.take(emit)
			return n > 0 || failed != nil
		})
		switch {
		case failed != nil:
			return failed
		case err == nil:
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return connect.NewError(connect.CodeInternal, fmt.Errorf("watcher error: %w", err))
		case interval > 0 && ctx.Err() == nil && ws.life.Err() == nil:
			if err := idle(); err != nil {
				return err
			}
		}
	}
}

// WatchDir streams the changes in a directory.
func (s *filesystemService) WatchDir(ctx context.Context, req *connect.Request[filesystem.WatchDirRequest], stream *connect.ServerStream[filesystem.WatchDirResponse]) error {
	path, err := s.resolve(ctx, req.Msg.GetPath())
	if err != nil {
		return err
	}
	ws := s.server.watchers
	if err := ws.enter(); err != nil {
		return err
	}
	defer ws.leave()
	w, err := s.server.newWatch(path, req.Msg)
	if err != nil {
		return err
	}
	defer func() { _ = w.close() }() // no data can be lost
	if err := stream.Send(&filesystem.WatchDirResponse{Event: &filesystem.WatchDirResponse_Start{Start: &filesystem.WatchDirResponse_StartEvent{}}}); err != nil {
		return err
	}
	return ws.run(ctx, w, keepaliveInterval(req.Header()), func(event *filesystem.FilesystemEvent) error {
		return stream.Send(&filesystem.WatchDirResponse{Event: &filesystem.WatchDirResponse_Filesystem{Filesystem: event}})
	}, func() error {
		return stream.Send(&filesystem.WatchDirResponse{Event: &filesystem.WatchDirResponse_Keepalive{Keepalive: &filesystem.WatchDirResponse_KeepAlive{}}})
	})
}

// CreateWatcher starts a watcher. The watcher keeps the changes in a directory until the client
// fetches them.
func (s *filesystemService) CreateWatcher(ctx context.Context, req *connect.Request[filesystem.CreateWatcherRequest]) (*connect.Response[filesystem.CreateWatcherResponse], error) {
	path, err := s.resolve(ctx, req.Msg.GetPath())
	if err != nil {
		return nil, err
	}
	ws := s.server.watchers
	if err := ws.enter(); err != nil {
		return nil, err
	}
	w, err := s.server.newWatch(path, req.Msg)
	if err != nil {
		ws.leave()
		return nil, err
	}
	id := "w" + rand.Text()[:20]
	// The watch must outlive the request.
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	p := &polled{all: ws, watch: w, stop: stop, asked: time.Now()}
	ws.mu.Lock()
	ws.polled[id] = p
	ws.mu.Unlock()
	go func() {
		defer ws.waits.Done()
		defer stop()
		err := ws.run(ctx, w, 0, p.keep, nil)
		p.fail(errors.Join(err, w.close()))
		// An ended watcher keeps its events and its place until it is removed.
		select {
		case <-ctx.Done():
		case <-ws.life.Done():
		}
		p.forget()
	}()
	return connect.NewResponse(&filesystem.CreateWatcherResponse{WatcherId: id}), nil
}

func (p *polled) keep(event *filesystem.FilesystemEvent) error {
	const overhead = 128 // bytes of an event in memory, without its path
	size := int64(overhead + 2*proto.Size(event))
	if p.all.kept.Add(size) > maxKept {
		p.all.kept.Add(-size)
		return connect.NewError(connect.CodeResourceExhausted, errTooManyEvents)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events = append(p.events, event)
	p.size += size
	return nil
}

// forget drops the kept events.
func (p *polled) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all.kept.Add(-p.size)
	p.events, p.size = nil, 0
}

func (p *polled) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
}

// take returns the kept events. After the last event, it returns the error that ended the
// watch.
func (p *polled) take() ([]*filesystem.FilesystemEvent, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = time.Now()
	if len(p.events) == 0 && p.err != nil {
		return nil, p.err
	}
	events := p.events
	p.all.kept.Add(-p.size)
	p.events, p.size = nil, 0
	return events, nil
}

// GetWatcherEvents returns and removes the events of all changes since the previous call.
func (s *filesystemService) GetWatcherEvents(_ context.Context, req *connect.Request[filesystem.GetWatcherEventsRequest]) (*connect.Response[filesystem.GetWatcherEventsResponse], error) {
	id := req.Msg.GetWatcherId()
	ws := s.server.watchers
	ws.mu.Lock()
	p, ok := ws.polled[id]
	ws.mu.Unlock()
	if !ok {
		return nil, noWatcher(id)
	}
	if !p.watch.catchUp(p.keep) {
		p.watch.notify.interrupt() // wakes the watcher's goroutine
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
	ws := s.server.watchers
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if _, ok := ws.polled[id]; !ok {
		return nil, noWatcher(id)
	}
	ws.drop(id)
	return connect.NewResponse(&filesystem.RemoveWatcherResponse{}), nil
}

func noWatcher(id string) error {
	return connect.NewError(connect.CodeNotFound, fmt.Errorf("watcher with id %s not found", bounded(id)))
}
