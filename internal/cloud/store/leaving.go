package store

import (
	"context"
	"maps"
	"slices"
	"sync"
)

// leaving contains the directories that are being removed. Unlike a wait group, it allows
// adding directories while other goroutines wait.
type leaving struct {
	mu   sync.Mutex
	each map[chan struct{}]bool // one channel for each directory; it is closed when the directory is removed
}

// begin adds a directory. The caller must call gone once the directory is removed.
func (l *leaving) begin() (gone func()) {
	done := make(chan struct{})
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.each == nil {
		l.each = map[chan struct{}]bool{}
	}
	l.each[done] = true
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.each, done)
		close(done)
	}
}

// wait waits until the directories that were added so far are removed, or until ctx ends.
func (l *leaving) wait(ctx context.Context) {
	l.mu.Lock()
	begun := slices.Collect(maps.Keys(l.each))
	l.mu.Unlock()
	for _, done := range begun {
		select {
		case <-done:
		case <-ctx.Done():
			return
		}
	}
}
