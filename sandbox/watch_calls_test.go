package sandbox

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/gen/filesystem"
	"github.com/e2bctl/e2bctl/internal/gen/filesystem/filesystemconnect"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

type watchStream = connect.ServerStream[filesystem.WatchDirResponse]

// watches is a daemon whose watches call do.
type watches struct {
	filesystemconnect.UnimplementedFilesystemHandler
	do func(ctx context.Context, r *connect.Request[filesystem.WatchDirRequest], s *watchStream) error
}

func (w *watches) WatchDir(ctx context.Context, r *connect.Request[filesystem.WatchDirRequest], s *watchStream) error {
	return w.do(ctx, r, s)
}

// watching returns a service whose watches call do.
func watching(t *testing.T, do func(context.Context, *connect.Request[filesystem.WatchDirRequest], *watchStream) error) *service {
	t.Helper()
	return newService(t).watched(do)
}

// watched makes the watches of a service call do.
func (s *service) watched(do func(context.Context, *connect.Request[filesystem.WatchDirRequest], *watchStream) error) *service {
	_, handler := filesystemconnect.NewFilesystemHandler(&watches{do: do})
	s.raw = func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasPrefix(r.URL.Path, "/filesystem.Filesystem/") {
			handler.ServeHTTP(w, r)
			return true
		}
		return false
	}
	return s
}

func watchStarted() *filesystem.WatchDirResponse {
	return &filesystem.WatchDirResponse{Event: &filesystem.WatchDirResponse_Start{Start: &filesystem.WatchDirResponse_StartEvent{}}}
}

func watchEvent(name string, kind filesystem.EventType, entry *filesystem.EntryInfo) *filesystem.WatchDirResponse {
	return &filesystem.WatchDirResponse{Event: &filesystem.WatchDirResponse_Filesystem{Filesystem: &filesystem.FilesystemEvent{Name: name, Type: kind, Entry: entry}}}
}

// TestWatchParams checks where each parameter of a watch arrives, and which version of the daemon each needs.
func TestWatchParams(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		p       *WatchParams
		want    string // the parameters that arrive
		needs   string // the first version of the daemon
		before  string // the one before
		feature string
	}{
		"none":        {p: nil},
		"a user":      {p: &WatchParams{User: "me"}, want: "me"},
		"recursive":   {p: &WatchParams{Recursive: true}, want: "recursive", needs: "0.1.4", before: "0.1.3", feature: "a recursive watch"},
		"described":   {p: &WatchParams{IncludeInfo: true}, want: "described", needs: "0.6.3", before: "0.6.2", feature: "a watch that describes files"},
		"over a wire": {p: &WatchParams{AllowNetworkMounts: true}, want: "network", needs: "0.6.4", before: "0.6.3", feature: "a watch of a network file system"},
	} {
		s := watching(t, func(_ context.Context, r *connect.Request[filesystem.WatchDirRequest], stream *watchStream) error {
			var got []string
			if user, _, _ := (&http.Request{Header: r.Header()}).BasicAuth(); user == "me" {
				got = append(got, user)
			}
			for what, set := range map[string]bool{"recursive": r.Msg.GetRecursive(), "described": r.Msg.GetIncludeEntry(), "network": r.Msg.GetAllowNetworkMounts()} {
				if set {
					got = append(got, what)
				}
			}
			if strings.Join(got, " ") != tt.want || r.Msg.GetPath() != "d" || r.Header().Get("Keepalive-Ping-Interval") != keepalive {
				t.Errorf("%s: got %v with %q, want %q", name, r.Msg, got, tt.want)
			}
			return stream.Send(watchStarted())
		})
		s.daemonVersion = tt.needs
		w, err := s.sandbox().Files.Watch(t.Context(), "d", tt.p)
		must.Do(t, err)
		must.Do(t, w.Close())
		if tt.before == "" {
			continue
		}
		s.daemonVersion = tt.before
		_, err = s.sandbox().Files.Watch(t.Context(), "d", tt.p)
		if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), tt.feature+" needs version "+tt.needs+" of the sandbox's daemon, which is "+tt.before) {
			t.Errorf("%s: got error %v of version %s", name, err, tt.before)
		}
	}
}

