// Package control answers the REST API of the local cloud from the records of
// package lifecycle, for clients of both generations: the paths below /sandboxes and those below /v2/sandboxes differ
// in defaults only, and either reaches what the other made.
//
// # What it serves
//
// Sandboxes: create, connect, get, list, kill, timeout, refreshes and what they may
// reach; aliases of its two templates, base and code-interpreter-v1; health.
//
// # What it does not
//
// Pausing and resuming, forks, snapshots, metrics and logs, template builds,
// volumes, secrets and teams are answered with 501. Fields of a create request that
// are known and not served (autoPause, autoPauseMemory false, autoResume, mcp, iam,
// volumeMounts, and of network egressProxy and rules) are refused with 400 and
// their name. Unknown fields are ignored, as newer clients need, and named in the
// request log.
package control
