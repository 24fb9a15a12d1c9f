package sandbox

import (
	"context"
	"testing"
)

// No call waits for a pause that was refused, and the next pause counts.
func TestRefusedPauseIsNotAwaited(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	var a asleep
	settle := a.begin()
	if !a.wait(ended) {
		t.Error("a call does not wait while the pause is asked for")
	}
	settle(false)
	if a.wait(ended) || a.pausedHere() {
		t.Error("a call waits for a pause that was refused")
	}
	a.begin()(true)
	if !a.wait(ended) || !a.pausedHere() {
		t.Error("a call does not wait for the pause after one that was refused")
	}
	a.end()
	if a.wait(ended) || a.pausedHere() {
		t.Error("a call waits for a pause that is over")
	}
}
