//go:build !linux || 386 || arm || mips || mipsle

package local

// DefaultEngine is the engine of sandboxes if neither [WithEngine] nor their template names another
// engine. It is [EngineRoom] on Linux, and [EngineDocker] on other systems.
const DefaultEngine = EngineDocker
