//go:build linux

package interpreter

import (
	"context"

	"golang.org/x/sync/semaphore"
)

// outbox contains the output that waits to be written to one client: at most outboxBytes, or a single
// frame that is larger. Each frame counts as at least outboxFrame bytes. This bounds the number of
// frames.
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

// tryPush adds a frame. It returns false if there is no space now.
func (o *outbox) tryPush(f frame) bool {
	if !o.room.TryAcquire(f.weight()) {
		return false
	}
	o.frames <- f // does not block: the weights bound the number of frames
	return true
}

// push waits for space and adds a frame. It returns false if ctx ends first.
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

// taken frees the space of f after f has been written.
func (o *outbox) taken(f frame) { o.room.Release(f.weight()) }
