package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/must"
)

// farm is a service of many sandboxes without a network, for bubbles of synctest.
type farm struct {
	mu      sync.Mutex
	made    int
	alive   map[string]bool
	most    int                   // the most that were alive at once
	slow    time.Duration         // how long a creation takes
	refuse  func() *http.Response // answers a creation; nil or a nil answer: there is one
	unwell  map[string]int        // statuses of the daemons' health
	refresh int                   // status of the answer to a renewal; 0 is success
	kill    int                   // status of the answer to a kill; 0 is success
}

func newFarm() *farm { return &farm{alive: map[string]bool{}, unwell: map[string]int{}} }

func answered(status int, header, body string) *http.Response {
	h := http.Header{}
	if name, value, ok := strings.Cut(header, ": "); ok {
		h.Set(name, value)
	}
	return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader(body))}
}

func (f *farm) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		_, _ = io.Copy(io.Discard, r.Body)
		_ = r.Body.Close()
	}
	create := r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/sandboxes")
	f.mu.Lock()
	slow := f.slow
	f.mu.Unlock()
	if create && slow > 0 {
		select {
		case <-time.After(slow):
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	asked := r.Header.Get("E2b-Sandbox-Id")
	switch {
	case create && f.refuse != nil:
		if refused := f.refuse(); refused != nil {
			return refused, nil
		}
		fallthrough
	case create:
		f.made++
		id := fmt.Sprintf("i%d", f.made)
		f.alive[id] = true
		f.most = max(f.most, len(f.alive))
		return answered(201, "", `{"sandboxID":"`+id+`"}`), nil
	case asked != "" && !f.alive[asked]:
		return answered(502, "", `{"sandboxId":"`+asked+`","message":"The sandbox was not found","code":502}`), nil
	case asked != "" && f.unwell[asked] > 0:
		return answered(f.unwell[asked], "", ""), nil
	case r.Method == http.MethodDelete && f.kill != 0:
		return answered(f.kill, "", `{"code":403,"message":"no"}`), nil
	case r.Method == http.MethodDelete:
		delete(f.alive, r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:])
	case strings.HasSuffix(r.URL.Path, "/refreshes") && f.refresh != 0:
		return answered(f.refresh, "", `{"code":500,"message":"no"}`), nil
	}
	return answered(204, "", ""), nil
}

// set changes the farm while it is in use.
func (f *farm) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *farm) ids() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.alive))
}

// peak returns how many sandboxes were alive at once.
func (f *farm) peak() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.most
}

// inPool runs a test with a pool, in a bubble, and checks that nothing is left.
func inPool(t *testing.T, p *PoolParams, opts []CreateOption, test func(*testing.T, *farm, *Pool)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := newFarm()
		c, err := NewClient(WithAPIKey(testKey), WithEnvFile(""), WithMaxRetries(0), WithTransport(f))
		must.Do(t, err)
		pool, err := c.NewPool(p, opts...)
		must.Do(t, err)
		test(t, f, pool)
		if err := pool.Close(); err != nil {
			t.Error(err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if left := f.ids(); len(left) > 0 {
			t.Errorf("after Close %v are left, want none", left)
		}
		if got := pool.Stats(); got.Warm+got.Starting+got.InUse+got.Waiting != 0 {
			t.Errorf("after Close the pool has %+v, want nothing", got)
		}
	})
}

// get takes a sandbox that must be there at once.
func get(t *testing.T, p *Pool) *Sandbox {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	sb, err := p.Get(ctx)
	must.Do(t, err)
	return sb
}

