// Package control answers the REST API of the local cloud from the records of package
// lifecycle, for clients of both generations: the paths below /sandboxes and those below
// /v2/sandboxes differ only in defaults, and each can use sandboxes that the other
// created.
//
// # Calls
//
// Sandboxes: create, connect, get, list, kill, timeout, refreshes, network rules, pause, resume,
// snapshots and forks; volumes and their contents; templates and snapshots with their tags, and
// builds of templates; secrets; the one team, local, and its API keys; health.
//
// # Keys
//
// The cloud is started with the first key. It can make others, list, rename and delete them, and
// so can these; the first key itself cannot be changed. Of all others the store has only hashes,
// and a deleted one is refused at once. Keys come in the X-API-KEY header; /teams and /api-keys,
// which on the service are for users with a bearer token, also take a key as that token. Requests
// with one key have a rate limit. A request above it is answered with Retry-After, before
// anything is done for it; no other limit has a Retry-After.
//
// # Pausing
//
// A pause keeps the memory, or with memory false only the files; the SDKs call that mode full and
// filesystem, and so does pauseMode in the answer of GET. After a restart of the local cloud, a
// sandbox that was paused with its memory has only its files, unless its engine saves the memory:
// connect answers 201 in both cases, and only pauseMode tells the difference. Connecting with
// memory false boots a sandbox from its files. Unlike on the service, the memory of a paused
// sandbox is its frozen processes, which then end. If envd did not answer at the pause, the
// sandbox is marked with envdUnresponsiveAtPause and can be resumed with memory false only. The
// same applies to a memory that this machine cannot restore, which connect refuses with 400.
//
// # Snapshots, forks and templates
//
// Snapshots and forks keep the files of a sandbox, which runs on, and its memory if its engine
// saves memory and its envd answers: otherwise the processes of new sandboxes start anew. The
// answers report this in memory, a field that the service's do not have. A request may ask for
// memory false; it is refused if it asks for memory true and the engine does not save it. A
// sandbox made from a snapshot has the environment of the snapshot's sandbox, overridden by its
// own; processes that go on keep theirs. A fork whose request has no timeout lives for 300
// seconds, which the SDKs sent before they left it to the server, and not for the 15 of the
// schema.
//
// A snapshot is a template: GET /snapshots lists the tags of snapshots, and GET /templates all
// other templates. A build that no tag points to any longer is removed. A source that ends is
// gone whether or not it was forked or has snapshots; on the service, it would be paused.
// Publishing a template is recorded and changes nothing, since there is one team.
//
// # Builds
//
// A build is requested, its archives are uploaded, and it is started; clients poll its status.
// The address of an upload is signed and needs no key. If the engine takes no container images, a
// build can only begin with an image that is a built-in template; others are refused with 400
// when the build is started, and it has failed then. Numbers of processors and megabytes are
// recorded and reported, but sandboxes have the limits of this local cloud. GET /local/space,
// which the service does not have, reports the space of layers, cached steps and archives, and
// DELETE /local/space/cache removes the latter two.
//
// # Tags
//
// The service keeps every assignment of a tag, and this cloud the newest of each tag: a build
// that no tag points to is removed. A list of assignments has one, and hasMore is false.
//
// # Volumes
//
// The calls below /volumes manage volumes. Their contents are below /volumecontent, for the
// bearer of a volume's token, which GET returns anew; an API key does not open it. Its errors
// have a word as their code. Two answers go beyond the service's documentation: a path that
// exists is 409 without force, and so is deleting a volume that a sandbox has, running or paused.
//
// # Metrics and logs
//
// A running sandbox is measured every 5 seconds, and once more for a request if the latest sample
// is older; samples last as long as the sandbox. GET /sandboxes/metrics leaves out unknown
// sandboxes. Logs stay for an hour after the end of the sandbox (then they are 404), and end with
// the server. Of the first generation's parameters, a limit above 1000 means 1000. Pages may be
// shorter than their limit, although more follows: an answer has some MiB at most.
//
// # MCP servers
//
// The mcp field of a create request is for the program mcp-gateway, which the client then starts
// inside. As on the service, a sandbox is created whether its template has that program or not:
// the client notices, reports it, and kills the sandbox. No template of this cloud has the
// program; SDKs ask for a template named mcp-gateway.
//
// # Unsupported
//
// Metrics of teams, access tokens, nodes, administration and events are answered with 501. A
// create request with iam is refused with 400 and an error that names it. Unknown fields are
// ignored, as newer clients need, and named in the request log.
package control
