package sandbox

import (
	"context"
	"sync"
)

const (
	// maxBacklog limits the bytes of output that wait for their consumer.
	maxBacklog = 256 << 10
	// entryCost is the number of bytes that are counted for each entry in addition to its own bytes.
	entryCost = 128
)

// backlog is a bounded queue between the reader of a stream and the consumer of its entries. If the
// queue is full and there is a consumer, the reader waits. If it is full and there is no consumer,
// the queue drops its oldest entries and counts their bytes.
type backlog[T any] struct {
	room, news chan struct{} // room wakes the reader that pushes entries; news wakes the consumer

	mu      sync.Mutex
	entries []entry[T]
	size    int
	dropped int64
	taken   bool
}

type entry[T any] struct {
	value T
	bytes int
}

func newBacklog[T any]() *backlog[T] {
	return &backlog[T]{room: make(chan struct{}, 1), news: make(chan struct{}, 1)}
}

// push adds a value of the given number of bytes. If ctx ends while push waits, the value is
// lost.
func (b *backlog[T]) push(ctx context.Context, value T, bytes int) {
	for !b.add(entry[T]{value, bytes}) {
		select {
		case <-b.room:
		case <-ctx.Done():
			return
		}
	}
	wake(b.news)
}

func (b *backlog[T]) add(e entry[T]) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.entries) > 0 && b.size+e.bytes+entryCost > maxBacklog {
		if b.taken {
			return false
		}
		b.dropped += int64(b.first().bytes)
	}
	b.entries = append(b.entries, e)
	b.size += e.bytes + entryCost
	return true
}

// first removes the oldest entry and returns it.
func (b *backlog[T]) first() entry[T] {
	e := b.entries[0]
	b.entries[0] = entry[T]{}
	b.entries = b.entries[1:]
	b.size -= e.bytes + entryCost
	return e
}

// pop removes the oldest value and returns it. If the queue is empty, ok is false. If bytes were
// dropped before the value, pop only returns the number of these bytes, and ok is false. The next
// call then returns the value.
func (b *backlog[T]) pop() (value T, ok bool, dropped int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if dropped, b.dropped = b.dropped, 0; dropped > 0 || len(b.entries) == 0 {
		return value, false, dropped
	}
	value = b.first().value
	wake(b.room)
	return value, true, 0
}

// take makes the caller the consumer, and returns true. If there already is a consumer, it returns
// false and does nothing else. The caller stays the consumer until it calls give.
func (b *backlog[T]) take() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.taken {
		return false
	}
	b.taken = true
	return true
}

func (b *backlog[T]) give() {
	b.mu.Lock()
	b.taken = false
	b.mu.Unlock()
	wake(b.room)
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
