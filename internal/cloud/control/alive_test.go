package control

import (
	"log/slog"
	"sync"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/store"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestNoCallKeepsALock checks that each lock is free after the calls that take it. It runs before the
// tests that would wait for such a lock.
func TestNoCallKeepsALock(t *testing.T) { //nolint:paralleltest // see above
	st := store.Temporary(t.TempDir())
	k := newKeyring(Options{Key: testKey, Store: st, Rate: RateLimit{PerSecond: 1, Burst: 1}, Logger: slog.New(slog.DiscardHandler)})
	first, ok := k.use(testKey)
	if !ok || !k.mu.TryLock() {
		t.Fatal("use keeps the lock, or does not know the first key")
	}
	k.mu.Unlock()
	var (
		files  KeyFiles
		labels labelLocks
		id     string
	)
	for _, call := range []struct {
		name string
		lock *sync.Mutex
		do   func() error
	}{
		{"use of no key", &k.mu, func() error { k.use("none"); return nil }},
		{"list", &k.mu, func() error { k.list(); return nil }},
		{"create", &k.mu, func() error { key, _, err := k.create("name"); id = key.ID; return err }},
		{"rename", &k.mu, func() error { _, err := k.rename(id, "other"); return err }},
		{"remove", &k.mu, func() error { return k.remove(id) }},
		{"take", &first.rate.mu, func() error { first.rate.take(); return nil }},
		{"Count", &files.mu, func() error { files.Count(); return nil }},
		{"begin", &labels.mu, func() error {
			done, err := labels.begin(t.Context(), [2]string{"a", "b"})
			if err == nil && labels.mu.TryLock() {
				labels.mu.Unlock()
				done()
			}
			return err
		}},
	} {
		must.Do(t, call.do())
		if !call.lock.TryLock() {
			t.Fatalf("%s keeps the lock", call.name)
		}
		call.lock.Unlock()
	}
	if len(labels.busy) != 0 {
		t.Error("a label is still held")
	}
}
