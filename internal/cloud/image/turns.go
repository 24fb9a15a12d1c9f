package image

import (
	"context"
	"sync"
)

// turns let one call at a time work on what has a name. The zero value is ready.
type turns struct {
	mu  sync.Mutex
	all map[string]*turn
}

type turn struct {
	free  chan struct{} // of one
	users int
}

// take waits for its turn, which the caller releases.
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
