//go:build linux

package inside

import (
	"os"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestKeepThreads checks that the threads exist, and stay.
func TestKeepThreads(t *testing.T) {
	const n = 40 // more than a test has
	keepThreads(n)
	tasks, err := os.ReadDir("/proc/self/task")
	must.Do(t, err)
	if len(tasks) < n {
		t.Errorf("got %d threads, want %d at least", len(tasks), n)
	}
}
