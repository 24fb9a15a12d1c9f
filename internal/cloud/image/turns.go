package image

import (
	"context"
	"sync"
)

// turns contains a lock for each name, so that only one call at a time works on the name. The
// zero value is ready to use.
type turns struct {
	mu  sync.Mutex
	all map[string]*turn
}

type turn struct {
	free  chan struct{} // of capacity 1; full while a call has the lock
	users int
}

// take waits for the lock of a name. The caller must call release. take returns the error of
// ctx if it ends first.
func (t *turns) take(ctx context.Context, name string) (release func(), err error) {
	t.mu.Lock()
	if t.all == nil {
		t.all = map[string]*turn{}
	}
	one := t.all[name]
	if one == nil {
		one = &turn{free: make(chan struct{}, 1)}
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
