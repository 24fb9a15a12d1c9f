package sandbox

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestPoolKeepsWhatWasNotChecked checks that a Get that is given up says nothing about the sandbox that it was checking.
func TestPoolKeepsWhatWasNotChecked(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	check := func(checking context.Context, _ *Sandbox) error {
		cancel()
		<-checking.Done()
		return checking.Err()
	}
	inPool(t, &PoolParams{Check: check}, nil, func(t *testing.T, f *farm, p *Pool) {
		synctest.Wait()
		if sb, err := p.Get(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v and error %v, want %v", sb, err, context.Canceled)
		}
		synctest.Wait() // the pool may have created another one meanwhile
		got := p.Stats()
		if want := (PoolStats{Warm: int(got.Created), Created: max(got.Created, 1)}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})
}

// TestPoolPutsBack checks who receives a sandbox that is put back.
func TestPoolPutsBack(t *testing.T) {
	t.Parallel()
	inPool(t, &PoolParams{Warm: 2}, nil, func(t *testing.T, _ *farm, p *Pool) {
		synctest.Wait()
		first, _, err := p.take()
		must.Do(t, err)
		p.putBack(first)
		if sb := get(t, p); sb != first {
			t.Error("a sandbox that was put back is not the next")
		} else {
			must.Do(t, sb.Close())
		}
		synctest.Wait()
		taken, _, err := p.take()
		must.Do(t, err)
		waiter := &poolWaiter{make(chan poolAnswer, 1)}
		p.mu.Lock()
		p.waiting = append(p.waiting, waiter)
		p.mu.Unlock()
		p.putBack(taken)
		if a := <-waiter.answer; a.sb != taken || a.err != nil || p.Stats().InUse != 1 {
			t.Errorf("the waiting call received %v and error %v, %d are in use", a.sb, a.err, p.Stats().InUse)
		}
		p.release(taken)
		must.Do(t, taken.Close())
		last, _, err := p.take()
		must.Do(t, err)
		must.Do(t, p.begin())
		closed := make(chan error)
		go func() { closed <- p.Close() }()
		synctest.Wait()
		p.putBack(last)
		p.work.Done()
		if err := <-closed; err != nil || p.Stats().Discarded == 0 {
			t.Errorf("Close: got error %v, %d were discarded", err, p.Stats().Discarded)
		}
	})
}

// TestPoolWithdraws checks that a sandbox that somebody has taken is not withdrawn, too.
func TestPoolWithdraws(t *testing.T) {
	t.Parallel()
	a, b, c := &Sandbox{}, &Sandbox{}, &Sandbox{}
	p := &Pool{warm: []*Sandbox{a, b}, lent: 1}
	for _, test := range []struct {
		sb    *Sandbox
		found bool
		lent  int
	}{{c, false, 1}, {a, true, 2}, {a, false, 2}, {b, true, 3}} {
		if found := p.withdraw(test.sb); found != test.found || p.lent != test.lent || slices.Contains(p.warm, test.sb) {
			t.Errorf("withdraw: got %v, %d lent, %d warm, want %v and %d", found, p.lent, len(p.warm), test.found, test.lent)
		}
	}
	p.closed = true
	if sb, w, err := p.take(); !errors.Is(err, ErrClosed) || sb != nil || w != nil || len(p.waiting) > 0 {
		t.Errorf("take, closed: got %v, %v and error %v", sb, w, err)
	}
}

// TestPoolGivesWhatCame checks that a sandbox that is given to a Get at the moment of its end is not lost, and that an error then is
// that of the context.
func TestPoolGivesWhatCame(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	mine := errors.New("mine")
	for range 30 { // select chooses at random
		w := &poolWaiter{make(chan poolAnswer, 1)}
		sb := &Sandbox{}
		w.answer <- poolAnswer{sb: sb}
		if got, err := (&Pool{}).wait(ended, w); got != sb || err != nil {
			t.Fatalf("got %v and error %v, want the sandbox", got, err)
		}
		w.answer <- poolAnswer{err: mine}
		if got, err := (&Pool{failure: mine}).wait(ended, w); got != nil || !errors.Is(err, mine) {
			t.Fatalf("got %v and error %v, want %v", got, err, mine)
		}
	}
	other, w := &poolWaiter{}, &poolWaiter{make(chan poolAnswer, 1)}
	p := &Pool{waiting: []*poolWaiter{w, other}}
	if _, err := p.wait(ended, w); !errors.Is(err, context.Canceled) || len(p.waiting) != 1 || p.waiting[0] != other {
		t.Errorf("got error %v and %d waiting, want %v and the other", err, len(p.waiting), context.Canceled)
	}
}

// TestPoolHasRoomAgain checks when a sandbox that was closed lets the pool try again at once.
func TestPoolHasRoomAgain(t *testing.T) {
	t.Parallel()
	limit, later := &api.Error{StatusCode: http.StatusTooManyRequests}, &api.Error{StatusCode: http.StatusTooManyRequests, RetryAfter: time.Second}
	for _, test := range []struct {
		failure error
		again   bool
	}{{limit, true}, {later, false}, {&api.Error{StatusCode: http.StatusInternalServerError}, false}, {nil, false}} {
		p := &Pool{kick: make(chan struct{}, 1), lent: 1, failure: test.failure, resume: time.Unix(1, 0)}
		p.release(&Sandbox{remote: &api.Sandbox{ID: "i"}})
		if p.resume.IsZero() != test.again || p.lent != 0 || len(p.kick) != 1 {
			t.Errorf("%v: resumes at %v, %d lent, woken %d times, want at once: %v", test.failure, p.resume, p.lent, len(p.kick), test.again)
		}
	}
}

// TestPoolChecks checks which waiting sandboxes are fit, and that one check of all does not begin during another.
func TestPoolChecks(t *testing.T) {
	t.Parallel()
	const least = time.Minute
	inPool(t, &PoolParams{MinLifetime: least}, nil, func(t *testing.T, f *farm, p *Pool) {
		synctest.Wait()
		sb := get(t, p)
		defer sb.Close()
		for left, fit := range map[time.Duration]bool{least: true, least - 1: false, 0: false} {
			sb.endAt = time.Now().Add(left)
			if err := p.fit(t.Context(), sb); (err == nil) != fit {
				t.Errorf("%v of its life is left: got error %v, want it to be fit: %v", left, err, fit)
			}
		}
		sb.endAt = time.Now().Add(time.Hour)
		for status, fit := range map[int]bool{204: true, 299: true, 300: false, 500: false} {
			f.set(func() { f.unwell[sb.ID()] = status })
			if err := p.fit(t.Context(), sb); (err == nil) != fit {
				t.Errorf("the daemon answers %d: got error %v, want it to be fit: %v", status, err, fit)
			}
		}
		f.set(func() { delete(f.unwell, sb.ID()) })
		synctest.Wait()
		warm := p.Stats().Warm
		f.set(func() {
			for id := range f.alive {
				f.unwell[id] = 500
			}
		})
		p.checking = true
		p.checkAll()
		synctest.Wait()
		if got := p.Stats(); got.Warm != warm || got.Discarded != 0 {
			t.Errorf("a second check at the same time has discarded %d", got.Discarded)
		}
		p.checking = false
		p.checkAll()
		synctest.Wait()
		if got := p.Stats(); got.Discarded != int64(warm) || p.checking {
			t.Errorf("a check has discarded %d of %d, is under way: %v", got.Discarded, warm, p.checking)
		}
	})
}

// TestPoolClosesWhatComesLate checks that a sandbox whose preparation ends after Close is ended, and that Close returns the
// error of one that the service does not end.
func TestPoolClosesWhatComesLate(t *testing.T) {
	t.Parallel()
	prepare := func(ctx context.Context, _ *Sandbox) error {
		<-ctx.Done()
		return nil
	}
	var events []PoolEventType
	inPool(t, &PoolParams{Prepare: prepare, OnEvent: func(e PoolEvent) { events = append(events, e.Type) }}, nil, func(t *testing.T, f *farm, p *Pool) {
		synctest.Wait()
		if n := len(f.ids()); n != 1 {
			t.Errorf("%d sandboxes are being prepared, want 1", n)
		}
	})
	if !slices.Equal(events, []PoolEventType{PoolCreated, PoolDiscarded}) {
		t.Errorf("got the events %v, want that it was created and discarded", events)
	}
	synctest.Test(t, func(t *testing.T) {
		f := newFarm()
		f.kill = http.StatusForbidden
		c, err := NewClient(WithAPIKey(testKey), WithEnvFile(""), WithMaxRetries(0), WithTransport(f))
		must.Do(t, err)
		pool, err := c.NewPool(nil)
		must.Do(t, err)
		synctest.Wait()
		for range 2 {
			if err := pool.Close(); !errors.Is(err, api.ErrForbidden) || !strings.Contains(err.Error(), "close i1") {
				t.Errorf("Close: got error %v, want that i1 was not closed", err)
			}
		}
		must.Do(t, c.Close())
	})
}

// TestEventsOfAPool checks every field of the events of a pool.
func TestEventsOfAPool(t *testing.T) {
	t.Parallel()
	const slow = 3 * time.Second
	unfit := errors.New("unfit")
	var mu sync.Mutex
	var events []PoolEvent
	params := &PoolParams{
		MaxSandboxes: 2,
		Check: func(_ context.Context, sb *Sandbox) error {
			if sb.ID() == "i3" {
				return unfit
			}
			return nil
		},
		OnEvent: func(e PoolEvent) {
			mu.Lock()
			defer mu.Unlock()
			events = append(events, e)
		},
	}
	inPool(t, params, nil, func(t *testing.T, f *farm, p *Pool) {
		synctest.Wait()
		f.set(func() { f.slow = slow })
		first := get(t, p)
		second, err := p.Get(t.Context()) // which it waits for
		must.Do(t, err)
		must.Do(t, second.Close())
		<-time.After(slow) // the third one waits in the pool
		synctest.Wait()
		f.set(func() {
			f.refuse = func() *http.Response {
				return answered(http.StatusServiceUnavailable, "", `{"code":503,"message":"no"}`)
			}
		})
		ctx, cancel := context.WithTimeout(t.Context(), slow+time.Millisecond)
		defer cancel()
		if _, err := p.Get(ctx); err == nil {
			t.Error("got the third sandbox")
		}
		must.Do(t, first.Close())
	})
	want := []PoolEvent{
		{Type: PoolCreated, Sandbox: "i1"}, {Type: PoolTaken, Sandbox: "i1"}, {Type: PoolCreated, Sandbox: "i2", Duration: slow}, {Type: PoolTaken, Sandbox: "i2", Duration: slow},
		{Type: PoolReleased, Sandbox: "i2"}, {Type: PoolCreated, Sandbox: "i3", Duration: slow}, {Type: PoolDiscarded, Sandbox: "i3", Err: unfit},
		{Type: PoolFailed, Duration: slow, Err: api.ErrUnavailable}, {Type: PoolReleased, Sandbox: "i1"},
	}
	if diff := cmp.Diff(want, events, cmpopts.EquateErrors()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}
