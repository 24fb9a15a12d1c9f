package protocol

// Where a local cloud shows a Pyodide distribution, if it has one, to sandboxes in which pip runs
// for one of WebAssembly, and the file there that lists its packages. Such a sandbox has the
// metadata PipFor, which is the id of the other.
const (
	PyodideDist = "/opt/pyodide"
	PyodideLock = "pyodide-lock.json"
	PipFor      = "e2bctl.pip-for"
)
