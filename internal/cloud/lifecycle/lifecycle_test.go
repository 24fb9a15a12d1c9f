package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle/lifecycletest"
	"github.com/e2bctl/e2bctl/internal/cloud/network"
	"github.com/e2bctl/e2bctl/internal/cloud/store"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var base = lifecycle.Template{ID: "localbasetemplate000", Alias: "base", Engine: engine.Room}

func everything(*lifecycle.Sandbox) bool { return true }

func create(t *testing.T, r *lifecycle.Registry, lifetime time.Duration) lifecycle.Sandbox {
	t.Helper()
	sb, err := r.Create(t.Context(), lifecycle.Request{Template: base, Lifetime: lifetime})
	must.Do(t, err)
	return sb
}

// TestExpiry checks that the evictor ends a sandbox when its lifetime is over, without any
// request.
func TestExpiry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &lifecycletest.Fakes{}
		r := lifecycle.New(lifecycle.Options{Store: store.Temporary(t.TempDir()), Launch: f.Launch})
		defer end(t, r)
		const many = 8 // the registry looks at them in any order
		var sandboxes []lifecycle.Sandbox
		for n := range many {
			sandboxes = append(sandboxes, create(t, r, time.Duration(many-n)*30*time.Second))
		}
		check := func(after time.Duration, sb lifecycle.Sandbox, want bool) {
			t.Helper()
			<-time.After(after)
			synctest.Wait()
			if got := f.Fake(sb.ID).Ended(); got != want {
				t.Errorf("ended: %v, want %v", got, want)
			}
		}
		for _, sb := range slices.Backward(sandboxes) {
			check(29*time.Second, sb, false)
			check(time.Second, sb, true)
		}
	})
}

// TestEnds checks that the reason for each sandbox's end is remembered, and
// that its place becomes free again.
func TestEnds(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		end    func(t *testing.T, r *lifecycle.Registry, f *lifecycletest.Fake, id string)
		how    string
		reason lifecycle.Reason
		words  string // text for everybody who knows the id
	}{
		"killed": {func(t *testing.T, r *lifecycle.Registry, _ *lifecycletest.Fake, id string) {
			if err := r.Kill(id); err != nil {
				t.Error(err)
			}
		}, "it was killed by request", lifecycle.Killed, "it was killed"},
		"died": {func(_ *testing.T, _ *lifecycle.Registry, f *lifecycletest.Fake, _ string) {
			f.Die(errors.New("no envd"))
		}, "it died: no envd", lifecycle.Died, "it died"},
		"expired": {func(_ *testing.T, r *lifecycle.Registry, _ *lifecycletest.Fake, _ string) {
			r.Advance(time.Hour)
		}, "its lifetime was over", lifecycle.Expired, "its lifetime was over"},
		"out of memory": {func(_ *testing.T, _ *lifecycle.Registry, f *lifecycletest.Fake, _ string) {
			f.Die(fmt.Errorf("envd: %w", engine.ErrOutOfMemory))
		}, "it died: envd: out of memory", lifecycle.OutOfMemory, "it ran out of memory"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := &lifecycletest.Fakes{}
				r := lifecycle.New(lifecycle.Options{Store: store.Temporary(t.TempDir()), Launch: f.Launch, MaxSandboxes: 1})
				defer end(t, r)
				sb := create(t, r, time.Hour)
				if _, err := r.Create(t.Context(), lifecycle.Request{Template: base, Lifetime: time.Hour}); !isLimit(err) {
					t.Errorf("a second sandbox where one may be: %v, want a LimitError", err)
				}
				if words := r.Ended(sb.ID); words != "" {
					t.Errorf("got that it ended because %q while it runs", words)
				}
				tt.end(t, r, f.Fake(sb.ID), sb.ID)
				synctest.Wait()
				if words := r.Ended(sb.ID); words != tt.words {
					t.Errorf("got %q for everybody, want %q", words, tt.words)
				}
				_, err := r.Get(sb.ID)
				gone, ok := errors.AsType[*lifecycle.NotFoundError](err)
				if !ok || gone.How != tt.how || gone.Reason != tt.reason || gone.EndedAt.IsZero() {
					t.Errorf("after its end Get returns %v, want a NotFoundError of %v that says %q", err, tt.reason, tt.how)
				}
				if !f.Fake(sb.ID).Ended() {
					t.Error("its instance was not closed")
				}
				create(t, r, time.Hour)
			})
		})
	}
}

func isLimit(err error) bool {
	_, ok := errors.AsType[*lifecycle.LimitError](err)
	return ok
}