// TestEventsOfAWatch checks the events that arrive, the end of each stream, and that the end stays the same.
func TestEventsOfAWatch(t *testing.T) {
	t.Parallel()
	const create, remove, rename = filesystem.EventType_EVENT_TYPE_CREATE, filesystem.EventType_EVENT_TYPE_REMOVE, filesystem.EventType_EVENT_TYPE_RENAME
	other := func(code connect.Code, text string) error { return connect.NewError(code, errors.New(text)) }
	for name, tt := range map[string]struct {
		sent  []*filesystem.WatchDirResponse
		ended error // nil: the stream goes on
		want  []FileEvent
		err   error
	}{
		"each type": {sent: []*filesystem.WatchDirResponse{
			watchEvent("a", create, &filesystem.EntryInfo{Name: "a", Size: 7}), watchEvent("b", filesystem.EventType_EVENT_TYPE_WRITE, nil), watchEvent("c", remove, nil),
			watchEvent("d", rename, nil), watchEvent("e", filesystem.EventType_EVENT_TYPE_CHMOD, nil), watchEvent("f", 99, nil), {},
			watchEvent(".", create, nil),
		}, want: []FileEvent{{"a", FileEventCreate, &FileInfo{Name: "a", Size: 7}}, {"b", FileEventWrite, nil}, {"c", FileEventRemove, nil}, {"d", FileEventRename, nil}, {"e", FileEventChmod, nil}, {".", FileEventCreate, nil}}},
		"removed":      {sent: []*filesystem.WatchDirResponse{watchEvent(".", remove, nil), watchEvent("late", create, nil)}, err: ErrWatchRemoved},
		"moved":        {sent: []*filesystem.WatchDirResponse{watchEvent(".", rename, nil)}, err: ErrWatchRemoved},
		"overflow":     {ended: other(connect.CodeInternal, "queue overflow"), err: ErrWatchOverflow},
		"exhausted":    {ended: other(connect.CodeResourceExhausted, "no"), err: ErrWatchOverflow},
		"gone":         {ended: other(connect.CodeNotFound, "no such directory"), err: fs.ErrNotExist},
		"unavailable":  {ended: other(connect.CodeUnavailable, "no"), err: ErrRetryable},
		"broken":       {ended: http.ErrAbortHandler, err: ErrRetryable},
		"another text": {ended: other(connect.CodePermissionDenied, "no"), err: fs.ErrPermission},
	} {
		s := watching(t, func(ctx context.Context, _ *connect.Request[filesystem.WatchDirRequest], stream *watchStream) error {
			for _, m := range append([]*filesystem.WatchDirResponse{watchStarted()}, tt.sent...) {
				if err := stream.Send(m); err != nil {
					return err
				}
			}
			switch {
			case errors.Is(tt.ended, http.ErrAbortHandler):
				panic(http.ErrAbortHandler)
			case tt.ended == nil:
				<-ctx.Done()
			}
			return tt.ended
		})
		sb := s.sandbox()
		w, err := sb.Files.Watch(patience.Context(t), "d", nil)
		must.Do(t, err)
		var got []FileEvent
		for event, err := range w.Events(patience.Context(t)) {
			if err != nil {
				if !errors.Is(err, tt.err) || tt.err == nil || !strings.HasPrefix(err.Error(), "watch "+testID+":d: ") {
					t.Errorf("%s: got error %v, want %v", name, err, tt.err)
				}
				break
			}
			if got = append(got, event); len(got) == len(tt.want) {
				break
			}
		}
		for i := range got {
			if info := got[i].Info; info != nil {
				got[i].Info = &FileInfo{Name: info.Name, Size: info.Size}
			}
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: events (-want +got):\n%s", name, diff)
		}
		for range 2 {
			must.Do(t, w.Close())
			again, err := listed(w.Events(t.Context()))
			if len(again) > 0 || !errors.Is(err, tt.err) {
				t.Errorf("%s: after Close got %v and error %v, want %v", name, again, err, tt.err)
			}
		}
		sb.mu.Lock()
		if n := len(sb.calls); n > 0 {
			t.Errorf("%s: %d calls have not ended", name, n)
		}
		sb.mu.Unlock()
	}
}

// TestWatchThatDoesNotStart checks the errors of a watch, and that none of them leaves a call open.
func TestWatchThatDoesNotStart(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		dir   string
		sent  []*filesystem.WatchDirResponse
		ended error
		want  error
		text  string
	}{
		"a NUL in the path": {dir: "a\x00", want: fs.ErrInvalid, text: "a path has no zero byte"},
		"no directory":      {dir: "d", ended: connect.NewError(connect.CodeNotFound, errors.New("path d not found")), want: fs.ErrNotExist, text: "watch " + testID + ":d"},
		"a file":            {dir: "d", ended: connect.NewError(connect.CodeInvalidArgument, errors.New("path is not a directory: d")), want: syscall.ENOTDIR, text: "watch " + testID + ":d"},
		"ends at once":      {dir: "d", text: "the stream of the watch broke"},
		"begins otherwise":  {dir: "d", sent: []*filesystem.WatchDirResponse{watchEvent("a", filesystem.EventType_EVENT_TYPE_CREATE, nil)}, text: "does not report that the watch started"},
	} {
		s := watching(t, func(_ context.Context, _ *connect.Request[filesystem.WatchDirRequest], stream *watchStream) error {
			for _, m := range tt.sent {
				if err := stream.Send(m); err != nil {
					return err
				}
			}
			return tt.ended
		})
		sb := s.sandbox()
		w, err := sb.Files.Watch(patience.Context(t), tt.dir, nil)
		if w != nil || !isError(err, tt.want, tt.text) {
			t.Errorf("%s: got error %v, want %v with %q", name, err, tt.want, tt.text)
		}
		sb.mu.Lock()
		if n := len(sb.calls); n > 0 {
			t.Errorf("%s: %d calls have not ended", name, n)
		}
		sb.mu.Unlock()
	}
}

