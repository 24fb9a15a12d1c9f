//go:build linux && race

package e2e

// Less than without the race detector, under which all takes ten times as long.
const (
	littleMemory = 128 << 20 // an agent with the race detector is larger
	muchOutput   = 256 << 20 // more than a sandbox of the test has memory
	muchPrinted  = 16 << 20  // more than is kept
	manyCalls    = 1_000
)
