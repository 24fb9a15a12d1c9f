package protocol

// Pip for a sandbox of WebAssembly runs in a second sandbox. These constants describe the second
// sandbox. PyodideDist is the directory in which it sees the local cloud's Pyodide distribution, if
// the cloud has a distribution. PyodideLock is the file in this directory that lists the
// distribution's packages. PipFor is a key in the metadata of the second sandbox. Its value is the
// id of the sandbox of WebAssembly.
const (
	PyodideDist = "/opt/pyodide"
	PyodideLock = "pyodide-lock.json"
	PipFor      = "e2bctl.pip-for"
)
