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
	"github.com/e2bctl/e2bctl/internal/httpwait"
)

var (
	// ErrWatchOverflow is the error of a watch that ended because events were lost. Either the program
	// did not read the events in time, or there were more events than the sandbox can follow, or the
	// sandbox was paused and resumed. Read the files again, and start a new watch.
	ErrWatchOverflow = errors.New("sandbox: events of a watch were lost")
	// ErrWatchRemoved is the error of a watch that ended because its directory was removed or moved
	// away.
	ErrWatchRemoved = errors.New("sandbox: the watched directory is gone")
)

// FileEventType is the type of a change to a file.
type FileEventType string

// These are the types of changes. Moving a file produces a rename of the old name and a create
// of the new one.
const (
	FileEventCreate FileEventType = "create"
	FileEventWrite  FileEventType = "write"
	FileEventRemove FileEventType = "remove"
	FileEventRename FileEventType = "rename"
	FileEventChmod  FileEventType = "chmod"
)

// FileEvent is a change in a watched directory.
type FileEvent struct {
	// Name is the changed file, as a path relative to the watched directory.
	Name string
	// Type is the type of the change.
	Type FileEventType
	// Info describes the file after a create, write or chmod, if
	// [WatchParams.IncludeInfo] was set and the file still existed.
	Info *FileInfo
}

// WatchParams sets how to watch a directory.
type WatchParams struct {
	// User is the user at whose home a relative path begins; empty means the default user.
	User string
	// Recursive also watches all subdirectories, including new ones. It needs envd 0.1.4.
	Recursive bool
	// IncludeInfo sets [FileEvent.Info] in events. It needs envd 0.6.3.
	IncludeInfo bool
	// AllowNetworkMounts permits watching a directory of a network file system. Changes that other
	// machines make in such a directory are not reported. It needs envd 0.6.4.
	AllowNetworkMounts bool
}

// Watcher reports the changes in a directory of a sandbox. The caller must close it. It is safe for
// concurrent use. Each event is delivered to only one reader.
type Watcher struct {
	stop   context.CancelCauseFunc
	end    func()
	failed func(error) error           // converts the error at the end of the stream
	waited func(context.Context) error // returns the error of a loop of Events whose context ended

	turn      chan struct{} // a semaphore for one reader: only the reader that has acquired it uses the fields below
	stream    *connect.ServerStreamForClient[filesystem.WatchDirResponse]
	receiving bool      // the next message of the stream was requested
	received  chan bool // receives whether a message arrived
	ended     bool
	err       error // the reason for the end of the watch; nil if the watch was closed
}

// Watch starts to watch a directory. The watcher reports all changes that happen after Watch has
// returned. The error is syscall.ENOTDIR if dir is a file. ctx limits the watch, not only the call.
// Read the events in time: the sandbox keeps some thousands of unread events, and a further event
// ends the watch.
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
	w := &Watcher{
		stop: stop, end: sync.OnceFunc(func() { stop(nil); end() }),
		turn: make(chan struct{}, 1), received: make(chan bool, 1),
	}
	begun := time.Now()
	w.failed = func(err error) error {
		if errors.Is(context.Cause(ctx), errWatchClosed) {
			return nil
		}
		if broken, ok := errors.AsType[*api.Error](translated(rpcFailure(err))); ok && broken.StatusCode == 0 && ctx.Err() == nil {
			if was, is := f.sb.pauseSince(ctx, begun); was && !is {
				return f.pathError("watch", dir, fmt.Errorf("%w: the sandbox was paused", ErrWatchOverflow))
			}
		}
		return f.failed(ctx, "watch", dir, rpcFailure(err))
	}
	w.waited = func(ctx context.Context) error { return f.pathError("wait for events of", dir, context.Cause(ctx)) }
	request := connect.NewRequest(&filesystem.WatchDirRequest{
		Path: dir, Recursive: p.Recursive, IncludeEntry: p.IncludeInfo, AllowNetworkMounts: p.AllowNetworkMounts,
	})
	asUser(request.Header(), p.User)
	request.Header().Set("Keepalive-Ping-Interval", keepalive)
	opening := time.AfterFunc(startTimeout, func() {
		stop(httpwait.NewSlowError("the daemon did not start it", startTimeout))
	})
	defer opening.Stop()
	if err := w.open(ctx, f, request); err != nil {
		defer w.end()
		return nil, w.failed(err)
	}
	// Closing the handle must not wait for a caller that has stopped reading.
	context.AfterFunc(ctx, w.end)
	return w, nil
}

