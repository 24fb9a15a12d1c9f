// Package lifecycletest has sandboxes without anything in them, for tests of
// the registry and of what stands on it.
package lifecycletest

import (
	"context"
	"errors"
	"sync"

	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/network"
)

// Fakes launches fakes. It is safe for concurrent use once it is in use; its
// fields are set before that.
type Fakes struct {
	// Before is called by Launch with its context, before anything else.
	Before func(ctx context.Context)

	mu    sync.Mutex
	fail  error
	specs map[string]lifecycle.Spec
	made  map[string]*Fake
}

// Fake is a sandbox without anything in it.
type Fake struct {
	once sync.Once
	done chan struct{}
	err  error

	mu    sync.Mutex
	rules *network.Rules
}

// Launch makes a fake, as lifecycle.Options wants it.
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

// Fail makes each later Launch return err; nil ends that.
func (f *Fakes) Fail(err error) {
	f.mu.Lock()
	f.fail = err
	f.mu.Unlock()
}

// Spec returns what the sandbox of an id was launched with.
func (f *Fakes) Spec(id string) lifecycle.Spec {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.specs[id]
}

// Fake returns the sandbox of an id; nil when there never was one.
func (f *Fakes) Fake(id string) *Fake {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.made[id]
}

// IDs returns those of all sandboxes that were launched, in no order.
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

// Err says why it ended, once it has.
func (f *Fake) Err() error { return f.err }

// Close ends it.
func (f *Fake) Close() error { f.Die(errors.New("closed")); return nil }

// Die ends it by itself.
func (f *Fake) Die(err error) { f.once.Do(func() { f.err = err; close(f.done) }) }

// Ended reports whether it has ended.
func (f *Fake) Ended() bool {
	select {
	case <-f.done:
		return true
	default:
		return false
	}
}

// SetEgress keeps rules for [Fake.Rules].
func (f *Fake) SetEgress(rules *network.Rules) {
	f.mu.Lock()
	f.rules = rules
	f.mu.Unlock()
}

// Rules returns the last that were set; nil when none were.
func (f *Fake) Rules() *network.Rules {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rules
}
