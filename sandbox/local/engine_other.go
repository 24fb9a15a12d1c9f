//go:build !linux || 386 || arm || mips || mipsle

package local

// DefaultEngine is the engine of sandboxes unless [WithEngine] or their template names another:
// [EngineRoom] on Linux, and [EngineDocker] on other systems.
const DefaultEngine = EngineDocker
