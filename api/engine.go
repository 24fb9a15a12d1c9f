package api

// Engine names what runs the sandboxes of a local cloud. Other services have none to choose
// from.
type Engine string

// The engines of the local cloud.
const (
	EngineRoom   Engine = "room"   // namespaces of this machine's kernel
	EngineDocker Engine = "docker" // containers of the user's own Docker or Podman
	EngineWasm   Engine = "wasm"   // Python in WebAssembly, without processes
	EngineGVisor Engine = "gvisor" // a kernel in user space
)
