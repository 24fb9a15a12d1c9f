//go:build linux && !race

package e2e

// muchOutput is far more than a sandbox of the test has memory.
const muchOutput = 1 << 30
