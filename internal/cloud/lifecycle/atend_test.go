package lifecycle_test

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestExpiresAtTheEnd checks that a lifetime is over at its end, and not only after it: otherwise the
// evictor would look again at once, and forever. It runs before the tests in which the evictor would do so.
func TestExpiresAtTheEnd(t *testing.T) { //nolint:paralleltest // see above
	for left, over := range map[time.Duration]bool{-1: true, 0: true, 1: false} {
		synctest.Test(t, func(t *testing.T) {
			s := newStage(t)
			id := s.create(t)
			synctest.Wait()
			if n, next := s.ExpireAfter(id, left); (n == 1) != over || next < 1 {
				t.Errorf("%v before its end: %d sandboxes end, and the next one after %v, want that it ends: %v", left, n, next, over)
			}
			synctest.Wait()
			_ = s.Close()
		})
	}
}
