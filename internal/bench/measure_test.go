//go:build linux

package main

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestSlowRows checks that a row that takes longer than its time is measured with fewer runs and parts,
// and that others are measured in full.
func TestSlowRows(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		each         time.Duration
		floor        bool
		runs, parts  int
		total, calls int
	}{
		{each: time.Millisecond, floor: true, runs: 20, parts: rounds, total: 20, calls: 25},
		{each: time.Millisecond, runs: 20, parts: 1, total: 20, calls: 21},
		{each: time.Millisecond, floor: true, runs: 3, parts: 1, total: 3, calls: 4},
		{each: time.Minute, floor: true, runs: 20, parts: fewest, total: 2 * fewest, calls: 2 * (fewest + 1)},
		{each: time.Minute, runs: 20, parts: 1, total: fewest, calls: fewest + 1},
		{each: time.Second, runs: 20, parts: 1, total: 4, calls: 5},
		// A part is a warm-up and two runs of the row, and as many of its floor, which take six seconds.
		{each: time.Second, floor: true, runs: 10, parts: 2, total: 4, calls: 6},
		{each: time.Second / 5, floor: true, runs: 10, parts: 3, total: 6, calls: 9},
	} {
		synctest.Test(t, func(t *testing.T) {
			made := 0
			work := calls(func(context.Context) error { made++; time.Sleep(tt.each); return nil }) //nolint:forbidigo // its time is fake
			slow := row{name: "slow", measure: work}
			if tt.floor {
				slow.floor = calls(func(context.Context) error { time.Sleep(tt.each); return nil }) //nolint:forbidigo // its time is fake
			}
			got, err := slow.inTurns(t.Context(), tt.runs)
			must.Do(t, err)
			seen, want := []int{len(got.parts), len(got.got.took), made, len(got.bare.took)}, []int{tt.parts, tt.total, tt.calls, 0}
			if tt.floor {
				want[3] = tt.total
			}
			if !slices.Equal(seen, want) {
				t.Errorf("%+v: got parts, runs, calls and runs of the floor %v, want %v", tt, seen, want)
			}
		})
	}
}