func TestPoolRefills(t *testing.T) {
	t.Parallel()
	inPool(t, &PoolParams{Warm: 2}, nil, func(t *testing.T, f *farm, p *Pool) {
		f.set(func() { f.slow = time.Second })
		<-time.After(2 * time.Second)
		first, second := get(t, p), get(t, p)
		synctest.Wait()
		if diff := cmp.Diff(PoolStats{Starting: 2, InUse: 2, Created: 2, Taken: 2}, p.Stats()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		begun := time.Now()
		third, err := p.Get(t.Context()) // none is ready
		if err != nil || time.Since(begun) > time.Second {
			t.Fatalf("Get took %v: %v, want no longer than a creation", time.Since(begun), err)
		}
		<-time.After(2 * time.Second)
		if got := p.Stats(); got.Warm != 2 {
			t.Errorf("%+v, want 2 warm", got)
		}
		for _, sb := range []*Sandbox{first, second, third} {
			if err := sb.Close(); err != nil {
				t.Error(err)
			}
		}
		if diff := cmp.Diff(PoolStats{Warm: 2, Created: 5, Taken: 3}, p.Stats()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func TestPoolReplacesTheUnfit(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]func(*farm){
		"killed":     func(f *farm) { delete(f.alive, "i1") },
		"unwell":     func(f *farm) { f.unwell["i1"] = 503 },
		"all killed": func(f *farm) { clear(f.alive) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inPool(t, &PoolParams{Warm: 2}, nil, func(t *testing.T, f *farm, p *Pool) {
				synctest.Wait()
				f.set(func() { harm(f) })
				sb := get(t, p)
				defer sb.Close()
				if sb.ID() == "i1" || !slices.Contains(f.ids(), sb.ID()) {
					t.Errorf("got %s of %v, want one that is well", sb.ID(), f.ids())
				}
			})
			// Nobody asks, and it is noticed all the same.
			inPool(t, &PoolParams{Warm: 2}, nil, func(t *testing.T, f *farm, p *Pool) {
				synctest.Wait()
				f.set(func() { harm(f) })
				<-time.After(poolCheckEvery + time.Second)
				if got := p.Stats(); got.Warm != 2 || got.Discarded == 0 || len(f.ids()) != 2 {
					t.Errorf("%+v of %v, want 2 warm and others discarded", got, f.ids())
				}
			})
		})
	}
}

func TestPoolChecksAndPrepares(t *testing.T) {
	t.Parallel()
	var prepared sync.Map
	var events sync.Map
	params := &PoolParams{
		Warm: 3,
		Prepare: func(_ context.Context, sb *Sandbox) error {
			prepared.Store(sb.ID(), true)
			if sb.ID() == "i2" {
				return errors.New("not this one")
			}
			return nil
		},
		Check: func(_ context.Context, sb *Sandbox) error {
			if sb.ID() == "i1" {
				return errors.New("nor this one")
			}
			return nil
		},
		OnEvent: func(e PoolEvent) { events.Store(string(e.Type)+" "+e.Sandbox, e.Err) },
	}
	inPool(t, params, nil, func(t *testing.T, _ *farm, p *Pool) {
		<-time.After(time.Minute)
		sb := get(t, p)
		if id := sb.ID(); id == "i1" || id == "i2" {
			t.Errorf("got %s, want another", id)
		}
		sb.Close()
		for _, id := range []string{"i1", "i2", sb.ID()} {
			if _, ok := prepared.Load(id); !ok {
				t.Errorf("%s was not prepared", id)
			}
		}
		for _, event := range []string{"created i1", "discarded i1", "failed ", "taken " + sb.ID(), "released " + sb.ID()} {
			if _, ok := events.Load(event); !ok {
				t.Errorf("no event %q", event)
			}
		}
	})
}

func TestPoolReplacesTheOld(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		opts      []CreateOption
		least     time.Duration
		refresh   int
		discarded bool
	}{
		"a fixed life":                {[]CreateOption{WithExpiry(Expiry{After: 8 * time.Minute})}, 0, 0, true},
		"more than half of it":        {[]CreateOption{WithExpiry(Expiry{After: 60 * time.Minute})}, 30 * time.Minute, 0, false},
		"a long life":                 {[]CreateOption{WithExpiry(Expiry{After: 600 * time.Minute})}, 0, 0, false},
		"a lease":                     {nil, 0, 0, false},
		"a lease that is not renewed": {nil, 0, 500, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inPool(t, &PoolParams{MinLifetime: test.least}, test.opts, func(t *testing.T, f *farm, p *Pool) {
				f.set(func() { f.refresh = test.refresh })
				for range 8 {
					<-time.After(5 * time.Minute)
					sb := get(t, p)
					if left := time.Until(sb.end()); left < p.params.MinLifetime {
						t.Errorf("%v is left of the life of %s, want %v", left, sb.ID(), p.params.MinLifetime)
					}
					sb.Close()
				}
				if got := p.Stats(); got.Discarded > 0 != test.discarded {
					t.Errorf("%+v, want discarded: %t", got, test.discarded)
				}
			})
		})
	}
}

func TestPoolLimit(t *testing.T) {
	t.Parallel()
	inPool(t, &PoolParams{Warm: 2, MaxSandboxes: 3}, nil, func(t *testing.T, f *farm, p *Pool) {
		var held []*Sandbox
		for range 3 {
			sb, err := p.Get(t.Context())
			must.Do(t, err)
			held = append(held, sb)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := p.Get(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Get over the limit: %v, want it to wait", err)
		}
		time.AfterFunc(time.Second, func() { held[0].Close() })
		sb, err := p.Get(t.Context())
		must.Do(t, err)
		for _, sb := range append(held[1:], sb) {
			sb.Close()
		}
		if got := f.peak(); got != 3 {
			t.Errorf("%d sandboxes at once, want 3", got)
		}
	})
}

func TestPoolOutlastsTheService(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		refusal func() *http.Response
		down    time.Duration
		most    int // tries meanwhile
		least   time.Duration
	}{
		"down":        {func() *http.Response { return answered(503, "", `{}`) }, 5 * time.Minute, 25, 0},
		"a limit":     {func() *http.Response { return answered(429, "", `{}`) }, 5 * time.Minute, 25, 0},
		"later":       {func() *http.Response { return answered(429, "Retry-After: 90", `{}`) }, 80 * time.Second, 1, 90 * time.Second},
		"a short one": {func() *http.Response { return answered(502, "", `{}`) }, time.Second, 8, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f, tries := newFarm(), 0
				begun := time.Now()
				f.refuse = func() *http.Response {
					if time.Since(begun) > test.down {
						return nil
					}
					tries++
					return test.refusal()
				}
				c, err := NewClient(WithAPIKey(testKey), WithEnvFile(""), WithMaxRetries(0), WithTransport(f))
				must.Do(t, err)
				defer c.Close()
				p, err := c.NewPool(&PoolParams{Warm: 5})
				must.Do(t, err)
				defer p.Close()
				ctx, cancel := context.WithTimeout(t.Context(), test.down/2)
				defer cancel()
				if _, err := p.Get(ctx); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, api.ErrRateLimited) && !errors.Is(err, api.ErrRetryable) {
					t.Errorf("Get while it is so: %v, want its deadline and the reason", err)
				}
				sb, err := p.Get(t.Context())
				must.Do(t, err)
				sb.Close()
				// The first tries begin together, for those that wait and for the call.
				if got := time.Since(begun); tries > test.most+5 || got < test.least || got > test.down+maxPoolBackoff {
					t.Errorf("%d tries in %v, want %d at most and %v at least", tries, got, test.most+5, test.least)
				}
				<-time.After(time.Second)
				if got := p.Stats(); got.Warm != 5 {
					t.Errorf("%+v, want 5 warm", got)
				}
			})
		})
	}
}

