package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/gen/filesystem"
)

var (
	// ErrWatchOverflow ends a watch that more happened in than was read, or than
	// the sandbox can follow: events are lost. Look at the files, and watch anew.
	ErrWatchOverflow = errors.New("sandbox: events of a watch were lost")
	// ErrWatchRemoved ends a watch whose directory was removed or moved away.
	ErrWatchRemoved = errors.New("sandbox: the watched directory is gone")
)

// EventType is what happened to a file.
type EventType string

// What happens to files. A file that is moved is a rename of the old name and a
// create of the new.
const (
	EventCreate EventType = "create"
	EventWrite  EventType = "write"
	EventRemove EventType = "remove"
	EventRename EventType = "rename"
	EventChmod  EventType = "chmod"
)

// FileEvent is something that happened in a watched directory.
type FileEvent struct {
	// Name is what it happened to, as a path from the watched directory.
	Name string
	// Type is what happened.
	Type EventType
	// Info describes the file after a create, write or chmod when
	// [WatchParams.IncludeInfo] asks for it and the file was still there.
	Info *FileInfo
}

// WatchParams say what to watch.
type WatchParams struct {
	// User is whose home a relative path starts at; empty means the default.
	User string
	// Recursive watches all directories below, new ones included. It needs a
	// daemon of 0.1.4.
	Recursive bool
	// IncludeInfo asks for [FileEvent.Info]. It needs a daemon of 0.6.3.
	IncludeInfo bool
	// AllowNetworkMounts watches a directory of a network file system, too,
	// where what other machines do is not told. It needs a daemon of 0.6.4.
	AllowNetworkMounts bool
}

// Watcher tells what happens in a directory of a sandbox. Close it. It is safe
// for concurrent use; each event comes once.
type Watcher struct {
	stop   context.CancelCauseFunc
	end    func()
	failed func(error) error // what the end of the stream means

	mu     sync.Mutex // who reads
	stream *connect.ServerStreamForClient[filesystem.WatchDirResponse]
	ended  bool
	err    error // why, unless it was closed
}

// Watch starts to watch a directory: what happens after its return is told. A file
// cannot be watched: the error is syscall.ENOTDIR. ctx bounds the watch, not just the
// call. Read the events: the sandbox keeps some thousands of them, and one more than
// that ends the watch.
func (f *Files) Watch(ctx context.Context, dir string, p *WatchParams) (*Watcher, error) {
	p = cmp.Or(p, &WatchParams{})
	for _, gate := range []struct {
		asked               bool
		feature             string
		major, minor, patch int
	}{
		{p.Recursive, "a recursive watch", 0, 1, 4},
		{p.IncludeInfo, "a watch that describes files", 0, 6, 3},
		{p.AllowNetworkMounts, "a watch of a network file system", 0, 6, 4},
	} {
		if !gate.asked {
			continue
		}
		if err := f.sb.needs(gate.feature, gate.major, gate.minor, gate.patch); err != nil {
			return nil, f.pathError("watch", dir, err)
		}
	}
	if err := rpcPath(dir); err != nil {
		return nil, f.pathError("watch", dir, err)
	}
	ctx, end, err := f.sb.begin(ctx)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancelCause(ctx)
	w := &Watcher{stop: stop, end: sync.OnceFunc(func() { stop(nil); end() })}
	w.failed = func(err error) error {
		if errors.Is(context.Cause(ctx), errWatchClosed) {
			return nil
		}
		return f.failed(ctx, "watch", dir, rpcFailure(err))
	}
	request := connect.NewRequest(&filesystem.WatchDirRequest{
		Path: dir, Recursive: p.Recursive, IncludeEntry: p.IncludeInfo, AllowNetworkMounts: p.AllowNetworkMounts,
	})
	asUser(request.Header(), p.User)
	request.Header().Set("Keepalive-Ping-Interval", keepalive)
	opening := time.AfterFunc(startTimeout, func() {
		stop(fmt.Errorf("the daemon did not start it in %v: %w", startTimeout, context.DeadlineExceeded))
	})
	defer opening.Stop()
	if err := w.open(ctx, f, request); err != nil {
		defer w.end()
		return nil, w.failed(err)
	}
	// The handle's Close must not wait for one who has given up reading.
	context.AfterFunc(ctx, w.end)
	return w, nil
}

