// Package envdclient calls the envd of a sandbox for the server: it runs commands, and makes the
// calls that builds of templates need. Sandboxed code controls the answers of envd. So the answers
// are bounded, and nothing in them is trusted.
package envdclient
