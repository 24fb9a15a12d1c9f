package protocol

// Where a local cloud shows its sandboxes a Pyodide distribution, if it has one, and the file
// there that lists its packages.
const (
	PyodideDist = "/opt/pyodide"
	PyodideLock = "pyodide-lock.json"
)
