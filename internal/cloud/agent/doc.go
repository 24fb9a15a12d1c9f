// Package agent is the daemon inside a sandbox: processes, files, metrics, on
// the wire of envd.
package agent
