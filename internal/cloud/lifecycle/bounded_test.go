package lifecycle

import (
	"fmt"
	"testing"
	"time"
)

// TestEndsAreBounded checks that the newest ends are remembered. An end that is reported again
// counts only once: otherwise each kill would make the log forget two other ends.
func TestEndsAreBounded(t *testing.T) {
	t.Parallel()
	var l endedLog
	now := time.Unix(1, 0)
	for n := range 2*maxEnded + 3 {
		id := fmt.Sprint(n)
		l.add(id, now, killed)
		l.add(id, now.Add(time.Second), expired)
		if want := min(n+1, maxEnded); len(l.entries) != want || len(l.order) != want {
			t.Fatalf("after %d ends: got %d entries, and %d in order, want %d", n+1, len(l.entries), len(l.order), want)
		}
		for known, want := range map[int]bool{n: true, n - maxEnded + 1: n+1 >= maxEnded, n - maxEnded: false} {
			got := l.notFound(fmt.Sprint(known), now.Add(time.Second))
			if (got.Reason != "") != want || want && (got.Reason != Expired || !got.EndedAt.Equal(now.Add(time.Second))) {
				t.Fatalf("after %d ends: got %+v of number %d, want it known: %v, as it was told last", n+1, got, known, want)
			}
		}
	}
	for after, want := range map[time.Duration]bool{0: true, remembered: true, remembered + 1: false} {
		if got := l.notFound(fmt.Sprint(2*maxEnded), now.Add(time.Second+after)); (got.Reason != "") != want {
			t.Errorf("%v later: got %+v, want it known: %v", after, got, want)
		}
	}
}
