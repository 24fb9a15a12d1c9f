package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle/lifecycletest"
)

// TestAutoPauseOfResumed checks that a resume changes AutoPause only if the request sets it, with
// the memory and without. A call to a running sandbox never changes AutoPause.
func TestAutoPauseOfResumed(t *testing.T) {
	t.Parallel()
	for _, before := range []bool{false, true} {
		for _, asked := range []*bool{nil, new(false), new(true)} {
			for _, drop := range []bool{false, true} {
				s := newStage(t)
				id := s.create(t, func(q *lifecycle.Request) { q.AutoPause = before })
				o := lifecycle.ResumeOptions{Lifetime: time.Hour, DropMemory: drop, AutoPause: asked}
				want := before
				what := fmt.Sprintf("before %v, without memory %v", before, drop)
				if asked != nil {
					what += fmt.Sprint(", asked for ", *asked)
				}
				check := func(call string, sb lifecycle.Sandbox, err error) {
					t.Helper()
					if got := s.get(t, id).AutoPause; err != nil || got != want || sb.AutoPause != want {
						t.Errorf("%s, %s: got %v, told %v, and error %v, want %v", what, call, got, sb.AutoPause, err, want)
					}
				}
				sb, _, err := s.Connect(t.Context(), id, o)
				check("connect to a running one", sb, err)
				if asked != nil {
					want = *asked
				}
				s.pause(t, id, lifecycle.PauseOptions{})
				sb, err = s.Resume(t.Context(), id, o)
				check("resume", sb, err)
				s.pause(t, id, lifecycle.PauseOptions{})
				sb, _, err = s.Connect(t.Context(), id, lifecycle.ResumeOptions{Lifetime: time.Hour})
				check("connect to a paused one", sb, err)
				_ = s.Close()
			}
		}
	}
}

// TestWakeEndsWithItsCaller checks that a wake whose caller has no time left returns the error of
// the caller's context, and not that the sandbox is busy.
func TestWakeEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		id := s.create(t)
		s.pause(t, id, lifecycle.PauseOptions{})
		release := s.hold(lifecycletest.Resume)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Wake(ctx, id); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got error %v, want %v", err, context.DeadlineExceeded)
		}
		release()
		_ = s.Close()
	})
}