// errWatchClosed is the cause of a watch's end that its Close is.
var errWatchClosed = errors.New("the watch was closed")

// errWatchCut: the stream ended, and its end said nothing of it.
var errWatchCut = errors.New("the stream of the watch broke")

func (w *Watcher) open(ctx context.Context, f *Files, request *connect.Request[filesystem.WatchDirRequest]) error {
	stream, err := f.rpc.WatchDir(ctx, request)
	if err != nil {
		return err
	}
	if !stream.Receive() {
		return errors.Join(cmp.Or(stream.Err(), errWatchCut), stream.Close())
	}
	if stream.Msg().GetStart() == nil {
		return errors.Join(errors.New("the daemon's first word is not that the watch started"), stream.Close())
	}
	w.stream = stream
	return nil
}

// Events gives the events as they come, until the watch ends. Its end is the
// last pair, an error: [ErrWatchRemoved], [ErrWatchOverflow], that of ctx,
// [ErrGone]; after Close there is none. Ranging again goes on with the next
// event, or gives the end again.
func (w *Watcher) Events() iter.Seq2[FileEvent, error] {
	return func(yield func(FileEvent, error) bool) {
		for {
			event, err := w.next()
			switch {
			case err != nil:
				yield(FileEvent{}, err)
				return
			case event == nil:
				return
			case !yield(*event, nil):
				return
			}
		}
	}
}

// next gives the next event, or why there is none; neither after Close.
func (w *Watcher) next() (*FileEvent, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for !w.ended {
		if !w.stream.Receive() {
			w.finish(cmp.Or(w.stream.Err(), errWatchCut))
			break
		}
		event := w.stream.Msg().GetFilesystem()
		if event == nil {
			continue // a sign of life
		}
		kind := eventTypes[event.GetType()]
		switch {
		case event.GetName() == "." && (kind == EventRemove || kind == EventRename):
			w.finish(ErrWatchRemoved)
		case kind != "": // else of a kind that is still to come
			told := &FileEvent{Name: event.GetName(), Type: kind}
			if event.Entry != nil {
				told.Info = newFileInfo(event.GetEntry())
			}
			return told, nil
		}
	}
	return nil, w.err
}

func (w *Watcher) finish(err error) {
	w.ended, w.err = true, w.failed(watchFailure(err))
	w.end()
	_ = w.stream.Close() // it has ended
}

// Close ends the watch. It is idempotent; a range over the events ends.
func (w *Watcher) Close() error {
	w.stop(errWatchClosed)
	w.end()
	w.mu.Lock() // whoever reads returns now
	defer w.mu.Unlock()
	if !w.ended {
		w.finish(errWatchClosed)
	}
	return nil
}

var eventTypes = map[filesystem.EventType]EventType{
	filesystem.EventType_EVENT_TYPE_CREATE: EventCreate,
	filesystem.EventType_EVENT_TYPE_WRITE:  EventWrite,
	filesystem.EventType_EVENT_TYPE_REMOVE: EventRemove,
	filesystem.EventType_EVENT_TYPE_RENAME: EventRename,
	filesystem.EventType_EVENT_TYPE_CHMOD:  EventChmod,
}

// watchFailure gives the ends of a stream that was there their names. The daemon
// passes on its library's words for an overflow.
func watchFailure(err error) error {
	e, ok := errors.AsType[*connect.Error](err)
	switch {
	case errors.Is(err, errWatchCut):
	case !ok || !connect.IsWireError(e):
		return err
	case strings.Contains(e.Message(), "overflow"), e.Code() == connect.CodeResourceExhausted:
		return fmt.Errorf("%w: %s", ErrWatchOverflow, clip.Line(e.Message(), 512))
	case e.Code() != connect.CodeUnavailable:
		return err
	}
	// It may be that the sandbox ended: what broke without an answer is looked into.
	return api.NewError(http.MethodPost, "/filesystem.Filesystem", err)
}
