// Package envdclient is what the server asks of the envd of a sandbox: running commands,
// and what builds of templates need. What comes back is what sandboxed code wanted it to be: it is bounded,
// and nothing in it is trusted.
package envdclient
