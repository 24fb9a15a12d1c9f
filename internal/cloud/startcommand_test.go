//go:build linux

package cloud

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestUntilReady(t *testing.T) {
	t.Parallel()
	never := errors.New("not ready")
	for name, tt := range map[string]struct {
		fails int // number of checks that fail before the first one that succeeds
		dies  time.Duration
		ready bool
		least time.Duration
		most  time.Duration
	}{
		"at once":         {0, time.Hour, true, 0, 0},
		"soon":            {3, time.Hour, true, 100 * time.Millisecond, 200 * time.Millisecond},
		"late":            {20, time.Hour, true, 10 * time.Second, 20 * time.Second},
		"never":           {1 << 30, time.Hour, false, readyDeadline, readyDeadline},
		"when it is gone": {1 << 30, time.Second, false, time.Second, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				gone := make(chan struct{})
				timer := time.AfterFunc(tt.dies, func() { close(gone) })
				defer timer.Stop()
				begun, checks := time.Now(), 0
				err := untilReady(t.Context(), gone, func(context.Context) error {
					if checks++; checks > tt.fails {
						return nil
					}
					return never
				})
				if took := time.Since(begun); took < tt.least || took > tt.most || (err == nil) != tt.ready {
					t.Errorf("got %v after %v, want ready %v between %v and %v", err, took, tt.ready, tt.least, tt.most)
				}
			})
		})
	}
}
