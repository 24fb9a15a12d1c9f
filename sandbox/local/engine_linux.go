//go:build !386 && !arm && !mips && !mipsle

package local

// DefaultEngine runs sandboxes unless [WithEngine] or their template names another engine:
// [EngineRoom] on Linux, and [EngineDocker] on other systems, which have no other one.
const DefaultEngine = EngineRoom