// TestPoolFailure checks that a failure that waiting does not cure is an error at once.
func TestPoolFailure(t *testing.T) {
	t.Parallel()
	inPool(t, nil, nil, func(t *testing.T, f *farm, p *Pool) {
		synctest.Wait()
		get(t, p).Close()
		synctest.Wait() // for the one that takes its place
		f.set(func() {
			clear(f.alive)
			f.refuse = func() *http.Response { return answered(404, "", `{"code":404,"message":"template not found"}`) }
		})
		for range 3 {
			begun := time.Now()
			if _, err := p.Get(t.Context()); !errors.Is(err, ErrUnknownTemplate) || time.Since(begun) > 0 {
				t.Errorf("Get: %v after %v, want %v at once", err, time.Since(begun), ErrUnknownTemplate)
			}
		}
		f.set(func() { f.refuse = nil })
		<-time.After(maxPoolBackoff)
		get(t, p).Close()
	})
}

func TestPoolParams(t *testing.T) {
	t.Parallel()
	c := newService(t).client()
	for name, test := range map[string]struct {
		params PoolParams
		opts   []CreateOption
		want   string
	}{
		"negative":        {PoolParams{Warm: -1}, nil, "want none below 0"},
		"limit":           {PoolParams{Warm: 2, MaxSandboxes: 1}, nil, "want a limit of at least the sandboxes that wait"},
		"lifetime":        {PoolParams{MinLifetime: time.Minute}, []CreateOption{WithExpiry(Expiry{After: time.Minute})}, "want at most half of the 1m0s"},
		"of the client":   {PoolParams{}, []CreateOption{WithMaxRetries(1)}, "NewPool: WithMaxRetries is an option of the client"},
		"an option's own": {PoolParams{}, []CreateOption{WithExpiry(Expiry{After: time.Second, Renew: true})}, "a lease of 1s"},
	} {
		if _, err := c.NewPool(&test.params, test.opts...); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q in it", name, err, test.want)
		}
	}
	edges := PoolParams{Warm: 2, MaxSandboxes: 2, MinLifetime: time.Minute}
	if _, err := edges.complete(&sandboxConfig{expiry: Expiry{After: 2 * time.Minute}}); err != nil {
		t.Errorf("at the bounds: got %v", err)
	}
	if err := (*Pool)(nil).Close(); err != nil {
		t.Errorf("Close of nil: got %v, want nil", err)
	}
}

