package lifecycle

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestEndsAreBounded checks that the newest ends are remembered. An end that is reported again
// counts only once: otherwise each kill would make the log forget two other ends.
func TestEndsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := endedLog{clock: newClock()}
		for n := range 2*maxEnded + 3 {
			id := fmt.Sprint(n)
			l.add(id, killed)
			l.clock.advance(time.Second)
			l.add(id, expired)
			if want := min(n+1, maxEnded); len(l.entries) != want || len(l.order) != want {
				t.Fatalf("after %d ends: got %d entries, and %d in order, want %d", n+1, len(l.entries), len(l.order), want)
			}
			for known, want := range map[int]bool{n: true, n - maxEnded + 1: n+1 >= maxEnded, n - maxEnded: false} {
				got, at := l.notFound(fmt.Sprint(known)), l.clock.now().Add(time.Duration(known-n)*time.Second)
				if (got.Reason != "") != want || want && (got.Reason != Expired || !got.EndedAt.Equal(at)) {
					t.Fatalf("after %d ends: got %+v of number %d, want it known: %v, as it was told last", n+1, got, known, want)
				}
			}
		}
		for _, later := range []struct {
			by    time.Duration
			known bool
		}{{0, true}, {remembered, true}, {1, false}} {
			l.clock.advance(later.by)
			if got := l.notFound(fmt.Sprint(2*maxEnded + 2)); (got.Reason != "") != later.known {
				t.Errorf("%v later: got %+v, want it known: %v", later.by, got, later.known)
			}
		}
	})
}