// TestRecordsAreSnapshots checks that returned records do not change, and that refused rules change no record.
func TestRecordsAreSnapshots(t *testing.T) {
	t.Parallel()
	f := &lifecycletest.Fakes{}
	r := lifecycle.New(lifecycle.Options{Store: store.Temporary(t.TempDir()), Launch: f.Launch})
	defer end(t, r)
	sb, err := r.Create(t.Context(), lifecycle.Request{Template: base, Lifetime: time.Hour, Network: &lifecycle.Network{DenyOut: []string{"10.0.0.0/8"}}})
	must.Do(t, err)
	must.Do(t, r.SetEgress(sb.ID, lifecycle.Network{DenyOut: []string{"0.0.0.0/0"}}, nil))
	must.Do(t, r.Extend(sb.ID, 2*time.Hour))
	after, err := r.Get(sb.ID)
	must.Do(t, err)
	// These rules are valid without internet access only, which is not kept for the next resume.
	only := lifecycle.Network{Requests: map[string][]network.Request{"api.test": {{Path: "/a"}}}}
	rules, err := only.Rules(new(false))
	must.Do(t, err)
	withRules, err := r.Create(t.Context(), lifecycle.Request{Template: base, Lifetime: time.Hour, Headers: true})
	must.Do(t, err)
	if _, refused := errors.AsType[*lifecycle.RefusedError](r.SetEgress(withRules.ID, only, rules)); !refused {
		t.Error("rules with which the sandbox could not be resumed were accepted")
	}
	if unchanged, err := r.Get(withRules.ID); err != nil || unchanged.Network != nil {
		t.Errorf("after a refusal the sandbox has the network %+v, error %v", unchanged.Network, err)
	}
	if got := sb.Network.DenyOut[0]; got != "10.0.0.0/8" {
		t.Errorf("the old record says %s is denied now, want %q", got, "10.0.0.0/8")
	}
	if got := after.Network.DenyOut[0]; got != "0.0.0.0/0" {
		t.Errorf("the new record says %s is denied, want %q", got, "0.0.0.0/0")
	}
	if !after.EndAt.After(sb.EndAt) {
		t.Errorf("extended from %v to %v", sb.EndAt, after.EndAt)
	}
}

// TestIdempotencyIsBounded checks that only a limited number of idempotency keys is remembered: the
// newest.
func TestIdempotencyIsBounded(t *testing.T) {
	t.Parallel()
	f := &lifecycletest.Fakes{}
	const kept = 1000
	r := lifecycle.New(lifecycle.Options{Store: store.Temporary(t.TempDir()), Launch: f.Launch, MaxSandboxes: 2 * kept})
	defer end(t, r)
	once := func(i int) string {
		sb, err := r.CreateOnce(t.Context(), fmt.Sprint("key-", i), lifecycle.Request{Template: base, Lifetime: time.Hour})
		must.Do(t, err)
		return sb.ID
	}
	first, second := once(0), once(1)
	for i := 2; i <= kept; i++ {
		once(i)
	}
	if got := once(1); got != second {
		t.Errorf("the key of the second request made %s, want the sandbox it had made, %s", got, second)
	}
	if got := once(0); got == first {
		t.Error("the key of the first request is still remembered")
	}
}

// TestIdempotencyOfFailures checks that after a failure, the same key can be used for the same
// request and for a different one.
func TestIdempotencyOfFailures(t *testing.T) {
	t.Parallel()
	f := &lifecycletest.Fakes{}
	r := lifecycle.New(lifecycle.Options{Store: store.Temporary(t.TempDir()), Launch: f.Launch})
	defer end(t, r)
	for name, again := range map[string]lifecycle.Request{"the same": {Template: base, Lifetime: time.Hour}, "another": {Template: base, Lifetime: time.Minute}} {
		cause := errors.New("no namespaces left")
		f.Fail(cause)
		_, err := r.CreateOnce(t.Context(), name, lifecycle.Request{Template: base, Lifetime: time.Hour})
		must.Is(t, err, cause)
		f.Fail(nil)
		made, err := r.CreateOnce(patience.Context(t), name, again)
		must.Do(t, err)
		if repeated, err := r.CreateOnce(t.Context(), name, again); err != nil || repeated.ID != made.ID {
			t.Errorf("%s: got %s and error %v, want the sandbox %s that was made", name, repeated.ID, err, made.ID)
		}
	}
}

// TestFailedLaunches checks that a launch that fails, or whose client has gone away, leaves nothing
// behind.
func TestFailedLaunches(t *testing.T) {
	t.Parallel()
	f := &lifecycletest.Fakes{}
	ended := map[string]int{}
	wantEnded := func(what string, want int) {
		t.Helper()
		if len(ended) != want {
			t.Errorf("after %s: got told of the ends of %v, want of %d", what, ended, want)
		}
		for id, n := range ended {
			if n != 1 {
				t.Errorf("after %s: got told %d times that %s has ended", what, n, id)
			}
		}
	}
	r := lifecycle.New(lifecycle.Options{Store: store.Temporary(t.TempDir()), Launch: f.Launch, MaxSandboxes: 1, Ended: func(id string) { ended[id]++ }})
	cause := errors.New("no namespaces left")
	f.Fail(cause)
	request := lifecycle.Request{Template: base, Lifetime: time.Hour}
	_, err := r.Create(t.Context(), request)
	if _, ok := errors.AsType[*lifecycle.LaunchError](err); !ok || !errors.Is(err, cause) {
		t.Errorf("got %v, want a LaunchError that wraps the cause", err)
	}
	wantEnded("a failed launch", 1)
	f.Fail(nil)
	ctx, cancel := context.WithCancel(t.Context())
	f.Before = func(context.Context) { cancel() }
	if _, err := r.Create(ctx, request); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	f.Before = nil
	wantEnded("a launch that was given up", 2)
	for _, id := range f.IDs() {
		_, err := r.Get(id)
		if gone, ok := errors.AsType[*lifecycle.NotFoundError](err); !ok || gone.Reason != lifecycle.Killed || gone.How != "the client that created it was gone" {
			t.Errorf("after a launch that was given up: got error %v, want why it ended", err)
		}
	}
	if left := r.List(everything); len(left) != 0 {
		t.Errorf("%d sandboxes are left, want none", len(left))
	}
	create(t, r, time.Hour)
	if _, err := r.Create(t.Context(), request); !isLimit(err) {
		t.Errorf("got %v, want a LimitError", err)
	}
	wantEnded("one that was not launched", 2)
	must.Do(t, end(t, r))
	wantEnded("the end", 3)
}
