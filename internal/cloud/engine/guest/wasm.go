package guest

// Wasm configures a sandbox in which Python runs in WebAssembly, and nothing else runs.
type Wasm struct {
	// Dir is the directory that package wasmenv prepared. It has the same path as on the host.
	Dir string `json:"dir"`
	// Places are the directories of the sandbox's mounts and volumes. Python sees them in addition to
	// the directories of its user.
	Places []string `json:"places,omitempty"`
	// MemoryBytes is the memory limit of the sandbox. Zero means no limit.
	MemoryBytes uint64 `json:"memoryBytes,omitempty"`
}

// NoProcesses is the error message for commands in a sandbox that runs only Python in WebAssembly.
const NoProcesses = "not supported by the wasm engine: Python runs in WebAssembly, and there are no processes: no commands, no terminals, no ports"
