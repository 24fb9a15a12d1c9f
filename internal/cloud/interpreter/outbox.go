//go:build linux

package interpreter

import (
	"context"

	"golang.org/x/sync/semaphore"
)

// outbox holds what is on its way to one client: at most outboxBytes, or one
// frame that is larger. Each frame counts as outboxFrame at least, which bounds
// their number too.
const (
	outboxBytes = 4 << 20
	outboxFrame = 4 << 10
)

type frame struct{ data []byte }

type outbox struct {
	room   *semaphore.Weighted
	frames chan frame
}

func newOutbox() *outbox {
	return &outbox{room: semaphore.NewWeighted(outboxBytes), frames: make(chan frame, outboxBytes/outboxFrame)}
}

func (f frame) weight() int64 { return int64(min(max(len(f.data), outboxFrame), outboxBytes)) }

// tryPush reports false when there is no room now.
func (o *outbox) tryPush(f frame) bool {
	if !o.room.TryAcquire(f.weight()) {
		return false
	}
	o.frames <- f // there is room: the weights bound the number of frames
	return true
}

// push waits for room; it reports false when ctx ended first.
func (o *outbox) push(ctx context.Context, f frame) bool {
	if o.tryPush(f) {
		return true
	}
	if o.room.Acquire(ctx, f.weight()) != nil {
		return false
	}
	o.frames <- f
	return true
}

// taken makes room again once f has been written.
func (o *outbox) taken(f frame) { o.room.Release(f.weight()) }
