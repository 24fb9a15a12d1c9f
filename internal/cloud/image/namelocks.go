package image

import (
	"context"
	"sync"
)

// nameLocks contains a lock for each name, so that only one call at a time works on the name. The
// zero value is ready to use.
type nameLocks struct {
	mu  sync.Mutex
	all map[string]*nameLock
}

type nameLock struct {
	free  chan struct{} // of capacity 1; full while a call has the lock
	users int
}

// lock waits for the lock of a name. The caller must call release. If ctx ends before lock gets the
// lock, lock returns the error of ctx.
func (t *nameLocks) lock(ctx context.Context, name string) (release func(), err error) {
	t.mu.Lock()
	if t.all == nil {
		t.all = map[string]*nameLock{}
	}
	one := t.all[name]
	if one == nil {
		one = &nameLock{free: make(chan struct{}, 1)}
		t.all[name] = one
	}
	one.users++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if one.users--; one.users == 0 {
			delete(t.all, name)
		}
	}
	select {
	case one.free <- struct{}{}:
		return func() { <-one.free; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}
