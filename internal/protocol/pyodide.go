package protocol

// These constants are for a sandbox in which pip runs for a sandbox of WebAssembly. PyodideDist is
// the directory in which the sandbox sees the local cloud's Pyodide distribution, if the cloud has
// one. PyodideLock is the file in this directory that lists the distribution's packages. PipFor is
// the key of the sandbox's metadata that contains the id of the sandbox of WebAssembly.
const (
	PyodideDist = "/opt/pyodide"
	PyodideLock = "pyodide-lock.json"
	PipFor      = "e2bctl.pip-for"
)
