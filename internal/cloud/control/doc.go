// Package control answers the REST API of the local cloud from the records of package
// lifecycle, for clients of both generations: the paths below /sandboxes and those below
// /v2/sandboxes differ only in defaults, and each can use sandboxes that the other
// created.
//
// # What it serves
//
// Sandboxes: create, connect, get, list, kill, timeout, refreshes and network rules;
// aliases of its two templates, base and code-interpreter-v1; health.
//
// # What it does not
//
// Pausing and resuming, forks, snapshots, metrics and logs, template builds, volumes,
// secrets and teams are answered with 501. Fields of a create request that are known but
// not supported (autoPause, autoPauseMemory false, autoResume, mcp, iam, volumeMounts,
// and of network egressProxy and rules) are refused with 400 and an error that names
// them. Unknown fields are ignored, as newer clients need, and named in the request log.
package control
