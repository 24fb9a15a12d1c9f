//go:build linux && race

package e2e

// Less than without the race detector, which makes what handles bytes ten times
// as slow.
const (
	muchOutput  = 192 << 20 // more than a sandbox of the test has memory
	muchPrinted = 16 << 20  // more than is kept
)
