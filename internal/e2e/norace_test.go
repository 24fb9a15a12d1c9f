//go:build linux && !race

package e2e

const (
	littleMemory = 96 << 20
	muchOutput   = 384 << 20 // far more memory than a sandbox of the test has
	muchPrinted  = 64 << 20  // far more than is kept
	manyCalls    = 10_000
)
