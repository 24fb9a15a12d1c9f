package api

// Engine is the name of an engine, which runs the sandboxes of a local cloud. Other services
// offer no choice of engine.
type Engine string

// These are the engines of the local cloud.
const (
	EngineRoom   Engine = "room"   // the engine with namespaces of this machine's kernel
	EngineDocker Engine = "docker" // the engine with containers of the user's own Docker or Podman
	EngineWasm   Engine = "wasm"   // the engine with Python in WebAssembly, without processes
	EngineGVisor Engine = "gvisor" // the engine with gVisor, a kernel in user space
)
