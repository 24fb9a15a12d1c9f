// Package interop contains the tests that run the official E2B SDKs and the official
// command, unmodified, against "e2bctl local up" in a separate process.
//
// Two generations are pinned, with hashes, in the folders newest and 2.45 of js and python.
// python/others pins projects of others that build on a sandbox: smolagents, and the Jupyter
// project's own client and framings. python/openai-agents has the OpenAI Agents SDK, which
// brings an older SDK of its own. "make interop-update" moves all of them except 2.45 to the
// current releases, and also js/node, the Node that runs the newest. "make deps" installs
// them into the user's cache directory.
//
// The cases for the SDKs are in js/cases and python/cases, one file per feature, those for
// the other projects in python/othercases and python/agentcases, and those for the command
// in command_test.go and commandpause_test.go. Each case is a subtest, so that a failure
// names the broken feature. Each has a sandbox of its own, but cases that are registered
// together share one for all of their file, because they leave nothing behind that disturbs
// the others. The Python cases are written for the asynchronous SDK; the blocking one runs
// the same source without its awaits. Both ways to find the cloud are tested: by its
// addresses, without TLS, and by E2B_DOMAIN alone, over https. Not every client runs in both
// ways every time: the table clientRuns in clients_test.go lists those that do, and SOAK=1
// runs all.
//
// "make check-engines" also runs the newest SDKs on clouds of containers and of WebAssembly:
// all cases but those that need features which that engine does not have (needy_test.go
// names them).
//
// METHODS.md lists the methods of the SDKs, and methods_test.go keeps it true.
//
// The cases in defaultcases make every call with the default values of an SDK. The test in
// fields_test.go reads these requests, and fails if the cloud ignores a field that it does
// not know. The test in everyfield_test.go sends each request that the newest Python SDK
// knows how to make, with every field that it can have, which everyfield.py reads from the
// SDK. The test in builder_test.go has all builders define the templates of
// js/definitions.mjs and python/definitions.py, and compares their requests with ours.
package interop
