//go:build linux && race

package e2e

// The values are smaller than without the race detector, which makes everything
// ten times as slow.
const (
	littleMemory = 128 << 20 // envd with the race detector is larger
	muchOutput   = 256 << 20 // more memory than a sandbox of the test has
	muchPrinted  = 16 << 20  // more than is kept
	manyCalls    = 1_000
)
