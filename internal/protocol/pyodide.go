package protocol

// PyodideDist is the directory in which a local cloud shows its Pyodide distribution, if it has one, to
// sandboxes in which pip runs for a sandbox of WebAssembly. PyodideLock is the file there that lists its
// packages. Such a sandbox has the metadata PipFor: the id of the sandbox of WebAssembly.
const (
	PyodideDist = "/opt/pyodide"
	PyodideLock = "pyodide-lock.json"
	PipFor      = "e2bctl.pip-for"
)
