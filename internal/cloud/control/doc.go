// Package control answers the REST API of the local cloud from the records of package
// lifecycle, for clients of both generations: the paths below /sandboxes and those below
// /v2/sandboxes differ only in defaults, and each can use sandboxes that the other
// created.
//
// # What it serves
//
// Sandboxes: create, connect, get, list, kill, timeout, refreshes, network rules, pause,
// resume, snapshots and forks; volumes and what is in them; templates and snapshots with
// their tags, and builds of templates; the one team, local, and its API keys; health.
//
// # Keys
//
// The first key is the one that the cloud was started with. It can make others, list,
// rename and delete them, and so can these; itself it cannot be changed. Of all others the
// store has only hashes, and a deleted one is refused from then on. Keys come in the
// X-API-KEY header; /teams and /api-keys, which on the service are for users with a bearer
// token, also take a key as that token. Requests with one key have a rate limit, which is
// answered with Retry-After, and before anything was done; all other limits are answered
// without it.
//
// # Pausing
//
// A pause keeps the memory, or with memory false only the files; the SDKs call that
// mode full and filesystem, and so does pauseMode in what GET returns. What was paused
// with its memory is paused with only its files when the local cloud was started again,
// unless its engine saves the memory: connect answers 201 for both, and only pauseMode tells.
// Connecting with memory false boots a sandbox from its files. Unlike the service's, this
// cloud's memory of a sandbox is its frozen processes, which end then. A memory whose envd did
// not answer when it was paused is marked with envdUnresponsiveAtPause and can be resumed with
// memory false only. So can one that this machine cannot restore, which connect refuses with 400.
//
// # Snapshots, forks and templates
//
// Snapshots and forks keep the files of a sandbox, which runs on, and its memory if its engine
// saves that and its envd answers: otherwise what is made of them starts its processes anew.
// The answers say which, with memory, which the service's do not have; a request may ask for
// memory false, and is refused if it asks for a memory by name that the engine does not save. A
// sandbox made from a snapshot has the environment of the snapshot's sandbox, with what it is
// given in its place; processes that go on keep theirs. A fork whose
// request has no timeout lives for 300 seconds, which is what the SDKs sent before they
// left it to the server, and not for the 15 of the schema.
//
// A snapshot is a template: GET /snapshots lists the tags of those that are, and GET
// /templates all others. What no tag points to any longer is removed. A source that ends
// is gone whether or not it was forked or has snapshots; on the service, it would be
// paused. Publishing a template is recorded and changes nothing, since there is one team.
//
// # Builds
//
// A build is requested, its archives are uploaded, and it is started; how it goes is asked
// for again and again. The address of an upload is signed and needs no key. Images are only
// those that are built-in templates; others are refused with 400 when the build is started,
// and it has failed then. Numbers of processors and megabytes are recorded and told, and
// sandboxes have the limits of this local cloud. GET /local/space, which the service does
// not have, says what layers, cached steps and archives take, and DELETE /local/space/cache
// removes the latter two.
//
// # Tags
//
// The service keeps every assignment of a tag, and this cloud the newest of each: a build that
// no tag points to is removed. A list of assignments has one, and hasMore is false.
//
// # Volumes
//
// The calls below /volumes are about volumes as such. What is in one is behind
// /volumecontent, for the bearer of its token, which GET returns anew; an API key does
// not open it. Errors of it have a word as their code. Beyond what is documented of the
// service: a path that exists is 409 without force, and so is deleting a volume that a
// sandbox has, running or paused.
//
// # Metrics and logs
//
// A sandbox that runs is measured every 5 seconds, and once more for whoever asks when there
// is no sample as young; what was measured lasts as long as the sandbox. GET
// /sandboxes/metrics leaves out sandboxes that it does not know. Logs stay for an hour after
// the end of the sandbox, without which they would be 404, and end with the server. Of the
// first generation's parameters, a limit above 1000 means 1000. Lists may be shorter than
// asked for, and then go on: an answer has some MiB at most.
//
// # MCP servers
//
// What mcp of a create request holds is for the program mcp-gateway, which the client then
// starts inside. As on the service, a sandbox is created whether its template has that
// program or not: the client finds out, says so, and kills the sandbox. No template of this
// cloud has it; SDKs ask for one named mcp-gateway.
//
// # What it does not
//
// The metrics of teams are answered with 501. iam of a create request is known and not
// supported: it is refused with 400 and an error that names it. Unknown fields are ignored, as newer clients need, and named in
// the request log.
package control
