package engine

import (
	"testing"
	"time"
)

// TestTooMany checks that a component is given up at the third death within a minute, and that a death
// counts for a minute only.
func TestTooMany(t *testing.T) {
	t.Parallel()
	start := time.Now()
	for name, deaths := range map[string][]struct {
		at   time.Duration
		want bool
	}{
		"in a minute":   {{0, false}, {0, false}, {time.Minute, true}},
		"one too late":  {{0, false}, {30 * time.Second, false}, {time.Minute + 1, false}, {90 * time.Second, true}},
		"now and again": {{0, false}, {time.Minute, false}, {2 * time.Minute, false}, {3 * time.Minute, false}, {3 * time.Minute, true}},
	} {
		var d Deaths
		for i, death := range deaths {
			if got := d.TooMany(start.Add(death.at)); got != death.want {
				t.Errorf("%s, death %d: got %v, want %v", name, i, got, death.want)
			}
		}
	}
}
