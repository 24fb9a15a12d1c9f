// Package lifecycletest provides fake sandboxes with nothing in them, for tests
// of the registry and of packages that use it.
package lifecycletest

import (
	"context"
	"errors"
	"sync"

	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/network"
)

// Fakes launches fakes. Set its fields before using it; after that it is safe
// for concurrent use.
type Fakes struct {
	// Before is called by Launch with its context, before anything else.
	Before func(ctx context.Context)

	mu    sync.Mutex
	fail  error
	specs map[string]lifecycle.Spec
	made  map[string]*Fake
}

// Fake is a sandbox with nothing in it.
type Fake struct {
	once sync.Once
	done chan struct{}
	err  error

	mu    sync.Mutex
	rules *network.Rules
}

// Launch returns a new fake, as lifecycle.Options.Launch requires.
func (f *Fakes) Launch(ctx context.Context, spec lifecycle.Spec) (lifecycle.Instance, error) {
	if f.Before != nil {
		f.Before(ctx)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail != nil {
		return nil, f.fail
	}
	fake := &Fake{done: make(chan struct{})}
	if f.made == nil {
		f.specs, f.made = map[string]lifecycle.Spec{}, map[string]*Fake{}
	}
	f.specs[spec.ID], f.made[spec.ID] = spec, fake
	return fake, nil
}

// Fail makes every later Launch return err; with nil, Launch works again.
func (f *Fakes) Fail(err error) {
	f.mu.Lock()
	f.fail = err
	f.mu.Unlock()
}

// Spec returns the spec that the sandbox with an id was launched with.
func (f *Fakes) Spec(id string) lifecycle.Spec {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.specs[id]
}

// Fake returns the sandbox with an id, or nil if there never was one.
func (f *Fakes) Fake(id string) *Fake {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.made[id]
}

// IDs returns the ids of all sandboxes that were launched, in no particular
// order.
func (f *Fakes) IDs() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	ids := make([]string, 0, len(f.made))
	for id := range f.made {
		ids = append(ids, id)
	}
	return ids
}

// Done is closed when the fake has ended.
func (f *Fake) Done() <-chan struct{} { return f.done }

// Err returns why the fake ended, once it has.
func (f *Fake) Err() error { return f.err }

// Close ends the fake.
func (f *Fake) Close() error { f.Die(errors.New("closed")); return nil }

// Die ends the fake as if by itself.
func (f *Fake) Die(err error) { f.once.Do(func() { f.err = err; close(f.done) }) }

// Ended reports whether the fake has ended.
func (f *Fake) Ended() bool {
	select {
	case <-f.done:
		return true
	default:
		return false
	}
}

// SetEgress stores rules for [Fake.Rules].
func (f *Fake) SetEgress(rules *network.Rules) {
	f.mu.Lock()
	f.rules = rules
	f.mu.Unlock()
}

// Rules returns the rules that were set last, or nil if none were.
func (f *Fake) Rules() *network.Rules {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rules
}

// Pause, Resume, Save, Memory and Healthy do nothing.
func (f *Fake) Pause(context.Context) error { return nil }

// Resume does nothing.
func (f *Fake) Resume(context.Context) error { return nil }

// Save does nothing.
func (f *Fake) Save(context.Context, string) error { return nil }

// Memory returns 0.
func (f *Fake) Memory() int64 { return 0 }

// Healthy does nothing.
func (f *Fake) Healthy(context.Context) error { return nil }