// Close while sandboxes are being made, taken and waited for leaves none of them.
func TestPoolCloseDuringGet(t *testing.T) {
	t.Parallel()
	for _, slow := range []time.Duration{0, time.Second} {
		inPool(t, &PoolParams{Warm: 3, MaxSandboxes: 4}, nil, func(t *testing.T, f *farm, p *Pool) {
			f.set(func() { f.slow = slow })
			var takers, closers sync.WaitGroup
			for range 50 {
				takers.Go(func() {
					for {
						sb, err := p.Get(t.Context())
						if errors.Is(err, ErrClosed) {
							return
						}
						if err != nil {
							t.Error(err)
							return
						}
						<-time.After(10 * time.Millisecond)
						sb.Close()
					}
				})
			}
			<-time.After(5 * time.Second / 2)
			for range 3 {
				closers.Go(func() {
					if err := p.Close(); err != nil {
						t.Error(err)
					}
				})
			}
			closers.Wait()
			takers.Wait()
			if got := p.Stats(); got.Taken == 0 {
				t.Errorf("%+v, want some taken", got)
			}
		})
	}
}

// TestPoolClosesLate checks that Close of a pool does not wait for ever, and reports what has not ended.
func TestPoolClosesLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, err := NewClient(WithAPIKey(testKey), WithEnvFile(""), WithMaxRetries(0), WithTransport(newFarm()))
		must.Do(t, err)
		p, err := c.NewPool(nil)
		must.Do(t, err)
		p.work.Add(1)
		if err := p.Close(); err == nil || !strings.Contains(err.Error(), "did not end within") {
			t.Errorf("got error %v, want one about what did not end", err)
		}
		p.work.Done()
		must.Do(t, c.Close())
	})
}

// TestPoolUnderLoad makes thousands of calls and cancels some of them, while sandboxes
// die and the service falters: each sandbox has one owner, and the limit holds.
func TestPoolUnderLoad(t *testing.T) {
	t.Parallel()
	inPool(t, &PoolParams{Warm: 8, MaxSandboxes: 20}, nil, func(t *testing.T, f *farm, p *Pool) {
		n := 0
		f.set(func() {
			f.refuse = func() *http.Response {
				if n++; n%7 == 0 {
					return answered(503, "", `{}`)
				}
				return nil
			}
		})
		var owners sync.Map
		var calls sync.WaitGroup
		var taken, gaveUp int
		var mu sync.Mutex
		for i := range 3000 {
			calls.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				if i%5 == 0 {
					ctx, cancel = context.WithTimeout(t.Context(), time.Duration(i)*time.Millisecond)
				}
				defer cancel()
				sb, err := p.Get(ctx)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					gaveUp++
					if !errors.Is(err, context.DeadlineExceeded) {
						t.Error(err)
					}
					return
				}
				taken++
				if _, twice := owners.LoadOrStore(sb.ID(), true); twice {
					t.Errorf("%s was handed out twice", sb.ID())
				}
				if i%11 == 0 {
					f.set(func() { // one that waits dies
						for id := range f.alive {
							delete(f.alive, id)
							return
						}
					})
				}
				time.AfterFunc(time.Duration(i%13)*time.Millisecond, func() { sb.Close() })
			})
		}
		calls.Wait()
		<-time.After(time.Minute)
		if most := f.peak(); taken+gaveUp != 3000 || taken < 2400 || most > 20 {
			t.Errorf("%d taken, %d gave up, %d at once, want 3000 in all and 20 at once at most", taken, gaveUp, most)
		}
		if got := p.Stats(); got.Warm != 8 || got.InUse != 0 || got.Taken != int64(taken) {
			t.Errorf("%+v, want 8 warm, none in use and %d taken", got, taken)
		}
	})
}
