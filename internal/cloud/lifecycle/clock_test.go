package lifecycle_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/must"
)

// jumps are changes of the host's clock.
var jumps = map[string]time.Duration{
	"an hour on": time.Hour, "an hour back": -time.Hour,
	"a year on": 365 * 24 * time.Hour, "a year back": -365 * 24 * time.Hour,
}

// TestClockJumps checks that lifetimes and idle limits are as long as before when the host's clock is set
// forward or back, and that the reason for an end is remembered.
func TestClockJumps(t *testing.T) {
	t.Parallel()
	for name, jump := range jumps {
		for reason, change := range map[lifecycle.Reason]func(q *lifecycle.Request){
			lifecycle.Expired: func(q *lifecycle.Request) { q.Lifetime = idleLimit },
			lifecycle.Idle:    idle,
		} {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t)
				id := s.create(t, change)
				s.SetClock(jump)
				time.Sleep(idleLimit - 1) //nolint:forbidigo // its time is fake: the evictor wakes at the limit
				synctest.Wait()
				s.get(t, id)
				time.Sleep(time.Nanosecond) //nolint:forbidigo // its time is fake
				synctest.Wait()
				for range 2 {
					if _, err := s.Get(id); reasonOf(err) != reason {
						t.Errorf("%s: got %v, want the reason %s", name, err, reason)
					}
					s.SetClock(-jump)
				}
				_ = s.Close()
			})
		}
	}
}

// TestClockJumpsShow checks that the end of a lifetime is told as a time of the clock as it was set, and
// that a lifetime can be extended and set afterwards.
func TestClockJumpsShow(t *testing.T) {
	t.Parallel()
	for name, jump := range jumps {
		synctest.Test(t, func(t *testing.T) {
			s := newStage(t)
			before := s.get(t, s.create(t))
			s.SetClock(jump)
			show := func(how string, sb lifecycle.Sandbox, want time.Duration) {
				t.Helper()
				if end := time.Now().Add(jump + want); !sb.StartedAt.Equal(before.StartedAt) || !sb.EndAt.Equal(end) {
					t.Errorf("%s, %s: got %v to %v, want %v to %v", name, how, sb.StartedAt, sb.EndAt, before.StartedAt, end)
				}
			}
			show("alone", s.get(t, before.ID), time.Hour)
			show("in a list", *s.Page(lifecycle.Query{Running: true})[0], time.Hour)
			must.Do(t, s.Extend(before.ID, 2*time.Hour))
			show("extended", s.get(t, before.ID), 2*time.Hour)
			must.Do(t, s.SetLifetime(before.ID, time.Minute))
			show("set", s.get(t, before.ID), time.Minute)
			_ = s.Close()
		})
	}
}

// TestClockJumpsBetweenServers checks that a sandbox that outlives its server has no longer lifetime than
// the next server allows, if the host's clock was set back meanwhile.
func TestClockJumpsBetweenServers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{records: map[string]engine.Record{}}
		sb := func() lifecycle.Sandbox {
			r := c.registry(t)
			defer end(t, r)
			r.SetClock(365 * 24 * time.Hour)
			return create(t, r, time.Hour)
		}()
		next := c.registry(t)
		defer end(t, next)
		next.Advance(next.MaxLifetime() - 1)
		if _, err := next.Get(sb.ID); err != nil {
			t.Error(err)
		}
		next.Advance(1)
		if _, err := next.Get(sb.ID); reasonOf(err) != lifecycle.Expired {
			t.Errorf("got %v, want that its lifetime was over", err)
		}
	})
}

// TestSmallClockJumps checks that the end of a lifetime is told anew only if the host's clock was set by more
// than a second, so that it does not change by itself.
func TestSmallClockJumps(t *testing.T) {
	t.Parallel()
	for jump, moves := range map[time.Duration]bool{time.Second - 1: false, time.Second: false, -time.Second: false, time.Second + 1: true, -time.Second - 1: true} {
		synctest.Test(t, func(t *testing.T) {
			s := newStage(t)
			before := s.get(t, s.create(t))
			s.SetClock(jump)
			want := before.EndAt
			if moves {
				want = want.Add(jump)
			}
			if got := s.get(t, before.ID).EndAt; !got.Equal(want) {
				t.Errorf("set by %v: it ends at %v, want %v", jump, got, want)
			}
			_ = s.Close()
		})
	}
}
