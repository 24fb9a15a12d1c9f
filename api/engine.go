package api

// Engine names the engine that runs sandboxes of a local cloud. Other services offer no choice.
type Engine string

// The engines of the local cloud.
const (
	EngineRoom   Engine = "room"   // namespaces of this machine's kernel
	EngineDocker Engine = "docker" // containers of the user's own Docker or Podman
	EngineWasm   Engine = "wasm"   // Python in WebAssembly, without processes
	EngineGVisor Engine = "gvisor" // a kernel in user space
)
