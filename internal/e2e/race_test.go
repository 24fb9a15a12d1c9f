//go:build linux && race

package e2e

// muchOutput is more than a sandbox of the test has memory; a GiB would take a
// minute under the race detector.
const muchOutput = 192 << 20
