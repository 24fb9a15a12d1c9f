package sandbox

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestMaking checks how long a creation goes on after its context has ended, when its call is given up, and that the
// sandboxes that it makes after that are killed, and no other ones.
func TestMaking(t *testing.T) {
	t.Parallel()
	enough := errors.New("enough")
	const call = 10 * time.Second
	for name, tt := range map[string]struct {
		answers time.Duration // 0: it does not answer
		fails   bool
		givenUp time.Duration // 0: it is not
		closed  time.Duration // when the client has no more time; 0: not before the end
		took    time.Duration // until making returns
		ended   time.Duration // until the call has ended
		killed  int
	}{
		"in time":              {answers: call, took: call, ended: call},
		"a failure":            {answers: call, fails: true, took: call, ended: call},
		"given up":             {answers: call, givenUp: time.Second, took: time.Second, ended: call, killed: 2},
		"given up, a failure":  {answers: call, fails: true, givenUp: time.Second, took: time.Second, ended: call},
		"given up, no answer":  {givenUp: time.Second, took: time.Second, ended: time.Second + createTimeout},
		"given up, and closed": {givenUp: time.Second, closed: 2 * time.Second, took: time.Second, ended: 2 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newPipedService(t)
			c := s.client()
			ctx, end := context.WithCancelCause(t.Context())
			defer end(nil)
			if tt.givenUp > 0 {
				defer time.AfterFunc(tt.givenUp, func() { end(enough) }).Stop()
			}
			if tt.closed > 0 {
				defer time.AfterFunc(tt.closed, func() { c.hurryOnce.Do(func() { close(c.hurry) }) }).Stop()
			}
			begun := time.Now()
			var ended time.Duration
			create := func(ctx context.Context) (int, error) {
				defer func() { ended = time.Since(begun) }()
				if tt.answers == 0 {
					<-ctx.Done()
					return 0, ctx.Err()
				}
				<-time.After(tt.answers)
				if tt.fails {
					return 0, errFull
				}
				return 7, ctx.Err()
			}
			made, err := making(ctx, c, time.Hour, create, func(int) []*api.Sandbox { return []*api.Sandbox{{ID: "a"}, {ID: "b"}} })
			want := error(nil)
			switch {
			case tt.givenUp > 0:
				want = enough
			case tt.fails:
				want = errFull
			}
			if took := time.Since(begun); !errors.Is(err, want) || (made == 7) != (want == nil) || took != tt.took {
				t.Errorf("%s: got %d and error %v after %v, want error %v after %v", name, made, err, took, want, tt.took)
			}
			c.pending.Wait()
			if ended != tt.ended || time.Since(begun) != tt.ended {
				t.Errorf("%s: the call ended after %v, and Close waits for %v, want %v", name, ended, time.Since(begun), tt.ended)
			}
			if n := s.seen("DELETE /sandboxes/a") + s.seen("DELETE /sandboxes/b"); n != tt.killed {
				t.Errorf("%s: %d sandboxes were killed, want %d", name, n, tt.killed)
			}
			must.Do(t, c.Close())
		})
	}
}

var errFull = errors.New("the service is full")

// TestOutliving checks which parts of a context a call keeps that goes on without it.
func TestOutliving(t *testing.T) {
	t.Parallel()
	type key struct{}
	synctest.Test(t, func(t *testing.T) {
		for limit, want := range map[time.Duration]time.Duration{0: 0, time.Minute: time.Minute + createTimeout} {
			ctx, end := context.WithCancel(context.WithValue(t.Context(), key{}, "kept"))
			if limit > 0 {
				ctx, end = context.WithTimeout(ctx, limit)
			}
			call, cancel := outliving(ctx)
			end()
			deadline, set := call.Deadline()
			if set != (want > 0) || set && time.Until(deadline) != want {
				t.Errorf("a limit of %v: got %v until the deadline (%v), want %v", limit, time.Until(deadline), set, want)
			}
			if call.Err() != nil || call.Value(key{}) != "kept" {
				t.Errorf("a limit of %v: got error %v and the value %v, want none and the one of the context", limit, call.Err(), call.Value(key{}))
			}
			cancel()
		}
	})
}

// TestUndoWarns checks that a sandbox that was given up is logged if it lives on, and not if somebody else has ended it.
func TestUndoWarns(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.control = func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(map[string]int{"/sandboxes/gone": http.StatusNotFound, "/sandboxes/lives": http.StatusForbidden, "/sandboxes/ends": http.StatusNoContent}[r.URL.Path])
	}
	var log bytes.Buffer
	s.client(WithLogger(slog.New(slog.NewTextHandler(&log, nil)))).undo(t.Context(), []*api.Sandbox{{ID: "gone"}, {ID: "lives"}, {ID: "ends"}})
	if text := log.String(); s.seen("DELETE ") != 3 || strings.Count(text, "\n") != 1 || !strings.Contains(text, "sandbox=lives") {
		t.Errorf("after %d requests to kill, logged is %q, want one of lives", s.seen("DELETE "), text)
	}
}