// errWatchClosed is the cause of the end of a closed watch.
var errWatchClosed = errors.New("the watch was closed")

// errWatchCut means that the stream ended without its final message.
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
		return errors.Join(errors.New("the daemon's first message does not report that the watch started"), stream.Close())
	}
	w.stream = stream
	return nil
}

// Events iterates over the events as they arrive, until the watch or ctx ends. The last item is an
// error with the reason for the end: [ErrWatchRemoved], [ErrWatchOverflow], [ErrGone], or the error
// of ctx or of Watch's context. After Close there is no error. If only ctx ended, the watch
// continues. A further loop then continues with the next event. After the end of the watch, a
// further loop yields the last error again.
func (w *Watcher) Events(ctx context.Context) iter.Seq2[FileEvent, error] {
	return func(yield func(FileEvent, error) bool) {
		for {
			event, err := w.next(ctx)
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

// next returns the next event, or the error that ended the watch. After Close the event and the
// error are nil.
func (w *Watcher) next(ctx context.Context) (*FileEvent, error) {
	select {
	case w.turn <- struct{}{}:
		defer func() { <-w.turn }()
	case <-ctx.Done():
		return nil, w.waited(ctx)
	}
	for !w.ended {
		if !w.receiving {
			w.receiving = true
			go func() { w.received <- w.stream.Receive() }()
		}
		select {
		case came := <-w.received:
			w.receiving = false
			if !came {
				w.finish(cmp.Or(w.stream.Err(), errWatchCut))
				continue
			}
		case <-ctx.Done(): // the next loop receives the event
			return nil, w.waited(ctx)
		}
		event := w.stream.Msg().GetFilesystem()
		if event == nil {
			continue // a keepalive message
		}
		kind := eventTypes[event.GetType()]
		switch {
		case event.GetName() == "." && (kind == FileEventRemove || kind == FileEventRename):
			w.finish(ErrWatchRemoved)
		case kind != "": // otherwise a type that later versions add
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
	_ = w.stream.Close() // the stream has ended
}

// Close ends the watch and the loops over its events. It may be called more than once and
// always returns nil.
func (w *Watcher) Close() error {
	w.stop(errWatchClosed)
	w.end()
	w.turn <- struct{}{} // a loop that waits for an event has now ended
	defer func() { <-w.turn }()
	if w.receiving {
		<-w.received
		w.receiving = false
	}
	if !w.ended {
		w.finish(errWatchClosed)
	}
	return nil
}

var eventTypes = map[filesystem.EventType]FileEventType{
	filesystem.EventType_EVENT_TYPE_CREATE: FileEventCreate,
	filesystem.EventType_EVENT_TYPE_WRITE:  FileEventWrite,
	filesystem.EventType_EVENT_TYPE_REMOVE: FileEventRemove,
	filesystem.EventType_EVENT_TYPE_RENAME: FileEventRename,
	filesystem.EventType_EVENT_TYPE_CHMOD:  FileEventChmod,
}

// watchFailure converts the error at the end of an open stream to an error of this package. The
// daemon reports an overflow with the text of its library.
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
	// The sandbox may have ended: an error without an answer makes the caller check that.
	return api.NewError(http.MethodPost, "/filesystem.Filesystem", err)
}