// TestEndOfALoop checks that the end of a loop's context is no end of the watch, and that the end of the watch's context is.
func TestEndOfALoop(t *testing.T) {
	t.Parallel()
	more := make(chan string, 1)
	s := watching(t, func(ctx context.Context, _ *connect.Request[filesystem.WatchDirRequest], stream *watchStream) error {
		_ = stream.Send(watchStarted())
		for {
			select {
			case name := <-more:
				_ = stream.Send(watchEvent(name, filesystem.EventType_EVENT_TYPE_CREATE, nil))
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	life, end := context.WithCancelCause(patience.Context(t))
	w, err := s.sandbox().Files.Watch(life, "d", nil)
	must.Do(t, err)
	defer w.Close()
	ended, cancel := context.WithCancelCause(t.Context())
	late := errors.New("too late")
	cancel(late)
	for range 2 {
		_, err := listed(w.Events(ended))
		if path, ok := errors.AsType[*fs.PathError](err); !errors.Is(err, late) || !ok || path.Op != "wait for events of" {
			t.Errorf("got error %v, want the end of the loop's context", err)
		}
	}
	more <- "a"
	for event, err := range w.Events(patience.Context(t)) {
		if err != nil || event.Name != "a" {
			t.Errorf("got %+v and error %v from the next loop", event, err)
		}
		break
	}
	over := errors.New("it is over")
	end(over)
	_, err = listed(w.Events(patience.Context(t)))
	must.Is(t, err, over)
}

// TestTimeOfTheStartOfAWatch checks that a watch whose start is not reported fails after a while, and that one that has
// started goes on.
func TestTimeOfTheStartOfAWatch(t *testing.T) {
	t.Parallel()
	for _, starts := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newPipedService(t).watched(func(ctx context.Context, _ *connect.Request[filesystem.WatchDirRequest], stream *watchStream) error {
				if starts {
					_ = stream.Send(watchStarted())
					<-time.After(2 * startTimeout)
					_ = stream.Send(watchEvent("late", filesystem.EventType_EVENT_TYPE_CREATE, nil))
				}
				<-ctx.Done()
				return nil
			})
			sb := s.sandbox()
			begun := time.Now()
			w, err := sb.Files.Watch(t.Context(), "d", nil)
			if !starts {
				if took := time.Since(begun); w != nil || !isError(err, nil, "the daemon did not start it") || took != startTimeout {
					t.Errorf("got error %v after %v, want that it did not start after %v", err, took, startTimeout)
				}
				return
			}
			must.Do(t, err)
			for event, err := range w.Events(t.Context()) {
				if err != nil || event.Name != "late" {
					t.Errorf("got %+v and error %v, want the late event", event, err)
				}
				break
			}
			must.Do(t, w.Close())
		})
	}
}

// TestCloseOfAnAwaitedEvent checks that a watch can be closed twice after a loop has left while it waited for an event.
func TestCloseOfAnAwaitedEvent(t *testing.T) {
	t.Parallel()
	s := watching(t, func(ctx context.Context, _ *connect.Request[filesystem.WatchDirRequest], stream *watchStream) error {
		_ = stream.Send(watchStarted())
		<-ctx.Done()
		return nil
	})
	w, err := s.sandbox().Files.Watch(patience.Context(t), "d", nil)
	must.Do(t, err)
	left, leave := context.WithCancel(t.Context())
	leave()
	for range 100 { // a loop may end before it waits
		if _, err := listed(w.Events(left)); !errors.Is(err, context.Canceled) {
			t.Errorf("got error %v, want the end of the loop", err)
		}
		if w.receiving {
			break
		}
	}
	for range 2 {
		must.Do(t, w.Close())
		if w.receiving || !w.ended || w.err != nil {
			t.Errorf("after Close: it waits for an event: %v, ended: %v, error %v", w.receiving, w.ended, w.err)
		}
	}
}
