// Package control serves the REST API of the local cloud from the records of package lifecycle.
// It serves clients of both generations. The paths below /sandboxes and the paths below
// /v2/sandboxes have different defaults. Clients of each generation can use sandboxes that clients
// of the other generation created.
//
// # Calls
//
// The API has calls for sandboxes: create, connect, get, list, kill, timeout, refreshes,
// network rules, pause, resume, snapshots and forks. It has calls for volumes and their
// contents, for templates and snapshots with their tags, for builds of templates, for secrets,
// for health, and for the only team, local, and its API keys.
//
// # Keys
//
// The cloud is started with the first key. Requests with any key can create, list, rename and
// delete keys. The first key cannot be changed. The store has only hashes of the other keys. A
// deleted key is refused at once. Keys are sent in the X-API-KEY header. On the service, /teams and
// /api-keys require the bearer token of a user; here, they also accept a key as the bearer token.
// The requests with one key have a rate limit. A request above the limit is refused with
// Retry-After before it has any effect. No other limit answers with Retry-After. A server that is
// ending also refuses new requests with Retry-After, and with status 503.
//
// # Pausing
//
// A pause keeps the memory and the files of a sandbox. A pause with memory false keeps only the
// files. The SDKs call these modes full and filesystem, and GET
// reports the mode as pauseMode. If the engine does not save memory, a sandbox that was paused with
// its memory has only its files after a restart of the local cloud. Connect answers 201 with and
// without the memory; only pauseMode shows the difference.
// Connecting with memory false boots a sandbox from its files. Unlike on the service, the memory of
// a paused sandbox consists of its frozen processes. These processes end when the sandbox boots. If
// envd did not answer at the pause, the sandbox is marked with envdUnresponsiveAtPause, and can
// only be resumed with memory false. A sandbox whose memory this machine cannot restore can also
// only be resumed with memory false; otherwise, connect answers 400.
//
// # Idle limits
//
// The field idleTimeout of a create request, which the service does not have, ends or pauses the sandbox
// when nothing has used it for this many seconds. It must be less than timeout. Without timeout, the
// sandbox lives for the longest lifetime. GET /local/features has the field idle, and GET of a sandbox
// has idleTimeout. A sandbox that the limit ended has the reason idle. An engine without idle limits
// refuses the field with 400.
//
// # Requests
//
// An entry of network.rules may have the field requests, which the service does not have: a list of
// objects with methods and path. The host then receives only these requests, see
// [network.Rules.WithRequests]. GET /local/features has the field requests.
//
// # Snapshots, forks and templates
//
// Snapshots and forks keep the files of a sandbox, which continues to run. They keep its memory
// if its engine saves memory and its envd answers; otherwise, the processes of new sandboxes
// start anew. The field memory of the answers, which the service does not have, reports whether the
// memory was kept. A request may set memory to false. If the engine does not save memory, a request
// with memory true is refused. A sandbox made from a snapshot has the environment of the snapshot's
// sandbox. The environment in the request for the new sandbox overrides it. Processes that continue
// keep their environment. A fork
// without a timeout lives for 300 seconds. The service's schema has 15 seconds, but SDKs sent 300
// before they left the timeout to the server.
//
// A snapshot is a template: GET /snapshots lists the tags of snapshots, and GET /templates
// lists all other templates. A build is removed when no tag points to it. A sandbox that ends
// is gone, even if it was forked or has snapshots; on the service, it would be paused.
// Publishing a template is recorded and has no effect, since there is only one team.
//
// # Builds
//
// A client requests a build, uploads its archives and starts it. Then it polls the build's
// status. The address of an upload is signed and needs no key. If the engine takes no container
// images, a build can only begin with an image for which there is a built-in template. With any
// other image, the start of the build is refused with 400, and the build has failed. The
// sandboxes of the template have the requested processors and megabytes, lowered to the bounds of
// this local cloud. Exactly 2 processors with 1024 megabytes request nothing, because official
// clients send these values if their user chose none. A request to create a sandbox may have a field
// resources with cpuCount, memoryBytes and diskBytes. The service ignores this field.
//
// Three calls do not exist on the service. POST /local/sandboxes/{id}/resources, with the same three
// fields as its body, changes the resources of a running sandbox. A field that is 0 or missing does not
// change. The status is 409 if the sandbox uses more memory or disk than requested, and 404 if it is
// paused. GET /local/space reports the space of layers, cached steps and archives. DELETE
// /local/space/cache removes cached steps and archives.
//
// # Tags
//
// The service keeps every assignment of a tag. This cloud keeps the newest assignment of each
// tag, so a list of assignments has one element, and hasMore is false.
//
// # Volumes
//
// The calls below /volumes manage volumes. The calls below /volumecontent access their
// contents. The calls below /volumecontent require the token of the volume, and do not accept an
// API key. Each GET of a volume returns a new token. In the errors of the calls below
// /volumecontent, the code is a word. Two answers are not in the service's documentation: creating a
// path that exists, without force, is answered with 409. Deleting a volume of a running or paused
// sandbox is also answered with 409.
//
// # Metrics and logs
//
// A running sandbox is measured every 5 seconds. A request for metrics also measures it if the
// latest sample is older than 5 seconds. Samples last as long as the sandbox. GET
// /sandboxes/metrics leaves out unknown sandboxes. Logs last for an hour after the end of the
// sandbox, but no longer than the server. Later requests for logs are answered with 404. In the
// first generation, a limit above 1000 means 1000. A page may have fewer entries than its limit
// even if more entries follow, because an answer has a few MiB at most.
//
// # MCP servers
//
// The mcp field of a create request is for the program mcp-gateway, which the client then
// starts in the sandbox. As on the service, a sandbox is created even if its template does not
// have that program: the client then fails to start the program, reports the failure, and kills the
// sandbox. No template of this cloud has the program. SDKs request a template named mcp-gateway.
//
// # Unsupported
//
// Requests for metrics of teams, access tokens, nodes, administration and webhooks of events are
// answered with 501. A create request with iam is refused with 400 and an error that names the
// field. Unknown fields are ignored, so that newer clients work, and are named in the request log.
package control
