package guest

// Wasm says that Python runs in WebAssembly, and that nothing else runs.
type Wasm struct {
	// Dir is what package wasmenv prepared, at the same path as outside.
	Dir string `json:"dir"`
	// Places are what Python sees of the sandbox's files beside those of its user: the
	// directories of the host and the volumes that the sandbox has.
	Places []string `json:"places,omitempty"`
	// MemoryBytes is what the sandbox may use, 0 for no bound.
	MemoryBytes uint64 `json:"memoryBytes,omitempty"`
}

// NoProcesses is why such a sandbox starts no commands.
const NoProcesses = "not supported by the wasm engine: Python runs in WebAssembly, and there are no processes: no commands, no terminals, no ports"
